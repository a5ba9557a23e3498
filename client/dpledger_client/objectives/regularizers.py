"""Regularisers: they depend on the parameters alone and cost no privacy."""

import abc
from dataclasses import dataclass

import numpy as np

from dpledger_client._arrays import Floats
from dpledger_client._checks import check_count, check_non_negative, check_positive

__all__ = ["L1", "L2", "MCP", "SCAD", "NuclearNorm", "Regularizer", "Unregularized"]


class Regularizer(abc.ABC):
    """A penalty on the parameters, added to the mean loss."""

    strong_convexity: float = 0.0
    smoothness: float = 0.0

    @abc.abstractmethod
    def value(self, w: Floats) -> float:
        """The penalty."""

    @abc.abstractmethod
    def gradient(self, w: Floats) -> Floats:
        """Its gradient, or a subgradient."""

    @abc.abstractmethod
    def proximal(self, w: Floats, step: float) -> Floats:
        """The minimiser over v of ‖v − w‖²/2 + step·penalty(v)."""


@dataclass(frozen=True)
class Unregularized(Regularizer):
    """No penalty."""

    def value(self, w: Floats) -> float:
        return 0.0

    def gradient(self, w: Floats) -> Floats:
        return np.zeros_like(w)

    def proximal(self, w: Floats, step: float) -> Floats:
        return w.copy()


@dataclass(frozen=True)
class L2(Regularizer):
    """strength·‖w‖²/2."""

    strength: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "strength", check_non_negative("strength", self.strength))
        object.__setattr__(self, "strong_convexity", self.strength)
        object.__setattr__(self, "smoothness", self.strength)

    def value(self, w: Floats) -> float:
        return 0.5 * self.strength * float(w @ w)

    def gradient(self, w: Floats) -> Floats:
        return self.strength * w

    def proximal(self, w: Floats, step: float) -> Floats:
        return w / (1.0 + step * self.strength)


@dataclass(frozen=True)
class L1(Regularizer):
    """strength·‖w‖₁; the gradient is the subgradient that is zero at zero."""

    strength: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "strength", check_non_negative("strength", self.strength))
        object.__setattr__(self, "smoothness", np.inf if self.strength else 0.0)

    def value(self, w: Floats) -> float:
        return self.strength * float(np.abs(w).sum())

    def gradient(self, w: Floats) -> Floats:
        return self.strength * np.sign(w)

    def proximal(self, w: Floats, step: float) -> Floats:
        return np.sign(w) * np.maximum(np.abs(w) - step * self.strength, 0.0)


class _Concave(Regularizer):
    """A penalty of each |w| that rises ever more slowly to a constant: it does not shrink large weights."""

    strength: float

    def value(self, w: Floats) -> float:
        return float(np.sum(self._penalties(np.abs(w))))

    def gradient(self, w: Floats) -> Floats:
        return np.sign(w) * self._slopes(np.abs(w))

    def proximal(self, w: Floats, step: float) -> Floats:
        """By trial of each piece's own minimiser: the problem need not be convex, and ``step`` may be any."""
        sizes = np.abs(w)
        trials = np.stack(self._trials(sizes, step))
        costs = np.square(trials - sizes) / 2.0 + step * self._penalties(trials)
        best = np.take_along_axis(trials, np.argmin(costs, axis=0)[None], axis=0)[0]
        found: Floats = np.sign(w) * best
        return found

    @abc.abstractmethod
    def _penalties(self, sizes: Floats) -> Floats:
        """The penalty of each |w|."""

    @abc.abstractmethod
    def _slopes(self, sizes: Floats) -> Floats:
        """Its derivative."""

    @abc.abstractmethod
    def _trials(self, sizes: Floats, step: float) -> list[Floats]:
        """Where the proximal map may be: 0, each piece's ends, and its stationary point within them."""


@dataclass(frozen=True)
class SCAD(_Concave):
    """Smoothly clipped absolute deviation (Fan, Li 2001): λ|w| up to λ, constant from aλ on, a > 2."""

    strength: float
    reach: float = 3.7

    def __post_init__(self) -> None:
        object.__setattr__(self, "strength", check_non_negative("strength", self.strength))
        if check_positive("reach", self.reach) <= 2.0:
            raise ValueError(f"reach must be above 2, found {self.reach!r}")
        object.__setattr__(self, "smoothness", np.inf if self.strength else 0.0)

    def _penalties(self, sizes: Floats) -> Floats:
        first, last = self.strength, self.reach * self.strength
        middle = (2.0 * last * sizes - np.square(sizes) - first**2) / (2.0 * (self.reach - 1.0))
        flat = first**2 * (self.reach + 1.0) / 2.0
        return np.where(sizes <= first, first * sizes, np.where(sizes <= last, middle, flat))

    def _slopes(self, sizes: Floats) -> Floats:
        falling = np.maximum(self.reach * self.strength - sizes, 0.0) / (self.reach - 1.0)
        return np.where(sizes <= self.strength, self.strength, falling)

    def _trials(self, sizes: Floats, step: float) -> list[Floats]:
        first, last = self.strength, self.reach * self.strength
        bend = self.reach - 1.0 - step
        middle = ((self.reach - 1.0) * sizes - last * step) / (bend or 1.0)
        return [
            np.clip(sizes - step * first, 0.0, first),
            np.clip(middle, first, last),
            np.full_like(sizes, last),
            np.maximum(sizes, last),
        ]


@dataclass(frozen=True)
class MCP(_Concave):
    """Minimax concave penalty (Zhang 2010): λ|w| − w²/(2γ) up to γλ, constant from there on, γ > 1."""

    strength: float
    reach: float = 3.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "strength", check_non_negative("strength", self.strength))
        if check_positive("reach", self.reach) <= 1.0:
            raise ValueError(f"reach must be above 1, found {self.reach!r}")
        object.__setattr__(self, "smoothness", np.inf if self.strength else 0.0)

    def _penalties(self, sizes: Floats) -> Floats:
        rising = self.strength * sizes - np.square(sizes) / (2.0 * self.reach)
        return np.where(sizes <= self.reach * self.strength, rising, self.reach * self.strength**2 / 2.0)

    def _slopes(self, sizes: Floats) -> Floats:
        slopes: Floats = np.maximum(self.strength - sizes / self.reach, 0.0)
        return slopes

    def _trials(self, sizes: Floats, step: float) -> list[Floats]:
        last, bend = self.reach * self.strength, 1.0 - step / self.reach
        middle = (sizes - step * self.strength) / (bend or 1.0)
        ends = [np.zeros_like(sizes), np.full_like(sizes, last), np.maximum(sizes, last)]
        return [np.clip(middle, 0.0, last), *ends]


@dataclass(frozen=True)
class NuclearNorm(Regularizer):
    """strength times the sum of the singular values of w as a matrix of ``rows`` rows.

    The gradient is the subgradient UVᵀ of the singular vectors with a positive value.
    """

    strength: float
    rows: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "strength", check_non_negative("strength", self.strength))
        check_count("rows", self.rows)
        object.__setattr__(self, "smoothness", np.inf if self.strength else 0.0)

    def value(self, w: Floats) -> float:
        return self.strength * float(np.sum(self._decompose(w)[1]))

    def gradient(self, w: Floats) -> Floats:
        left, values, right = self._decompose(w)
        gradient: Floats = self.strength * ((left * (values > 0.0)) @ right).ravel()
        return gradient

    def proximal(self, w: Floats, step: float) -> Floats:
        left, values, right = self._decompose(w)
        shrunk: Floats = ((left * np.maximum(values - step * self.strength, 0.0)) @ right).ravel()
        return shrunk

    def _decompose(self, w: Floats) -> tuple[Floats, Floats, Floats]:
        left, values, right = np.linalg.svd(w.reshape(self.rows, -1), full_matrices=False)
        return left, values, right
