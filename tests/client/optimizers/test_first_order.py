"""Baselines without privacy: each descends as written, and gives out the iterate that was asked for."""

import numpy as np
import pytest

from dpledger_client._arrays import Floats
from dpledger_client.objectives import L2, BayesRank, LinearScorer, Logistic
from dpledger_client.optimizers import L2Ball, minimize
from dpledger_client.optimizers.methods.first_order import Adam, GradientDescent, StochasticGradientDescent
from tests.client.optimizers.contract import classification

OBJECTIVE = Logistic(L2(0.1))


def _best() -> tuple[Floats, float]:
    X, y = classification()
    found = minimize(OBJECTIVE, X, y, account=None, method="l-bfgs").w
    return found, OBJECTIVE.loss(found, X, y)


@pytest.mark.parametrize(
    "method",
    [
        GradientDescent(300, 1.0),
        StochasticGradientDescent(600, 1.0, batch_size=40, output="average"),
        Adam(600, lambda step: 0.3 / np.sqrt(step), batch_size=60),
    ],
    ids=lambda method: method.name,
)
def test_it_comes_near_the_optimum(method: GradientDescent) -> None:
    X, y = classification()
    found = minimize(OBJECTIVE, X, y, account=None, method=method)
    assert OBJECTIVE.loss(found.w, X, y) < _best()[1] + 0.005
    assert found.iterations == method.steps


def test_a_step_is_that_of_the_textbook_and_is_projected() -> None:
    X, y = classification()
    one = minimize(OBJECTIVE, X, y, account=None, method="gd", steps=1, step_size=0.5)
    assert np.allclose(one.w, -0.5 * OBJECTIVE.gradient(np.zeros(X.shape[1]), X, y))
    inside = minimize(
        OBJECTIVE, X, y, account=None, method="gd", steps=9, step_size=9.0, projection=L2Ball(0.1)
    )
    assert np.linalg.norm(inside.w) <= 0.1 + 1e-12


def test_the_best_iterate_is_given_out() -> None:
    X, y = classification()
    seen: list[float] = []
    method = GradientDescent(30, 40.0, output="best", note=lambda _, w: seen.append(OBJECTIVE.loss(w, X, y)))
    found = minimize(OBJECTIVE, X, y, account=None, method=method)
    assert seen[-1] > min(seen)
    assert OBJECTIVE.loss(found.w, X, y) == min(seen)


def test_lists_are_drawn_like_rows() -> None:
    random = np.random.default_rng(0)
    X = [random.normal(size=(5, 3)) for _ in range(40)]
    y = [(documents[:, 0] >= documents[:, 0].max()).astype(float) for documents in X]
    objective = BayesRank(LinearScorer(3))
    found = minimize(objective, X, y, account=None, method="sgd", steps=200, step_size=2.0, batch_size=10)
    assert objective.loss(found.w, X, y) < 0.5 * objective.loss(np.zeros(3), X, y)


def test_an_unknown_output_is_refused() -> None:
    with pytest.raises(ValueError, match="output must be"):
        GradientDescent(1, 1.0, output="first")
