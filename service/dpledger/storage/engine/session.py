"""Databases and sessions: each executes one transaction's statements on the raw DBAPI connection.

Statements are SQLAlchemy Core expressions, compiled once for each dialect. They then go straight to
the driver: SQLAlchemy's own execution costs ten times what SQLite needs for the statement itself.

Lists of values (IN clauses) come in sizes that are powers of two: there are few texts then, and the databases
keep them prepared. A shorter list is filled up by repeating its last value.

A session that saw an error takes nothing more and cannot commit. Otherwise an error that
somebody swallows would end in a commit that stores nothing (PostgreSQL turns COMMIT into ROLLBACK
without a word; SQLite has rolled back already) and yet looks like one that did.
"""

import contextlib
import functools
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Column, Engine, Executable, Select, Table, bindparam, event, insert
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite import dialect as sqlite_dialect
from sqlalchemy.engine import Dialect
from sqlalchemy.sql.elements import ClauseElement, ColumnElement

from dpledger.ledger.errors import Unavailable
from dpledger.storage.engine.engines import BUSY_SECONDS, reading_engine
from dpledger.storage.engine.failures import Busy, translate_error

__all__ = [
    "Cache",
    "Database",
    "LostTransaction",
    "PostgresqlSession",
    "Query",
    "Row",
    "Session",
    "SqliteSession",
    "in_list",
    "of_dataset",
    "queries_in_list",
    "select_in_list",
]

Row = tuple[Any, ...]
Values = Mapping[str, Any]
_LISTED = "each_"
"""How the names of the values of a list begin; they stand together in a text."""
_LONGEST_LIST = 256
_KEPT_VALUES = 65_536
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
        return tuple(name for name in self.names if not name.startswith(_LISTED))

    @functools.cached_property
    def list_at(self) -> int:
        """How many values come before the list."""
        return next((at for at, name in enumerate(self.names) if name.startswith(_LISTED)), len(self.names))


class Texts(dict[Any, Text]):
    """Statements compiled once for one dialect; a table stands for the insertion of one full row."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect

    def __missing__(self, statement: Executable | Table) -> Text:
        asked = insert(statement) if isinstance(statement, Table) else statement
        assert isinstance(asked, ClauseElement)
        compiled: Any = asked.compile(dialect=self._dialect)
        text = self[statement] = Text(compiled.string, tuple(compiled.positiontup), compiled.params)
        return text


class Cache:
    """What is known to be committed, by key, at most ``size`` values; any thread may use it.

    The one that was used longest ago goes first.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[Hashable, Any] = OrderedDict()
        self._guard = threading.Lock()
        self.get = self._values.get
        """The value of a key, or None."""

    def update(self, values: Mapping[Hashable, Any]) -> None:
        """Remember these."""
        with self._guard:
            self._values.update(values)
            for key in values:
                self._values.move_to_end(key)
            while len(self._values) > self._size:
                self._values.popitem(last=False)

    def clear(self) -> None:
        """Forget everything."""
        with self._guard:
            self._values.clear()


_SQLITE = Texts(sqlite_dialect(paramstyle="qmark"))
_POSTGRESQL = Texts(PGDialect_psycopg(paramstyle="format"))  # type: ignore[no-untyped-call]


class Session:
    """One transaction on one connection of the driver.

    A number given out by a transaction that then rolls back will be given to something else. So what a
    transaction finds stays with it in ``found``, and joins the shared cache only after its commit.
    """

    texts: Texts

    def __init__(self, raw: Any, known: Cache) -> None:
        self._raw = raw
        self._known = known
        self._failure: Exception | None = None
        self.found: dict[Hashable, Any] = {}
        """What this transaction has found or made, by key; see :meth:`recall`."""

    def recall(self, key: Hashable) -> Any:
        """What this transaction or an earlier one has found, or None."""
        value = self.found.get(key)
        if value is None:
            value = self._known.get(key)
            if value is not None:
                self.found[key] = value
        return value

    def rows(self, statement: Executable, values: Values, each: Sequence[Any] = ()) -> list[Row]:
        """Everything a query finds; ``each`` are the values of its list, if it has one."""
        text = self.texts[statement]
        found: list[Row] = self._say(self._raw.execute, text.sql, text.positions(values, each)).fetchall()
        return found

    def rows_of_each(self, lists: Sequence[Sequence[Query]]) -> list[list[Row]]:
        """All rows for each list of queries, none of which needs another's answer."""
        return [[row for query in asked for row in self.rows(*query)] for asked in lists]

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
        text = self.texts[statement]
        changed: int = self._say(self._raw.execute, text.sql, text.positions(values)).rowcount
        return changed

    def change_all(self, changes: Sequence[tuple[Executable, Values]]) -> list[int]:
        """Run several statements; says how many rows each of them changed."""
        texts = [(self.texts[statement], values) for statement, values in changes]
        return [self._say(self._raw.execute, text.sql, text.positions(each)).rowcount for text, each in texts]

    def change_each(self, statement: Executable, rows: Sequence[Values]) -> int:
        """Run it once for each row; says how many rows were changed in all."""
        if len(rows) == 1:
            return self.change(statement, rows[0])
        text = self.texts[statement]
        return self._many(text.sql, [text.positions(row) for row in rows])

    def insert(self, table: Table, rows: Sequence[Row]) -> None:
        """Insert full rows, their values in the order of the table's columns."""
        text = self.texts[table]
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
            self.fail(error)
            raise

    def fail(self, error: Exception) -> None:
        """Take nothing more, and keep nothing of the transaction."""
        self._failure = error

    def begin(self, *, writing: bool) -> None:
        """Start the transaction; by default the driver does it with the first statement."""
        return

    def commit(self) -> None:
        """Make everything durable, or raise."""
        if self._failure is not None:
            raise self._failure
        self._raw.commit()

    def _insert_many(self, table: Table, text: Text, rows: Sequence[Row]) -> None:
        self._many(text.sql, rows)

    def _many(self, sql: str, rows: Sequence[Row]) -> int:
        cursor = self._raw.cursor()
        self._say(cursor.executemany, sql, rows)
        changed: int = cursor.rowcount
        return changed

    def _say(self, call: Any, *arguments: Any) -> Any:
        if self._failure is not None:
            raise self._failure
        try:
            return call(*arguments)
        except self._raw.Error as error:
            self._failure = error
            raise


class SqliteSession(Session):
    """A transaction of SQLite; a writing one holds the database's only write lock from its start."""

    texts = _SQLITE

    def begin(self, *, writing: bool) -> None:
        self._say(self._raw.execute, "BEGIN IMMEDIATE" if writing else "BEGIN")

    def commit(self) -> None:
        if self._failure is not None:
            raise self._failure
        if not self._raw.in_transaction:
            raise LostTransaction
        self._raw.commit()


class PostgresqlSession(Session):
    """A transaction of PostgreSQL; the driver says BEGIN with the first statement."""

    texts = _POSTGRESQL

    def rows_of_each(self, lists: Sequence[Sequence[Query]]) -> list[list[Row]]:
        # Also a single query: in a pipeline the BEGIN before the first one does not travel alone.
        queries = [query for asked in lists for query in asked]
        found = iter(self._say(self._fetch, queries) if queries else ())
        return [[row for _ in asked for row in next(found)] for asked in lists]

    def change_all(self, changes: Sequence[tuple[Executable, Values]]) -> list[int]:
        counts: list[int] = self._say(self._count, changes)
        return counts

    def _fetch(self, asked: Sequence[Query]) -> list[list[Row]]:
        texts = [self.texts[query.statement] for query in asked]
        rows = [text.positions(values, each) for text, (_, values, each) in zip(texts, asked, strict=True)]
        with self._raw.pipeline():
            cursors = [self._raw.execute(text.sql, row) for text, row in zip(texts, rows, strict=True)]
        return [cursor.fetchall() for cursor in cursors]

    def _count(self, changes: Sequence[tuple[Executable, Values]]) -> list[int]:
        texts = [(self.texts[statement], values) for statement, values in changes]
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


class Database:
    """Sessions on one engine, and on another of the same database to read.

    SQLite has one writer at a time. Threads of this process queue for it here, in turn and at once;
    left to SQLite they would poll with growing pauses.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.reading = reading_engine(engine)
        self._is_sqlite = engine.dialect.name == "sqlite"
        self._session: type[Session] = SqliteSession if self._is_sqlite else PostgresqlSession
        self._turn = threading.Lock()
        self.known = Cache(_KEPT_VALUES)
        """What committed transactions have found."""
        # A new connection may lead to another server, where numbers mean what they mean there.
        event.listen(engine, "connect", lambda *_: self.known.clear())

    @contextlib.contextmanager
    def begin(self) -> Iterator[Session]:
        """A writing transaction: committed when the block ends, undone on an exception."""
        if self._is_sqlite and not self._turn.acquire(timeout=BUSY_SECONDS):
            raise Unavailable("the database stays busy")
        try:
            with self._open(self.engine, writing=True) as session:
                yield session
        finally:
            if self._is_sqlite:
                self._turn.release()
        self.known.update(session.found)

    def read(self) -> AbstractContextManager[Session]:
        """One consistent look at what is committed; locks nothing."""
        return self._open(self.reading, writing=False)

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()
        self.reading.dispose()

    def is_transient(self, error: BaseException) -> bool:
        """Whether running the whole transaction again may succeed."""
        return isinstance(error, Busy)

    @contextlib.contextmanager
    def _open(self, engine: Engine, *, writing: bool) -> Iterator[Session]:
        """A session on a pooled connection; what was not committed is rolled back when that returns."""
        started = time.monotonic()
        try:
            pooled = engine.raw_connection()
            raw: Any = pooled.driver_connection
            try:
                session = self._session(raw, self.known)
                session.begin(writing=writing)
                yield session
                if writing:
                    session.commit()
            except Exception as error:
                if engine.dialect.is_disconnect(error, raw, None):  # type: ignore[arg-type]
                    pooled.invalidate(error)
                raise
            finally:
                pooled.close()
        except Exception as error:
            meaning = translate_error(error)
            if meaning is None:
                raise
            if isinstance(meaning, Busy) and time.monotonic() - started >= BUSY_SECONDS:
                meaning = Unavailable("the database stays busy")
            raise meaning from error


def of_dataset(column: Column[Any]) -> ColumnElement[bool]:
    """The condition that ``column`` is the given dataset."""
    return column == bindparam("dataset_id", type_=BigInteger)


def in_list(column: Column[Any], size: int) -> ColumnElement[bool]:
    """The condition that ``column`` is one of ``size`` values."""
    return column.in_([bindparam(f"{_LISTED}{index}", type_=column.type) for index in range(size)])


def select_in_list(
    session: Session, query: Callable[[int], Select[Any]], values: Sequence[Any], **others: Any
) -> list[Row]:
    """The rows that ``query``, made for a size, finds for all values."""
    (found,) = session.rows_of_each([queries_in_list(query, values, **others)])
    return found


def queries_in_list(query: Callable[[int], Select[Any]], values: Sequence[Any], **others: Any) -> list[Query]:
    """The queries by which ``query``, made for a size, is asked for all values."""
    asked = []
    for start in range(0, len(values), _LONGEST_LIST):
        piece = values[start : start + _LONGEST_LIST]
        size = 1 << (len(piece) - 1).bit_length()
        asked.append(Query(query(size), others, [*piece, *[piece[-1]] * (size - len(piece))]))
    return asked
