"""Checks shared by the descriptions; the service checks again, and its word counts."""

import math
from collections.abc import Iterable
from typing import Any

__all__ = [
    "check_choice",
    "check_count",
    "check_flag",
    "check_non_negative",
    "check_numbers",
    "check_open_unit",
    "check_positive",
    "check_rate",
]


def check_positive(field: str, value: float) -> float:
    """Return ``value`` as a float if it is finite and above zero."""
    number = _number(field, value)
    if not (math.isfinite(number) and number > 0.0):
        raise ValueError(f"{field} must be a finite number above 0, found {value!r}")
    return number


def check_non_negative(field: str, value: float) -> float:
    """Return ``value`` as a float if it is finite and at least zero."""
    number = _number(field, value)
    if not (math.isfinite(number) and number >= 0.0):
        raise ValueError(f"{field} must be a finite number at least 0, found {value!r}")
    return abs(number)  # -0.0 becomes 0.0, as in the service


def check_rate(field: str, value: float) -> float:
    """Return ``value`` as a float if it is in [0, 1]."""
    number = _number(field, value)
    if not 0.0 <= number <= 1.0:
        raise ValueError(f"{field} must be a number in [0, 1], found {value!r}")
    return abs(number)


def check_open_unit(field: str, value: float) -> float:
    """Return ``value`` as a float if it is in (0, 1)."""
    number = _number(field, value)
    if not 0.0 < number < 1.0:
        raise ValueError(f"{field} must be a number in (0, 1), found {value!r}")
    return number


def check_count(field: str, value: int, least: int = 1) -> int:
    """Return ``value`` if it is an integer of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{field} must be an integer, found {value!r}")
    if value < least:
        raise ValueError(f"{field} must be at least {least}, found {value!r}")
    return value


def check_choice(field: str, value: str, choices: Iterable[str]) -> str:
    """Return ``value`` if it is one of ``choices``."""
    allowed = list(choices)
    if value not in allowed:
        raise ValueError(f"{field} must be one of {', '.join(allowed)}, found {value!r}")
    return value


def check_flag(field: str, value: bool) -> bool:
    """Return ``value`` if it is True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{field} must be True or False, found {value!r}")
    return value


def check_numbers(field: str, values: Iterable[float]) -> tuple[float, ...]:
    """Return ``values`` as floats if all are finite and at least zero, and there is one."""
    numbers = tuple(check_non_negative(field, value) for value in values)
    if not numbers:
        raise ValueError(f"{field} must hold at least one number")
    return numbers


def _number(field: str, value: Any) -> float:
    if isinstance(value, bool):
        raise TypeError(f"{field} must be a number, found {value!r}")
    try:
        return float(value)
    except OverflowError:
        return math.inf
