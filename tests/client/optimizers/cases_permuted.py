"""NSGD and RSGD-AR. 120 records in 7 mini-batches: one has 18 of them, the others 17."""

from typing import Any

import numpy as np

from dpledger_client._arrays import Floats, Integers
from dpledger_client.noise import current_noise
from dpledger_client.objectives import L2, LeastSquares, Logistic
from dpledger_client.optimizers import L2Ball, Method
from dpledger_client.optimizers.methods.nsgd import NSGD
from dpledger_client.optimizers.methods.rsgd_ar import RSGDAR
from dpledger_client.sampling import permutation
from tests.client.optimizers.contract import RECORDS, Case

EPOCHS, BATCHES, INTERVAL, ETA, LAMBDA, RADIUS = 7, 7, 3, 2.0, 0.05, 0.7


def _batches(order: Integers) -> list[Integers]:
    return [order[:18]] + [order[start : start + 17] for start in range(18, RECORDS, 17)]


def _logistic_gradient(w: Floats, X: Floats, y: Floats) -> Floats:
    slopes = -y / (1.0 + np.exp(y * (X @ w)))
    return np.asarray((slopes[:, None] * X).mean(axis=0) + LAMBDA * w)


def _shrinking(X: Floats, y: Floats) -> Floats:
    w, batches = np.zeros(X.shape[1]), _batches(permutation(len(X), current_noise().bits))
    for s in range(1, EPOCHS + 1):
        for rows in batches:
            w = w - ETA / s * _logistic_gradient(w, X[rows], y[rows])
    return w


def _fixed_in_order(X: Floats, y: Floats) -> Floats:
    """Least squares within a ball."""
    w = np.zeros(X.shape[1])
    for _ in range(EPOCHS):
        for rows in _batches(np.arange(len(X))):
            gradient = ((X[rows] @ w - y[rows])[:, None] * X[rows]).mean(axis=0) + LAMBDA * w
            moved = w - ETA / 4.0 * gradient
            w = moved / max(1.0, np.sqrt(np.sum(moved**2)) / RADIUS)
    return w


def _restarting(X: Floats, y: Floats) -> Floats:
    """Algorithm 3.3 with η₀/h: two averages, and an epoch after the second."""
    w, batches = np.zeros(X.shape[1]), _batches(permutation(len(X), current_noise().bits))
    h, iterates = 0, []
    for s in range(1, EPOCHS + 1):
        h += 1
        for rows in batches:
            w = w - ETA / h * _logistic_gradient(w, X[rows], y[rows])
            iterates.append(w)
        if s % INTERVAL == 0:
            w, h, iterates = np.mean(iterates, axis=0), 0, []
    return w


def _averaging(X: Floats, y: Floats) -> Floats:
    """The same with η₀/s."""
    w, batches, iterates = np.zeros(X.shape[1]), _batches(permutation(len(X), current_noise().bits)), []
    for s in range(1, EPOCHS + 1):
        for rows in batches:
            w = w - ETA / s * _logistic_gradient(w, X[rows], y[rows])
            iterates.append(w)
        if s % INTERVAL == 0:
            w, iterates = np.mean(iterates, axis=0), []
    return w


def _case(name: str, method: Method, **more: Any) -> Case:
    # Rows of the problem reach the norm 1, and shortening stays just below its limit.
    given: dict[str, Any] = {"repeats": 80, "objective": Logistic(L2(LAMBDA)), "adjacency": "replace-one"}
    return Case(name=name, method=method, **(given | more))


CASES = [
    _case(
        "nsgd",
        NSGD(EPOCHS, BATCHES, ETA, noise_multiplier=3.0, row_norm=1.01),
        textbook=_shrinking,
    ),
    _case(
        "nsgd fixed step size, in order, least squares in a ball",
        NSGD(
            EPOCHS,
            BATCHES,
            ETA / 4.0,
            noise_multiplier=3.0,
            row_norm=1.01,
            schedule="fixed",
            projection=L2Ball(RADIUS),
            permute=False,
        ),
        objective=LeastSquares(L2(LAMBDA)),
        textbook=_fixed_in_order,
    ),
    _case(
        "rsgd-ar",
        RSGDAR(EPOCHS, BATCHES, INTERVAL, ETA, noise_multiplier=3.0, row_norm=1.01),
        textbook=_restarting,
    ),
    _case(
        "rsgd-ar without reset",
        RSGDAR(EPOCHS, BATCHES, INTERVAL, ETA, noise_multiplier=3.0, row_norm=1.01, reset=False),
        textbook=_averaging,
    ),
]
