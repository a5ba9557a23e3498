"""Base class of the methods: parameters, and the training loop that each implements."""

import abc
from typing import Any, ClassVar

from dpledger_client._arrays import Floats
from dpledger_client.objectives.base import Objective
from dpledger_client.optimizers.training import Training

__all__ = ["Method", "NonPrivate"]


class Method(abc.ABC):
    """An optimizer: a frozen dataclass whose fields are its parameters."""

    name: ClassVar[str]
    """By which :func:`~dpledger_client.optimizers.minimize` finds it."""

    shared: ClassVar[bool] = False
    """Whether it trains several participants, with lists of X, y and accounts."""

    @property
    def planned_steps(self) -> int | None:
        """How many iterations there will be at most, if that is known."""
        return getattr(self, "steps", None)

    @abc.abstractmethod
    def train(self, training: Training) -> None:
        """Train: look, step, record. It ends by returning, or by what a look raises."""


class NonPrivate(abc.ABC):
    """A baseline without any privacy: it asks nobody and looks at everything."""

    name: ClassVar[str]

    @abc.abstractmethod
    def fit(self, objective: Objective, X: Any, y: Any, w0: Floats) -> tuple[Floats, int]:
        """The parameters, and after how many iterations."""
