"""Base class of the private estimators: prepare, authorize, train, keep the result."""

import abc
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning, DataConversionWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from dpledger_client._arrays import Floats
from dpledger_client.errors import NotTrained
from dpledger_client.estimators.prepared import Codes, Rows, by_position
from dpledger_client.ledger import Account
from dpledger_client.objectives import Objective, Regularizer
from dpledger_client.optimizers import Method, NonPrivate, Result, minimize
from dpledger_client.optimizers.methods.noisy_gd import NoisyGradientDescent

__all__ = ["DEFAULT_METHOD", "PrivateClassifier", "PrivateEstimator", "Probabilities"]

DEFAULT_METHOD = NoisyGradientDescent(steps=100, clip=1.0, noise_multiplier=10.0, step_size=1.0)
"""What ``method=None`` is: 100 looks at all records, ρ = 0.5 in all."""


class PrivateEstimator(BaseEstimator, abc.ABC):  # type: ignore[misc]
    """The parameters that all estimators have, and how they are fitted."""

    def __init__(
        self,
        account: Account | None = None,
        *,
        method: str | Method | NonPrivate | None = None,
        options: Mapping[str, Any] | None = None,
        regularizer: Regularizer | None = None,
        fit_intercept: bool = True,
        records: int | None = None,
        reserve: int | None = None,
        block: int | None = None,
        progress: bool | None = False,
    ) -> None:
        self.account = account
        self.method = method
        self.options = options
        self.regularizer = regularizer
        self.fit_intercept = fit_intercept
        self.records = records
        self.reserve = reserve
        self.block = block
        self.progress = progress

    def fit(self, X: Any, y: Any) -> Self:
        """Train, asking the account before each look; what is charged is in ``result_``.

        Raises :class:`~dpledger_client.NotTrained` where not one step was made.
        Only shapes are checked here: an error about a value would tell of the value.
        """
        validate_data(self, X, reset=True, skip_check_array=True)
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        indexed, labels = by_position(X), _one_column(by_position(y))
        _check_shapes(indexed, labels)
        self._prepare()
        self.objective_ = self._objective()
        rows = Rows(indexed, intercept=self._constant_column)
        result = minimize(
            self.objective_,
            rows,
            self._targets(labels),
            account=self.account,
            method=DEFAULT_METHOD if self.method is None else self.method,
            records=self.records,
            reserve=self.reserve,
            block=self.block,
            progress=self.progress,
            **dict(self.options or {}),
        )
        _check_end(result)
        self.result_: Result = result
        self.n_iter_ = max(1, result.iterations)
        self._keep(self.result_.w)
        return self

    @property
    def _constant_column(self) -> bool:
        return self.fit_intercept

    def _prepare(self) -> None:
        """Check what is public before anything is asked."""

    @abc.abstractmethod
    def _objective(self) -> Objective:
        """What is minimised."""

    @abc.abstractmethod
    def _targets(self, y: Any) -> Any:
        """The labels as the objective wants them, when they are looked at."""

    @abc.abstractmethod
    def _keep(self, w: Floats) -> None:
        """Take the fitted attributes from the parameters."""

    def _rows(self, X: Any) -> Floats:
        """Rows to predict for, checked as scikit-learn does: they are the caller's to show."""
        check_is_fitted(self, "result_")
        checked = validate_data(self, X, reset=False, accept_sparse="csr", dtype=np.float64)
        return Rows(checked, intercept=self._constant_column)[:]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = True
        return tags


class PrivateClassifier(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """A classifier whose ``classes`` must be given: which labels occur is private."""

    def __init__(
        self,
        account: Account | None = None,
        *,
        classes: Sequence[Any] | None = None,
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
        self.classes = classes

    def _prepare(self) -> None:
        # scikit-learn makes estimators without arguments, so that this is refused here and not at once.
        if self.classes is None:
            raise ValueError(
                "classes must be given, such as classes=(0, 1): which labels occur is private, and a record "
                "whose label is not among them would be charged and count for nothing"
            )
        self.classes_ = np.unique(np.asarray(self.classes))
        if len(self.classes_) != len(self.classes) or len(self.classes_) < 2:
            raise ValueError(f"classes must be at least two different labels, found {self.classes!r}")

    @property
    def _codes(self) -> Sequence[float]:
        """−1 and 1, or counted from 0."""
        return range(len(self.classes_))

    def _targets(self, y: Any) -> Codes:
        signed = min(self._codes) < 0
        return Codes(y, self.classes_.tolist(), self._codes, 0.0 if signed else -1.0)


class Probabilities(PrivateClassifier):
    """A classifier whose losses are cross-entropies, so that the probability of a class is e^(−loss)."""

    def predict_proba(self, X: Any) -> Floats:
        """The probability of each class."""
        rows, w = self._rows(X), self.result_.w
        chances = [np.exp(-self.objective_.losses(w, rows, np.full(len(rows), code))) for code in self._codes]
        return np.stack(chances, axis=1)

    def predict(self, X: Any) -> Any:
        """The likeliest class of each row."""
        chosen = np.argmax(self.predict_proba(X), axis=1)
        return self.classes_[chosen]


def _one_column(y: Any) -> Any:
    if len(y.shape) != 2 or y.shape[1] != 1:
        return y
    message = "A column-vector y was passed when a 1d array was expected."
    warnings.warn(message, DataConversionWarning, stacklevel=3)
    return y[:, 0]


def _check_shapes(X: Any, y: Any) -> None:
    if len(X.shape) != 2:
        raise ValueError(f"Expected 2D array, got {len(X.shape)}D array instead. Reshape your data.")
    if X.shape[1] < 1:
        raise ValueError(f"0 feature(s) (shape={tuple(X.shape)}) while a minimum of 1 is required.")
    if np.issubdtype(X.dtype, np.complexfloating):
        raise ValueError("Complex data not supported")
    if len(y.shape) != 1 or y.shape[0] != X.shape[0]:
        raise ValueError(f"y must have one entry per row, found shapes {tuple(X.shape)} and {tuple(y.shape)}")


def _check_end(result: Result) -> None:
    """Refuse what was not trained at all, and warn of what was not trained to the end."""
    if result.stop_reason in ("finished", "callback"):
        return
    if result.iterations == 0:
        raise NotTrained.of(result.method, result.message, result.refusal, result.charges) from result.refusal
    message = f"stopped after {result.iterations} iterations ({result.stop_reason}): {result.message}"
    warnings.warn(message, ConvergenceWarning, stacklevel=3)
