"""The database as the ledger knows it."""

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from sqlalchemy import Engine, event

from dpledger.ledger.errors import NotFound, Unavailable
from dpledger.ledger.idempotency import NO_DATASET
from dpledger.ledger.marks import HighWaterMarks
from dpledger.ledger.model.allocation import Allocation
from dpledger.ledger.model.commands import Reservation
from dpledger.ledger.model.state import Partition
from dpledger.ledger.ports import (
    DatasetRow,
    EntryFilter,
    Held,
    IdempotentRequest,
    ReservationRow,
    RunRow,
    StoredEntry,
)
from dpledger.storage import migrate
from dpledger.storage.engine.cache import Cache, TransactionCache
from dpledger.storage.engine.database import Database
from dpledger.storage.engine.engines import make_engine
from dpledger.storage.engine.in_clauses import rows_of_each
from dpledger.storage.repositories import allocations, entries, partitions, reservations, runs
from dpledger.storage.repositories import datasets as states
from dpledger.storage.repositories import idempotency as answers
from dpledger.storage.repositories.instance import instance_id
from dpledger.storage.rollback import RollbackGuard, refuse_unless_accepted
from dpledger.storage.transaction import SqlSnapshot, SqlTransaction

__all__ = ["SqlStorage", "open_storage"]

_REMEMBERED = 65_536


def _ignore(_seconds: float) -> None:
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
        self.marks = HighWaterMarks()
        """How far each ledger came; whoever keeps them in a file puts its own here before the first use."""
        self.on_locked: Callable[[float], None] = _ignore
        """Receives how many seconds each transaction waited for its datasets."""
        # A new connection may lead to another server, where numbers mean what they mean there.
        event.listen(engine, "connect", lambda *_: self._known.clear())

    def begin(self) -> AbstractContextManager[SqlTransaction]:
        """A writing transaction: commits at the end of the block, rolls back on an exception."""
        return self._transaction()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[SqlTransaction]:
        cache = TransactionCache(self._known)
        began = time.perf_counter()
        with self.database.begin() as session:
            transaction = SqlTransaction(
                session, cache, lambda: self.on_locked(time.perf_counter() - began), self._guard()
            )
            yield transaction
        cache.publish()
        if transaction.moved:
            self.marks.advance(transaction.moved.values())

    def _guard(self) -> RollbackGuard:
        # Another state of the database gives other meanings to the numbers that are known.
        return RollbackGuard(self.marks, self._known.clear)

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[SqlTransaction]:
        """One committed state, read as in a transaction; its ``lock`` locks nothing, and it cannot write."""
        with self.database.read() as session:
            yield SqlSnapshot(session, TransactionCache(self._known))

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
            return states.find_dataset(session, name)

    def refuse_rolled_back(self, name: str) -> None:
        """Raise RolledBack if the ledger as last committed is behind its high-water mark."""
        # First the mark: read later, it might be that of an entry which this look does not see yet.
        mark = self.marks.reread(name)
        if mark is not None:
            with self.database.read() as session:
                refuse_unless_accepted(session, states.find_dataset(session, name).state, mark)

    def instance(self) -> str:
        """The database's own random id."""
        with self.database.read() as session:
            return instance_id(session)

    def outcome(self, name: str | None, call: IdempotentRequest) -> str | None:
        """How an intent was answered, ``granted`` or ``refused``; None where nothing is known of it.

        ``name`` is None for what belongs to no single dataset.
        """
        with self.database.read() as session:
            try:
                dataset_id = (
                    NO_DATASET if name is None else states.find_dataset(session, name).state.dataset_id
                )
            except NotFound:
                return None
            (sequences,) = rows_of_each(session, [entries.sequences_answering(dataset_id, [call])])
            if sequences:
                return "granted"
            found = answers.answers_to(session, dataset_id, [call]).get(call)
            return None if found is None else found.outcome

    def datasets(self, after: str, limit: int, search: str | None) -> list[DatasetRow]:
        """Datasets by name, behind ``after``."""
        with self.database.read() as session:
            return states.datasets_page(session, after, limit, search)

    def entries(self, dataset_id: int, chosen: EntryFilter) -> list[StoredEntry]:
        """Entries as last committed, charges included."""
        with self.database.read() as session:
            return entries.entries_page(session, dataset_id, chosen)

    def open_reservations(self, dataset_id: int, after: int, limit: int) -> list[Reservation]:
        """Open reservations by sequence number."""
        with self.database.read() as session:
            size = states.budget_of(session, dataset_id).size
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
            size = states.budget_of(session, dataset_id).size
            return runs.runs_page(session, dataset_id, after, limit, size)

    def partitions(self, dataset_id: int, after: int, limit: int) -> list[Partition]:
        """Partitions by number."""
        with self.database.read() as session:
            size = states.budget_of(session, dataset_id).size
            return partitions.partitions_page(session, dataset_id, after, limit, size)

    def allocation(self, dataset_id: int, name: str) -> Allocation | None:
        """One allocation as last committed, returned ones too; None where there is none of this name."""
        with self.database.read() as session:
            try:
                return allocations.find_allocations(session, dataset_id, [name])[name]
            except NotFound:
                return None

    def allocations(self, dataset_id: int, after: int, limit: int) -> list[Allocation]:
        """Allocations by the sequence numbers of the entries that opened them."""
        with self.database.read() as session:
            return allocations.allocations_page(session, dataset_id, after, limit)

    def allocation_counts(self, dataset_id: int) -> tuple[int, int]:
        """How many allocations are open, and how many were returned."""
        with self.database.read() as session:
            return allocations.count_allocations(session, dataset_id)

    def ready(self) -> dict[str, Any]:
        """What /readyz reports; raises Unavailable."""
        found, wanted = migrate.revision(self.database.reading), migrate.head_revision()
        if found != wanted:
            raise Unavailable(f"the schema is at {found or 'nothing'}, this service needs {wanted}")
        with self.database.read() as session:
            instance = instance_id(session)
        return {"database": self.database.engine.dialect.name, "schema": found, "instance": instance}

    def close(self) -> None:
        """Save the marks and close every connection."""
        self.marks.close()
        self.database.close()
