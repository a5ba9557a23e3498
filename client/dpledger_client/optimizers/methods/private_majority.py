"""The most frequent label, chosen by the exponential mechanism."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpledger_client._arrays import Floats, as_numbers
from dpledger_client._checks import check_positive
from dpledger_client.mechanisms import Exponential
from dpledger_client.optimizers.support.base import Method
from dpledger_client.optimizers.support.planning import Item, Setting, step_item
from dpledger_client.optimizers.training import Training
from dpledger_client.releases import Release

__all__ = ["PrivateMajority"]


@dataclass(frozen=True)
class PrivateMajority(Method):
    """One label for every record: what a model must beat to be worth its budget.

    Parameters
    ----------
    epsilon
        Of the choice.
    labels
        Those to choose from; they are public.

    Notes
    -----
    The scores are the labels' counts. A record counts for one label, so that any count moves by 1 at most;
    under add-remove none moves the other way, which the exponential mechanism needs half the noise for
    (McSherry, Talwar 2007). It is asked for once; the result's ``w`` is the label.
    """

    name: ClassVar[str] = "private-majority"
    epsilon: float
    labels: tuple[float, ...] = (-1.0, 1.0)

    def __post_init__(self) -> None:
        check_positive("epsilon", self.epsilon)
        if len(set(self.labels)) < max(2, len(self.labels)):
            raise ValueError(f"labels must be at least two different numbers, found {self.labels!r}")

    @property
    def planned_steps(self) -> int:
        return 1

    def items(self, setting: Setting) -> list[Item]:
        return [step_item("label", self._release(setting.adjacency))]

    def _release(self, adjacency: str) -> Release:
        monotonic = adjacency == "add-remove"
        return Release(Exponential(self.epsilon, sensitivity=1.0, monotonic=monotonic), purpose="label")

    def train(self, training: Training) -> None:
        choice = self._release(training.adjacency)
        labels = np.array(self.labels, dtype=np.float64)
        chosen = training.authorized(choice).release(lambda batch: _counts(as_numbers(batch.y[:]), labels))
        training.record(labels[[chosen]])


def _counts(y: Floats, labels: Floats) -> Floats:
    counts: Floats = np.sum(y[:, None] == labels, axis=0, dtype=np.float64)
    return counts
