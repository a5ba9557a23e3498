"""High-water marks in a small SQLite file beside the keys, apart from the ledger's own database.

A rollback journal instead of a write-ahead log: the file is one file, which several processes may share
also on a network drive, and every commit is synced.
"""

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from dpledger.ledger.errors import Unavailable
from dpledger.ledger.marks import Mark
from dpledger.ledger.model.entries import moment

__all__ = ["BadMarkFile", "MarkFile", "UnusableMarkFile"]

_BUSY_SECONDS = 5.0
_OWNER_ONLY = 0o600
_TABLES = (
    "CREATE TABLE IF NOT EXISTS ledger (instance TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS marks"
    " (dataset TEXT PRIMARY KEY, sequence INTEGER NOT NULL, entry BLOB NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS given_up"
    " (dataset TEXT NOT NULL, sequence INTEGER NOT NULL, entry BLOB NOT NULL, at TEXT NOT NULL, reason TEXT)",
)
_ADVANCE = (
    "INSERT INTO marks VALUES (?, ?, ?) ON CONFLICT (dataset) DO UPDATE"
    " SET sequence = excluded.sequence, entry = excluded.entry WHERE excluded.sequence > marks.sequence"
)
_REPLACE = (
    "INSERT INTO marks VALUES (?, ?, ?) ON CONFLICT (dataset) DO UPDATE"
    " SET sequence = excluded.sequence, entry = excluded.entry WHERE marks.sequence <= ?"
)


class BadMarkFile(Exception):
    """The file with the marks cannot be used, or is that of another ledger."""


class UnusableMarkFile(BadMarkFile):
    """The file cannot be read or written."""


class MarkFile:
    """Implements :class:`dpledger.ledger.marks.MarkStore`; the file belongs to one ledger."""

    def __init__(self, path: Path, instance: str | None, *, read_only: bool = False) -> None:
        """Open the file, and make it if absent; ``instance`` is the database's own id, where it is known."""
        self.path = path
        self._using = threading.Lock()
        try:
            self._connection = _open(path, read_only)
            if not read_only:
                self._prepare(instance)
            (found,) = self._connection.execute("SELECT instance FROM ledger").fetchone() or (instance,)
        except (OSError, sqlite3.Error) as error:
            raise UnusableMarkFile(
                f"the file with the high-water marks cannot be used: {path}: {error}"
            ) from None
        if instance is not None and found != instance:
            self.close()
            raise BadMarkFile(
                f"{path} holds the high-water marks of another ledger than this database: a fresh or foreign"
                " one forgets what was spent. Name the right database, or another file by DPLEDGER_MARK_FILE;"
                " if it is to begin anew, move the file away"
            )

    def _prepare(self, instance: str | None) -> None:
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            for statement in _TABLES:
                self._connection.execute(statement)
            if instance is not None:
                self._connection.execute(
                    "INSERT INTO ledger SELECT ? WHERE NOT EXISTS (SELECT 1 FROM ledger)", (instance,)
                )

    @contextlib.contextmanager
    def _use(self) -> Iterator[None]:
        """One thread at a time, and what goes wrong in the ledger's words."""
        with self._using:
            try:
                yield
            except sqlite3.Error as error:
                raise Unavailable(f"the file with the high-water marks cannot be used: {error}") from error

    def get(self, name: str) -> Mark | None:
        """The mark of a dataset."""
        query = "SELECT sequence, entry FROM marks WHERE dataset = ?"
        with self._use():
            row = self._connection.execute(query, (name,)).fetchone()
        return None if row is None else Mark(*row)

    def names(self) -> list[str]:
        """Every dataset that has a mark."""
        with self._use():
            rows = self._connection.execute("SELECT dataset FROM marks ORDER BY dataset").fetchall()
        return [name for (name,) in rows]

    def advance(self, marks: Mapping[str, Mark]) -> None:
        """Save marks where they are further than what is there."""
        rows = [(name, mark.sequence, mark.head) for name, mark in marks.items()]
        with self._use(), self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(_ADVANCE, rows)

    def replace(self, name: str, lost: Mark, mark: Mark) -> None:
        """Save a mark in the place of one that was given up, or of one before that."""
        with self._use(), self._connection:
            self._connection.execute(_REPLACE, (name, mark.sequence, mark.head, lost.sequence))

    def give_up(self, name: str, lost: Mark, at_us: int, reason: str) -> bool:
        """Forget a dataset that is gone as a whole, on record; False if it has another mark."""
        with self._use(), self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            removed = self._connection.execute(
                "DELETE FROM marks WHERE dataset = ? AND sequence = ? AND entry = ?",
                (name, lost.sequence, lost.head),
            ).rowcount
            if removed:
                row = (name, lost.sequence, lost.head, moment(at_us), reason)
                self._connection.execute("INSERT INTO given_up VALUES (?, ?, ?, ?, ?)", row)
        return removed == 1

    def close(self) -> None:
        """Close the file."""
        with self._using:
            self._connection.close()


def _open(path: Path, read_only: bool) -> sqlite3.Connection:
    if read_only:
        address = f"{path.resolve().as_uri()}?mode=ro"
        return sqlite3.connect(
            address, uri=True, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, _OWNER_ONLY))
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA synchronous=EXTRA")
    connection.execute("PRAGMA fullfsync=ON")
    return connection
