"""From a Rényi curve to (ε, δ), and back to the curve that an (ε, δ) allows.

Every order gives a valid bound on its own, so the minimum over the orders at hand is valid whatever
the grid. An additive δ₀ carried beside the curve is taken from the target: δ-approximate RDP gives
(ε, δ₀ + δ₁)-DP when the curve gives (ε, δ₁)-DP (Bun and Steinke 2016, Lemma 8.8).
"""

import math

import numpy as np

from dpledger.accounting.cost import Cost
from dpledger.accounting.errors import InvalidInput
from dpledger.accounting.numerics import exp_above
from dpledger.accounting.rounding import Direction, widen
from dpledger.accounting.validation import Floats, check_non_negative, check_open_unit

__all__ = [
    "LARGEST_EPSILON",
    "curve_at_orders",
    "delta_at",
    "delta_beside",
    "epsilon_at",
    "mironov_budget",
    "mironov_delta",
    "mironov_epsilon",
    "renyi_budget",
    "renyi_delta",
    "renyi_epsilon",
]

LARGEST_EPSILON = 1e12
"""δ falls with ε, so at a larger ε it is bounded by δ here, where no product overflows."""

_EPS = 2.0**-52
_TERM_ULPS = 16.0
"""Each formula adds three terms, each computed with at most three operations of at most 4 units."""


def epsilon_at(cost: Cost, delta: float) -> tuple[float, float]:
    """ε of a cost's curve at δ, rounded up, and the order that gives it.

    Statement: ε = min over α of ε(α) + log(1 − 1/α) − (log δ + log α)/(α − 1), at least 0.
    Conditions: 0 < δ < 1, above the cost's additive δ; a fixed plan (not an adaptive filter).
    Source: Balle, Barthe, Gaboardi, Hsu, Sato 2020, Theorem 21; Canonne, Kamath, Steinke 2020,
    Proposition 12.
    """
    rest = delta_beside(cost.delta, delta)
    values = renyi_epsilon(cost.orders, cost.epsilons, rest)
    best = int(values.argmin())
    return float(values[best]), float(cost.orders[best])


def delta_at(cost: Cost, epsilon: float) -> float:
    """δ of a cost's curve at ε ≥ 0, rounded up and at most 1; see :func:`epsilon_at`."""
    at = min(check_non_negative("epsilon", epsilon), LARGEST_EPSILON)
    values = renyi_delta(cost.orders, cost.epsilons, at)
    least = float(values.min())
    return min(1.0, least if cost.delta == 0.0 else math.nextafter(least + cost.delta, math.inf))


def delta_beside(additive: float, delta: float) -> float:
    """What of a target δ is left beside an additive δ₀, rounded down; refused if nothing is."""
    delta = check_open_unit("delta", delta)
    if additive == 0.0:
        return delta
    rest = math.nextafter(delta - additive, -math.inf)
    if rest <= 0.0:
        raise InvalidInput("delta", f"above the additive delta {additive!r} carried beside the curve", delta)
    return rest


def renyi_epsilon(orders: Floats, epsilons: Floats, delta: float) -> Floats:
    """ε at δ from each order alone, rounded up, at least 0; statement as in :func:`epsilon_at`."""
    excess = orders - 1.0
    share = np.log1p(1.0 / excess)
    tail = (math.log(delta) + np.log1p(excess)) / excess
    magnitude = epsilons + share + (np.log1p(excess) - math.log(delta)) / excess
    return np.maximum(epsilons - share - tail + _TERM_ULPS * _EPS * magnitude, 0.0)


def renyi_delta(orders: Floats, epsilons: Floats, epsilon: float) -> Floats:
    """δ at ε from each order alone, rounded up, at most 1.

    Statement: δ = exp((α−1)(ε(α) − ε)) · (1/α)(1 − 1/α)^(α−1).
    Conditions and source: as in :func:`epsilon_at`.
    """
    excess = orders - 1.0
    share = excess * np.log1p(1.0 / excess)
    log_order = np.log1p(excess)
    with np.errstate(over="ignore"):
        magnitude = excess * (epsilons + epsilon) + share + log_order + 1.0
        exponent = excess * (epsilons - epsilon) - share - log_order + _TERM_ULPS * _EPS * magnitude
    return exp_above(exponent)


def mironov_epsilon(orders: Floats, epsilons: Floats, delta: float) -> Floats:
    """ε at δ from each order alone by Mironov's conversion, rounded up.

    Statement: ε = ε(α) + log(1/δ)/(α − 1).
    Conditions: 0 < δ < 1.
    Source: Mironov 2017, Proposition 3; the moments accountant's tail bound (Abadi et al. 2016,
    Theorem 2) is the same.
    """
    return widen(epsilons - math.log(delta) / (orders - 1.0), Direction.UP, ulps=8)


def mironov_delta(orders: Floats, epsilons: Floats, epsilon: float) -> Floats:
    """δ = exp((α−1)(ε(α) − ε)) from each order alone, rounded up, at most 1; Mironov 2017."""
    excess = orders - 1.0
    with np.errstate(over="ignore"):
        magnitude = excess * (epsilons + epsilon) + 1.0
        exponent = excess * (epsilons - epsilon) + _TERM_ULPS * _EPS * magnitude
    return exp_above(exponent)


def renyi_budget(orders: Floats, epsilon: float, log_delta: Floats | float) -> Floats:
    """The largest curve whose conversion at each order alone is within (ε, δ), rounded down.

    Statement: B(α) = ε − log(1 − 1/α) + (log δ + log α)/(α − 1); negative where the order allows
    nothing. ``log_delta`` may differ by order (the weighted filter's log(w_α δ)).
    Conditions and source: the inverse of :func:`epsilon_at`.
    """
    excess = orders - 1.0
    share = np.log1p(1.0 / excess)
    tail = (log_delta + np.log1p(excess)) / excess
    magnitude = epsilon + share + (np.log1p(excess) + np.abs(log_delta)) / excess
    budget: Floats = epsilon + share + tail - _TERM_ULPS * _EPS * magnitude
    return budget


def mironov_budget(orders: Floats, epsilon: float, log_delta: float) -> Floats:
    """B(α) = ε − log(1/δ)/(α − 1), rounded down: the inverse of :func:`mironov_epsilon`."""
    tail = log_delta / (orders - 1.0)
    budget: Floats = epsilon + tail - _TERM_ULPS * _EPS * (epsilon - tail)
    return budget


def curve_at_orders(orders: Floats, epsilons: Floats, wanted: Floats) -> Floats:
    """A curve at orders between (or below) those where it is known, rounded up.

    Statement: (α−1)·ε(α) is convex in α and 0 at α = 1, so its chord is an upper bound.
    Conditions: no wanted order above the last known one.
    Source: van Erven and Harremoës 2014, Corollary 2.
    """
    if wanted[-1] > orders[-1]:
        raise InvalidInput("orders", f"at most the curve's last order {orders[-1]!r}", float(wanted[-1]))
    monotone = np.minimum.accumulate(epsilons[::-1])[::-1]  # ε(α) never falls, so later bounds count
    excess = np.concatenate(([0.0], orders - 1.0))
    with np.errstate(over="ignore", invalid="ignore"):
        moments = np.concatenate(([0.0], (orders - 1.0) * monotone))
        chord = widen(np.interp(wanted - 1.0, excess, moments) / (wanted - 1.0), Direction.UP, ulps=16)
    # fmin passes over a chord that overflowed: the next known value is a bound by itself.
    return np.fmin(chord, monotone[np.searchsorted(orders, wanted)])
