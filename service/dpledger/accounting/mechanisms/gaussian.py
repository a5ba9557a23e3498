"""Gaussian noise, continuous and discrete."""

import functools
import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

import numpy as np

from dpledger.accounting.cost import Cost
from dpledger.accounting.errors import InvalidInput, Unproven
from dpledger.accounting.exact import as_given
from dpledger.accounting.mechanisms.base import STANDARD_DEVIATION, Mechanism, NoiseField
from dpledger.accounting.numerics import ratio_above
from dpledger.accounting.pld.cells import ROUNDING
from dpledger.accounting.pld.items import LARGEST_LOSS, Items
from dpledger.accounting.pld.pairs import AtomicPair
from dpledger.accounting.rounding import Direction, widen
from dpledger.accounting.sampling import Adjacency
from dpledger.accounting.validation import Floats, check_non_negative, check_positive

__all__ = ["DiscreteGaussian", "Gaussian"]

_MOST_ATOMS = 1 << 20


@dataclass(frozen=True)
class Gaussian(Mechanism):
    """N(0, noise_std²) added to each coordinate of a query of L2 sensitivity ``sensitivity``.

    Statement: ε(α) = α·Δ²/(2σ²) exactly, at every α > 1; ρ = Δ²/(2σ²); μ = Δ/σ.
    Conditions: either adjacency, Δ under that adjacency.
    Source: Mironov 2017, Proposition 7; Bun and Steinke 2016, Proposition 1.6; Dong, Roth, Su 2022.
    """

    kind: ClassVar[str] = "gaussian"
    expensive: ClassVar[bool] = False
    noise_field: ClassVar[NoiseField | None] = STANDARD_DEVIATION
    sensitivity: float
    noise_std: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "sensitivity", check_non_negative("sensitivity", self.sensitivity))
        object.__setattr__(self, "noise_std", check_positive("noise_std", self.noise_std))

    @property
    def gaussian_mu(self) -> float:
        """Δ/σ, rounded up."""
        return ratio_above("sensitivity / noise_std", self.sensitivity, self.noise_std)

    @property
    def exact_mu_squared(self) -> Fraction:
        """(Δ/σ)²."""
        return _ratio_squared(self.sensitivity, self.noise_std)

    def cost(self, orders: Floats, adjacency: Adjacency) -> Cost:
        return gaussian_cost(self.gaussian_mu, orders)


@dataclass(frozen=True)
class DiscreteGaussian(Mechanism):
    """Discrete Gaussian noise of scale ``noise_std`` added to an integer-valued query.

    Statement: ρ-zCDP with ρ = Δ²/(2σ²), so ε(α) = αρ at every α > 1. It is not Gaussian DP and is
    not amplified as a Gaussian.
    Conditions: either adjacency; integer-valued query; Δ its L2 sensitivity.
    Source: Canonne, Kamath, Steinke 2020, Theorem 4 and Proposition 5 (multivariate: Theorem 14).
    """

    kind: ClassVar[str] = "discrete-gaussian"
    expensive: ClassVar[bool] = False
    noise_field: ClassVar[NoiseField | None] = STANDARD_DEVIATION
    sensitivity: float
    noise_std: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "sensitivity", check_non_negative("sensitivity", self.sensitivity))
        object.__setattr__(self, "noise_std", check_positive("noise_std", self.noise_std))

    @property
    def exact_rho(self) -> Fraction:
        """Δ²/(2σ²)."""
        return _ratio_squared(self.sensitivity, self.noise_std) / 2

    def cost(self, orders: Floats, adjacency: Adjacency) -> Cost:
        mu = ratio_above("sensitivity / noise_std", self.sensitivity, self.noise_std)
        return replace(gaussian_cost(mu, orders), mu=0.0 if mu == 0.0 else None)

    def dominating_pairs(self, adjacency: Adjacency) -> Items:
        """One coordinate moves by 1, or up to three do.

        Statement: an integer-valued query whose L2 sensitivity is below 2 moves at most ⌊Δ²⌋ ≤ 3 coordinates,
        by 1 each; noise is independent over coordinates, so the product of as many pairs of shift 1
        dominates.
        Conditions: Δ < 2 (else a coordinate may move by 2, and no single pair is the worst: refused).
        Source: log-concavity (a larger shift is worse); Canonne, Kamath, Steinke 2020
        for the mechanism.
        """
        if self.sensitivity >= 2.0:
            raise Unproven("discrete Gaussian noise has a dominating pair here for sensitivities below 2")
        moved = math.floor(widen(self.sensitivity**2, Direction.UP, ulps=2))
        return ((_unit_shift(self.noise_std), min(moved, 3)),) if moved else ()


@functools.lru_cache(maxsize=64)
def _unit_shift(noise_std: float) -> AtomicPair:
    """The discrete Gaussian against itself moved by 1: losses (2x − 1)/(2σ²) at x under the moved law."""
    reach = math.ceil(38.0 * noise_std) + 2
    if 2 * reach > _MOST_ATOMS:
        raise Unproven(f"discrete Gaussian noise beyond {_MOST_ATOMS // 80} has no dominating pair here")
    x = np.arange(-reach, reach + 1.0)
    weights = np.exp(-0.5 * np.square(x / noise_std))
    masses = weights / weights.sum()
    variance = noise_std * noise_std
    losses = (x[1:] - 0.5) / variance
    if losses[-1] > LARGEST_LOSS:
        least = 0.25
        raise InvalidInput("noise_std", f"at least {least:g} for privacy-loss distributions", noise_std)
    error = ROUNDING * (1600.0 + x.size)
    cut = (float(masses[-1]), float(masses[0]))
    loss_error = 8.0 * ROUNDING * float(losses[-1])
    return AtomicPair(losses, masses[:-1], masses[1:], infinite=cut, mass_error=error, loss_error=loss_error)


def _ratio_squared(sensitivity: float, noise_std: float) -> Fraction:
    return (as_given(sensitivity) / as_given(noise_std)) ** 2


def gaussian_cost(mu: float, orders: Floats) -> Cost:
    """Cost of a Gaussian with sensitivity over noise ``mu``."""
    if mu == 0.0:
        return Cost.zero(orders)
    rho = math.nextafter(mu * mu / 2.0, math.inf)
    with np.errstate(over="ignore", invalid="ignore"):
        return Cost(orders, widen(orders * rho, Direction.UP, ulps=1), rho=rho, mu=mu)
