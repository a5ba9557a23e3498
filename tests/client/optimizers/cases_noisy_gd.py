"""Noisy projected gradient descent."""

import numpy as np

from dpledger_client._arrays import Floats
from dpledger_client.objectives import L2, Logistic
from dpledger_client.optimizers import L2Ball
from dpledger_client.optimizers.methods.noisy_gd import NoisyGradientDescent
from dpledger_client.optimizers.support.results import Result
from dpledger_client.optimizers.support.schedules import inverse_root
from tests.client.optimizers.contract import Case

STEPS, ETA, LAMBDA, RADIUS = 20, 0.5, 0.1, 0.6


def _mean_gradient(w: Floats, X: Floats, y: Floats) -> Floats:
    total = LAMBDA * w
    for row, label in zip(X, y, strict=True):
        total = total - label * row / (1.0 + np.exp(label * row @ w)) / len(X)
    return total


def _last(X: Floats, y: Floats) -> Floats:
    w = np.zeros(X.shape[1])
    for _ in range(STEPS):
        w = w - ETA * _mean_gradient(w, X, y)
    return w


def _projected_average(X: Floats, y: Floats) -> Floats:
    w, iterates = np.zeros(X.shape[1]), []
    for iteration in range(1, STEPS + 1):
        iterates.append(w)
        moved = w - 3.0 / np.sqrt(iteration) * _mean_gradient(w, X, y)
        w = moved / max(1.0, np.sqrt(np.sum(moved**2)) / RADIUS)
    return np.asarray(np.mean(iterates, axis=0))


def _tail_of_heavy_ball(X: Floats, y: Floats) -> Floats:
    w, velocity, iterates = np.zeros(X.shape[1]), np.zeros(X.shape[1]), []
    for _ in range(STEPS):
        velocity = 0.8 * velocity + _mean_gradient(w, X, y)
        w = w - ETA * velocity
        iterates.append(w)
    return np.asarray(np.mean(iterates[STEPS // 2 :], axis=0))


def _nesterov(X: Floats, y: Floats) -> Floats:
    w, velocity = np.zeros(X.shape[1]), np.zeros(X.shape[1])
    for _ in range(STEPS):
        velocity = 0.8 * velocity + _mean_gradient(w - ETA * 0.8 * velocity, X, y)
        w = w - ETA * velocity
    return w


def _rho(result: Result) -> float:
    return result.iterations / (2.0 * 4.0**2)


CASES = [
    Case(
        name="noisy-gd",
        method=NoisyGradientDescent(STEPS, clip=1.5, noise_multiplier=4.0, step_size=ETA),
        objective=Logistic(L2(LAMBDA)),
        textbook=_last,
        rho=_rho,
        repeats=4,
    ),
    Case(
        name="noisy-gd with momentum and a tail average",
        method=NoisyGradientDescent(
            STEPS, clip=1.5, noise_multiplier=4.0, step_size=ETA, momentum=0.8, average="tail"
        ),
        objective=Logistic(L2(LAMBDA)),
        textbook=_tail_of_heavy_ball,
        rho=_rho,
        repeats=4,
    ),
    Case(
        name="noisy-gd, Nesterov",
        method=NoisyGradientDescent(
            STEPS, clip=1.5, noise_multiplier=4.0, step_size=ETA, momentum=0.8, nesterov=True
        ),
        objective=Logistic(L2(LAMBDA)),
        textbook=_nesterov,
        rho=_rho,
        repeats=4,
    ),
    Case(
        name="noisy-gd projected, averaged, replace-one",
        method=NoisyGradientDescent(
            STEPS,
            clip=1.5,
            noise_multiplier=4.0,
            step_size=inverse_root(3.0, 1.0),
            projection=L2Ball(RADIUS),
            average="uniform",
        ),
        objective=Logistic(L2(LAMBDA)),
        adjacency="replace-one",
        textbook=_projected_average,
        rho=_rho,
        repeats=4,
    ),
]
