"""Checks at the edge: every message names the range and the value found."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpledger.accounting.errors import InvalidInput

__all__ = [
    "MAX_COUNT",
    "Floats",
    "check_choice",
    "check_count",
    "check_delta",
    "check_flag",
    "check_non_negative",
    "check_open_unit",
    "check_orders",
    "check_positive",
    "check_rate",
    "check_vector",
]

Floats = NDArray[np.float64]

MAX_COUNT = 10**9
"""Repetitions and query counts beyond this are refused rather than rounded."""

MAX_ORDERS = 4096
MAX_ORDER = 1e6


def _number(field: str, value: Any, requirement: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise InvalidInput(field, requirement, value)
    try:
        number = float(value)
    except OverflowError:
        raise InvalidInput(field, requirement, value) from None
    if not math.isfinite(number):
        raise InvalidInput(field, requirement, value)
    return number


def check_positive(field: str, value: Any) -> float:
    """Return ``value`` as a float if it is finite and above zero."""
    requirement = "a finite number above 0"
    number = _number(field, value, requirement)
    if number <= 0.0:
        raise InvalidInput(field, requirement, value)
    return number


def check_non_negative(field: str, value: Any) -> float:
    """Return ``value`` as a float if it is finite and at least zero."""
    requirement = "a finite number at least 0"
    number = _number(field, value, requirement)
    if number < 0.0:
        raise InvalidInput(field, requirement, value)
    return abs(number)  # -0.0 becomes 0.0, so that equal values have equal hashes


def check_rate(field: str, value: Any) -> float:
    """Return a sampling rate in [0, 1]."""
    requirement = "a number in [0, 1]"
    number = _number(field, value, requirement)
    if not 0.0 <= number <= 1.0:
        raise InvalidInput(field, requirement, value)
    return abs(number)


def check_delta(field: str, value: Any) -> float:
    """Return a δ in [0, 1)."""
    requirement = "a number in [0, 1)"
    number = _number(field, value, requirement)
    if not 0.0 <= number < 1.0:
        raise InvalidInput(field, requirement, value)
    return abs(number)


def check_open_unit(field: str, value: Any) -> float:
    """Return a number strictly between 0 and 1."""
    requirement = "a number strictly between 0 and 1"
    number = _number(field, value, requirement)
    if not 0.0 < number < 1.0:
        raise InvalidInput(field, requirement, value)
    return number


def check_count(field: str, value: Any, *, most: int = MAX_COUNT, least: int = 1) -> int:
    """Return a whole number in [least, most]."""
    requirement = f"a whole number from {least} to {most}"
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise InvalidInput(field, requirement, value)
    if not least <= int(value) <= most:
        raise InvalidInput(field, requirement, value)
    return int(value)


def check_flag(field: str, value: Any) -> bool:
    """Return ``value`` if it is a boolean."""
    if not isinstance(value, bool):
        raise InvalidInput(field, "true or false", value)
    return value


def check_choice(field: str, value: Any, choices: Iterable[str]) -> str:
    """Return ``value`` if it is one of ``choices``."""
    allowed = tuple(choices)
    if not isinstance(value, str) or value not in allowed:
        raise InvalidInput(field, "one of " + ", ".join(allowed), value)
    return value


def check_vector(field: str, values: Any, *, most: int = 100_000) -> Floats:
    """Return a read-only vector of finite floats, at least one long."""
    vector = _vector(field, values, most)
    if not np.isfinite(vector).all():
        raise InvalidInput(field, _vector_requirement(most), values)
    return vector


def _vector_requirement(most: int) -> str:
    return f"a list of 1 to {most} finite numbers"


def _vector(field: str, values: Any, most: int) -> Floats:
    requirement = _vector_requirement(most)
    if isinstance(values, (str, bytes)):
        raise InvalidInput(field, requirement, values)
    try:
        raw = np.array(values)
    except ValueError:
        raise InvalidInput(field, requirement, values) from None
    # dtype=float would read "1" and true as numbers, which a single value may not be either.
    mixed = not isinstance(values, np.ndarray) and raw.ndim == 1 and any(isinstance(v, bool) for v in values)
    if mixed or raw.dtype.kind not in "iuf" or raw.ndim != 1:
        raise InvalidInput(field, requirement, values)
    vector = raw.astype(np.float64, copy=False)
    if not 1 <= vector.size <= most:
        raise InvalidInput(field, requirement, values)
    vector.flags.writeable = False
    return vector


def check_orders(orders: Any, *, field: str = "orders") -> Floats:
    """Return strictly increasing Rényi orders in (1, 1e6] as a read-only vector."""
    vector = _vector(field, orders, MAX_ORDERS)
    # No comparison with NaN is true, and none of what rises from 1 to a million is infinite.
    rises = np.count_nonzero(vector[1:] > vector[:-1]) == vector.size - 1
    if not (rises and vector[0] > 1.0 and vector[-1] <= MAX_ORDER):
        raise InvalidInput(field, f"strictly increasing numbers in (1, {MAX_ORDER:g}]", orders)
    return vector
