"""Noisy projected gradient descent, on all records or on a sample of them."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from dpledger_client._arrays import Floats
from dpledger_client._checks import check_choice, check_count, check_positive
from dpledger_client.mechanisms import Gaussian
from dpledger_client.objectives.base import gradient_sensitivity
from dpledger_client.optimizers.noise_levels import noise_for_multiplier
from dpledger_client.optimizers.support.base import Method
from dpledger_client.optimizers.support.planning import Item, Setting, step_item
from dpledger_client.optimizers.support.projections import NoProjection, Projection
from dpledger_client.optimizers.support.schedules import StepSize, step_size_at
from dpledger_client.optimizers.training import Training
from dpledger_client.releases import Release

__all__ = ["NoisyGradientDescent"]


@dataclass(frozen=True)
class NoisyGradientDescent(Method):
    """w ← Π(w − η(g + noise)) with the gradient of all records (Bassily, Smith, Thakurta 2014).

    Parameters
    ----------
    steps
        How many.
    clip
        To which norm each record's gradient is shortened.
    noise_multiplier
        The noise's standard deviation over the sensitivity of the sum of clipped gradients, which is
        ``clip`` under add-remove and twice that under replace-one.
    step_size
        A number, or a function of the iteration: see :mod:`dpledger_client.optimizers.support.schedules`.
    projection
        Onto which set.
    average
        ``last``: the last iterate; ``uniform``: (w₀ + … + w_{T−1})/T, as the lectures' theorems want it.

    Notes
    -----
    Each step is one Gaussian release on the whole dataset: ρ = 1/(2·noise_multiplier²).
    """

    name: ClassVar[str] = "noisy-gd"
    steps: int
    clip: float
    noise_multiplier: float
    step_size: StepSize
    projection: Projection = field(default_factory=NoProjection)
    average: str = "last"

    def __post_init__(self) -> None:
        check_count("steps", self.steps)
        check_positive("clip", self.clip)
        check_positive("noise_multiplier", self.noise_multiplier)
        check_choice("average", self.average, ("last", "uniform"))

    def items(self, setting: Setting) -> list[Item]:
        return [step_item("gradient", self._release(setting.adjacency), times=self.steps)]

    def train(self, training: Training) -> None:
        release = self._release(training.adjacency)
        w = self.projection(training.w)
        total = np.zeros_like(w)
        for iteration in range(1, self.steps + 1):
            total += w
            eta = step_size_at(self.step_size, iteration)
            w = self.projection(w - eta * self._gradient(training, release, w))
            output = total / iteration if self.average == "uniform" else None
            training.record(w, output=output, step_size=eta)

    def _release(self, adjacency: str) -> Release:
        sensitivity = gradient_sensitivity(self.clip, adjacency)
        return Release(
            Gaussian(sensitivity, noise_for_multiplier(self.noise_multiplier, sensitivity)),
            purpose="gradient",
        )

    def _gradient(self, training: Training, release: Release, w: Floats) -> Floats:
        """The noisy mean gradient; the regulariser is public and added after the noise."""
        objective = training.objective
        noisy: Floats = training.authorized(release).release(
            lambda batch: objective.clipped_gradient_sum(w, batch.X, batch.y, self.clip)
        )
        return noisy / training.records + objective.regularizer.gradient(w)
