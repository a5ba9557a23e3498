"""A plan fixed in advance, what it costs in each notion, and the answer of a composition."""

import functools
import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from dpledger.accounting.amplification.approximate import amplified_epsilon
from dpledger.accounting.amplification.pairing import check_pairing
from dpledger.accounting.conversion.renyi import renyi_epsilon
from dpledger.accounting.cost import Cost
from dpledger.accounting.errors import InvalidInput
from dpledger.accounting.exact import as_given, float_above, float_below
from dpledger.accounting.exact_cost import agreed, exact_delta
from dpledger.accounting.gaussian_profile import gaussian_epsilon
from dpledger.accounting.numerics import root_of_squares
from dpledger.accounting.orders import DEFAULT_ORDERS
from dpledger.accounting.rounding import Direction, widen
from dpledger.accounting.sampling import Adjacency, Sample
from dpledger.accounting.stepcost import cost_of
from dpledger.accounting.steps import Step
from dpledger.accounting.validation import Floats, check_count, check_delta, check_non_negative

__all__ = [
    "MOST_PARTS",
    "Composition",
    "Plan",
    "amplified_part",
    "approximate_parts",
    "combined_gaussian_mu",
    "shared_parts",
    "sum_of",
]

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

    @functools.cached_property
    def spare_delta(self) -> float:
        """What of δ is left beside the steps' additive δ, rounded down; refused if they need more.

        The sum is exact on the numbers as given: 0.1 and 0.2 leave nothing of 0.3, and need no more.
        """
        parts = zip(self.parts, self.costs, strict=True)
        needed = sum((n * agreed(exact_delta(s), cost.delta) for (s, n), (cost, _) in parts), Fraction(0))
        if needed > as_given(self.delta):
            raise InvalidInput("delta", f"at least the steps' additive {float_above(needed)!r}", self.delta)
        return float_below(as_given(self.delta) - needed)


def sum_of(costs: tuple[tuple[Cost, int], ...]) -> Cost:
    """Σ of repeated costs."""
    first, *others = (cost.repeated(times) for cost, times in costs)
    return functools.reduce(lambda total, cost: total + cost, others, first)


def approximate_parts(plan: Plan, for_steps: float) -> list[tuple[float, float, int]]:
    """Each step as (ε, δ)-DP and how often, for theorems that know nothing else; ε and δ rounded up."""
    parts = zip(shared_parts(plan, for_steps), plan.costs, strict=True)
    return [
        (
            epsilon,
            math.nextafter(cost.delta + share, math.inf) if cost.delta and share else cost.delta + share,
            n,
        )
        for (epsilon, share), (cost, n) in parts
    ]


def shared_parts(plan: Plan, for_steps: float) -> list[tuple[float, float]]:
    """The ε of each step, rounded up, and the δ that it needs for that beside its own.

    A step with a pure ε is taken as such. The others share ``for_steps`` of δ evenly, rounded down, and are
    converted: exactly where they are Gaussian, from their curve otherwise, and a sampled one also by
    amplifying the (ε₀, δ₀) of its releases on a full look (:func:`amplified_part`); the least ε counts.
    """
    count = sum(times for cost, times in plan.costs if cost.pure_epsilon is None)
    share = widen(for_steps / count, Direction.DOWN, ulps=1) if count else 0.0
    parts = zip(plan.parts, plan.costs, strict=True)
    return [_as_approximate(step, cost, share) for (step, _), (cost, _) in parts]


def _as_approximate(step: Step, cost: Cost, share: float) -> tuple[float, float]:
    if cost.pure_epsilon is not None:
        return cost.pure_epsilon, 0.0
    if share <= 0.0:
        raise InvalidInput("delta", "above 0 for steps without a pure epsilon", share)
    return min(_to_epsilon(cost, share), amplified_part(step, share)), share


def _to_epsilon(cost: Cost, share: float) -> float:
    """ε at an additive δ of ``share``, of whatever a cost knows."""
    epsilon = float(renyi_epsilon(cost.orders, cost.epsilons, share).min())
    return epsilon if cost.mu is None else min(epsilon, gaussian_epsilon(cost.mu, share))


def amplified_part(step: Step, share: float) -> float:
    """ε of a sampled step at an additive δ of ``share`` beside its own, rounded up; infinite on a full look.

    Statement: if the releases on a full look are (ε₀, δ₀)-DP, outside an event that their own δ covers, the
    step on a sample of rate q is (ln(1 + q(e^ε₀ − 1)), qδ₀)-DP. With δ₀ = share/q rounded down the δ
    is at most ``share``. No order of a Rényi curve comes in, so ε has no floor: with enough noise ε₀ is 0.
    Conditions: Poisson sampling with add-remove, without replacement with replace-one adjacency.
    Source: Wang, lecture 15, Lemma 15.4; Balle, Barthe, Gaboardi 2018, Theorems 8 and 9. The (ε₀, δ₀) of
    Gaussians is exact: Balle and Wang 2018, Theorem 8.
    """
    rate = step.sample.rate
    if rate is None or not 0.0 < rate < 1.0:
        return math.inf
    check_pairing(step.sample.scheme, step.adjacency)
    each = widen(share / rate, Direction.DOWN, ulps=1)
    if not 0.0 < each < 1.0:
        # With δ₀ at 1 anything is (0, δ₀)-DP.
        return math.inf if each <= 0.0 else 0.0
    full = cost_of(replace(step, sample=Sample()), DEFAULT_ORDERS)
    return amplified_epsilon(rate, _to_epsilon(full, each))


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
