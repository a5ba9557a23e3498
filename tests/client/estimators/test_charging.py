"""Estimators in one call: what they are given, what they spend, and how features are scaled."""

from typing import Any

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV

from dpledger_client import (
    BudgetExhausted,
    Dataset,
    Ledger,
    NotTrained,
    insecure_testing_noise,
    no_noise_for_testing,
)
from dpledger_client._arrays import Floats
from dpledger_client.estimators import (
    PrivateLinearRegression,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateMLPClassifier,
)
from dpledger_client.objectives import L2, LeastSquares
from dpledger_client.objectives.weighted import Weighted
from dpledger_client.optimizers.methods.noisy_gd import NoisyGradientDescent
from tests.client.optimizers.contract import charged_entries, charged_steps, watching
from tests.client.optimizers.test_contract import fresh_name

pytestmark = pytest.mark.usefixtures("seeded")

RECORDS = 3_000
TARGET: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-6}
UNITS = np.array([1000.0, 0.01, 1.0])
MIDDLES = np.array([50_000.0, 0.0, -3.0])
BOUNDS = [(46_000.0, 54_000.0), (-0.04, 0.04), (-7.0, 1.0)]
QUICK = NoisyGradientDescent(steps=3, clip=2.0, noise_multiplier=2.0, step_size=1.0)


def _data() -> tuple[Floats, Any]:
    """Columns in very different units, one of them far from zero."""
    random = np.random.default_rng(11)
    numbers = random.normal(size=(RECORDS, 3))
    return numbers * UNITS + MIDDLES, np.where(numbers @ [1.0, -2.0, 1.5] > 0.0, 1, 0)


def _open(ledger: Ledger, accounting: str = "shared", **more: Any) -> Dataset:
    budget = {"accounting": accounting, "epsilon": 2.0, "delta": 1e-6}
    return ledger.dataset(fresh_name()).open(budget, records=RECORDS, **more)


@pytest.mark.parametrize("kind", [PrivateLogisticRegression, PrivateLinearSVC, PrivateMLPClassifier])
@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_epsilon_delta_classes_and_bounds_are_enough(ledger: Ledger, kind: Any, adjacency: str) -> None:
    X, y = _data()
    dataset = _open(ledger, adjacency=adjacency)
    model = kind(dataset.run("fit"), classes=(0, 1), bounds=BOUNDS, **TARGET).fit(X, y)

    assert model.score(X, y) > 0.9
    assert model.result_.stop_reason == "finished"
    [allocation] = dataset.allocations()
    assert allocation["remaining"]["fraction"] < 0.02


@pytest.mark.parametrize("accounting", ["shared", "zcdp", "gdp", "rdp"])
def test_bounds_that_are_not_public_are_paid_for_out_of_the_same_request(
    ledger: Ledger, accounting: str
) -> None:
    X, y = _data()
    dataset = _open(ledger, accounting)
    model = PrivateLogisticRegression(dataset.run("fit"), classes=(0, 1), **TARGET).fit(X, y)

    purposes = [entry["purpose"] for entry in charged_entries(dataset)]
    assert purposes[0] == "bounds"
    assert "gradient" in purposes[1:]
    assert model.result_.plan.items[0]["name"] == "bounds"
    charged = {charge.sequence for charge in model.result_.charges}
    assert charged == {entry["sequence"] for entry in charged_entries(dataset)}
    assert dataset.budget().fraction < 0.02
    assert model.score(X, y) > 0.85


def test_half_of_what_is_left_is_spent_with_bounds_and_all(ledger: Ledger) -> None:
    X, y = _data()
    dataset = _open(ledger, "gdp")
    PrivateLogisticRegression(dataset.run("fit"), classes=(0, 1), spend=0.5).fit(X, y)
    assert dataset.budget().fraction == pytest.approx(0.5, abs=0.01)


def test_without_a_request_nothing_is_looked_at_and_both_ways_are_shown(ledger: Ledger) -> None:
    dataset = _open(ledger)
    with watching(dataset) as watch:
        X, y = (watch.wrap(array) for array in _data())
        with pytest.raises(ValueError, match=r"epsilon=1\.0, delta=1e-6, or spend=0\.5"):
            PrivateLogisticRegression(dataset.run("fit"), classes=(0, 1)).fit(X, y)
    assert watch.events == []
    assert len(list(dataset.entries())) == 1


def test_bounds_are_looked_at_after_the_yes_only(ledger: Ledger) -> None:
    dataset = _open(ledger, "gdp")
    with watching(dataset) as watch, insecure_testing_noise(1):
        X, y = (watch.wrap(array) for array in _data())
        PrivateLogisticRegression(dataset.run("fit"), classes=(0, 1), options={"steps": 3}, **TARGET).fit(
            X, y
        )
    assert watch.seen == {entry["id"] for entry in charged_entries(dataset)}


def test_weights_are_in_the_units_of_the_caller(ledger: Ledger) -> None:
    X, y = _data()
    model = PrivateLogisticRegression(_open(ledger).run("fit"), classes=(0, 1), bounds=BOUNDS, **TARGET)
    model.fit(X, y)
    inside = ((np.array(BOUNDS)[:, 0] <= X) & (np.array(BOUNDS)[:, 1] >= X)).all(axis=1)
    margins = X[inside] @ model.coef_[0] + model.intercept_[0]
    np.testing.assert_allclose(model.decision_function(X[inside]), margins, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(
        model.decision_function(X + 1e9),
        model.decision_function(np.tile(np.array(BOUNDS)[:, 1], (RECORDS, 1))),
    )


@pytest.mark.parametrize("target_bounds", [(-20.0, 220.0), None])
def test_regression_scales_its_targets_too(ledger: Ledger, target_bounds: Any) -> None:
    X, _ = _data()
    y = 100.0 + 20.0 * ((X - MIDDLES) / UNITS) @ [1.0, -1.0, 0.5]
    bounds = None if target_bounds is None else BOUNDS
    model = PrivateLinearRegression(
        _open(ledger).run("fit"), bounds=bounds, target_bounds=target_bounds, **TARGET
    ).fit(X, y)
    assert model.score(X, y) > 0.7
    low, high = model.bounds_[:3].T
    inside = ((low <= X) & (high >= X)).all(axis=1)
    expected = X[inside] @ model.coef_ + model.intercept_
    np.testing.assert_allclose(model.predict(X[inside]), expected, rtol=1e-6, atol=1e-6)


def test_a_fit_that_is_refused_gives_its_allocation_back(ledger: Ledger, monkeypatch: Any) -> None:
    X, y = _data()
    dataset = _open(ledger)
    model = PrivateLogisticRegression(dataset.run("fit"), classes=(0, 1), bounds=BOUNDS, **TARGET)

    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError("the machine ran out of memory")

    monkeypatch.setattr("dpledger_client.optimizers._train", fails)
    with pytest.raises(RuntimeError, match="memory"):
        model.fit(X, y)
    [allocation] = dataset.allocations()
    assert allocation["state"] == "returned"
    assert dataset.budget().fraction == 1.0


def test_what_was_released_from_is_not_given_back(ledger: Ledger, monkeypatch: Any) -> None:
    X, y = _data()
    dataset = _open(ledger)
    model = PrivateLogisticRegression(dataset.run("fit"), classes=(0, 1), **TARGET)

    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError("the machine ran out of memory")

    monkeypatch.setattr("dpledger_client.optimizers._train", fails)
    with pytest.raises(RuntimeError, match="memory"):
        model.fit(X, y)
    [allocation] = dataset.allocations()
    assert allocation["state"] == "open"
    assert dataset.budget().fraction == 0.0


def test_going_on_starts_where_the_last_fit_ended_and_is_charged_anew(ledger: Ledger) -> None:
    X, y = _data()
    dataset = _open(ledger, "gdp")
    model = PrivateLogisticRegression(
        dataset.run("fit"),
        classes=(0, 1),
        spend=0.3,
        method="noisy-gd",
        options={"steps": 5},
        warm_start=True,
    )
    model.fit(X, y)
    bounds, first = model.bounds_.copy(), model.result_.w
    model.fit(X, y)
    np.testing.assert_array_equal(model.bounds_, bounds)
    model.partial_fit(X, y, classes=(0, 1))
    assert charged_steps(dataset) == 1 + 3 * 5
    assert not np.array_equal(model.result_.w, first)
    with pytest.raises(ValueError, match="those of the estimator"):
        model.partial_fit(X, y, classes=(1, 2))


def test_a_weight_of_zero_is_an_absent_record_and_none_counts_more_than_one(ledger: Ledger) -> None:
    X, y = _data()
    weights = np.where(np.arange(RECORDS) % 3 == 0, 0.0, 7.0)
    weights[1] = np.nan
    kept = weights > 0.0
    account = (
        ledger.dataset(fresh_name()).open({"accounting": "zcdp", "rho": 1e3}, records=RECORDS).run("fit")
    )
    model = PrivateLogisticRegression(account, classes=(0, 1), bounds=BOUNDS, method=QUICK)
    with no_noise_for_testing():
        found = model.fit(X, y, sample_weight=weights).result_.w
        np.testing.assert_allclose(model.fit(X[kept], y[kept]).result_.w, found, rtol=1e-9)
    with pytest.raises(ValueError, match="one entry per row"):
        model.fit(X, y, sample_weight=weights[1:])
    with pytest.raises(ValueError, match="reads labels by themselves"):
        model.set_params(method="output-perturbation", **TARGET).fit(X, y, sample_weight=weights)
    with pytest.raises(TypeError, match="sample_weight"):
        PrivateMLPClassifier(account, classes=(0, 1), method=QUICK).fit(X, y, sample_weight=weights)  # type: ignore[call-arg]


@pytest.mark.parametrize("method", ["dp-agd", "dp-sgd"])
def test_weights_go_with_methods_that_search_and_that_sample(ledger: Ledger, method: str) -> None:
    X, y = _data()
    account = _open(ledger).run("fit")
    model = PrivateLogisticRegression(account, classes=(0, 1), bounds=BOUNDS, method=method, **TARGET)
    assert model.fit(X, y, sample_weight=np.linspace(0.5, 1.0, RECORDS)).score(X, y) > 0.8


def test_a_weight_that_no_estimator_cut_is_cut_by_the_objective() -> None:
    weighted, margins = Weighted(LeastSquares()), np.ones(4)
    y = np.stack([np.zeros(4), [-3.0, 7.0, np.nan, np.inf]], axis=1)
    assert weighted.margin_losses(margins, y).tolist() == [0.0, 0.5, 0.0, 0.5]
    assert weighted.margin_slopes(margins, y).tolist() == [0.0, 1.0, 0.0, 1.0]


def test_parameters_of_a_method_are_parameters_of_the_estimator(ledger: Ledger) -> None:
    model = PrivateLogisticRegression(classes=(0, 1), method=QUICK, regularizer=L2(0.1))
    assert model.get_params()["method__clip"] == 2.0
    model.set_params(method__clip=3.0, regularizer__strength=0.2, reserve=3)
    assert (model.get_params()["method__clip"], model.regularizer, QUICK.clip) == (3.0, L2(0.2), 2.0)
    with pytest.raises(ValueError, match="no parameter"):
        model.set_params(method__depth=3)
    dataset = ledger.dataset(fresh_name()).open({"accounting": "zcdp", "rho": 1e3}, records=RECORDS)
    search = GridSearchCV(model.set_params(account=dataset.run("fit")), {"method__clip": [1.0, 2.0]}, cv=2)
    search.fit(*_data())
    assert search.best_estimator_.method.clip in (1.0, 2.0)


def test_noise_that_can_be_drawn_again_is_refused_with_the_reason() -> None:
    with pytest.raises(ValueError, match="protects nobody"):
        PrivateLogisticRegression(random_state=0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="protects nobody"):
        PrivateLogisticRegression().set_params(random_state=0)


@pytest.mark.parametrize("accounting", ["shared", "gdp"])
def test_a_first_step_that_is_refused_is_no_fit_and_costs_nothing(
    ledger: Ledger, monkeypatch: Any, accounting: str
) -> None:
    """The forecast is no promise: others may spend in between."""
    X, y = _data()
    dataset = _open(ledger, accounting)
    model = PrivateLogisticRegression(
        dataset.run("fit"), classes=(0, 1), bounds=BOUNDS, method="noisy-gd", **TARGET
    )

    def refused(*_: Any, **__: Any) -> Any:
        raise BudgetExhausted({"detail": "spent", "requested": {}, "fits": {}, "remaining": {}}, None)

    monkeypatch.setattr("dpledger_client.optimizers.methods.noisy_gd.NoisyGradientDescent.train", refused)
    with pytest.raises(NotTrained):
        model.fit(X, y)
    assert dataset.budget().fraction == 1.0
