"""Inverse problems: find a candidate by bracketing, then prove it by evaluating forward.

Soundness never rests on the root finder. A candidate is only returned after the caller's own
predicate, evaluated with outward rounding, holds for it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpledger.accounting.errors import Unreachable
from dpledger.accounting.rounding import Direction
from dpledger.accounting.validation import Floats

__all__ = ["Ascent", "bracketed_root", "newton_root", "orders_around", "prove_nearby"]

_FIRST_STEP = 2.0**-51
_STEP_GROWTH = 4.0
_MOST_STEPS = 24
_MOST_NEWTON_STEPS = 64
_MOST_ASCENTS = 100
_LONGEST_MOVE = 3.0
_LEAST_SLOPE, _LARGEST_SLOPE = 0.05, 1e6


def bracketed_root(
    function: Callable[[float], float], low: float, high: float, *, relative: float = 1e-14
) -> float:
    """A zero of a function that changes sign between ``low`` and ``high``, or the end nearest to one."""
    at_low, at_high = function(low), function(high)
    if at_low * at_high >= 0.0:
        return low if abs(at_low) <= abs(at_high) else high
    # It loads half of scipy, which a service does after it has started.
    from scipy import optimize

    return float(optimize.brentq(function, low, high, xtol=5e-324, rtol=max(relative, 9e-16)))


def newton_root(function: Callable[[float], tuple[float, float]], start: float) -> float:
    """A zero of a monotone concave function of a positive number, from value and slope.

    From a point at or beyond the zero's private side Newton's steps stay on one side of a concave
    function's zero and converge quadratically; a step never more than quarters or quadruples.
    """
    here = start
    for _ in range(_MOST_NEWTON_STEPS):
        value, slope = function(here)
        if slope == 0.0:
            return here
        there = min(max(here - value / slope, 0.25 * here), 4.0 * here)
        if abs(there - here) <= 1e-15 * here:
            return there
        here = there
    return here


@dataclass
class Ascent:
    """Where a rising function crosses zero: secant steps, kept in a bracket and halved when they stall.

    Parameters
    ----------
    low, high
        Limits of the position; shrunk to a bracket as values come in.
    slope
        A first guess of the function's slope, then the last secant's.
    """

    low: float
    high: float
    slope: float
    _last: tuple[float, float] | None = None
    _sides: int = 0

    def find(self, function: Callable[[float], float], start: float, tolerance: float) -> tuple[float, float]:
        """A position and its value, with a value or a bracket within the tolerance; infinities allowed."""
        here = min(max(start, self.low), self.high)
        value = function(here)
        for _ in range(_MOST_ASCENTS):
            if abs(value) <= tolerance or self.high - self.low <= tolerance:
                break
            there = self._next(here, value)
            if there == here:
                break
            here, value = there, function(there)
        return here, value

    def _next(self, here: float, value: float) -> float:
        stalled = self._record(here, value)
        move = -value / self.slope if math.isfinite(value) else math.copysign(_LONGEST_MOVE, -value)
        there = here + min(max(move, -_LONGEST_MOVE), _LONGEST_MOVE)
        if self._sides == 3 and (stalled or not self.low < there < self.high):
            return 0.5 * (self.low + self.high)
        return min(max(there, self.low), self.high)

    def _record(self, here: float, value: float) -> bool:
        """Shrink the bracket and learn the slope; true where the value did not halve."""
        if value >= 0.0:
            self.high, self._sides = here, self._sides | 1
        else:
            self.low, self._sides = here, self._sides | 2
        last, self._last = self._last, (here, value)
        if last is None or not math.isfinite(value - last[1]):
            return last is not None
        self.slope = min(max((value - last[1]) / (here - last[0]), _LEAST_SLOPE), _LARGEST_SLOPE)
        return abs(value) > 0.5 * abs(last[1])


def prove_nearby(
    value: float, holds: Callable[[float], bool], direction: Direction, *, first_step: float = _FIRST_STEP
) -> float:
    """The first of ``value`` and its growing moves towards ``direction`` for which ``holds`` is true.

    Parameters
    ----------
    value
        A positive candidate, right up to rounding.
    holds
        Proves a value by a forward evaluation that errs towards False.
    direction
        The side on which ``holds`` becomes true.
    first_step
        The first move, relative to the value.
    """
    step, moved = first_step, value
    for _ in range(_MOST_STEPS):
        if holds(moved):
            return moved
        factor = 1.0 + step if direction is Direction.UP else 1.0 / (1.0 + step)
        moved = math.nextafter(moved * factor, direction.value)
        step *= _STEP_GROWTH
    raise Unreachable(f"no value near {value!r} could be proven by forward evaluation")


def orders_around(orders: Floats, index: int, *, points: int) -> Floats:
    """Finer orders between the neighbours of the best one, geometric in α − 1."""
    low = orders[max(index - 1, 0)] - 1.0
    high = orders[min(index + 1, orders.size - 1)] - 1.0
    finer: Floats = 1.0 + np.geomspace(low, high, points)
    return finer
