"""Projections onto convex sets: they look at parameters alone, so they cost nothing."""

import abc
from dataclasses import dataclass

import numpy as np

from dpledger_client._arrays import Floats
from dpledger_client._checks import check_positive

__all__ = ["Box", "L1Ball", "L2Ball", "NoProjection", "Projection", "Simplex"]


class Projection(abc.ABC):
    """A closed convex set; calling it gives the nearest point of the set."""

    @abc.abstractmethod
    def __call__(self, w: Floats) -> Floats:
        """The nearest point."""


@dataclass(frozen=True)
class NoProjection(Projection):
    """All of space."""

    def __call__(self, w: Floats) -> Floats:
        return w


@dataclass(frozen=True)
class L2Ball(Projection):
    """Vectors of Euclidean norm at most ``radius``."""

    radius: float

    def __post_init__(self) -> None:
        check_positive("radius", self.radius)

    def __call__(self, w: Floats) -> Floats:
        norm = float(np.linalg.norm(w))
        return w if norm <= self.radius else w * (self.radius / norm)


@dataclass(frozen=True)
class Box(Projection):
    """Vectors whose every coordinate is within ``half_width`` of zero."""

    half_width: float

    def __post_init__(self) -> None:
        check_positive("half_width", self.half_width)

    def __call__(self, w: Floats) -> Floats:
        return np.clip(w, -self.half_width, self.half_width)


@dataclass(frozen=True)
class Simplex(Projection):
    """Vectors without negative coordinates that sum to ``total``.

    By the threshold θ with Σ max(w − θ, 0) = total, found from the sorted coordinates
    (Duchi, Shalev-Shwartz, Singer, Chandra 2008).
    """

    total: float = 1.0

    def __post_init__(self) -> None:
        check_positive("total", self.total)

    def __call__(self, w: Floats) -> Floats:
        falling = np.sort(w)[::-1]
        thresholds = (np.cumsum(falling) - self.total) / np.arange(1, len(w) + 1)
        last = int(np.flatnonzero(falling >= thresholds)[-1])
        nearest: Floats = np.maximum(w - thresholds[last], 0.0)
        return nearest


@dataclass(frozen=True)
class L1Ball(Projection):
    """Vectors whose absolute values sum to at most ``radius``."""

    radius: float

    def __post_init__(self) -> None:
        check_positive("radius", self.radius)

    def __call__(self, w: Floats) -> Floats:
        sizes = np.abs(w)
        return w if sizes.sum() <= self.radius else np.sign(w) * Simplex(self.radius)(sizes)
