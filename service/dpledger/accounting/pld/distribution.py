"""The privacy loss distribution of a composition, between proven bounds."""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpledger.accounting.errors import InvalidInput
from dpledger.accounting.pld.cells import ROUNDING, Cells
from dpledger.accounting.pld.direct import DIRECT_DRAWS, FEW_TERMS, MANY_TERMS, UNDERFLOW, count_terms
from dpledger.accounting.pld.discretization import (
    Dominating,
    Levels,
    connect_the_dots,
    even_edges,
    graded_edges,
    infinite_mass,
    merged_cells,
)
from dpledger.accounting.pld.moments import Cumulants, Shape
from dpledger.accounting.pld.pairs import AtomicPair, DominatingPair
from dpledger.accounting.pld.transform import (
    Factor,
    Spectrum,
    Sum,
    good_size,
    tilt_factor,
    tilted_spectrum,
    tilted_sum,
)
from dpledger.accounting.validation import Floats, check_count, check_non_negative, check_open_unit

__all__ = ["BOUNDS_TOLERANCE", "PROFILE_TOLERANCE", "TOLERANCE", "Interval", "PrivacyLossDistribution"]

TOLERANCE = 3e-6
"""Default relative gap between the upper bound on ε and the truth."""

BOUNDS_TOLERANCE = 2e-5
"""The same between an upper and a lower bound, which costs more to narrow."""

PROFILE_TOLERANCE = 2e-4
"""The same for a curve, which is looked at rather than spent against."""

_TRUNCATED = 1e-6
"""Share of δ that truncation may take."""
_MOST_POINTS = 1 << 20
_MOST_SUMMED = 1 << 22
_MOST_HELD = 1 << 21
"""Points of all items' grids together, where each is held evenly: some 40 bytes for each."""
_MOST_REFINEMENTS = 4
_FEW_DRAWS = DIRECT_DRAWS
_ROUNDED = 1e-5
"""Share of ε that the rounding of a transform may take before few losses are added up term by term."""
_MOST_DOUBLINGS = 6
_SMALL = 1 << 14
_TINY = 1e-300
_NEAR_ZERO = 0.02
"""An ε below this share of the loss's deviation is at first not resolved relative to itself."""
_LARGEST_EXPONENT = 600.0
_LEAST_DELTA = 1e-280
_MOST_DRAWS = 10**15
_MOST_STEPS = 60
_GRADED = 1.3
"""How much variance wider cells far out may add, relative to even ones."""
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

    ``mass`` may be cut off on either side of one step; above the mean of ``end`` the whole sum is cut off.
    """

    width: float
    shape: Shape
    end: Shape
    mass: float
    cumulants: Cumulants

    @classmethod
    def rough(cls, cumulants: Cumulants, shape: Shape, mass: float) -> "_Grid":
        """Without a width yet."""
        return cls(0.0, shape, cumulants.beyond(shape, math.log(_TRUNCATED)), mass, cumulants)

    @property
    def fold(self) -> float:
        """The length of a window at which what folds from below weighs e^−14 of δ."""
        return (14.0 - _log_delta(self.shape)) / max(self.shape.tilt, 1e-300)

    @functools.cached_property
    def begin(self) -> tuple[float, float]:
        """For lower bounds: a loss below which the sum is cut off, and the tilt that shows it is slight."""
        return self.cumulants.begin(self.shape, 2.0 * math.log(_TRUNCATED))


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
        self._rough: dict[float, _Grid] = {}
        self._parts: tuple[_Grid | None, list[tuple[Dominating, int]]] = (None, [])
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
        grid = self._grid_for_delta(delta, tolerance)
        found = self._epsilon(delta, grid)
        resolved = _NEAR_ZERO * grid.shape.deviation
        if 0.0 < found < resolved and self._size(finer := _finer(grid, found / resolved)) <= _MOST_POINTS:
            found = min(found, self._epsilon(delta, finer))
        return found

    def epsilon_bounds(self, delta: float, *, tolerance: float = BOUNDS_TOLERANCE) -> Interval:
        """Both bounds on ε at ``delta``, refined until they are within ``tolerance`` (relative)."""
        delta = check_open_unit("delta", delta)
        if self._at_zero <= delta:
            return Interval(0.0, 0.0)
        grid = first = self._grid_for_delta(delta, tolerance)
        lower, upper = 0.0, math.inf
        for _ in range(_MOST_REFINEMENTS):
            upper = min(upper, self._epsilon(delta, grid))
            if upper < math.inf:
                lower = max(lower, self._lower_epsilon(delta, grid))
            gap = upper - lower
            if gap <= tolerance * upper or upper == math.inf or self._size(grid) >= _MOST_POINTS // 8:
                break
            grid = _finer(grid, tolerance * upper / gap)
        if tolerance * upper < upper - lower < math.inf and self._is_short(first):
            lower = max(lower, self._direct_lower_epsilon(delta, first))
            upper = min(upper, self.epsilon(delta))
        return Interval(lower, upper)

    def delta(self, epsilon: float, *, tolerance: float = TOLERANCE) -> float:
        """Upper bound on δ(ε) for ε ≥ 0."""
        epsilon = check_non_negative("epsilon", epsilon)
        return self._delta(epsilon, self._grid_for_epsilon(epsilon, tolerance))

    def profile(self, epsilons: Floats, *, tolerance: float = PROFILE_TOLERANCE) -> Floats:
        """Upper bounds on δ at each of ``epsilons`` ≥ 0, from a composition at each of a few tilts."""
        least, most = float(epsilons.min()), float(epsilons.max())
        anchors = np.unique(np.linspace(least, most, _PROFILE_TILTS))
        grids = (self._grid_for_epsilon(at, tolerance) for at in anchors.tolist())
        found: Floats = np.minimum.reduce([self._tail(grid, least).deltas(epsilons) for grid in grids])
        return found

    def delta_bounds(self, epsilon: float, *, tolerance: float = BOUNDS_TOLERANCE) -> Interval:
        """Both bounds on δ(ε)."""
        epsilon = check_non_negative("epsilon", epsilon)
        grid = self._grid_for_epsilon(epsilon, tolerance)
        return Interval(self._lower_delta(epsilon, grid), self._delta(epsilon, grid))

    @functools.cached_property
    def _at_zero(self) -> float:
        """Upper bound on δ(0): total variation adds up."""
        return sum(times * _total_variation(pair) for pair, times in self.items)

    def _rough_for_delta(self, delta: float) -> _Grid:
        if delta not in self._rough:
            mass = _TRUNCATED * delta / self.draws
            cumulants = Cumulants(self.items, mass)
            self._rough = {delta: _Grid.rough(cumulants, cumulants.for_delta(math.log(delta)), mass)}
        return self._rough[delta]

    def _grid_for_delta(self, delta: float, tolerance: float) -> _Grid:
        grid = self._rough_for_delta(delta)
        return self._grid(grid, _foreseen_epsilon(grid.shape), tolerance)

    def foreseen_epsilon(self, delta: float) -> float:
        """About what ε will be, for no claim."""
        return 0.0 if self._at_zero <= delta else _foreseen_epsilon(self._rough_for_delta(delta).shape)

    def _grid_for_epsilon(self, epsilon: float, tolerance: float) -> _Grid:
        rough = Cumulants(self.items, 1e-12 / self.draws).for_epsilon(epsilon)
        log_delta = min(rough.log_moment - rough.tilt * epsilon - rough.log_prefactor(), 0.0)
        delta = math.exp(max(log_delta, math.log(_LEAST_DELTA)))
        mass = _TRUNCATED * delta / self.draws
        cumulants = Cumulants(self.items, mass)
        shape = cumulants.for_epsilon(epsilon)
        return self._grid(_Grid.rough(cumulants, shape, mass), epsilon, tolerance)

    def _grid(self, grid: _Grid, epsilon: float, tolerance: float) -> _Grid:
        """A width for which the upper bound is about ``tolerance``·ε above the truth.

        A cell's spread adds a variance of h²/6 to one loss, so ε rises by half the variance added to the
        sum over :meth:`Shape.sensitivity`. Where losses are atoms, sums blur by h times the root of their
        number.
        """
        if (spacing := self._spacing) is not None:
            return replace(grid, width=spacing)
        shape = grid.shape
        allowed = tolerance * max(epsilon, _NEAR_ZERO * shape.deviation)
        width = math.sqrt(12.0 / _GRADED * allowed * shape.sensitivity() / self.draws)
        lumps = [pair for pair, _ in self.items if pair.atomic]
        if lumps and self.draws <= _FEW_DRAWS:
            width = min(width, 4.0 * allowed / math.sqrt(self.draws))
        width = max(min(width, self._narrowest(grid.cumulants, shape)), 1e-300)
        if lumps and abs(lumps[0].anchor) > width:  # both ends of a symmetric support on the grid
            width = 2.0 * abs(lumps[0].anchor) / math.ceil(2.0 * abs(lumps[0].anchor) / width)
        grid = replace(grid, width=width)
        least = _least_width(grid)
        while (
            self._size(grid) > _MOST_POINTS
            or self._held(grid, atomic=True) > _MOST_HELD
            or grid.width < least
        ):
            grid = replace(grid, width=2.0 * grid.width)
        return self._checked_blur(grid, allowed)

    @functools.cached_property
    def _spacing(self) -> float | None:
        """The distance of the two losses, where only one randomized response is repeated: nothing blurs."""
        pair = self.items[0][0]
        if len(self.items) > 1 or not isinstance(pair, AtomicPair) or pair.losses.size != 2:
            return None
        return float(pair.losses[1] - pair.losses[0])

    def _foreseen_gap(self, grid: _Grid) -> float:
        """How much ε rises by the variance that a grid really adds."""
        added = sum(times * _blur(part, grid) for part, times in self._dominating(grid))
        return 0.5 * added / max(grid.shape.sensitivity(), 1e-300)

    def _narrowest(self, cumulants: Cumulants, shape: Shape) -> float:
        """Half of an item's deviation, weighed by its part in the variance."""
        deviations = np.maximum(cumulants.deviations(shape.tilt), 1e-300)
        shares = np.array([times for _, times in self.items]) * deviations**2 / max(shape.variance, 1e-300)
        return float((0.5 * deviations / np.maximum(np.sqrt(shares), 0.05)).min())

    def _checked_blur(self, grid: _Grid, allowed: float) -> _Grid:
        """Refine where the variance that the grid really adds is larger than foreseen."""
        for _ in range(_MOST_REFINEMENTS):
            foreseen = self._foreseen_gap(grid)
            if foreseen <= 1.5 * allowed or self._size(grid) > _MOST_POINTS // 2:
                break
            finer = replace(grid, width=grid.width * max(0.9 * math.sqrt(allowed / foreseen), 0.1))
            if finer.width < _least_width(finer):
                break
            grid = finer
        return grid

    def _size(self, grid: _Grid) -> float:
        """Points that the largest step's own grid has."""
        spans = (pair.span(grid.mass) for pair, _ in self.items)
        return max((high - low) / grid.width for low, high in spans)

    def _held(self, grid: _Grid, *, atomic: bool) -> float:
        """Points of the even grids of all items together, or of the atomic ones."""
        spans = (pair.span(grid.mass) for pair, _ in self.items if pair.atomic or not atomic)
        return sum((high - low) / grid.width for low, high in spans)

    def _even_cells(self, index: int, grid: _Grid) -> Cells:
        """For lower bounds: the cell's index is the statistic."""
        pair = self.items[index][0].dominated
        return pair.cells(even_edges(*pair.span(grid.mass), pair.anchor, grid.width))

    def _dominating(self, grid: _Grid) -> list[tuple[Dominating, int]]:
        if self._parts[0] is not grid:
            self._parts = (grid, [self._dots(index, grid) for index in range(len(self.items))])
        return self._parts[1]

    def _dots(self, index: int, grid: _Grid) -> tuple[Dominating, int]:
        """One item on the grid, with wider cells where the tilted law has little mass."""
        pair, times = self.items[index]
        levels: Levels = () if pair.atomic else grid.cumulants.levels(index, grid.shape.tilt)
        edges = graded_edges(*pair.span(grid.mass), pair.anchor, grid.width, levels)
        return connect_the_dots(pair.cells(edges), grid.width), times

    def _upper(self, grid: _Grid, floor: float) -> "_Tail | _Band":
        """From a few frequencies where they are enough, else from the whole transform."""
        tilt, found = grid.shape.tilt * grid.width, None
        factors, origin, log_error, infinite = self._factors(grid)
        window = _Window.of(grid, origin, factors, floor=floor)
        if self._smooth and window.first > 0 and tilt * window.size > 1.0:
            tilted = [tilt_factor(each, tilt) for each in factors]
            found = tilted_spectrum(tilted, tilt, window.size, grid.width)
        if found is None:
            return self._tail(grid, floor)
        extra = infinite + _mass_from(factors, window.first + window.size, grid, log_error)
        return _Band.of(found, grid, origin, log_error, extra, window.first)

    def _tail(self, grid: _Grid, floor: float, *, terms: int = FEW_TERMS) -> "_Tail":
        """From the sum of all losses."""
        law, read = self._law(grid, floor, terms)
        return read(law)

    def _law(self, grid: _Grid, floor: float, terms: int) -> tuple[Sum, Callable[[Sum], "_Tail"]]:
        """The sum of all losses, and what reads its part above the floor."""
        factors, origin, log_error, infinite = self._factors(grid)
        window = _Window.of(grid, origin, factors, floor=floor)
        found = tilted_sum(factors, grid.shape.tilt * grid.width, window.first, window.size, terms=terms)
        extra = infinite + _beyond(factors, found, grid, log_error)
        return found, lambda law: _Tail.of(law, grid, origin, log_error, extra, floor)

    def _factors(self, grid: _Grid) -> tuple[list[Factor], float, float, float]:
        """The steps' masses, the loss at index 0 of their sum, the error of masses, and the infinite mass."""
        parts = self._dominating(grid)
        origin = math.fsum(times * part.origin for part, times in parts)
        factors = [Factor(part.masses, times, part.index) for part, times in parts]
        log_error = sum(times * part.log_error for part, times in parts)
        infinite = min(
            infinite_mass(parts) * math.exp(min(log_error, _LARGEST_EXPONENT)) * (1.0 + 1e-12), 1.0
        )
        return factors, origin, log_error, infinite

    @functools.cached_property
    def _smooth(self) -> bool:
        """Whether the transform of the sum is negligible at most frequencies."""
        return self.draws >= _FEW_DRAWS and not all(pair.atomic for pair, _ in self.items)

    def _epsilon(self, delta: float, grid: _Grid) -> float:
        if self._is_short(grid):
            return self._short_epsilon(delta, grid)
        shape = grid.shape
        guess = shape.mean - shape.log_prefactor() / max(shape.tilt, 1e-300) - 0.5 * shape.deviation
        floor = max(guess, 0.0)
        found = self._upper(grid, floor).epsilon(delta)
        # At most the floor: the answer may lie below it.
        return self._upper(grid, 0.0).epsilon(delta) if 0.0 < found <= floor else found

    def _short_epsilon(self, delta: float, grid: _Grid) -> float:
        """Of few losses: the saddle point may lie far from the answer, and so would a floor taken from it.

        Where the rounding of a transform decides, a grid on which no transform is needed may be closer.
        """
        law, read = self._law(grid, 0.0, FEW_TERMS)
        found = read(law).epsilon(delta)
        if law.error <= UNDERFLOW:
            return found
        likely = read(replace(law, error=UNDERFLOW)).epsilon(delta)  # for no claim
        if likely >= found * (1.0 - _ROUNDED):
            return found
        for wider in _widths(grid):
            sizes = [
                (float(np.count_nonzero(each.masses)), float(each.size))
                for each in self._factors(wider)[0]
                for _ in range(each.times)
            ]
            if count_terms(sizes) <= MANY_TERMS:
                return min(found, self._tail(wider, 0.0, terms=MANY_TERMS).epsilon(delta))
        return found

    def _direct_lower_epsilon(self, delta: float, grid: _Grid) -> float:
        """The lower bound without a transform; 0 where that takes too many terms."""
        for wider in _widths(grid):
            sizes = [self._even_size(pair, wider) for pair, times in self.items for _ in range(times)]
            if count_terms(sizes) <= MANY_TERMS:
                return self._lower(wider, terms=MANY_TERMS).epsilon(delta)
        return 0.0

    def _even_size(self, pair: DominatingPair, grid: _Grid) -> tuple[float, float]:
        """How many cells of an even grid hold mass, and over how many they spread."""
        low, high = pair.span(grid.mass)
        length = (high - low) / grid.width + 2.0
        return min(float(pair.losses.size), length) if isinstance(pair, AtomicPair) else length, length

    def _is_short(self, grid: _Grid) -> bool:
        """Whether few losses are added up, and all of their sum fits into one transform."""
        spans = ((pair.span(grid.mass), times) for pair, times in self.items)
        length = sum(times * (high - low) for (low, high), times in spans) / grid.width
        return self.draws <= _FEW_DRAWS and length <= _MOST_POINTS

    def _delta(self, epsilon: float, grid: _Grid) -> float:
        return self._upper(grid, epsilon).delta(epsilon)

    def _lower_epsilon(self, delta: float, grid: _Grid) -> float:
        return self._lower(grid).epsilon(delta)

    def _lower_delta(self, epsilon: float, grid: _Grid) -> float:
        return self._lower(grid).delta(epsilon)

    def _lower(self, grid: _Grid, *, terms: int = FEW_TERMS) -> "_Test":
        while self._held(grid, atomic=False) > _MOST_HELD:
            grid = replace(grid, width=2.0 * grid.width)
        parts, origins = [], []
        for index, (_, times) in enumerate(self.items):
            cells = self._even_cells(index, grid)
            parts.append((merged_cells(cells), times))
            origins.append(times * float(cells.edges[0]))
        origin = math.fsum(origins)
        log_error = sum(times * part.log_error for part, times in parts)
        infinite = infinite_mass(parts)
        tilt = grid.shape.tilt * grid.width
        p = [Factor(part.p, times) for part, times in parts]
        window = _Window.of(grid, origin + 0.5 * grid.width * self.draws, p)
        q = [Factor(part.q, times) for part, times in parts]
        sums = (
            tilted_sum(p, tilt, window.first, window.size, terms=terms),
            tilted_sum(q, tilt + grid.width, window.first, window.size, terms=terms),
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


def _least_width(grid: _Grid) -> float:
    """At which a window still holds the losses of interest: what lies above it counts as infinite."""
    low, high = _upper_window(grid, max(_foreseen_epsilon(grid.shape) - grid.shape.deviation, 0.0))
    return (high - low) / _MOST_SUMMED if high < math.inf else 0.0


def _foreseen_epsilon(shape: Shape) -> float:
    """ε as the saddle point has it."""
    return max(shape.mean - shape.log_prefactor() / max(shape.tilt, 1e-300), 0.0)


def _log_delta(shape: Shape) -> float:
    """log δ as the saddle point has it."""
    return min(shape.log_moment - shape.tilt * _foreseen_epsilon(shape) - shape.log_prefactor(), 0.0)


def _widths(grid: _Grid) -> list[_Grid]:
    """The grid, and some that are wider."""
    return [replace(grid, width=grid.width * 2.0**doublings) for doublings in range(_MOST_DOUBLINGS)]


def _finer(grid: _Grid, ratio: float) -> _Grid:
    return replace(grid, width=grid.width * min(max(0.8 * math.sqrt(ratio), 0.05), 0.7))


def _blur(part: Dominating, grid: _Grid) -> float:
    """The tilted variance that a step's grid adds."""
    tilt = grid.shape.tilt * grid.width
    weights = np.exp(tilt * (part.index - part.index[-1]))
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
        low, high = _lower_window(grid) if floor is None else _upper_window(grid, floor)
        length = sum(factor.times * (factor.size - 1) for factor in factors) + 1
        first = math.floor((low - origin) / grid.width) if low > origin else 0
        last = min(math.ceil((high - origin) / grid.width) + 8, length) if high < math.inf else length
        size = good_size(max(last - first, 8))
        if length <= max(_SMALL, 2 * size):
            return cls(0, good_size(length))
        return cls(first, min(size, _MOST_SUMMED))


def _lower_window(grid: _Grid) -> tuple[float, float]:
    mean = grid.shape.mean
    above = max(grid.end.mean - mean, 0.0) + 2.0 * grid.width
    return grid.begin[0], mean + max(1.2 * above, 9.0 * max(grid.shape.deviation, grid.width))


def _upper_window(grid: _Grid, floor: float) -> tuple[float, float]:
    """From the floor on, so long that little folds from below; or from where nearly nothing is left below."""
    shape, floor = grid.shape, floor - 2.0 * grid.width
    end = max(grid.end.mean, shape.mean, floor) + shape.deviation + 2.0 * grid.width
    whole = min(shape.mean - 5.5 * max(shape.deviation, grid.width), floor)
    short = grid.fold < end - whole < math.inf
    return (floor, max(end, floor + grid.fold)) if short else (whole, end)


def _log_tail(factors: Sequence[Factor], tilt: float, index: float) -> float:
    """log of Chernoff's bound e^(−tilt·index)·Π moments^times on the mass beyond ``index``, rounded up."""
    total, size = -tilt * index, abs(tilt * index)
    for factor in factors:
        exponents = tilt * factor.positions
        top = float(exponents[-1]) if tilt > 0.0 else 0.0
        moment = float((factor.masses * np.exp(exponents - top)).sum()) + UNDERFLOW
        logs = factor.times * (math.log(moment) + top)
        total += logs
        size += factor.times * (abs(top) + 8.0 + math.log2(factor.masses.size + 1.0)) + abs(logs)
    return total + 8.0 * ROUNDING * size


def _beyond(factors: Sequence[Factor], found: Sum, grid: _Grid, log_error: float) -> float:
    """Upper bound on the mass above the window, where the window is not everything."""
    return 0.0 if found.end >= found.length else _mass_from(factors, found.end, grid, log_error)


def _mass_from(factors: Sequence[Factor], index: int, grid: _Grid, log_error: float) -> float:
    """Upper bound on the mass of the sum at or above ``index``, masses being right after e^log_error."""
    logs = _log_tail(factors, grid.end.tilt * grid.width, index) + log_error
    return math.exp(min(logs, 0.0)) * (1.0 + 1e-12)


def _log_quotient(above: Floats, below: Floats) -> Floats:
    """log(above/below), rounded up by 1e-12 where the quotient is no float."""
    with np.errstate(over="ignore"):
        quotient = above / below
    huge = np.isinf(quotient)
    found: Floats = np.log(np.where(huge, 1.0, quotient))
    found[huge] = np.log(above[huge]) - np.log(below[huge]) + 1e-12
    return found


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
        ratio = _log_quotient(over[some][seen], q[some][seen] * (1.0 - slack))
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
class _Band:
    """The same as :class:`_Tail`, from the transform: tail sums of P and Q over one period from any loss on.

    What lies below the loss at which a sum begins folds onto the period and adds to both measures; what lies
    beyond the period is part of ``extra``, for every beginning at or above ``first``.
    """

    spectrum: Spectrum
    shift: float
    width: float
    top: float
    extra: float
    first: int
    guess: float

    @classmethod
    def of(
        cls, found: Spectrum, grid: _Grid, origin: float, log_error: float, extra: float, first: int
    ) -> "_Band":
        """With losses and masses rounded up."""
        reach = first + 2 * found.size
        shift = origin + 4.0 * ROUNDING * (abs(origin) + grid.width * reach)
        size = abs(found.log_scale) + abs(found.tilt) * reach + 8.0
        top = found.log_scale + log_error + found.log_error + 8.0 * ROUNDING * size
        return cls(found, shift, grid.width, top, extra, first, _foreseen_epsilon(grid.shape))

    def _line(self, epsilon: float) -> tuple[float, float, float]:
        """δ(ε) = A − e^(ε−l)·B near ``epsilon``: upper bound on A, lower bound on B, and l."""
        start = math.floor((epsilon - self.shift) / self.width) + 1
        if not self.first <= start <= self.first + self.spectrum.size:
            return 1.0, 0.0, 0.0
        p, q, rounding = self.spectrum.tails(start)
        scale = math.exp(min(self.top - self.spectrum.tilt * start, _LARGEST_EXPONENT))
        return (p + rounding) * scale, (q - rounding) * scale, self.shift + self.width * start

    def epsilon(self, delta: float) -> float:
        """The least ε ≥ 0 with δ(ε) ≤ delta, by Newton's steps from below, each proven where it ends."""
        left = delta * (1.0 - 4.0 * ROUNDING) - self.extra
        if left <= 0.0:
            return math.inf
        least = max(self.shift + self.width * self.first, 0.0)
        epsilon = max(self._nearly(left, max(self.guess, least)), least)
        for _ in range(_MOST_STEPS):
            p, q, loss = self._line(epsilon)
            if p <= left:
                return epsilon
            if q <= 0.0:
                return math.inf
            there = loss + math.log((p - left) / q)
            there += 8.0 * ROUNDING * (abs(loss) + abs(there) + 1.0)
            if there <= epsilon:
                return epsilon
            epsilon = there + 1e-14 * abs(there)
        return math.inf

    def _nearly(self, left: float, epsilon: float) -> float:
        """Just below the answer, by Newton's steps on log δ, which is nearly straight; nothing is claimed."""
        for _ in range(8):
            p, q, loss = self._line(epsilon)
            slope = q * math.exp(min(epsilon - loss, 0.0))
            found = p - slope
            if not (0.0 < found < 1.0 and slope > 0.0):
                return 0.0
            move = math.log(found / left) * found / slope
            epsilon += move
            if abs(move) < 1e-4 * epsilon:
                # The next error is about the square of the move times the curvature of log δ.
                return epsilon - 2.0 * move * move * slope / found - 1e-12 * epsilon
        return 0.0

    def delta(self, epsilon: float) -> float:
        """Upper bound on δ(ε)."""
        p, q, loss = self._line(epsilon)
        found = p - q * math.exp(min(epsilon - loss, 0.0)) * (1.0 - 8.0 * ROUNDING * (1.0 + abs(loss)))
        return min(found + self.extra, 1.0)


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
            further = _log_tail(q, (grid.end.tilt + 1.0) * grid.width, under_q.end) + log_error
            hidden = hidden + math.exp(min(further, 0.0)) * (1.0 + 1e-12)
        return cls(np.maximum(shown, 0.0), hidden, infinite * (1.0 - 1e-12))

    def epsilon(self, delta: float) -> float:
        """The largest ε for which some t shows δ(ε) > delta; 0 if none does."""
        over = self.p + self.infinite - delta * (1.0 + 4.0 * ROUNDING)
        some = (over > 0.0) & (self.q > _TINY) & np.isfinite(self.q)
        if not some.any():
            return 0.0
        quotients = np.maximum(over[some] / self.q[some], 1.0)  # a smaller one shows nothing, and may be 0
        return max(float(np.log(quotients).max()) * (1.0 - 1e-15) - 1e-15, 0.0)

    def delta(self, epsilon: float) -> float:
        """Lower bound on δ(ε)."""
        if epsilon > _LARGEST_EXPONENT:
            return self.infinite
        finite = np.isfinite(self.q)
        with np.errstate(over="ignore"):  # so much under Q shows nothing
            shown = self.p[finite] - math.exp(epsilon) * (1.0 + 1e-14) * self.q[finite]
        best = float(shown.max(initial=0.0))
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
