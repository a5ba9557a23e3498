"""Sufficient statistics: the approximate-logistic form and AdaSSP."""

import math

import numpy as np

from dpledger_client._arrays import Floats
from dpledger_client.objectives import L2, LeastSquares, Logistic
from dpledger_client.optimizers.methods.adassp import AdaSSP
from dpledger_client.optimizers.methods.approximate_logistic import ApproximateLogistic
from dpledger_client.optimizers.support.results import Result
from tests.client.optimizers.contract import FEATURES, RECORDS, Case

LAMBDA, CURVATURE, NOISE, NORM, EIGENVALUE = 0.02, 0.11, 3.0, 4.0, 2.0


def _short(X: Floats) -> tuple[Floats, float]:
    """Rows shortened to the shortest of the norms 2, 2·2^(−¼), … that a tenth of them at most exceed."""
    lengths = np.sqrt((X**2).sum(axis=1))
    longest = math.sqrt(FEATURES)
    norm = min(
        longest / 2 ** (k / 4) for k in range(28) if np.sum(lengths > longest / 2 ** (k / 4)) <= RECORDS / 10
    )
    limit = norm * (1.0 - 2.0**-20)
    return X * np.minimum(1.0, limit / lengths)[:, None], norm


def _logistic(X: Floats, y: Floats) -> Floats:
    rows, norm = _short(X)
    level = 2 * CURVATURE * math.sqrt(2 * FEATURES) * NOISE * math.sqrt(2.0) * norm**2 / RECORDS
    matrix = 2 * CURVATURE * rows.T @ rows / RECORDS + (level + LAMBDA) * np.eye(FEATURES)
    return np.asarray(np.linalg.solve(matrix, rows.T @ y / RECORDS / 2.0))


def _squares(X: Floats, y: Floats) -> Floats:
    rows, norm = _short(X)
    targets = np.clip(y, -0.5, 0.5)
    least = np.linalg.eigvalsh(rows.T @ rows / norm**2)[0]
    wanted = NOISE * math.sqrt(6.0) * math.sqrt(FEATURES * math.log(2 * FEATURES**2 / 0.05))
    ridge = max(0.0, wanted - max(0.0, least - 2 * EIGENVALUE)) * norm**2 / RECORDS
    matrix = rows.T @ rows / RECORDS + (ridge + LAMBDA) * np.eye(FEATURES)
    return np.asarray(np.linalg.solve(matrix, rows.T @ targets / RECORDS))


def _rho_of_logistic(_result: Result) -> float:
    return 0.5 / NORM**2 + 0.5 / NOISE**2


def _rho_of_squares(result: Result) -> float:
    return _rho_of_logistic(result) + 0.5 / EIGENVALUE**2


CASES = [
    Case(
        name="approximate-logistic",
        method=ApproximateLogistic(noise_multiplier=NOISE, norm_multiplier=NORM, curvature=CURVATURE),
        objective=Logistic(L2(LAMBDA)),
        textbook=_logistic,
        rho=_rho_of_logistic,
        repeats=10,
    ),
    Case(
        name="adassp replace-one",
        method=AdaSSP(noise_multiplier=NOISE, eigenvalue_multiplier=EIGENVALUE, norm_multiplier=NORM),
        objective=LeastSquares(L2(LAMBDA), target_bound=0.5),
        adjacency="replace-one",
        textbook=_squares,
        rho=_rho_of_squares,
        repeats=10,
    ),
]
