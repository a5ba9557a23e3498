"""Rough cumulants of a composed privacy loss: where to look and how fine, never what is claimed."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpledger.accounting.pld.discretization import Levels, rough_masses
from dpledger.accounting.pld.pairs import DominatingPair
from dpledger.accounting.validation import Floats

__all__ = ["Cumulants", "Shape"]

_POINTS = 96
_MOST_STEPS = 40
_CLOSE = 1e-2
_FACTORS = (2, 4, 8, 16, 32, 64, 128)
_FAR_SHARE = 0.05


@dataclass(frozen=True)
class Shape:
    """The composed loss near the ε of interest: a tilt, the tilted mean and variance, log of the moment."""

    tilt: float
    mean: float
    variance: float
    log_moment: float

    @property
    def deviation(self) -> float:
        """Standard deviation of the tilted sum."""
        return math.sqrt(max(self.variance, 0.0))

    def log_prefactor(self) -> float:
        """log of √(2πv)·λ(λ+1), which Chernoff's bound exceeds δ by, at least 0."""
        scale = math.sqrt(2.0 * math.pi) * self.deviation * self.tilt * (1.0 + self.tilt)
        return math.log(max(scale, 1.0))

    def sensitivity(self) -> float:
        """|∂δ/∂ε| over the density of the loss at ε: √v·M((λ+1)√v), M Mills' ratio, between bounds."""
        z = (self.tilt + 1.0) * self.deviation
        return self.deviation * 2.0 / (z + math.sqrt(z * z + 4.0)) if z > 0.0 else 0.0


class Cumulants:
    """K(λ) = Σ times·log E[e^(λL)] with two derivatives, from a few cells per item."""

    def __init__(self, items: Sequence[tuple[DominatingPair, int]], mass: float) -> None:
        losses, masses = [], []
        for pair, _ in items:
            span = pair.span(mass)
            low, high = span if span[0] < span[1] else (span[0] - 1e-9 * (1.0 + abs(span[0])), span[1])
            cells = pair.cells(pair.natural_edges((low, high), _POINTS))
            losses.append(cells.edges)
            masses.append(rough_masses(cells))
        sizes = [each.size for each in losses]
        self._losses, self._masses = np.concatenate(losses), np.concatenate(masses)
        self._starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
        self._sizes = np.array(sizes)
        self._tops = np.array([each[-1] for each in losses])
        self._bottoms = np.array([each[0] for each in losses])
        self._times: Floats = np.array([float(times) for _, times in items])
        self._owner = np.repeat(np.arange(len(sizes)), self._sizes)
        self._from_top = self._losses - self._tops[self._owner]
        self._from_bottom = self._losses - self._bottoms[self._owner]
        self._top = float(self._times @ self._tops)
        narrowest = min(float(each[-1] - each[0]) for each in losses)
        self._most = 1e4 / max(narrowest, 1e-300)

    def at(self, tilt: float) -> Shape:
        """The shape at a tilt."""
        losses, add = self._losses, np.add.reduceat
        reference, apart = (self._tops, self._from_top) if tilt > 0.0 else (self._bottoms, self._from_bottom)
        weights = self._masses * np.exp(tilt * apart)
        total = np.maximum(add(weights, self._starts), 1e-300)
        first = add(weights * losses, self._starts) / total
        centred = losses - first[self._owner]
        second = add(weights * centred * centred, self._starts) / total
        logs = np.log(total) + tilt * reference
        times = self._times
        return Shape(tilt, float(times @ first), float(times @ second), float(times @ logs))

    def deviations(self, tilt: float) -> Floats:
        """Tilted standard deviation of one draw of each item."""
        found = [self._one(index, tilt) for index in range(self._times.size)]
        return np.array(found)

    def _one(self, index: int, tilt: float) -> float:
        at = slice(self._starts[index], self._starts[index] + self._sizes[index])
        losses, masses = self._losses[at], self._masses[at]
        exponents = tilt * losses
        weights = masses * np.exp(exponents - exponents.max())
        mean = weights @ losses / weights.sum()
        return math.sqrt(max(float(weights @ (losses - mean) ** 2 / weights.sum()), 0.0))

    def levels(self, index: int, tilt: float) -> Levels:
        """How wide cells of an item may be where: f widths where less than 0.05/f² of the tilted mass is."""
        at = slice(self._starts[index], self._starts[index] + self._sizes[index])
        losses, masses = self._losses[at], self._masses[at]
        exponents = tilt * losses
        weights = masses * np.exp(exponents - exponents.max())
        below = np.cumsum(weights) / weights.sum()
        above = np.cumsum(weights[::-1])[::-1] / weights.sum()
        found = []
        for factor in _FACTORS:
            share = _FAR_SHARE / factor**2
            inside = np.flatnonzero((below > share) & (above > share))
            low, high = max(int(inside[0]) - 1, 0), min(int(inside[-1]) + 1, losses.size - 1)
            found.append((factor, float(losses[low]), float(losses[high])))
        return tuple(found)

    def for_delta(self, log_delta: float) -> Shape:
        """The tilt at which λK′ − K + log prefactor = −log δ: the saddle point of ε(δ)."""
        variance = max(self.at(0.0).variance, 1e-300)
        tilt = math.sqrt(2.0 * max(-log_delta, 0.01) / variance)
        first = self._solve(lambda s: s.tilt * s.mean - s.log_moment, _tilt, -log_delta, tilt)
        return self._solve(
            lambda s: s.tilt * s.mean - s.log_moment + s.log_prefactor(), _tilt, -log_delta, first.tilt
        )

    def beyond(self, shape: Shape, log_share: float) -> Shape:
        """The shape above whose mean at most e^log_share of the tilted mass lies (Chernoff).

        Its mean is infinite where the largest possible sum is reached first.
        """

        def divergence(s: Shape) -> float:
            return (s.tilt - shape.tilt) * s.mean - s.log_moment + shape.log_moment

        start = shape.tilt + math.sqrt(-2.0 * log_share) / max(shape.deviation, 1e-300)
        found = self._solve(divergence, lambda s: s.tilt - shape.tilt, -log_share, start)
        return found if divergence(found) >= -0.9 * log_share else replace(found, mean=math.inf)

    def begin(self, shape: Shape, log_share: float) -> tuple[float, float]:
        """A loss below which about e^log_share of the tilted mass lies, and the tilt that shows it."""
        found = (-math.inf, shape.tilt)
        for deviations in (2.0, 4.0, 7.0, 12.0):
            step = deviations / max(shape.deviation, 1e-300)
            if math.isfinite(step) and step < self._most:
                other = self.at(shape.tilt - step)
                loss = (log_share - other.log_moment + shape.log_moment) / step
                found = max(found, (loss, shape.tilt - step))
        return found

    def for_epsilon(self, epsilon: float) -> Shape:
        """The tilt at which the mean is ε."""
        start = self.at(0.0)
        if epsilon <= start.mean:
            return start
        tilt = (epsilon - start.mean) / max(start.variance, 1e-300)
        return self._solve(lambda s: s.mean, lambda s: 1.0, epsilon, tilt)

    def _solve(
        self, function: Callable[[Shape], float], factor: Callable[[Shape], float], goal: float, tilt: float
    ) -> Shape:
        """Where a function of the tilt, with slope factor·variance, rises to the goal: Newton in a bracket.

        Ends early where nearly all of the mass sits on the largest loss: more tilt would tell nothing.
        """
        low, high = 0.0, math.inf
        tilt = min(max(tilt, 1e-12), self._most)
        shape = self.at(tilt)
        for _ in range(_MOST_STEPS):
            value = function(shape)
            short = value < goal
            done = abs(value - goal) <= _CLOSE * (1.0 + abs(goal))
            if done or (short and (self._top - shape.mean) * tilt < 1.0):
                break
            low, high = (tilt, high) if short else (low, tilt)
            there = tilt + (goal - value) / max(shape.variance * factor(shape), 1e-300)
            there = min(max(there, 0.5 * tilt), 2.0 * tilt)
            there = there if low < there < high else 0.5 * (low + high)
            if abs(there - tilt) <= 1e-6 * tilt or there > self._most:
                break
            tilt = there
            shape = self.at(tilt)
        return shape


def _tilt(shape: Shape) -> float:
    return shape.tilt
