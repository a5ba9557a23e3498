"""DP-Adam: Adam on the noisy gradients of DP-SGD."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from dpledger_client._arrays import Floats
from dpledger_client._checks import check_flag, check_open_unit, check_positive
from dpledger_client.optimizers.support.base import Method
from dpledger_client.optimizers.support.planning import Item, Setting
from dpledger_client.optimizers.support.projections import NoProjection, Projection
from dpledger_client.optimizers.support.schedules import StepSize
from dpledger_client.optimizers.support.stochastic import NoisyGradient, check_sampling, step_sizes
from dpledger_client.optimizers.training import Training

__all__ = ["DPAdam"]


@dataclass(frozen=True)
class DPAdam(Method):
    """w ← Π(w − η·m̂/(√v̂ + ε)) with Adam's moments of the noisy gradient (Kingma, Ba 2015).

    Parameters
    ----------
    steps, batch_size, clip, noise_multiplier, step_size, projection
        As in :class:`~dpledger_client.optimizers.methods.dp_sgd.DPSGD`.
    first_decay, second_decay
        β₁ and β₂.
    stability
        ε, beside the root of the second moment.
    noise_correction
        Take the noise's own variance, which is public, off the second moment, down to ``stability``²
        at least (DP-AdamBC: Tang, Shpilevskiy, Lécuyer 2024). The root is then taken without ``stability``.

    Notes
    -----
    Both moments are functions of what DP-SGD releases, so that a step is charged what a step of DP-SGD is.
    """

    name: ClassVar[str] = "dp-adam"
    steps: int
    batch_size: int
    clip: float
    noise_multiplier: float
    step_size: StepSize
    first_decay: float = 0.9
    second_decay: float = 0.999
    stability: float = 1e-8
    noise_correction: bool = False
    projection: Projection = field(default_factory=NoProjection)

    def __post_init__(self) -> None:
        check_sampling(self.steps, self.batch_size, self.clip, self.noise_multiplier)
        check_open_unit("first_decay", self.first_decay)
        check_open_unit("second_decay", self.second_decay)
        check_positive("stability", self.stability)
        check_flag("noise_correction", self.noise_correction)

    def items(self, setting: Setting) -> list[Item]:
        return [NoisyGradient.of(setting, self.batch_size, self.clip, self.noise_multiplier).item(self.steps)]

    def train(self, training: Training) -> None:
        gradient = NoisyGradient.of(training, self.batch_size, self.clip, self.noise_multiplier)
        w = self.projection(training.w)
        first, second = np.zeros_like(w), np.zeros_like(w)
        for iteration, eta in enumerate(step_sizes(self.step_size, self.steps), start=1):
            found = gradient.at(training, w)
            first += (1.0 - self.first_decay) * (found - first)
            second += (1.0 - self.second_decay) * (np.square(found) - second)
            mean = first / (1.0 - self.first_decay**iteration)
            square = second / (1.0 - self.second_decay**iteration)
            w = self.projection(w - eta * mean / self._root(square, gradient.noise_std))
            training.record(w, step_size=eta)

    def _root(self, square: Floats, noise_std: float) -> Floats:
        if not self.noise_correction:
            return np.sqrt(square) + self.stability
        return np.sqrt(np.maximum(square - noise_std**2, self.stability**2))
