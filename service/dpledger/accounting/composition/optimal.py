"""Kairouz, Oh and Viswanath: the optimal composition of (ε, δ)-DP, and their closed form.

For plans fixed in advance: the number of releases and each one's (ε, δ) may not depend on earlier
outputs (what is asked in each round may).
"""

import math
from collections.abc import Sequence

import numpy as np
from scipy import special

from dpledger.accounting.errors import InvalidInput
from dpledger.accounting.numerics import exact_sum, exp_above, log_binomials, root_of_squares
from dpledger.accounting.rounding import Direction, widen
from dpledger.accounting.solving import bracketed_root, prove_nearby
from dpledger.accounting.validation import (
    Floats,
    check_count,
    check_delta,
    check_non_negative,
    check_open_unit,
    check_positive,
)

__all__ = ["MOST_OPTIMAL", "kov_closed_epsilon", "kov_optimal_delta", "kov_optimal_epsilon"]

MOST_OPTIMAL = 100_000
"""The exact sum has one term a release; beyond this the closed form or a curve is the tool."""

_EPS = 2.0**-52
_LARGEST = 1e12
"""Sums of ε beyond this are taken for no privacy at all."""


def kov_optimal_delta(step_epsilon: float, step_delta: float, times: int, epsilon: float) -> float:
    """δ of ``times`` releases of (ε₀, δ₀)-DP each at a total ε, rounded up; nothing smaller holds.

    Statement: 1 − δ = (1 − δ₀)^k (1 − δ̃) with
    δ̃ = Σ_l C(k,l)·(e^((k−l)ε₀) − e^(ε+lε₀))₊ / (1 + e^ε₀)^k.
    Conditions: one adjacency throughout; ε ≥ 0.
    Source: Kairouz, Oh, Viswanath 2015, Theorem 3.3, whose points ε = (k − 2i)ε₀ this passes through.
    """
    step_epsilon, step_delta = check_non_negative("epsilon", step_epsilon), check_delta("delta", step_delta)
    times = check_count("times", times, most=MOST_OPTIMAL)
    likely = _randomized_response_delta(step_epsilon, times, check_non_negative("epsilon", epsilon))
    return _with_failures(likely, step_delta, times)


def _with_failures(likely: float, step_delta: float, times: int) -> float:
    """1 − (1 − δ₀)^k (1 − δ̃), rounded up, at most 1."""
    if step_delta == 0.0:
        return likely
    failed = -math.expm1(times * math.log1p(-step_delta))
    return min(1.0, widen(failed + (1.0 - failed) * likely, Direction.UP, ulps=8))


def _randomized_response_delta(step_epsilon: float, times: int, epsilon: float) -> float:
    """δ̃ at ε: the hockey-stick of k randomized responses, summed over the number of flips."""
    most = times * step_epsilon
    if step_epsilon == 0.0 or epsilon >= widen(most, Direction.UP, ulps=1):
        return 0.0
    if most > _LARGEST:
        return 1.0
    gaps = (times - 2.0 * np.arange(times + 1.0)) * step_epsilon - epsilon + 4.0 * _EPS * (most + epsilon)
    flips = np.flatnonzero(gaps > 0.0)
    logs = _log_flips(step_epsilon, times)[flips] + np.log(-np.expm1(-gaps[flips]))
    sizes = 3.0 * float(special.gammaln(times + 1.0)) + 4.0 * (most + times + 1.0)
    total = float(special.logsumexp(logs))
    return exp_above(total + 8.0 * _EPS * (sizes + abs(total)))


def _log_flips(step_epsilon: float, times: int) -> Floats:
    """Log-probability of l flips among k randomized responses."""
    flips = np.arange(times + 1.0)
    log_keep = -math.log1p(math.exp(-step_epsilon))
    values: Floats = log_binomials(times) + times * log_keep - flips * step_epsilon
    return values


def kov_optimal_epsilon(step_epsilon: float, step_delta: float, times: int, delta: float) -> float:
    """ε of ``times`` releases of (ε₀, δ₀)-DP each at a total δ, rounded up.

    Statement, conditions and source: :func:`kov_optimal_delta`, solved for ε and proven by it.
    """
    step_epsilon, delta = check_non_negative("epsilon", step_epsilon), check_open_unit("delta", delta)

    def holds(epsilon: float) -> bool:
        return kov_optimal_delta(step_epsilon, step_delta, times, epsilon) <= delta

    if holds(0.0):
        return 0.0
    most = widen(times * step_epsilon, Direction.UP, ulps=2)
    if not holds(most):
        raise InvalidInput("delta", f"above the {times} releases' own {step_delta!r} each", delta)
    found = bracketed_root(
        lambda epsilon: kov_optimal_delta(step_epsilon, step_delta, times, epsilon) - delta,
        0.0,
        most,
        relative=1e-12,
    )
    return min(most, prove_nearby(found, holds, Direction.UP))


def kov_closed_epsilon(parts: Sequence[tuple[float, int]], slack: float) -> float:
    """ε of releases of different ε_i at a slack δ̃, rounded up.

    Statement: with D = Σ ε_i·tanh(ε_i/2) and V = Σ ε_i²,
    ε = min(Σε_i, D + √(2V·log(e + √V/δ̃)), D + √(2V·log(1/δ̃))) at a total δ of
    1 − (1 − δ̃)·Π(1 − δ_i) ≤ δ̃ + Σδ_i.
    Conditions: one adjacency throughout; 0 < δ̃ < 1.
    Source: Kairouz, Oh, Viswanath 2015, Theorem 3.5 ((e^ε − 1)/(e^ε + 1) = tanh(ε/2)).
    """
    slack = check_open_unit("slack", slack)
    checked = [(check_positive("epsilon", e), check_count("times", n)) for e, n in parts if e != 0.0]
    if not checked:
        return 0.0
    total = exact_sum(epsilon * times for epsilon, times in checked)
    drift = exact_sum(epsilon * math.tanh(epsilon / 2.0) * times for epsilon, times in checked)
    root = root_of_squares(checked)
    spread = min(math.log(math.e + root / slack), -math.log(slack))
    least = min(total, drift + root * math.sqrt(2.0 * spread))
    return check_non_negative("the composed epsilon", widen(least, Direction.UP, ulps=16))
