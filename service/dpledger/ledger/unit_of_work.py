"""Unit of work: one dataset's ledger held under its lock; commands are decided on it, then written."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from dpledger.ledger.charges import check_equal_sizes
from dpledger.ledger.decide import (
    Granted,
    Refused,
    Stamp,
    authorize_in_a_row,
    decide,
    is_plain,
    partition_extremes,
)
from dpledger.ledger.errors import ReservationClosed
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.commands import (
    Authorize,
    Expire,
    Record,
    Reservation,
    Reserve,
)
from dpledger.ledger.model.entries import Charge, Entry, identifier
from dpledger.ledger.model.state import LedgerState, Partition, PartitionExtremes
from dpledger.ledger.ports import IdempotentRequest, NewEntry, Refusal, Transaction

__all__ = ["SERVICE_ACTOR", "Recorded", "UnitOfWork"]

SERVICE_ACTOR = "service"
"""The actor of entries that the service writes by itself (expiry)."""


class Recorded(NamedTuple):
    """An entry of this unit of work, the budget that expresses what is left, and the fraction left."""

    entry: Entry
    budget: Budget
    fraction: float


class UnitOfWork:
    """Decide several commands one after another against one locked state, then write them together."""

    def __init__(self, transaction: Transaction, state: LedgerState, now_us: int) -> None:
        self._transaction = transaction
        self._before = state
        self._now_us = now_us
        self._entries: list[NewEntry] = []
        self._partitions: dict[str, Partition] = {}
        self._changed: dict[int, Partition] = {}
        self._charges: dict[bytes, Charge] = {}
        self._expired: set[int] = set()
        self._refusals: list[Refusal] = []
        self.state = state
        self._expire_what_is_due()

    @property
    def found_at(self) -> int:
        """The sequence number that callers saw last: before this unit of work expired what was due."""
        return self._before.sequence

    def stamp(self, actor: str) -> Stamp:
        """The time of this unit of work, and the caller."""
        return Stamp(self._now_us, actor)

    def partition(self, name: str | None) -> Partition | None:
        """The partition as it stands after what was decided so far in this unit of work."""
        if name is None:
            return None
        if name not in self._partitions:
            self.load_partitions([name])
        return self._partitions[name]

    def load_partitions(self, names: list[str]) -> None:
        """Read many partitions at once."""
        wanted = [name for name in dict.fromkeys(names) if name not in self._partitions]
        if wanted:
            self._partitions.update(self._transaction.partitions(self.state.dataset_id, wanted))

    def reservation(self, sequence: int) -> Reservation:
        """An open reservation with its partition as it stands now; raises NotFound or ReservationClosed."""
        if sequence in self._expired:
            raise ReservationClosed(identifier(self.state.name, sequence), "expired")
        held = self._transaction.reservation(self.state.dataset_id, sequence)
        return self._as_it_stands(held)

    def spend(
        self, command: Authorize | Reserve, actor: str, call: IdempotentRequest | None = None
    ) -> Recorded | Refused:
        """Decide a spend; ``call`` is given where the entry itself is to answer the key."""
        if command.partition is not None:
            check_equal_sizes(self.state, command.charge.step, command.partition.name)
        outcome = decide(self.state, command, self.stamp(actor))
        if isinstance(outcome, Refused):
            self._refusals.append(_refusal(command, self.stamp(actor), outcome))
            return outcome
        self._charges[command.charge.fingerprint] = command.charge
        return self._take(outcome, call)

    def spend_each(self, command: Authorize, calls: Sequence[IdempotentRequest]) -> list[Recorded | Refused]:
        """Decide a spend on the whole for each of several requests, one after another."""
        taken: list[Recorded | Refused] = []
        if is_plain(self.state):
            actors = [call.actor for call in calls]
            entries, fractions, self.state = authorize_in_a_row(self.state, command, self._now_us, actors)
            if entries:
                self._charges[command.charge.fingerprint] = command.charge
            self._entries.extend(map(NewEntry, entries, calls, fractions))
            budget = self.state.budget
            taken += [Recorded(entry, budget, left) for entry, left in zip(entries, fractions, strict=True)]
        return taken + [self.spend(command, call.actor, call) for call in calls[len(taken) :]]

    def record(self, command: Record, actor: str) -> Recorded:
        """Record what happened or was decided elsewhere; never refused."""
        outcome = decide(self.state, command, self.stamp(actor))
        assert isinstance(outcome, Granted), "only spending can be refused"
        return self._take(outcome, None)

    def resume(self, transaction: Transaction) -> None:
        """Go on in another transaction, which holds the lock and has seen that the state has not moved."""
        self._transaction = transaction

    def write(self) -> None:
        """Store charges, partitions, entries and the state; the caller's transaction then commits."""
        transaction, dataset_id = self._transaction, self.state.dataset_id
        for charge in self._charges.values():
            transaction.keep_charge(dataset_id, charge)
        if self._changed:
            transaction.save_partitions(dataset_id, self._changed.values())
        if self._entries:
            transaction.append(self._before, self.state, self._entries)
        self.write_refusals()

    def write_refusals(self) -> None:
        """Store what was refused, and nothing else."""
        if self._refusals:
            self._transaction.note_refusals(self.state.dataset_id, self._refusals)

    def _take(self, granted: Granted, call: IdempotentRequest | None) -> Recorded:
        state = granted.state
        for partition in granted.partitions:
            self._partitions[partition.name] = partition
            self._changed[partition.number] = partition
        self.state = replace(state, extremes=self._recount(state)) if granted.recount else state
        changed = granted.partitions[0] if granted.partitions else None
        fraction = self.state.fraction_left(changed)
        self._entries.append(NewEntry(granted.entry, call, fraction))
        return Recorded(granted.entry, self.state.display_budget(changed), fraction)

    def _recount(self, state: LedgerState) -> PartitionExtremes:
        stored = self._transaction.all_partitions(state.dataset_id)
        return partition_extremes(state, (self._changed.get(each.number, each) for each in stored))

    def _expire_what_is_due(self) -> None:
        if not (self.state.whole.open_reservations or self.state.partitions):
            return
        recount = False
        for due in self._transaction.due_reservations(self.state.dataset_id, self._now_us):
            expired = decide(self.state, Expire(self._as_it_stands(due)), self.stamp(SERVICE_ACTOR))
            assert isinstance(expired, Granted), "only spending can be refused"
            # Counting looks at every partition, and nothing is decided before the last has expired.
            self._take(expired._replace(recount=False), None)
            self._expired.add(due.sequence)
            recount |= expired.recount
        if recount:
            self.state = replace(self.state, extremes=self._recount(self.state))

    def _as_it_stands(self, held: Reservation) -> Reservation:
        if held.partition is None:
            return held
        return replace(held, partition=self.partition(held.partition.name))


def _refusal(command: Authorize | Reserve, stamp: Stamp, refused: Refused) -> Refusal:
    return Refusal(
        sequence=refused.sequence,
        at_us=stamp.at_us,
        actor=stamp.actor,
        run=command.run,
        partition=None if command.partition is None else command.partition.name,
        purpose=command.charge.purpose,
        times=command.times if isinstance(command, Reserve) else 1,
        fits_times=refused.fits["times"],
        fits_fraction=refused.fits["cost_fraction"],
        fraction=refused.remaining["fraction"],
    )
