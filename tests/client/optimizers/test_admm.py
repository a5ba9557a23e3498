"""ADMM: what neighbours may differ by, what was repaired, and that it learns."""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpledger.accounting.sensitivity import mpadmm_sensitivity
from dpledger_client import Dataset, Gaussian, insecure_testing_noise, no_noise_for_testing
from dpledger_client._arrays import Floats
from dpledger_client.objectives import L1, LeastSquares, Logistic
from dpledger_client.optimizers import Method, Result, minimize
from dpledger_client.optimizers.methods.mpadmm import ModelPerturbationADMM, model_sensitivity
from dpledger_client.optimizers.methods.ssadmm import SubsampledADMM
from dpledger_client.optimizers.support.splitting import Split, shrinkage
from tests.client.optimizers.contract import classification, curve_budget, watching

wild = st.floats(allow_nan=True, allow_infinity=True, width=64)
positive = st.floats(0.01, 100.0)


def _model(X: Floats, y: Floats, start: Split, clip: float, eta: float, rho: float) -> Floats:
    """The x of one step without noise, by (4.8) in one piece."""
    total = LeastSquares().clipped_gradient_sum(start.x, X, y, clip)
    return (-total / len(X) - start.y + rho * start.z + start.x / eta) / (rho + 1.0 / eta)


@settings(max_examples=200, deadline=None)
@given(st.lists(wild, min_size=3, max_size=3), wild, positive, positive, positive, st.integers(0, 2**32 - 1))
def test_replacing_a_record_moves_the_model_by_no_more_than_declared(
    row: list[float], label: float, clip: float, eta: float, rho: float, seed: int
) -> None:
    random = np.random.default_rng(seed)
    X, y = random.normal(size=(7, 3)), random.normal(size=7)
    other_X, other_y = X.copy(), y.copy()
    other_X[2], other_y[2] = row, label
    start = Split(*random.normal(size=(3, 3)))
    moved = _model(X, y, start, clip, eta, rho) - _model(other_X, other_y, start, clip, eta, rho)
    assert np.linalg.norm(moved) <= model_sensitivity(clip, eta, rho, 7) * (1.0 + 1e-9)


def test_the_declared_sensitivity_is_reached_and_the_text_of_4_13_is_exceeded() -> None:
    eta, rho, clip = 10.0, 0.5, 1.0
    X, y = np.array([[1.0], [0.0]]), np.array([1e9, 0.0])
    start = Split.at(np.zeros(1))
    moved = np.abs(_model(X, y, start, clip, eta, rho) - _model(X, -y, start, clip, eta, rho)).item()
    assert moved == pytest.approx(model_sensitivity(clip, eta, rho, 2), rel=1e-5)
    as_printed = 2.0 * clip / (2 * (1.0 + eta * rho))
    assert moved > 9.9 * as_printed


@settings(max_examples=200, deadline=None)
@given(positive, positive, positive, st.integers(1, 10**7))
def test_the_sensitivity_is_the_services_and_never_below_the_exact_one(
    clip: float, eta: float, rho: float, records: int
) -> None:
    found = model_sensitivity(clip, eta, rho, records)
    exact = 2 * Fraction(clip) * Fraction(eta) / (records * (1 + Fraction(eta) * Fraction(rho)))
    assert exact <= Fraction(found) <= exact * (1 + Fraction(1, 10**12))
    assert found == pytest.approx(mpadmm_sensitivity(clip, eta, records, rho), rel=1e-12)
    assert model_sensitivity(clip, eta, rho, records, "add-remove") == pytest.approx(found / 2, rel=1e-12)


@settings(max_examples=100, deadline=None)
@given(positive, positive)
def test_the_parts_of_x_add_up_to_the_minimiser(eta: float, rho: float) -> None:
    random = np.random.default_rng(3)
    gradient, split = random.normal(size=4), Split(*random.normal(size=(3, 4)))
    x = split.anchor(eta, rho) - shrinkage(eta, rho) * gradient
    slope = gradient + split.y + rho * (x - split.z) + (x - split.x) / eta
    np.testing.assert_allclose(slope, 0.0, atol=1e-9 * (1.0 + 1.0 / eta + rho))


def _released(method: Method, dataset: Dataset, X: Floats, y: Floats) -> list[Floats]:
    with watching() as watch, insecure_testing_noise(1), no_noise_for_testing():
        minimize(Logistic(L1(0.1)), X, y, account=dataset.run("job"), method=method, records=len(X))
    return [np.asarray(draw.value) for draw in watch.draws]


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize("seed", range(3))
def test_neighbours_release_values_within_the_declared_sensitivity(
    open_dataset: Callable[..., Dataset], adjacency: str, seed: int
) -> None:
    """ssADMM on everything: the first sum of neighbours, one of which holds a wild record."""
    X, y = classification(seed)
    method = SubsampledADMM(1, clip=0.5, noise_multiplier=1.0, rate=1.0, step_size=1.0)
    dataset = open_dataset(budget=curve_budget(), adjacency=adjacency)
    first, *_ = _released(method, dataset, X, y)
    replaced = X.copy()
    replaced[seed] = [np.nan, np.inf, -1e300][seed]
    neighbour = (replaced, y) if adjacency == "replace-one" else (X[1:], y[1:])
    second, *_ = _released(method, dataset, *neighbour)
    reported = [e["step"]["releases"][0]["sensitivity"] for e in dataset.entries(kind="authorized")]
    assert 0.0 < np.linalg.norm(first - second) <= min(reported)


def _learned(dataset: Dataset, method: Method) -> tuple[float, Result]:
    X, y = classification()
    with insecure_testing_noise(2):
        result = minimize(
            Logistic(L1(0.005)), X, y, account=dataset.run("job"), method=method, records=len(X)
        )
    return Logistic(L1(0.005)).loss(result.w, X, y), result


@pytest.mark.parametrize(
    "method",
    [
        SubsampledADMM(80, clip=1.0, noise_multiplier=0.5, rate=0.5, step_size=5.0),
        ModelPerturbationADMM(80, clip=1.0, noise_std=0.02, step_size=5.0),
    ],
    ids=lambda method: method.name,
)
def test_it_learns(open_dataset: Callable[..., Dataset], method: Method) -> None:
    dataset = open_dataset(budget=curve_budget())
    loss, result = _learned(dataset, method)
    assert result.stop_reason == "finished"
    assert loss < 0.75 * np.log(2.0)


def test_z_is_sparse_where_x_is_not(open_dataset: Callable[..., Dataset]) -> None:
    X, y = classification()
    X = np.hstack([X, np.random.default_rng(1).normal(scale=0.1, size=(len(X), 6))])
    method = ModelPerturbationADMM(60, clip=1.0, noise_std=1e-3, step_size=2.0, output="z")
    dataset = open_dataset(budget=curve_budget())
    result = minimize(Logistic(L1(0.05)), X, y, account=dataset.run("job"), method=method, records=len(X))
    assert np.count_nonzero(result.w) < result.w.size
    assert np.count_nonzero(result.w) > 0


def test_a_smaller_step_costs_less(open_dataset: Callable[..., Dataset]) -> None:
    X, y = classification()
    dataset = open_dataset(adjacency="replace-one", budget={"accounting": "zcdp", "rho": 1e6})
    method = ModelPerturbationADMM(2, 1.0, 0.5, step_size=lambda t: 10.0 if t == 1 else 0.1, penalty=0.5)
    result = minimize(Logistic(), X, y, account=dataset.run("job"), method=method)
    large, small = (charge.releases[0].mechanism for charge in result.charges)
    assert isinstance(large, Gaussian)
    assert isinstance(small, Gaussian)
    assert large.sensitivity == pytest.approx(2.0 * 10.0 / (120 * 6.0), rel=1e-9)
    assert small.sensitivity == pytest.approx(2.0 * 0.1 / (120 * 1.05), rel=1e-9)
    costs = [charge.cost.rho for charge in result.charges]
    assert costs == pytest.approx([large.sensitivity**2 / 0.5, small.sensitivity**2 / 0.5], rel=1e-9)


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        (SubsampledADMM, {"rate": 1.5}, "rate must be"),
        (SubsampledADMM, {"penalty": 0.0}, "penalty must be"),
        (SubsampledADMM, {"clip": float("nan")}, "clip must be"),
        (SubsampledADMM, {"output": "y"}, "output must be one of x, z"),
        (ModelPerturbationADMM, {"noise_std": 0.0}, "noise_std must be"),
        (ModelPerturbationADMM, {"steps": 0}, "steps must be"),
        (ModelPerturbationADMM, {"output": "y"}, "output must be one of x, z"),
    ],
)
def test_parameters_are_refused(kind: type[Method], given: dict[str, object], message: str) -> None:
    common: dict[str, object] = {"steps": 3, "clip": 1.0, "step_size": 1.0}
    if kind is SubsampledADMM:
        common |= {"rate": 0.1, "noise_multiplier": 1.0}
    else:
        common |= {"noise_std": 1.0}
    with pytest.raises(ValueError, match=message):
        kind(**(common | given))


def test_a_rate_that_never_draws_a_record_is_refused(open_dataset: Callable[..., Dataset]) -> None:
    X, y = classification()
    method = SubsampledADMM(1, clip=1.0, noise_multiplier=1.0, rate=0.001, step_size=1.0)
    dataset = open_dataset(budget=curve_budget(), adjacency="replace-one")
    with pytest.raises(ValueError, match="at least one of 120 records"):
        minimize(Logistic(), X, y, account=dataset.run("job"), method=method)
    assert not list(dataset.entries(kind="authorized"))
