"""Laplace noise."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpledger.accounting.cost import Cost
from dpledger.accounting.mechanisms.base import SCALE, Mechanism, NoiseField
from dpledger.accounting.mechanisms.pure import mu_of_error
from dpledger.accounting.numerics import exp_minus_line, ratio_above, round_up
from dpledger.accounting.pld.items import Items, laplace_items
from dpledger.accounting.rounding import Direction, widen
from dpledger.accounting.sampling import Adjacency
from dpledger.accounting.validation import Floats, check_non_negative, check_positive

__all__ = ["Laplace", "laplace_cost", "laplace_curve"]

_LARGE_EXPONENT = 600.0
_CURVE_ULPS = 64


@dataclass(frozen=True)
class Laplace(Mechanism):
    """Laplace noise of scale ``scale`` added to each coordinate of a query of L1 sensitivity ``sensitivity``.

    Statement: with d = Δ/b, the cost of :func:`laplace_cost`.
    Conditions: either adjacency, Δ under that adjacency; noise independent over coordinates.
    Source: Dwork, McSherry, Nissim, Smith 2006; Mironov 2017, Proposition 6.
    """

    kind: ClassVar[str] = "laplace"
    expensive: ClassVar[bool] = False
    noise_field: ClassVar[NoiseField | None] = SCALE
    sensitivity: float
    scale: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "sensitivity", check_non_negative("sensitivity", self.sensitivity))
        object.__setattr__(self, "scale", check_positive("scale", self.scale))

    def cost(self, orders: Floats, adjacency: Adjacency) -> Cost:
        return laplace_cost(self.laplace_shift, orders)

    def dominating_pairs(self, adjacency: Adjacency) -> Items:
        """The pair of Laplace noise under a shift of Δ/b."""
        return laplace_items(self.laplace_shift)

    def dominates_alike(self, other: "Laplace", adjacency: Adjacency) -> bool:
        """The other's shift over its scale is at most its own: number by number, or as quotients.

        The noise is log-concave: the best tests are half-lines, and a larger shift is worse. Quotients are
        rounded against the claim.
        """
        if other.sensitivity <= self.sensitivity and other.scale >= self.scale:
            return True
        above = widen(other.sensitivity / other.scale, Direction.UP, ulps=1)
        return above <= widen(self.sensitivity / self.scale, Direction.DOWN, ulps=1)

    @property
    def laplace_shift(self) -> float:
        return ratio_above("sensitivity / scale", self.sensitivity, self.scale)


def laplace_cost(shift: float, orders: Floats) -> Cost:
    """Cost of Laplace noise under a shift of ``shift`` scales in L1.

    Statement: the curve of :func:`laplace_curve`; pure ε = d; ρ = d + e^(−d) − 1; μ = −2Φ⁻¹(e^(−d/2)/2).
    In one dimension each is attained.
    Conditions: either adjacency; every α > 1; any number of coordinates, for each of curve, ρ and μ² is
    superadditive in d, so that a shift of one coordinate by all of d is the worst.
    Source: for ρ, Harrison and Manurangsi 2026 (FORC), "Exact zCDP characterizations". Another proof:
    (α−1)ε(α) = log F(s) − d/2 with s = (α − 1/2)² and F(s) = cosh(d√s) + sinh(d√s)/(2√s), an entire
    function of order 1/2; its zeros s = −λ are the eigenvalues λ of −u″ = λu, u(0) = 0,
    u′(d) + u(d)/2 = 0, all real and positive; so log F is concave, and ε(α)/α, its slope from s = 1/4, is
    largest at α = 1. For μ: the trade-off function of Dong, Roth, Su 2022 is the hyperbola xy = e^(−d)/4
    between its tangents 1 − e^d x and their mirror image. That of μ-GDP, x = Φ(−s) and y = Φ(s − μ), has
    xy ≤ Φ(−μ/2)² = e^(−d)/4 because Φ is log-concave; beyond the point of tangency
    (1 − y)/x = Φ(μ − s)/Φ(−s) grows with s, for the same reason, from at least e^d. Coordinates compose in
    squares, and μ²/d does not fall with d: with h the hazard rate of N(0, 1), d = 2∫h over [0, μ/2] and
    h(u)/u falls, because h(u) < u + 1/u.
    """
    if check_non_negative("shift", shift) == 0.0:
        return Cost.zero(orders)
    return Cost(
        orders,
        laplace_curve(shift, orders),
        rho=round_up(float(exp_minus_line(np.array(-shift))), ulps=16),
        mu=mu_of_error(-math.expm1(-shift / 2.0), -shift / 2.0 - math.log(2.0)),
        pure_epsilon=shift,
    )


def laplace_curve(shift: float | Floats, orders: Floats) -> Floats:
    """The Rényi curve of Laplace noise under a shift of d ≥ 0 scales, one for all orders or one each.

    Statement: ε(α) = log(α/(2α−1) e^((α−1)d) + (α−1)/(2α−1) e^(−αd)) / (α−1), computed as
    log(1 + (α·g((α−1)d) + (α−1)·g(−αd)) / (2α−1)) / (α−1) with g(x) = e^x − 1 − x ≥ 0, where the linear
    terms have cancelled on paper.
    Conditions: every α > 1; both directions are equal. In several dimensions d is the L1 shift over the
    scale: ε(α) is convex in d and 0 at d = 0, hence superadditive.
    Source: Mironov 2017, Proposition 6.
    """
    excess = orders - 1.0
    with np.errstate(over="ignore"):
        exponent = excess * shift
        falling = exp_minus_line(-orders * shift)
        rising = exp_minus_line(np.minimum(exponent, _LARGE_EXPONENT))
        near = np.log1p((orders * rising + excess * falling) / (orders + excess)) / excess
        far = shift - np.log1p(excess / orders) / excess
    curve = round_up(np.where(exponent < _LARGE_EXPONENT, near, far), ulps=_CURVE_ULPS)
    return np.minimum(curve, shift)
