"""The private search over an estimator's parameters."""

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from dpledger_client import Dataset, Ledger, NegativeBinomialTrials, NotTrained, PoissonTrials
from dpledger_client.estimators import (
    PrivateLinearRegression,
    PrivateLogisticRegression,
    PrivateMLPClassifier,
    PrivateSearchCV,
)
from dpledger_client.objectives import L2
from dpledger_client.optimizers.methods.noisy_gd import NoisyGradientDescent
from tests.client.optimizers.test_contract import fresh_name

pytestmark = pytest.mark.usefixtures("seeded")

RECORDS = 2_000
TARGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
FEW = NegativeBinomialTrials.with_mean(2.0, 1.0)


def data(classes: int = 2) -> tuple[Any, Any]:
    random = np.random.default_rng(7)
    X = random.normal(size=(RECORDS, 4))
    return X, np.argmax(X @ random.normal(size=(4, classes)), axis=1)


def opened(ledger: Ledger) -> Dataset:
    return ledger.dataset(fresh_name()).open({"accounting": "rdp", **TARGET}, records=RECORDS)


@pytest.mark.parametrize("classes", [2, 3])
def test_the_best_model_comes_out_fitted_at_one_charge(ledger: Ledger, classes: int) -> None:
    X, y = data(classes)
    dataset = opened(ledger)
    estimator = PrivateLogisticRegression(dataset.run("job"), classes=range(classes))
    grid: dict[str, list[Any]] = {"options__clip": [0.5, 1.0], "regularizer": [None, L2(1e-4)]}
    search = PrivateSearchCV(estimator, grid, trials=FEW, **TARGET).fit(X, y)

    assert search.score(X, y) > 0.85
    assert search.best_score_ == pytest.approx(search.score(X, y), abs=0.1)
    assert set(search.best_params_) == set(grid)
    assert search.best_estimator_.options == {"clip": search.best_params_["options__clip"]}
    assert search.best_estimator_.regularizer is not None or search.best_params_["regularizer"] is None
    assert search.classes_.tolist() == list(range(classes))
    assert search.n_features_in_ == search.best_estimator_.n_features_in_ == 4
    np.testing.assert_array_equal(search.predict(X), np.argmax(search.predict_proba(X), axis=1))
    assert search.decision_function(X).shape[0] == RECORDS
    assert len(list(dataset.entries(kind="authorized"))) == 1
    assert search.best_estimator_.result_.charges == (search.tuning_.charge,)
    assert dataset.budget().fraction < 0.001


def test_methods_with_noise_of_their_own_need_no_target(ledger: Ledger) -> None:
    X, y = data()
    methods = [NoisyGradientDescent(10, clip, 80.0, 20.0) for clip in (0.5, 1.0)]
    estimator = PrivateLogisticRegression(opened(ledger).run("job"), classes=(0, 1))
    search = PrivateSearchCV(estimator, {"method": methods}, trials=FEW, score_noise=80.0).fit(X, y)
    assert search.best_estimator_.method in methods
    assert search.best_estimator_.n_iter_ == 10
    named = estimator.set_params(method="noisy-gd", account=opened(ledger).run("job"))
    grid = {"options": [{"steps": 10, "clip": 1.0, "noise_multiplier": 80.0, "step_size": 20.0}]}
    assert PrivateSearchCV(named, grid, trials=FEW, score_noise=80.0).fit(X, y).score(X, y) > 0.8


@pytest.mark.parametrize("own", [TARGET, {"spend": 0.1}], ids=["target", "share"])
def test_what_an_estimator_may_cost_is_not_passed_over(ledger: Ledger, own: dict[str, Any]) -> None:
    dataset = opened(ledger)
    estimator = PrivateLogisticRegression(dataset.run("job"), classes=(0, 1), **own)
    methods = [NoisyGradientDescent(10, clip, 80.0, 20.0) for clip in (0.5, 1.0)]
    with pytest.raises(ValueError, match="to the search"):
        PrivateSearchCV(estimator, {"method": methods}, trials=FEW, score_noise=80.0).fit(*data())
    assert dataset.budget().fraction == 1.0


def test_networks_and_least_squares_are_searched_too(ledger: Ledger) -> None:
    X, y = data()
    network = PrivateMLPClassifier(opened(ledger).run("job"), classes=(0, 1))
    found = PrivateSearchCV(network, {"hidden": [(4,), (8,)]}, trials=FEW, **TARGET).fit(X, y)
    assert found.best_estimator_.hidden in [(4,), (8,)]
    assert found.predict_proba(X).shape == (RECORDS, 2)
    regression = PrivateLinearRegression(opened(ledger).run("job"))
    found = PrivateSearchCV(regression, {"options__clip": [1.0]}, trials=FEW, **TARGET).fit(X, 2.0 * y - 1.0)
    assert not hasattr(found, "predict_proba")
    assert found.predict(X).shape == (RECORDS,)


def test_where_no_trial_is_drawn_there_is_no_model(ledger: Ledger) -> None:
    X, y = data()
    dataset = opened(ledger)
    estimator = PrivateLogisticRegression(dataset.run("job"), classes=(0, 1))
    method = [NoisyGradientDescent(1, 1.0, 80.0, 1.0)]
    search = PrivateSearchCV(estimator, {"method": method}, trials=PoissonTrials(1e-9), score_noise=80.0)
    with pytest.raises(NotTrained, match="came out as 0") as empty:
        search.fit(X, y)
    assert len(empty.value.charges) == 1


@pytest.mark.parametrize(
    ("estimator", "grid", "more", "message"),
    [
        (LogisticRegression(), {}, TARGET, "must be a private one"),
        (PrivateLogisticRegression(classes=(0, 1)), {}, TARGET, "account must be given"),
        (None, {"records": [1, 2]}, TARGET, "same in every trial"),
        (None, {}, {"epsilon": 1.0}, "together"),
        (None, {"method": [NoisyGradientDescent(1, 1.0, 80.0, 1.0)]}, TARGET, "method's name"),
        (None, {"options__clip": [1.0]}, {"score_noise": 1.0}, "options go with"),
        (None, {"method": ["dp-agd"]}, TARGET, "no rule"),
    ],
)
def test_what_cannot_be_searched_is_refused_before_anything_is_asked(
    ledger: Ledger, estimator: Any, grid: Any, more: dict[str, Any], message: str
) -> None:
    X, y = data()
    dataset = opened(ledger)
    chosen = PrivateLogisticRegression(dataset.run("job"), classes=(0, 1)) if estimator is None else estimator
    with pytest.raises((ValueError, TypeError), match=message):
        PrivateSearchCV(chosen, grid, **more).fit(X, y)
    assert dataset.budget().sequence == 1


def test_labels_are_needed(ledger: Ledger) -> None:
    estimator = PrivateLogisticRegression(opened(ledger).run("job"), classes=(0, 1))
    with pytest.raises(ValueError, match="requires y"):
        PrivateSearchCV(estimator, {}, **TARGET).fit(data()[0], None)
