"""Stochastic gradient methods beyond the contract: reservations, sensitivity, learning, refusals."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dpledger_client import Account, Ledger, insecure_testing_noise, no_noise_for_testing
from dpledger_client._arrays import Floats
from dpledger_client.objectives import L2, Logistic
from dpledger_client.optimizers import Method, Result, minimize
from dpledger_client.optimizers.methods.dp_adam import DPAdam
from dpledger_client.optimizers.methods.dp_sgd import DPSGD
from dpledger_client.optimizers.support.batches import sample_of
from dpledger_client.samples import Poisson, WithoutReplacement
from tests.client.optimizers.contract import RECORDS, Indexed, classification, curve_budget, watching

_NUMBERS = itertools.count()
SGD: dict[str, Any] = {"steps": 30, "batch_size": 12, "clip": 1.0, "noise_multiplier": 2.0, "step_size": 0.5}
ROWS = 6
wild = st.floats(allow_nan=True, allow_infinity=True, width=64)


def account_of(
    ledger: Ledger, adjacency: str = "add-remove", records: int = RECORDS, **budget: Any
) -> Account:
    name = f"sgd-{next(_NUMBERS)}"
    return (
        ledger.dataset(name).open(budget or curve_budget(), adjacency=adjacency, records=records).run("job")
    )


def trained(account: Account, method: Method, data: Any = None, **more: Any) -> Result:
    X, y = classification() if data is None else data
    return minimize(Logistic(L2(0.01)), X, y, account=account, method=method, progress=False, **more)


@pytest.mark.parametrize("method", [DPSGD(**SGD), DPAdam(**SGD)], ids=["sgd", "adam"])
def test_with_reservations_it_does_the_same_and_is_charged_the_same(method: Method, ledger: Ledger) -> None:
    one, many = account_of(ledger), account_of(ledger)
    with insecure_testing_noise(3):
        alone = trained(one, method)
    with insecure_testing_noise(3):
        reserved = trained(many, method, reserve=7)

    np.testing.assert_array_equal(alone.w, reserved.w)
    assert alone.spent == reserved.spent
    np.testing.assert_allclose(
        many.dataset.budget().spent["epsilons"], one.dataset.budget().spent["epsilons"], rtol=1e-12
    )
    kinds = [entry["kind"] for entry in many.dataset.entries()]
    assert kinds.count("reserved") == 5
    assert kinds.count("authorized") == 0


def test_a_reservation_beyond_the_budget_is_cut_to_what_fits(ledger: Ledger) -> None:
    whole = trained(account_of(ledger), DPSGD(**SGD))
    costs = np.array(whole.charges[0].cost.epsilons)
    account = account_of(ledger, **curve_budget((costs * 10.5).tolist()))

    result = trained(account, DPSGD(**SGD), reserve=30)

    assert result.stop_reason == "budget-exhausted"
    assert result.iterations == 10


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize("kind", [DPSGD, DPAdam])
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    X=arrays(np.float64, (ROWS, 2), elements=wild),
    y=arrays(np.float64, ROWS, elements=wild),
    other=arrays(np.float64, 3, elements=wild),
    clip=st.floats(1e-3, 1e3),
)
def test_neighbours_never_move_the_gradient_further_than_declared(
    ledger: Ledger, kind: Any, adjacency: str, X: Floats, y: Floats, other: Floats, clip: float
) -> None:
    neighbour = X.copy(), y.copy()
    if adjacency == "add-remove":
        neighbour = np.vstack([X, other[:2]]), np.append(y, other[2])
    else:
        neighbour[0][0], neighbour[1][0] = other[:2], other[2]
    method = kind(1, batch_size=ROWS, clip=clip, noise_multiplier=1.0, step_size=0.1)
    account = account_of(ledger, adjacency, ROWS)
    values = []
    for data in ((X, y), neighbour):
        with watching() as watch, no_noise_for_testing():
            trained(account, method, data, w0=np.array([0.5, -1.0]))
        values.append(watch.draws[0].value)
        sensitivity = watch.draws[0].mechanism.fields()["sensitivity"]

    assert sensitivity == clip * (1.0 if adjacency == "add-remove" else 2.0)
    assert np.linalg.norm(values[0] - values[1]) <= sensitivity


@pytest.mark.parametrize(
    "method",
    [
        DPSGD(200, batch_size=40, clip=1.0, noise_multiplier=0.8, step_size=1.0, momentum=0.5),
        DPSGD(200, batch_size=40, clip=1.0, noise_multiplier=0.8, step_size=1.0, average="weighted"),
        DPAdam(200, batch_size=40, clip=1.0, noise_multiplier=0.8, step_size=0.1),
        DPAdam(
            200,
            batch_size=40,
            clip=1.0,
            noise_multiplier=0.8,
            step_size=0.05,
            noise_correction=True,
            stability=0.05,
        ),
    ],
    ids=["momentum", "weighted", "adam", "corrected"],
)
def test_with_a_generous_budget_it_learns(method: Method, ledger: Ledger) -> None:
    X, y = classification()
    with insecure_testing_noise(8):
        result = trained(account_of(ledger), method, reserve=200)

    assert Logistic().loss(result.w, X, y) < 0.75 * np.log(2.0)


@pytest.mark.parametrize("batch_size", [12, RECORDS])
def test_a_row_and_its_label_are_found_by_their_place_whatever_an_index_says(
    batch_size: int, ledger: Ledger
) -> None:
    """By its index, the label of a record that is absent would be an error, or another record's label."""
    X, y = classification()
    method = DPSGD(**{**SGD, "batch_size": batch_size})
    found = []
    for data in ((X, y), (X, Indexed(y)), (Indexed(X), Indexed(y))):
        with insecure_testing_noise(3), no_noise_for_testing():
            found.append(trained(account_of(ledger), method, data).w)

    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


def test_the_sample_is_of_the_scheme_that_the_adjacency_wants() -> None:
    assert sample_of(30, 120, "add-remove") == Poisson(0.25)
    assert sample_of(30, 120, "replace-one") == WithoutReplacement.of_size(30, 120)
    assert sample_of(1, 120, "replace-one").expected_size(120) == 1.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 0}, "steps must be at least 1"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"clip": -1.0}, "clip must be a finite number above 0"),
        ({"noise_multiplier": 0.0}, "noise_multiplier must be a finite number above 0"),
        ({"noise_multiplier": float("nan")}, "noise_multiplier must be a finite number above 0"),
        ({"momentum": 1.0}, "momentum must be below 1"),
        ({"average": "mean"}, "average must be one of last, uniform, weighted"),
    ],
)
def test_parameters_outside_their_range_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DPSGD(**(SGD | change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"first_decay": 1.0}, r"first_decay must be a number in \(0, 1\)"),
        ({"second_decay": 0.0}, r"second_decay must be a number in \(0, 1\)"),
        ({"stability": 0.0}, "stability must be a finite number above 0"),
    ],
)
def test_adam_s_own_parameters_too(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DPAdam(**(SGD | change))


def test_a_batch_above_the_records_is_refused_before_anything_is_asked(ledger: Ledger) -> None:
    account = account_of(ledger)
    with pytest.raises(ValueError, match="batch_size must be at most 120"):
        trained(account, DPSGD(**(SGD | {"batch_size": 121})))

    assert [entry["kind"] for entry in account.dataset.entries()] == ["opened"]
