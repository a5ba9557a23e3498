"""Moments: what one record can move, and what their noise cannot hide."""

import math
from typing import Any

import numpy as np
import pytest

from dpledger_client import Ledger, insecure_testing_noise
from dpledger_client._arrays import Floats
from dpledger_client.mechanisms import Gaussian
from dpledger_client.objectives import LeastSquares, Logistic, Softmax
from dpledger_client.optimizers import minimize
from dpledger_client.optimizers.methods.adassp import AdaSSP
from dpledger_client.optimizers.methods.approximate_logistic import ApproximateLogistic
from dpledger_client.optimizers.methods.preconditioned_gd import PreconditionedGradientDescent
from dpledger_client.optimizers.support import moments
from dpledger_client.releases import Release
from tests.client.optimizers.contract import classification, watching
from tests.client.optimizers.test_contract import fresh_name

HUGE = 1e12
BAD: list[list[float]] = [
    [HUGE] * 4,
    [-HUGE, 0.0, 0.0, 1.0],
    [np.nan] * 4,
    [np.inf, 1.0, 0.0, 0.0],
    [1e308, 1e-308, 0.0, 0.0],
]
METHOD = PreconditionedGradientDescent(
    steps=4,
    clip=0.2,
    noise_multiplier=1.0,
    norm_multiplier=1.0,
    moment_multiplier=1.0,
    matrix_multiplier=2.0,
    step_size=5.0,
)


def _sensitivity(release: Release) -> float:
    assert isinstance(release.mechanism, Gaussian)
    return release.mechanism.sensitivity


def _sums(X: Floats, y: Floats) -> dict[str, Floats]:
    return {
        "norms": moments.norm_counts(X, 2.0),
        "moments": moments.scaled_sum(X, 0.7),
        "second": moments.second_moments(X, 0.7),
        "statistics": moments.statistics_sum(X, y, 0.7),
    }


def _releases(adjacency: str) -> dict[str, Release]:
    return {
        "norms": moments.norm_release(adjacency, 1.0),
        "moments": moments.moment_release(adjacency, 1.0),
        "second": moments.second_moments_release(adjacency, 1.0),
        "statistics": moments.statistics_release(adjacency, 1.0),
    }


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_no_record_moves_a_sum_by_more_than_its_sensitivity(adjacency: str) -> None:
    X, y = classification()
    random = np.random.default_rng(3)
    least: dict[str, float] = {}
    rows = [*BAD, *(random.normal(size=4) * 10.0 ** random.uniform(-2, 3) for _ in range(60))]
    for one, other in zip(rows, reversed(rows), strict=True):
        for targets in ((1.0, -1.0), (np.inf, 5.0)):
            more = _sums(np.vstack([X, one]), np.append(y, targets[0]))
            base = (
                _sums(X, y)
                if adjacency == "add-remove"
                else _sums(np.vstack([X, other]), np.append(y, targets[1]))
            )
            for name, release in _releases(adjacency).items():
                moved = float(np.linalg.norm(more[name] - base[name]))
                assert moved <= _sensitivity(release) * (1.0 + 1e-12)
                least[name] = max(least.get(name, 0.0), moved / _sensitivity(release))
    assert all(found > 0.5 for found in least.values()), (
        "the bounds are nearly reached, so that they are tried"
    )


@pytest.mark.parametrize("value", [1e308, 1e-320, np.inf, np.nan])
@pytest.mark.parametrize(
    ("method", "objective"),
    [
        (ApproximateLogistic(1.0, 1.0, longest=0.01), Logistic()),
        (AdaSSP(1.0, 1.0, 1.0, longest=0.01), LeastSquares(None, 0.01)),
        (METHOD, Logistic()),
    ],
)
def test_nothing_but_releases_tells_of_a_value(
    ledger: Ledger, method: Any, objective: Any, value: float
) -> None:
    """Neither an error nor a warning, which the caller may have made an error."""
    X, y = classification()
    X[3], y[3] = value, value
    dataset = ledger.dataset(fresh_name()).open({"accounting": "zcdp", "rho": 1e6}, records=len(X))
    with insecure_testing_noise(1), np.errstate(over="raise", divide="raise", invalid="raise"):
        result = minimize(objective, X, y, account=dataset.run("job"), method=method, progress=False)
    assert result.stop_reason == "finished"


def test_a_matrix_comes_back_from_its_triangle() -> None:
    X, _ = classification()
    triangle = moments.second_moments(X, 2.0)
    matrix = moments.symmetric(triangle, 4)
    np.testing.assert_allclose(matrix, X.T @ X / 4.0)
    assert np.linalg.norm(triangle) == pytest.approx(np.linalg.norm(matrix))


def test_the_norm_is_one_that_a_tenth_of_the_rows_exceed_at_most() -> None:
    X = np.diag([0.1, 0.2, 0.3, 1.9])[np.r_[[0] * 50, [1] * 30, [2] * 15, [3] * 5]]
    norm = moments.row_norm_of(moments.norm_counts(X, 2.0), 2.0, len(X))
    assert 0.3 <= norm < 0.3 * 2**0.25
    assert moments.row_norm_of(np.full(28, 1e9), 2.0, 100) == 2.0
    assert moments.row_norm_of(np.full(28, -1e9), 2.0, 100) == pytest.approx(2.0 * 2.0 ** (-27 / 4))


@pytest.mark.parametrize(
    ("row", "label"), [*((row, 1.0) for row in BAD), ([0.5, -0.5, 0.5, 0.5], 1.0), ([1e-170] * 4, 1e300)]
)
@pytest.mark.parametrize("objective", [Logistic(), LeastSquares()], ids=["logistic", "squares"])
def test_gradients_in_scaled_columns_are_clipped_there(
    ledger: Ledger, objective: Any, row: list[float], label: float
) -> None:
    X, y = classification()
    dataset = ledger.dataset(fresh_name()).open({"accounting": "zcdp", "rho": 1e6}, records=len(X))
    with watching() as watch, insecure_testing_noise(1):
        data = np.vstack([[row] * 50, X]), np.append([label] * 50, y)
        minimize(objective, *data, account=dataset.run("job"), method=METHOD, progress=False)
    gradients = [draw for draw in watch.draws if draw.mechanism == Gaussian(0.2, 0.2)]
    assert len(gradients) == METHOD.steps
    for draw in gradients:
        assert np.linalg.norm(draw.value) <= 0.2 * (len(X) + 50)


@pytest.mark.parametrize(
    ("method", "parameters"),
    [
        (PreconditionedGradientDescent, {"steps": 0}),
        (PreconditionedGradientDescent, {"momentum": 1.0}),
        (PreconditionedGradientDescent, {"matrix_multiplier": -1.0}),
        (PreconditionedGradientDescent, {"threshold": math.nan}),
        (ApproximateLogistic, {"curvature": 0.0}),
        (AdaSSP, {"failure": 1.0}),
    ],
)
def test_parameters_out_of_range_are_refused(method: Any, parameters: dict[str, Any]) -> None:
    good: dict[str, Any] = {"noise_multiplier": 1.0, "norm_multiplier": 1.0}
    if method is PreconditionedGradientDescent:
        good |= {"steps": 2, "clip": 1.0, "moment_multiplier": 1.0, "step_size": 1.0}
    if method is AdaSSP:
        good |= {"eigenvalue_multiplier": 1.0}
    assert method(**good)
    with pytest.raises(ValueError, match=next(iter(parameters))):
        method(**(good | parameters))


def test_adassp_by_its_rule_is_near_least_squares(ledger: Ledger) -> None:
    random = np.random.default_rng(5)
    X = random.uniform(-1.0, 1.0, size=(4_000, 3))
    y = np.clip(X @ [0.5, -0.3, 0.1] + 0.1 * random.normal(size=4_000), -1.0, 1.0)
    budget = {"accounting": "shared", "epsilon": 2.0, "delta": 1e-6}
    dataset = ledger.dataset(fresh_name()).open(budget, records=len(X))
    result = minimize(
        LeastSquares(), X, y, account=dataset.run("job"), method="adassp", epsilon=2.0, delta=1e-6
    )
    [allocation] = dataset.allocations()
    assert allocation["remaining"]["fraction"] < 0.01
    np.testing.assert_allclose(result.w, [0.5, -0.3, 0.1], atol=0.05)


def test_objectives_that_are_not_proven_are_refused(ledger: Ledger) -> None:
    X, y = classification()
    for method in (ApproximateLogistic(1.0, 1.0), AdaSSP(1.0, 1.0, 1.0)):
        dataset = ledger.dataset(fresh_name()).open({"accounting": "zcdp", "rho": 1e6}, records=len(X))
        with pytest.raises(ValueError, match="needs"):
            minimize(Softmax(3), X, y, account=dataset.run("job"), method=method, progress=False)
        assert not [entry for entry in dataset.entries() if entry["kind"] == "authorized"]
