"""ADMM with model perturbation: noise on x after each pass over all records."""

import math
from dataclasses import dataclass
from typing import ClassVar

from dpledger_client._arrays import Floats
from dpledger_client._checks import check_choice, check_count, check_positive
from dpledger_client.mechanisms import Gaussian
from dpledger_client.objectives.base import gradient_sensitivity
from dpledger_client.optimizers.support.base import Method
from dpledger_client.optimizers.support.planning import Facts, Item, Setting, gaussian_item, step_item
from dpledger_client.optimizers.support.schedules import StepSize, step_size_at
from dpledger_client.optimizers.support.splitting import Split, shrinkage
from dpledger_client.optimizers.training import Training
from dpledger_client.releases import Release

__all__ = ["ModelPerturbationADMM", "model_sensitivity"]


def model_sensitivity(
    clip: float, step_size: float, penalty: float, records: int, adjacency: str = "replace-one"
) -> float:
    """How far x moves between neighbours in one step of (4.8), in L2, rounded up.

    Statement: Δx = 2Cη/(n(1 + ηρ)) under replace-one, Cη/(n(1 + ηρ)) under add-remove.
    Conditions: gradients of norm at most C; the sum of gradients divided by a public n; x, z and y of the
    step before already released. From x = (η/(1 + ηρ))(−Σg/n − y + ρz + x/η), where Σg alone differs.
    Source: Chen 2020, dissertation, (4.8); the text of (4.13) drops the factor η, so that it states η times
    too little where η > 1.
    """
    sum_moves = gradient_sensitivity(clip, adjacency)
    eta, rho = check_positive("step_size", step_size), check_positive("penalty", penalty)
    moved = sum_moves * shrinkage(eta, rho) / check_count("records", records)
    return math.nextafter(moved * (1.0 + 2.0**-48), math.inf)


@dataclass(frozen=True)
class ModelPerturbationADMM(Method):
    """mpADMM (Chen 2020, dissertation, Algorithm 4.2; Chen and Lee 2020).

    Each step moves x by the closed form (4.8) with the gradient of all records and releases it with noise;
    z and y, by (4.10) and (4.9), follow from the noisy x.

    Parameters
    ----------
    steps
        How many.
    clip
        To which norm each record's gradient is shortened.
    noise_std
        σ, the standard deviation of the noise on each coordinate of x.
    step_size
        A number, or a function of the iteration.
    penalty
        ρ > 0, which pulls x and z together.
    output
        ``x``, as in the dissertation, or ``z``, which has the regulariser's exact zeros.

    Notes
    -----
    A step is charged as one Gaussian release on the whole dataset with Δx of :func:`model_sensitivity`:
    ε(α) = α·Δx²/(2σ²), less for a smaller step. Two repairs: Δx has the factor η that (4.13) drops; and
    noise is added to x **before** z and y are computed, which are then post-processing and free, where
    Algorithm 4.2 adds noise to all three afterwards and pays three times. What is released is the part of x
    that depends on the data; the rest is public and added after the noise, which gives the same noisy x.
    """

    name: ClassVar[str] = "mpadmm"
    steps: int
    clip: float
    noise_std: float
    step_size: StepSize
    penalty: float = 0.5
    output: str = "x"

    def __post_init__(self) -> None:
        check_count("steps", self.steps)
        check_positive("clip", self.clip)
        check_positive("noise_std", self.noise_std)
        check_positive("penalty", self.penalty)
        check_choice("output", self.output, ("x", "z"))

    def items(self, setting: Setting) -> list[Item]:
        """One step, or where step sizes change Gaussians within the sum of their μ²."""
        sizes = [step_size_at(self.step_size, iteration) for iteration in range(1, self.steps + 1)]
        if len(set(sizes)) == 1:
            return [step_item("x", self._release(setting, sizes[0]), times=self.steps)]
        squares = [(self._sensitivity(setting, size) / self.noise_std) ** 2 for size in sizes]
        return [gaussian_item("x", math.fsum(squares) / 2.0)]

    def _release(self, facts: Facts, step_size: float) -> Release:
        return Release(Gaussian(self._sensitivity(facts, step_size), self.noise_std), purpose="x")

    def _sensitivity(self, facts: Facts, step_size: float) -> float:
        return model_sensitivity(self.clip, step_size, self.penalty, facts.records, facts.adjacency)

    def train(self, training: Training) -> None:
        split = Split.at(training.w)
        for iteration in range(1, self.steps + 1):
            eta = step_size_at(self.step_size, iteration)
            moved = self._move(training, split.x, eta)
            split = split.advance(
                split.anchor(eta, self.penalty) + moved, self.penalty, training.objective.regularizer
            )
            training.record(split.x, output=split.z if self.output == "z" else None, step_size=eta)

    def _move(self, training: Training, x: Floats, step_size: float) -> Floats:
        """The data's part of the next x, with the noise on x."""
        objective, share = training.objective, shrinkage(step_size, self.penalty) / training.records
        noisy: Floats = training.authorized(self._release(training, step_size)).release(
            lambda batch: -share * objective.clipped_gradient_sum(x, batch.X, batch.y, self.clip)
        )
        return noisy
