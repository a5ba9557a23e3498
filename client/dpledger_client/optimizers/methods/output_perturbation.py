"""Output perturbation: gradient descent without noise, and noise on where it ended."""

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

from dpledger_client._checks import check_count, check_positive
from dpledger_client.objectives.base import Objective
from dpledger_client.optimizers.support.base import Method
from dpledger_client.optimizers.support.permuted_sgd import (
    Passes,
    check_adjacency,
    check_replace_one,
    plan_permutation,
    train_on_permutation,
)
from dpledger_client.optimizers.support.planning import Item, Setting
from dpledger_client.optimizers.support.projections import NoProjection, Projection
from dpledger_client.optimizers.support.schedules import StepSize, step_size_at
from dpledger_client.optimizers.training import Training

__all__ = ["OutputPerturbation"]


@dataclass(frozen=True)
class OutputPerturbation(Method):
    """Projected gradient descent on all records, and Gaussian noise on its last iterate, asked for once.

    Zhang, Zheng, Mou, Wang 2017; Wu et al. 2017.

    Parameters
    ----------
    steps
        Of gradient descent; more cost more noise, but with a strongly convex regulariser not without
        bound.
    noise_multiplier
        The noise's standard deviation over the sensitivity of the last iterate.
    step_size
        A number, a function of the iteration, or None for 2/(L + μ).
    row_norm
        To which norm every row is shortened, which bounds gradients and curvature whatever the data are.
    projection
        Onto which set; least squares needs a bounded one, without which its gradients have no bound.

    Notes
    -----
    One Gaussian release on the whole dataset: ρ = 1/(2·noise_multiplier²). The sensitivity grows from 0 by
    Δ ← max(|1 − ημ|, |1 − ηL|)·Δ + 2ηR/n a step: gradient descent is the case of one mini-batch of
    :func:`~dpledger_client.optimizers.support.permuted_sgd.sensitivities`. That is proven under replace-one;
    under add-remove the number of records, and with it the curvature of a sum over a public number, has no
    bound.
    The objective must be convex and smooth. Published forms assume rows of norm 1; here they are shortened.
    """

    name: ClassVar[str] = "output-perturbation"
    steps: int
    noise_multiplier: float
    step_size: StepSize | None = None
    row_norm: float = 1.0
    projection: Projection = field(default_factory=NoProjection)

    def __post_init__(self) -> None:
        check_count("steps", self.steps)
        check_positive("noise_multiplier", self.noise_multiplier)
        check_positive("row_norm", self.row_norm)

    @property
    def planned_steps(self) -> int:
        return 1

    def items(self, setting: Setting) -> list[Item]:
        check_adjacency(setting.adjacency, self.name)
        return plan_permutation(setting, self._passes(setting), **self._noise)

    def train(self, training: Training) -> None:
        check_replace_one(training, self.name)
        train_on_permutation(training, self._passes(training), **self._noise)

    def _passes(self, setting: Training | Setting) -> Passes:
        etas = self._etas(setting.objective)
        return Passes.over(setting.records, 1, etas, projection=self.projection)

    @property
    def _noise(self) -> dict[str, Any]:
        return {"row_norm": self.row_norm, "noise_multiplier": self.noise_multiplier, "permute": False}

    def _etas(self, objective: Objective) -> tuple[float, ...]:
        chosen = self._best(objective) if self.step_size is None else self.step_size
        return tuple(step_size_at(chosen, iteration) for iteration in range(1, self.steps + 1))

    def _best(self, objective: Objective) -> float:
        """2/(L + μ), which contracts most."""
        smoothness = objective.smoothness(self.row_norm)
        if not math.isfinite(smoothness):
            raise ValueError("output perturbation needs a smooth objective and regulariser, such as Logistic")
        return 2.0 / (smoothness + objective.regularizer.strong_convexity)
