"""Figures of a plan's profile for an auditor: attack rates, advantage, and a Gaussian to compare with."""

import math
from collections.abc import Sequence

import numpy as np

from dpledger.accounting.errors import InvalidInput
from dpledger.accounting.gaussian_profile import gaussian_log_delta, gaussian_mu_within
from dpledger.accounting.pld.distribution import TOLERANCE
from dpledger.accounting.pld.plan import PlanLoss
from dpledger.accounting.rounding import Direction, widen
from dpledger.accounting.solving import prove_nearby
from dpledger.accounting.validation import Floats, check_vector

__all__ = ["advantage", "equivalent_mu", "profile_grid", "true_positive_rates"]

_POINTS = 257
_LEAST_DELTA = 1e-15
_LARGEST_EPSILON = 600.0
_MARGIN = 1e-9
"""Far above the error of a Gaussian's log δ, which is at most 1e-11 wherever δ is a float."""


def advantage(loss: PlanLoss, *, tolerance: float = TOLERANCE) -> float:
    """Upper bound on the true-positive rate less the false-positive rate of any membership attack.

    Statement: TPR − FPR ≤ δ(0), the total variation distance. Proof: ε = 0 in
    :func:`true_positive_rates`. Conditions: those of the plan; neighbours as its adjacency has them.
    Source: Yeom et al. 2018; Kairouz, Oh, Viswanath 2015, Theorem 2.4.
    """
    return loss.delta(0.0, tolerance=tolerance)


def profile_grid(loss: PlanLoss, *, least_delta: float = _LEAST_DELTA, points: int = _POINTS) -> Floats:
    """Evenly spaced ε from 0 to where δ falls below ``least_delta``, or as far as it falls."""
    delta = least_delta
    while math.isinf(reach := loss.epsilon(delta, tolerance=1e-2)) and delta < 0.1:
        delta *= 10.0
    return np.linspace(0.0, min(reach, _LARGEST_EPSILON) if reach > 0.0 else 1.0, points)


def true_positive_rates(loss: PlanLoss, false_positive_rates: Floats | Sequence[float]) -> Floats:
    """Upper bounds on the true-positive rate of any membership attack at each false-positive rate.

    Statement: TPR ≤ min over ε ≥ 0 of e^ε·FPR + δ(ε), and TPR ≤ 1 − e^(−ε)(1 − δ(ε) − FPR).
    Proof: an attack is an event E of the outputs; P(E) ≤ e^ε·Q(E) + δ(ε) is the definition of δ(ε), and
    Q(not E) ≤ e^ε·P(not E) + δ(ε) is the same of the complement with P and Q exchanged. δ(ε) is the larger of
    both directions, so both hold whichever neighbour is called P. Any ε may be used: a grid gives a bound.
    Conditions: those of the plan; rates from 0 to 1.
    Source: Wasserman and Zhou 2010, Theorem 2.4; Kairouz, Oh, Viswanath 2015, Theorem 2.4.
    """
    rates = check_vector("false_positive_rates", false_positive_rates)
    if rates.min() < 0.0 or rates.max() > 1.0:
        raise InvalidInput("false_positive_rates", "numbers from 0 to 1", float(rates.min()))
    epsilons = profile_grid(loss)
    deltas, growth = loss.profile(epsilons), np.exp(epsilons)
    direct = growth * rates[:, None] + deltas
    mirrored = 1.0 - np.maximum(1.0 - deltas - rates[:, None], 0.0) / growth
    bounds: Floats = np.minimum(np.minimum(direct, mirrored).min(axis=1) * (1.0 + 1e-14) + 1e-15, 1.0)
    return bounds


def equivalent_mu(epsilon: float, delta: float) -> float:
    """The μ of the Gaussian with the same δ at this ε, rounded up.

    Statement: the μ-GDP profile passes through (ε, δ), or just above. It compares one point: the plan's own
    profile may lie above that Gaussian's at another ε, so this is no claim that the plan is μ-GDP.
    Conditions: ε ≥ 0, 0 < δ < 1.
    Source: Balle and Wang 2018, Theorem 8; Dong, Roth, Su 2022.

    Examples
    --------
    >>> round(equivalent_mu(1.0, 1e-5), 5)
    0.26805
    """
    found = widen(gaussian_mu_within(epsilon, delta), Direction.UP, ulps=8)
    goal = math.log(delta) + _MARGIN
    return prove_nearby(
        found, lambda mu: gaussian_log_delta(epsilon, mu) >= goal, Direction.UP, first_step=1e-12
    )
