"""Base class of the objectives."""

import abc
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dpledger_client._arrays import Floats
from dpledger_client._checks import check_choice, check_positive
from dpledger_client.objectives.regularizers import Regularizer, Unregularized

__all__ = [
    "CLIP_MARGIN",
    "LOST_SQUARES",
    "Objective",
    "blocks",
    "clip_factors",
    "cut_sum",
    "gradient_sensitivity",
    "limit_under",
    "loss_sensitivity",
    "parameters",
    "row_products",
    "usable",
]

CLIP_MARGIN = 2.0**-20
"""How far below the limit asked for, in proportion, clipping stays: room for rounding errors."""
LOST_SQUARES = 2.0**-960
"""More than a sum of squares loses where they are too small for a double. A gradient is the product of two
vectors: one whose computed norm were 0 would not be clipped, however long the other is."""
ADJACENCIES = ("add-remove", "replace-one")
_LEAST_FACTOR = 2.0**-1000
"""Below 2⁻¹⁰²² a double loses digits, and a factor that is rounded up lets more through than the limit."""
_FEWEST_ROWS = 512
_MOST_ROWS = 1024
_BLOCK_NUMBERS = 1 << 17
"""About a megabyte of doubles: a block stays in the cache while it is used several times."""


class Objective(abc.ABC):
    """A mean of per-example losses, and a regulariser.

    Parameters are a flat vector ``w``; ``X`` has a row for each example and ``y`` an entry. Losses are
    never negative. Sums are over examples and without the regulariser, which is added after the noise.
    """

    def __init__(self, regularizer: Regularizer | None = None) -> None:
        self.regularizer = regularizer if regularizer is not None else Unregularized()

    @abc.abstractmethod
    def dimension(self, X: Any, y: Any) -> int:
        """The number of parameters for such data; from shapes alone."""

    @abc.abstractmethod
    def losses(self, w: Floats, X: Any, y: Any) -> Floats:
        """The loss of each example."""

    @abc.abstractmethod
    def gradient_sum(self, w: Floats, X: Any, y: Any) -> Floats:
        """The sum of the examples' gradients."""

    @abc.abstractmethod
    def clipped_gradient_sum(
        self,
        w: Floats,
        X: Any,
        y: Any,
        clip: float,
        row_norms: Floats | None = None,
    ) -> Floats:
        """The sum of the examples' gradients, each shortened to an L2 norm of at most ``clip``.

        ``row_norms`` are the norms of X's rows, if they are known from before; they must be right.
        """

    @abc.abstractmethod
    def gradient_norms(self, w: Floats, X: Any, y: Any) -> Floats:
        """The L2 norm of each example's gradient."""

    def initial(self, X: Any, y: Any) -> Floats:
        """Parameters to start from; from shapes alone."""
        return np.zeros(self.dimension(X, y))

    def loss(self, w: Floats, X: Any, y: Any) -> float:
        """The mean loss with the regulariser."""
        return float(np.mean(self.losses(w, X, y))) + self.regularizer.value(parameters(w))

    def gradient(self, w: Floats, X: Any, y: Any) -> Floats:
        """The gradient of :meth:`loss`."""
        return self.gradient_sum(w, X, y) / len(X) + self.regularizer.gradient(parameters(w))

    def clipped_loss_sum(self, w: Floats, X: Any, y: Any, clip: float) -> float:
        """The sum of the examples' losses, each cut to [0, clip]; what is no number counts as clip."""
        return cut_sum(self.losses(w, X, y), clip)

    def clipped_line_sums(
        self, w: Floats, direction: Floats, sizes: Sequence[float], X: Any, y: Any, clip: float
    ) -> list[float]:
        """:meth:`clipped_loss_sum` at w − s·direction, for each step size s."""
        return [self.clipped_loss_sum(w - size * direction, X, y, clip) for size in sizes]

    def lipschitz(self, row_norm: float = 1.0, weight_norm: float = np.inf) -> float:
        """A bound on every example's gradient norm, for rows and parameters of bounded norms."""
        return np.inf

    def smoothness(self, row_norm: float = 1.0) -> float:
        """A bound on the largest eigenvalue of the Hessian, the regulariser included."""
        return np.inf


def gradient_sensitivity(clip: float, adjacency: str) -> float:
    """How far a clipped gradient sum moves between neighbours, in L2: the limit, or twice that."""
    factor = {"add-remove": 1.0, "replace-one": 2.0}[check_choice("adjacency", adjacency, ADJACENCIES)]
    return factor * check_positive("clip", clip)


def loss_sensitivity(clip: float, adjacency: str) -> float:
    """How far a clipped loss sum moves between neighbours: the limit, since every term is in [0, limit]."""
    check_choice("adjacency", adjacency, ADJACENCIES)
    return check_positive("clip", clip)


def parameters(w: Any) -> Floats:
    """The parameters as finite doubles; they are public, so that refusing them tells nothing."""
    array = np.asarray(w, dtype=np.float64)
    if array.ndim != 1 or not np.isfinite(array).all():
        raise ValueError("w must be a vector of finite numbers")
    return array


def limit_under(clip: float) -> float:
    """The limit that is applied so that rounding errors do not lead above ``clip``."""
    return check_positive("clip", clip) * (1.0 - CLIP_MARGIN)


def cut_sum(losses: Floats, clip: float) -> float:
    """The sum of losses, each cut to [0, clip]; what is no number counts as clip."""
    limit = limit_under(clip)
    return float(np.sum(np.where(losses < limit, np.maximum(losses, 0.0), limit)))


def blocks(X: Any) -> Iterator[slice]:
    """Runs of rows that are worked on together."""
    records, columns = X.shape
    rows = min(_MOST_ROWS, max(_FEWEST_ROWS, _BLOCK_NUMBERS // max(columns, 1)))
    for start in range(0, records, rows):
        yield slice(start, min(start + rows, records))


def row_products(rows: Floats, weights: Floats) -> Floats:
    """rows @ weights, each row by itself.

    A product of matrices rounds a row by its place: the last few are multiplied by other instructions. Where
    margins cancel to their rounding errors, one record more would so change what others count with.
    """
    products: Floats = (
        np.vecdot(rows, weights) if weights.ndim == 1 else np.matmul(rows[:, None, :], weights)[:, 0, :]
    )
    return products


def clip_factors(norms: Floats, limit: float) -> Floats:
    """By how much each gradient is shortened; 0 where the norm is not finite, or too large for a factor."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        factors = np.minimum(1.0, limit / norms)
        return np.where(factors >= _LEAST_FACTOR, factors, 0.0)  # no comparison with NaN is true


def usable(rows: Floats, factors: Floats) -> Floats:
    """The rows, with zeros for those whose factor is 0: they may hold what no factor makes harmless."""
    dropped = factors == 0.0
    return np.where(dropped[:, None], 0.0, rows) if dropped.any() else rows
