"""Linear models whose records count with weights of their own."""

from typing import Any

import numpy as np

from dpledger_client._arrays import Floats
from dpledger_client.objectives.linear import Linear

__all__ = ["Weighted"]


class Weighted(Linear):
    """A linear model whose labels have a second column: a weight by which a loss is multiplied.

    A weight is cut to [0, 1] here, whatever the caller did, and is 0 where it is no number. A record's
    gradient, clipped after the weight, is no longer than without it, so that sensitivities and the
    objective's constants hold as they are.
    """

    def __init__(self, objective: Linear) -> None:
        super().__init__(objective.regularizer)
        self.unweighted = objective
        self.classes = objective.classes

    def margin_losses(self, margins: Floats, y: Floats) -> Floats:
        return _weights(y) * self.unweighted.margin_losses(margins, y[:, 0])

    def margin_slopes(self, margins: Floats, y: Floats) -> Floats:
        slopes: Any = self.unweighted.margin_slopes(margins, y[:, 0])
        weights = _weights(y)
        found: Floats = slopes * (weights if slopes.ndim == 1 else weights[:, None])
        return found

    def lipschitz(self, row_norm: float = 1.0, weight_norm: float = float("inf")) -> float:
        return self.unweighted.lipschitz(row_norm, weight_norm)

    def smoothness(self, row_norm: float = 1.0) -> float:
        return self.unweighted.smoothness(row_norm)


def _weights(y: Floats) -> Floats:
    return np.clip(np.nan_to_num(y[:, 1]), 0.0, 1.0)
