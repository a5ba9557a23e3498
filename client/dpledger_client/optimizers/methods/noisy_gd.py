"""Noisy projected gradient descent, on all records or on a sample of them."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from dpledger_client._arrays import Floats
from dpledger_client._checks import (
    check_choice,
    check_count,
    check_flag,
    check_non_negative,
    check_positive,
)
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
        ``last``: the last iterate; ``uniform``: (w₀ + … + w_{T−1})/T, as the lectures' theorems want it;
        ``tail``: the mean of the iterates of the second half, in which the noise averages out.
    momentum
        m of the heavy ball, in [0, 1): v ← m·v + g, w ← Π(w − ηv) (Polyak 1964).
    nesterov
        Take the gradient where the momentum leads, at w − ηm·v (Nesterov 1983).

    Notes
    -----
    Each step is one Gaussian release on the whole dataset: ρ = 1/(2·noise_multiplier²).
    Momentum and averages are functions of what was released, and cost nothing.
    """

    name: ClassVar[str] = "noisy-gd"
    steps: int
    clip: float
    noise_multiplier: float
    step_size: StepSize
    projection: Projection = field(default_factory=NoProjection)
    average: str = "last"
    momentum: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        check_count("steps", self.steps)
        check_positive("clip", self.clip)
        check_positive("noise_multiplier", self.noise_multiplier)
        check_choice("average", self.average, ("last", "uniform", "tail"))
        if check_non_negative("momentum", self.momentum) >= 1.0:
            raise ValueError(f"momentum must be below 1, found {self.momentum!r}")
        check_flag("nesterov", self.nesterov)

    def items(self, setting: Setting) -> list[Item]:
        return [step_item("gradient", self._release(setting.adjacency), times=self.steps)]

    def train(self, training: Training) -> None:
        release = self._release(training.adjacency)
        w = self.projection(training.w)
        velocity, total = np.zeros_like(w), np.zeros_like(w)
        for iteration in range(1, self.steps + 1):
            if self.average == "uniform":
                total += w
            eta = step_size_at(self.step_size, iteration)
            ahead = w - eta * self.momentum * velocity if self.nesterov else w
            velocity = self.momentum * velocity + self._gradient(training, release, ahead)
            w = self.projection(w - eta * velocity)
            if self.average == "tail" and iteration > self.steps // 2:
                total += w
            training.record(w, output=self._output(total, iteration), step_size=eta)

    def _output(self, total: Floats, iteration: int) -> Floats | None:
        """The average so far, or None for the last iterate."""
        if self.average == "last":
            return None
        count = iteration if self.average == "uniform" else iteration - self.steps // 2
        return total / count if count > 0 else None

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
