"""From pure and approximate DP, through the pair that dominates them: randomized response.

Every ε-DP pair is a post-processing of randomized response with odds e^ε, and every (ε, δ)-DP pair
of randomized response that, with probability δ, gives its input away (Kairouz, Oh, Viswanath 2015).
"""

import math

import numpy as np
from scipy import special

from dpledger.accounting.errors import Unproven
from dpledger.accounting.mechanisms.pure import pure_curve, pure_mu
from dpledger.accounting.numerics import round_up
from dpledger.accounting.rounding import Direction, widen
from dpledger.accounting.solving import bracketed_root, prove_nearby
from dpledger.accounting.validation import Floats, check_delta, check_non_negative, check_open_unit

__all__ = [
    "approximate_delta_at",
    "approximate_epsilon_at",
    "bun_steinke_pure_rho",
    "pure_delta_at",
    "pure_epsilon_at",
    "pure_renyi",
    "pure_rho",
    "pure_within_approximate",
    "pure_within_curve",
    "pure_within_gdp",
    "pure_within_zcdp",
]

_ULPS = 16
_SMALLEST_LOG, _LARGEST_LOG = -744.0, 709.0
"""Their exponentials are floats above zero."""


def pure_delta_at(pure_epsilon: float, epsilon: float) -> float:
    """δ at which an ``pure_epsilon``-DP mechanism is also (ε, δ)-DP, rounded up.

    Statement: δ = (e^ε₀ − e^ε)/(1 + e^ε₀) for ε < ε₀, and 0 from ε₀ on; attained.
    Conditions: either adjacency; ε ≥ 0.
    Source: Kairouz, Oh, Viswanath 2015, Theorem 3.3 at k = 1.
    """
    pure_epsilon = check_non_negative("pure_epsilon", pure_epsilon)
    gap = check_non_negative("epsilon", epsilon) - pure_epsilon
    if gap >= 0.0:
        return 0.0
    return min(1.0, widen(-math.expm1(gap) / (1.0 + math.exp(-pure_epsilon)), Direction.UP, ulps=_ULPS))


def pure_epsilon_at(pure_epsilon: float, delta: float) -> float:
    """ε at which an ``pure_epsilon``-DP mechanism is also (ε, δ)-DP, rounded up.

    Statement: ε = ε₀ + log(1 − δ(1 + e^−ε₀)), at least 0; attained.
    Conditions and source: as in :func:`pure_delta_at`; 0 ≤ δ < 1.
    """
    pure_epsilon, delta = check_non_negative("pure_epsilon", pure_epsilon), check_delta("delta", delta)
    if pure_epsilon == 0.0:
        return 0.0
    lost = delta * (1.0 + math.exp(-pure_epsilon))
    if lost >= 1.0:
        return 0.0
    gain = math.log1p(-lost)
    error = _ULPS * math.ulp(1.0) * (pure_epsilon + lost / (1.0 - lost) - gain)
    return min(pure_epsilon, max(0.0, pure_epsilon + gain + error))


def approximate_delta_at(source_epsilon: float, source_delta: float, epsilon: float) -> float:
    """δ at which an (ε₀, δ₀)-DP mechanism is also (ε, δ)-DP, rounded up, at most 1.

    Statement: δ = δ₀ + (1 − δ₀)(e^ε₀ − e^ε)/(1 + e^ε₀) for ε < ε₀, and δ₀ from ε₀ on; attained.
    Conditions: either adjacency; ε ≥ 0.
    Source: Kairouz, Oh, Viswanath 2015, Theorem 3.3 at k = 1.
    """
    source_delta = check_delta("source_delta", source_delta)
    more = pure_delta_at(source_epsilon, epsilon)
    if more == 0.0:
        return source_delta
    return min(1.0, widen(source_delta + (1.0 - source_delta) * more, Direction.UP, ulps=4))


def approximate_epsilon_at(source_epsilon: float, source_delta: float, delta: float) -> float:
    """ε at which an (ε₀, δ₀)-DP mechanism is also (ε, δ)-DP, rounded up; refused for δ < δ₀.

    Statement: that of :func:`pure_epsilon_at` with (δ − δ₀)/(1 − δ₀) for δ.
    Conditions: δ₀ ≤ δ < 1. Source: as in :func:`approximate_delta_at`.
    """
    source_delta, delta = check_delta("source_delta", source_delta), check_delta("delta", delta)
    if delta < source_delta:
        raise Unproven(f"a guarantee at delta {source_delta!r} implies nothing at a smaller one, {delta!r}")
    spare = widen((delta - source_delta) / (1.0 - source_delta), Direction.DOWN, ulps=4)
    return pure_epsilon_at(source_epsilon, max(0.0, spare))


def pure_rho(epsilon: float) -> float:
    """ρ of any ε-DP mechanism, rounded up.

    Statement: ρ = ε·tanh(ε/2), attained by randomized response as α → 1.
    Conditions: either adjacency.
    Source: Steinke 2024, "Tight RDP & zCDP Bounds from Pure DP"; sharpens Bun and Steinke's ε²/2.
    """
    epsilon = check_non_negative("epsilon", epsilon)
    return round_up(epsilon * math.tanh(epsilon / 2.0), ulps=8) if epsilon else 0.0


def bun_steinke_pure_rho(epsilon: float) -> float:
    """ρ of any ε-DP mechanism by the closed form, rounded up.

    Statement: ρ = ε²/2. Conditions: either adjacency.
    Source: Bun and Steinke 2016, Proposition 1.4; Lee and Kifer 2018, Lemma 3.7.
    """
    epsilon = check_non_negative("epsilon", epsilon)
    return check_non_negative("epsilon²/2", round_up(epsilon * epsilon / 2.0, ulps=2)) if epsilon else 0.0


def pure_renyi(epsilon: float, orders: Floats) -> Floats:
    """The tight curve of any ε-DP mechanism: see ``mechanisms.pure.pure_curve``."""
    epsilon = check_non_negative("epsilon", epsilon)
    return pure_curve(epsilon, orders) if epsilon else np.zeros_like(orders)


def pure_within_approximate(epsilon: float, delta: float) -> float:
    """The largest ε₀ such that every ε₀-DP mechanism is (ε, δ)-DP, rounded down.

    Statement: ε₀ = ε + log(1 + δe^−ε) − log(1 − δ). Source: :func:`pure_delta_at`, inverted.
    """
    epsilon, delta = check_non_negative("epsilon", epsilon), check_open_unit("delta", delta)
    found = epsilon + math.log1p(delta * math.exp(-epsilon)) - math.log1p(-delta)
    return prove_nearby(found, lambda pure: pure_delta_at(pure, epsilon) <= delta, Direction.DOWN)


def pure_within_zcdp(rho: float) -> float:
    """The largest ε such that every ε-DP mechanism is ρ-zCDP, rounded down: inverts :func:`pure_rho`."""
    rho = check_non_negative("rho", rho)
    if rho == 0.0:
        return 0.0
    low = max(rho, math.sqrt(2.0 * rho))
    found = bracketed_root(lambda epsilon: epsilon * math.tanh(epsilon / 2.0) - rho, low, 2.0 * low)
    return prove_nearby(found, lambda epsilon: pure_rho(epsilon) <= rho, Direction.DOWN)


def pure_within_gdp(mu: float) -> float:
    """The largest ε such that every ε-DP mechanism is μ-GDP, rounded down.

    Statement: ε = log(Φ(μ/2)/Φ(−μ/2)). Source: Dong, Roth, Su 2022, inverted.
    """
    mu = check_non_negative("mu", mu)
    if mu == 0.0:
        return 0.0
    if mu < 1.0:
        found = 2.0 * math.atanh(math.erf(mu / math.sqrt(8.0)))
    else:
        found = float(special.log_ndtr(mu / 2.0) - special.log_ndtr(-mu / 2.0))
    found = check_non_negative("epsilon within mu", found)
    return prove_nearby(found, lambda epsilon: pure_mu(epsilon) <= mu, Direction.DOWN)


def pure_within_curve(orders: Floats, epsilons: Floats) -> float:
    """The largest ε such that every ε-DP mechanism stays within a curve, rounded down.

    Source: ``mechanisms.pure.pure_curve``, inverted.
    """
    least = float(epsilons.min())
    if least == 0.0:
        return 0.0

    def spare(log_epsilon: float) -> float:
        return float((np.log(epsilons) - np.log(pure_curve(math.exp(log_epsilon), orders))).min())

    low = min(max(math.log(least) - 1.0, _SMALLEST_LOG), _LARGEST_LOG - 1.0)
    high = low + 1.0
    while spare(high) > 0.0 and high < _LARGEST_LOG:
        low, high = high, min(high + 1.0, _LARGEST_LOG)
    found = math.exp(bracketed_root(spare, low, high))
    return prove_nearby(
        found, lambda epsilon: bool((pure_curve(epsilon, orders) <= epsilons).all()), Direction.DOWN
    )
