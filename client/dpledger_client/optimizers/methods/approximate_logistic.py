"""Logistic regression from noisy sufficient statistics of a quadratic in the place of its loss."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpledger_client._arrays import Floats
from dpledger_client._checks import check_non_negative, check_positive
from dpledger_client.objectives.linear import Logistic
from dpledger_client.objectives.regularizers import L2, Unregularized
from dpledger_client.optimizers.support.base import Method
from dpledger_client.optimizers.support.moments import (
    matrix_noise,
    private_row_norm,
    row_norm_item,
    split_statistics,
    statistics_release,
    statistics_sum,
)
from dpledger_client.optimizers.support.planning import Item, Setting, step_item
from dpledger_client.optimizers.training import Training

__all__ = ["ApproximateLogistic"]


@dataclass(frozen=True)
class ApproximateLogistic(Method):
    """The minimiser of the mean of log 2 − m/2 + c·m² over margins m = y·x·w, from noisy Σ xxᵀ and Σ yx.

    A quadratic in the place of log(1 + e^(−m)) makes two sums all that the data are asked for (Huggins,
    Adams, Broderick 2017; Kulkarni et al. 2021): w = (2cM + λI)⁻¹v/2, M the noisy mean of xxᵀ, v that of yx.

    Parameters
    ----------
    noise_multiplier
        The noise over the sensitivity of both sums together.
    norm_multiplier
        The same of the counts of rows by norm, which give the norm that rows are shortened to.
    curvature
        c: 1/8 is the second derivative at 0, less fits wider margins.
    damping
        λ over 2c times the spectral norm of M's noise, added to an L2 regulariser's own strength.
    longest
        As in preconditioned-gd.

    Notes
    -----
    Two Gaussian releases of all records: Σ 1/(2·multiplier²) in ρ. Sensitivities: 1 and √2, under replace-one
    √2 and √6; see :mod:`dpledger_client.optimizers.support.moments`. The rest is post-processing.
    """

    name: ClassVar[str] = "approximate-logistic"
    noise_multiplier: float
    norm_multiplier: float
    curvature: float = 0.1
    damping: float = 1.0
    longest: float = 1.0

    def __post_init__(self) -> None:
        for name in ("noise_multiplier", "norm_multiplier", "curvature", "longest"):
            check_positive(name, getattr(self, name))
        check_non_negative("damping", self.damping)

    @property
    def planned_steps(self) -> int:
        return 1

    def items(self, setting: Setting) -> list[Item]:
        release = statistics_release(setting.adjacency, self.noise_multiplier)
        return [row_norm_item(setting.adjacency, self.norm_multiplier), step_item("statistics", release)]

    def train(self, training: Training) -> None:
        strength = _strength(training)
        norm = private_row_norm(training, self.norm_multiplier, self.longest)
        release = statistics_release(training.adjacency, self.noise_multiplier)
        found: Floats = training.authorized(release).release(
            lambda batch: statistics_sum(batch.X, batch.y, norm)
        )
        moments, cross = split_statistics(found, norm, training.records)
        curve = 2.0 * self.curvature
        level = self.damping * curve * matrix_noise(release, len(cross), norm, training.records)
        values, vectors = np.linalg.eigh(curve * moments)
        inverse = 1.0 / np.maximum(np.maximum(values, 0.0) + level + strength, np.finfo(np.float64).tiny)
        training.record((vectors * inverse) @ (vectors.T @ cross) / 2.0, row_norm=norm)


def _strength(training: Training) -> float:
    """Of an L2 regulariser, which the quadratic can have; another is refused."""
    objective = training.objective
    if type(objective) is not Logistic:
        raise ValueError("approximate-logistic needs Logistic")
    if not isinstance(objective.regularizer, L2 | Unregularized):
        raise ValueError("approximate-logistic needs an L2 regulariser or none")
    return float(objective.regularizer.strong_convexity)
