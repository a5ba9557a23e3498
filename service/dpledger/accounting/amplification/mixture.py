"""A random choice among mechanisms whose outcome is not released."""

from collections.abc import Sequence

import numpy as np

from dpledger.accounting.errors import InvalidInput
from dpledger.accounting.numerics import round_up
from dpledger.accounting.validation import Floats, check_orders, check_vector

__all__ = ["check_probabilities", "log_mixture_moments", "mixture_curve"]

_SUM_TOLERANCE = 1e-9
_EXPONENT_ROUNDING = 2.0**-48
"""Relative: sixteen units in the last place."""
_LARGE_EXPONENT = 600.0


def mixture_curve(curves: Sequence[Floats], probabilities: Sequence[float], orders: Floats) -> Floats:
    """The curve of running mechanism j with probability q_j, the same for both neighbours.

    Statement: ε(α) = log(Σ_j q_j e^((α−1)ε_j(α))) / (α−1), at most the largest ε_j(α).
    Conditions: either adjacency; the choice does not depend on the data and pairs the neighbours' runs one
    to one; any α > 1 at which every ε_j is a bound. A sample whose noise depends on it, such as noise
    scaled to the largest clipping norm in a secret batch, is covered with ε_0 = 0 for the batches
    without the record.
    Source: Lemma 3.2 of Chen 2020, dissertation; joint convexity: van Erven and Harremoës 2014.
    """
    orders = check_orders(orders)
    shares = check_probabilities(probabilities)
    if len(curves) != shares.size:
        raise InvalidInput("curves", f"{shares.size} of them, one per probability", len(curves))
    parts = np.array([_check(curve, orders) for curve in curves])
    with np.errstate(over="ignore", invalid="ignore"):
        moments = log_mixture_moments(((orders - 1.0) * parts).T, shares)
        mixed = round_up(moments / (orders - 1.0), ulps=4)
    bounded: Floats = np.fmin(mixed, parts.max(axis=0))  # fmin passes over what overflowed to nan
    return bounded


def log_mixture_moments(exponents: Floats, shares: Floats) -> Floats:
    """log Σ_j q_j e^(x_j) of each row of exponents x ≥ 0, rounded up, for probabilities q that sum to 1.

    It is log1p(Σ q (e^x − 1)): no digits are lost to the 1, nor to a large part that is hardly ever taken.
    Where e^x is too large for that the largest is drawn out, and the rounding of what is then added up
    to the result is added to it.
    """
    present = shares > 0.0
    exponents, shares = exponents[:, present], shares[present]
    largest = exponents.max(axis=1)
    small = largest < _LARGE_EXPONENT
    excess = np.expm1(np.where(small[:, None], exponents, 0.0)) @ shares
    near = np.log1p(excess * (1.0 + _EXPONENT_ROUNDING * largest))
    rest = np.log(np.exp(exponents - largest[:, None]) @ shares)
    far = largest + rest + _EXPONENT_ROUNDING * (largest - rest)
    moments: Floats = np.where(small, near, far)
    return round_up(moments, ulps=64 + shares.size)


def check_probabilities(values: Sequence[float]) -> Floats:
    """Probabilities that sum to 1 within 1e-9, raised so that rounding never lowers a cost."""
    shares = check_vector("probabilities", values)
    total = float(np.sum(shares))
    if (shares < 0.0).any() or abs(total - 1.0) > _SUM_TOLERANCE:
        raise InvalidInput("probabilities", "at least 0 each, with a sum of 1", list(values))
    return shares / min(total, 1.0)


def _check(curve: Floats, orders: Floats) -> Floats:
    values = check_vector("curve", curve)
    if values.size != orders.size or (values < 0.0).any():
        raise InvalidInput("curve", f"{orders.size} numbers at least 0, one per order", values.tolist())
    return values
