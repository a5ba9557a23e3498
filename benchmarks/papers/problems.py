"""Problems: a dataset's fold, a model, and what of a trained one is measured."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.datasets import Dataset, load
from dpledger_client.objectives import L1, L2, HingeSVM, HuberSVM, Logistic
from dpledger_client.objectives.base import Objective
from dpledger_client.objectives.regularizers import Regularizer, Unregularized

__all__ = ["Counting", "Problem", "accuracy", "linear_problem", "simulated_sparse"]

Floats = NDArray[np.float64]
HUBER_WIDTH = 0.5
MOST_HELD_OUT = 20_000
"""So many rows are held out of a dataset of which a part is trained on."""
RELEVANT = 20
"""So many of the 100 attributes of the simulated data decide the label."""


class Counting:
    """A mixin that counts the records whose clipped gradients and losses were evaluated."""

    gradients = 0
    losses_seen = 0

    def clipped_gradient_sum(self, w: Any, X: Any, y: Any, clip: float, row_norms: Any = None) -> Any:
        self.gradients += len(X)
        return super().clipped_gradient_sum(w, X, y, clip, row_norms)  # type: ignore[misc]

    def clipped_loss_sum(self, w: Any, X: Any, y: Any, clip: float) -> Any:
        self.losses_seen += len(X)
        return super().clipped_loss_sum(w, X, y, clip)  # type: ignore[misc]

    def clipped_line_sums(self, w: Any, direction: Any, sizes: Any, X: Any, y: Any, clip: float) -> Any:
        self.losses_seen += len(X) * len(sizes)
        return super().clipped_line_sums(w, direction, sizes, X, y, clip)  # type: ignore[misc]


class _Logistic(Counting, Logistic): ...


class _Huber(Counting, HuberSVM): ...


class _Hinge(Counting, HingeSVM): ...


@dataclass(frozen=True, eq=False)
class Problem:
    """Rows to train on and rows held out, what is minimised, and the (ε, δ) of a private run."""

    objective: Any
    X: Floats
    y: Floats
    held_rows: Floats
    held_labels: Floats
    epsilon: float = 1.0
    delta: float = 1e-8

    @property
    def records(self) -> int:
        """How many records are trained on; public."""
        return len(self.X)

    @property
    def dimension(self) -> int:
        """How many weights a linear model has."""
        return int(self.X.shape[1])

    def measure(self, w: Floats) -> dict[str, float]:
        """Accuracy on the rows held out, and the objective on either."""
        return {
            "accuracy": accuracy(w, self.held_rows, self.held_labels),
            "objective": float(self.objective.loss(w, self.X, self.y)),
            "test_objective": float(self.objective.loss(w, self.held_rows, self.held_labels)),
        }


def accuracy(w: Floats, X: Floats, y: Floats) -> float:
    """The share of labels that a linear model gets right; a margin of 0 counts as the label 1."""
    return float(np.mean(np.where(X @ w >= 0.0, 1.0, -1.0) == y))


@lru_cache(maxsize=3)
def _loaded(name: str, unit_rows: bool) -> Dataset:
    return load(name, intercept=True, unit_rows=unit_rows)


@lru_cache(maxsize=2)
def _split(name: str, unit_rows: bool, fold: int, folds: int, seed: int, rows: int) -> tuple[Floats, ...]:
    if name == "simulated":
        X, y = simulated_sparse(rows or 40_000, seed)
        train = np.arange(len(X)) % folds != fold
        return _parts(_unit(X) if unit_rows else X, y, np.flatnonzero(train), np.flatnonzero(~train))
    data = _loaded(name, unit_rows)
    train_rows, test_rows = data.split(fold, folds=folds, seed=seed, own=False)
    if rows:
        train_rows, test_rows = _every(train_rows, rows), _every(test_rows, MOST_HELD_OUT)
    return _parts(data.X, data.y.astype(np.float64), train_rows, test_rows)


def _every(rows: Any, wanted: int) -> Any:
    """About so many of them, evenly spread: files are sorted by time, and begin untypically."""
    return rows[:: max(1, len(rows) // wanted)]


def _parts(X: Floats, y: Floats, train: Any, test: Any) -> tuple[Floats, ...]:
    return X[train], y[train], X[test], y[test]


def _unit(X: Floats) -> Floats:
    """Rows of norm at most 1, each by its own norm."""
    unit: Floats = X / np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    return unit


def linear_problem(cell: Mapping[str, Any], *, unit_rows: bool = False) -> Problem:
    """The fold and the model that a cell's parameters name."""
    parts = _split(
        cell["dataset"],
        unit_rows,
        cell.get("fold", 0),
        cell.get("folds", 5),
        cell.get("repeat", 0),
        cell.get("rows", 0),
    )
    objective = _objective(cell.get("model", "lr"), _regularizer(cell))
    X, y, held_rows, held_labels = parts
    limits = cell.get("epsilon", 1.0), cell.get("delta", 1e-8)
    return Problem(objective, X, y, held_rows, held_labels, *limits)


def _regularizer(cell: Mapping[str, Any]) -> Regularizer:
    strength = cell.get("strength", 0.0)
    if not strength:
        return Unregularized()
    return L1(strength) if cell.get("penalty") == "l1" else L2(strength)


def _objective(model: str, regularizer: Regularizer) -> Objective:
    if model == "lr":
        return _Logistic(regularizer)
    return _Huber(HUBER_WIDTH, regularizer) if model == "huber" else _Hinge(regularizer)


def simulated_sparse(records: int, seed: int) -> tuple[Floats, Floats]:
    """Labels that 20 of 100 correlated attributes decide (002, 4.6.3): Σ_jk = 0.5^|j−k|."""
    random = np.random.default_rng(seed)
    X = np.empty((records, 100))
    noise = random.normal(size=(records, 100))
    X[:, 0] = noise[:, 0]
    for column in range(1, 100):
        X[:, column] = 0.5 * X[:, column - 1] + np.sqrt(0.75) * noise[:, column]
    half = np.arange(1, 11) / 2.0
    weights = np.concatenate([half, -half, np.zeros(80)])
    chance = 1.0 / (1.0 + np.exp(-X @ weights + random.normal(size=records)))
    return X, np.where(random.random(records) < chance, 1.0, -1.0)
