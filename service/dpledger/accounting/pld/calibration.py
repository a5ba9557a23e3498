"""Solve for noise, rate or count so that a repeated step is within (ε, δ) by its privacy-loss distribution.

The search works on rough bounds; soundness does not rest on it. An answer is given only after the plan with
it was found within the target by an upper bound, and is moved to the private side until it is.
"""

import math
from collections.abc import Callable

from dpledger.accounting.errors import InvalidInput, Unreachable
from dpledger.accounting.pld.distribution import TOLERANCE
from dpledger.accounting.pld.plan import PlanLoss
from dpledger.accounting.rounding import Direction
from dpledger.accounting.solving import Ascent, prove_nearby
from dpledger.accounting.steps import Step
from dpledger.accounting.validation import MAX_COUNT, check_count, check_open_unit, check_positive

__all__ = ["PROOF_TOLERANCE", "largest_count", "largest_rate", "least_noise"]

PROOF_TOLERANCE = TOLERANCE
"""Relative tolerance of ε when an answer is proven: that of a composition, so that both agree."""

_SEARCH = 1e-3
_CLOSE = 2e-5
_RANGE = 30.0
_LEAST = 1e-300


def least_noise(
    step_of: Callable[[float], Step], epsilon: float, delta: float, *, times: int, start: float = 1.0
) -> float:
    """The smallest noise for which ``times`` repetitions of ``step_of(noise)`` are within (ε, δ), rounded up.

    Raises
    ------
    Unreachable
        Where no noise within a factor e^30 of ``start`` is enough.
    """
    centre = math.log(check_positive("start", start))
    search = _Search(step_of, epsilon, delta, times, sign=1.0)
    return search.solve(centre, (centre - _RANGE, centre + _RANGE))


def largest_rate(step_of: Callable[[float], Step], epsilon: float, delta: float, *, times: int) -> float:
    """The largest sampling rate for which ``times`` repetitions of ``step_of(rate)`` are within (ε, δ)."""
    search = _Search(step_of, epsilon, delta, times, sign=-1.0)
    if search.holds(1.0):
        return 1.0
    return search.solve(math.log(100.0), (0.0, _RANGE))


def largest_count(step: Step, epsilon: float, delta: float) -> int:
    """The largest number of repetitions of a step, each on a fresh sample, within (ε, δ).

    Raises
    ------
    Unreachable
        Where not even one fits.
    """
    search = _Search(lambda _: step, epsilon, delta, 1, sign=-1.0)
    low, high = 0, 1
    while high < MAX_COUNT and search.count_holds(high, _SEARCH):
        low, high = high, min(_next_count(high, search.last, search.epsilon), MAX_COUNT)
    while high - low > max(1, low // 200):
        middle = (low + high) // 2
        low, high = (middle, high) if search.count_holds(middle, _SEARCH) else (low, middle)
    return _proven_count(search, low)


def _next_count(count: int, found: float, epsilon: float) -> int:
    """ε grows at most like the number of steps and about like its root."""
    ratio = epsilon / max(found, _LEAST)
    return max(count + 1, min(int(count * ratio * ratio * 1.02) + 1, 1000 * count))


def _proven_count(search: "_Search", low: int) -> int:
    """The largest count that a close bound allows, near ``low``."""
    high = low + 1
    width = 1
    while high <= MAX_COUNT and search.count_holds(high, PROOF_TOLERANCE):
        low, high, width = high, high + width, 2 * width
    while low > 0 and high - low == 1 and not search.count_holds(low, PROOF_TOLERANCE):
        low, high = low - 1, low
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if search.count_holds(middle, PROOF_TOLERANCE) else (low, middle)
    if low == 0:
        raise Unreachable(f"one step alone needs ε {search.last:.6g}; the target is {search.epsilon:.6g}")
    return min(low, MAX_COUNT)


class _Search:
    """ε of the plan as a function of the unknown; more of ``sign``·log is more private."""

    def __init__(
        self, step_of: Callable[[float], Step], epsilon: float, delta: float, times: int, *, sign: float
    ) -> None:
        self.step_of, self.sign = step_of, sign
        self.epsilon, self.delta = check_positive("epsilon", epsilon), check_open_unit("delta", delta)
        self.times = check_count("times", times)
        self.last = math.inf

    def spent(self, value: float, tolerance: float) -> float:
        """Upper bound on the plan's ε; infinite where its losses are too large for a grid."""
        try:
            return PlanLoss([(self.step_of(value), self.times)]).epsilon(self.delta, tolerance=tolerance)
        except InvalidInput:
            return math.inf

    def headroom(self, position: float, tolerance: float) -> float:
        """log(ε wanted / ε found)."""
        found = self.spent(math.exp(self.sign * position), tolerance)
        return math.log(self.epsilon) - math.log(max(found, _LEAST)) if found < math.inf else -math.inf

    def holds(self, value: float) -> bool:
        """Forward proof."""
        return self.spent(value, PROOF_TOLERANCE) <= self.epsilon

    def count_holds(self, count: int, tolerance: float) -> bool:
        """Forward proof for a number of steps; what it spends is kept in ``last``."""
        self.last = PlanLoss([(self.step_of(1.0), count)]).epsilon(self.delta, tolerance=tolerance)
        return self.last <= self.epsilon

    def solve(self, start: float, limits: tuple[float, float]) -> float:
        """A value that just meets the target: roughly first, then closely, then proven."""
        ascent = Ascent(*limits, slope=1.0)
        position, _ = ascent.find(lambda at: self.headroom(at, _SEARCH), start, 3.0 * _SEARCH)
        if ascent.high >= limits[1] and self.headroom(limits[1], _SEARCH) < 0.0:
            raise Unreachable(
                f"no value within a factor e^{_RANGE:g} meets ε {self.epsilon:.6g} at δ {self.delta:.6g}"
            )
        close = Ascent(*limits, slope=ascent.slope)
        position, _ = close.find(
            lambda at: self.headroom(at, PROOF_TOLERANCE) - 0.5 * _CLOSE, position, 0.5 * _CLOSE
        )
        towards = Direction.UP if self.sign > 0.0 else Direction.DOWN
        return prove_nearby(math.exp(self.sign * position), self.holds, towards, first_step=_CLOSE)
