"""Costs that the caller declares: they are taken at their word and marked as such in the ledger."""

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from dpledger.accounting.cost import Cost
from dpledger.accounting.errors import InvalidInput, Unproven
from dpledger.accounting.exact import as_given
from dpledger.accounting.mechanisms.base import Mechanism, NoiseField
from dpledger.accounting.mechanisms.gaussian import gaussian_cost
from dpledger.accounting.mechanisms.pure import pure_cost
from dpledger.accounting.pld.items import Items
from dpledger.accounting.rounding import Direction, widen
from dpledger.accounting.sampling import Adjacency
from dpledger.accounting.validation import (
    Floats,
    check_delta,
    check_non_negative,
    check_orders,
    check_vector,
)

__all__ = ["GDP", "RDP", "ZCDP", "Approximate", "Pure"]


@dataclass(frozen=True)
class Pure(Mechanism):
    """A release declared to be ε-DP.

    Statement: the cost of :func:`~dpledger.accounting.mechanisms.pure.pure_cost`.
    Conditions: ``epsilon`` holds under the dataset's adjacency.
    Source: Kairouz, Oh, Viswanath 2015.
    """

    kind: ClassVar[str] = "pure"
    expensive: ClassVar[bool] = False
    noise_field: ClassVar[NoiseField | None] = None
    declared: ClassVar[bool] = True
    epsilon: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_non_negative("epsilon", self.epsilon))

    @property
    def exact_pure_epsilon(self) -> Fraction:
        """ε as given."""
        return as_given(self.epsilon)

    @property
    def private_claim(self) -> tuple[float, float]:
        """ε, and no δ."""
        return self.epsilon, 0.0

    def cost(self, orders: Floats, adjacency: Adjacency) -> Cost:
        return pure_cost(self.epsilon, orders)


@dataclass(frozen=True)
class Approximate(Mechanism):
    """A release declared to be (ε, δ)-DP.

    Statement: it is a post-processing of a mechanism that reveals everything with probability δ and is
    randomized response with e^ε otherwise: the cost of ε-DP, with δ beside the curve.
    Conditions: ``epsilon`` and ``delta`` hold together under the dataset's adjacency.
    Source: Kairouz, Oh, Viswanath 2015; Bun and Steinke 2016, section 8.
    """

    kind: ClassVar[str] = "approximate"
    expensive: ClassVar[bool] = False
    noise_field: ClassVar[NoiseField | None] = None
    declared: ClassVar[bool] = True
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_non_negative("epsilon", self.epsilon))
        object.__setattr__(self, "delta", check_delta("delta", self.delta))

    @property
    def exact_pure_epsilon(self) -> Fraction:
        """ε as given."""
        return as_given(self.epsilon)

    @property
    def private_claim(self) -> tuple[float, float]:
        """ε and δ."""
        return self.epsilon, self.delta

    def cost(self, orders: Floats, adjacency: Adjacency) -> Cost:
        return replace(pure_cost(self.epsilon, orders), delta=self.delta)


@dataclass(frozen=True)
class ZCDP(Mechanism):
    """A release declared to be ρ-zCDP.

    Statement: ε(α) = αρ at every α > 1. There is no pure ε and no μ.
    Conditions: ``rho`` holds under the dataset's adjacency.
    Source: Bun and Steinke 2016, Definition 1.1.
    """

    kind: ClassVar[str] = "zcdp"
    expensive: ClassVar[bool] = False
    noise_field: ClassVar[NoiseField | None] = None
    declared: ClassVar[bool] = True
    rho: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "rho", check_non_negative("rho", self.rho))

    @property
    def exact_rho(self) -> Fraction:
        """ρ as given."""
        return as_given(self.rho)

    def cost(self, orders: Floats, adjacency: Adjacency) -> Cost:
        if self.rho == 0.0:
            return Cost.zero(orders)
        with np.errstate(over="ignore"):
            return Cost(orders, widen(orders * self.rho, Direction.UP, ulps=1), rho=self.rho)

    def dominating_pairs(self, adjacency: Adjacency) -> Items:
        """Refused: a ρ bounds no hockey-stick divergence at all γ."""
        raise Unproven(f"a declared {self.kind} cost has no dominating pair")


@dataclass(frozen=True)
class GDP(Mechanism):
    """A release declared to be μ-GDP.

    Statement: it is a post-processing of N(0, 1) against N(μ, 1): ε(α) = αμ²/2, ρ = μ²/2, μ.
    It is not amplified as a Gaussian.
    Conditions: ``mu`` holds under the dataset's adjacency.
    Source: Dong, Roth, Su 2022, Theorem 2.10 (Blackwell); Mironov 2017, Proposition 7.
    """

    kind: ClassVar[str] = "gdp"
    expensive: ClassVar[bool] = False
    noise_field: ClassVar[NoiseField | None] = None
    declared: ClassVar[bool] = True
    mu: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "mu", check_non_negative("mu", self.mu))

    @property
    def exact_mu_squared(self) -> Fraction:
        """μ² as given."""
        return as_given(self.mu) ** 2

    def cost(self, orders: Floats, adjacency: Adjacency) -> Cost:
        return gaussian_cost(self.mu, orders)

    @property
    def dominating_mu(self) -> float:
        """μ as declared."""
        return self.mu


@dataclass(frozen=True)
class RDP(Mechanism):
    """A release declared by its Rényi curve at some orders.

    Statement: at a declared order the declared ε, or that of a later order if it is smaller; between two
    of them the chord of (α−1)ε(α); below the first its ε. Beyond the last order nothing is known.
    Conditions: the curve holds in both directions under the dataset's adjacency.
    Source: van Erven and Harremoës 2014, Theorem 3 (ε(α) does not fall with α) and Corollary 2
    ((α−1)ε(α) is convex).
    """

    kind: ClassVar[str] = "rdp"
    expensive: ClassVar[bool] = False
    noise_field: ClassVar[NoiseField | None] = None
    declared: ClassVar[bool] = True
    orders: tuple[float, ...]
    epsilons: tuple[float, ...]

    def __post_init__(self) -> None:
        orders, epsilons = check_orders(self.orders), check_vector("epsilons", self.epsilons)
        if epsilons.size != orders.size:
            raise InvalidInput("epsilons", f"{orders.size} numbers, one per order", epsilons.size)
        if (epsilons < 0.0).any():
            raise InvalidInput("epsilons", "at least 0 at every order", self.epsilons)
        object.__setattr__(self, "orders", _plain(orders))
        object.__setattr__(self, "epsilons", _plain(np.abs(epsilons)))

    def exact_epsilon(self, order: float, as_read: Fraction) -> Fraction | None:
        """At a declared order the least ε declared there or later, as given."""
        if order not in self.orders:
            return None
        return as_given(min(self.epsilons[self.orders.index(order) :]))

    def cost(self, orders: Floats, adjacency: Adjacency) -> Cost:
        largest = self.orders[-1]
        if orders[-1] > largest:
            raise Unproven(f"the declared curve ends at order {largest:g}, asked for order {orders[-1]:g}")
        return Cost(orders, self._chords(orders))

    def dominating_pairs(self, adjacency: Adjacency) -> Items:
        """Refused: a Rényi curve bounds no hockey-stick divergence at all γ."""
        raise Unproven(f"a declared {self.kind} cost has no dominating pair")

    def _chords(self, orders: Floats) -> Floats:
        """The chord of (α−1)ε(α), written as an average of the ε at its two ends.

        An end at α = 1 with the first ε makes the curve constant below the first order.
        """
        known = np.array((1.0, *self.orders))
        falling = np.minimum.accumulate(np.array((*self.epsilons[::-1], self.epsilons[0])))
        epsilons = falling[::-1]
        after = np.searchsorted(known, orders)
        low, high = known[after - 1], known[after]
        share = (orders - low) * (high - 1.0) / ((high - low) * (orders - 1.0))
        chord = epsilons[after - 1] + share * (epsilons[after] - epsilons[after - 1])
        bound: Floats = np.minimum(widen(chord, Direction.UP, ulps=8), epsilons[after])
        return bound


def _plain(values: Any) -> tuple[float, ...]:
    return tuple(float(value) for value in values)
