"""Executes one transaction's statements on the raw DBAPI connection.

Statements are SQLAlchemy Core expressions, compiled once for each dialect. They then go straight to
the driver: SQLAlchemy's own execution costs ten times what SQLite needs for the statement itself.

A session that saw an error takes nothing more and cannot commit. Otherwise an error that
somebody swallows would end in a commit that stores nothing (PostgreSQL turns COMMIT into ROLLBACK
without a word; SQLite has rolled back already) and yet looks like one that did.
"""

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Executable, Table, insert
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite import dialect as sqlite_dialect
from sqlalchemy.engine import Dialect
from sqlalchemy.sql.elements import ClauseElement

__all__ = [
    "LISTED",
    "LostTransaction",
    "PostgresqlSession",
    "Query",
    "Row",
    "Session",
    "SqliteSession",
]

Row = tuple[Any, ...]
Values = Mapping[str, Any]
LISTED = "each_"
"""How the names of the values of a list begin; they stand together in a text."""
_COPY_FROM_ROWS = 4
"""Fewer rows are inserted by statements; COPY pays off from here."""


class Query(NamedTuple):
    """A query with its values; ``each`` are those of its list, if it has one."""

    statement: Executable
    values: Values
    each: Sequence[Any] = ()


class LostTransaction(Exception):
    """The database has ended the transaction by itself, so there is nothing to commit."""


@dataclass(frozen=True)
class Text:
    """A compiled statement: its text, and the names of its values in their order."""

    sql: str
    names: tuple[str, ...]
    constants: Mapping[str, Any]

    def positions(self, values: Values, each: Sequence[Any] = ()) -> Row:
        """The values in the order of the text's placeholders; ``each`` fills its one list."""
        named = [values[name] if name in values else self.constants[name] for name in self.single_names]
        return (*named[: self.list_at], *each, *named[self.list_at :])

    @functools.cached_property
    def single_names(self) -> tuple[str, ...]:
        """The names of the values outside the list."""
        return tuple(name for name in self.names if not name.startswith(LISTED))

    @functools.cached_property
    def list_at(self) -> int:
        """How many values come before the list."""
        return next((at for at, name in enumerate(self.names) if name.startswith(LISTED)), len(self.names))


class Texts:
    """Statements compiled once for one dialect."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._texts: dict[Any, Text] = {}

    def of(self, statement: Executable) -> Text:
        """The text of a statement; the same object is compiled only once."""
        text = self._texts.get(statement)
        if text is None:
            text = self._texts[statement] = self._compile(statement)
        return text

    def insertion(self, table: Table) -> Text:
        """The text that inserts one full row."""
        text = self._texts.get(table)
        if text is None:
            text = self._texts[table] = self._compile(insert(table))
        return text

    def _compile(self, statement: Executable) -> Text:
        assert isinstance(statement, ClauseElement)
        compiled: Any = statement.compile(dialect=self._dialect)
        return Text(compiled.string, tuple(compiled.positiontup), compiled.params)


_SQLITE = Texts(sqlite_dialect(paramstyle="qmark"))
_POSTGRESQL = Texts(PGDialect_psycopg(paramstyle="format"))  # type: ignore[no-untyped-call]


class Session:
    """One transaction on one connection of the driver."""

    texts: Texts

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self._failure: Exception | None = None

    def rows(self, statement: Executable, values: Values, each: Sequence[Any] = ()) -> list[Row]:
        """Everything a query finds; ``each`` are the values of its list, if it has one."""
        text = self.texts.of(statement)
        found: list[Row] = self._say(self._raw.execute, text.sql, text.positions(values, each)).fetchall()
        return found

    def rows_of(self, asked: Sequence[Query]) -> list[list[Row]]:
        """What each of several queries finds; none of them needs another's answer."""
        return [self.rows(*query) for query in asked]

    def row(self, statement: Executable, values: Values) -> Row | None:
        """The first row that a query finds."""
        found = self.rows(statement, values)
        return found[0] if found else None

    def said(self, sql: str) -> Row:
        """The one row that a query in the database's own words finds."""
        found: Row = self._say(self._raw.execute, sql).fetchone()
        return found

    def change(self, statement: Executable, values: Values) -> int:
        """Run a statement that changes rows; says how many it did change."""
        text = self.texts.of(statement)
        changed: int = self._say(self._raw.execute, text.sql, text.positions(values)).rowcount
        return changed

    def change_all(self, changes: Sequence[tuple[Executable, Values]]) -> list[int]:
        """Run several statements; says how many rows each of them changed."""
        return [self.change(statement, values) for statement, values in changes]

    def change_each(self, statement: Executable, rows: Sequence[Values]) -> int:
        """Run it once for each row; says how many rows were changed in all."""
        if len(rows) == 1:
            return self.change(statement, rows[0])
        text = self.texts.of(statement)
        return self._many(text.sql, [text.positions(row) for row in rows])

    def insert(self, table: Table, rows: Sequence[Row]) -> None:
        """Insert full rows, their values in the order of the table's columns."""
        text = self.texts.insertion(table)
        if len(rows) == 1:
            self._say(self._raw.execute, text.sql, rows[0])
        elif rows:
            self._insert_many(table, text, rows)

    @contextlib.contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Several statements that belong together: if one fails, nothing of the transaction is kept."""
        try:
            yield
        except Exception as error:
            self._failure = error
            raise

    def begin(self, *, writing: bool) -> None:
        """Start the transaction; by default the driver does it with the first statement."""
        return

    def commit(self) -> None:
        """Make everything durable, or raise."""
        self._refuse_after_failure()
        self._raw.commit()

    def _insert_many(self, table: Table, text: Text, rows: Sequence[Row]) -> None:
        self._many(text.sql, rows)

    def _many(self, sql: str, rows: Sequence[Row]) -> int:
        cursor = self._raw.cursor()
        self._say(cursor.executemany, sql, rows)
        changed: int = cursor.rowcount
        return changed

    def _say(self, call: Any, *arguments: Any) -> Any:
        self._refuse_after_failure()
        try:
            return call(*arguments)
        except self._raw.Error as error:
            self._failure = error
            raise

    def _refuse_after_failure(self) -> None:
        if self._failure is not None:
            raise self._failure


class SqliteSession(Session):
    """A transaction of SQLite; a writing one holds the database's only write lock from its start."""

    texts = _SQLITE

    def begin(self, *, writing: bool) -> None:
        self._say(self._raw.execute, "BEGIN IMMEDIATE" if writing else "BEGIN")

    def commit(self) -> None:
        self._refuse_after_failure()
        if not self._raw.in_transaction:
            raise LostTransaction
        super().commit()


class PostgresqlSession(Session):
    """A transaction of PostgreSQL; the driver says BEGIN with the first statement."""

    texts = _POSTGRESQL

    def rows_of(self, asked: Sequence[Query]) -> list[list[Row]]:
        # Also a single query: in a pipeline the BEGIN before the first one does not travel alone.
        found: list[list[Row]] = self._say(self._fetch, asked) if asked else []
        return found

    def change_all(self, changes: Sequence[tuple[Executable, Values]]) -> list[int]:
        counts: list[int] = self._say(self._count, changes)
        return counts

    def _fetch(self, asked: Sequence[Query]) -> list[list[Row]]:
        texts = [self.texts.of(query.statement) for query in asked]
        rows = [text.positions(values, each) for text, (_, values, each) in zip(texts, asked, strict=True)]
        with self._raw.pipeline():
            cursors = [self._raw.execute(text.sql, row) for text, row in zip(texts, rows, strict=True)]
        return [cursor.fetchall() for cursor in cursors]

    def _count(self, changes: Sequence[tuple[Executable, Values]]) -> list[int]:
        texts = [(self.texts.of(statement), values) for statement, values in changes]
        with self._raw.pipeline():
            cursors = [self._raw.execute(text.sql, text.positions(values)) for text, values in texts]
        return [cursor.rowcount for cursor in cursors]

    def _insert_many(self, table: Table, text: Text, rows: Sequence[Row]) -> None:
        if len(rows) < _COPY_FROM_ROWS:
            self._many(text.sql, rows)
        else:
            self._say(self._copy, f"COPY {table.name} ({', '.join(text.names)}) FROM STDIN", rows)

    def _copy(self, sql: str, rows: Sequence[Row]) -> None:
        with self._raw.cursor() as cursor, cursor.copy(sql) as copy:
            for row in rows:
                copy.write_row(row)
