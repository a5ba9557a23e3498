"""Allocations: parts of a shared budget, each with a budget and totals of its own.

A spend from an allocation is decided as in a ledger that has nothing but the allocation's budget and totals
(:func:`ledger_within`); its entry is one of the dataset's chain (:func:`place_ledger`).
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from dpledger.accounting.errors import InvalidInput
from dpledger.accounting.exact import Exact, as_given, float_below
from dpledger.accounting.sampling import Adjacency
from dpledger.accounting.validation import check_open_unit, check_positive
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.filter import filter_named
from dpledger.ledger.model.state import AnyTotals, ExactTotals, LedgerState, PartitionExtremes

__all__ = [
    "Allocation",
    "inner_budget",
    "ledger_within",
    "place_ledger",
    "shared_amounts",
]


@dataclass(frozen=True, eq=False)
class Allocation:
    """A part (ε_j, δ_j) of a shared budget.

    ``sequence`` is the number of the entry that opened it, ``owner`` the id of the token that asked for it.
    ``entries`` counts the entries that name it. ``releases`` counts the repetitions that were authorized,
    used or expired: what may have been released, whatever it cost.
    """

    sequence: int
    name: str
    owner: str
    epsilon: float
    delta: float
    budget: Budget
    totals: AnyTotals
    entries: int = 0
    releases: int = 0
    returned: bool = False

    @cached_property
    def amounts(self) -> Exact:
        """What it takes of the shared budget."""
        return shared_amounts(self.epsilon, self.delta)

    @property
    def is_untouched(self) -> bool:
        """Whether nothing was released from it, nor may be: what a return rests on.

        A reservation that was settled with none used released nothing, as whoever settled it states.
        """
        return not (self.returned or self.releases or self.totals.open_reservations)

    @property
    def state(self) -> str:
        """``open`` or ``returned``."""
        return "returned" if self.returned else "open"

    def remaining(self) -> dict[str, Any]:
        """What is left to spend from it, in its budget's terms; nothing once it is returned."""
        left = 0.0 if self.returned else self.budget.fraction_left(self.totals.committed)
        return self.budget.remaining_at(left)


def shared_amounts(epsilon: float, delta: float) -> Exact:
    """(ε_j, δ_j) as amounts of a shared budget: the decimals as given."""
    return Exact.of([as_given(epsilon), as_given(delta), as_given(0.0)])


def inner_budget(fields: dict[str, Any], epsilon: float, delta: float, adjacency: Adjacency) -> Budget:
    """The budget inside an allocation of (ε_j, δ_j): any kind that is given by ε and δ.

    It is made for the doubles at or below the decimals ε_j and δ_j, which is what adds up, and shown with
    ε_j and δ_j. A bare ρ, μ or curve is refused: it does not follow from (ε_j, δ_j).
    """
    check_positive("epsilon", epsilon)
    check_open_unit("delta", delta)
    for name in ("epsilon", "delta"):
        if name in fields:
            raise InvalidInput(f"budget.{name}", "absent: the allocation's own applies", fields[name])
    if filter_named(fields.get("accounting")).allocates:
        raise InvalidInput("budget.accounting", "a kind that is spent itself", fields["accounting"])
    made_for = {"epsilon": _below(epsilon), "delta": _below(delta)}
    budget = Budget.from_fields({**fields, **made_for}, adjacency)
    if any(budget.target.get(name) != value for name, value in made_for.items()):
        raise InvalidInput("budget", "one that is given by epsilon and delta", sorted(fields))
    return replace(budget, target={**budget.target, "epsilon": float(epsilon), "delta": float(delta)})


def _below(value: float) -> float:
    return float_below(as_given(value))


def ledger_within(state: LedgerState, allocation: Allocation) -> LedgerState:
    """The ledger of an allocation alone, at the head of the dataset's chain."""
    budget = allocation.budget
    return replace(
        state,
        budget=budget,
        whole=allocation.totals,
        extremes=PartitionExtremes.empty(budget),
        guarantee=budget,
    )


def place_ledger(
    state: LedgerState, allocation: Allocation, within: LedgerState, entries: int, releases: int
) -> tuple[LedgerState, Allocation]:
    """The dataset's ledger and the allocation once the one within it has moved on by so many entries.

    The dataset counts the open reservations of all its allocations.
    """
    moved = replace(
        allocation,
        totals=within.whole,
        entries=allocation.entries + entries,
        releases=allocation.releases + releases,
    )
    opened = within.whole.open_reservations - allocation.totals.open_reservations
    assert isinstance(state.whole, ExactTotals), "shared budgets add exact numbers"
    whole = replace(state.whole, open_reservations=state.whole.open_reservations + opened)
    return replace(state, whole=whole, sequence=within.sequence, head=within.head), moved
