"""Gaussian noise, continuous and discrete."""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

import numpy as np

from dpledger.accounting.cost import Cost
from dpledger.accounting.exact import as_given
from dpledger.accounting.mechanisms.base import Mechanism
from dpledger.accounting.numerics import ratio_above
from dpledger.accounting.rounding import Direction, widen
from dpledger.accounting.sampling import Adjacency
from dpledger.accounting.validation import Floats, check_non_negative, check_positive

__all__ = ["DiscreteGaussian", "Gaussian"]


@dataclass(frozen=True)
class Gaussian(Mechanism):
    """N(0, noise_std²) added to each coordinate of a query of L2 sensitivity ``sensitivity``.

    Statement: ε(α) = α·Δ²/(2σ²) exactly, at every α > 1; ρ = Δ²/(2σ²); μ = Δ/σ.
    Conditions: either adjacency, Δ under that adjacency.
    Source: Mironov 2017, Proposition 7; Bun and Steinke 2016, Proposition 1.6; Dong, Roth, Su 2022.
    """

    kind: ClassVar[str] = "gaussian"
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


def _ratio_squared(sensitivity: float, noise_std: float) -> Fraction:
    return (as_given(sensitivity) / as_given(noise_std)) ** 2


def gaussian_cost(mu: float, orders: Floats) -> Cost:
    """Cost of a Gaussian with sensitivity over noise ``mu``."""
    if mu == 0.0:
        return Cost.zero(orders)
    rho = math.nextafter(mu * mu / 2.0, math.inf)
    with np.errstate(over="ignore", invalid="ignore"):
        return Cost(orders, widen(orders * rho, Direction.UP, ulps=1), rho=rho, mu=mu)
