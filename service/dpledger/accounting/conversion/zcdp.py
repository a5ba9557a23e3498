"""From zCDP to (ε, δ), and the ρ that an (ε, δ) allows.

The tight forms minimise over real α > 1, written with a = α − 1. Any a gives a valid bound, so
soundness does not depend on where the minimiser stops.
"""

import math

from dpledger.accounting.conversion.renyi import LARGEST_EPSILON
from dpledger.accounting.errors import InvalidInput
from dpledger.accounting.numerics import exp_above
from dpledger.accounting.rounding import Direction, widen
from dpledger.accounting.solving import bracketed_root, prove_nearby
from dpledger.accounting.validation import check_non_negative, check_open_unit

__all__ = [
    "bun_steinke_delta",
    "bun_steinke_epsilon",
    "bun_steinke_rho",
    "zcdp_delta",
    "zcdp_epsilon",
    "zcdp_order_within",
    "zcdp_rho_within",
]

_EPS = 2.0**-52
_TERM_ULPS = 16.0
_LEAST_EXCESS = 1e-300
_LARGEST_EXCESS = 1e150
_MOST_NEWTON_STEPS = 64


def bun_steinke_epsilon(rho: float, delta: float) -> float:
    """ε of ρ-zCDP at δ by the closed form, rounded up.

    Statement: ε = ρ + 2·√(ρ·log(1/δ)).
    Conditions: 0 < δ < 1.
    Source: Bun and Steinke 2016, Proposition 1.3; Lee and Kifer 2018, Lemma 3.8.
    """
    rho, delta = check_non_negative("rho", rho), check_open_unit("delta", delta)
    if rho == 0.0:
        return 0.0
    epsilon = rho + 2.0 * math.sqrt(rho) * math.sqrt(-math.log(delta))
    return _finite("rho", widen(epsilon, Direction.UP, ulps=8))


def bun_steinke_delta(rho: float, epsilon: float) -> float:
    """δ of ρ-zCDP at ε by the closed form, rounded up, at most 1.

    Statement: δ = exp(−(ε − ρ)²/(4ρ)) for ε ≥ ρ.
    Conditions: ε ≥ 0; below ρ nothing is said and 1 is answered.
    Source: the inverse of Bun and Steinke 2016, Proposition 1.3.
    """
    rho, epsilon = check_non_negative("rho", rho), check_non_negative("epsilon", epsilon)
    if rho == 0.0:
        return 0.0
    if epsilon <= rho:
        return 1.0
    gap = (epsilon - rho) * (1.0 - 4.0 * _EPS * (epsilon + rho) / (epsilon - rho))
    root = max(gap, 0.0) / (2.0 * math.sqrt(rho))
    return exp_above(-root * root * (1.0 - 8.0 * _EPS))


def bun_steinke_rho(epsilon: float, delta: float) -> float:
    """The largest ρ whose closed-form conversion is within (ε, δ), rounded down.

    Statement: ρ = (√(log(1/δ) + ε) − √log(1/δ))².
    Conditions: ε ≥ 0, 0 < δ < 1.
    Source: Bun and Steinke 2016, Proposition 1.3, solved for ρ (step 2 of DP-AGD, Lee and Kifer 2018).
    """
    epsilon, delta = check_non_negative("epsilon", epsilon), check_open_unit("delta", delta)
    if epsilon == 0.0:
        return 0.0
    log_inverse = -math.log(delta)
    root = epsilon / (math.sqrt(log_inverse + epsilon) + math.sqrt(log_inverse))
    found = max(root * root, math.ulp(0.0))
    return prove_nearby(found, lambda rho: bun_steinke_epsilon(rho, delta) <= epsilon, Direction.DOWN)


def zcdp_epsilon(rho: float, delta: float) -> float:
    """ε of ρ-zCDP at δ, rounded up: the tightest conversion proven from zCDP alone.

    Statement: ε = min over α > 1 of αρ + log(1 − 1/α) − (log δ + log α)/(α − 1), at least 0.
    Conditions: 0 < δ < 1.
    Source: Canonne, Kamath, Steinke 2020, Corollary 13 (Balle et al. 2020, Theorem 21, at ε(α) = αρ).

    Examples
    --------
    >>> round(zcdp_epsilon(0.5, 1e-6), 4) < round(bun_steinke_epsilon(0.5, 1e-6), 4)
    True
    """
    rho, delta = check_non_negative("rho", rho), check_open_unit("delta", delta)
    if rho == 0.0:
        return 0.0
    log_delta = math.log(delta)
    tight = _epsilon_at_excess(rho, log_delta, _best_excess(rho, -log_delta))
    return max(0.0, min(tight, bun_steinke_epsilon(rho, delta)))


def _epsilon_at_excess(rho: float, log_delta: float, excess: float) -> float:
    log_order, share = math.log1p(excess), math.log1p(1.0 / excess)
    value = rho * (1.0 + excess) - share - (log_delta + log_order) / excess
    magnitude = rho * (1.0 + excess) + share + (log_order - log_delta) / excess
    return value + _TERM_ULPS * _EPS * magnitude


def _best_excess(rho: float, log_inverse: float) -> float:
    """The a at which the derivative ρ + (log δ + log(1 + a))/a² of the conversion is zero.

    Newton on ρa² + log(1 + a) − log(1/δ), from the smaller of the points where one term alone
    reaches the goal, which lies at or beyond the zero.
    """
    excess = max(min(math.sqrt(log_inverse / rho), math.expm1(min(log_inverse, 700.0))), _LEAST_EXCESS)
    for _ in range(_MOST_NEWTON_STEPS):
        value = rho * excess * excess + math.log1p(excess) - log_inverse
        slope = 2.0 * rho * excess + 1.0 / (1.0 + excess)
        moved = max(excess - value / slope, 0.125 * excess)
        if abs(moved - excess) <= 1e-12 * excess:
            return moved
        excess = moved
    return excess


def zcdp_delta(rho: float, epsilon: float) -> float:
    """δ of ρ-zCDP at ε, rounded up, at most 1: the counterpart of :func:`zcdp_epsilon`.

    Statement: δ = min over α > 1 of exp((α−1)(αρ − ε)) · (1/α)(1 − 1/α)^(α−1).
    Conditions: ε ≥ 0.
    Source: Canonne, Kamath, Steinke 2020, Corollary 13.
    """
    rho, epsilon = check_non_negative("rho", rho), check_non_negative("epsilon", epsilon)
    if rho == 0.0:
        return 0.0
    epsilon = min(epsilon, LARGEST_EPSILON)
    high = max(1.0, min((epsilon + 1.0) / (2.0 * rho) + 1.0, _LARGEST_EXCESS))
    root = bracketed_root(
        lambda log_excess: _delta_slope(rho, epsilon, math.exp(log_excess)),
        math.log(_LEAST_EXCESS),
        math.log(high),
        relative=1e-12,
    )
    return _delta_at_excess(rho, epsilon, math.exp(root))


def _delta_slope(rho: float, epsilon: float, excess: float) -> float:
    """Derivative in a of the exponent a((1 + a)ρ − ε) − log(1 + a) − a·log(1 + 1/a)."""
    return (1.0 + 2.0 * excess) * rho - epsilon - math.log1p(1.0 / excess)


def _delta_at_excess(rho: float, epsilon: float, excess: float) -> float:
    log_order, share = math.log1p(excess), excess * math.log1p(1.0 / excess)
    grown = excess * ((1.0 + excess) * rho)
    value = grown - excess * epsilon - log_order - share
    return exp_above(value + _TERM_ULPS * _EPS * (grown + excess * epsilon + log_order + share + 1.0))


def zcdp_rho_within(epsilon: float, delta: float) -> float:
    """The largest ρ whose tight conversion is within (ε, δ), rounded down.

    Statement: ρ = max over α > 1 of B(α)/α, B as in ``renyi_budget``; the answer satisfies
    ``zcdp_epsilon(answer, delta) <= epsilon``.
    Conditions: ε ≥ 0, 0 < δ < 1.
    Source: the inverse of Canonne, Kamath, Steinke 2020, Corollary 13.
    """
    epsilon, delta = check_non_negative("epsilon", epsilon), check_open_unit("delta", delta)
    found = _rho_at_excess(-math.log(delta), _budget_excess(epsilon, delta))
    return prove_nearby(found, lambda rho: zcdp_epsilon(rho, delta) <= epsilon, Direction.DOWN)


def zcdp_order_within(epsilon: float, delta: float) -> float:
    """The real order at which the conversion of the ρ that uses up (ε, δ) is tightest."""
    epsilon, delta = check_non_negative("epsilon", epsilon), check_open_unit("delta", delta)
    return 1.0 + _budget_excess(epsilon, delta)


def _budget_excess(epsilon: float, delta: float) -> float:
    """The a that maximises B(1 + a)/(1 + a)."""
    log_inverse = -math.log(delta)
    root = bracketed_root(
        lambda log_excess: _spare(epsilon, log_inverse, math.exp(log_excess)),
        math.log(_LEAST_EXCESS) / 2.0,
        math.log(max(math.expm1(min(log_inverse, 700.0)), _LEAST_EXCESS)),
        relative=1e-13,
    )
    return math.exp(root)


def _rho_at_excess(log_inverse: float, excess: float) -> float:
    """The ρ for which a is the best choice."""
    return max((log_inverse - math.log1p(excess)) / (excess * excess), math.ulp(0.0))


def _spare(epsilon: float, log_inverse: float, excess: float) -> float:
    """ε less the conversion of the ρ for which a is best; rises with a."""
    rest = log_inverse - math.log1p(excess)
    return epsilon - rest / excess * ((1.0 + excess) / excess + 1.0) + math.log1p(1.0 / excess)


def _finite(field: str, value: float) -> float:
    if not math.isfinite(value):
        raise InvalidInput(field, "small enough for a finite epsilon", value)
    return value
