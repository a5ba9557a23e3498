"""Preconditioned gradient descent."""

import math
from typing import Any

import numpy as np

from dpledger_client._arrays import Floats
from dpledger_client.objectives import L2, Logistic
from dpledger_client.optimizers.methods.preconditioned_gd import PreconditionedGradientDescent
from dpledger_client.optimizers.support.results import Result
from tests.client.optimizers.contract import FEATURES, RECORDS, Case, classification

STEPS, LAMBDA, ETA, MOMENTUM, THRESHOLD = 12, 0.01, 0.4, 0.5, 0.1
NORM, MOMENT, MATRIX, GRADIENT, CLIP = 5.0, 6.0, 8.0, 7.0, 6.0
COMMON: dict[str, Any] = {
    "steps": STEPS,
    "clip": CLIP,
    "noise_multiplier": GRADIENT,
    "norm_multiplier": NORM,
    "moment_multiplier": MOMENT,
    "step_size": ETA,
    "momentum": MOMENTUM,
    "threshold": THRESHOLD,
}


def with_ones() -> tuple[Floats, Floats]:
    """Rows with a column of ones in the second place."""
    X, y = classification()
    return np.insert(X[:, : FEATURES - 1], 1, 1.0, axis=1), y


def _scaled(X: Floats, constant: int | None, factor: float) -> tuple[Floats, Floats]:
    """Scaled rows, and the matrix S of X·S."""
    F = X.copy()
    if constant is not None:
        F[:, constant] = 0.0
    both = np.hstack([F, F**2])
    lengths = np.sqrt((both**2).sum(axis=1))
    longest = math.sqrt(2 * FEATURES)
    norm = min(
        longest / 2 ** (k / 4) for k in range(28) if np.sum(lengths > longest / 2 ** (k / 4)) <= RECORDS / 10
    )
    both = both * np.minimum(1.0, norm / lengths)[:, None]
    noise = MOMENT * factor * norm / RECORDS
    mean, square = both[:, :FEATURES].mean(axis=0), both[:, FEATURES:].mean(axis=0)
    mean = np.where(np.abs(mean) > noise, mean, 0.0) if constant is not None else 0.0 * mean
    spread = square - mean**2
    scale = 1.0 / np.sqrt(spread + 0.3 * noise)
    scale = scale / np.sqrt(np.sum(spread * scale**2))
    S = np.diag(scale)
    if constant is not None:
        S[constant] = -mean * scale
        S[constant, constant] = 1.0
    return X @ S, S


def _descent(Z: Floats, y: Floats, S: Floats, noise: float, free: int | None) -> Floats:
    v, velocity, iterates = np.zeros(FEATURES), np.zeros(FEATURES), []
    level = THRESHOLD * noise / math.sqrt(STEPS) / RECORDS
    for _ in range(STEPS):
        slopes = -y / (1.0 + np.exp(y * (Z @ v)))
        gradient = (slopes[:, None] * Z).mean(axis=0) + S.T @ (LAMBDA * (S @ v))
        velocity = MOMENTUM * velocity + gradient
        moved = v - ETA * FEATURES * (1.0 - MOMENTUM) * velocity
        v = np.sign(moved) * np.maximum(np.abs(moved) - ETA * FEATURES * level, 0.0)
        if free is not None:
            v[free] = moved[free]
        iterates.append(S @ v)
    return np.asarray(np.mean(iterates[STEPS // 2 :], axis=0))


def _diagonal(X: Floats, y: Floats) -> Floats:
    Z, S = _scaled(X, None, 1.0)
    return _descent(Z, y, S, GRADIENT * CLIP, None)


def _centred(X: Floats, y: Floats) -> Floats:
    Z, S = _scaled(X, 1, 1.0)
    return _descent(Z, y, S, GRADIENT * CLIP, 1)


def _whitened(X: Floats, y: Floats) -> Floats:
    Z, S = _scaled(X, 1, 2.0)
    norm = 1.2 * math.sqrt(2.0)
    short = Z * np.minimum(1.0, norm / np.sqrt((Z**2).sum(axis=1)))[:, None]
    values, vectors = np.linalg.eigh(short.T @ short / RECORDS)
    damping = math.sqrt(2 * FEATURES) * MATRIX * math.sqrt(2.0) * norm**2 / RECORDS
    roots = 1.0 / np.sqrt(values + damping)
    B = vectors @ np.diag(roots / np.sqrt(np.sum(values * roots**2))) @ vectors.T
    return _descent(Z @ B, y, S @ B, GRADIENT * 2.0 * CLIP, None)


def _rho(result: Result) -> float:
    return 0.5 / NORM**2 + 0.5 / MOMENT**2 + result.iterations * 0.5 / GRADIENT**2


def _rho_with_matrix(result: Result) -> float:
    return _rho(result) + 0.5 / MATRIX**2


CASES = [
    Case(
        name="preconditioned-gd",
        method=PreconditionedGradientDescent(**COMMON),
        objective=Logistic(L2(LAMBDA)),
        textbook=_diagonal,
        rho=_rho,
        repeats=4,
    ),
    Case(
        name="preconditioned-gd centred",
        method=PreconditionedGradientDescent(**COMMON, constant_column=1),
        objective=Logistic(L2(LAMBDA)),
        data=with_ones,
        textbook=_centred,
        rho=_rho,
        repeats=4,
    ),
    Case(
        name="preconditioned-gd with second moments, replace-one",
        method=PreconditionedGradientDescent(**COMMON, constant_column=1, matrix_multiplier=MATRIX),
        objective=Logistic(L2(LAMBDA)),
        data=with_ones,
        adjacency="replace-one",
        textbook=_whitened,
        rho=_rho_with_matrix,
        repeats=4,
    ),
]
