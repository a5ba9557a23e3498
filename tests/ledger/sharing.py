"""A shared budget without storage: decides, remembers every entry and every allocation."""

from dataclasses import dataclass, field, replace
from typing import Any

from dpledger.accounting.steps import Step
from dpledger.ledger.charges import charge_for
from dpledger.ledger.decide import Granted, Refused, Stamp, decide
from dpledger.ledger.model.allocation import Allocation, inner_budget
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.commands import (
    Allocate,
    Authorize,
    ChangeBudget,
    Command,
    Expire,
    Reservation,
    Reserve,
    ReturnAllocation,
    Settle,
)
from dpledger.ledger.model.entries import Charge
from dpledger.ledger.model.state import LedgerState
from dpledger.ledger.ports import StoredEntry
from tests.ledger.builders import ADD_REMOVE, budget_of, opened


@dataclass
class Sharer:
    """Plays the part of service and storage."""

    state: LedgerState
    stored: list[StoredEntry]
    allocations: dict[str, Allocation] = field(default_factory=dict)
    held: dict[int, Reservation] = field(default_factory=dict)

    @classmethod
    def of(cls, epsilon: float, delta: float) -> "Sharer":
        return cls.alone(budget_of(accounting="shared", epsilon=epsilon, delta=delta))

    @classmethod
    def alone(cls, budget: Budget) -> "Sharer":
        """A ledger with this budget, shared or not."""
        state, first = opened(budget)
        return cls(state, [first])

    def run(
        self, command: Command, charge: Charge | None = None, at_us: int | None = None
    ) -> Granted | Refused:
        at = self.state.sequence + 1 if at_us is None else at_us
        outcome = decide(self.state, command, Stamp(at, "ann"))
        if isinstance(outcome, Granted):
            self.state = outcome.state
            self.stored.append(StoredEntry(outcome.entry, outcome.entry.hash, charge))
            if outcome.allocation is not None:
                self.allocations[outcome.allocation.name] = outcome.allocation
        return outcome

    def inner(self, epsilon: float, delta: float, **fields: Any) -> Budget:
        return inner_budget(fields or {"accounting": "zcdp"}, epsilon, delta, ADD_REMOVE)

    def allocate(self, name: str, epsilon: float, delta: float, **fields: Any) -> Any:
        """The allocation, or None where it was refused."""
        inside = self.inner(epsilon, delta, **fields)
        outcome = self.run(Allocate(name, "ann", epsilon, delta, inside))
        return outcome.allocation if isinstance(outcome, Granted) else None

    def charge(self, name: str, *releases: dict[str, Any]) -> Charge:
        step = Step.from_fields(list(releases), None, "add-remove")
        return charge_for(self.allocations[name].budget, step, "", allocated=True)

    def spend(self, name: str, charge: Charge, at_us: int | None = None) -> Granted | None:
        command = Authorize(charge, "run", allocation=self.allocations[name])
        outcome = self.run(command, charge, at_us)
        return outcome if isinstance(outcome, Granted) else None

    def hold(self, name: str, charge: Charge, times: int) -> Granted | None:
        command = Reserve(charge, "run", times, 10**9, allocation=self.allocations[name])
        outcome = self.run(command, charge)
        if not isinstance(outcome, Granted):
            return None
        sequence = outcome.entry.sequence
        part = self.allocations[name]
        self.held[sequence] = Reservation(sequence, charge, "run", times, 10**9, None, "ann", part)
        return outcome

    def close(self, sequence: int, used: int | None) -> None:
        """Settle with ``used``, or expire where it is None."""
        held = self.held.pop(sequence)
        assert held.allocation is not None
        held = replace(held, allocation=self.allocations[held.allocation.name])
        self.run(Expire(held) if used is None else Settle(held, used))

    def give_back(self, name: str) -> None:
        self.run(ReturnAllocation(self.allocations[name], "reason"))

    def change(self, budget: Budget) -> None:
        self.run(ChangeBudget(budget, "reason"))
