"""Private search over the parameters of an estimator."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.model_selection import ParameterGrid
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from dpledger_client.errors import NotTrained
from dpledger_client.estimators.base import PrivateEstimator, _check_shapes, _one_column
from dpledger_client.estimators.charging import Scales
from dpledger_client.estimators.prepared import by_position
from dpledger_client.optimizers import Method, Record, Result, Source, Tuning
from dpledger_client.optimizers.tuning import (
    DEFAULT_MEAN_TRIALS,
    Candidate,
    Target,
    candidate_method,
    check_method,
    run_trials,
)
from dpledger_client.trials import NegativeBinomialTrials, Trials

__all__ = ["PrivateSearchCV"]

_OPTION = "options__"
_FIXED = (
    *("account", "block", "bounds", "classes", "delta", "epsilon", "fit_intercept", "progress"),
    *("records", "reserve", "spend", "target_bounds", "warm_start"),
)
"""Parameters that say what the data are or how they are asked for: the same in every trial."""
_COSTS = ("epsilon", "delta", "spend")


def _best_has(name: str) -> Any:
    def found(search: "PrivateSearchCV") -> bool:
        estimator: Any = getattr(search, "best_estimator_", search.estimator)
        return hasattr(estimator, name)

    return found


class PrivateSearchCV(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """The best parameters of a private estimator, by a random number of trials (Papernot, Steinke 2022).

    The whole search is one mechanism, charged before its first trial. A trial draws a candidate from the
    grid, fits it and scores it with noise; the best trial's model and score are all that comes out. It has
    the conventions of scikit-learn's searches, but no folds: noise keeps a trial from fitting its own records
    so well that its score on them misleads, and a held-out part would be charged as much.

    Parameters
    ----------
    estimator
        Such as ``PrivateLogisticRegression(account, classes=(0, 1), bounds=(0, 1))``. Features are scaled by
        its public ``bounds``; without, they are taken as they are, since a search estimates none.
    param_grid
        As in ``GridSearchCV``, of the estimator's parameters; ``options__clip`` is one of its ``options``.
        Public, and not chosen by looking at the data.
    trials
        The law of the number of trials; ten on average if None.
    epsilon, delta
        What the search is to cost in all; the noise follows from it. None where the parameters say the noise.
    score_noise
        The standard deviation of the noise on the number of correct predictions; by the rule if None, which
        needs ``epsilon`` and ``delta``.

    Attributes
    ----------
    best_estimator_, best_params_, best_index_
        Of the best trial; the estimator is fitted by it, and not fitted again.
    best_score_
        Its noisy score: the share of correct predictions on the records that it was fitted to.
    tuning_
        What was charged, and what is left.

    Notes
    -----
    How long ``fit`` takes tells of the number of trials, which the guarantee keeps secret.
    """

    def __init__(
        self,
        estimator: Any,
        param_grid: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Sequence[Any]]],
        *,
        trials: Trials | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        score_noise: float | None = None,
    ) -> None:
        self.estimator = estimator
        self.param_grid = param_grid
        self.trials = trials
        self.epsilon = epsilon
        self.delta = delta
        self.score_noise = score_noise

    def fit(self, X: Any, y: Any) -> Self:
        """Ask for the search, run its trials, and keep the best."""
        if not isinstance(self.estimator, PrivateEstimator):
            raise TypeError(f"estimator must be a private one, found {type(self.estimator).__name__}")
        if (self.epsilon is None) != (self.delta is None):
            raise ValueError("epsilon and delta must be given together")
        if y is None:
            raise ValueError("PrivateSearchCV requires y to be passed, but the target y is None")
        if self.estimator.account is None:
            raise ValueError("account must be given to the estimator: a search looks at private data")
        given = [name for name in _COSTS if getattr(self.estimator, name) is not None]
        if given:
            raise ValueError(f"give {' and '.join(given)} to the search: an estimator's own are not kept to")
        validate_data(self, X, reset=True, skip_check_array=True)
        listed = list(ParameterGrid(self.param_grid))
        estimators = [self._candidate(X, params) for params in listed]
        source = self._source(estimators[0], X, y)
        trained = self._trained(estimators, listed, source)
        if trained.candidate is None or trained.w is None or trained.method is None:
            message = "the number of trials came out as 0, and there is nothing to predict with"
            raise NotTrained(message, None, (trained.charge,))
        self.tuning_ = trained
        self.best_index_ = trained.candidate
        self.best_params_ = listed[trained.candidate]
        self.best_score_ = trained.score
        self.best_estimator_ = _fitted(estimators[trained.candidate], trained, trained.method, trained.w)
        return self

    def _candidate(self, X: Any, params: Mapping[str, Any]) -> PrivateEstimator:
        """An estimator with its parameters, made ready without looking at the data."""
        for name in params:
            if name in _FIXED:
                raise ValueError(f"param_grid must not hold {name}: it is the same in every trial")
        chosen = {name: value for name, value in params.items() if name.startswith(_OPTION)}
        options = {name.removeprefix(_OPTION): value for name, value in chosen.items()}
        own = {name: value for name, value in params.items() if name not in chosen}
        made: PrivateEstimator = clone(self.estimator).set_params(**own)
        if options:
            made.set_params(options={**dict(made.options or {}), **options})
        if getattr(made, "target_bounds", ()) is None:
            made.set_params(target_bounds=(-1.0, 1.0))
        validate_data(made, X, reset=True, skip_check_array=True)
        made._prepare()
        made.objective_ = made._objective()
        scales = _public_scales(made)
        made.bounds_, made.constant_ = np.stack([scales.low, scales.high], axis=1), scales.constant
        return made

    def _source(self, estimator: PrivateEstimator, X: Any, y: Any) -> Source:
        indexed, labels = by_position(X), _one_column(by_position(y))
        _check_shapes(indexed, labels)
        scales = estimator._scales_kept
        rows, targets = estimator._scaled(indexed, scales), estimator._targets(labels, scales)
        return Source.of(rows, targets, self.estimator.account, self.estimator.records)

    def _trained(
        self, estimators: Sequence[PrivateEstimator], listed: Sequence[Mapping[str, Any]], source: Source
    ) -> Tuning:
        target = None if self.epsilon is None or self.delta is None else Target(self.epsilon, self.delta)
        trials = self.trials or NegativeBinomialTrials.with_mean(DEFAULT_MEAN_TRIALS)

        def candidates(mu: float | None) -> list[Candidate]:
            return [
                Candidate(params, _method(each, source, mu), each.objective_)
                for each, params in zip(estimators, listed, strict=True)
            ]

        return run_trials(
            candidates, source, law=trials, target=target, score=None, score_noise=self.score_noise
        )

    @property
    def classes_(self) -> Any:
        """Of the best estimator."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.classes_

    @available_if(_best_has("predict"))  # type: ignore[untyped-decorator]
    def predict(self, X: Any) -> Any:
        """By the best estimator."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.predict(X)

    @available_if(_best_has("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Any:
        """By the best estimator."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.predict_proba(X)

    @available_if(_best_has("decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> Any:
        """By the best estimator."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.decision_function(X)

    def score(self, X: Any, y: Any) -> float:
        """Of the best estimator, on rows that are the caller's to show."""
        check_is_fitted(self, "best_estimator_")
        return float(self.best_estimator_.score(X, y))


def _method(estimator: PrivateEstimator, source: Source, mu: float | None) -> Method:
    """The method of a candidate, with all its parameters."""
    chosen, options, objective = estimator.method, dict(estimator.options or {}), estimator.objective_
    if not isinstance(chosen, str):
        if mu is not None:
            raise ValueError("epsilon and delta go with a method's name: a method has its noise already")
        if options:
            raise ValueError("options go with a method's name")
        return check_method(chosen)
    if chosen == "auto" and mu is None:
        raise ValueError("options go with a method's name and all its parameters, or with epsilon and delta")
    return candidate_method("noisy-gd" if chosen == "auto" else chosen, options, source, objective, mu)


def _public_scales(estimator: PrivateEstimator) -> Scales:
    """By public bounds; columns without stay as they are."""
    given = estimator._scales_given(estimator.n_features_in_)
    low = np.where(np.isnan(given.low), -np.inf, given.low)
    return Scales(low, np.where(np.isnan(given.high), np.inf, given.high), 1.0)


def _fitted(estimator: PrivateEstimator, tuning: Tuning, method: Method, w: Any) -> PrivateEstimator:
    """The estimator as the best trial fitted it; its one charge is that of the search."""
    record = Record(1, (tuning.charge,), {"tuned": True})
    steps = method.planned_steps or 1
    message = "The best trial of a private search."
    estimator.result_ = Result(
        np.asarray(w), method.name, "finished", message, steps, (record,), tuning.remaining
    )
    estimator.n_iter_ = steps
    estimator._keep(estimator.result_.w)
    return estimator
