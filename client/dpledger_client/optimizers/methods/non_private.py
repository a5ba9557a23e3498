"""Baselines without privacy: limited-memory BFGS, and the most frequent label."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

import numpy as np

from dpledger_client._arrays import Floats
from dpledger_client._checks import check_count, check_positive
from dpledger_client.objectives.base import Objective
from dpledger_client.optimizers.support.base import NonPrivate

__all__ = ["LBFGS", "Function", "Majority", "lbfgs"]

Function: TypeAlias = Callable[[Floats], tuple[float, Floats]]
"""A value and its gradient."""

_DECREASE = 1e-4
_CURVATURE = 0.9
_MOST_TRIALS = 60


@dataclass
class _Memory:
    """The last moves and changes of gradient, which stand for the inverse Hessian."""

    pairs: deque[tuple[Floats, Floats]] = field(default_factory=deque)

    def add(self, move: Floats, change: Floats) -> None:
        if move @ change > 0.0:
            self.pairs.append((move, change))

    def direction(self, gradient: Floats) -> Floats:
        """Minus the inverse Hessian times the gradient, by the two loops of Nocedal 1980."""
        if not self.pairs:
            return -gradient / max(1.0, float(np.linalg.norm(gradient)))
        found, shares = -gradient, []
        for move, change in reversed(self.pairs):
            share = (move @ found) / (move @ change)
            shares.append(share)
            found = found - share * change
        move, change = self.pairs[-1]
        found = found * ((move @ change) / (change @ change))
        for (move, change), share in zip(self.pairs, reversed(shares), strict=True):
            found = found + (share - (change @ found) / (move @ change)) * move
        return found


def _line_search(
    function: Function, w: Floats, direction: Floats, value: float, slope: float
) -> tuple[Floats, float, Floats] | None:
    """A step that meets the weak Wolfe conditions, by doubling and halving; None if there is none."""
    low, high, step = 0.0, np.inf, 1.0
    for _ in range(_MOST_TRIALS):
        there = w + step * direction
        found, gradient = function(there)
        if not found <= value + _DECREASE * step * slope:
            high = step
        elif gradient @ direction < _CURVATURE * slope:
            low = step
        else:
            return there, found, gradient
        step = 2.0 * low if high == np.inf else (low + high) / 2.0
    return None


def lbfgs(
    function: Function, w: Floats, *, iterations: int, tolerance: float, memory: int = 10
) -> tuple[Floats, int]:
    """Minimise a smooth function (Liu, Nocedal 1989); the point reached, and after how many iterations.

    It ends when the gradient's norm is at most ``tolerance``, after ``iterations``, or where floating
    point shows no further decrease.
    """
    value, gradient = function(w)
    recent = _Memory(deque(maxlen=memory))
    for iteration in range(iterations):
        if np.linalg.norm(gradient) <= tolerance:
            return w, iteration
        direction = recent.direction(gradient)
        found = _line_search(function, w, direction, value, float(gradient @ direction))
        if found is None:
            return w, iteration
        there, value, slope = found
        recent.add(there - w, slope - gradient)
        w, gradient = there, slope
    return w, iterations


@dataclass(frozen=True)
class LBFGS(NonPrivate):
    """Limited-memory BFGS with a Wolfe line search (Liu, Nocedal 1989), for what privacy costs.

    Parameters
    ----------
    iterations
        At most so many.
    tolerance
        The gradient norm at which it ends.
    memory
        From how many past steps the curvature is known.
    """

    name: ClassVar[str] = "l-bfgs"
    iterations: int = 1000
    tolerance: float = 1e-9
    memory: int = 10

    def __post_init__(self) -> None:
        check_count("iterations", self.iterations)
        check_positive("tolerance", self.tolerance)
        check_count("memory", self.memory)

    def fit(self, objective: Objective, X: Any, y: Any, w0: Floats) -> tuple[Floats, int]:
        return lbfgs(
            lambda w: (objective.loss(w, X, y), objective.gradient(w, X, y)),
            w0,
            iterations=self.iterations,
            tolerance=self.tolerance,
            memory=self.memory,
        )


@dataclass(frozen=True)
class Majority(NonPrivate):
    """The most frequent label as the one parameter, to be predicted for every record."""

    name: ClassVar[str] = "majority"

    def fit(self, objective: Objective, X: Any, y: Any, w0: Floats) -> tuple[Floats, int]:
        labels, counts = np.unique(np.asarray(y, dtype=np.float64), return_counts=True)
        return labels[[np.argmax(counts)]], 1
