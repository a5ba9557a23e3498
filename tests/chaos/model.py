"""One dataset by the pure model: requests as clients sent them, decided by :func:`dpledger.ledger.decide`.

Nothing of storage, transactions, batches or keys is here. What the ledger alone knows, the time of an entry,
is given; everything else follows from the requests.
"""

import json
from dataclasses import dataclass, field, replace
from typing import Any

from dpledger.accounting.sampling import Sample
from dpledger.accounting.steps import Step
from dpledger.api.schemas.requests import (
    AllocationBody,
    BudgetChangeBody,
    DatasetBody,
    PartitionsBody,
    ReservationBody,
    SpendBody,
)
from dpledger.ledger.charges import charge_for
from dpledger.ledger.decide import Granted, Refused, Stamp, decide, partition_extremes
from dpledger.ledger.guarantee import guarantee_fields, limit_warnings
from dpledger.ledger.model.allocation import Allocation, inner_budget
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.commands import (
    Allocate,
    Authorize,
    ChangeBudget,
    Command,
    Expire,
    OpenPartitions,
    Reservation,
    Reserve,
    ReturnAllocation,
    Settle,
)
from dpledger.ledger.model.entries import GENESIS, Charge, Entry, EntryKind
from dpledger.ledger.model.requests import Spend
from dpledger.ledger.model.state import LedgerState, Partition, PartitionExtremes, nothing_spent
from dpledger.ledger.planning import plan_of, unspent_plan_warnings
from dpledger.ledger.ports import NewDataset
from dpledger.ledger.results import (
    AllocationOpening,
    AllocationRefusal,
    AllocationReturn,
    BudgetChange,
    DatasetOpening,
    Grant,
    PartitionOpening,
    ReservationGrant,
    Result,
    SettlementRecord,
    SpendRefusal,
)

__all__ = ["DatasetModel", "NotGranted"]


class NotGranted(Exception):
    """The model refuses what the ledger holds."""


@dataclass
class DatasetModel:
    """The state of one dataset, and what it refers to by name or number."""

    state: LedgerState
    partitions: dict[str, Partition] = field(default_factory=dict)
    allocations: dict[str, Allocation] = field(default_factory=dict)
    reservations: dict[int, Reservation] = field(default_factory=dict)
    charges: dict[str, Charge] = field(default_factory=dict)

    @classmethod
    def open(cls, body: dict[str, Any], stamp: Stamp) -> "tuple[DatasetModel, DatasetOpening]":
        """A dataset as its opening asks for it, after its first entry."""
        asked = DatasetBody.model_validate(body)
        fields, key = asked.budget.fields(), asked.partition_key_or_default()
        budget = Budget.from_fields(fields, asked.adjacency)
        plan = plan_of(fields, asked.adjacency)
        dataset = NewDataset(
            name=asked.name,
            description=asked.description,
            adjacency=asked.adjacency.value,
            unit=asked.unit,
            records=asked.records,
            partition_key=key,
            budget=budget,
            at_us=stamp.at_us,
            plan=plan,
        )
        entry = Entry(1, EntryKind.OPENED, stamp.at_us, stamp.actor, GENESIS, detail=_opening(dataset))
        state = LedgerState(
            dataset_id=1,
            name=asked.name,
            adjacency=asked.adjacency,
            partition_key=key,
            budget=budget,
            whole=nothing_spent(budget),
            extremes=PartitionExtremes.empty(budget),
            partitions=0,
            sequence=1,
            head=entry.hash,
            guarantee=budget,
            guaranteed_since=1,
        )
        return cls(state), DatasetOpening(dataset, tuple(unspent_plan_warnings(plan, budget)))

    def take(self, command: Command, stamp: Stamp) -> Granted:
        """Decide a command that the ledger holds; raises NotGranted where the model refuses it."""
        outcome = decide(self.state, command, stamp)
        if isinstance(outcome, Refused):
            raise NotGranted(f"entry {self.state.sequence + 1} of {self.state.name}")
        self.partitions |= {partition.name: partition for partition in outcome.partitions}
        self.state = outcome.state
        if outcome.recount:
            extremes = partition_extremes(self.state, self.partitions.values())
            self.state = replace(self.state, extremes=extremes)
        if outcome.allocation is not None:
            self.allocations[outcome.allocation.name] = outcome.allocation
        return outcome

    def charge(self, body: dict[str, Any]) -> tuple[SpendBody, Charge]:
        """What a spend costs; the same description always costs the same."""
        spend = SpendBody.model_validate(body)
        named = {name: body.get(name) for name in ("releases", "sample", "item", "allocation")}
        key = json.dumps(named, sort_keys=True)
        if key not in self.charges:
            self.charges[key] = self._charge(spend.to_spend(self.state.name))
        return spend, self.charges[key]

    def _charge(self, spend: Spend) -> Charge:
        inner = None if spend.allocation is None else self.allocations[spend.allocation].budget
        sample = spend.sample if spend.seen_sample is None else Sample()
        step = Step(spend.releases, sample, self.state.adjacency)
        budget = self.state.budget if inner is None else inner
        return charge_for(budget, step, spend.purpose, spend.item, allocated=inner is not None)

    def _left(self, outcome: Granted) -> tuple[Budget, float]:
        """In whose terms what is left is shown, and the fraction."""
        allocation = outcome.allocation
        if allocation is not None:
            return allocation.budget, allocation.budget.fraction_left(allocation.totals.committed)
        changed = outcome.partitions[0] if outcome.partitions else None
        return self.state.display_budget(changed), self.state.fraction_left(changed)

    def authorize(self, body: dict[str, Any], stamp: Stamp) -> Grant:
        """A step that the ledger holds."""
        spend, charge = self.charge(body)
        outcome = self.take(self._authorize(spend, charge), stamp)
        left = self._left(outcome)
        return Grant(self.state.name, outcome.entry, charge, *left, spend.partition, spend.allocation)

    def _authorize(self, spend: SpendBody, charge: Charge) -> Authorize:
        partition = None if spend.partition is None else self.partitions[spend.partition]
        allocation = None if spend.allocation is None else self.allocations[spend.allocation]
        return Authorize(charge, spend.run, partition, None, allocation)

    def _reserve(self, body: dict[str, Any], stamp: Stamp) -> tuple[ReservationBody, Reserve]:
        asked = ReservationBody.model_validate(body)
        given = {name: value for name, value in body.items() if name not in ("times", "expires_in_seconds")}
        spend, charge = self.charge(given)
        until = stamp.at_us + int(asked.expires_in_seconds * 1e6)
        plain = self._authorize(spend, charge)
        held = Reserve(charge, spend.run, asked.times, until, plain.partition, plain.allocation)
        return asked, held

    def reserve(self, body: dict[str, Any], stamp: Stamp) -> ReservationGrant:
        """A reservation that the ledger holds."""
        asked, command = self._reserve(body, stamp)
        outcome = self.take(command, stamp)
        number = outcome.entry.sequence
        self.reservations[number] = Reservation(
            number,
            command.charge,
            command.run,
            command.times,
            command.expires_at_us,
            command.partition,
            stamp.actor,
            command.allocation,
        )
        left = self._left(outcome)
        named = asked.partition, asked.allocation
        return ReservationGrant(self.state.name, outcome.entry, command.charge, *left, *named)

    def _as_it_stands(self, number: int) -> Reservation:
        held = self.reservations.pop(number)
        partition = None if held.partition is None else self.partitions[held.partition.name]
        allocation = None if held.allocation is None else self.allocations[held.allocation.name]
        return replace(held, partition=partition, allocation=allocation)

    def settle(self, number: int, body: dict[str, Any], stamp: Stamp) -> SettlementRecord:
        """A reservation that is closed by its settlement."""
        held = self._as_it_stands(number)
        outcome = self.take(Settle(held, body["used"], body.get("statement")), stamp)
        return SettlementRecord(self.state.name, outcome.entry, held, *self._left(outcome))

    def expire(self, number: int, stamp: Stamp) -> Entry:
        """A reservation that nobody settled in time."""
        held = self._as_it_stands(number)
        if stamp.at_us < held.expires_at_us:
            raise NotGranted(f"reservation {number} of {self.state.name} expired before its time")
        return self.take(Expire(held), stamp).entry

    def open_partitions(self, body: dict[str, Any], stamp: Stamp) -> PartitionOpening:
        """Partitions by name."""
        asked = PartitionsBody.model_validate(body)
        own = None
        if asked.budget is not None:
            own = self.state.budget.with_limit(asked.budget.fields(), self.state.adjacency).usable()
        names = tuple(asked.names or ())
        taken = self.take(OpenPartitions(names, own), stamp)
        return PartitionOpening(self.state.name, taken.entry.sequence, names, ())

    def change_budget(self, body: dict[str, Any], stamp: Stamp) -> BudgetChange:
        """Another limit."""
        asked = BudgetChangeBody.model_validate(body)
        budget = self.state.budget.with_limit(asked.budget.fields(), self.state.adjacency)
        taken = self.take(ChangeBudget(budget, asked.reason), stamp)
        state = self.state
        remaining, guarantee = state.remaining(None), guarantee_fields(state)
        warnings = tuple(limit_warnings(state))
        return BudgetChange(state.name, taken.entry.sequence, remaining, guarantee, warnings)

    def _allocate(self, body: dict[str, Any], stamp: Stamp) -> Allocate:
        asked = AllocationBody.model_validate(body).to_allocation()
        own = inner_budget(asked.budget, asked.epsilon, asked.delta, self.state.adjacency)
        return Allocate(asked.name, stamp.actor, asked.epsilon, asked.delta, own, asked.reason)

    def allocate(self, body: dict[str, Any], stamp: Stamp) -> AllocationOpening:
        """An allocation that the ledger holds."""
        command = self._allocate(body, stamp)
        self.take(command, stamp)
        opened = self.allocations[command.name]
        return AllocationOpening(self.state.name, opened, self.state.remaining(None), ())

    def return_allocation(self, name: str, body: dict[str, Any], stamp: Stamp) -> AllocationReturn:
        """An allocation that is given back."""
        found = self.allocations[name]
        if not found.is_untouched:
            raise NotGranted(f"allocation {name} of {self.state.name} may have released something")
        taken = self.take(ReturnAllocation(found, body["reason"]), stamp)
        remaining = self.state.remaining(None)
        return AllocationReturn(self.state.name, taken.entry.sequence, self.allocations[name], remaining)

    def refusal(self, kind: str, body: dict[str, Any], *, listed: bool = False) -> Result | None:
        """What the model says to a request that was refused in this state; None if it would grant it.

        ``listed``: it is an item of a list, which names its partition.
        """
        nobody = Stamp(0, "")
        if kind == "allocations":
            command = self._allocate(body, nobody)
            outcome = decide(self.state, command, nobody)
            if isinstance(outcome, Granted):
                return None
            shares = command.name, command.epsilon, command.delta
            return AllocationRefusal(self.state.name, *shares, outcome)
        asked: Authorize | Reserve
        spend: SpendBody
        if kind == "reservations":
            spend, asked = self._reserve(body, nobody)
        else:
            spend, charge = self.charge(body)
            asked = self._authorize(spend, charge)
        outcome = decide(self.state, asked, nobody)
        if isinstance(outcome, Granted):
            return None
        return SpendRefusal(
            self.state.name,
            asked.run,
            asked.charge,
            asked.times if isinstance(asked, Reserve) else 1,
            outcome,
            spend.partition if listed else None,
            spend.allocation,
        )


def _opening(dataset: NewDataset) -> str:
    """The detail of a first entry."""
    fields = {
        "name": dataset.name,
        "adjacency": dataset.adjacency,
        "unit": dataset.unit,
        "partition_key": dataset.partition_key,
        "budget": dataset.budget.document,
    }
    return json.dumps(fields, separators=(",", ":"), allow_nan=False)
