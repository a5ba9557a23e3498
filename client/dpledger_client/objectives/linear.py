"""Linear models: logistic regression, support vector machines, least squares, softmax.

The gradient of one example is x ⊗ r with r the derivative of its loss by the margins X·w. So its norm is
‖x‖·‖r‖, and a clipped sum is Xᵀ(f·r) with f the examples' factors: no gradient of a single example is
ever formed.
"""

import abc
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dpledger_client._arrays import Bools, Floats, as_numbers
from dpledger_client._checks import check_count, check_positive
from dpledger_client.objectives.base import (
    LOST_SQUARES,
    Objective,
    blocks,
    clip_factors,
    cut_sum,
    limit_under,
    parameters,
    row_products,
    usable,
)
from dpledger_client.objectives.regularizers import Regularizer

__all__ = [
    "HingeSVM",
    "HuberSVM",
    "LeastSquares",
    "Linear",
    "Logistic",
    "Softmax",
    "class_slopes",
    "cross_entropies",
    "softmax",
]

_FEWEST_ROWS = 1024
_STRETCH_NUMBERS = 1 << 19
"""Four megabytes of doubles: long enough for a product by several threads, short enough to stay in the cache
for the norms and the sum that follow."""


class Linear(Objective):
    """A loss of the margin x·w, or of one margin for each class."""

    classes: int | None = None
    """The number of margins of an example, if it has more than one."""

    @abc.abstractmethod
    def margin_losses(self, margins: Floats, y: Floats) -> Floats:
        """The loss of each example from its margin."""

    @abc.abstractmethod
    def margin_slopes(self, margins: Floats, y: Floats) -> Floats:
        """The derivative of each example's loss by its margin."""

    def dimension(self, X: Any, y: Any) -> int:
        return int(X.shape[1]) * (self.classes or 1)

    def losses(self, w: Floats, X: Any, y: Any) -> Floats:
        weights = self._weights(w, X)
        with np.errstate(all="ignore"):
            found = [
                self.margin_losses(row_products(_rows(X, rows), weights), as_numbers(y[rows]))
                for rows in blocks(X)
            ]
        return np.concatenate(found) if found else np.empty(0)

    def clipped_line_sums(
        self, w: Floats, direction: Floats, sizes: Sequence[float], X: Any, y: Any, clip: float
    ) -> list[float]:
        """Two products for all step sizes: the margins of w − s·v are those of w less s times those of v."""
        with np.errstate(all="ignore"):
            here, along = (self._margins(point, X) for point in (w, direction))
            labels = as_numbers(y)
            return [cut_sum(self.margin_losses(here - size * along, labels), clip) for size in sizes]

    def _margins(self, w: Floats, X: Any) -> Floats:
        weights = self._weights(w, X)
        found = [row_products(_rows(X, rows), weights) for rows in blocks(X)]
        return np.concatenate(found) if found else np.empty((0, *weights.shape[1:]))

    def gradient_sum(self, w: Floats, X: Any, y: Any) -> Floats:
        weights = self._weights(w, X)
        total = np.zeros_like(weights)
        for rows in blocks(X):
            block = _rows(X, rows)
            total += block.T @ self.margin_slopes(block @ weights, as_numbers(y[rows]))
        return total.ravel()

    def clipped_gradient_sum(
        self,
        w: Floats,
        X: Any,
        y: Any,
        clip: float,
        row_norms: Floats | None = None,
    ) -> Floats:
        weights, limit = self._weights(w, X), limit_under(clip)
        total = np.zeros_like(weights)
        with np.errstate(all="ignore"):
            for rows in _stretches(X):
                stretch = _rows(X, rows)
                slopes = self.margin_slopes(row_products(stretch, weights), as_numbers(y[rows]))
                norms = _norms(stretch) if row_norms is None else row_norms[rows]
                factors = clip_factors(norms * _sizes(slopes), limit)
                _accumulate(total, stretch, slopes, factors)
        return total.ravel()

    def gradient_norms(self, w: Floats, X: Any, y: Any) -> Floats:
        weights = self._weights(w, X)
        found = []
        with np.errstate(all="ignore"):
            for rows in blocks(X):
                block = _rows(X, rows)
                found.append(_norms(block) * _sizes(self.margin_slopes(block @ weights, as_numbers(y[rows]))))
        return np.concatenate(found) if found else np.empty(0)

    def _weights(self, w: Floats, X: Any) -> Floats:
        flat = parameters(w)
        return flat if self.classes is None else flat.reshape(int(X.shape[1]), self.classes)


def _rows(X: Any, rows: slice) -> Floats:
    return as_numbers(X[rows])


def _norms(rows: Floats) -> Floats:
    """From above: a square that is too small for a double counts as more, or it would hide a row."""
    squares: Floats = np.vecdot(rows, rows)
    return np.sqrt(squares + LOST_SQUARES)


def _sizes(slopes: Floats) -> Floats:
    return np.abs(slopes) if slopes.ndim == 1 else _norms(slopes)


def _stretches(X: Any) -> Iterator[slice]:
    """Runs of rows long enough for a product to be worth several threads."""
    records, columns = X.shape
    rows = max(_FEWEST_ROWS, _STRETCH_NUMBERS // max(columns, 1))
    for start in range(0, records, rows):
        yield slice(start, min(start + rows, records))


def _accumulate(total: Floats, rows: Floats, slopes: Floats, factors: Floats) -> None:
    """Add Σ f·x ⊗ r, block by block, which is what the margin for rounding errors is for.

    An example whose factor is 0 is left out, for it may hold what no factor makes harmless.
    """
    if not factors.all():
        rows, slopes = usable(rows, factors), np.where(_wide(factors, slopes) == 0.0, 0.0, slopes)
    scaled = slopes * _wide(factors, slopes)
    for part in blocks(rows):
        total += scaled[part] @ rows[part] if slopes.ndim == 1 else rows[part].T @ scaled[part]


def _wide(factors: Floats, slopes: Floats) -> Floats:
    return factors if slopes.ndim == 1 else factors[:, None]


class Logistic(Linear):
    """log(1 + e^(−y·x·w)) for labels −1 and 1."""

    def margin_losses(self, margins: Floats, y: Floats) -> Floats:
        # logaddexp(0, −z), in functions that numpy computes several at a time.
        signed = y * margins
        losses: Floats = np.log1p(np.exp(-np.abs(signed))) + np.maximum(-signed, 0.0)
        return losses

    def margin_slopes(self, margins: Floats, y: Floats) -> Floats:
        with np.errstate(over="ignore"):  # 1/(1 + ∞) is the 0 that is meant
            return -y / (1.0 + np.exp(y * margins))

    def lipschitz(self, row_norm: float = 1.0, weight_norm: float = np.inf) -> float:
        return row_norm

    def smoothness(self, row_norm: float = 1.0) -> float:
        return row_norm**2 / 4.0 + self.regularizer.smoothness


class HingeSVM(Linear):
    """max(0, 1 − y·x·w) for labels −1 and 1; its gradient at the corner is 0."""

    def margin_losses(self, margins: Floats, y: Floats) -> Floats:
        return np.maximum(0.0, 1.0 - y * margins)

    def margin_slopes(self, margins: Floats, y: Floats) -> Floats:
        return np.where(y * margins < 1.0, -y, 0.0 * y)

    def lipschitz(self, row_norm: float = 1.0, weight_norm: float = np.inf) -> float:
        return row_norm


class HuberSVM(Linear):
    """The hinge loss made smooth within ``width`` of its corner, for labels −1 and 1.

    With z = y·x·w: 0 for z > 1 + h, (1 + h − z)²/(4h) for |1 − z| ≤ h, 1 − z below
    (Chaudhuri, Monteleoni, Sarwate 2011).
    """

    def __init__(self, width: float = 0.5, regularizer: Regularizer | None = None) -> None:
        super().__init__(regularizer)
        self.width = check_positive("width", width)

    def margin_losses(self, margins: Floats, y: Floats) -> Floats:
        short = 1.0 - y * margins
        middle = np.square(np.clip(short, -self.width, self.width) + self.width) / (4.0 * self.width)
        return middle + np.maximum(short - self.width, 0.0)

    def margin_slopes(self, margins: Floats, y: Floats) -> Floats:
        short = 1.0 - y * margins
        return -y * (np.clip(short, -self.width, self.width) + self.width) / (2.0 * self.width)

    def lipschitz(self, row_norm: float = 1.0, weight_norm: float = np.inf) -> float:
        return row_norm

    def smoothness(self, row_norm: float = 1.0) -> float:
        return row_norm**2 / (2.0 * self.width) + self.regularizer.smoothness


class LeastSquares(Linear):
    """(x·w − y)²/2; ``target_bound`` bounds |y|, for the Lipschitz constant only."""

    def __init__(self, regularizer: Regularizer | None = None, target_bound: float = 1.0) -> None:
        super().__init__(regularizer)
        self.target_bound = check_positive("target_bound", target_bound)

    def margin_losses(self, margins: Floats, y: Floats) -> Floats:
        return 0.5 * np.square(margins - y)

    def margin_slopes(self, margins: Floats, y: Floats) -> Floats:
        return margins - y

    def lipschitz(self, row_norm: float = 1.0, weight_norm: float = np.inf) -> float:
        return row_norm * (row_norm * weight_norm + self.target_bound)

    def smoothness(self, row_norm: float = 1.0) -> float:
        return row_norm**2 + self.regularizer.smoothness


class Softmax(Linear):
    """The cross-entropy of a linear classifier, for labels 0 to ``classes`` − 1.

    Parameters are a matrix with a row for each feature and a column for each class, flat.
    """

    def __init__(self, classes: int, regularizer: Regularizer | None = None) -> None:
        super().__init__(regularizer)
        self.classes: int = check_count("classes", classes, least=2)

    def margin_losses(self, margins: Floats, y: Floats) -> Floats:
        return cross_entropies(margins, y)

    def margin_slopes(self, margins: Floats, y: Floats) -> Floats:
        return class_slopes(margins, y)

    def lipschitz(self, row_norm: float = 1.0, weight_norm: float = np.inf) -> float:
        return math.sqrt(2.0) * row_norm

    def smoothness(self, row_norm: float = 1.0) -> float:
        return row_norm**2 / 2.0 + self.regularizer.smoothness


def softmax(margins: Floats) -> Floats:
    """Each row's exponentials over their sum."""
    powers: Floats = np.exp(margins - margins.max(axis=1, keepdims=True))
    shares: Floats = powers / powers.sum(axis=1, keepdims=True)
    return shares


def one_hot(y: Any, classes: int) -> Bools:
    """A row for each label, True in its column; a label that is no class has none."""
    found: Bools = np.asarray(y)[:, None] == np.arange(classes)
    return found


def class_slopes(margins: Floats, y: Any) -> Floats:
    """The derivatives of cross-entropies by the margins; zero for a label that is no class."""
    own = one_hot(y, margins.shape[1])
    slopes: Floats = (softmax(margins) - own) * own.any(axis=1, keepdims=True)
    return slopes


def cross_entropies(margins: Floats, y: Any) -> Floats:
    """−log softmax of each example's own class; zero for a label that is no class."""
    own = one_hot(y, margins.shape[1])
    chosen: Floats = np.where(own, margins, 0.0).sum(axis=1)
    total: Floats = np.logaddexp.reduce(margins, axis=1)
    return (total - chosen) * own.any(axis=1)
