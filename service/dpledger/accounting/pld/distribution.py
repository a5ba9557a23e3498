"""The privacy loss distribution of a composition, between proven bounds."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpledger.accounting.errors import InvalidInput
from dpledger.accounting.pld.cells import ROUNDING, Cells
from dpledger.accounting.pld.discretization import (
    Dominating,
    connect_the_dots,
    even_edges,
    merged_cells,
)
from dpledger.accounting.pld.moments import Cumulants, Shape
from dpledger.accounting.pld.pairs import DominatingPair
from dpledger.accounting.pld.transform import Factor, Sum, good_size, tilted_sum
from dpledger.accounting.validation import Floats, check_count, check_non_negative, check_open_unit

__all__ = ["PROFILE_TOLERANCE", "TOLERANCE", "Interval", "PrivacyLossDistribution"]

TOLERANCE = 2e-5
"""Default relative gap between the upper bound on ε and the truth."""

PROFILE_TOLERANCE = 2e-4
"""The same for a curve, which is looked at rather than spent against."""

_TRUNCATED = 1e-6
"""Share of δ that truncation may take."""
_MOST_POINTS = 1 << 20
_MOST_REFINEMENTS = 4
_FEW_DRAWS = 64
_SMALL = 1 << 14
_TINY = 1e-300
_NEAR_ZERO = 0.02
"""An ε below this share of the loss's deviation is not resolved relative to itself."""
_LARGEST_EXPONENT = 600.0
_LEAST_DELTA = 1e-280
_MOST_DRAWS = 10**15
_PROFILE_TILTS = 3
"""Compositions per profile: one is right to rounding within some eight deviations of its tilted mean."""


@dataclass(frozen=True)
class Interval:
    """A number between proven bounds."""

    lower: float
    upper: float


@dataclass(frozen=True)
class _Grid:
    """A width of cells, the shape it was chosen for, and what may be cut off.

    ``mass`` may be cut off on either side of one step; above the mean of ``end`` the whole sum is cut
    off, and for lower bounds below the loss of ``begin``, with the tilt that shows how little that is.
    """

    width: float
    shape: Shape
    end: Shape
    begin: tuple[float, float]
    mass: float


class PrivacyLossDistribution:
    """The composition of dominating pairs, each repeated a number of times, in one direction of neighbours.

    Statement: if item i's pair dominates each of ``times`` steps, the product of all pairs dominates their
    adaptive composition, in any order and with early stopping, and δ(ε) is its hockey-stick divergence
    E_P[(1 − e^(ε−L))₊] with L the sum of losses. ``upper`` and ``lower`` bounds on it come from
    :func:`~dpledger.accounting.pld.discretization.connect_the_dots` and
    :func:`~dpledger.accounting.pld.discretization.merged_cells`.
    Conditions: items and counts fixed in advance; one direction and adjacency throughout.
    Source: Zhu, Dong, Wang 2022, Theorem 10; Vadhan, Zhang 2023; Koskela, Jälkö, Honkela 2020 and Gopi, Lee,
    Wutschitz 2021 for the Fourier method.

    Parameters
    ----------
    items
        Pairs with the number of times each is used.
    """

    def __init__(self, items: Sequence[tuple[DominatingPair, int]]) -> None:
        self.items = tuple((pair, check_count("times", times, most=_MOST_DRAWS)) for pair, times in items)
        self._cells: dict[tuple[DominatingPair, float, float], Cells] = {}
        self._rough: dict[float, tuple[Cumulants, _Grid]] = {}
        if not self.items:
            raise InvalidInput("items", "at least one", 0)

    @property
    def draws(self) -> int:
        """How many losses are added up."""
        return sum(times for _, times in self.items)

    def epsilon(self, delta: float, *, tolerance: float = TOLERANCE) -> float:
        """Upper bound on the ε ≥ 0 with δ(ε) ≤ ``delta``, about ``tolerance`` (relative) from the least.

        Infinite where more than ``delta`` of the outcomes have an infinite loss.
        """
        delta = check_open_unit("delta", delta)
        if self._at_zero <= delta:
            return 0.0
        return self._epsilon(delta, self._grid_for_delta(delta, tolerance))

    def epsilon_bounds(self, delta: float, *, tolerance: float = TOLERANCE) -> Interval:
        """Both bounds on ε at ``delta``, refined until they are within ``tolerance`` (relative)."""
        delta = check_open_unit("delta", delta)
        if self._at_zero <= delta:
            return Interval(0.0, 0.0)
        grid = self._grid_for_delta(delta, tolerance)
        lower, upper = 0.0, math.inf
        for _ in range(_MOST_REFINEMENTS):
            upper = min(upper, self._epsilon(delta, grid))
            if upper < math.inf:
                lower = max(lower, self._lower_epsilon(delta, grid))
            gap = upper - lower
            if gap <= tolerance * upper or upper == math.inf or self._size(grid) >= _MOST_POINTS // 8:
                break
            grid = _finer(grid, tolerance * upper / gap)
        return Interval(lower, upper)

    def delta(self, epsilon: float, *, tolerance: float = TOLERANCE) -> float:
        """Upper bound on δ(ε) for ε ≥ 0."""
        epsilon = check_non_negative("epsilon", epsilon)
        return self._delta(epsilon, self._grid_for_epsilon(epsilon, tolerance))

    def profile(self, epsilons: Floats, *, tolerance: float = PROFILE_TOLERANCE) -> Floats:
        """Upper bounds on δ at each of ``epsilons`` ≥ 0, from a composition at each of a few tilts."""
        least, most = float(epsilons.min()), float(epsilons.max())
        anchors = np.unique(np.linspace(least, most, _PROFILE_TILTS))
        tails = (self._upper(self._grid_for_epsilon(at, tolerance), least) for at in anchors.tolist())
        found: Floats = np.minimum.reduce([tail.deltas(epsilons) for tail in tails])
        return found

    def delta_bounds(self, epsilon: float, *, tolerance: float = TOLERANCE) -> Interval:
        """Both bounds on δ(ε)."""
        epsilon = check_non_negative("epsilon", epsilon)
        grid = self._grid_for_epsilon(epsilon, tolerance)
        return Interval(self._lower_delta(epsilon, grid), self._delta(epsilon, grid))

    @functools.cached_property
    def _at_zero(self) -> float:
        """Upper bound on δ(0): total variation adds up."""
        return sum(times * _total_variation(pair) for pair, times in self.items)

    def _grid_for_delta(self, delta: float, tolerance: float) -> _Grid:
        if delta not in self._rough:
            mass = _TRUNCATED * delta / self.draws
            cumulants = Cumulants(self.items, mass)
            shape = cumulants.for_delta(math.log(delta))
            self._rough = {delta: (cumulants, _rough_grid(cumulants, shape, mass))}
        cumulants, grid = self._rough[delta]
        return self._grid(cumulants, grid, _foreseen_epsilon(grid.shape), tolerance)

    def _grid_for_epsilon(self, epsilon: float, tolerance: float) -> _Grid:
        rough = Cumulants(self.items, 1e-12 / self.draws).for_epsilon(epsilon)
        log_delta = min(rough.log_moment - rough.tilt * epsilon - rough.log_prefactor(), 0.0)
        delta = math.exp(max(log_delta, math.log(_LEAST_DELTA)))
        mass = _TRUNCATED * delta / self.draws
        cumulants = Cumulants(self.items, mass)
        shape = cumulants.for_epsilon(epsilon)
        return self._grid(cumulants, _rough_grid(cumulants, shape, mass), epsilon, tolerance)

    def _grid(self, cumulants: Cumulants, grid: _Grid, epsilon: float, tolerance: float) -> _Grid:
        """A width for which the upper bound is about ``tolerance``·ε above the truth.

        A cell's spread adds a variance of h²/6 to one loss, so ε rises by half the variance added to the
        sum over :meth:`Shape.sensitivity`. Where losses are atoms, sums blur by h times the root of their
        number.
        """
        shape = grid.shape
        allowed = tolerance * max(epsilon, _NEAR_ZERO * shape.deviation)
        width = math.sqrt(12.0 * allowed * shape.sensitivity() / self.draws)
        lumps = [pair for pair, _ in self.items if pair.atomic]
        if lumps and self.draws <= _FEW_DRAWS:
            width = min(width, 4.0 * allowed / math.sqrt(self.draws))
        width = max(min(width, self._narrowest(cumulants, shape)), 1e-300)
        if lumps and abs(lumps[0].anchor) > width:  # both ends of a symmetric support on the grid
            width = 2.0 * abs(lumps[0].anchor) / math.ceil(2.0 * abs(lumps[0].anchor) / width)
        grid = replace(grid, width=width)
        while self._size(grid) > _MOST_POINTS:
            grid = replace(grid, width=2.0 * grid.width)
        return self._checked_blur(grid, allowed)

    def _narrowest(self, cumulants: Cumulants, shape: Shape) -> float:
        """Half of an item's deviation, weighed by its part in the variance."""
        deviations = np.maximum(cumulants.deviations(shape.tilt), 1e-300)
        shares = np.array([times for _, times in self.items]) * deviations**2 / max(shape.variance, 1e-300)
        return float((0.5 * deviations / np.maximum(np.sqrt(shares), 0.05)).min())

    def _checked_blur(self, grid: _Grid, allowed: float) -> _Grid:
        """Refine where the variance that the grid really adds is larger than foreseen."""
        for _ in range(_MOST_REFINEMENTS):
            added = sum(times * _blur(part, grid) for part, times in self._dominating(grid))
            foreseen = 0.5 * added / max(grid.shape.sensitivity(), 1e-300)
            if foreseen <= 1.5 * allowed or self._size(grid) > _MOST_POINTS // 2:
                break
            grid = replace(grid, width=grid.width * max(0.9 * math.sqrt(allowed / foreseen), 0.1))
        return grid

    def _size(self, grid: _Grid) -> float:
        """Points that the largest step's own grid has."""
        spans = (pair.span(grid.mass) for pair, _ in self.items)
        return max((high - low) / grid.width for low, high in spans)

    def _cell(self, index: int, grid: _Grid, *, lower: bool = False) -> Cells:
        pair = self.items[index][0]
        pair = pair.dominated if lower and pair.dominated != pair else pair
        key = (pair, grid.width, grid.mass)
        if key not in self._cells:
            edges = even_edges(*pair.span(grid.mass), pair.anchor, grid.width)
            if len(self._cells) > 4 * len(self.items):
                self._cells.clear()
            self._cells[key] = pair.cells(edges)
        return self._cells[key]

    def _dominating(self, grid: _Grid) -> list[tuple[Dominating, int]]:
        return [
            (connect_the_dots(self._cell(index, grid)), times) for index, (_, times) in enumerate(self.items)
        ]

    def _upper(self, grid: _Grid, floor: float) -> "_Tail":
        parts = self._dominating(grid)
        origin = math.fsum(times * part.origin for part, times in parts)
        infinite = -math.expm1(sum(times * math.log1p(-min(part.infinite, 0.5)) for part, times in parts))
        factors = [Factor(part.masses, times) for part, times in parts]
        log_error = sum(times * part.log_error for part, times in parts)
        window = _Window.of(grid, origin, factors, floor=floor)
        sum_ = tilted_sum(factors, grid.shape.tilt * grid.width, window.first, window.size)
        beyond = _beyond(factors, sum_, grid)
        return _Tail.of(sum_, grid, origin, log_error, infinite * (1.0 + 1e-12) + beyond, floor)

    def _epsilon(self, delta: float, grid: _Grid) -> float:
        shape = grid.shape
        guess = shape.mean - shape.log_prefactor() / max(shape.tilt, 1e-300) - 0.5 * shape.deviation
        floor = max(guess, 0.0)
        found = self._upper(grid, floor).epsilon(delta)
        # At most the floor: the answer may lie below it.
        return self._upper(grid, 0.0).epsilon(delta) if 0.0 < found <= floor else found

    def _delta(self, epsilon: float, grid: _Grid) -> float:
        return self._upper(grid, epsilon).delta(epsilon)

    def _lower_epsilon(self, delta: float, grid: _Grid) -> float:
        return self._lower(grid).epsilon(delta)

    def _lower_delta(self, epsilon: float, grid: _Grid) -> float:
        return self._lower(grid).delta(epsilon)

    def _lower(self, grid: _Grid) -> "_Test":
        parts = [
            (merged_cells(self._cell(index, grid, lower=True)), times)
            for index, (_, times) in enumerate(self.items)
        ]
        origin = math.fsum(
            times * float(self._cell(index, grid, lower=True).edges[0])
            for index, (_, times) in enumerate(self.items)
        )
        log_error = sum(times * part.log_error for part, times in parts)
        infinite = -math.expm1(sum(times * math.log1p(-part.infinite) for part, times in parts))
        tilt = grid.shape.tilt * grid.width
        p = [Factor(part.p, times) for part, times in parts]
        window = _Window.of(grid, origin + 0.5 * grid.width * self.draws, p)
        q = [Factor(part.q, times) for part, times in parts]
        sums = (
            tilted_sum(p, tilt, window.first, window.size),
            tilted_sum(q, tilt + grid.width, window.first, window.size),
        )
        return _Test.of(p, q, sums, log_error, infinite, grid)


def _total_variation(pair: DominatingPair) -> float:
    """Upper bound on H₁ = Σ(P − Q)₊."""
    high = pair.span(1e-15)[1]
    if high <= 0.0:
        return 1.0
    cells = pair.cells(np.array([-high, 0.0, high]))
    seen = float(cells.excess[1] + cells.excess_error[1]) + cells.high[0] + cells.infinite[0]
    return seen * (1.0 + 1e-6)


def _foreseen_epsilon(shape: Shape) -> float:
    """ε as the saddle point has it."""
    return max(shape.mean - shape.log_prefactor() / max(shape.tilt, 1e-300), 0.0)


def _rough_grid(cumulants: Cumulants, shape: Shape, mass: float) -> _Grid:
    end, begin = (
        cumulants.beyond(shape, math.log(_TRUNCATED)),
        cumulants.begin(shape, 2.0 * math.log(_TRUNCATED)),
    )
    return _Grid(0.0, shape, end, begin, mass)


def _finer(grid: _Grid, ratio: float) -> _Grid:
    return replace(grid, width=grid.width * min(max(0.8 * math.sqrt(ratio), 0.05), 0.7))


def _blur(part: Dominating, grid: _Grid) -> float:
    """The tilted variance that a step's grid adds."""
    tilt = grid.shape.tilt * grid.width
    index = np.arange(part.masses.size)
    weights = np.exp(tilt * (index - index[-1]))
    total = float((part.masses * weights).sum())
    return float((part.blur * weights).sum()) / total if total > 0.0 else 0.0


@dataclass(frozen=True)
class _Window:
    """The indices of the sum that are kept apart; others fold onto them."""

    first: int
    size: int

    @classmethod
    def of(
        cls, grid: _Grid, origin: float, factors: Sequence[Factor], *, floor: float | None = None
    ) -> "_Window":
        """For upper bounds from ``floor`` on; without one for lower bounds, which need more room."""
        shape = grid.shape
        deviation = max(shape.deviation, grid.width)
        above = max(grid.end.mean - shape.mean, 0.0) + 2.0 * grid.width
        if floor is None:
            below, above = shape.mean - grid.begin[0], max(1.2 * above, 9.0 * deviation)
        else:
            below = max(_reach_below(shape, deviation, above), shape.mean - floor + 2.0 * grid.width)
        length = sum(factor.times * (factor.masses.size - 1) for factor in factors) + 1
        start = shape.mean - below - origin
        first = math.floor(start / grid.width) if start > 0.0 else 0
        last = (
            min(math.ceil((shape.mean + above - origin) / grid.width) + 8, length)
            if above < math.inf
            else length
        )
        size = good_size(max(last - first, 8))
        if length <= max(_SMALL, 2 * size):
            return cls(0, good_size(length))
        return cls(first, min(size, good_size(8 * _MOST_POINTS)))


def _reach_below(shape: Shape, deviation: float, above: float) -> float:
    """How far below the tilted mean ε is, and what folds back onto losses near ε is slight."""
    offset = shape.log_prefactor() / shape.tilt if shape.tilt > 0.0 else 0.0
    rate = shape.tilt * deviation
    gaussian = 5.5 * deviation
    folded = deviation * (0.5 * rate + 14.0 / max(rate, 1e-9)) - above
    return max(offset + deviation, min(gaussian, folded if rate > 1.0 else gaussian))


def _log_tail(factors: Sequence[Factor], tilt: float, index: float) -> float:
    """log of Chernoff's bound e^(−tilt·index)·Π moments^times on the mass beyond ``index``, rounded up."""
    total, size = -tilt * index, abs(tilt * index)
    for factor in factors:
        exponents = tilt * np.arange(factor.masses.size)
        top = float(exponents[-1]) if tilt > 0.0 else 0.0
        moment = float((factor.masses * np.exp(exponents - top)).sum())
        logs = factor.times * (math.log(moment) + top) if moment > 0.0 else -math.inf
        total += logs
        size += factor.times * (abs(top) + 8.0 + math.log2(factor.masses.size + 1.0)) + abs(logs)
    return total + 8.0 * ROUNDING * size if total > -math.inf else total


def _beyond(factors: Sequence[Factor], found: Sum, grid: _Grid) -> float:
    """Upper bound on the mass above the window, where the window is not everything."""
    if found.end >= found.length:
        return 0.0
    logs = _log_tail(factors, grid.end.tilt * grid.width, found.end)
    return math.exp(min(logs, 0.0)) * (1.0 + 1e-12)


@dataclass(frozen=True)
class _Tail:
    """Losses above 0 of a measure that dominates, with tail sums of P and of Q = e^(−loss)·P."""

    losses: Floats
    masses: Floats
    extra: float
    floor: float

    @classmethod
    def of(
        cls, found: Sum, grid: _Grid, origin: float, log_error: float, extra: float, floor: float
    ) -> "_Tail":
        """The part above ``floor`` ≥ 0, which suffices for every ε ≥ floor.

        With a tilt the window must reach down to the floor: what folds from below it weighs too little.
        """
        width, count = grid.width, found.values.size
        last = found.first + count - 1
        reach = max(abs(found.first), abs(last))
        shift = origin + 4.0 * ROUNDING * (abs(origin) + width * reach)
        if found.tilt > 0.0 and found.first > 0:
            floor = max(floor, shift + width * found.first)
        start = min(max(math.floor((floor - shift) / width) + 1 - found.first, 0), count)
        size = abs(found.log_scale) + abs(found.tilt) * reach + 8.0
        top = found.log_scale + log_error + found.log_error + 8.0 * ROUNDING * size
        if found.tilt > 0.0:  # below, weights are no floats: no ε below is claimed
            held = math.ceil((top - _LARGEST_EXPONENT) / found.tilt) - found.first
            if held > start:
                start, floor = held, max(floor, shift + width * (found.first + held))
        index = np.arange(found.first + start, last + 1, dtype=np.float64)
        values = np.maximum(found.values[start:], 0.0) + found.error
        return cls(shift + width * index, values * np.exp(top - found.tilt * index), extra, floor)

    def epsilon(self, delta: float) -> float:
        """The least ε ≥ 0 with δ(ε) ≤ delta: the largest log((A − δ)/B) over half-lines of losses."""
        left = delta * (1.0 - 4.0 * ROUNDING) - self.extra
        if left <= 0.0:
            return math.inf
        if not self.losses.size:
            return self.floor
        p = np.cumsum(self.masses[::-1])[::-1]
        reference = float(self.losses[0])
        q = np.cumsum((self.masses * np.exp(reference - self.losses))[::-1])[::-1]
        slack = ROUNDING * (16.0 + 2.0 * self.losses.size)
        over = p * (1.0 + slack) - left
        some = over > 0.0
        if not some.any():
            return self.floor
        # Where e^(−loss) is no float, log(A/B) is at most the largest loss.
        seen = q[some] > _TINY
        ratio = np.log(over[some][seen] / (q[some][seen] * (1.0 - slack)))
        largest = (
            float(ratio.max(initial=-math.inf if seen.all() else float(self.losses[-1]) - reference))
            + reference
        )
        size = abs(reference) + float(self.losses[-1]) + 1.0
        return max(largest + 8.0 * ROUNDING * size, self.floor)

    def delta(self, epsilon: float) -> float:
        """Upper bound on δ(ε)."""
        if epsilon < self.floor:
            return 1.0
        above = self.losses > epsilon
        share = -np.expm1(epsilon - self.losses[above])
        total = float((self.masses[above] * share).sum())
        return min(total * (1.0 + ROUNDING * (16.0 + 2.0 * self.losses.size)) + self.extra, 1.0)

    def deltas(self, epsilons: Floats) -> Floats:
        """Upper bounds on δ at each ε: A − e^ε·B over the losses above it, with the rounding of both sums."""
        if not self.losses.size:
            return np.where(epsilons < self.floor, 1.0, np.minimum(self.extra, 1.0))
        index = np.searchsorted(self.losses, epsilons, side="right")
        reference = float(self.losses[0])
        p = np.append(np.cumsum(self.masses[::-1])[::-1], 0.0)[index]
        weights = self.masses * np.exp(reference - self.losses)
        q = np.append(np.cumsum(weights[::-1])[::-1], 0.0)[index]
        slack = ROUNDING * (32.0 + 4.0 * self.losses.size + 4.0 * np.abs(epsilons - reference))
        found = p * (1.0 + slack) - q * np.exp(np.minimum(epsilons - reference, 700.0)) * (1.0 - slack)
        bounds: Floats = np.where(epsilons < self.floor, 1.0, np.minimum(found + self.extra, 1.0))
        return bounds


@dataclass(frozen=True)
class _Test:
    """Lower bounds on P(T > t) and upper bounds on Q(T > t) for a statistic T, by t."""

    p: Floats
    q: Floats
    infinite: float

    @classmethod
    def of(
        cls,
        p: Sequence[Factor],
        q: Sequence[Factor],
        sums: tuple[Sum, Sum],
        log_error: float,
        infinite: float,
        grid: _Grid,
    ) -> "_Test":
        under_p, under_q = sums
        index = under_p.first + np.arange(under_p.values.size, dtype=np.float64)
        weights = _weights(under_p, index, -log_error)
        values: Floats = under_p.values - under_p.error
        outside = 0.0
        if under_p.folded:
            outside = _outside(p, under_p, grid)
            if under_p.end < under_p.length:
                weights[: _start(under_p, grid)] = 0.0
        shown: Floats = np.cumsum((np.maximum(values, 0.0) * weights)[::-1])[::-1]
        slack = ROUNDING * (16.0 + 2.0 * index.size)
        shown = np.where(weights > 0.0, shown * (1.0 - slack) - outside * weights, 0.0)
        hidden = (np.maximum(under_q.values, 0.0) + max(under_q.error, _TINY)) * _weights(
            under_q, index, log_error
        )
        hidden = np.cumsum(hidden[::-1])[::-1] * (1.0 + slack)
        if under_q.end < under_q.length:
            further = (grid.end.tilt + 1.0) * grid.width
            hidden = hidden + math.exp(min(_log_tail(q, further, under_q.end), 0.0)) * (1.0 + 1e-12)
        return cls(np.maximum(shown, 0.0), hidden, infinite * (1.0 - 1e-12))

    def epsilon(self, delta: float) -> float:
        """The largest ε for which some t shows δ(ε) > delta; 0 if none does."""
        over = self.p + self.infinite - delta * (1.0 + 4.0 * ROUNDING)
        some = (over > 0.0) & (self.q > 0.0) & np.isfinite(self.q)
        if not some.any():
            return 0.0
        return max(float(np.log(over[some] / self.q[some]).max()) * (1.0 - 1e-15) - 1e-15, 0.0)

    def delta(self, epsilon: float) -> float:
        """Lower bound on δ(ε)."""
        if epsilon > _LARGEST_EXPONENT:
            return self.infinite
        finite = np.isfinite(self.q)
        best = float((self.p[finite] - math.exp(epsilon) * (1.0 + 1e-14) * self.q[finite]).max(initial=0.0))
        return max(best * (1.0 - 1e-14), 0.0) + self.infinite


def _weights(found: Sum, index: Floats, log_error: float) -> Floats:
    """e^(log_scale − tilt·index), moved by the errors towards the sign of ``log_error``."""
    sign = math.copysign(1.0, log_error)
    size = abs(found.log_scale) + abs(found.tilt) * np.abs(index) + 8.0
    exponents = found.log_scale - found.tilt * index + log_error
    exponents += sign * (found.log_error + 8.0 * ROUNDING * size)
    weights: Floats = np.where(exponents < _LARGEST_EXPONENT, np.exp(np.minimum(exponents, 700.0)), np.inf)
    return weights if sign > 0.0 else np.where(np.isinf(weights), 0.0, weights)


def _start(found: Sum, grid: _Grid) -> int:
    """Where in the window a test of interest may begin: a deviation below the ε that is looked for."""
    shape = grid.shape
    back = shape.log_prefactor() / shape.tilt if shape.tilt > 0.0 else 0.0
    above = (shape.mean - back - shape.deviation - grid.begin[0]) / grid.width
    return int(min(max(above, 0.0), 0.75 * found.values.size))


def _outside(factors: Sequence[Factor], found: Sum, grid: _Grid) -> float:
    """Upper bound on the tilted mass that folds onto the window from :func:`_start` on.

    From above the window that is what lies as far beyond its end, from below everything.
    """
    base, folded = -found.log_scale + found.log_error, 0.0
    step = grid.width / max(grid.shape.deviation, grid.width)
    if found.first > 0:
        below = _log_tail(factors, grid.begin[1] * grid.width, found.first) + found.tilt * found.first + base
        folded += math.exp(min(below, 0.0))
    end = found.end + _start(found, grid)
    if end < found.length:
        tilts = (grid.end.tilt * grid.width, found.tilt + 3.0 * step, found.tilt + 6.0 * step)
        above = min(_log_tail(factors, tilt, end) for tilt in tilts) + found.tilt * end + base
        folded += math.exp(min(above, 0.0))
    return folded * (1.0 + 1e-9)
