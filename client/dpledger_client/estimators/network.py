"""A small neural network."""

from collections.abc import Mapping, Sequence
from typing import Any

from dpledger_client._arrays import Floats
from dpledger_client.estimators.base import Probabilities
from dpledger_client.estimators.scaling import Bounds
from dpledger_client.ledger import Account
from dpledger_client.objectives import MLP, Objective, Regularizer
from dpledger_client.optimizers import Method, NonPrivate

__all__ = ["PrivateMLPClassifier"]


class PrivateMLPClassifier(Probabilities):
    """Fully connected layers of widths ``hidden``, each with a bias, and a softmax.

    Parameters
    ----------
    account
        What asks the ledger: ``ledger.dataset("adult").run("job-1")``.
    classes
        The labels that there are, required; they are public.
    hidden, activation
        Of :class:`dpledger_client.objectives.MLP`.
    epsilon, delta, spend, bounds, method, options, regularizer, warm_start
        As in :class:`~dpledger_client.estimators.PrivateLogisticRegression`.
    records, reserve, block, progress, random_state
        As in :class:`~dpledger_client.estimators.PrivateLogisticRegression`.
    """

    def __init__(
        self,
        account: Account | None = None,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        spend: float | None = None,
        classes: Sequence[Any] | None = None,
        hidden: Sequence[int] = (16,),
        activation: str = "tanh",
        bounds: Bounds | None = None,
        method: str | Method | NonPrivate = "auto",
        options: Mapping[str, Any] | None = None,
        regularizer: Regularizer | None = None,
        warm_start: bool = False,
        records: int | None = None,
        reserve: int | None = None,
        block: int | None = None,
        progress: bool | None = False,
        random_state: None = None,
    ) -> None:
        super().__init__(
            account,
            epsilon=epsilon,
            delta=delta,
            spend=spend,
            classes=classes,
            bounds=bounds,
            method=method,
            options=options,
            regularizer=regularizer,
            warm_start=warm_start,
            records=records,
            reserve=reserve,
            block=block,
            progress=progress,
            random_state=random_state,
        )
        self.hidden = hidden
        self.activation = activation

    @property
    def _constant_column(self) -> bool:
        return False

    def _objective(self) -> Objective:
        return MLP(tuple(self.hidden), len(self.classes_), self.activation, self.regularizer)

    def _keep(self, w: Floats) -> None:
        self.weights_ = w
