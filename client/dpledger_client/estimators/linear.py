"""Linear models: logistic regression, support vector machines, least squares."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin

from dpledger_client._arrays import Bools, Floats
from dpledger_client._checks import check_choice
from dpledger_client.estimators.base import PrivateClassifier, PrivateEstimator, Probabilities
from dpledger_client.estimators.charging import Scales
from dpledger_client.estimators.prepared import Targets
from dpledger_client.estimators.private_bounds import bin_counts
from dpledger_client.estimators.scaling import Bounds, Scaling, read_bounds
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

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train, asking the account before each look; what is charged is in ``result_``.

        ``sample_weight`` is cut to [0, 1], record by record, and multiplies a record's loss before its
        gradient is clipped. With ``warm_start`` the training goes on from where the last one ended, with its
        bounds. Raises :class:`~dpledger_client.NotTrained` where not one step was made.
        Only shapes are checked here: an error about a value would tell of the value.
        """
        return self._fit(X, y, sample_weight, going_on=self.warm_start and hasattr(self, "result_"))

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Train on from where the last fit ended, with its bounds; each call is charged anew.

        ``classes`` is what scikit-learn passes here; it must be the estimator's own, or None.
        """
        self._check_classes(classes)
        return self._fit(X, y, sample_weight, going_on=hasattr(self, "result_"))

    def _split(self, w: Floats) -> tuple[Floats, Any]:
        """Weights of columns in the caller's units, and the intercept, of each margin."""
        margins = w.reshape(self.n_features_in_ + self.fit_intercept, -1).T
        scaling = self._scaling(self._scales_kept)
        if self.fit_intercept:
            return scaling.weights(margins[:, :-1], margins[:, -1] * self.constant_)
        return scaling.weights(margins, np.zeros(len(margins)))

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
    epsilon, delta, spend
        What a fit costs in all: an (ε, δ), or the share ``spend`` of what is left. The rule of
        ``docs/rule.md`` chooses everything else. Without them ``method`` must be one with its own noise.
    classes
        The labels that there are, required; they are public, and no others are looked up.
    bounds
        Public: the least and the largest value of all features, or a pair for each. Values are cut to
        them, and scaled by them to [−1, 1]. None: they are estimated privately, for a tenth of the
        request; a method with its own noise takes features as they are.
    method, options
        Of :func:`dpledger_client.optimizers.minimize`: ``auto``, a method's name with those parameters
        that are not to be the rule's, or a method, whose fields are parameters too: ``method__clip``.
    regularizer
        ``L2(strength)``, ``L1(strength)`` or None; it is of the weights of scaled features, and covers the
        intercept too.
    fit_intercept
        Whether there is one, as the weight of a constant column.
    warm_start
        Go on from where the last fit ended, with its bounds; what that costs is charged anew.
    records, reserve, block, progress
        Of :func:`dpledger_client.optimizers.minimize`.
    random_state
        Refused: noise that can be drawn again can be subtracted, and protects nobody.

    Attributes
    ----------
    coef_, intercept_, classes_, n_features_in_, n_iter_
        As everywhere in scikit-learn; weights are in the caller's units.
    bounds_
        The bounds of each feature, given or estimated.
    result_
        What :func:`~dpledger_client.optimizers.minimize` returned, with every charge and the plan.

    Notes
    -----
    Before ``fit``, rows must be prepared each by itself. A scaler or selector that was fitted to private
    rows, or folds that are stratified by private labels, let one record move others, and nobody charges that.

    Examples
    --------
    >>> from dpledger_client import Ledger
    >>> account = Ledger("http://127.0.0.1:8000", token="dpl_id_secret").dataset("adult").run("job-1")
    >>> PrivateLogisticRegression(account, epsilon=1.0, delta=1e-6, classes=("no", "yes"), bounds=(0, 1))
    PrivateLogisticRegression(account=Account(dataset='adult', run='job-1'),
                              bounds=(0, 1), classes=('no', 'yes'), delta=1e-06,
                              epsilon=1.0)
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
    account, epsilon, delta, spend, classes, bounds, method, options, regularizer, fit_intercept, warm_start
        As in :class:`PrivateLogisticRegression`.
    records, reserve, block, progress, random_state
        As in :class:`PrivateLogisticRegression`.
    """

    def __init__(
        self,
        account: Account | None = None,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        spend: float | None = None,
        classes: Sequence[Any] | None = None,
        loss: str = "huber",
        width: float = 0.5,
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
            classes=classes,
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
    target_bounds
        Public: the least and the largest target. Targets are cut to them, and scaled by them to [−1, 1].
        None: they are estimated with the features' bounds; a method with its own noise takes (−1, 1).
    account, epsilon, delta, spend, bounds, method, options, regularizer, fit_intercept, warm_start
        As in :class:`PrivateLogisticRegression`.
    records, reserve, block, progress, random_state
        As in :class:`PrivateLogisticRegression`.
    """

    def __init__(
        self,
        account: Account | None = None,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        spend: float | None = None,
        target_bounds: tuple[float, float] | None = None,
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
        self.target_bounds = target_bounds

    def _objective(self) -> Objective:
        return LeastSquares(self.regularizer)

    def _scales_given(self, features: int) -> Scales:
        """Bounds of the features, and last of the target, which is centred: its intercept is small."""
        given = super()._scales_given(features)
        if self.target_bounds is not None:
            least, most = read_bounds("target_bounds", self.target_bounds, 1)
        else:
            least, most = np.full((2, 1), np.nan if self._request() is not None else 1.0)
            least = -least
        return Scales(np.append(given.low, least), np.append(given.high, most), constant=1.0)

    def _target_scaling(self, scales: Scales) -> Scaling:
        """Targets are centred, unless there is no intercept that could undo it."""
        low, high = scales.low[-1:], scales.high[-1:]
        least, most = float(low[0]), float(high[0])
        if not self.fit_intercept:
            return Scaling.within(low, high, centre=False)
        reach = most - least
        factor = 2.0 / reach if reach > 0.0 else 0.0
        return Scaling(low, high, np.array([least + reach / 2.0]), np.array([factor]))

    def _targets(self, y: Any, scales: Scales) -> Targets:
        return Targets(y, self._target_scaling(scales))

    def _histogram(self, rows: Any, labels: Any, which: Bools) -> Floats:
        found = super()._histogram(rows, labels, which)
        return np.append(found, bin_counts(Targets(labels)[:][:, None])) if which[-1] else found

    def _keep(self, w: Floats) -> None:
        weights, intercepts = self._split(w)
        reach, middle = self._target_units()
        self.coef_, self.intercept_ = weights[0] * reach, float(intercepts[0] * reach + middle)

    def _target_units(self) -> tuple[float, float]:
        """Half the width of the target's bounds, and their middle."""
        scaling = self._target_scaling(self._scales_kept)
        factor = float(scaling.factor[0])
        return (1.0 / factor if factor else 0.0), float(scaling.shift[0])

    def predict(self, X: Any) -> Floats:
        """x·w of each row, whose features are cut to the bounds."""
        margins = self._margins(X)[:, 0]
        reach, middle = self._target_units()
        return margins * reach + middle
