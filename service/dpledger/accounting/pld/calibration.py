"""Solve for noise, rate or count so that a repeated step is within (ε, δ) by its privacy-loss distribution.

The search works on rough bounds; soundness does not rest on it. An answer is given only after the plan with
it was found within the target by an upper bound, and is moved to the private side until it is.
"""

import math
from collections.abc import Callable, Sequence

from dpledger.accounting.errors import InvalidInput, Unreachable
from dpledger.accounting.pld.catalogue import dominating_pairs
from dpledger.accounting.pld.distribution import TOLERANCE
from dpledger.accounting.pld.plan import PlanLoss
from dpledger.accounting.rounding import Direction
from dpledger.accounting.solving import Ascent, prove_nearby
from dpledger.accounting.steps import Step
from dpledger.accounting.validation import MAX_COUNT, check_count, check_open_unit, check_positive

__all__ = ["PROOF_TOLERANCE", "largest_count", "largest_count_beside", "largest_rate", "least_noise"]

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
    found = largest_count_beside([], step, epsilon, delta)
    if found == 0:
        alone = PlanLoss([(step, 1)]).epsilon(delta, tolerance=PROOF_TOLERANCE)
        raise Unreachable(f"one step alone needs ε {alone:.6g}; the target is {epsilon:.6g}")
    return found


def largest_count_beside(
    parts: Sequence[tuple[Step, int]],
    step: Step,
    epsilon: float,
    delta: float,
    *,
    mu: float = 0.0,
    rho: float = 0.0,
    most: int = MAX_COUNT,
) -> int:
    """The largest number of repetitions, up to ``most``, that fit in (ε, δ) beside what is fixed; 0 if none.

    Statement: ``PlanLoss([*parts, (step, count)], mu=mu, rho=rho).epsilon(delta)`` is at most ε at the
    answer, evaluated as a composition is, so that opening a plan with it fits; one more was found above ε
    or is more than ``most``.
    Conditions: those of :class:`PlanLoss`.
    Source: forward evaluation.
    """
    climb = _Climb(parts, step, epsilon, delta, mu, rho, check_count("most", most))
    if not any(dominating_pairs(step)):
        return most if climb.holds(0, PROOF_TOLERANCE) else 0
    if not climb.holds(1, _SEARCH) and not climb.holds(1, PROOF_TOLERANCE):
        return 0
    guess = climb.roughly()
    return climb.closely(guess)


class _Climb:
    """The count of one item beside fixed ones at which ε is reached: ε² grows about like the count."""

    def __init__(
        self,
        parts: Sequence[tuple[Step, int]],
        step: Step,
        epsilon: float,
        delta: float,
        mu: float,
        rho: float,
        most: int,
    ) -> None:
        self.epsilon, self.delta = check_positive("epsilon", epsilon), check_open_unit("delta", delta)
        self.parts, self.step, self.mu, self.rho = list(parts), step, mu, rho
        self.most = most
        self.low, self.high = (0, 0.0), (self.most + 1, math.inf)
        self.slope = math.inf
        dominating_pairs(step)
        if self.parts or mu or rho:
            self.low = (0, self.spent(0, _SEARCH) ** 2)

    def spent(self, count: int, tolerance: float) -> float:
        """Upper bound on ε; infinite where the losses of so many are too large for a grid."""
        parts = [*self.parts, (self.step, count)] if count else self.parts
        if not parts and not (self.mu or self.rho):
            return 0.0
        try:
            return PlanLoss(parts, mu=self.mu, rho=self.rho).epsilon(self.delta, tolerance=tolerance)
        except InvalidInput:
            if count == 0:
                raise
            return math.inf

    def holds(self, count: int, tolerance: float) -> bool:
        """Forward proof; the bracket and the slope of ε² are kept up."""
        if count > self.most:
            return False
        found = self.spent(count, tolerance)
        within = found <= self.epsilon
        if within:
            self.low = (count, found**2)
        else:
            self.high = (count, found**2)
        if math.isfinite(self.high[1]):
            self.slope = (self.high[1] - self.low[1]) / max(self.high[0] - self.low[0], 1)
        elif count > 0 and math.isfinite(found):
            self.slope = found**2 / count
        return within

    def _ahead(self) -> int:
        """How many more are foreseen to fit above ``low``."""
        left = self.epsilon**2 - self.low[1]
        return int(min(max(left / max(self.slope, _LEAST), 0.0), 1e12))

    def roughly(self) -> int:
        """A count near the answer, by loose bounds."""
        while self.high[0] > self.most and self.low[0] < self.most:
            count = self.low[0]
            there = min(max(count + int(1.02 * self._ahead()), 2 * count), 1000 * count, self.most)
            self.holds(max(there, count + 1), _SEARCH)
        self._shrink(_SEARCH, lambda low: max(1, low // 200))
        return min(self.low[0] + self._ahead(), self.most)

    def closely(self, guess: int) -> int:
        """The largest count near ``guess`` that is proven to fit: one more is not."""
        self.low, self.high = (0, self.low[1]), (self.most + 1, math.inf)
        slope, step = self.slope, 1
        count = max(guess, 1)
        while self.holds(count, PROOF_TOLERANCE) and count < self.most:
            self.slope = slope
            count, step = min(count + max(step, self._ahead()), self.most), 2 * step
        while self.low[0] == 0 and count > 1 and not self.holds(max(count - step, 1), PROOF_TOLERANCE):
            count, step = max(count - step, 1), 2 * step
        self._shrink(PROOF_TOLERANCE, lambda low: 1)
        return self.low[0]

    def _shrink(self, tolerance: float, width: Callable[[int], int]) -> None:
        """Narrow the bracket: along the chord of ε², and by halves every other time."""
        halve = False
        while self.high[0] - self.low[0] > width(self.low[0]):
            low, high = self.low[0], self.high[0]
            there = (low + high) // 2 if halve else low + max(self._ahead(), 1)
            self.holds(min(max(there, low + 1), high - 1), tolerance)
            halve = not halve


class _Search:
    """ε of the plan as a function of the unknown; more of ``sign``·log is more private."""

    def __init__(
        self, step_of: Callable[[float], Step], epsilon: float, delta: float, times: int, *, sign: float
    ) -> None:
        self.step_of, self.sign = step_of, sign
        self.epsilon, self.delta = check_positive("epsilon", epsilon), check_open_unit("delta", delta)
        self.times = check_count("times", times)

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
