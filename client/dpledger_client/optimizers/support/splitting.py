"""ADMM that splits a loss from its regulariser: what follows a noisy x is public and costs nothing."""

from dataclasses import dataclass

import numpy as np

from dpledger_client._arrays import Floats
from dpledger_client.objectives.regularizers import Regularizer

__all__ = ["Split", "shrinkage"]


def shrinkage(step_size: float, penalty: float) -> float:
    """η/(1 + ηρ) = 1/(ρ + 1/η): how far x moves for a gradient of 1, by Chen 2020, (4.8)."""
    return step_size / (1.0 + step_size * penalty)


@dataclass(frozen=True)
class Split:
    """The primal variables x and z, which shall become equal, and the dual variable y.

    Minimises f(x) + h(z) subject to x = z, with f replaced by its linearisation at x and ‖x − x_k‖²/(2η)
    (Ouyang, He, Tran, Gray 2013; Chen 2020, dissertation, (4.7)).
    """

    x: Floats
    z: Floats
    y: Floats

    @classmethod
    def at(cls, start: Floats) -> "Split":
        """Both primal variables at the start, the dual variable zero."""
        return cls(start, start, np.zeros_like(start))

    def anchor(self, step_size: float, penalty: float) -> Floats:
        """Where x would go if the gradient were zero: (4.8) without its only term that needs the data."""
        pulled = penalty * self.z - self.y + self.x / step_size
        return shrinkage(step_size, penalty) * pulled

    def advance(self, x: Floats, penalty: float, regularizer: Regularizer) -> "Split":
        """The next z, by (4.10), and y, by (4.9), from an x that was released."""
        z = regularizer.proximal(x + self.y / penalty, 1.0 / penalty)
        return Split(x, z, self.y + penalty * (x - z))
