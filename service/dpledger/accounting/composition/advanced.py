"""Composition of (ε, δ)-DP releases: basic, and the advanced forms of the lectures.

All are for plans fixed in advance: the number of releases and each one's (ε, δ) may not depend on
earlier outputs (what is asked in each round may).
"""

import math
from collections.abc import Sequence
from fractions import Fraction

from dpledger.accounting.errors import InvalidInput, Unproven
from dpledger.accounting.exact import float_above
from dpledger.accounting.rounding import Direction, widen
from dpledger.accounting.validation import check_count, check_delta, check_non_negative, check_open_unit

__all__ = [
    "basic_composition",
    "dwork_rothblum_vadhan_epsilon",
    "lecture_gaussian_epsilon",
    "lecture_gaussian_noise_std",
    "lecture_strong_epsilon",
    "lecture_strong_step",
]

Number = float | Fraction
"""A double as it is, or an exact number."""

_CLOSED_FORM_MOST = 2.0 * math.log(2.0)


def basic_composition(parts: Sequence[tuple[Number, Number, int]]) -> tuple[float, float]:
    """Sum of ε and of δ over (ε, δ, times): exact sums, rounded up once.

    Statement: k releases that are (ε_i, δ_i)-DP are together (Σε_i, Σδ_i)-DP.
    Conditions: one adjacency throughout; also for adaptively chosen ε_i under a filter on the sums.
    Source: Dwork, Kenthapadi, McSherry, Mironov, Naor 2006; Dwork and Roth 2014, Theorem 3.16.
    """
    checked = [_check(part) for part in parts]
    epsilon = sum((times * epsilon for epsilon, _, times in checked), Fraction(0))
    delta = sum((times * delta for _, delta, times in checked), Fraction(0))
    return (
        check_non_negative("the sum of epsilon", float_above(epsilon)),
        check_delta("the sum of delta", float_above(delta)),
    )


def _check(part: tuple[Number, Number, int]) -> tuple[Fraction, Fraction, int]:
    epsilon, delta, times = part
    check_non_negative("epsilon", float(epsilon))
    check_delta("delta", float(delta))
    return Fraction(epsilon), Fraction(delta), check_count("times", times)


def dwork_rothblum_vadhan_epsilon(epsilon: float, times: int, slack: float) -> float:
    """ε of ``times`` releases of (ε, δ)-DP each, at a total δ of times·δ + slack, rounded up.

    Statement: ε' = ε·√(2k·ln(1/δ')) + k·ε·(e^ε − 1).
    Conditions: one adjacency throughout; 0 < δ' < 1.
    Source: Dwork, Rothblum, Vadhan 2010; Dwork and Roth 2014, Theorem 3.20; quoted in A-DDP (Cheng et
    al. 2020).
    """
    epsilon, times = check_non_negative("epsilon", epsilon), check_count("times", times)
    slack = check_open_unit("slack", slack)
    spread = epsilon * math.sqrt(2.0 * times * -math.log(slack))
    drift = times * epsilon * _expm1(epsilon)
    return check_non_negative("the composed epsilon", _widen(spread + drift))


def lecture_strong_epsilon(epsilon: float, times: int, slack: float) -> float:
    """ε of ``times`` releases by the short form of strong composition, rounded up.

    Statement: ε' = 2·ε·√(2k·ln(2/δ)) at a total δ of k·δ₀ + δ.
    Conditions: the result is below 1; 0 < δ < 1; one adjacency throughout.
    Source: Wang, lecture 15, Lemma 15.2 (Dwork and Roth 2014, Corollary 3.21). With L = ln(2/δ) ≥ ln 2
    the spread of Theorem 3.20 at δ' = δ/2 is ε'/2, and its drift k·ε(e^ε − 1) ≤ 1.25·ε'²/(8L) ≤ ε'/2.
    """
    epsilon, times = check_non_negative("epsilon", epsilon), check_count("times", times)
    slack = check_open_unit("slack", slack)
    total = _widen(2.0 * epsilon * math.sqrt(2.0 * times * (math.log(2.0) - math.log(slack))))
    if total >= 1.0:
        raise Unproven(f"Lemma 15.2 holds for a total epsilon below 1, found {total!r}")
    return total


def lecture_strong_step(epsilon: float, delta: float, times: int) -> tuple[float, float]:
    """The (ε', δ') that each of ``times`` releases may have for a total of (ε, 3δ/2), rounded down.

    Statement: ε' = ε/(2√(2k·ln(2/δ))), δ' = δ/(2k): the total is (ε, k·δ' + δ).
    Conditions: 0 < ε < 1, 0 < δ < 1. Source: Wang, lecture 15, Lemma 15.2.
    """
    epsilon, delta = check_open_unit("epsilon", epsilon), check_open_unit("delta", delta)
    times = check_count("times", times)
    share = 2.0 * math.sqrt(2.0 * times * (math.log(2.0) - math.log(delta)))
    return (
        widen(epsilon / share, Direction.DOWN, ulps=8),
        widen(delta / (2.0 * times), Direction.DOWN, ulps=2),
    )


def lecture_gaussian_epsilon(mu: float, delta: float) -> float:
    """ε of Gaussians with total μ = √Σμ_i² by the lecture's closed form, rounded up.

    Statement: ε = μ·√(2·ln(1/δ)), that is σ = Δ·√(2T·ln(1/δ))/ε for T Gaussians of sensitivity Δ.
    Conditions: ε ≤ 2·ln 2 and ε ≤ 4·ln(1/δ). With t = ε/μ the exact δ is at most Φ(μ/2 − t) ≤
    ½·exp(−(t − μ/2)²/2) ≤ ½·e^(ε/2)·δ, which is at most δ there (the lecture states no condition).
    Source: Wu, lecture 13, Lemma 1.1.
    """
    mu, delta = check_non_negative("mu", mu), check_open_unit("delta", delta)
    log_inverse = -math.log(delta)
    epsilon = _widen(mu * math.sqrt(2.0 * log_inverse))
    most = min(_CLOSED_FORM_MOST, 4.0 * log_inverse)
    if epsilon > most:
        raise Unproven(f"Lemma 1.1 is proven for epsilon up to {most!r}, found {epsilon!r}")
    return epsilon


def lecture_gaussian_noise_std(epsilon: float, delta: float, *, sensitivity: float, times: int) -> float:
    """σ of noisy gradient descent by the lecture's closed form, rounded up.

    Statement: σ = Δ·√(2T·ln(1/δ))/ε; for an average of n losses that are G-Lipschitz Δ = 2G/n.
    Conditions and source: as in :func:`lecture_gaussian_epsilon`; replace-one adjacency for Δ = 2G/n.
    """
    sensitivity, times = check_non_negative("sensitivity", sensitivity), check_count("times", times)
    epsilon, delta = check_non_negative("epsilon", epsilon), check_open_unit("delta", delta)
    if epsilon == 0.0:
        raise InvalidInput("epsilon", "above 0", epsilon)
    mu = epsilon / math.sqrt(-2.0 * math.log(delta))
    lecture_gaussian_epsilon(widen(mu, Direction.DOWN, ulps=16), delta)
    return check_non_negative("noise_std", _widen(sensitivity * math.sqrt(times) / mu))


def _widen(value: float) -> float:
    return widen(value, Direction.UP, ulps=16) if value else 0.0


def _expm1(value: float) -> float:
    return math.expm1(value) if value < 700.0 else math.inf
