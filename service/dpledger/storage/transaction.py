"""One database transaction, in the ledger's words."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence

from dpledger.ledger.errors import NotFound
from dpledger.ledger.marks import HighWaterMarks, Mark
from dpledger.ledger.model.allocation import Allocation
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.commands import Reservation
from dpledger.ledger.model.entries import Charge, Entry, EntryKind
from dpledger.ledger.model.state import LedgerState, Partition
from dpledger.ledger.ports import (
    IdempotentRequest,
    Known,
    NewDataset,
    NewEntry,
    Refusal,
    StoredAnswer,
    StoredEntry,
)
from dpledger.storage.engine.cache import TransactionCache
from dpledger.storage.engine.failures import Busy
from dpledger.storage.engine.in_clauses import rows_of_each
from dpledger.storage.engine.session import Session
from dpledger.storage.repositories import allocations as allocation_rows
from dpledger.storage.repositories import budgets, charges, refusals, reservations, tokens
from dpledger.storage.repositories import burn_down as levels
from dpledger.storage.repositories import datasets as states
from dpledger.storage.repositories import entries as entry_rows
from dpledger.storage.repositories import idempotency as answer_rows
from dpledger.storage.repositories import partitions as partition_rows
from dpledger.storage.repositories import run_totals as sums
from dpledger.storage.rollback import RollbackGuard, holds

__all__ = ["BrokenChain", "NotLocked", "SqlSnapshot", "SqlTransaction"]


class NotLocked(Exception):
    """A dataset was to be read or written that this transaction has not locked."""


class BrokenChain(Exception):
    """Entries to be appended do not follow on the state, or do not lead to the one after."""


class SqlTransaction:
    """Implements :class:`dpledger.ledger.ports.Transaction`."""

    def __init__(
        self,
        session: Session,
        cache: TransactionCache,
        locked: Callable[[], None] = lambda: None,
        guard: RollbackGuard | None = None,
    ) -> None:
        self._session = session
        self._guard = guard or RollbackGuard(HighWaterMarks(), lambda: None)
        self._tell_locked = locked
        self._cache = cache
        self._locked: dict[int, LedgerState] = {}
        self.moved: dict[int, LedgerState] = {}
        """The states that entries were appended to, as they are when this transaction is committed."""

    def lock(self, names: Sequence[str], *, rolled_back: bool = False) -> dict[str, LedgerState]:
        """Lock the datasets' rows in sorted order and read their states; raises NotFound or RolledBack."""
        try:
            found = states.lock_datasets(self._session, self._cache, names)
        except NotFound as error:
            self._guard.check_missing(error.name)
            raise
        self._tell_locked()
        if not rolled_back:
            self._guard.check(self._session, found.values())
        self._locked.update({state.dataset_id: state for state in found.values()})
        return found

    def open_dataset(self, dataset: NewDataset) -> LedgerState:
        """Insert a dataset with an empty ledger and lock it; raises AlreadyExists or RolledBack."""
        state = states.open_dataset(self._session, self._cache, dataset)
        self._guard.check_missing(dataset.name)
        self._locked[state.dataset_id] = state
        return state

    def holds(self, state: LedgerState, mark: Mark) -> bool:
        """Whether a locked ledger has this very entry."""
        return holds(self._session, self._state(state.dataset_id), mark)

    def known(self, dataset_id: int, calls: Sequence[IdempotentRequest], now_us: int) -> Known:
        """What is known of intents: whose tokens ended, and what answered their keys before."""
        actors = sorted({call.actor for call in calls})
        valid, sequences, kept = rows_of_each(
            self._session,
            [
                tokens.valid_tokens(actors, now_us),
                entry_rows.sequences_answering(dataset_id, calls),
                answer_rows.kept_answers(dataset_id, calls),
            ],
        )
        return Known(
            set(actors) - {actor for (actor,) in valid},
            entry_rows.entries_answering(self._session, dataset_id, calls, sequences),
            answer_rows.answers_among(calls, kept),
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
        charges.keep_charge(self._session, self._cache, dataset_id, charge)

    def charge(self, dataset_id: int, fingerprint: bytes) -> Charge:
        """Read a charge back."""
        return charges.charge_by_fingerprint(self._session, dataset_id, fingerprint)

    def append(self, before: LedgerState, after: LedgerState, entries: Sequence[NewEntry]) -> None:
        """Append entries and store the state after them (budget, totals, extremes, sequence, head)."""
        dataset_id = self._state(before.dataset_id).dataset_id
        _check_chain(before, after, entries)
        with self._session.all_or_nothing():
            self._append(dataset_id, before, after, entries)
        self._locked[dataset_id] = after
        self.moved[dataset_id] = after

    def _append(
        self, dataset_id: int, before: LedgerState, after: LedgerState, entries: Sequence[NewEntry]
    ) -> None:
        appended = [each.entry for each in entries]
        refer = entry_rows.resolve_references(self._session, self._cache, dataset_id, appended)
        entry_rows.insert_entries(self._session, dataset_id, entries, refer)
        reservations.record_reservations(self._session, after, appended)
        changed = self._changed_budget(before, after, appended)
        at_us = max(entry.at_us for entry in appended)
        left = levels.fraction_left(after)
        added = sums.added_to_sums(self._session, self._cache, after, appended, refer)
        *_, moved = self._session.change_all(
            [*added, states.update_dataset(before, after, changed, at_us, left)]
        )
        if moved != 1:  # somebody wrote without the lock
            raise Busy(f"dataset {after.name} has moved on from entry {before.sequence}")
        levels.record_level(self._session, before, after, at_us, left)

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
                number = budgets.put_in_force(
                    self._session, self._cache, before.dataset_id, entry.sequence, changed
                )
        if document != after.budget.document:
            raise BrokenChain("the budget after the entries is not the one that they bring")
        if number is None:
            return None
        return number, budgets.budget_number(self._session, self._cache, before.dataset_id, after.guarantee)

    def partitions(self, dataset_id: int, names: Sequence[str]) -> dict[str, Partition]:
        """Partitions by name; raises NotFound for a name that is not there."""
        return partition_rows.find_partitions(self._session, dataset_id, names, self._size(dataset_id))

    def all_partitions(self, dataset_id: int) -> Iterator[Partition]:
        """Every partition in the order of its number."""
        return partition_rows.all_partitions(self._session, dataset_id, self._size(dataset_id))

    def save_partitions(self, dataset_id: int, partitions: Iterable[Partition]) -> None:
        """Insert or update partitions; raises AlreadyExists for a name that is taken."""
        self._state(dataset_id)
        partition_rows.save_partitions(self._session, self._cache, dataset_id, partitions)

    def allocations(self, dataset_id: int, names: Sequence[str]) -> dict[str, Allocation]:
        """Allocations by name, returned ones too; raises NotFound for a name that is not there."""
        return allocation_rows.find_allocations(self._session, self._state(dataset_id).dataset_id, names)

    def save_allocations(self, dataset_id: int, allocations: Iterable[Allocation]) -> None:
        """Insert or update allocations; raises AlreadyExists for a name that is taken."""
        self._state(dataset_id)
        allocation_rows.save_allocations(self._session, self._cache, dataset_id, allocations)

    def note_refusals(self, dataset_id: int, refusals_: Sequence[Refusal]) -> None:
        """Keep what was refused, for whoever looks after the dataset."""
        refusals.note_refusals(self._session, self._state(dataset_id), refusals_)

    def budget_at(self, dataset_id: int, sequence: int) -> Budget:
        """The budget in force at that entry."""
        return budgets.budget_at(self._session, dataset_id, sequence)

    def entry(self, dataset_id: int, sequence: int) -> StoredEntry:
        """One entry; raises NotFound."""
        return entry_rows.find_entry(self._session, self._state(dataset_id), sequence)

    def reservation(self, dataset_id: int, sequence: int) -> Reservation:
        """An open reservation; raises NotFound or ReservationClosed."""
        return reservations.open_reservation(self._session, self._state(dataset_id), sequence)

    def due_reservations(self, dataset_id: int, now_us: int) -> list[Reservation]:
        """Open reservations whose time is over, oldest first."""
        return reservations.due_reservations(self._session, dataset_id, now_us, self._size(dataset_id))

    def revoked(self, token_ids: Sequence[str], now_us: int) -> set[str]:
        """Those of the tokens that are revoked, expired or unknown now."""
        return tokens.ended_tokens(self._session, token_ids, now_us)

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
