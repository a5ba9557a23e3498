"""Shared parts of stochastic gradient methods: samples, noisy gradients, averages."""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field

from dpledger_client._arrays import Floats
from dpledger_client._checks import check_choice, check_count, check_positive
from dpledger_client.mechanisms import Gaussian
from dpledger_client.objectives.base import gradient_sensitivity
from dpledger_client.optimizers.noise_levels import noise_for_multiplier
from dpledger_client.optimizers.support.batches import sample_of
from dpledger_client.optimizers.support.planning import Facts, Item, step_item
from dpledger_client.optimizers.support.schedules import StepSize, step_size_at
from dpledger_client.optimizers.training import Training
from dpledger_client.releases import Release
from dpledger_client.samples import FreshSample

__all__ = ["AVERAGES", "Average", "NoisyGradient", "check_sampling", "step_sizes"]

AVERAGES = ("last", "uniform", "weighted")


@dataclass(frozen=True)
class NoisyGradient:
    """The noisy mean gradient of a fresh sample, as one and the same step at every iteration.

    What is released is the sum of clipped gradients with Gaussian noise, of sensitivity ``clip`` under
    add-remove and twice that under replace-one. It is divided by the public expected size, since the
    sample's own size is secret, and the regulariser, which is public, is added after the noise.
    """

    sample: FreshSample
    release: Release
    clip: float
    size: float

    @classmethod
    def of(cls, facts: Facts, batch_size: int, clip: float, noise_multiplier: float) -> "NoisyGradient":
        """For the records and the adjacency of a training or a plan."""
        sample = sample_of(batch_size, facts.records, facts.adjacency)
        sensitivity = gradient_sensitivity(clip, facts.adjacency)
        release = Release(
            Gaussian(sensitivity, noise_for_multiplier(noise_multiplier, sensitivity)), purpose="gradient"
        )
        return cls(sample, release, clip, sample.expected_size(facts.records))

    def item(self, times: int, name: str = "sgd") -> Item:
        """So many of these steps, for a plan."""
        return step_item(name, self.release, self.sample, times)

    @property
    def noise_std(self) -> float:
        """Of each coordinate of the mean gradient."""
        mechanism = self.release.mechanism
        assert isinstance(mechanism, Gaussian)
        return mechanism.noise_std / self.size

    def at(self, training: Training, w: Floats) -> Floats:
        """Ask, look, and give the noisy mean gradient."""
        objective, clip = training.objective, self.clip
        noisy: Floats = training.release(
            self.release,
            self.sample,
            lambda batch: objective.clipped_gradient_sum(w, batch.X, batch.y, clip),
        )
        return noisy / self.size + objective.regularizer.gradient(w)


def step_sizes(step_size: StepSize, steps: int) -> Iterable[float]:
    """The size of each step; a number is checked once."""
    if callable(step_size):
        return (step_size_at(step_size, iteration) for iteration in range(1, steps + 1))
    return itertools.repeat(step_size_at(step_size, 1), steps)


@dataclass
class Average:
    """What to output of the iterates so far.

    ``last``: the last one. ``uniform``: (w₀ + … + w_{t−1})/t, the points at which gradients were taken,
    as the theorems for convex losses want it. ``weighted``: the same points with weights 1, 2, …, t, for
    strongly convex losses (Lacoste-Julien, Schmidt, Bach 2012).
    """

    kind: str
    mean: Floats | None = field(default=None, init=False)
    count: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        check_choice("average", self.kind, AVERAGES)

    def add(self, w: Floats) -> None:
        """Count a point at which a gradient is taken."""
        if self.kind == "last":
            return
        self.count += 1
        share = 1.0 / self.count if self.kind == "uniform" else 2.0 / (self.count + 1.0)
        self.mean = w.copy() if self.mean is None else self.mean + share * (w - self.mean)


def check_sampling(steps: int, batch_size: int, clip: float, noise_multiplier: float) -> None:
    """Refuse parameters that no sampled method can work with."""
    check_count("steps", steps)
    check_count("batch_size", batch_size)
    check_positive("clip", clip)
    check_positive("noise_multiplier", noise_multiplier)
