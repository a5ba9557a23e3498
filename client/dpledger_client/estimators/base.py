"""Base class of the private estimators: prepare, authorize, train, keep the result."""

import abc
import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning, DataConversionWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from dpledger_client._arrays import Bools, Floats
from dpledger_client.errors import NotTrained
from dpledger_client.estimators.charging import Fit, Scales
from dpledger_client.estimators.prepared import Codes, Rows, WithWeights, by_position
from dpledger_client.estimators.private_bounds import BINS, bin_counts
from dpledger_client.estimators.scaling import Bounds, Scaling, read_bounds
from dpledger_client.ledger import Account
from dpledger_client.objectives import Objective, Regularizer
from dpledger_client.objectives.base import blocks
from dpledger_client.objectives.linear import Linear
from dpledger_client.objectives.weighted import Weighted
from dpledger_client.optimizers import Method, NonPrivate, Result
from dpledger_client.optimizers.support.planning import PLAN_USED
from dpledger_client.optimizers.support.rules import Request

__all__ = ["PrivateClassifier", "PrivateEstimator", "Probabilities"]

_NESTED = ("method", "regularizer")
"""Parameters whose own fields are parameters too, as ``method__clip``."""
_WEIGHING = frozenset(
    ("noisy-gd", "dp-sgd", "dp-adam", "sgd-advanced", "sgd-moments", "ssadmm", "mpadmm", "dp-agd", "dp-blgd")
) | {"dp-blsgd", "dp-blsgd-ac", "privgene"}
"""Methods that read a record by its clipped gradient or loss alone, which a weight makes smaller."""
_TWO_WAYS = (
    "say what the fit may cost: epsilon=1.0, delta=1e-6, or spend=0.5 for half of what is left; or give a "
    "method with its own noise, such as NoisyGradientDescent(…)"
)
_NO_SEED = (
    "random_state must be None: noise that can be drawn again can be subtracted, and protects nobody. Tests "
    "may use dpledger_client.insecure_testing_noise(seed)"
)


class PrivateEstimator(BaseEstimator, abc.ABC):  # type: ignore[misc]
    """The parameters that all estimators have, and how they are fitted."""

    def __init__(
        self,
        account: Account | None = None,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        spend: float | None = None,
        bounds: Bounds | None = None,
        method: str | Method | NonPrivate = "auto",
        options: Mapping[str, Any] | None = None,
        regularizer: Regularizer | None = None,
        fit_intercept: bool = True,
        warm_start: bool = False,
        records: int | None = None,
        reserve: int | None = None,
        block: int | None = None,
        progress: bool | None = False,
        random_state: None = None,
    ) -> None:
        if random_state is not None:
            raise ValueError(_NO_SEED)
        self.account = account
        self.epsilon = epsilon
        self.delta = delta
        self.spend = spend
        self.bounds = bounds
        self.method = method
        self.options = options
        self.regularizer = regularizer
        self.fit_intercept = fit_intercept
        self.warm_start = warm_start
        self.records = records
        self.reserve = reserve
        self.block = block
        self.progress = progress

    def fit(self, X: Any, y: Any) -> Self:
        """Train, asking the account before each look; what is charged is in ``result_``.

        With ``warm_start`` the training goes on from where the last one ended, with its bounds.
        Raises :class:`~dpledger_client.NotTrained` where not one step was made.
        Only shapes are checked here: an error about a value would tell of the value.
        """
        return self._fit(X, y, None, going_on=self.warm_start and hasattr(self, "result_"))

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """Train on from where the last fit ended, with its bounds; each call is charged anew.

        ``classes`` is what scikit-learn passes here; it must be the estimator's own, or None.
        """
        self._check_classes(classes)
        return self._fit(X, y, None, going_on=hasattr(self, "result_"))

    def _check_classes(self, classes: Any) -> None:
        if classes is not None and list(classes) != list(getattr(self, "classes", None) or ()):
            raise ValueError(f"classes must be those of the estimator, found {classes!r}")

    def _fit(self, X: Any, y: Any, sample_weight: Any, *, going_on: bool) -> Self:
        validate_data(self, X, reset=not going_on, skip_check_array=True)
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        rows, labels = by_position(X), _one_column(by_position(y))
        _check_shapes(rows, labels)
        weights = _weights_of(sample_weight, len(labels))
        self._prepare()
        self.objective_ = self._objective()
        scales = self._scales_kept if going_on else self._scales_given(rows.shape[1])
        fit = Fit(
            account=self.account,
            request=self._request(),
            method=_method_for(self.method, weights),
            options=dict(self.options or {}),
            objective=_weighted(self.objective_, weights),
            start=self.result_.w if going_on else None,
            records=self.records,
            features=rows.shape[1],
            settings={"reserve": self.reserve, "block": self.block, "progress": self.progress},
        )

        def prepared(scales: Scales) -> tuple[Any, Any]:
            return self._scaled(rows, scales), _with_weights(self._targets(labels, scales), weights)

        result, scales = fit.train(scales, prepared, lambda which: self._histogram(rows, labels, which))
        _check_end(result)
        self.bounds_ = np.stack([scales.low, scales.high], axis=1)
        self.constant_ = scales.constant
        self.result_: Result = result
        self.n_iter_ = max(1, result.iterations)
        self._keep(self.result_.w)
        return self

    def _request(self) -> Request | None:
        """What the fit may cost; None for a method that has its own noise."""
        asked = (self.epsilon, self.delta, self.spend)
        if asked != (None, None, None):
            return Request(*asked)
        if isinstance(self.method, str) and self.method == "auto":
            raise ValueError(_TWO_WAYS)
        return None

    def _scales_given(self, features: int) -> Scales:
        """The public bounds of each column; no numbers where there are none."""
        if self.bounds is None:
            return Scales(np.full(features, np.nan), np.full(features, np.nan))
        return Scales(*read_bounds("bounds", self.bounds, features))

    @property
    def _scales_kept(self) -> Scales:
        return Scales(self.bounds_[:, 0], self.bounds_[:, 1], self.constant_)

    def _scaling(self, scales: Scales) -> Scaling:
        """Of the features; without an intercept nothing is shifted, as no weight could undo it."""
        columns = self.n_features_in_
        low, high = scales.low[:columns], scales.high[:columns]
        if not np.isfinite(high).all():
            return Scaling.unchanged(columns)
        return Scaling.within(low, high, centre=self.fit_intercept)

    def _scaled(self, rows: Any, scales: Scales) -> Rows:
        scaling = self._scaling(scales)
        constant = scales.constant if self._constant_column else None
        return Rows(rows, constant=constant, scaling=scaling if scaling.changes else None)

    def _histogram(self, rows: Any, labels: Any, which: Bools) -> Floats:
        """The counts of the bins of some columns, block by block."""
        numbers = Rows(rows)
        chosen = which[: numbers.shape[1]]
        total = np.zeros(0)
        if chosen.any():
            parts = (bin_counts(numbers[part][:, chosen]) for part in blocks(numbers))
            total = np.sum(np.stack([np.zeros(BINS * int(chosen.sum())), *parts]), axis=0)
        return total

    @property
    def _constant_column(self) -> bool:
        return self.fit_intercept

    def _prepare(self) -> None:
        """Check what is public before anything is asked."""

    @abc.abstractmethod
    def _objective(self) -> Objective:
        """What is minimised."""

    @abc.abstractmethod
    def _targets(self, y: Any, scales: Scales) -> Any:
        """The labels as the objective wants them, when they are looked at."""

    @abc.abstractmethod
    def _keep(self, w: Floats) -> None:
        """Take the fitted attributes from the parameters."""

    def _rows(self, X: Any) -> Floats:
        """Rows to predict for, checked as scikit-learn does: they are the caller's to show."""
        check_is_fitted(self, "result_")
        checked = validate_data(self, X, reset=False, accept_sparse="csr", dtype=np.float64)
        return self._scaled(checked, self._scales_kept)[:]

    @classmethod
    def _get_param_names(cls) -> list[str]:
        """All but ``random_state``, which is there to be refused."""
        names: list[str] = super()._get_param_names()
        return [name for name in names if name != "random_state"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters, and with ``deep`` those of a method and a regulariser, as ``method__clip``."""
        found: dict[str, Any] = super().get_params(deep=False)
        for name in _NESTED if deep else ():
            value = found[name]
            if dataclasses.is_dataclass(value) and not isinstance(value, type):
                fields = [field.name for field in dataclasses.fields(value) if field.init]
                found |= {f"{name}__{field}": getattr(value, field) for field in fields}
        return found

    def set_params(self, **params: Any) -> Self:
        """Set parameters; ``method__clip=2.0`` makes a method like the present one with that clip."""
        if "random_state" in params:
            raise ValueError(_NO_SEED)
        plain = {name: value for name, value in params.items() if "__" not in name}
        super().set_params(**plain)
        for name, value in params.items():
            outer, _, inner = name.partition("__")
            if inner:
                self._set_nested(outer, inner, value)
        return self

    def _set_nested(self, outer: str, inner: str, value: Any) -> None:
        if f"{outer}__{inner}" not in self.get_params():
            raise ValueError(
                f"{outer}__{inner} is no parameter of {type(self).__name__}: {outer} must be a method or a "
                f"regulariser that has it, found {getattr(self, outer, None)!r}"
            )
        setattr(self, outer, dataclasses.replace(getattr(self, outer), **{inner: value}))

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
        epsilon: float | None = None,
        delta: float | None = None,
        spend: float | None = None,
        classes: Sequence[Any] | None = None,
        bounds: Bounds | None = None,
        method: str | Method | NonPrivate = "auto",
        options: Mapping[str, Any] | None = None,
        regularizer: Regularizer | None = None,
        fit_intercept: bool = True,
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
            bounds=bounds,
            method=method,
            options=options,
            regularizer=regularizer,
            fit_intercept=fit_intercept,
            warm_start=warm_start,
            records=records,
            reserve=reserve,
            block=block,
            progress=progress,
            random_state=random_state,
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

    def _targets(self, y: Any, _scales: Scales) -> Codes:
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


def _weights_of(sample_weight: Any, records: int) -> Any:
    """One weight per record, by position; a single number weighs all alike, and nothing."""
    if sample_weight is None:
        return None
    weights = by_position(sample_weight)
    if len(weights.shape) != 1 or weights.shape[0] != records:
        raise ValueError("sample_weight must be a vector of one entry per row")
    return weights


def _weighted(objective: Objective, weights: Any) -> Objective:
    if weights is None:
        return objective
    if not isinstance(objective, Linear):
        raise ValueError(
            "sample_weight must be None: weights are proven for linear models, whose gradients are clipped "
            "after the weight"
        )
    return Weighted(objective)


def _method_for(method: str | Method | NonPrivate, weights: Any) -> str | Method | NonPrivate:
    """The method, or with weights one that counts every record by its gradient or its loss."""
    if weights is None:
        return method
    name = method if isinstance(method, str) else method.name
    if name != "auto" and name not in _WEIGHING:
        raise ValueError(
            f"sample_weight must be None for {name}, which reads labels by themselves: take one of "
            f"{', '.join(sorted(_WEIGHING))}"
        )
    return "noisy-gd" if method == "auto" else method


def _with_weights(labels: Any, weights: Any) -> Any:
    return labels if weights is None else WithWeights(labels, weights)


def _one_column(y: Any) -> Any:
    if len(y.shape) != 2 or y.shape[1] != 1:
        return y
    message = "A column-vector y was passed when a 1d array was expected."
    warnings.warn(message, DataConversionWarning, stacklevel=4)
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
    if result.stop_reason in ("finished", "callback", PLAN_USED):
        return
    if result.iterations == 0:
        raise NotTrained.of(result.method, result.message, result.refusal, result.charges) from result.refusal
    message = f"stopped after {result.iterations} iterations ({result.stop_reason}): {result.message}"
    warnings.warn(message, ConvergenceWarning, stacklevel=4)
