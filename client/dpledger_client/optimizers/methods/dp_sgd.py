"""DP-SGD: noisy gradients of random samples, one record or a batch at a time."""

from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import ClassVar

import numpy as np

from dpledger_client._checks import check_choice, check_non_negative, check_numbers
from dpledger_client.optimizers.noise_levels import noise_for_multiplier
from dpledger_client.optimizers.support.base import Method
from dpledger_client.optimizers.support.planning import Facts, Item, Setting
from dpledger_client.optimizers.support.projections import NoProjection, Projection
from dpledger_client.optimizers.support.schedules import StepSize
from dpledger_client.optimizers.support.stochastic import (
    AVERAGES,
    Average,
    NoisyGradient,
    check_sampling,
    step_sizes,
)
from dpledger_client.optimizers.training import Training

__all__ = ["DPSGD"]


@dataclass(frozen=True)
class DPSGD(Method):
    """w ← Π(w − η·v), v ← m·v + g, with the noisy gradient g of a fresh sample.

    Abadi et al. 2016, Algorithm 1; with ``batch_size=1`` the noisy SGD of Bassily, Smith, Thakurta 2014
    (Wang, lecture 15, Algorithms 3 and 4).

    Parameters
    ----------
    steps
        How many.
    batch_size
        The expected number of records in a sample, each of which is in it by a coin of its own
        (add-remove), or the exact number, drawn without replacement (replace-one).
    clip
        To which norm each record's gradient is shortened.
    noise_multiplier
        The noise's standard deviation over the sensitivity of the sum of clipped gradients, which is
        ``clip`` under add-remove and twice that under replace-one.
    noise_factors
        The noise of equal parts of the steps, over ``noise_multiplier``: (1.3, 1.0, 0.8) decays in three
        parts. It is planned, so that it cannot follow the data.
    step_size
        A number, or a function of the iteration: see :mod:`dpledger_client.optimizers.support.schedules`.
    momentum
        m of the heavy ball, in [0, 1).
    projection
        Onto which set.
    average
        ``last``, ``uniform`` or ``weighted``; see
        :class:`~dpledger_client.optimizers.support.stochastic.Average`.

    Notes
    -----
    Each step is charged the subsampled Gaussian at its sampling rate. Momentum, projection and averages
    are post-processing. All steps of a part are one description, so that ``reserve=`` asks for many at once.
    Two things are not as published: the noisy sum is divided by the public expected size instead of the
    sample's own, and sampling without replacement is charged at twice the clip, as replace-one needs.
    """

    name: ClassVar[str] = "dp-sgd"
    steps: int
    batch_size: int
    clip: float
    noise_multiplier: float
    step_size: StepSize
    momentum: float = 0.0
    projection: Projection = field(default_factory=NoProjection)
    average: str = "last"
    noise_factors: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        check_sampling(self.steps, self.batch_size, self.clip, self.noise_multiplier)
        factors = check_numbers("noise_factors", self.noise_factors)
        if not 0 < len(factors) <= self.steps or min(factors) <= 0.0:
            raise ValueError(f"noise_factors must be above 0, at most one per step, found {factors!r}")
        object.__setattr__(self, "noise_factors", factors)
        check_choice("average", self.average, AVERAGES)
        if check_non_negative("momentum", self.momentum) >= 1.0:
            raise ValueError(f"momentum must be below 1, found {self.momentum!r}")

    def items(self, setting: Setting) -> list[Item]:
        parts = self._parts(setting)
        names = ["sgd"] if len(parts) == 1 else [f"sgd-{part}" for part in range(1, len(parts) + 1)]
        return [gradient.item(times, name) for name, (gradient, times) in zip(names, parts, strict=True)]

    def train(self, training: Training) -> None:
        average = Average(self.average)
        w = self.projection(training.w)
        velocity = np.zeros_like(w)
        averages, projects = self.average != "last", not isinstance(self.projection, NoProjection)
        gradients = chain.from_iterable(repeat(*part) for part in self._parts(training))
        for eta, gradient in zip(step_sizes(self.step_size, self.steps), gradients, strict=True):
            if averages:
                average.add(w)
            found = gradient.at(training, w)
            velocity = self.momentum * velocity + found if self.momentum else found
            w = w - eta * velocity
            if projects:
                w = self.projection(w)
            training.record(w, output=average.mean, step_size=eta)

    def _parts(self, facts: Facts) -> list[tuple[NoisyGradient, int]]:
        """The step of each part, and how often it is taken."""
        parts = len(self.noise_factors)
        ends = [self.steps * (part + 1) // parts for part in range(parts)]
        noise = [noise_for_multiplier(self.noise_multiplier, factor) for factor in self.noise_factors]
        made = [NoisyGradient.of(facts, self.batch_size, self.clip, each) for each in noise]
        return [(each, end - start) for each, start, end in zip(made, [0, *ends], ends, strict=False)]
