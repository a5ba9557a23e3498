"""Objective perturbation: its curve against exact divergences, its solver, its noise, its refusals."""

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats
from scipy.special import logsumexp

from dpledger_client import Ledger, insecure_testing_noise, no_noise_for_testing
from dpledger_client._arrays import Floats
from dpledger_client.noise import current_noise
from dpledger_client.objectives import (
    L1,
    L2,
    MLP,
    HingeSVM,
    HuberSVM,
    LeastSquares,
    Logistic,
    Objective,
    Softmax,
)
from dpledger_client.optimizers.methods.objective_perturbation import (
    ObjectivePerturbation,
    PerturbedMinimum,
    minimize_smooth,
    objective_curve,
)
from tests.client.optimizers.contract import RECORDS, classification
from tests.client.optimizers.test_baselines import (
    ROWS,
    account_of,
    both_adjacencies,
    neighbours,
    quick,
    trained,
    wild_neighbours,
)


def log_density(grid: Floats, X: Floats, y: Floats, weight: float, std: float) -> Floats:
    """The logarithm of the exact minimiser's density on a grid, by a change of variables from b."""
    margins = grid @ X.T
    halves = np.tanh(y * margins / 2.0)
    slopes, curvatures = -y * (1.0 - halves) / 2.0, y**2 * (1.0 - halves**2) / 4.0
    b = -slopes @ X - weight * grid
    hessian = np.einsum("pi,ij,ik->pjk", curvatures, X, X) + weight * np.eye(X.shape[1])
    logs = -np.sum(b**2, axis=1) / (2.0 * std**2) + np.log(np.linalg.det(hessian))
    return np.asarray(logs - logsumexp(logs))


def divergence(p: Floats, q: Floats, order: float) -> float:
    """The Rényi divergence of two distributions on the grid, given by their logarithms."""
    return float(logsumexp(order * p + (1.0 - order) * q) / (order - 1.0))


def check(grid: Floats, pair: Any, weight: float, multiplier: float, sensitivity: float) -> None:
    densities = [log_density(grid, X, y, weight, multiplier * sensitivity) for X, y in pair]
    for order in (1.5, 2.0, 4.0, 8.0):
        claimed = objective_curve(order, multiplier, 0.25 / weight)
        for p, q in (densities, densities[::-1]):
            assert divergence(p, q, order) <= claimed


@pytest.mark.parametrize("weight", [0.2, 1.0, 5.0])
@pytest.mark.parametrize("multiplier", [1.5, 3.0, 10.0])
def test_its_curve_is_above_the_divergence_of_neighbours(weight: float, multiplier: float) -> None:
    grid = np.linspace(-15.0 * multiplier / weight, 15.0 * multiplier / weight, 20_001)[:, None]
    X, y = np.array([[1.0], [0.4], [-0.7]]), np.array([1.0, -1.0, 1.0])
    for x in (-1.0, 0.3, 1.0):
        added = np.vstack([X, [x]]), np.append(y, 1.0)
        check(grid, ((X, y), added), weight, multiplier, 1.0)
        replaced = np.vstack([X, [-x]]), np.append(y, 1.0)
        check(grid, (added, replaced), weight, multiplier, 2.0)


def test_it_is_above_with_records_of_different_directions() -> None:
    axis = np.linspace(-40.0, 40.0, 201)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    X, y = np.array([[1.0, 0.0], [0.6, 0.8]]), np.array([1.0, -1.0])
    for row in ((0.0, 1.0), (0.6, -0.8), (-1.0, 0.0)):
        pair = [(np.vstack([X, one]), np.append(y, 1.0)) for one in ([1.0, 0.0], row)]
        check(grid, pair, 0.8, 2.0, 2.0)


def test_the_curve_is_not_loose() -> None:
    """One record alone, little curvature: the Gaussian term is what costs."""
    grid = np.linspace(-60.0, 60.0, 60_001)[:, None]
    empty, one = (np.empty((0, 1)), np.empty(0)), (np.array([[1.0]]), np.array([1.0]))
    densities = [log_density(grid, X, y, 10.0, 0.5) for X, y in (empty, one)]

    found = max(divergence(p, q, 16.0) for p, q in itertools.permutations(densities))

    assert objective_curve(16.0, 0.5, 0.025) < 5.0 * found


@settings(max_examples=40, deadline=None)
@given(
    X=arrays(np.float64, (ROWS, 2), elements=st.floats(-1, 1)),
    linear=arrays(np.float64, 2, elements=st.floats(-50, 50)),
    weight=st.floats(0.01, 10.0),
)
def test_the_solver_ends_within_its_distance(X: Floats, linear: Floats, weight: float) -> None:
    y = np.where(np.arange(ROWS) % 2, 1.0, -1.0)
    objective = HuberSVM(0.5)

    def function(w: Floats) -> tuple[float, Floats]:
        value = float(np.sum(objective.losses(w, X, y))) + 0.5 * weight * float(w @ w) + float(linear @ w)
        return value, objective.gradient_sum(w, X, y) + weight * w + linear

    smoothness = 2.0 * ROWS + weight
    found = minimize_smooth(function, np.zeros(2), smoothness, weight, 1e-7)
    finer = minimize_smooth(function, np.ones(2), smoothness, weight, 1e-10 * max(1.0, weight))

    assert np.linalg.norm(function(found)[1]) <= 1e-7
    assert np.linalg.norm(found - finer) <= 2e-7 / weight


def test_what_line_search_leaves_is_finished_by_gradients() -> None:
    """A value so large that it hides the last digits of every step."""

    def function(w: Floats) -> tuple[float, Floats]:
        return 1e9 + 0.5 * float(w @ (np.array([1.0, 50.0]) * w)), np.array([1.0, 50.0]) * w

    found = minimize_smooth(function, np.array([3.0, -2.0]), 50.0, 1.0, 1e-9)

    assert np.linalg.norm(function(found)[1]) <= 1e-9


@both_adjacencies
def test_the_linear_term_has_the_declared_width(ledger: Ledger, adjacency: str) -> None:
    X, y = classification()
    X, weight = X * (1.0 - 2.0**-19), 0.1 * RECORDS
    account, found = account_of(ledger, adjacency), []
    for seed in range(80):
        with insecure_testing_noise(seed):
            w = trained(account, ObjectivePerturbation(2.0, row_norm=1.0), data=(X, y)).w
        found.append(-Logistic().gradient_sum(w, X, y) - weight * w)
    width = 2.0 if adjacency == "add-remove" else 4.0

    assert stats.kstest(np.concatenate(found) / width, "norm").pvalue > 1e-4


def test_the_output_noise_has_the_declared_width() -> None:
    mechanism = PerturbedMinimum((2.0,), (1.0,), 3, 1.0, 2.0, 1e-3, 0.06)
    with insecure_testing_noise(4):
        drawn = [mechanism.apply(np.zeros_like, current_noise()) for _ in range(200)]

    assert stats.kstest(np.concatenate(drawn) / 0.06, "norm").pvalue > 1e-4


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        (Softmax(3, L2(0.1)), "losses of one margin"),
        (MLP((2,), 2), "losses of one margin"),
        (Logistic(L1(0.1)), "L2 regulariser or none"),
        (Logistic(), "strength"),
        (LeastSquares(L2(0.1)), "bounded slopes"),
        (HingeSVM(L2(0.1)), "bounded slopes"),
    ],
)
def test_objectives_without_a_proof_are_refused(ledger: Ledger, objective: Objective, message: str) -> None:
    account = account_of(ledger)
    with pytest.raises(ValueError, match=message):
        trained(account, ObjectivePerturbation(2.0), objective)

    assert [entry["kind"] for entry in account.dataset.entries()] == ["opened"]


@pytest.mark.parametrize("tolerance", [0.0, 1e-10, math.nan])
def test_a_tolerance_below_what_a_solver_reaches_is_refused(tolerance: float) -> None:
    with pytest.raises(ValueError, match="tolerance"):
        ObjectivePerturbation(2.0, tolerance=tolerance)


@pytest.mark.parametrize("strength", [1e-14, 1e-10])
def test_so_little_regularisation_that_margins_are_all_rounding_is_refused(
    ledger: Ledger, strength: float
) -> None:
    """The linear term drives the minimiser far away before Λ stops it, and there no margin is precise."""
    account = account_of(ledger)
    with pytest.raises(ValueError, match="tolerance must be at least"):
        trained(account, ObjectivePerturbation(2.0), Logistic(L2(strength)))

    assert [entry["kind"] for entry in account.dataset.entries()] == ["opened"]


def test_margins_are_rounded_by_no_more_than_is_allowed_for() -> None:
    """Against gradients in exact arithmetic, far away in a direction that no row has."""
    X, y, weight = np.full((50, 2), 0.7), np.ones(50), 1e-4
    problem = ObjectivePerturbation(2.0)._problem(Logistic(L2(weight / 50)), 50)
    allowed = problem.rounding(2, 2.0) * problem.lipschitz
    errors = []
    for far in (1e5, 3e5):
        w = np.array([far, -far * (1.0 + 1e-12)])
        margin = Fraction(0.7) * (Fraction(w[0]) + Fraction(w[1]))
        exact = -50 * 0.7 / (1.0 + math.exp(float(margin)))
        errors.append(np.linalg.norm(Logistic().gradient_sum(w, X, y) - exact))

    assert 0.0 < max(errors) <= allowed
    assert np.linalg.norm(w) <= 2.0 * (2.0 * (math.sqrt(2) + 40.0)) / weight


def test_noise_beyond_the_grid_is_refused(ledger: Ledger) -> None:
    with pytest.raises(ValueError, match="noise_multiplier must be below"):
        trained(account_of(ledger), ObjectivePerturbation(1e7))


@quick
@wild_neighbours
def test_any_data_are_bounded_before_they_are_used(
    ledger: Ledger, X: Floats, y: Floats, other: Floats
) -> None:
    """Then neighbours' minimisers are no further apart than a bounded gradient moves them."""
    method, values = ObjectivePerturbation(2.0, tolerance=1e-8), []
    account = account_of(ledger, records=ROWS)
    for data in neighbours(X, y, other, "add-remove"):
        with no_noise_for_testing():
            values.append(trained(account, method, data=data).w)
    weight = 0.1 * ROWS

    assert np.linalg.norm(values[0] - values[1]) <= (1.0 + 1e-6) / weight
