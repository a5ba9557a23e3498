"""A plan fixed in advance, what it costs in each notion, and the answer of a composition."""

import functools
import math
from dataclasses import dataclass
from typing import Any

from dpledger.accounting.conversion.renyi import renyi_epsilon
from dpledger.accounting.cost import Cost
from dpledger.accounting.errors import InvalidInput
from dpledger.accounting.gaussian_profile import gaussian_epsilon
from dpledger.accounting.numerics import root_of_squares
from dpledger.accounting.orders import DEFAULT_ORDERS
from dpledger.accounting.rounding import Direction, widen
from dpledger.accounting.sampling import Adjacency
from dpledger.accounting.stepcost import cost_of
from dpledger.accounting.steps import Step
from dpledger.accounting.validation import Floats, check_count, check_delta, check_non_negative

__all__ = ["MOST_PARTS", "Composition", "Plan", "approximate_parts", "combined_gaussian_mu", "sum_of"]

MOST_PARTS = 1024


@dataclass(frozen=True)
class Composition:
    """A plan's total with the theorem that proves it."""

    epsilon: float
    delta: float
    method: str
    theorem: str
    conditions: str
    source: str
    order: float | None = None

    def fields(self) -> dict[str, Any]:
        """The wire form; ``order`` only where one was chosen."""
        wire = {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "method": self.method,
            "theorem": self.theorem,
            "conditions": self.conditions,
            "source": self.source,
        }
        return wire if self.order is None else wire | {"order": self.order}


@dataclass(frozen=True)
class Plan:
    """Steps and how often each is taken, all fixed in advance, and the δ of the total.

    Nothing in a plan may depend on an earlier step's output: for that there are filters.
    """

    parts: tuple[tuple[Step, int], ...]
    delta: float

    def __post_init__(self) -> None:
        if not 1 <= len(self.parts) <= MOST_PARTS:
            raise InvalidInput("steps", f"1 to {MOST_PARTS} of them", len(self.parts))
        for _, times in self.parts:
            check_count("times", times)
        object.__setattr__(self, "delta", check_delta("delta", self.delta))
        if len({step.adjacency for step, _ in self.parts}) > 1:
            raise InvalidInput("adjacency", "the same for all steps of a plan", "both")

    @property
    def adjacency(self) -> Adjacency:
        """The adjacency of every step."""
        return self.parts[0][0].adjacency

    @functools.cached_property
    def costs(self) -> tuple[tuple[Cost, int], ...]:
        """Each step's cost on the default grid, with its repetitions."""
        return tuple((cost_of(step, DEFAULT_ORDERS), times) for step, times in self.parts)

    @functools.cached_property
    def total(self) -> Cost:
        """The cost of the whole plan on the default grid."""
        return sum_of(self.costs)

    def total_at(self, orders: Floats) -> Cost:
        """The cost of the whole plan at other orders."""
        return sum_of(tuple((cost_of(step, orders), times) for step, times in self.parts))

    @property
    def spare_delta(self) -> float:
        """What of δ is left beside the steps' additive δ, rounded down; refused if they need more."""
        needed = self.total.delta
        if needed > self.delta:
            raise InvalidInput("delta", f"at least the steps' additive {needed!r}", self.delta)
        rest = self.delta - needed
        return max(0.0, math.nextafter(rest, -math.inf)) if needed else rest


def sum_of(costs: tuple[tuple[Cost, int], ...]) -> Cost:
    """Σ of repeated costs."""
    first, *others = (cost.repeated(times) for cost, times in costs)
    return functools.reduce(lambda total, cost: total + cost, others, first)


def approximate_parts(plan: Plan, for_steps: float) -> list[tuple[float, float, int]]:
    """Each step as (ε, δ)-DP, for theorems that know nothing else.

    A step with a pure ε is taken as such. The others share ``for_steps`` of δ evenly and are converted,
    exactly where they are Gaussian, from their curve otherwise.
    """
    count = sum(times for cost, times in plan.costs if cost.pure_epsilon is None)
    share = widen(for_steps / count, Direction.DOWN, ulps=1) if count else 0.0
    return [(*_as_approximate(cost, share), times) for cost, times in plan.costs]


def _as_approximate(cost: Cost, share: float) -> tuple[float, float]:
    if cost.pure_epsilon is not None:
        return cost.pure_epsilon, cost.delta
    if share <= 0.0:
        raise InvalidInput("delta", "above 0 for steps without a pure epsilon", share)
    epsilon = float(renyi_epsilon(cost.orders, cost.epsilons, share).min())
    if cost.mu is not None:
        epsilon = min(epsilon, gaussian_epsilon(cost.mu, share))
    return epsilon, math.nextafter(cost.delta + share, math.inf) if cost.delta else share


def combined_gaussian_mu(step: Step) -> float | None:
    """μ of a step whose releases are all exactly Gaussian, on its sample looked at in full."""
    parts = []
    for release in step.releases:
        mu = release.mechanism.gaussian_mu
        if mu is None:
            return None
        parts.append((mu, release.count))
    total = check_non_negative("μ of all releases", root_of_squares(parts))
    return widen(total, Direction.UP, ulps=4) if total else 0.0
