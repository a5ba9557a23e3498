"""The database as the ledger knows it: storage, and one transaction on it."""

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import Engine

from dpledger.accounting.steps import Step
from dpledger.ledger.errors import NotFound, Unavailable
from dpledger.ledger.idempotency import NO_DATASET
from dpledger.ledger.marks import HighWaterMarks, Mark
from dpledger.ledger.model.allocation import Allocation
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.budget_request import BudgetRequest, RequestState
from dpledger.ledger.model.commands import Reservation
from dpledger.ledger.model.entries import Charge, Entry, EntryKind
from dpledger.ledger.model.quota import Quota
from dpledger.ledger.model.state import LedgerState, Partition
from dpledger.ledger.ports import (
    DatasetRow,
    EntryFilter,
    Held,
    IdempotentRequest,
    Known,
    NewDataset,
    NewEntry,
    Refusal,
    ReportRows,
    ReservationRow,
    RunRow,
    StoredAnswer,
    StoredEntry,
)
from dpledger.storage import migrate
from dpledger.storage.engine.codec import entry_key
from dpledger.storage.engine.engines import make_engine
from dpledger.storage.engine.session import Database, Session, queries_in_list, select_in_list
from dpledger.storage.read_models.budget_requests import open_requests
from dpledger.storage.read_models.report import report_rows
from dpledger.storage.repositories import allocations as allocation_rows
from dpledger.storage.repositories import budget_requests as request_rows
from dpledger.storage.repositories import budgets, charges, refusals, reservations, runs, tokens
from dpledger.storage.repositories import datasets as states
from dpledger.storage.repositories import entries as entry_rows
from dpledger.storage.repositories import idempotency as answer_rows
from dpledger.storage.repositories import partitions as partition_rows
from dpledger.storage.repositories import quotas as quota_rows
from dpledger.storage.repositories import run_totals as sums
from dpledger.storage.repositories.instance import instance_id
from dpledger.storage.rollback import RollbackGuard, holds, refuse_unless_accepted

__all__ = ["BrokenChain", "NotLocked", "SqlSnapshot", "SqlStorage", "SqlTransaction", "open_storage"]


class NotLocked(Exception):
    """A dataset was to be read or written that this transaction has not locked."""


class BrokenChain(Exception):
    """Entries to be appended do not follow on the state, or do not lead to the one after."""


class SqlTransaction:
    """Implements :class:`dpledger.ledger.ports.Transaction`."""

    def __init__(
        self,
        session: Session,
        guard: RollbackGuard,
        on_locked: Callable[[float], None] | None = None,
        began: float = 0.0,
    ) -> None:
        self._session = session
        self._guard = guard
        self._on_locked = on_locked
        self._began = began
        self._locked: dict[int, LedgerState] = {}
        self.moved: dict[int, LedgerState] = {}
        """The states that entries were appended to, as they are when this transaction is committed."""

    def lock(self, names: Sequence[str], *, rolled_back: bool = False) -> dict[str, LedgerState]:
        """Lock the datasets' rows in sorted order and read their states; raises NotFound or RolledBack."""
        try:
            found = states.lock_datasets(self._session, names)
        except NotFound as error:
            self._guard.check_missing(error.name)
            raise
        if self._on_locked is not None:
            self._on_locked(time.perf_counter() - self._began)
        if not rolled_back:
            mark = self._guard.marks.get
            behind = [each for each in found.values() if mark(each.name) != (each.sequence, each.head)]
            if behind:
                self._guard.check(self._session, behind)
        self._locked.update({state.dataset_id: state for state in found.values()})
        return found

    def open_dataset(self, dataset: NewDataset) -> LedgerState:
        """Insert a dataset with an empty ledger and lock it; raises AlreadyExists or RolledBack."""
        state = states.open_dataset(self._session, dataset)
        self._guard.check_missing(dataset.name)
        self._locked[state.dataset_id] = state
        return state

    def holds(self, state: LedgerState, mark: Mark) -> bool:
        """Whether a locked ledger has this very entry."""
        return holds(self._session, self._state(state.dataset_id), mark)

    def known(self, dataset_id: int, calls: Sequence[IdempotentRequest], now_us: int) -> Known:
        """What is known of requests: whose tokens ended, and what answered their keys before."""
        actors = sorted({call.actor for call in calls})
        keys = [entry_key(dataset_id, call) for call in calls]
        valid, sequences, kept = self._session.rows_of_each(
            [
                queries_in_list(tokens.select_valid, actors, now_us=now_us),
                queries_in_list(entry_rows.select_answering, keys),
                queries_in_list(answer_rows.select_kept, [each.key for each in calls], dataset_id=dataset_id),
            ]
        )
        return Known(
            set(actors) - {actor for actor, _ in valid},
            dict(valid),
            entry_rows.entries_answering(self._session, dataset_id, calls, sequences) if sequences else {},
            answer_rows.answers_among(calls, kept) if kept else {},
        )

    def answers(
        self, dataset_id: int, calls: Sequence[IdempotentRequest]
    ) -> dict[IdempotentRequest, StoredAnswer]:
        """The stored answers for these keys; ``dataset_id`` 0 is for what belongs to no single one."""
        return answer_rows.answers_to(self._session, dataset_id, calls)

    def keep_answers(
        self, dataset_id: int, answers: Sequence[tuple[IdempotentRequest, StoredAnswer]]
    ) -> None:
        """Store answers under their keys; raises KeyInFlight where another transaction just did."""
        answer_rows.keep_answers(self._session, dataset_id, answers)

    def keep_charge(self, dataset_id: int, charge: Charge) -> None:
        """Store a charge under its fingerprint unless it is there."""
        self._state(dataset_id)
        if self._session.recall(charges.ChargeKey(dataset_id, charge.fingerprint)) is None:
            charges.keep_charge(self._session, dataset_id, charge)

    def charge(self, dataset_id: int, fingerprint: bytes) -> Charge:
        """Read a charge back."""
        return charges.charge_by_fingerprint(self._session, dataset_id, fingerprint)

    def append(self, before: LedgerState, after: LedgerState, entries: Sequence[NewEntry]) -> None:
        """Append entries and store the state after them (budget, totals, extremes, sequence, head)."""
        dataset_id = self._state(before.dataset_id).dataset_id
        _check_chain(before, after, entries)
        session, appended = self._session, [each.entry for each in entries]
        kinds, changed = {entry.kind for entry in appended}, None
        try:
            refer = entry_rows.insert_entries(session, dataset_id, entries)
            if kinds & reservations.RECORDED_KINDS:
                reservations.record_reservations(session, after, appended)
            if EntryKind.BUDGET_CHANGED in kinds or after.budget is not before.budget:
                changed = self._changed_budget(before, after, appended)
            added = sums.added_to_sums(session, after, appended, refer)
            states.update_dataset(session, before, after, entries, changed, added)
        except Exception as error:
            session.fail(error)
            raise
        self._locked[dataset_id] = after
        self.moved[dataset_id] = after

    def _changed_budget(
        self, before: LedgerState, after: LedgerState, appended: Iterable[Entry]
    ) -> tuple[int, int] | None:
        """Put each budget in force that an entry brings; the last one is the state's.

        Returns its number, and that of what is guaranteed with it.
        """
        number, document = None, before.budget.document
        for entry in appended:
            if entry.kind is EntryKind.BUDGET_CHANGED:
                document = json.loads(entry.detail or "{}")["budget"]
                changed = budgets.budget_from_document(document)
                number = budgets.put_in_force(self._session, before.dataset_id, entry.sequence, changed)
        if document != after.budget.document:
            raise BrokenChain("the budget after the entries is not the one that they bring")
        if number is None:
            return None
        return number, budgets.budget_number(self._session, before.dataset_id, after.guarantee)

    def partitions(self, dataset_id: int, names: Sequence[str]) -> dict[str, Partition]:
        """Partitions by name; raises NotFound for a name that is not there."""
        return partition_rows.find_partitions(self._session, dataset_id, names, self._size(dataset_id))

    def all_partitions(self, dataset_id: int) -> Iterator[Partition]:
        """Every partition in the order of its number."""
        return partition_rows.all_partitions(self._session, dataset_id, self._size(dataset_id))

    def save_partitions(self, dataset_id: int, partitions: Iterable[Partition]) -> None:
        """Insert or update partitions; raises AlreadyExists for a name that is taken."""
        self._state(dataset_id)
        partition_rows.save_partitions(self._session, dataset_id, partitions)

    def allocations(self, dataset_id: int, names: Sequence[str]) -> dict[str, Allocation]:
        """Allocations by name, returned ones too; raises NotFound for a name that is not there."""
        return allocation_rows.find_allocations(self._session, self._state(dataset_id).dataset_id, names)

    def save_allocations(self, dataset_id: int, allocations: Iterable[Allocation]) -> None:
        """Insert or update allocations; raises AlreadyExists for a name that is taken."""
        self._state(dataset_id)
        allocation_rows.save_allocations(self._session, dataset_id, allocations)

    def quotas(self, dataset_id: int, team: str) -> list[Quota]:
        """The quotas in force for a team, by the entries that set them."""
        return quota_rows.find_quotas(self._session, self._state(dataset_id).dataset_id, team)

    def count_quotas(self, dataset_id: int) -> int:
        """How many quotas are in force."""
        return quota_rows.count_quotas(self._session, self._state(dataset_id).dataset_id)

    def save_quotas(self, dataset_id: int, quotas: Iterable[Quota]) -> None:
        """Insert or update quotas; those that were removed are forgotten."""
        quota_rows.save_quotas(self._session, self._state(dataset_id).dataset_id, quotas)

    def budget_request(self, dataset_id: int, sequence: int) -> BudgetRequest | None:
        """The request for budget that an entry made, open or decided; None where it made none."""
        return request_rows.find_budget_request(self._session, self._state(dataset_id).dataset_id, sequence)

    def count_open_requests(self, dataset_id: int, actor: str) -> tuple[int, int]:
        """How many requests are open, and how many of them this token made."""
        return request_rows.count_open_requests(self._session, self._state(dataset_id).dataset_id, actor)

    def save_budget_requests(self, dataset_id: int, requests: Iterable[BudgetRequest]) -> None:
        """Insert requests, or update them with what was decided."""
        request_rows.save_budget_requests(self._session, self._state(dataset_id).dataset_id, requests)

    def note_refusals(self, dataset_id: int, refusals_: Sequence[Refusal]) -> None:
        """Keep what was refused, for whoever looks after the dataset."""
        refusals.note_refusals(self._session, self._state(dataset_id), refusals_)

    def budget_at(self, dataset_id: int, sequence: int) -> Budget:
        """The budget in force at that entry."""
        return budgets.budget_at(self._session, dataset_id, sequence)

    def latest(self, dataset_id: int, kind: EntryKind) -> StoredEntry | None:
        """The latest entry of a kind, or None."""
        chosen = EntryFilter(limit=1, kind=kind.value, newest_first=True)
        found = entry_rows.entries_page(self._session, self._state(dataset_id).dataset_id, chosen)
        return found[0] if found else None

    def budget_changed_since(self, dataset_id: int, sequence: int) -> bool:
        """Whether an entry behind this one changed the budget."""
        return budgets.changed_since(self._session, self._state(dataset_id).dataset_id, sequence)

    def entry(self, dataset_id: int, sequence: int) -> StoredEntry:
        """One entry; raises NotFound."""
        return entry_rows.find_entry(self._session, self._state(dataset_id), sequence)

    def reservation(self, dataset_id: int, sequence: int) -> Reservation:
        """An open reservation; raises NotFound or ReservationClosed."""
        return reservations.open_reservation(self._session, self._state(dataset_id), sequence)

    def due_reservations(self, dataset_id: int, now_us: int) -> list[Reservation]:
        """Open reservations whose time is over, oldest first."""
        return reservations.due_reservations(self._session, dataset_id, now_us, self._size(dataset_id))

    def teams(self, token_ids: Sequence[str], now_us: int) -> dict[str, str | None]:
        """The teams of those tokens that are neither revoked nor expired nor unknown now."""
        return tokens.teams_of_valid(self._session, token_ids, now_us)

    def _state(self, dataset_id: int) -> LedgerState:
        """The locked state: nothing of a dataset is decided or written without its lock."""
        state = self._locked.get(dataset_id)
        if state is None:
            raise NotLocked(f"dataset {dataset_id} is not locked by this transaction")
        return state

    def _size(self, dataset_id: int) -> int:
        return self._state(dataset_id).budget.size


class SqlSnapshot(SqlTransaction):
    """The same on a session that cannot write: whoever writes later checks that no state has moved."""

    def lock(self, names: Sequence[str], *, rolled_back: bool = True) -> dict[str, LedgerState]:
        """Read the datasets' states and lock nothing; raises NotFound."""
        found = {name: states.find_dataset(self._session, name).state for name in sorted(set(names))}
        self._locked.update({state.dataset_id: state for state in found.values()})
        return found


def _check_chain(before: LedgerState, after: LedgerState, new: Sequence[NewEntry]) -> None:
    """Sequence numbers without gaps, each entry on the one before it, the last one the new head."""
    sequence, head = before.sequence, before.head
    for each in new:
        entry = each.entry
        if entry.sequence != sequence + 1 or entry.previous != head:
            raise BrokenChain(f"entry {entry.sequence} does not follow entry {sequence}")
        if each.call is not None and each.call.actor != entry.actor:
            raise BrokenChain(f"entry {entry.sequence} answers a key of another actor")
        sequence, head = entry.sequence, entry.hash
    if not new or (after.dataset_id, after.sequence, after.head) != (before.dataset_id, sequence, head):
        raise BrokenChain(f"the entries do not lead to entry {after.sequence}")


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
        self.marks = HighWaterMarks()
        """How far each ledger came; whoever keeps them in a file puts its own here before the first use."""
        self.on_locked: Callable[[float], None] = _ignore
        """Receives how many seconds each transaction waited for its datasets."""

    @contextlib.contextmanager
    def begin(self) -> Iterator[SqlTransaction]:
        """A writing transaction: commits at the end of the block, rolls back on an exception."""
        began = time.perf_counter()
        with self.database.begin() as session:
            # Another state of the database gives other meanings to the numbers that are known.
            guard = RollbackGuard(self.marks, self.database.known.clear)
            transaction = SqlTransaction(session, guard, self.on_locked, began)
            yield transaction
        if transaction.moved:
            self.marks.advance(transaction.moved.values())

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[SqlTransaction]:
        """One committed state, read as in a transaction; its ``lock`` locks nothing, and it cannot write."""
        with self.database.read() as session:
            yield SqlSnapshot(session, RollbackGuard(self.marks, self.database.known.clear))

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
        """How a request was answered, ``granted`` or ``refused``; None where nothing is known of it.

        ``name`` is None for what belongs to no single dataset.
        """
        with self.database.read() as session:
            try:
                dataset_id = (
                    NO_DATASET if name is None else states.find_dataset(session, name).state.dataset_id
                )
            except NotFound:
                return None
            key = entry_key(dataset_id, call)
            if select_in_list(session, entry_rows.select_answering, [key]):
                return "granted"
            found = answer_rows.answers_to(session, dataset_id, [call]).get(call)
            return None if found is None else found.outcome

    def datasets(self, after: str, limit: int, search: str | None) -> list[DatasetRow]:
        """Datasets by name, behind ``after``."""
        with self.database.read() as session:
            return states.datasets_page(session, after, limit, search)

    def entries(self, dataset_id: int, chosen: EntryFilter) -> list[StoredEntry]:
        """Entries as last committed, charges included."""
        with self.database.read() as session:
            return entry_rows.entries_page(session, dataset_id, chosen)

    def first_steps(self, dataset_id: int, charged: int, most: int) -> tuple[list[Step], bool]:
        """Distinct steps of the first ``charged`` charges, at most so many, and whether there are more."""
        with self.database.read() as session:
            return charges.first_steps(session, dataset_id, charged, most)

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
            return partition_rows.partitions_page(session, dataset_id, after, limit, size)

    def partition(self, dataset_id: int, name: str) -> Partition | None:
        """One partition as last committed; None where there is none of this name."""
        with self.database.read() as session:
            size = states.budget_of(session, dataset_id).size
            try:
                return partition_rows.find_partitions(session, dataset_id, [name], size)[name]
            except NotFound:
                return None

    def allocation(self, dataset_id: int, name: str) -> Allocation | None:
        """One allocation as last committed, returned ones too; None where there is none of this name."""
        with self.database.read() as session:
            try:
                return allocation_rows.find_allocations(session, dataset_id, [name])[name]
            except NotFound:
                return None

    def allocations(self, dataset_id: int, after: int, limit: int) -> list[Allocation]:
        """Allocations by the sequence numbers of the entries that opened them."""
        with self.database.read() as session:
            return allocation_rows.allocations_page(session, dataset_id, after, limit)

    def quotas(self, dataset_id: int, after: int, limit: int) -> list[Quota]:
        """Quotas in force by the sequence numbers of the entries that set them."""
        with self.database.read() as session:
            return quota_rows.quotas_page(session, dataset_id, after, limit)

    def budget_requests(
        self, dataset_id: int, after: int, limit: int, state: RequestState | None = None
    ) -> list[BudgetRequest]:
        """Requests for budget by the entries that made them; all, or those in one state."""
        with self.database.read() as session:
            return request_rows.budget_requests_page(session, dataset_id, after, limit, state)

    def open_requests(
        self, limit: int, names: Sequence[str] | None = None, after: tuple[int, str, int] | None = None
    ) -> list[tuple[str, BudgetRequest]]:
        """Open requests over all datasets, or those of some names, by time; each with its dataset's name."""
        with self.database.read() as session:
            return open_requests(session, limit, names, after)

    def allocation_counts(self, dataset_id: int) -> tuple[int, int]:
        """How many allocations are open, and how many were returned."""
        with self.database.read() as session:
            return allocation_rows.count_allocations(session, dataset_id)

    def report(self, name: str, most: int) -> ReportRows:
        """What a dataset's report is made of, with at most so many rows of each kind; raises NotFound."""
        with self.database.read() as session:
            return report_rows(session, name, most)

    def ready(self) -> dict[str, Any]:
        """What /readyz reports; raises Unavailable."""
        found, wanted = migrate.revision(self.database.reading), migrate.head_revision()
        if found != wanted and not migrate.is_newer_and_served(self.database.reading):
            raise Unavailable(f"the schema is at {found or 'nothing'}, this service needs {wanted}")
        with self.database.read() as session:
            instance = instance_id(session)
        return {"database": self.database.engine.dialect.name, "schema": found, "instance": instance}

    def close(self) -> None:
        """Save the marks and close every connection."""
        self.marks.close()
        self.database.close()
