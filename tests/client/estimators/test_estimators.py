"""Private estimators: what they learn, what they charge, and how scikit-learn handles them."""

import itertools
import pickle
import sys
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.parallel import Parallel, delayed

from dpledger_client import (
    Account,
    Ledger,
    MissingExtra,
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
from dpledger_client.objectives import L2, HingeSVM, HuberSVM, Logistic, Softmax
from dpledger_client.optimizers import minimize
from dpledger_client.optimizers.methods.dp_sgd import DPSGD
from dpledger_client.optimizers.methods.noisy_gd import NoisyGradientDescent
from tests.client.optimizers.contract import charged_entries, charged_steps, watching

pytestmark = pytest.mark.usefixtures("seeded")

_NUMBERS = itertools.count()
RECORDS = 240
PRECISE = NoisyGradientDescent(steps=60, clip=2.0, noise_multiplier=2.0, step_size=1.0)
SLOWER = NoisyGradientDescent(steps=80, clip=3.0, noise_multiplier=2.0, step_size=0.2)
QUICK = NoisyGradientDescent(steps=3, clip=2.0, noise_multiplier=2.0, step_size=1.0)


def blobs(classes: int = 2, seed: int = 1) -> tuple[Floats, Any]:
    random = np.random.default_rng(seed)
    labels = np.arange(RECORDS) % classes
    centres = 2.0 * np.stack(
        [np.cos(2 * np.pi * labels / classes), np.sin(2 * np.pi * labels / classes)], axis=1
    )
    return centres + 0.5 * random.normal(size=(RECORDS, 2)) + 0.3, labels


def account_of(ledger: Ledger, rho: float = 1e6, adjacency: str = "add-remove") -> Account:
    dataset = ledger.dataset(f"estimator-{next(_NUMBERS)}")
    return dataset.open({"accounting": "zcdp", "rho": rho}, adjacency=adjacency, records=RECORDS).run("fit")


def logistic(account: Account | None = None, **more: Any) -> PrivateLogisticRegression:
    """For the classes of :func:`blobs`."""
    return PrivateLogisticRegression(account, **{"classes": (0, 1), **more})


CLASSIFIERS: list[Any] = [
    (PrivateLogisticRegression, {}),
    (PrivateLinearSVC, {}),
    (PrivateLinearSVC, {"loss": "hinge"}),
    (PrivateMLPClassifier, {"hidden": (6,)}),
]


@pytest.mark.parametrize(("kind", "more"), CLASSIFIERS)
def test_a_classifier_learns(ledger: Ledger, kind: Any, more: dict[str, Any]) -> None:
    X, labels = blobs()
    y = np.array(["no", "yes"])[labels]
    with insecure_testing_noise(2):
        model = kind(account_of(ledger), classes=("no", "yes"), method=PRECISE, **more).fit(X, y)

    assert model.score(X, y) > 0.95
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.n_features_in_ == 2


@pytest.mark.parametrize("kind", [PrivateLogisticRegression, PrivateMLPClassifier])
def test_with_more_classes_probabilities_add_up(ledger: Ledger, kind: Any) -> None:
    X, y = blobs(classes=3)
    with insecure_testing_noise(2):
        model = kind(account_of(ledger), classes=(0, 1, 2), method=PRECISE).fit(X, y)

    chances = model.predict_proba(X)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    np.testing.assert_array_equal(model.classes_[chances.argmax(axis=1)], model.predict(X))
    assert model.score(X, y) > 0.9


def test_regression_learns_and_cuts_its_targets(ledger: Ledger) -> None:
    X, _ = blobs()
    y = X @ np.array([0.2, -0.1]) + 0.3
    y[0] = 1e9
    with insecure_testing_noise(2):
        model = PrivateLinearRegression(account_of(ledger), target_bounds=(-2.0, 2.0), method=SLOWER).fit(
            X, y
        )

    assert model.score(X[1:], y[1:]) > 0.9
    assert model.coef_.shape == (2,)
    assert isinstance(model.intercept_, float)


@pytest.mark.parametrize(
    ("model", "objective", "classes"),
    [
        (logistic(regularizer=L2(0.1)), Logistic(L2(0.1)), 2),
        (PrivateLogisticRegression(classes=(0, 1, 2)), Softmax(3), 3),
        (PrivateLinearSVC(classes=(0, 1), width=0.3), HuberSVM(0.3), 2),
        (PrivateLinearSVC(classes=(0, 1), loss="hinge"), HingeSVM(), 2),
    ],
)
def test_it_is_minimize_on_a_column_of_ones_more(
    ledger: Ledger, model: Any, objective: Any, classes: int
) -> None:
    X, labels = blobs(classes)
    y = 2.0 * labels - 1.0 if classes == 2 else labels
    model.set_params(account=account_of(ledger), method=QUICK)
    with no_noise_for_testing():
        model.fit(X, labels)
        wide = np.hstack([X, np.ones((RECORDS, 1))])
        expected = minimize(objective, wide, y, account=account_of(ledger), method=QUICK, progress=False)

    np.testing.assert_allclose(model.result_.w, expected.w, atol=1e-12)
    margins = wide @ expected.w.reshape(3, -1)
    np.testing.assert_allclose(X @ model.coef_.T + model.intercept_, margins, atol=1e-12)
    np.testing.assert_allclose(np.squeeze(model.decision_function(X)), np.squeeze(margins), atol=1e-12)


def test_without_an_intercept_there_is_none(ledger: Ledger) -> None:
    model = PrivateLogisticRegression(
        account_of(ledger), classes=(0, 1), method=QUICK, fit_intercept=False
    ).fit(*blobs())

    assert model.coef_.shape == (1, 2)
    assert model.intercept_.tolist() == [0.0]


def test_values_are_looked_at_after_the_yes_only(ledger: Ledger) -> None:
    account = account_of(ledger)
    with watching(account.dataset) as watch, insecure_testing_noise(1):
        X, y = (watch.wrap(array) for array in blobs())
        logistic(account, method=QUICK).fit(X, y)

    assert watch.seen == {entry["id"] for entry in charged_entries(account.dataset)}


def test_what_is_no_number_or_no_class_counts_as_nothing(ledger: Ledger) -> None:
    X, y = blobs()
    spoiled, labels = X.astype(np.float64), y.copy()
    spoiled[0, 0], spoiled[1, 1], labels[2] = np.nan, np.inf, 7
    kept = np.arange(RECORDS) > 2
    with no_noise_for_testing():
        model = logistic(account_of(ledger), method=QUICK).fit(spoiled, labels)
        without = logistic(account_of(ledger), method=QUICK).fit(X[kept], y[kept])

    np.testing.assert_allclose(model.result_.w, without.result_.w, atol=1e-12)


class Missing:
    """A value that is not known, as frames have it: neither equal to another nor not."""

    def __eq__(self, other: object) -> Any:
        return self

    def __bool__(self) -> bool:
        raise TypeError("boolean value of NA is ambiguous")

    __hash__ = None  # type: ignore[assignment]


def reported(kind: Any) -> dict[str, Any]:
    """What a classifier must be given."""
    return {} if kind is PrivateLinearRegression else {"classes": (0, 1)}


each_kind = pytest.mark.parametrize(
    "kind", [PrivateLogisticRegression, PrivateLinearSVC, PrivateLinearRegression, PrivateMLPClassifier]
)


@pytest.mark.parametrize("value", ["secret", Missing(), None, 10**400, [1.0]], ids=lambda v: type(v).__name__)
@each_kind
def test_what_cannot_be_read_counts_as_nothing_instead_of_raising(
    ledger: Ledger, kind: Any, value: Any
) -> None:
    """An error would tell of a record, and its message even what is in it."""
    X, y = blobs()
    rows, labels = X.astype(object), y.astype(object)
    rows[7, 1] = value
    labels[11] = value
    kept = ~np.isin(np.arange(RECORDS), (7, 11))
    with no_noise_for_testing():
        found = kind(account_of(ledger), method=QUICK, **reported(kind)).fit(rows, labels)
        expected = kind(account_of(ledger), method=QUICK, **reported(kind)).fit(X[kept], y[kept])
    np.testing.assert_allclose(found.result_.w, expected.result_.w, rtol=1e-12)
    assert found.result_.iterations == 3


@pytest.mark.parametrize("value", ["secret", 1j, None], ids=str)
@each_kind
def test_one_record_of_a_list_does_not_change_how_others_are_read(
    ledger: Ledger, kind: Any, value: Any
) -> None:
    """Made an array at once, one string would make strings of all, and no label would be a class any more."""
    X, y = blobs()
    rows = [[bool(first > 0.3), float(second)] for first, second in X]
    labels = y.tolist()
    with no_noise_for_testing():
        expected = kind(account_of(ledger), method=QUICK, **reported(kind)).fit(rows, labels)
        found = kind(account_of(ledger), method=QUICK, **reported(kind)).fit(
            [*rows, [value, 1.0]], [*labels, value]
        )

    np.testing.assert_allclose(found.result_.w, expected.result_.w, rtol=1e-12)
    assert np.abs(found.result_.w).max() > 1e-3


def test_sparse_rows_are_the_same_rows(ledger: Ledger) -> None:
    X, y = blobs()
    with no_noise_for_testing():
        dense = logistic(account_of(ledger), method=QUICK).fit(X, y)
        thin = logistic(account_of(ledger), method=QUICK).fit(sparse.coo_array(X), y)

    np.testing.assert_array_equal(dense.result_.w, thin.result_.w)
    np.testing.assert_array_equal(dense.predict(X), thin.predict(sparse.csr_array(X)))


def test_a_method_by_name_takes_its_options(ledger: Ledger) -> None:
    options = {"steps": 12, "batch_size": 20, "clip": 1.0, "noise_multiplier": 1.0, "step_size": 0.5}
    dataset = ledger.dataset(f"estimator-{next(_NUMBERS)}").open(
        {"accounting": "rdp", "epsilon": 50.0, "delta": 1e-6}, records=RECORDS
    )
    model = PrivateLogisticRegression(
        dataset.run("fit"), classes=(0, 1), method="dp-sgd", options=options, reserve=12
    )
    model.fit(*blobs())

    assert model.n_iter_ == 12
    assert [entry["kind"] for entry in charged_entries(dataset)] == ["reserved"]


def test_a_clone_has_the_same_parameters_and_spends_by_itself(ledger: Ledger) -> None:
    account = account_of(ledger)
    model = PrivateLogisticRegression(
        account, method=QUICK, classes=("a", "b"), regularizer=L2(0.1), reserve=3
    )
    twin = clone(model)

    assert twin.get_params()["classes"] == ("a", "b")
    assert twin.get_params()["regularizer"] == L2(0.1)
    assert repr(twin.account) == repr(account)
    X, y = blobs()
    twin.fit(X, np.array(["a", "b"])[y])
    assert account.dataset.budget().spent["rho"] == pytest.approx(3 / (2 * 2.0**2))


def test_cross_validation_charges_each_fit(ledger: Ledger) -> None:
    account = account_of(ledger)
    model = logistic(account, method=QUICK)
    scores = cross_val_score(model, *blobs(), cv=4)

    assert len(scores) == 4
    assert charged_steps(account.dataset) == 4 * 3
    assert account.dataset.budget().spent["rho"] == pytest.approx(4 * 3 / (2 * 2.0**2))


def test_a_grid_search_charges_every_candidate(ledger: Ledger) -> None:
    account = account_of(ledger)
    methods = [QUICK, NoisyGradientDescent(steps=2, clip=1.0, noise_multiplier=2.0, step_size=1.0)]
    search = GridSearchCV(logistic(account), {"method": methods}, cv=2)
    search.fit(*blobs())

    refitted = search.best_estimator_.result_.iterations
    assert charged_steps(account.dataset) == 2 * 3 + 2 * 2 + refitted


def test_a_pipeline_and_joblib_workers_carry_the_account(ledger: Ledger) -> None:
    account = account_of(ledger)
    X, y = blobs()
    model = make_pipeline(FunctionTransformer(), logistic(account, method=QUICK))
    fits = Parallel(n_jobs=2, prefer="threads")(delayed(clone(model).fit)(X, y) for _ in range(3))

    assert len(fits) == 3
    assert charged_steps(account.dataset) == 3 * 3


def test_a_fitted_model_survives_a_pickle(ledger: Ledger) -> None:
    X, y = blobs()
    model = logistic(account_of(ledger), method=QUICK).fit(X, y)
    again = pickle.loads(pickle.dumps(model))

    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert again.result_.charges == model.result_.charges


def test_a_budget_that_ends_leaves_the_last_good_model_and_a_warning(ledger: Ledger) -> None:
    account = account_of(ledger, rho=2.5 / (2 * 2.0**2))
    with pytest.warns(ConvergenceWarning, match="after 2 iterations"):
        model = logistic(account, method=QUICK).fit(*blobs())

    assert model.result_.stop_reason == "budget-exhausted"
    assert model.predict(blobs()[0]).shape == (RECORDS,)


@pytest.mark.parametrize("kind", [PrivateLogisticRegression, PrivateLinearSVC, PrivateMLPClassifier])
def test_classes_must_be_given_before_anything_is_asked(ledger: Ledger, kind: Any) -> None:
    account = account_of(ledger)
    with pytest.raises(ValueError, match="classes must be given"):
        kind(account, method=QUICK).fit(*blobs())

    assert charged_entries(account.dataset) == []


@pytest.mark.parametrize(("kind", "more"), [*CLASSIFIERS, (PrivateLinearRegression, {})])
@pytest.mark.parametrize("reserve", [None, 3])
def test_a_fit_without_a_step_is_no_fit(
    ledger: Ledger, kind: Any, more: dict[str, Any], reserve: int | None
) -> None:
    account = account_of(ledger, rho=0.3 / (2 * 2.0**2))
    model = kind(account, method=QUICK, reserve=reserve, **reported(kind), **more)
    with pytest.raises(NotTrained, match="made no step") as raised:
        model.fit(*blobs())

    refusal = raised.value.refusal
    assert refusal is not None
    assert refusal.requested["times"] == (reserve or 1)
    assert refusal.fits["times"] == 0
    for part in ("'rho': 0.125", "0.0375", "0.3 of the cost"):
        assert part in str(raised.value)
    with pytest.raises(NotFittedError):
        model.predict(blobs()[0])


@pytest.mark.parametrize("classes", [(0,), (0, 0), ()])
def test_classes_that_leave_no_choice_are_refused(ledger: Ledger, classes: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="classes must be at least two"):
        PrivateLogisticRegression(account_of(ledger), classes=classes).fit(*blobs())


@pytest.mark.parametrize(
    ("change", "message"),
    [({"classes": (0, 1, 2)}, "classes must be two"), ({"loss": "log"}, "loss must be")],
)
def test_a_machine_that_there_is_not_is_refused(ledger: Ledger, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PrivateLinearSVC(account_of(ledger), **({"classes": (0, 1)} | change)).fit(*blobs())


def test_without_an_account_nothing_is_looked_at() -> None:
    with watching() as watch:
        X, y = (watch.wrap(array) for array in blobs())
        with pytest.raises(ValueError, match="account must be given"):
            logistic(epsilon=1.0, delta=1e-6).fit(X, y)

    assert watch.events == []


def test_unfitted_it_predicts_nothing() -> None:
    with pytest.raises(NotFittedError):
        PrivateLogisticRegression().predict(blobs()[0])


def test_dp_sgd_is_a_method_too(ledger: Ledger) -> None:
    method = DPSGD(4, batch_size=RECORDS, clip=2.0, noise_multiplier=2.0, step_size=1.0)
    dataset = ledger.dataset(f"estimator-{next(_NUMBERS)}").open(
        {"accounting": "rdp", "epsilon": 50.0, "delta": 1e-6}, records=RECORDS
    )
    assert PrivateLinearSVC(dataset.run("fit"), classes=(0, 1), method=method).fit(*blobs()).n_iter_ == 4


def test_without_scikit_learn_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("dpledger_client.estimators")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sklearn", None)

    with pytest.raises(MissingExtra, match="sklearn"):
        __import__("dpledger_client.estimators")
