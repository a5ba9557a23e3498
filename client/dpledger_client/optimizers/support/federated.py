"""Base class of methods that train several participants, in one process or in many.

A round is the same wherever it is made: each participant asks its ledger for what ``request_for`` describes
and makes its ``update``, which is all that leaves it; whoever collects the updates makes the ``move``.
"""

import abc
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from dpledger_client._arrays import Floats
from dpledger_client.objectives.base import Objective
from dpledger_client.objectives.regularizers import Regularizer
from dpledger_client.optimizers.support.base import Method
from dpledger_client.optimizers.support.participants import Asked, Participant, SharedTraining
from dpledger_client.optimizers.support.schedules import StepSize, step_size_at
from dpledger_client.optimizers.training import AuthorizedBatch, Training

__all__ = ["FederatedMethod", "mean_update"]


class FederatedMethod(Method):
    """A method whose rounds are noisy updates of participants and a move along their mean.

    Attributes
    ----------
    steps
        How many rounds at most.
    step_size
        Of the move: a number, or a function of the round.
    """

    shared: ClassVar[bool] = True
    steps: int
    step_size: StepSize

    @abc.abstractmethod
    def request_for(self, participant: Participant) -> Asked:
        """What a participant asks for in its next round, from public facts alone."""

    @abc.abstractmethod
    def update(self, objective: Objective, authorized: AuthorizedBatch, w: Floats) -> Floats:
        """A participant's noisy update at w, from one release of what it was granted."""

    @abc.abstractmethod
    def move(self, w: Floats, mean: Floats, eta: float, regularizer: Regularizer) -> Floats:
        """The next w, from the mean of the updates; it looks at no data."""

    def train(self, training: Training) -> None:
        if not isinstance(training, SharedTraining):
            raise TypeError(f"{self.name} trains several participants: give lists of X, y and account")
        w = training.w
        for iteration in range(1, self.steps + 1):
            eta = step_size_at(self.step_size, iteration)
            looks = training.look_each(self.request_for)
            updates = [self.update(training.objective, authorized, w) for _, authorized in looks]
            w = self.move(w, mean_update(updates), eta, training.objective.regularizer)
            training.record(w, participants=len(looks), step_size=eta)


def mean_update(updates: Sequence[Floats]) -> Floats:
    """The mean over those who took part, in the order given: the same numbers wherever it is computed."""
    mean: Floats = np.mean(updates, axis=0)
    return mean
