"""Proximal DP-SGD: noisy gradients of the loss, and the regulariser's proximal map."""

from dataclasses import dataclass
from typing import ClassVar

from dpledger_client._arrays import Floats
from dpledger_client._checks import check_choice
from dpledger_client.optimizers.support.base import Method
from dpledger_client.optimizers.support.planning import Item, Setting
from dpledger_client.optimizers.support.schedules import StepSize
from dpledger_client.optimizers.support.stochastic import (
    AVERAGES,
    Average,
    NoisyGradient,
    check_sampling,
    step_sizes,
)
from dpledger_client.optimizers.training import Training

__all__ = ["ProximalSGD"]


@dataclass(frozen=True)
class ProximalSGD(Method):
    """w ← prox_{ηh}(w − η·g) with the noisy gradient g of the loss alone and the regulariser h.

    Chen 2020, dissertation, (4.17), with h = λ‖·‖₁ and soft thresholding; here any regulariser.

    Parameters
    ----------
    steps, batch_size, clip, noise_multiplier, step_size, average
        As in :class:`~dpledger_client.optimizers.methods.dp_sgd.DPSGD`.

    Notes
    -----
    A step is charged what one of DP-SGD is: the subsampled Gaussian at its sampling rate. The proximal map is
    a function of what was released and of the regulariser, which is public, and costs nothing.
    """

    name: ClassVar[str] = "proximal-sgd"
    steps: int
    batch_size: int
    clip: float
    noise_multiplier: float
    step_size: StepSize
    average: str = "last"

    def __post_init__(self) -> None:
        check_sampling(self.steps, self.batch_size, self.clip, self.noise_multiplier)
        check_choice("average", self.average, AVERAGES)

    def items(self, setting: Setting) -> list[Item]:
        return [NoisyGradient.of(setting, self.batch_size, self.clip, self.noise_multiplier).item(self.steps)]

    def train(self, training: Training) -> None:
        gradient = NoisyGradient.of(training, self.batch_size, self.clip, self.noise_multiplier)
        regularizer = training.objective.regularizer
        average, w = Average(self.average), training.w
        for eta in step_sizes(self.step_size, self.steps):
            average.add(w)
            w = regularizer.proximal(w - eta * self._loss_gradient(training, gradient, w), eta)
            training.record(w, output=average.mean, step_size=eta)

    def _loss_gradient(self, training: Training, gradient: NoisyGradient, w: Floats) -> Floats:
        """Without the regulariser, which the proximal map is for."""
        clip, objective = gradient.clip, training.objective
        noisy: Floats = training.release(
            gradient.release,
            gradient.sample,
            lambda batch: objective.clipped_gradient_sum(w, batch.X, batch.y, clip),
        )
        return noisy / gradient.size
