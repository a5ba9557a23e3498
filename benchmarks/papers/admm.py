"""The baselines of chapter 4: DP-ADMM among parties, and ADMM-objP, as methods that ask a ledger."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from benchmarks.papers.problems import Floats
from dpledger_client.mechanisms import Gaussian
from dpledger_client.objectives.base import gradient_sensitivity
from dpledger_client.optimizers import Batch, Method, SharedTraining, Training
from dpledger_client.optimizers.methods.objective_perturbation import ObjectivePerturbation
from dpledger_client.optimizers.support.participants import Asked, Participant
from dpledger_client.optimizers.support.splitting import Split, shrinkage
from dpledger_client.releases import Release
from dpledger_client.samples import Full

__all__ = ["DPADMM", "ADMMObjP"]


@dataclass(frozen=True)
class DPADMM(Method):
    """DP-ADMM (Huang et al. 2019): each party perturbs the gradient of all of its records.

    Party i moves x_i by (4.8) with a noisy gradient; the centre takes z by the proximal map of the mean of
    x_i + y_i/ρ, and each y_i follows. A party's round is one Gaussian release on its own records, of
    sensitivity ``clip`` (twice that under replace-one) on a sum; z and y are functions of what was released.
    """

    name: ClassVar[str] = "dp-admm"
    shared: ClassVar[bool] = True
    steps: int
    clip: float
    noise_multiplier: float
    step_size: float
    penalty: float

    def train(self, training: Training) -> None:
        assert isinstance(training, SharedTraining)
        splits = [Split.at(training.w) for _ in training.participants]
        for _ in range(self.steps):
            looks = training.look_each(self._asked)
            moved = []
            for participant, look in looks:
                split = splits[participant.number]
                noisy = look.release(self._sum_of(training, split.x))
                pulled = split.anchor(self.step_size, self.penalty)
                share = shrinkage(self.step_size, self.penalty) / participant.records
                moved.append((participant.number, pulled - share * noisy))
            z = training.objective.regularizer.proximal(
                np.mean([x + splits[number].y / self.penalty for number, x in moved], axis=0),
                1.0 / (self.penalty * len(moved)),
            )
            for number, x in moved:
                splits[number] = Split(x, z, splits[number].y + self.penalty * (x - z))
            training.record(z)

    def _sum_of(self, training: Training, x: Floats) -> Callable[[Batch], Floats]:
        objective = training.objective
        return lambda batch: objective.clipped_gradient_sum(x, batch.X, batch.y, self.clip)

    def _asked(self, participant: Participant) -> Asked:
        sensitivity = gradient_sensitivity(self.clip, participant.adjacency)
        return Release(Gaussian(sensitivity, self.noise_multiplier * sensitivity)), Full()


@dataclass(frozen=True)
class ADMMObjP(Method):
    """ADMM whose x is the minimiser of a perturbed objective in every iteration (ADMM-objP).

    x minimises Σ f_i(x) + nρ‖x − v‖²/2 + b·x with v = z − y/ρ, which is public, and b Gaussian: objective
    perturbation with Λ = nρ and the linear term b − nρv. An iteration is charged the curve of
    ``ObjectivePerturbation``, with its noise on the output instead of an exact minimiser.
    """

    name: ClassVar[str] = "admm-objp"
    steps: int
    noise_multiplier: float
    penalty: float

    def perturbation(self) -> ObjectivePerturbation:
        """What an iteration is."""
        return ObjectivePerturbation(self.noise_multiplier, extra_strength=self.penalty, tolerance=1e-5)

    def train(self, training: Training) -> None:
        method = self.perturbation()
        bare = type(training.objective)()
        problem = method._problem(bare, training.records)
        mechanism = method._mechanism(problem, training.adjacency, len(training.w))
        split = Split.at(training.w)
        for _ in range(self.steps):
            pull = problem.weight * (split.z - split.y / self.penalty)
            look = training.authorized(Release(mechanism, purpose="x"))
            x = look.release(_solving(problem, split.x, pull))
            split = split.advance(x, self.penalty, training.objective.regularizer)
            training.record(split.x)


def _solving(problem: Any, start: Floats, pull: Floats) -> Callable[[Batch], Callable[[Floats], Floats]]:
    """From a batch to its solver, with a public pull in the linear term."""

    def of(batch: Batch) -> Callable[[Floats], Floats]:
        solve = problem.solver(batch, start)
        return lambda linear: solve(linear - pull)

    return of
