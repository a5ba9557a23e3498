"""Poisson sampling of any mechanism that has a Rényi curve."""

import functools
import math

import numpy as np

from dpledger.accounting.amplification.whole_orders import Curve, log_binomial_sums, through_whole_orders
from dpledger.accounting.orders import integers_up_to
from dpledger.accounting.validation import Floats, check_choice, check_orders, check_rate

__all__ = ["POISSON_METHODS", "poisson_curve"]

POISSON_METHODS = ("steinke", "zhu-wang")

_UNIT = 2.0**-53
_LOG_SIZE = 800.0
"""The logarithm of no positive float is larger than this."""


def poisson_curve(rate: float, curve: Curve, orders: Floats, *, method: str = "steinke") -> Floats:
    """The curve of a mechanism run on a Poisson sample.

    Statement: at whole α ≥ 2, with ε the mechanism's curve and q the rate,
    ε'(α) = log{(1−q)^(α−1) (1 + (α−1)q) + Σ_{l=2..α} C(α,l) (1−q)^(α−l) q^l e^((l−1)ε(l))} / (α−1);
    chords of (α−1)ε'(α) between whole orders, from 0 at α = 1; at most ε(α).
    Conditions: Poisson sampling, add-remove adjacency, ε bounds both directions of every neighbouring
    pair (a curve that bounds only one of them is not enough: for P a point mass at 0 and Q the same
    with probability 1 − s, D(P ‖ Q) is small at every order and the formula fails for Q against the
    mixture).
    Source: Steinke 2022, "Composition of Differential Privacy & Privacy Amplification by Subsampling".
    ``method="zhu-wang"``: Zhu and Wang 2019, Theorem 6 (Lemma 2.4 of Chen 2020), with a factor 3 on the
    terms l ≥ 3. It is never below the other and has the same conditions: the factor does not mend a
    one-sided curve, whose counterexample above is already at α = 2.

    Parameters
    ----------
    rate
        Sampling rate q in [0, 1].
    curve
        The mechanism's curve on a sample looked at in full, as a function of orders.
    orders
        Strictly increasing real orders above 1.
    method
        One of ``POISSON_METHODS``.
    """
    rate, orders = check_rate("rate", rate), check_orders(orders)
    factor = 1.0 if check_choice("method", method, POISSON_METHODS) == "steinke" else 3.0
    if rate == 0.0:
        return np.zeros(orders.size)
    if rate == 1.0:
        return curve(orders)
    return through_whole_orders(orders, curve, functools.partial(_log_moments, rate, factor))


def _log_moments(rate: float, factor: float, wholes: Floats, base: Floats) -> Floats:
    """log(1 + Σ_l C(n,l) (1−q)^(n−l) q^l (f_l·e^(K_l) − 1)), f_2 = 1, f_l = factor: no cancellation.

    (1−q)^(n−1) (1 + (n−1)q) is the probability of l ≤ 1, so 1 less it is that of l ≥ 2.
    """
    powers = integers_up_to(base.size + 1)
    above_one = np.where(powers == 2.0, 0.0, factor - 1.0)
    with np.errstate(divide="ignore"):  # a mechanism that costs nothing gains nothing
        gains = base + np.log(above_one - np.expm1(-base))
    stay = math.log1p(-rate)
    odds = math.log(rate) - stay
    sums = log_binomial_sums(wholes, gains + powers * odds) + wholes * stay
    sizes = base[wholes.astype(np.intp) - 2] + wholes * (abs(odds) - stay) + _LOG_SIZE
    moments: Floats = np.logaddexp(0.0, sums + 8.0 * _UNIT * sizes)
    return moments
