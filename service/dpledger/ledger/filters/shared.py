"""The filter that hands out parts of an (ε, δ), each with a budget of its own inside."""

from fractions import Fraction
from typing import Any, ClassVar, Literal, NoReturn

import numpy as np

from dpledger.accounting.cost import Cost
from dpledger.accounting.errors import InvalidInput
from dpledger.accounting.exact import Exact, as_given, float_below
from dpledger.accounting.sampling import Adjacency
from dpledger.accounting.steps import Step
from dpledger.accounting.theorem import Theorem
from dpledger.accounting.validation import Floats
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.filter import Filter, Meter, read_epsilon_delta, read_target

__all__ = ["SharedFilter"]


class SharedFilter(Filter):
    """Σε_j ≤ ε and Σδ_j ≤ δ over allocations.

    Statement: parts j with (ε_j, δ_j), each an (ε_j, δ_j)-DP interactive mechanism, are (ε, δ)-DP together if
    Σε_j ≤ ε and Σδ_j ≤ δ after every part that is opened.
    Conditions: which part is opened next, with which (ε_j, δ_j), and which part is asked next may follow from
    all outputs so far; each part has coins of its own, so a sample is looked at again only from the part that
    drew it; a part counts for good once anything was released from it.
    Source: Rogers, Roth, Ullman, Vadhan 2016 (filters of basic composition); Haney, Shoemate, Tian, Vadhan,
    Vyrros, Xu, Zhang 2023 (concurrent interactive parts with adaptive parameters).
    The amounts of an allocation are (ε_j, δ_j) as given, so that 0.1 and 0.2 fit into 0.3; the last
    coordinate, the additive δ of the dataset itself, is always 0.
    """

    name = "shared"
    fields = frozenset({"epsilon", "delta"})
    theorem = Theorem(
        "shared",
        "Σε_j ≤ ε and Σδ_j ≤ δ over allocations",
        "parts and their (ε_j, δ_j) may be chosen from earlier outputs of any part; coins are not shared",
        "Rogers, Roth, Ullman, Vadhan 2016; Haney et al. 2023",
    )
    summary = "Shared: parts of (ε, δ) are allocated, each with a budget of its own"
    picture: ClassVar[Literal["sum", "curve", "items"]] = "sum"
    allocates = True

    def open(self, fields: dict[str, Any], adjacency: Adjacency) -> Budget:
        epsilon, delta, _ = read_epsilon_delta(fields)
        target = read_target(fields, "epsilon", "delta")
        return Budget(self.name, np.empty(0), np.array([epsilon, delta, 0.0]), target)

    def change(self, budget: Budget, fields: dict[str, Any], adjacency: Adjacency) -> Budget:
        return self.open(fields, adjacency)

    def read_limits(self, budget: Budget) -> list[Fraction]:
        return [as_given(limit) for limit in budget.limits[:-1].tolist()]

    def cost(self, budget: Budget, step: Step) -> Cost:
        refuse_without_allocation()

    def amounts(self, budget: Budget, step: Step, cost: Cost, item: str | None) -> Floats:
        refuse_without_allocation()

    def exact_amounts(self, budget: Budget, step: Step, amounts: Floats) -> Exact:
        refuse_without_allocation()

    def terms_left(self, budget: Budget, committed: Exact) -> dict[str, Any]:
        """ε and δ that are not allocated, each on its own: what another allocation may have at most."""
        left = [max(Fraction(0), limit - used) for limit, used in _pairs(budget, committed)]
        return {"epsilon": _written(left[0]), "delta": _written(left[1])}

    def coordinates(self, budget: Budget, amounts: Floats) -> dict[str, Any]:
        return {"epsilon": float(amounts[0]), "delta": float(amounts[1])}

    def meters(self, budget: Budget, amounts: Floats) -> list[Meter]:
        rows = zip(("ε", "δ"), amounts.tolist(), budget.limits.tolist(), strict=False)
        return [Meter(label, used, limit) for label, used, limit in rows]

    def indicative_epsilon(self, budget: Budget, amounts: Floats, delta: float) -> float | None:
        return None


def refuse_without_allocation() -> NoReturn:
    """Refuse a spend from a shared budget itself."""
    raise InvalidInput(
        "allocation",
        "the name of one of the dataset's allocations, since its budget is shared: GET "
        "/v1/datasets/{dataset}/allocations lists them, POST there opens one of a name, epsilon, delta and "
        "budget",
        None,
    )


def _pairs(budget: Budget, committed: Exact) -> list[tuple[Fraction, Fraction]]:
    return list(zip(budget.exact_limits, committed.fractions(), strict=True))


def _written(value: Fraction) -> float:
    """The double that is written as ``value``, or else the largest at or below it."""
    near = float(value)
    return near if as_given(near) == value else float_below(value)
