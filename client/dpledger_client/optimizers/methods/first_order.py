"""First-order methods without privacy: projected gradient descent, SGD and Adam, for what privacy costs."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from dpledger_client._arrays import Floats, Integers, by_place
from dpledger_client._checks import check_choice, check_count, check_open_unit, check_positive
from dpledger_client.objectives.base import Objective
from dpledger_client.optimizers.support.base import NonPrivate
from dpledger_client.optimizers.support.projections import NoProjection, Projection
from dpledger_client.optimizers.support.schedules import StepSize, step_size_at

__all__ = ["Adam", "GradientDescent", "StochasticGradientDescent"]

Note = Callable[[int, Floats], None]


@dataclass(frozen=True)
class GradientDescent(NonPrivate):
    """w ← Π(w − η·g) with the gradient of all records.

    Parameters
    ----------
    steps, step_size
        How many, and a number or a function of the iteration.
    projection
        Onto which set: projected gradient descent.
    output
        ``last``, ``average`` of all iterates, or ``best``: the one of the least objective, which is looked
        at in every iteration.
    note
        Called with the iteration and its iterate.
    """

    name: ClassVar[str] = "gd"
    steps: int = 1000
    step_size: StepSize = 0.1
    projection: Projection = field(default_factory=NoProjection)
    output: str = "last"
    note: Note | None = None

    def __post_init__(self) -> None:
        check_count("steps", self.steps)
        check_choice("output", self.output, ("last", "average", "best"))

    def fit(self, objective: Objective, X: Any, y: Any, w0: Floats) -> tuple[Floats, int]:
        kept = _Kept(self.output, lambda w: objective.loss(w, X, y))
        w = self.projection(w0)
        for iteration, (rows, labels) in enumerate(self._batches(X, y), start=1):
            gradient = objective.gradient(w, rows, labels)
            w = self.projection(w - self._move(gradient, iteration))
            kept.add(w)
            if self.note is not None:
                self.note(iteration, w)
        return kept.w, self.steps

    def _batches(self, X: Any, y: Any) -> Iterator[tuple[Any, Any]]:
        for _ in range(self.steps):
            yield X, y

    def _move(self, gradient: Floats, iteration: int) -> Floats:
        return step_size_at(self.step_size, iteration) * gradient


@dataclass(frozen=True)
class StochasticGradientDescent(GradientDescent):
    """The same with the gradient of ``batch_size`` records, drawn from ``seed``."""

    name: ClassVar[str] = "sgd"
    batch_size: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("batch_size", self.batch_size)

    def _batches(self, X: Any, y: Any) -> Iterator[tuple[Any, Any]]:
        generator = np.random.default_rng(self.seed)
        for _ in range(self.steps):
            rows = generator.choice(len(X), size=min(self.batch_size, len(X)), replace=False)
            yield _pick(X, rows), _pick(y, rows)


@dataclass(frozen=True)
class Adam(StochasticGradientDescent):
    """SGD along Adam's moments of the gradient (Kingma, Ba 2015)."""

    name: ClassVar[str] = "adam"
    first_decay: float = 0.9
    second_decay: float = 0.999
    stability: float = 1e-8

    def __post_init__(self) -> None:
        super().__post_init__()
        check_open_unit("first_decay", self.first_decay)
        check_open_unit("second_decay", self.second_decay)
        check_positive("stability", self.stability)

    def fit(self, objective: Objective, X: Any, y: Any, w0: Floats) -> tuple[Floats, int]:
        object.__setattr__(self, "_moments", (np.zeros_like(w0), np.zeros_like(w0)))
        return super().fit(objective, X, y, w0)

    def _move(self, gradient: Floats, iteration: int) -> Floats:
        first, second = self._moments  # type: ignore[attr-defined]
        first += (1.0 - self.first_decay) * (gradient - first)
        second += (1.0 - self.second_decay) * (np.square(gradient) - second)
        mean = first / (1.0 - self.first_decay**iteration)
        square = second / (1.0 - self.second_decay**iteration)
        move: Floats = step_size_at(self.step_size, iteration) * mean / (np.sqrt(square) + self.stability)
        return move


def _pick(data: Any, rows: Integers) -> Any:
    """Rows of an array or a frame, or entries of a list."""
    placed = by_place(data)
    return [placed[row] for row in rows] if isinstance(placed, list | tuple) else placed[rows]


class _Kept:
    """The iterate to give out."""

    def __init__(self, output: str, loss: Callable[[Floats], float]) -> None:
        self.output, self.loss = output, loss
        self.count, self.least = 0, np.inf
        self.w: Floats = np.zeros(0)

    def add(self, w: Floats) -> None:
        self.count += 1
        if self.output == "last":
            self.w = w
        elif self.output == "average":
            self.w = w if self.count == 1 else self.w + (w - self.w) / self.count
        elif self.count == 1 or self.loss(w) < self.least:
            self.w, self.least = w, self.loss(w)
