"""Pure DP: the tight curve of randomized response, and what else a pure ε gives."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy import special

from dpledger.accounting.cost import Cost
from dpledger.accounting.mechanisms.base import Mechanism, NoiseField
from dpledger.accounting.numerics import round_up
from dpledger.accounting.sampling import Adjacency
from dpledger.accounting.validation import Floats, check_non_negative

__all__ = ["RandomizedResponse", "mu_of_error", "pure_cost", "pure_curve", "pure_mu"]

_LARGE_EXPONENT = 600.0
"""Beyond this e^(−x) is far below one unit in the last place and e^x is close to overflow."""

_CURVE_ULPS = 32
"""Some nine roundings of at most 3 units each, none amplified: only positive terms are combined."""


@dataclass(frozen=True)
class RandomizedResponse(Mechanism):
    """A bit reported truly with probability e^ε/(1 + e^ε), and flipped otherwise.

    Statement: ε-DP; the exact curve, ρ = ε·tanh(ε/2) and μ of :func:`pure_cost`.
    Conditions: either adjacency; ``epsilon`` under it; any answer that is ε-DP is covered.
    Source: Warner 1965; Mironov 2017, Proposition 5.
    """

    kind: ClassVar[str] = "randomized-response"
    expensive: ClassVar[bool] = False
    noise_field: ClassVar[NoiseField | None] = None
    epsilon: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_non_negative("epsilon", self.epsilon))

    @property
    def private_claim(self) -> tuple[float, float]:
        """ε, and no δ."""
        return self.epsilon, 0.0

    def cost(self, orders: Floats, adjacency: Adjacency) -> Cost:
        return pure_cost(self.epsilon, orders)


def pure_cost(epsilon: float, orders: Floats) -> Cost:
    """Cost of any ε-DP release.

    Statement: the curve of :func:`pure_curve`; ρ = ε·tanh(ε/2); μ of :func:`pure_mu`; pure ε. Each is
    attained by randomized response, so none can be smaller.
    Conditions: either adjacency; every α > 1.
    Source: Kairouz, Oh, Viswanath 2015 (every ε-DP pair is a post-processing of the pair of randomized
    response). For ρ, which refines Bun and Steinke 2016, Proposition 3.3: (α−1)ε(α) is
    log cosh(ε√s) − log cosh(ε/2) with s = (α − 1/2)²; cosh(ε√s) is an entire function of s of order 1/2
    with negative zeros only, so its logarithm is concave, and the slope ε(α)/α from s = 1/4, where it
    vanishes, is largest at α = 1, where it is the Kullback-Leibler divergence ε·tanh(ε/2).
    """
    if check_non_negative("epsilon", epsilon) == 0.0:
        return Cost.zero(orders)
    rho = round_up(epsilon * math.tanh(epsilon / 2.0), ulps=8)
    return Cost(orders, pure_curve(epsilon, orders), rho=rho, mu=pure_mu(epsilon), pure_epsilon=epsilon)


def pure_curve(epsilon: float, orders: Floats) -> Floats:
    """The Rényi curve of randomized response with odds e^ε, for ε > 0.

    Statement: ε(α) = log(p^α (1−p)^(1−α) + (1−p)^α p^(1−α)) / (α−1) with p = e^ε/(1 + e^ε), computed as
    log(1 + (e^((α−1)ε) − 1)(1 − e^(−αε)) / (1 + e^(−ε))) / (α−1), where nothing cancels.
    Conditions: every α > 1; both directions are equal.
    Source: Mironov 2017, Proposition 5; tight for every ε-DP pair by Kairouz, Oh, Viswanath 2015.
    """
    excess = orders - 1.0
    with np.errstate(over="ignore"):
        exponent = excess * epsilon
        decay = np.expm1(-orders * epsilon)
    ratio = np.expm1(np.minimum(exponent, _LARGE_EXPONENT)) * -decay / (1.0 + math.exp(-epsilon))
    near = np.log1p(ratio) / excess
    far = epsilon - math.log1p(math.exp(-epsilon)) / excess
    curve = round_up(np.where(exponent < _LARGE_EXPONENT, near, far), ulps=_CURVE_ULPS)
    return np.minimum(curve, epsilon)


def pure_mu(epsilon: float) -> float:
    """The GDP parameter of any ε-DP release, for ε > 0.

    Statement: μ = −2Φ⁻¹(1/(1 + e^ε)).
    Conditions: either adjacency.
    Source: with the trade-off functions of Dong, Roth, Su 2022: that of ε-DP is linear
    from (0, 1) to (p, p) and on to (1, 0) with p = 1/(1 + e^ε), that of μ-GDP is convex through the same
    three points when Φ(−μ/2) = p, hence nowhere above.
    """
    return mu_of_error(math.tanh(epsilon / 2.0), -epsilon - math.log1p(math.exp(-epsilon)))


def mu_of_error(advantage: float, log_error: float) -> float:
    """μ = −2Φ⁻¹(error), rounded up: N(0, 1) and N(μ, 1) are mistaken equally often at the midpoint.

    Parameters
    ----------
    advantage
        1 − 2·error, in (0, 1): exact for errors close to one half.
    log_error
        log(error): exact for small errors.
    """
    if advantage < 0.5:
        return round_up(2.0 * math.sqrt(2.0) * float(special.erfinv(advantage)), ulps=16)
    quantile = float(special.ndtri_exp(log_error))
    hazard = math.sqrt(2.0 / math.pi) / float(special.erfcx(-quantile / math.sqrt(2.0)))
    # ndtri_exp is up to 3,000 units off in the far tail; a Newton step on log Φ, which is concave and
    # therefore left on the side of the larger μ, mends it.
    quantile -= (float(special.log_ndtr(quantile)) - log_error) / hazard
    return round_up(-2.0 * quantile, ulps=16)
