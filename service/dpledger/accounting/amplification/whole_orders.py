"""Bounds that are proven at whole orders only: sums over binomials, and chords between whole orders.

(α−1)·ε(α) is a convex function of α that vanishes at α = 1 (the logarithm of a moment generating
function), so a chord between bounds at two orders is a bound at every order between them. ε(α) itself
is non-decreasing, so a bound at a larger order is a bound at a smaller one.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpledger.accounting.numerics import round_up
from dpledger.accounting.orders import integers_up_to
from dpledger.accounting.rounding import Direction, widen
from dpledger.accounting.validation import Floats

__all__ = ["MAX_WHOLE", "Curve", "base_moments", "log_binomial_sums", "through_whole_orders"]

Curve = Callable[[Floats], Floats]
"""ε as a function of orders: a bound at any strictly increasing real orders above 1."""

MAX_WHOLE = 2**14
"""Orders beyond this are left unamplified, which is a bound too, rather than summed for long."""

_ALL_KNOTS_UNTIL = 64
_KNOT_RATIO = 1.04
_MAX_TERMS = 2**18
_NEGLIGIBLE, _HUGE, _TOO_LARGE, _NOT_AMPLIFIED = -1e300, 1e290, 1e300, 1e306
_UNIT = 2.0**-53


def through_whole_orders(
    orders: Floats, curve: Curve, log_moments: Callable[[Floats, Floats], Floats]
) -> Floats:
    """An amplified curve at real orders from one that is proven at whole orders.

    Parameters
    ----------
    orders
        Where the amplified curve is wanted.
    curve
        The curve without sampling.
    log_moments
        Given whole orders n ≥ 2 and the base's (l−1)·ε(l) at l = 2, 3, …, largest n: upper bounds on
        the amplified (n−1)·ε'(n).

    Returns
    -------
    The chords, never above the curve without sampling (divergence is quasi-convex: a mixture with
    common weights is no further apart than its worst pair), non-decreasing in the order.
    """
    covered = orders[orders <= MAX_WHOLE]
    wholes = np.unique(np.maximum(np.concatenate((np.floor(covered), np.ceil(covered))), 2.0))
    if wholes.size == 0:
        return curve(orders)
    base, unamplified = base_moments(curve, wholes, orders)
    moments = np.where(base[wholes.astype(np.intp) - 2] < _HUGE, log_moments(wholes, base), _NOT_AMPLIFIED)
    chords = np.interp(covered, np.append(1.0, wholes), np.append(0.0, moments))
    bound = unamplified.copy()
    bound[: covered.size] = np.minimum(bound[: covered.size], round_up(chords / (covered - 1.0), ulps=8))
    return np.minimum.accumulate(bound[::-1])[::-1].copy()


def base_moments(curve: Curve, wholes: Floats, orders: Floats) -> tuple[Floats, Floats]:
    """(l−1)·ε(l) at l = 2, 3, …, the last of ``wholes``, and ε at ``orders``, in one call of the curve.

    The curve is asked at ``wholes`` and at some knots; between them the chord is taken.
    """
    last = int(wholes[-1])
    knots = np.union1d(_knots(last), wholes)
    asked = np.union1d(knots, orders)
    found = curve(asked)
    at_knots = found[asked.searchsorted(knots)]
    with np.errstate(over="ignore"):
        moments = np.minimum((knots - 1.0) * at_knots, _TOO_LARGE)
    chords = np.interp(integers_up_to(last), knots, moments)
    return widen(chords, Direction.UP, ulps=8), found[asked.searchsorted(orders)]


@functools.lru_cache(maxsize=64)
def _knots(last: int) -> Floats:
    """All whole orders from 2 to 64, then a geometric grid up to the last."""
    count = max(0, int(np.log(last / _ALL_KNOTS_UNTIL) / np.log(_KNOT_RATIO))) + 1
    sparse = np.round(_ALL_KNOTS_UNTIL * _KNOT_RATIO ** np.arange(count))
    knots = np.unique(np.concatenate((np.arange(2.0, _ALL_KNOTS_UNTIL + 1.0), sparse)))
    return knots[knots <= last]


class _Terms(NamedTuple):
    """The terms k = 2..n of several orders n, laid end to end."""

    powers: NDArray[np.intp]
    rows: NDArray[np.intp]
    starts: NDArray[np.intp]
    log_binomials: Floats


def log_binomial_sums(wholes: Floats, exponents: Floats) -> Floats:
    """log Σ_{k=2..n} C(n,k)·e^(exponents[k−2]) for each whole order n, rounded up."""
    exponents = np.maximum(exponents, _NEGLIGIBLE)
    sums = [_sum(part, exponents) for part in _parts(wholes)]
    return np.concatenate(sums)


def _parts(wholes: Floats) -> list[Floats]:
    """Cut so that no part has more than some 2^18 terms."""
    part = (np.cumsum(wholes) // _MAX_TERMS).astype(np.intp)
    return np.split(wholes, np.flatnonzero(np.diff(part)) + 1)


def _sum(wholes: Floats, exponents: Floats) -> Floats:
    terms = _terms(wholes.tobytes())
    logs = exponents[terms.powers - 2] + terms.log_binomials
    peaks = np.maximum.reduceat(logs, terms.starts)
    shares = np.exp(logs - peaks[terms.rows])
    slack = _UNIT * (wholes + 16.0 * special.gammaln(wholes + 1.0) + 8.0)
    sums: Floats = peaks + np.log(np.add.reduceat(shares, terms.starts)) + slack
    return sums


@functools.lru_cache(maxsize=8)
def _terms(key: bytes) -> _Terms:
    wholes = np.frombuffer(key).astype(np.intp)
    counts = wholes - 1
    starts = np.cumsum(counts) - counts
    rows = np.repeat(np.arange(wholes.size), counts)
    powers = np.arange(rows.size) - starts[rows] + 2
    factorials = special.gammaln(np.arange(wholes[-1] + 1.0) + 1.0)
    log_binomials = factorials[wholes[rows]] - factorials[powers] - factorials[wholes[rows] - powers]
    return _Terms(powers, rows, starts, log_binomials)
