"""Unit of work: one dataset's ledger held under its lock; commands are decided on it, then written."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from dpledger.accounting.errors import InvalidInput
from dpledger.ledger.charges import check_equal_sizes, check_names_allocation, fitting
from dpledger.ledger.decide import (
    Granted,
    Refused,
    Stamp,
    authorize_in_a_row,
    decide,
    is_plain,
    partition_extremes,
)
from dpledger.ledger.errors import AllocationReturned, AlreadyExists, NotFound, ReservationClosed
from dpledger.ledger.model.allocation import Allocation, ledger_within, place_ledger
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.budget_request import (
    BudgetRequest,
    RequestState,
    decided_request,
    request_of,
)
from dpledger.ledger.model.commands import (
    Allocate,
    Authorize,
    ChangeBudget,
    ChangeQuota,
    DecideRequest,
    Expire,
    Record,
    RequestBudget,
    Reservation,
    Reserve,
    ReturnAllocation,
)
from dpledger.ledger.model.entries import Charge, Entry, identifier
from dpledger.ledger.model.quota import Quota
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
    """Decide several commands one after another against one locked state, then write them together.

    ``teams`` are those of the tokens that ask.
    """

    def __init__(
        self,
        transaction: Transaction,
        state: LedgerState,
        now_us: int,
        teams: Mapping[str, str | None] = MappingProxyType({}),
    ) -> None:
        self._transaction = transaction
        self._teams = teams
        self._before = state
        self._now_us = now_us
        self._entries: list[NewEntry] = []
        self._partitions: dict[str, Partition] = {}
        self._changed: dict[int, Partition] = {}
        self._allocations: dict[str, Allocation] = {}
        self._changed_allocations: dict[int, Allocation] = {}
        self._quotas: dict[str, tuple[Quota, ...]] = {}
        self._changed_quotas: dict[int, Quota] = {}
        self._changed_requests: dict[int, BudgetRequest] = {}
        self._charges: dict[bytes, Charge] = {}
        self._expired: set[int] = set()
        self._refusals: list[Refusal] = []
        self.state = state
        if state.whole.open_reservations or state.partitions:
            self._expire_what_is_due()

    @property
    def found_at(self) -> int:
        """The sequence number that callers saw last: before this unit of work expired what was due."""
        return self._before.sequence

    def stamp(self, actor: str) -> Stamp:
        """The time of this unit of work, the caller, and the caller's team."""
        return Stamp(self._now_us, actor, self._teams.get(actor))

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

    def allocation(self, name: str) -> Allocation:
        """The allocation as it stands after what was decided so far in this unit of work; raises NotFound."""
        if name not in self._allocations:
            self._allocations.update(self._transaction.allocations(self.state.dataset_id, [name]))
        return self._allocations[name]

    def allocation_to_spend(self, name: str | None) -> Allocation | None:
        """The allocation that a spend names, which must suit the dataset's budget and not be returned."""
        check_names_allocation(self.state, name)
        if name is None:
            return None
        allocation = self.allocation(name)
        if allocation.returned:
            raise AllocationReturned(name)
        return allocation

    def quotas(self, team: str | None) -> tuple[Quota, ...]:
        """The quotas in force for a team, as they stand after what was decided so far; oldest first."""
        if team is None or not self.state.has_quotas:
            return ()
        if team not in self._quotas:
            self._quotas[team] = tuple(self._transaction.quotas(self.state.dataset_id, team))
        return self._quotas[team]

    def count_quotas(self) -> int:
        """How many quotas were in force when this unit of work began."""
        return self._transaction.count_quotas(self.state.dataset_id)

    def returning(self, allocation: Allocation, reason: str) -> ReturnAllocation:
        """The return of an allocation, with the quotas of the team that opened it."""
        if not self.state.has_quotas:
            return ReturnAllocation(allocation, reason)
        opened = self._transaction.entry(self.state.dataset_id, allocation.sequence).entry
        return ReturnAllocation(allocation, reason, self.quotas(opened.team))

    def ledger(self, allocation: Allocation | None) -> LedgerState:
        """The ledger that a spend is decided on: the dataset's own, or that within the allocation."""
        return self.state if allocation is None else ledger_within(self.state, allocation)

    def fitting(self, charge: Charge, allocation: Allocation | None) -> Charge:
        """The charge for the ledger that is locked, computed anew if it is not the one it was made for."""
        return fitting(self.ledger(allocation), charge, allocated=allocation is not None)

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
        command = self._up_to_date(command, self._teams.get(actor))
        if command.partition is not None:
            if command.allocation is not None:
                raise InvalidInput("partition", "absent where an allocation is named", command.partition.name)
            check_equal_sizes(self.state, command.charge.step, command.partition.name)
        outcome = decide(self.state, command, self.stamp(actor))
        if isinstance(outcome, Refused):
            self._refusals.append(_refusal(command, self.stamp(actor), outcome))
            return outcome
        self._charges[command.charge.fingerprint] = command.charge
        return self._take(outcome, call)

    def _up_to_date(self, command: Authorize | Reserve, team: str | None) -> Authorize | Reserve:
        """The command on its partition, allocation and quotas as they stand: others may have spent meanwhile.

        What is spent from an allocation was counted when that was opened.
        """
        quotas = self.quotas(team) if command.allocation is None else ()
        if command.partition is None and command.allocation is None and not quotas:
            return command
        partition = None if command.partition is None else self.partition(command.partition.name)
        allocation = None if command.allocation is None else self.allocation(command.allocation.name)
        if isinstance(command, Authorize):
            return command._replace(partition=partition, allocation=allocation, quotas=quotas)
        return replace(command, partition=partition, allocation=allocation, quotas=quotas)

    def spend_each(self, command: Authorize, calls: Sequence[IdempotentRequest]) -> list[Recorded | Refused]:
        """Decide a spend on the whole for each of several requests, one after another."""
        taken: list[Recorded | Refused] = []
        ledger = self.state if command.allocation is None else self.ledger(command.allocation)
        if is_plain(ledger) and not self.state.has_quotas:
            stamps = [self.stamp(call.actor) for call in calls]
            entries, fractions, after = authorize_in_a_row(ledger, command, stamps)
            if entries:
                self._charges[command.charge.fingerprint] = command.charge
                if command.allocation is None:
                    self.state = after
                else:
                    command = self._advance(command, command.allocation, after, len(entries))
            self._entries.extend(map(NewEntry, entries, calls, fractions))
            budget = after.budget
            taken += [Recorded(entry, budget, left) for entry, left in zip(entries, fractions, strict=True)]
        return taken + [self.spend(command, call.actor, call) for call in calls[len(taken) :]]

    def _advance(
        self, command: Authorize, allocation: Allocation, after: LedgerState, entries: int
    ) -> Authorize:
        """Take over the ledger within an allocation after several entries; the command for what follows."""
        self.state, moved = place_ledger(self.state, allocation, after, entries, entries)
        self._keep_allocation(moved)
        return command._replace(allocation=moved)

    def allocate(self, command: Allocate, actor: str) -> Recorded | Refused:
        """Open an allocation; raises AlreadyExists for a name that was ever taken."""
        outcome = self._decide_allocation(command, actor)
        return outcome if isinstance(outcome, Refused) else self._take(outcome, None)

    def _decide_allocation(self, command: Allocate, actor: str) -> Granted | Refused:
        """What is decided of an allocation, with the quotas of whoever makes the call."""
        if self.is_taken(command.name):
            raise AlreadyExists("allocation", command.name)
        command = replace(command, quotas=self.quotas(self._teams.get(actor)))
        outcome = decide(self.state, command, self.stamp(actor))
        if isinstance(outcome, Refused):
            self._refusals.append(_allocation_refusal(command, self.stamp(actor), outcome))
        return outcome

    def is_taken(self, name: str) -> bool:
        """Whether an allocation has or had this name."""
        try:
            self.allocation(name)
        except NotFound:
            return False
        return True

    def record(self, command: Record, actor: str) -> Recorded:
        """Record what happened or was decided elsewhere; never refused."""
        outcome = decide(self.state, command, self.stamp(actor))
        assert isinstance(outcome, Granted), "only spending can be refused"
        return self._take(outcome, None)

    def request(self, sequence: int) -> BudgetRequest:
        """A request for budget, open or decided; raises NotFound."""
        found = self._transaction.budget_request(self.state.dataset_id, sequence)
        if found is None:
            raise NotFound("request", identifier(self.state.name, sequence))
        return found

    def count_open_requests(self, actor: str) -> tuple[int, int]:
        """How many requests are open, and how many of them this token made."""
        if not self.state.governed:
            return 0, 0
        return self._transaction.count_open_requests(self.state.dataset_id, actor)

    def budget_changed_since(self, sequence: int) -> bool:
        """Whether the budget was changed after an entry, before this unit of work."""
        return self._transaction.budget_changed_since(self.state.dataset_id, sequence)

    def ask(self, command: RequestBudget, actor: str) -> BudgetRequest:
        """Record a request for budget."""
        asked = request_of(self.record(command, actor).entry)
        self._changed_requests[asked.sequence] = asked
        return asked

    def decide_request(
        self, request: BudgetRequest, state: RequestState, reason: str | None, actor: str
    ) -> BudgetRequest:
        """Record what was decided of an open request."""
        assert request.state is RequestState.OPEN, "a request is decided once"
        taken = self.record(DecideRequest(request, state, reason), actor)
        decided = decided_request(request, taken.entry)
        self._changed_requests[decided.sequence] = decided
        return decided

    def approve(
        self,
        request: BudgetRequest,
        effect: Allocate | ChangeQuota | ChangeBudget,
        reason: str | None,
        actor: str,
    ) -> BudgetRequest | Refused:
        """Approve a request and carry it out as if ``actor`` had made the call; refused, it stays open."""
        if isinstance(effect, Allocate):
            refused = self._decide_allocation(effect, actor)
            if isinstance(refused, Refused):
                return refused
        approved = self.decide_request(request, RequestState.APPROVED, reason, actor)
        done = self.allocate(effect, actor) if isinstance(effect, Allocate) else self.record(effect, actor)
        assert isinstance(done, Recorded), "an approval changes nothing that would refuse it now"
        return approved

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
        if self._changed_allocations:
            transaction.save_allocations(dataset_id, self._changed_allocations.values())
        if self._changed_quotas:
            transaction.save_quotas(dataset_id, self._changed_quotas.values())
        if self._changed_requests:
            transaction.save_budget_requests(dataset_id, self._changed_requests.values())
        if self._entries:
            transaction.append(self._before, self.state, self._entries)
        if self._refusals:
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
        for quota in granted.quotas:
            self._keep_quota(quota)
        if granted.allocation is not None:
            self._keep_allocation(granted.allocation)
            if granted.entry.allocation is not None and not granted.allocation.returned:
                return self._record_within(granted.entry, granted.allocation, call)
        changed = granted.partitions[0] if granted.partitions else None
        fraction = self.state.fraction_left(changed)
        self._entries.append(NewEntry(granted.entry, call, fraction))
        return Recorded(granted.entry, self.state.display_budget(changed), fraction)

    def _record_within(
        self, entry: Entry, allocation: Allocation, call: IdempotentRequest | None
    ) -> Recorded:
        """An entry of an allocation: what is left is what the allocation has left."""
        fraction = allocation.budget.fraction_left(allocation.totals.committed)
        self._entries.append(NewEntry(entry, call, fraction))
        return Recorded(entry, allocation.budget, fraction)

    def _keep_allocation(self, allocation: Allocation) -> None:
        self._allocations[allocation.name] = allocation
        self._changed_allocations[allocation.sequence] = allocation

    def _keep_quota(self, quota: Quota) -> None:
        others = [each for each in self._quotas.get(quota.team, ()) if each.sequence != quota.sequence]
        present = others if quota.removed else sorted([*others, quota], key=lambda each: each.sequence)
        self._quotas[quota.team] = tuple(present)
        self._changed_quotas[quota.sequence] = quota

    def _recount(self, state: LedgerState) -> PartitionExtremes:
        stored = self._transaction.all_partitions(state.dataset_id)
        return partition_extremes(state, (self._changed.get(each.number, each) for each in stored))

    def _expire_what_is_due(self) -> None:
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
        if held.allocation is None and self.state.has_quotas:
            held = replace(held, quotas=self.quotas(held.team))
        if held.allocation is not None:
            return replace(held, allocation=self.allocation(held.allocation.name))
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
        allocation=None if command.allocation is None else command.allocation.name,
        team=None if refused.quota is None else refused.quota.team,
    )


def _allocation_refusal(command: Allocate, stamp: Stamp, refused: Refused) -> Refusal:
    """An allocation that was refused; a part of ε or δ is what would have fitted."""
    left = refused.remaining
    part = left if refused.quota is None else refused.fits
    fits = min(1.0, part["epsilon"] / command.epsilon, part["delta"] / command.delta)
    return Refusal(
        sequence=refused.sequence,
        at_us=stamp.at_us,
        actor=stamp.actor,
        run="",
        partition=None,
        purpose="allocation",
        times=1,
        fits_times=0,
        fits_fraction=fits,
        fraction=left["fraction"],
        allocation=command.name,
        team=None if refused.quota is None else refused.quota.team,
    )
