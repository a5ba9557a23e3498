"""A kind of budget that the product does not have, as somebody outside would add one."""

from typing import Any, ClassVar, Literal

import numpy as np

from dpledger.accounting.cost import Cost
from dpledger.accounting.errors import Unproven
from dpledger.accounting.exact import Exact
from dpledger.accounting.sampling import Adjacency
from dpledger.accounting.stepcost import cost_of
from dpledger.accounting.steps import Step
from dpledger.accounting.theorem import Theorem
from dpledger.accounting.validation import Floats, check_positive
from dpledger.ledger.filters import Filter, Meter
from dpledger.ledger.model.budget import Budget

__all__ = ["PureFilter"]


class PureFilter(Filter):
    """Σε ≤ ε_max over steps with a proven pure ε."""

    name = "pure-sum"
    fields = frozenset({"epsilon"})
    theorem = Theorem(
        "pure-sum",
        "Σε ≤ ε_max",
        "every step has a pure ε; steps may be chosen from earlier outputs",
        "Rogers, Roth, Ullman, Vadhan 2016",
    )
    summary = "Pure DP: the sum of ε stays within its limit"
    picture: ClassVar[Literal["sum", "curve", "items"]] = "sum"

    def open(self, fields: dict[str, Any], adjacency: Adjacency) -> Budget:
        epsilon = check_positive("budget.epsilon", fields.get("epsilon"))
        return Budget(self.name, np.empty(0), np.array([epsilon, 0.0]), {"epsilon": epsilon})

    def change(self, budget: Budget, fields: dict[str, Any], adjacency: Adjacency) -> Budget:
        return self.open(fields, adjacency)

    def cost(self, budget: Budget, step: Step) -> Cost:
        return cost_of(step, np.array([2.0]))

    def amounts(self, budget: Budget, step: Step, cost: Cost, item: str | None) -> Floats:
        if cost.pure_epsilon is None:
            raise Unproven("this step has no proven pure ε, which this budget adds up")
        return np.array([cost.pure_epsilon, cost.delta])

    def exact_amounts(self, budget: Budget, step: Step, amounts: Floats) -> Exact:
        return Exact.of_floats(amounts)

    def coordinates(self, budget: Budget, amounts: Floats) -> dict[str, Any]:
        return {"pure_epsilon": float(amounts[0])}

    def meters(self, budget: Budget, amounts: Floats) -> list[Meter]:
        return [Meter("pure ε", float(amounts[0]), float(budget.limits[0]))]

    def indicative_epsilon(self, budget: Budget, amounts: Floats, delta: float) -> float | None:
        return float(amounts[0])
