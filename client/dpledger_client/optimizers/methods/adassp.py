"""Least squares from noisy sufficient statistics, with a ridge that adapts to the data."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpledger_client._arrays import Floats
from dpledger_client._checks import check_open_unit, check_positive
from dpledger_client.mechanisms import Gaussian
from dpledger_client.objectives.base import ADJACENCIES
from dpledger_client.objectives.linear import LeastSquares
from dpledger_client.objectives.regularizers import L2, Unregularized
from dpledger_client.optimizers.noise_levels import noise_for_multiplier
from dpledger_client.optimizers.support.base import Method
from dpledger_client.optimizers.support.moments import (
    noise_of,
    private_row_norm,
    row_norm_item,
    second_moments,
    split_statistics,
    statistics_release,
    statistics_sum,
    symmetric,
)
from dpledger_client.optimizers.support.planning import Item, Setting, step_item
from dpledger_client.optimizers.training import Batch, Training
from dpledger_client.releases import Release

__all__ = ["AdaSSP"]


@dataclass(frozen=True)
class AdaSSP(Method):
    """w = (M + λI)⁻¹v from noisy means M of xxᵀ and v of tx, λ by a noisy least eigenvalue (Wang 2018).

    Parameters
    ----------
    noise_multiplier, eigenvalue_multiplier, norm_multiplier
        The noise over the sensitivity of both sums, of the least eigenvalue of Σ xxᵀ, and of the counts of
        rows by norm, which give the norm that rows are shortened to.
    failure
        With which probability λ may be too small: λ = max(0, σ√(d·log(2d²/failure)) − the least eigenvalue).
    longest
        As in preconditioned-gd.

    Notes
    -----
    Three Gaussian releases of all records: Σ 1/(2·multiplier²) in ρ. The least eigenvalue of a sum of xxᵀ,
    ‖x‖ ≤ 1, moves by at most 1 between neighbours of either kind: by Weyl a record more raises it by at most
    its own largest eigenvalue ‖x‖², and never lowers it. The sums' sensitivities are in
    :mod:`dpledger_client.optimizers.support.moments`. Targets are cut to the objective's ``target_bound``.
    """

    name: ClassVar[str] = "adassp"
    noise_multiplier: float
    eigenvalue_multiplier: float
    norm_multiplier: float
    failure: float = 0.05
    longest: float = 1.0

    def __post_init__(self) -> None:
        for name in ("noise_multiplier", "eigenvalue_multiplier", "norm_multiplier", "longest"):
            check_positive(name, getattr(self, name))
        check_open_unit("failure", self.failure)

    @property
    def planned_steps(self) -> int:
        return 1

    def items(self, setting: Setting) -> list[Item]:
        return [
            row_norm_item(setting.adjacency, self.norm_multiplier),
            step_item("eigenvalue", self._eigenvalue(setting.adjacency)),
            step_item("statistics", statistics_release(setting.adjacency, self.noise_multiplier)),
        ]

    def train(self, training: Training) -> None:
        objective = training.objective
        if not isinstance(objective, LeastSquares) or not isinstance(
            objective.regularizer, L2 | Unregularized
        ):
            raise ValueError("adassp needs LeastSquares with an L2 regulariser or none")
        bound = objective.target_bound
        norm = private_row_norm(training, self.norm_multiplier, self.longest)
        ridge = self._ridge(training, norm)
        found: Floats = training.authorized(
            statistics_release(training.adjacency, self.noise_multiplier)
        ).release(lambda batch: statistics_sum(batch.X, batch.y, norm, bound))
        moments, cross = split_statistics(found, norm, training.records)
        values, vectors = np.linalg.eigh(moments)
        damped = np.maximum(values, 0.0) + ridge + objective.regularizer.strong_convexity
        inverse = 1.0 / np.maximum(damped, np.finfo(np.float64).tiny)
        training.record((vectors * inverse) @ (vectors.T @ (cross * bound)), ridge=ridge, row_norm=norm)

    def _eigenvalue(self, adjacency: str) -> Release:
        assert adjacency in ADJACENCIES
        noise = noise_for_multiplier(self.eigenvalue_multiplier, 1.0)
        return Release(Gaussian(1.0, noise), purpose="least eigenvalue")

    def _ridge(self, training: Training, norm: float) -> float:
        """λ, for means of xxᵀ."""
        columns = int(training.source.X.shape[1])

        def least(batch: Batch) -> Floats:
            matrix = symmetric(second_moments(batch.X, norm), columns)
            return np.asarray(np.linalg.eigvalsh(matrix)[:1], dtype=np.float64)

        noisy = float(training.authorized(self._eigenvalue(training.adjacency)).release(least)[0])
        spread = 2.0 * self.eigenvalue_multiplier
        noise = noise_of(statistics_release(training.adjacency, self.noise_multiplier))
        level = noise * math.sqrt(columns * math.log(2.0 * columns**2 / self.failure))
        return max(0.0, level - max(0.0, noisy - spread)) * norm**2 / training.records
