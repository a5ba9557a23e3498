"""Outward rounding: the direction is always an argument, never a default.

A spend is rounded up, a remaining budget down. ``widen`` moves a result computed in float64 by
a stated number of units in the last place, which covers the evaluation error that the caller
has reasoned about.
"""

import enum
import math
from typing import overload

import numpy as np

from dpledger.accounting.validation import Floats

__all__ = ["Direction", "add", "scale", "widen"]


_quiet = np.errstate(over="ignore", invalid="ignore")
"""An overflow becomes infinity in silence: whoever keeps the result refuses it."""


class Direction(enum.Enum):
    """Which side of the exact value a rounded one must lie on."""

    UP = math.inf
    DOWN = -math.inf


@overload
def widen(value: float, direction: Direction, *, ulps: int) -> float: ...
@overload
def widen(value: Floats, direction: Direction, *, ulps: int) -> Floats: ...
@_quiet
def widen(value: float | Floats, direction: Direction, *, ulps: int) -> float | Floats:
    """Move ``value`` by at least ``ulps`` units in the last place towards ``direction``."""
    sign = 1.0 if direction is Direction.UP else -1.0
    if isinstance(value, np.ndarray):
        moved: Floats = value + (sign * ulps) * np.spacing(np.abs(value))
        return moved
    return math.nextafter(value + sign * ulps * math.ulp(value), direction.value)


@overload
def add(first: float, second: float, direction: Direction) -> float: ...
@overload
def add(first: Floats, second: Floats, direction: Direction) -> Floats: ...
@_quiet
def add(first: float | Floats, second: float | Floats, direction: Direction) -> float | Floats:
    """Sum with one rounding outward; adding an exact zero changes nothing."""
    if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
        total = np.asarray(first + second, dtype=np.float64)
        exact = (np.asarray(first) == 0.0) | (np.asarray(second) == 0.0)
        return np.where(exact, total, np.nextafter(total, direction.value))
    total_ = first + second
    exact_ = first == 0.0 or second == 0.0
    return total_ if exact_ else math.nextafter(total_, direction.value)


@overload
def scale(value: float, times: int, direction: Direction) -> float: ...
@overload
def scale(value: Floats, times: int, direction: Direction) -> Floats: ...
@_quiet
def scale(value: float | Floats, times: int, direction: Direction) -> float | Floats:
    """``times`` repetitions of ``value``, with one rounding outward; once changes nothing."""
    if times == 1:
        return value
    product = value * times
    if isinstance(product, np.ndarray):
        return np.where(product == 0.0, product, np.nextafter(product, direction.value))
    return product if product == 0.0 else math.nextafter(product, direction.value)
