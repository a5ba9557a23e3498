"""Log-space and cancellation-free helpers shared by the bounds."""

import math
from collections.abc import Iterable, Sequence
from typing import overload

import numpy as np
from scipy import special

from dpledger.accounting.rounding import Direction, widen
from dpledger.accounting.validation import Floats, check_non_negative

__all__ = [
    "SMALLEST_COST",
    "exact_sum",
    "exp_above",
    "exp_minus_line",
    "log_binomials",
    "log_sinhc",
    "ratio_above",
    "root_of_squares",
    "round_up",
]

SMALLEST_COST = 1e-290
"""Positive costs below this are given as this, so that no intermediate underflow can undercut them."""

_SERIES_TERMS = 20
_LEAST_NORMAL_LOG = -708.0
_LOG_UNITS = -math.log(math.ulp(0.0))


def exp_minus_line(x: Floats) -> Floats:
    """e^x − 1 − x, never negative, to a few units in the last place at every x."""
    near = np.clip(x, -1.0, 1.0)
    tail = np.ones_like(near)
    for n in range(_SERIES_TERMS, 2, -1):
        tail = 1.0 + near / n * tail
    values: Floats = np.where(np.abs(x) <= 1.0, near * near / 2.0 * tail, np.expm1(x) - x)
    return values


@overload
def exp_above(exponent: float) -> float: ...
@overload
def exp_above(exponent: Floats) -> Floats: ...
def exp_above(exponent: float | Floats) -> float | Floats:
    """e^exponent, rounded up, at most 1 and never 0: below the normal floats it counts units."""
    value = np.minimum(exponent, 0.0)
    units = np.ceil(np.exp(np.minimum(value, _LEAST_NORMAL_LOG) + _LOG_UNITS) * (1.0 + 1e-13))
    normal = np.minimum(np.exp(value) * (1.0 + 2.0**-51), 1.0)
    found: Floats = np.where(value < _LEAST_NORMAL_LOG, np.maximum(units, 1.0) * math.ulp(0.0), normal)
    return found if isinstance(exponent, np.ndarray) else float(found)


def log_binomials(n: int) -> Floats:
    """log C(n, k) for k = 0..n."""
    k = np.arange(n + 1, dtype=np.float64)
    below: Floats = special.gammaln(k + 1.0) + special.gammaln(n - k + 1.0)
    values: Floats = special.gammaln(n + 1.0) - below
    return values


def log_sinhc(z: Floats) -> Floats:
    """log(sinh(z)/z) for z > 0, to a few units in the last place at every z."""
    low, high = np.minimum(z, 20.0), np.maximum(z, 20.0)
    series = np.ones_like(low)
    square = np.minimum(low, 1.0) ** 2
    for n in range(_SERIES_TERMS, 1, -1):
        series = 1.0 + square / (2.0 * n * (2.0 * n + 1.0)) * series
    excess = np.where(low <= 1.0, square / 6.0 * series, np.sinh(low) / low - 1.0)
    values: Floats = np.where(z <= 20.0, np.log1p(excess), high - np.log(2.0 * high))
    return values


def ratio_above(field: str, numerator: float, denominator: float) -> float:
    """A float at or above numerator / denominator; zero only for an exact zero, infinity refused."""
    if numerator == 0.0:
        return 0.0
    return check_non_negative(field, math.nextafter(numerator / denominator, math.inf))


def exact_sum(values: Iterable[float]) -> float:
    """Sum of numbers ≥ 0 with a single rounding; infinite where it overflows, for the caller to refuse."""
    try:
        return math.fsum(values)
    except OverflowError:
        return math.inf


def root_of_squares(parts: Sequence[tuple[float, int]]) -> float:
    """√Σ n·x² over (x, n) with x ≥ 0, to two units in the last place even where squares overflow."""
    _, power = math.frexp(max(x for x, _ in parts))
    scaled = [(math.ldexp(x, 1 - power), n) for x, n in parts]
    return math.sqrt(math.fsum(n * (x * x) for x, n in scaled)) * math.ldexp(1.0, power - 1)


@overload
def round_up(value: float, *, ulps: int) -> float: ...
@overload
def round_up(value: Floats, *, ulps: int) -> Floats: ...
def round_up(value: float | Floats, *, ulps: int) -> float | Floats:
    """Upper bound on a positive quantity that was computed to within ``ulps`` or underflowed."""
    if isinstance(value, np.ndarray):
        return np.maximum(widen(value, Direction.UP, ulps=ulps), SMALLEST_COST)
    return float(np.maximum(widen(value, Direction.UP, ulps=ulps), SMALLEST_COST))
