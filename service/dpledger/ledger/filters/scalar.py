"""Filters that add up one number: zCDP and Gaussian DP."""

import abc
from fractions import Fraction
from typing import Any, ClassVar, Literal

import numpy as np

from dpledger.accounting.conversion.zcdp import zcdp_epsilon, zcdp_rho_within
from dpledger.accounting.cost import Cost
from dpledger.accounting.errors import InvalidInput, Unproven
from dpledger.accounting.exact import Exact, as_given
from dpledger.accounting.exact_cost import agreed, exact_delta, exact_mu_squared, exact_rho
from dpledger.accounting.gaussian_profile import gaussian_epsilon, gaussian_mu_within
from dpledger.accounting.rounding import Direction, widen
from dpledger.accounting.sampling import Adjacency
from dpledger.accounting.stepcost import cost_of
from dpledger.accounting.steps import Step
from dpledger.accounting.theorem import Theorem
from dpledger.accounting.validation import Floats, check_positive
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.filter import (
    ADAPTIVE,
    Filter,
    Meter,
    check_additive,
    read_epsilon_delta,
    read_target,
)

__all__ = ["GaussianFilter", "ScalarFilter", "ZcdpFilter", "require_notion"]

_ONE_ORDER: Floats = np.array([2.0])
"""No curve is needed; one order keeps the computation small."""


class ScalarFilter(Filter):
    """One number adds up and stays within its limit; ``parameter`` is how the limit is given."""

    parameter: ClassVar[str]
    coordinate: ClassVar[str]
    symbol: ClassVar[str]
    picture: ClassVar[Literal["sum", "curve", "items"]] = "sum"

    @abc.abstractmethod
    def parameter_within(self, epsilon: float, delta: float) -> float:
        """The largest parameter that is within (ε, δ), rounded down."""

    @abc.abstractmethod
    def amount(self, cost: Cost) -> float:
        """What a cost adds, rounded up."""

    @abc.abstractmethod
    def exact_amount(self, step: Step) -> Fraction | None:
        """What a step adds exactly, if that is known."""

    @abc.abstractmethod
    def epsilon(self, amount: float, delta: float) -> float:
        """ε at δ of an amount."""

    def limit(self, parameter: float) -> float:
        """The limit of the coordinate, rounded down."""
        return parameter

    def open(self, fields: dict[str, Any], adjacency: Adjacency) -> Budget:
        name = self.parameter
        if name in fields:
            if "epsilon" in fields or "delta" in fields:
                raise InvalidInput("budget", f"either {name} or epsilon with delta", sorted(fields))
            value, additive = check_positive(f"budget.{name}", fields[name]), check_additive(fields)
            target = read_target(fields, name)
        else:
            epsilon, delta, additive = read_epsilon_delta(fields)
            value = self.parameter_within(epsilon, delta)
            target = {**read_target(fields, "epsilon", "delta"), name: value}
        limit = self.limit(value)
        if limit <= 0.0:
            raise InvalidInput(
                f"budget.{name}", f"large enough that {self.symbol} rounds to above zero", value
            )
        return Budget(self.name, np.empty(0), np.array([limit, additive]), target)

    def change(self, budget: Budget, fields: dict[str, Any], adjacency: Adjacency) -> Budget:
        return self.open(fields, adjacency)

    def cost(self, budget: Budget, step: Step) -> Cost:
        return cost_of(step, _ONE_ORDER)

    def amounts(self, budget: Budget, step: Step, cost: Cost, item: str | None) -> Floats:
        return np.array([self.amount(cost), cost.delta])

    def exact_amounts(self, budget: Budget, step: Step, amounts: Floats) -> Exact:
        known = self.exact_amount(step), exact_delta(step)
        return Exact.of([agreed(*pair) for pair in zip(known, amounts.tolist(), strict=True)])

    def coordinates(self, budget: Budget, amounts: Floats) -> dict[str, Any]:
        return {self.coordinate: float(amounts[0])}

    def meters(self, budget: Budget, amounts: Floats) -> list[Meter]:
        return [Meter(self.symbol, float(amounts[0]), float(budget.limits[0]))]

    def indicative_epsilon(self, budget: Budget, amounts: Floats, delta: float) -> float | None:
        return self.epsilon(float(amounts[0]), delta)


class ZcdpFilter(ScalarFilter):
    """Σρ ≤ ρ_max; a target (ε, δ) is turned into ρ_max by the tight conversion."""

    name = "zcdp"
    fields = frozenset({"rho", "epsilon", "delta", "additive_delta"})
    theorem = Theorem(
        "zcdp", "Σρ ≤ ρ_max", ADAPTIVE, "Feldman and Zrnic 2021; Rogers, Roth, Ullman, Vadhan 2016"
    )
    summary = "zCDP: the sum of ρ stays within its limit"
    parameter = coordinate = "rho"
    symbol = "ρ"

    def parameter_within(self, epsilon: float, delta: float) -> float:
        return zcdp_rho_within(epsilon, delta)

    def amount(self, cost: Cost) -> float:
        return require_notion(cost.rho, "zCDP", "rho")

    def exact_amount(self, step: Step) -> Fraction | None:
        return exact_rho(step)

    def epsilon(self, amount: float, delta: float) -> float:
        return zcdp_epsilon(amount, delta)


class GaussianFilter(ScalarFilter):
    """Σμ² ≤ μ_max²: the exact (ε, δ) of a Gaussian."""

    name = "gdp"
    fields = frozenset({"mu", "epsilon", "delta", "additive_delta"})
    theorem = Theorem("gdp", "Σμ² ≤ μ_max²", ADAPTIVE, "Smith and Thakurta 2022")
    summary = "Gaussian DP: the sum of μ² stays within its limit"
    parameter = "mu"
    coordinate = "mu_squared"
    symbol = "μ²"

    def parameter_within(self, epsilon: float, delta: float) -> float:
        return gaussian_mu_within(epsilon, delta)

    def limit(self, parameter: float) -> float:
        return widen(parameter * parameter, Direction.DOWN, ulps=1)

    def read_limits(self, budget: Budget) -> list[Fraction]:
        read = Fraction if "epsilon" in budget.target else as_given
        return [read(budget.target["mu"]) ** 2]

    def amount(self, cost: Cost) -> float:
        mu = require_notion(cost.mu, "Gaussian DP", "mu")
        return widen(mu * mu, Direction.UP, ulps=1) if mu else 0.0

    def exact_amount(self, step: Step) -> Fraction | None:
        return exact_mu_squared(step)

    def epsilon(self, amount: float, delta: float) -> float:
        return gaussian_epsilon(widen(float(np.sqrt(amount)), Direction.UP, ulps=1), delta)


def require_notion(value: float | None, notion: str, parameter: str) -> float:
    """A parameter that a step must have for this accounting."""
    if value is None:
        raise Unproven(
            f"this step has no proven {notion} parameter ({parameter}), which the dataset's accounting "
            "adds up; sampled and mixed work needs a budget with accounting plan or rdp"
        )
    return value
