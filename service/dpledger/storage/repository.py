"""The database as the ledger knows it."""

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from sqlalchemy import Engine, event

from dpledger.ledger.commands import Reservation
from dpledger.ledger.errors import Unavailable
from dpledger.ledger.ports import DatasetRow, EntryFilter, Held, ReservationRow, RunRow, StoredEntry
from dpledger.ledger.state import Partition
from dpledger.storage import books, entries, migrate, partitions, reservations, runs
from dpledger.storage.cache import Cache, Notes
from dpledger.storage.database import Database
from dpledger.storage.engines import make_engine
from dpledger.storage.meta import instance_id
from dpledger.storage.transaction import SqlSnapshot, SqlTransaction

__all__ = ["SqlStorage", "open_storage"]

_REMEMBERED = 65_536


def _not_noted(_seconds: float) -> None:
    """Nobody measures."""


def open_storage(url: str) -> "SqlStorage":
    """Connect, bring the schema up to date, and serve."""
    engine = make_engine(url)
    storage = SqlStorage(engine)
    migrate.upgrade(engine)
    return storage


class SqlStorage:
    """Implements :class:`dpledger.ledger.ports.Storage`."""

    def __init__(self, engine: Engine) -> None:
        self.database = Database(engine)
        self._known = Cache(_REMEMBERED)
        self.on_locked: Callable[[float], None] = _not_noted
        """Told how many seconds each transaction waited for its datasets."""
        # A new connection may lead to another server, where numbers mean what they mean there.
        event.listen(engine, "connect", lambda *_: self._known.clear())

    def begin(self) -> AbstractContextManager[SqlTransaction]:
        """A writing transaction: commits at the end of the block, rolls back on an exception."""
        return self._transaction()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[SqlTransaction]:
        notes = Notes(self._known)
        began = time.perf_counter()
        with self.database.begin() as session:
            yield SqlTransaction(session, notes, lambda: self.on_locked(time.perf_counter() - began))
        notes.publish()

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[SqlTransaction]:
        """One committed state, read as in a transaction; its ``lock`` locks nothing, and it cannot write."""
        with self.database.read() as session:
            yield SqlSnapshot(session, Notes(self._known))

    def is_transient(self, error: BaseException) -> bool:
        """Whether running the whole transaction again may succeed (serialization, deadlock)."""
        return self.database.is_transient(error)

    def datasets_due(self, now_us: int, limit: int) -> list[str]:
        """Names of datasets with a reservation whose time is over."""
        with self.database.read() as session:
            return reservations.datasets_due(session, now_us, limit)

    def dataset(self, name: str) -> DatasetRow:
        """One dataset as last committed; raises NotFound."""
        with self.database.read() as session:
            return books.dataset_named(session, name)

    def datasets(self, after: str, limit: int, search: str | None) -> list[DatasetRow]:
        """Datasets by name, behind ``after``."""
        with self.database.read() as session:
            return books.datasets_page(session, after, limit, search)

    def entries(self, dataset_id: int, chosen: EntryFilter) -> list[StoredEntry]:
        """Entries as last committed, charges included."""
        with self.database.read() as session:
            return entries.entries_page(session, dataset_id, chosen)

    def open_reservations(self, dataset_id: int, after: int, limit: int) -> list[Reservation]:
        """Open reservations by sequence number."""
        with self.database.read() as session:
            size = books.budget_of(session, dataset_id).size
            return reservations.open_reservations_page(session, dataset_id, after, limit, size)

    def held(self, dataset_id: int) -> list[Held]:
        """What open reservations hold, by run and charge."""
        with self.database.read() as session:
            return reservations.held_by_runs(session, dataset_id)

    def reservation(self, dataset_id: int, sequence: int) -> ReservationRow | None:
        """One reservation as last committed, closed ones too; None if the entry made none."""
        with self.database.read() as session:
            return reservations.reservation_row(session, dataset_id, sequence)

    def runs(self, dataset_id: int, after: str, limit: int) -> list[RunRow]:
        """Runs by name."""
        with self.database.read() as session:
            size = books.budget_of(session, dataset_id).size
            return runs.runs_page(session, dataset_id, after, limit, size)

    def partitions(self, dataset_id: int, after: int, limit: int) -> list[Partition]:
        """Partitions by number."""
        with self.database.read() as session:
            size = books.budget_of(session, dataset_id).size
            return partitions.partitions_page(session, dataset_id, after, limit, size)

    def ready(self) -> dict[str, Any]:
        """What /readyz reports; raises Unavailable."""
        found, wanted = migrate.revision(self.database.reading), migrate.head_revision()
        if found != wanted:
            raise Unavailable(f"the schema is at {found or 'nothing'}, this service needs {wanted}")
        with self.database.read() as session:
            instance = instance_id(session)
        return {"database": self.database.engine.dialect.name, "schema": found, "instance": instance}

    def close(self) -> None:
        """Close every connection."""
        self.database.close()
