"""Regularisers: they depend on the parameters alone and cost no privacy."""

import abc
from dataclasses import dataclass

import numpy as np

from dpledger_client._arrays import Floats
from dpledger_client._checks import check_non_negative

__all__ = ["L1", "L2", "Regularizer", "Unregularized"]


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
