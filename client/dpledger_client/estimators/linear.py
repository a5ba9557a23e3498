"""Linear models: logistic regression, support vector machines, least squares."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin

from dpledger_client._arrays import Floats
from dpledger_client._checks import check_choice
from dpledger_client.estimators.base import PrivateClassifier, PrivateEstimator, Probabilities
from dpledger_client.estimators.prepared import Targets
from dpledger_client.ledger import Account
from dpledger_client.objectives import (
    HingeSVM,
    HuberSVM,
    LeastSquares,
    Logistic,
    Objective,
    Regularizer,
    Softmax,
)
from dpledger_client.optimizers import Method, NonPrivate

__all__ = ["PrivateLinearRegression", "PrivateLinearSVC", "PrivateLogisticRegression"]


class _Linear(PrivateEstimator):
    """Parameters that are the weights of columns."""

    def _split(self, w: Floats) -> tuple[Floats, Any]:
        """Weights of columns, and the intercept, of each margin."""
        margins = w.reshape(self.n_features_in_ + self.fit_intercept, -1).T
        if self.fit_intercept:
            return margins[:, :-1], margins[:, -1]
        return margins, np.zeros(len(margins))

    def _keep(self, w: Floats) -> None:
        self.coef_, self.intercept_ = self._split(w)

    def _margins(self, X: Any) -> Floats:
        rows = self._rows(X)
        found: Floats = rows @ self.result_.w.reshape(rows.shape[1], -1)
        return found


class _LinearClassifier(PrivateClassifier, _Linear):
    """A margin for two classes, or one for each of more."""

    @property
    def _codes(self) -> Sequence[float]:
        return (-1.0, 1.0) if len(self.classes_) == 2 else range(len(self.classes_))

    def decision_function(self, X: Any) -> Floats:
        """The margin of the second of two classes, or of each of more."""
        margins = self._margins(X)
        return margins[:, 0] if margins.shape[1] == 1 else margins

    def predict(self, X: Any) -> Any:
        margins = self.decision_function(X)
        chosen = (margins > 0.0).astype(int) if margins.ndim == 1 else np.argmax(margins, axis=1)
        return self.classes_[chosen]


class PrivateLogisticRegression(_LinearClassifier, Probabilities):
    """Logistic regression for two classes, softmax regression for more.

    Parameters
    ----------
    account
        What asks the ledger: ``ledger.dataset("adult").run("job-1")``.
    classes
        The labels that there are, required; they are public, and no others are looked up.
    method, options
        Of :func:`dpledger_client.optimizers.minimize`: a name with its parameters, or a method. None is
        noisy gradient descent, 100 steps of ρ = 0.005.
    regularizer
        ``L2(strength)``, ``L1(strength)`` or None; it covers the intercept too.
    fit_intercept
        Whether there is one, as the weight of a column of ones.
    records, reserve, block, progress
        Of :func:`dpledger_client.optimizers.minimize`.

    Attributes
    ----------
    coef_, intercept_, classes_, n_features_in_, n_iter_
        As everywhere in scikit-learn.
    result_
        What :func:`~dpledger_client.optimizers.minimize` returned, with every charge.

    Notes
    -----
    Before ``fit``, rows must be prepared each by itself. A scaler or selector that was fitted to private
    rows, or folds that are stratified by private labels, let one record move others, and nobody charges that.

    Examples
    --------
    >>> from dpledger_client import Ledger
    >>> account = Ledger("http://127.0.0.1:8000", token="dpl_id_secret").dataset("adult").run("job-1")
    >>> PrivateLogisticRegression(account, classes=("no", "yes"), reserve=100)
    PrivateLogisticRegression(account=Account(dataset='adult', run='job-1'),
                              classes=('no', 'yes'), reserve=100)
    """

    def _objective(self) -> Objective:
        if len(self.classes_) == 2:
            return Logistic(self.regularizer)
        return Softmax(len(self.classes_), self.regularizer)


class PrivateLinearSVC(_LinearClassifier):
    """A linear support vector machine for two classes.

    Parameters
    ----------
    loss, width
        ``huber``, smooth within ``width`` of its corner, or ``hinge``.
    account, classes, method, options, regularizer, fit_intercept, records, reserve, block, progress
        As in :class:`PrivateLogisticRegression`.
    """

    def __init__(
        self,
        account: Account | None = None,
        *,
        classes: Sequence[Any] | None = None,
        loss: str = "huber",
        width: float = 0.5,
        method: str | Method | NonPrivate | None = None,
        options: Mapping[str, Any] | None = None,
        regularizer: Regularizer | None = None,
        fit_intercept: bool = True,
        records: int | None = None,
        reserve: int | None = None,
        block: int | None = None,
        progress: bool | None = False,
    ) -> None:
        super().__init__(
            account,
            classes=classes,
            method=method,
            options=options,
            regularizer=regularizer,
            fit_intercept=fit_intercept,
            records=records,
            reserve=reserve,
            block=block,
            progress=progress,
        )
        self.loss = loss
        self.width = width

    def _prepare(self) -> None:
        super()._prepare()
        if len(self.classes_) != 2:
            raise ValueError(f"classes must be two for a support vector machine, found {self.classes!r}")
        check_choice("loss", self.loss, ("huber", "hinge"))

    def _objective(self) -> Objective:
        if self.loss == "hinge":
            return HingeSVM(self.regularizer)
        return HuberSVM(self.width, self.regularizer)


class PrivateLinearRegression(RegressorMixin, _Linear):  # type: ignore[misc]
    """Least squares.

    Parameters
    ----------
    target_bound
        Targets are cut to within this of zero when they are looked at.
    account, method, options, regularizer, fit_intercept, records, reserve, block, progress
        As in :class:`PrivateLogisticRegression`.
    """

    def __init__(
        self,
        account: Account | None = None,
        *,
        target_bound: float = 1.0,
        method: str | Method | NonPrivate | None = None,
        options: Mapping[str, Any] | None = None,
        regularizer: Regularizer | None = None,
        fit_intercept: bool = True,
        records: int | None = None,
        reserve: int | None = None,
        block: int | None = None,
        progress: bool | None = False,
    ) -> None:
        super().__init__(
            account,
            method=method,
            options=options,
            regularizer=regularizer,
            fit_intercept=fit_intercept,
            records=records,
            reserve=reserve,
            block=block,
            progress=progress,
        )
        self.target_bound = target_bound

    def _objective(self) -> Objective:
        return LeastSquares(self.regularizer, self.target_bound)

    def _targets(self, y: Any) -> Targets:
        return Targets(y, self.target_bound)

    def _keep(self, w: Floats) -> None:
        weights, intercepts = self._split(w)
        self.coef_, self.intercept_ = weights[0], float(intercepts[0])

    def predict(self, X: Any) -> Floats:
        """x·w of each row."""
        return self._margins(X)[:, 0]
