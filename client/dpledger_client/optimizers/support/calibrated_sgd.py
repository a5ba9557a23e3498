"""DP-SGD whose noise is solved for from an (ε, δ), by one way of counting or another."""

import abc
from dataclasses import dataclass, field

from dpledger_client._checks import check_choice, check_open_unit, check_positive
from dpledger_client.optimizers.methods.dp_sgd import DPSGD
from dpledger_client.optimizers.support.base import Method
from dpledger_client.optimizers.support.planning import Item, Setting
from dpledger_client.optimizers.support.projections import NoProjection, Projection
from dpledger_client.optimizers.support.schedules import StepSize
from dpledger_client.optimizers.support.stochastic import AVERAGES, check_sampling
from dpledger_client.optimizers.training import Training

__all__ = ["CalibratedSGD"]


@dataclass(frozen=True)
class CalibratedSGD(Method):
    """The parameters of DP-SGD with ``epsilon`` and ``delta`` in the place of the noise."""

    steps: int
    batch_size: int
    clip: float
    epsilon: float
    delta: float
    step_size: StepSize
    projection: Projection = field(default_factory=NoProjection)
    average: str = "last"

    def __post_init__(self) -> None:
        check_sampling(self.steps, self.batch_size, self.clip, 1.0)
        check_positive("epsilon", self.epsilon)
        check_open_unit("delta", self.delta)
        check_choice("average", self.average, AVERAGES)

    @abc.abstractmethod
    def noise_multiplier(self, setting: Training | Setting) -> float:
        """The noise, by the service's answers; they look at no data and record nothing."""

    def train(self, training: Training) -> None:
        self._calibrate(training).train(training)

    def items(self, setting: Setting) -> list[Item]:
        return self._calibrate(setting).items(setting)

    def _calibrate(self, setting: Training | Setting) -> DPSGD:
        return DPSGD(
            self.steps,
            self.batch_size,
            self.clip,
            self.noise_multiplier(setting),
            self.step_size,
            projection=self.projection,
            average=self.average,
        )
