"""Subsampled stochastic ADMM: a noisy mini-batch gradient, and a regulariser that need not be smooth."""

from dataclasses import dataclass
from typing import ClassVar

from dpledger_client._arrays import Floats
from dpledger_client._checks import check_choice, check_count, check_positive, check_rate
from dpledger_client.mechanisms import Gaussian
from dpledger_client.objectives.base import gradient_sensitivity
from dpledger_client.optimizers.noise_levels import noise_for_multiplier
from dpledger_client.optimizers.support.base import Method
from dpledger_client.optimizers.support.batches import sample_at
from dpledger_client.optimizers.support.planning import Item, Setting, step_item
from dpledger_client.optimizers.support.schedules import StepSize, step_size_at
from dpledger_client.optimizers.support.splitting import Split, shrinkage
from dpledger_client.optimizers.training import Training
from dpledger_client.releases import Release

__all__ = ["SubsampledADMM"]


@dataclass(frozen=True)
class SubsampledADMM(Method):
    """ssADMM (Chen 2020, dissertation, Algorithm 4.1; Chen and Lee 2020).

    Each step takes a fresh sample, releases the noisy sum of its clipped gradients, moves x by the closed
    form (4.8), and then z by the regulariser's proximal map (4.10) and the dual variable y (4.9).

    Parameters
    ----------
    steps
        How many.
    clip
        To which norm each record's gradient is shortened.
    noise_multiplier
        The noise's standard deviation over the sensitivity of the sum of clipped gradients, which is
        ``clip`` under add-remove and twice that under replace-one.
    rate
        The share of the records in a sample; 1 for all of them. Poisson sampling under add-remove, without
        replacement under replace-one.
    step_size
        A number, or a function of the iteration; the theorem of convergence wants O(1/√k).
    penalty
        ρ > 0, which pulls x and z together.
    output
        ``x``, as in the dissertation, or ``z``, which has the regulariser's exact zeros.

    Notes
    -----
    A step is charged as one Gaussian release on its sample, amplified. Theorem 4.1 states a sensitivity of
    2C/m for the mean over a sample of m records under replace-one, which is right: the sum, which is
    released here, has 2C, and C where a record is added or removed. z and y follow from what was
    released. Changed: the noisy sum is divided by the public expected size of a sample, and gradients are
    clipped, so that nothing is assumed about the data.
    """

    name: ClassVar[str] = "ssadmm"
    steps: int
    clip: float
    noise_multiplier: float
    rate: float
    step_size: StepSize
    penalty: float = 0.25
    output: str = "x"

    def __post_init__(self) -> None:
        check_count("steps", self.steps)
        check_positive("clip", self.clip)
        check_positive("noise_multiplier", self.noise_multiplier)
        check_rate("rate", self.rate)
        check_positive("penalty", self.penalty)
        check_choice("output", self.output, ("x", "z"))

    def items(self, setting: Setting) -> list[Item]:
        sample = sample_at(self.rate, setting.records, setting.adjacency)
        return [step_item("gradient", self._release(setting.adjacency), sample, self.steps)]

    def _release(self, adjacency: str) -> Release:
        sensitivity = gradient_sensitivity(self.clip, adjacency)
        noise_std = noise_for_multiplier(self.noise_multiplier, sensitivity)
        return Release(Gaussian(sensitivity, noise_std), purpose="gradient")

    def train(self, training: Training) -> None:
        release = self._release(training.adjacency)
        split = Split.at(training.w)
        for iteration in range(1, self.steps + 1):
            eta = step_size_at(self.step_size, iteration)
            gradient = self._gradient(training, release, split.x)
            x = split.anchor(eta, self.penalty) - shrinkage(eta, self.penalty) * gradient
            split = split.advance(x, self.penalty, training.objective.regularizer)
            training.record(split.x, output=split.z if self.output == "z" else None, step_size=eta)

    def _gradient(self, training: Training, release: Release, x: Floats) -> Floats:
        """The noisy mean gradient of the loss alone: the regulariser is z's."""
        objective = training.objective
        sample = sample_at(self.rate, training.records, training.adjacency)
        noisy: Floats = training.authorized(release, sample).release(
            lambda batch: objective.clipped_gradient_sum(x, batch.X, batch.y, self.clip)
        )
        return noisy / sample.expected_size(training.records)
