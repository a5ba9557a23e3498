"""Base class of the methods: parameters, and the training loop that each implements."""

import abc
from collections.abc import Mapping
from typing import Any, ClassVar

from dpledger_client._arrays import Floats
from dpledger_client._checks import check_count
from dpledger_client.ledger import Dataset
from dpledger_client.objectives.base import Objective
from dpledger_client.optimizers.support.planning import Item, Setting, start_of
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

    def plan(
        self,
        dataset: Dataset | Mapping[str, Any],
        *,
        objective: Objective | None = None,
        records: int | None = None,
        dimension: int | None = None,
        w0: Any = None,
    ) -> list[Item]:
        """What the method will ask for, from public facts alone; no data are looked at.

        Parameters
        ----------
        dataset
            An open dataset, or the facts of one that is to be opened: ``adjacency``, ``records``, and
            ``ledger`` for methods whose noise the service solves for.
        objective, dimension, w0
            What is minimised and from where, for methods whose noise depends on it; without ``w0`` from zero.
        records
            The public number of records, as in ``minimize``; the dataset's if None.

        Returns
        -------
        list of dict
            Items of a budget of accounting ``plan``: see ``Dataset.open(plan=…)``.

        Raises
        ------
        ValueError
            Where what will be asked for is not known in advance; the message says what would make it so.
        """
        facts = dataset.facts() if isinstance(dataset, Dataset) else dataset
        ledger = dataset.ledger if isinstance(dataset, Dataset) else dataset.get("ledger")
        number = facts.get("records") if records is None else records
        if number is None:
            raise ValueError("records must be given: the dataset was opened without a public number of them")
        start = start_of(dimension, w0)
        adjacency = str(facts.get("adjacency") or "add-remove")
        return self.items(Setting(adjacency, check_count("records", number), objective, start, ledger))

    def items(self, setting: Setting) -> list[Item]:
        """The items of :meth:`plan`, made by the code that describes the steps of a training."""
        raise ValueError(f"{self.name} has no plan: it does not say in advance what it asks for")


class NonPrivate(abc.ABC):
    """A baseline without any privacy: it asks nobody and looks at everything."""

    name: ClassVar[str]

    @abc.abstractmethod
    def fit(self, objective: Objective, X: Any, y: Any, w0: Floats) -> tuple[Floats, int]:
        """The parameters, and after how many iterations."""
