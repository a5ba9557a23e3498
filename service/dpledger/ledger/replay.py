"""Replaying a ledger from its entries: what it must say, and whether it says so.

A replay uses the same ``apply`` as the decisions did, and the charges as they were stored, so it gives
the stored totals bit for bit or shows that something was altered.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpledger.accounting.sampling import Adjacency
from dpledger.accounting.validation import Floats
from dpledger.ledger.decide import apply, frees_room, partition_extremes, would_fit
from dpledger.ledger.model.allocation import Allocation
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.budget_request import (
    DECIDED_AS,
    BudgetRequest,
    RequestKind,
    RequestState,
    decided_request,
    is_carried_out_by,
    request_of,
)
from dpledger.ledger.model.commands import (
    AcceptRollback,
    Allocate,
    Authorize,
    ChangeBudget,
    ChangeQuota,
    ChangeRenewal,
    Command,
    DecideRequest,
    Expire,
    OpenPartitions,
    RequestBudget,
    Reservation,
    Reserve,
    ReturnAllocation,
    Settle,
)
from dpledger.ledger.model.entries import GENESIS, Charge, Entry, EntryKind
from dpledger.ledger.model.quota import Quota
from dpledger.ledger.model.renewal import (
    EpochOpening,
    Period,
    Renewal,
    epochs_at,
    renewal_of,
    units_lie_in_one_partition,
)
from dpledger.ledger.model.state import (
    AnyTotals,
    ExactTotals,
    LedgerState,
    Partition,
    PartitionExtremes,
    nothing_spent,
)
from dpledger.ledger.ports import StoredEntry
from dpledger.ledger.quota_rule import first_exceeded, quotas_after

__all__ = ["BrokenLedger", "Difference", "Replay", "differences"]


class BrokenLedger(Exception):
    """The entries do not form the chain they claim to form."""

    def __init__(self, sequence: int, problem: str) -> None:
        self.sequence = sequence
        self.problem = problem
        super().__init__(f"entry {sequence}: {problem}")


class Replay:
    """A state rebuilt entry by entry."""

    def __init__(self, dataset_id: int, name: str) -> None:
        self._dataset_id = dataset_id
        self._name = name
        self._state: LedgerState | None = None
        self._counted = True
        self._priced: tuple[Charge, object] | None = None
        self.unit: str | None = None
        self.reservations: dict[int, Reservation] = {}
        """Those that are open, by sequence number."""
        self.partitions: dict[int, Partition] = {}
        self.allocations: dict[int, Allocation] = {}
        """By the sequence number of the entry that opened each."""
        self._allocation_names: set[str] = set()
        self._allocating_teams: dict[int, str | None] = {}
        self.quotas: dict[int, Quota] = {}
        """Those in force, by the sequence number of the entry that set each."""
        self.requests: dict[int, BudgetRequest] = {}
        """Requests for budget, open or decided, by the sequence number of the entry that made each."""
        self._budget_changed_at = 0
        self._approved: BudgetRequest | None = None
        self._opening: Entry | None = None
        self._renewal: Renewal | None = None
        self.head = GENESIS
        self.sequence = 0

    @property
    def state(self) -> LedgerState:
        """The state after the entries taken so far."""
        state = self._without_extremes
        if not self._counted:
            self._state = state = replace(state, extremes=partition_extremes(state, self.partitions.values()))
            self._counted = True
        return replace(state, sequence=self.sequence, head=self.head)

    @property
    def _without_extremes(self) -> LedgerState:
        """The same, whose extremes may be of before the last reservations were closed.

        To count looks at every partition: once for many that are closed one after another.
        """
        if self._state is None:
            raise BrokenLedger(0, "there is no opening entry")
        return self._state

    def take(self, stored: StoredEntry) -> None:
        """Check the next link and apply what the entry records."""
        entry = stored.entry
        if entry.sequence != self.sequence + 1:
            raise BrokenLedger(entry.sequence, f"follows entry {self.sequence}")
        linked = replace(entry, previous=self.head)
        if linked.hash != stored.hash:
            raise BrokenLedger(entry.sequence, "its hash does not match its content and the hash before it")
        if entry.charge is not None and (stored.charge is None or stored.charge.fingerprint != entry.charge):
            raise BrokenLedger(entry.sequence, "its charge is not the one it was made with")
        if (entry.kind is EntryKind.OPENED) != (self._state is None):
            raise BrokenLedger(entry.sequence, "a ledger is opened once, by its first entry")
        if entry.kind is EntryKind.OPENED:
            self._open(entry)
        else:
            self._check_price(entry, stored.charge)
            self._check_carried_out(entry)
            command = self._command(entry, stored.charge)
            self._apply(command, entry.at_us)
            self._approved = None
            self._remember_request(entry, command)
            if isinstance(command, ChangeRenewal):
                self._renewal = renewal_of(entry)
        self.sequence, self.head = entry.sequence, stored.hash
        if entry.kind is EntryKind.RESERVED:
            self._remember(entry, stored.charge)

    @property
    def lacks_effect_of(self) -> int | None:
        """The request whose approval is the last entry, without the one that carries it out."""
        return None if self._approved is None else self._approved.sequence

    def _check_carried_out(self, entry: Entry) -> None:
        """Behind an approval comes what was asked, by whoever approved, in the same moment."""
        if self._approved is not None and not is_carried_out_by(self._approved, entry):
            raise BrokenLedger(entry.sequence, "is not what the request asked that was approved before it")

    def _remember_request(self, entry: Entry, command: Command) -> None:
        if isinstance(command, RequestBudget):
            self.requests[entry.sequence] = request_of(entry)
        elif isinstance(command, ChangeBudget):
            self._budget_changed_at = entry.sequence
        elif isinstance(command, DecideRequest):
            decided = decided_request(command.request, entry)
            self.requests[decided.sequence] = decided
            self._approved = decided if decided.state is RequestState.APPROVED else None

    def _open(self, entry: Entry) -> None:
        detail = json.loads(entry.detail or "{}")
        name = detail.get("name", self._name)
        if name != self._name:
            raise BrokenLedger(entry.sequence, f"opens {name!r}, which is now called {self._name!r}")
        self.unit, self._opening = detail.get("unit"), entry
        self._state = _open(self._dataset_id, self._name, detail)

    def _check_price(self, entry: Entry, charge: Charge | None) -> None:
        """The fingerprint covers what is charged; what is shown as the cost must agree with it."""
        if charge is None or self._priced == (charge, entry.allocation):
            return
        allocation = self._allocation(entry)
        budget = self.state.budget if allocation is None else allocation.budget
        if not budget.explains(charge.step, charge.cost, charge.amounts):
            raise BrokenLedger(entry.sequence, "the cost shown for it is not the one it was charged")
        self._priced = charge, entry.allocation

    def _apply(self, command: Command, at_us: int) -> None:
        if isinstance(command, (Authorize, Reserve, Allocate)) and not would_fit(self.state, command):
            raise BrokenLedger(self.sequence + 1, "grants more than the budget had left")
        frees = frees_room(command)
        before = replace(self._without_extremes, sequence=self.sequence) if frees else self.state
        self._count(before, command, at_us)
        self._state, changed, allocation = apply(before, command)
        for partition in changed:
            self.partitions[partition.number] = partition
        if allocation is not None:
            self.allocations[allocation.sequence] = allocation
        self._counted = self._counted and not (frees and self.partitions)

    def _count(self, before: LedgerState, command: Command, at_us: int) -> None:
        """Check quotas and count what a command uses of them."""
        if isinstance(command, (Authorize, Reserve, Allocate)) and command.quotas:
            exceeded = first_exceeded(before, command, at_us)
            if exceeded is not None:
                raise BrokenLedger(
                    self.sequence + 1, f"grants more than the quota of entry {exceeded.sequence} had left"
                )
        for quota in quotas_after(before, command, at_us):
            self.quotas[quota.sequence] = quota
            if quota.removed:
                del self.quotas[quota.sequence]

    def _quotas_of(self, team: str | None) -> tuple[Quota, ...]:
        return tuple(each for each in self.quotas.values() if each.team == team)

    def _partition(self, entry: Entry) -> Partition | None:
        if entry.partition is None:
            return None
        if entry.partition not in self.partitions:
            raise BrokenLedger(entry.sequence, f"names partition {entry.partition}, which was never opened")
        return self.partitions[entry.partition]

    def _allocation(self, entry: Entry) -> Allocation | None:
        if entry.allocation is None:
            return None
        if entry.allocation not in self.allocations:
            raise BrokenLedger(entry.sequence, f"names allocation {entry.allocation}, which was never opened")
        return self.allocations[entry.allocation]

    def _command(self, entry: Entry, charge: Charge | None) -> Command:
        partition, allocation = self._partition(entry), self._allocation(entry)
        quotas = self._quotas_of(entry.team) if allocation is None else ()
        if entry.kind is EntryKind.AUTHORIZED:
            charged, run = _present(entry, charge), entry.run or ""
            return Authorize(charged, run, partition, entry.sample, allocation, quotas)
        if entry.kind is EntryKind.RESERVED:
            held, run, until = _present(entry, charge), entry.run or "", entry.expires_at_us or 0
            return Reserve(held, run, entry.times or 0, until, partition, allocation, quotas)
        if entry.kind in (EntryKind.ALLOCATED, EntryKind.ALLOCATION_RETURNED):
            return self._to_allocation_command(entry, allocation)
        if entry.kind in (EntryKind.SETTLED, EntryKind.EXPIRED):
            return self._to_closing(entry, partition, allocation)
        detail = json.loads(entry.detail or "{}")
        if entry.kind is EntryKind.BUDGET_CHANGED:
            return ChangeBudget(Budget.from_document(detail["budget"]), detail["reason"])
        if entry.kind is EntryKind.QUOTA_CHANGED:
            return self._to_quota_change(entry, detail)
        if entry.kind is EntryKind.BUDGET_REQUESTED:
            asked = request_of(entry)
            return RequestBudget(asked.kind, asked.asked)
        if entry.kind in DECIDED_AS.values():
            return self._to_decision(entry, detail)
        if entry.kind is EntryKind.ROLLBACK_ACCEPTED:
            return AcceptRollback(detail["lost"]["sequence"], detail["lost"]["entry"], detail["reason"])
        if entry.kind is EntryKind.RENEWAL_CHANGED:
            return self._to_renewal_change(entry, detail)
        return self._to_partitions(entry, detail)

    def _to_partitions(self, entry: Entry, detail: dict[str, Any]) -> OpenPartitions:
        own, stated = detail["budget"], detail.get("epoch")
        if stated is not None:
            self._check_epoch(entry, detail, stated)
        epoch = None if stated is None else EpochOpening(stated["renewal"], stated["statement"])
        return OpenPartitions(
            tuple(detail["names"]), None if own is None else Budget.from_document(own), epoch
        )

    def _check_epoch(self, entry: Entry, detail: dict[str, Any], stated: dict[str, Any]) -> None:
        """An epoch is opened in its time or one before it, with the budget of the policy in force."""
        policy = self._renewal
        if policy is None or policy.budget is None or policy.sequence != stated["renewal"]:
            raise BrokenLedger(entry.sequence, "opens an epoch under a policy that was not in force")
        if len(detail["names"]) != 1 or detail["names"][0] not in epochs_at(policy.period, entry.at_us):
            raise BrokenLedger(entry.sequence, "opens what was neither the present nor the next epoch")
        if detail["budget"] != policy.budget.document or not (
            stated["records_are_new"] and stated["statement"]
        ):
            raise BrokenLedger(entry.sequence, "opens an epoch with another budget, or without its statement")

    def _to_renewal_change(self, entry: Entry, detail: dict[str, Any]) -> ChangeRenewal:
        changed, present = renewal_of(entry), self._renewal
        covered = self._opening is not None and units_lie_in_one_partition(self._opening)
        if not (self.partitions and covered):
            raise BrokenLedger(entry.sequence, "renews what recurs over epochs, or has no partitions")
        if present is not None and present.period is not changed.period:
            raise BrokenLedger(entry.sequence, "changes the period of epochs")
        return ChangeRenewal(Period(detail["period"]), changed.budget, changed.reason)

    def _to_quota_change(self, entry: Entry, detail: dict[str, Any]) -> ChangeQuota:
        team, fraction, window = detail["team"], detail["fraction"], detail["window_seconds"]
        alike = [each for each in self._quotas_of(team) if each.window_seconds == window]
        if fraction is None and not alike:
            raise BrokenLedger(entry.sequence, "removes a quota that was not in force")
        return ChangeQuota(team, fraction, window, detail["reason"], alike[0] if alike else None)

    def _to_decision(self, entry: Entry, detail: dict[str, Any]) -> DecideRequest:
        request = self.requests.get(detail["request"])
        if request is None or request.state is not RequestState.OPEN:
            raise BrokenLedger(entry.sequence, f"decides request {detail['request']}, which is not open")
        state = next(state for state, kind in DECIDED_AS.items() if kind is entry.kind)
        if state is RequestState.WITHDRAWN and entry.actor != request.actor:
            raise BrokenLedger(entry.sequence, "withdraws the request of another token")
        if state is RequestState.APPROVED and not self._is_as_asked_for(request):
            raise BrokenLedger(entry.sequence, f"approves request {request.sequence}, which was outdated")
        return DecideRequest(request, state, detail.get("reason"))

    def _is_as_asked_for(self, request: BudgetRequest) -> bool:
        """Whether the budget that a request is to change is that of then, and a quota still below."""
        if request.kind is RequestKind.BUDGET:
            return self._budget_changed_at < request.sequence
        if request.kind is RequestKind.QUOTA:
            asked = request.fields
            window = asked["window_seconds"]
            alike = [each for each in self._quotas_of(asked["team"]) if each.window_seconds == window]
            return bool(alike) and alike[0].fraction < asked["fraction"]
        return True

    def _to_allocation_command(
        self, entry: Entry, allocation: Allocation | None
    ) -> Allocate | ReturnAllocation:
        detail = json.loads(entry.detail or "{}")
        if entry.kind is EntryKind.ALLOCATION_RETURNED:
            if allocation is None or not allocation.is_untouched:
                raise BrokenLedger(entry.sequence, "returns an allocation that was not open and untouched")
            team = self._allocating_teams.get(allocation.sequence)
            return ReturnAllocation(allocation, detail["reason"], self._quotas_of(team))
        name, epsilon, delta = detail["name"], detail["epsilon"], detail["delta"]
        budget = Budget.from_document(detail["budget"])
        if name in self._allocation_names:
            raise BrokenLedger(entry.sequence, f"opens allocation {name!r}, which was opened before")
        if budget.filter.allocates or (budget.target.get("epsilon"), budget.target.get("delta")) != (
            epsilon,
            delta,
        ):
            raise BrokenLedger(entry.sequence, "allocates another epsilon and delta than its budget has")
        self._allocation_names.add(name)
        self._allocating_teams[entry.sequence] = entry.team
        quotas = self._quotas_of(entry.team)
        owner = entry.actor if self._approved is None else self._approved.actor
        return Allocate(name, owner, epsilon, delta, budget, detail.get("reason"), quotas)

    def _to_closing(
        self, entry: Entry, partition: Partition | None, allocation: Allocation | None
    ) -> Settle | Expire:
        held = self.reservations.pop(entry.reservation or 0, None)
        if held is None:
            raise BrokenLedger(entry.sequence, f"closes reservation {entry.reservation}, which is not open")
        if _sequence_of(held.allocation) != entry.allocation:
            raise BrokenLedger(entry.sequence, "closes a reservation of another allocation")
        quotas = self._quotas_of(held.team) if allocation is None else ()
        current = replace(held, partition=partition, allocation=allocation, quotas=quotas)
        return Expire(current) if entry.kind is EntryKind.EXPIRED else Settle(current, entry.used or 0)

    def _remember(self, entry: Entry, charge: Charge | None) -> None:
        partition = self._partition(entry)
        self.reservations[entry.sequence] = Reservation(
            entry.sequence,
            _present(entry, charge),
            entry.run or "",
            entry.times or 0,
            entry.expires_at_us or 0,
            partition,
            entry.actor,
            self._allocation(entry),
            entry.team,
        )


def _sequence_of(allocation: Allocation | None) -> int | None:
    return None if allocation is None else allocation.sequence


def _present(entry: Entry, charge: Charge | None) -> Charge:
    if charge is None:
        raise BrokenLedger(entry.sequence, "its charge is missing")
    return charge


def _open(dataset_id: int, name: str, detail: dict[str, Any]) -> LedgerState:
    budget = Budget.from_document(detail["budget"])
    return LedgerState(
        dataset_id=dataset_id,
        name=name,
        adjacency=Adjacency(detail["adjacency"]),
        partition_key=detail["partition_key"],
        budget=budget,
        whole=nothing_spent(budget),
        extremes=PartitionExtremes.empty(budget),
        partitions=0,
        sequence=0,
        head=GENESIS,
        guarantee=budget,
        guaranteed_since=1,
    )


@dataclass(frozen=True)
class Difference:
    """One stored value that is not what the entries say."""

    what: str
    stored: Any
    replayed: Any


_SINCE = ("guaranteed_since", "has_quotas", "governed")


def differences(
    stored: LedgerState,
    replayed: LedgerState,
    partitions: Iterable[tuple[Partition, Partition]],
    allocations: Iterable[tuple[Allocation, Allocation]] = (),
    quotas: Iterable[tuple[Quota, Quota]] = (),
    requests: Iterable[tuple[BudgetRequest, BudgetRequest]] = (),
) -> list[Difference]:
    """Every stored total that differs, in any bit, from the replayed one."""
    found = [
        Difference(name, getattr(stored, name), getattr(replayed, name))
        for name in ("sequence", "head", "partitions", "partition_key", "adjacency", *_SINCE)
        if getattr(stored, name) != getattr(replayed, name)
    ]
    for name in ("budget", "guarantee"):
        documents = getattr(stored, name).document, getattr(replayed, name).document
        found += [] if documents[0] == documents[1] else [Difference(name, *documents)]
    found += _totals_differ("whole", stored.whole, replayed.whole)
    for name in ("headroom", "least_limit", "first", "second", "holder"):
        found += _vectors_differ(
            f"crowd.{name}", getattr(stored.extremes, name), getattr(replayed.extremes, name)
        )
    for kept, again in partitions:
        found += _partition_differs(kept, again)
    for part, recorded in allocations:
        found += _allocation_differs(part, recorded)
    for counted, said in quotas:
        pair = counted.document, said.document
        found += [] if pair[0] == pair[1] else [Difference(f"quota of entry {said.sequence}", *pair)]
    for kept_request, recorded_request in requests:
        if kept_request != recorded_request:
            what = f"request {recorded_request.sequence}"
            found.append(Difference(what, kept_request, recorded_request))
    return found


def _allocation_differs(stored: Allocation, replayed: Allocation) -> list[Difference]:
    found = _totals_differ(f"allocation {stored.name}", stored.totals, replayed.totals)
    for name in ("name", "owner", "epsilon", "delta", "entries", "releases", "returned"):
        pair = getattr(stored, name), getattr(replayed, name)
        found += [] if pair[0] == pair[1] else [Difference(f"allocation {stored.name}.{name}", *pair)]
    documents = stored.budget.document, replayed.budget.document
    same = documents[0] == documents[1]
    return found if same else [*found, Difference(f"allocation {stored.name}.budget", *documents)]


def _partition_differs(stored: Partition, replayed: Partition) -> list[Difference]:
    found = _totals_differ(f"partition {stored.name}", stored.totals, replayed.totals)
    named = (stored.name, _document(stored)), (replayed.name, _document(replayed))
    return found if named[0] == named[1] else [*found, Difference(f"partition {stored.name}", *named)]


def _document(partition: Partition) -> str | None:
    return None if partition.budget is None else partition.budget.document


def _totals_differ(what: str, stored: AnyTotals, replayed: AnyTotals) -> list[Difference]:
    counts = (stored.open_reservations, replayed.open_reservations)
    found = [] if counts[0] == counts[1] else [Difference(f"{what}.open_reservations", *counts)]
    exact = _exact_numbers(stored), _exact_numbers(replayed)
    found += [] if exact[0] == exact[1] else [Difference(f"{what}.exact", *exact)]
    found += _vectors_differ(f"{what}.spent", stored.spent, replayed.spent)
    return found + _vectors_differ(f"{what}.reserved", stored.reserved, replayed.reserved)


def _exact_numbers(totals: AnyTotals) -> tuple[str, str] | None:
    if not isinstance(totals, ExactTotals):
        return None
    return totals.exact_spent.text, totals.exact_reserved.text


def _vectors_differ(what: str, stored: Floats | Any, replayed: Floats | Any) -> list[Difference]:
    if np.asarray(stored).tobytes() == np.asarray(replayed).tobytes():
        return []
    return [Difference(what, np.asarray(stored).tolist(), np.asarray(replayed).tolist())]
