"""DP-FedAvg and DP-FedSGD: participants send updates of bounded length, with noise of their own."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpledger_client._arrays import Floats
from dpledger_client._checks import check_count, check_positive
from dpledger_client.mechanisms import Gaussian
from dpledger_client.objectives.base import Objective, limit_under
from dpledger_client.objectives.regularizers import Regularizer
from dpledger_client.optimizers.noise_levels import noise_for_multiplier
from dpledger_client.optimizers.support.batches import sample_of
from dpledger_client.optimizers.support.federated import FederatedMethod
from dpledger_client.optimizers.support.participants import Asked, Participant
from dpledger_client.optimizers.support.planning import Facts, Item, Setting, step_item
from dpledger_client.optimizers.support.schedules import StepSize
from dpledger_client.optimizers.training import AuthorizedBatch, Batch
from dpledger_client.releases import Release
from dpledger_client.samples import Full

__all__ = ["DPFedAvg", "DPFedSGD", "clipped_update"]


@dataclass(frozen=True)
class DPFedSGD(FederatedMethod):
    """DP-FedSGD (McMahan, Ramage, Talwar, Zhang 2018, Algorithm 1), with the participants' own noise.

    In each round every participant computes the gradient step −∇f(w) of its own loss, shortens it as a whole
    to ``clip``, adds its noise and sends it; the server adds ``step_size`` times the mean to w.

    Parameters
    ----------
    steps
        How many rounds at most.
    clip
        To which norm a participant's update is shortened as a whole.
    noise_multiplier
        The noise's standard deviation over the sensitivity, which is twice ``clip``.
    step_size
        Of the server: a number, or a function of the round.
    batch_size
        None: all of a participant's records, and **the participant** is the unit protected. A number: so many
        of its records in each round, without replacement (replace-one) or in expectation (add-remove), and
        **one record** is the unit protected, for less: its sampling amplifies.

    Notes
    -----
    Statement: two updates are at most 2·clip apart, whatever the data are; so a release is a Gaussian of
    sensitivity 2·clip under either adjacency, also between any two datasets of a participant. On a sample of
    its records it is the subsampled Gaussian of that sensitivity, between datasets that differ in one record.
    Source: the triangle inequality in the ball of radius clip; for a sample, the ledger's bound for a
    Gaussian on it, which asks for nothing but the distance of two outputs. As published the server adds the
    noise, and counts on nobody knowing which participants took part. Neither is so here: noise is added
    before an update leaves, and nothing is amplified by a choice of participants, which the server sees.
    """

    name: ClassVar[str] = "dp-fedsgd"
    steps: int
    clip: float
    noise_multiplier: float
    step_size: StepSize
    batch_size: int | None = None

    def __post_init__(self) -> None:
        check_count("steps", self.steps)
        check_positive("clip", self.clip)
        check_positive("noise_multiplier", self.noise_multiplier)
        if self.batch_size is not None:
            check_count("batch_size", self.batch_size)

    def items(self, setting: Setting) -> list[Item]:
        """Of one participant, whose dataset it is."""
        release, sample = self._step(setting)
        return [step_item("update", release, sample, self.steps)]

    def request_for(self, participant: Participant) -> Asked:
        return self._step(participant)

    def update(self, objective: Objective, authorized: AuthorizedBatch, w: Floats) -> Floats:
        noisy: Floats = authorized.release(
            lambda batch: clipped_update(self._local(objective, batch, w) - w, self.clip)
        )
        return noisy

    def move(self, w: Floats, mean: Floats, eta: float, regularizer: Regularizer) -> Floats:
        return w + eta * mean

    def _step(self, facts: Facts) -> Asked:
        sensitivity = 2.0 * self.clip
        noise = noise_for_multiplier(self.noise_multiplier, sensitivity)
        release = Release(Gaussian(sensitivity, noise), purpose="update")
        if self.batch_size is None:
            return release, Full()
        return release, sample_of(min(self.batch_size, facts.records), facts.records, facts.adjacency)

    def _local(self, objective: Objective, batch: Batch, w: Floats) -> Floats:
        """Where the participant's own training ends; it may be anywhere."""
        return _descend(objective, batch, w, 1, 1.0)


@dataclass(frozen=True)
class DPFedAvg(DPFedSGD):
    """DP-FedAvg (McMahan, Ramage, Talwar, Zhang 2018, Algorithm 1), with the participants' own noise.

    As :class:`DPFedSGD`, but a participant makes ``local_steps`` gradient steps of ``local_step_size`` on its
    own records, or on those that it drew for the round, and sends how far they led.

    Parameters
    ----------
    local_steps, local_step_size
        Of a participant's own training in each round.
    """

    name: ClassVar[str] = "dp-fedavg"
    local_steps: int = 10
    local_step_size: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("local_steps", self.local_steps)
        check_positive("local_step_size", self.local_step_size)

    def _local(self, objective: Objective, batch: Batch, w: Floats) -> Floats:
        return _descend(objective, batch, w, self.local_steps, self.local_step_size)


def clipped_update(update: Floats, clip: float) -> Floats:
    """The update shortened to a norm of at most ``clip``; zero where it is not finite.

    The norm is taken of the update over its largest entry, so that no square is lost or overflows.
    """
    largest = float(np.max(np.abs(update), initial=0.0))
    if not 0.0 < largest < np.inf:  # nor is NaN
        return np.zeros_like(update)
    direction = update / largest
    length, limit = float(np.linalg.norm(direction)), limit_under(clip)
    return update if length <= limit / largest else direction * (limit / length)


def _descend(objective: Objective, batch: Batch, w: Floats, steps: int, size: float) -> Floats:
    """Gradient steps on a participant's own loss; NaN where they leave the finite numbers."""
    local = w
    with np.errstate(all="ignore"):
        for _ in range(steps):
            if not np.isfinite(local).all():
                return np.full_like(w, np.nan)
            gradient = objective.regularizer.gradient(local)
            if len(batch):
                gradient = gradient + objective.gradient_sum(local, batch.X, batch.y) / len(batch)
            local = local - size * gradient
    return local
