"""Rough cumulants of a composed privacy loss: where to look and how fine, never what is claimed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpledger.accounting.pld.discretization import rough_masses
from dpledger.accounting.pld.pairs import DominatingPair
from dpledger.accounting.validation import Floats

__all__ = ["Cumulants", "Shape"]

_POINTS = 96
_MOST_STEPS = 40
_LARGEST_TILT = 1e300


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

    def at(self, tilt: float) -> Shape:
        """The shape at a tilt."""
        losses, sizes = self._losses, self._sizes
        reference = tilt * (self._tops if tilt > 0.0 else self._bottoms)
        weights = self._masses * np.exp(tilt * losses - np.repeat(reference, sizes))
        total = np.maximum(np.add.reduceat(weights, self._starts), 1e-300)
        first = np.add.reduceat(weights * losses, self._starts) / total
        centred = losses - np.repeat(first, sizes)
        second = np.add.reduceat(weights * centred * centred, self._starts) / total
        logs = np.log(total) + reference
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

    def for_delta(self, log_delta: float) -> Shape:
        """The tilt at which λK′ − K = −log δ − log prefactor: the saddle point of ε(δ)."""
        start = self.at(0.0)
        goal = -log_delta
        tilt = math.sqrt(2.0 * max(goal, 0.01) / max(start.variance, 1e-300))
        shape = self._solve(lambda s: s.tilt * s.mean - s.log_moment, goal, min(tilt, _LARGEST_TILT))
        return self._solve(
            lambda s: s.tilt * s.mean - s.log_moment + s.log_prefactor(), goal, max(shape.tilt, 1e-12)
        )

    def beyond(self, shape: Shape, log_share: float) -> Shape:
        """The shape above whose mean at most e^log_share of the tilted mass lies (Chernoff)."""
        deviation = max(shape.deviation, 1e-300)
        return self._solve(
            lambda s: (s.tilt - shape.tilt) * s.mean - s.log_moment + shape.log_moment,
            -log_share,
            shape.tilt + math.sqrt(-2.0 * log_share) / deviation,
        )

    def for_epsilon(self, epsilon: float) -> Shape:
        """The tilt at which the mean is ε."""
        start = self.at(0.0)
        if epsilon <= start.mean:
            return start
        tilt = (epsilon - start.mean) / max(start.variance, 1e-300)
        return self._solve(lambda s: s.mean, epsilon, min(tilt, _LARGEST_TILT))

    def _solve(self, function, goal: float, tilt: float) -> Shape:  # type: ignore[no-untyped-def]
        """Find a rising function's crossing by secants on log λ, kept in a bracket."""
        low, high = 0.0, math.inf
        shape = self.at(tilt)
        for _ in range(_MOST_STEPS):
            value = function(shape)
            if abs(value - goal) <= 1e-3 * (1.0 + abs(goal)) or shape.variance <= 0.0:
                break
            low, high = (tilt, high) if value < goal else (low, tilt)
            slope = max(shape.variance * (shape.tilt if goal != shape.mean else 1.0), 1e-300)
            move = (goal - value) / slope
            there = min(max(tilt + move, 0.5 * tilt), 2.0 * tilt)
            if not low < there < high:
                there = 0.5 * (low + high)
            if abs(there - tilt) <= 1e-6 * tilt or there > _LARGEST_TILT:
                break
            tilt = there
            shape = self.at(tilt)
        return shape
