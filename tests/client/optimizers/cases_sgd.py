"""Stochastic gradient methods: DP-SGD and DP-Adam."""

import numpy as np

from dpledger_client._arrays import Floats, Integers
from dpledger_client.noise import current_noise
from dpledger_client.objectives import L1, L2, Logistic
from dpledger_client.optimizers import L2Ball
from dpledger_client.optimizers.methods.dp_adam import DPAdam
from dpledger_client.optimizers.methods.dp_sgd import DPSGD
from dpledger_client.optimizers.methods.proximal_sgd import ProximalSGD
from dpledger_client.optimizers.support.schedules import inverse_root
from dpledger_client.sampling import poisson, without_replacement
from tests.client.optimizers.contract import RECORDS, Case

STEPS, LAMBDA, RADIUS = 20, 0.1, 0.6


def _mean_gradient(w: Floats, X: Floats, y: Floats, size: float) -> Floats:
    total = LAMBDA * w
    for row, label in zip(X, y, strict=True):
        total = total - label * row / (1.0 + np.exp(label * row @ w)) / size
    return total


def _coins(expected: float) -> Integers:
    return poisson(RECORDS, expected / RECORDS, current_noise().bits)


def _momentum(X: Floats, y: Floats) -> Floats:
    w, velocity = np.zeros(X.shape[1]), np.zeros(X.shape[1])
    for _ in range(STEPS):
        rows = _coins(30)
        velocity = 0.7 * velocity + _mean_gradient(w, X[rows], y[rows], 30)
        w = w - 0.5 * velocity
    return w


def _one_record(X: Floats, y: Floats) -> Floats:
    """The lectures' noisy SGD: one record without replacement, projected, the uniform average."""
    w, iterates = np.zeros(X.shape[1]), []
    for iteration in range(1, STEPS + 1):
        iterates.append(w)
        rows = without_replacement(RECORDS, 1, current_noise().bits)
        moved = w - 2.0 / np.sqrt(iteration) * _mean_gradient(w, X[rows], y[rows], 1)
        w = moved / max(1.0, np.sqrt(np.sum(moved**2)) / RADIUS)
    return np.asarray(np.mean(iterates, axis=0))


def _weighted(X: Floats, y: Floats) -> Floats:
    w, iterates = np.zeros(X.shape[1]), []
    for _ in range(STEPS):
        iterates.append(w)
        rows = _coins(30)
        w = w - 0.5 * _mean_gradient(w, X[rows], y[rows], 30)
    weights = np.arange(1.0, STEPS + 1.0)
    return np.asarray(weights @ np.array(iterates) / weights.sum())


def _adam(X: Floats, y: Floats) -> Floats:
    w = first = second = np.zeros(X.shape[1])
    for t in range(1, STEPS + 1):
        rows = _coins(30)
        g = _mean_gradient(w, X[rows], y[rows], 30)
        first, second = 0.8 * first + 0.2 * g, 0.95 * second + 0.05 * g**2
        w = w - 0.1 * (first / (1 - 0.8**t)) / (np.sqrt(second / (1 - 0.95**t)) + 1e-8)
    return w


def _corrected_adam(X: Floats, y: Floats) -> Floats:
    """The noise's variance is taken off the second moment, of which at least 1e-6 is left."""
    w = first = second = np.zeros(X.shape[1])
    for t in range(1, STEPS + 1):
        rows = without_replacement(RECORDS, 30, current_noise().bits)
        g = _mean_gradient(w, X[rows], y[rows], 30)
        first, second = 0.9 * first + 0.1 * g, 0.999 * second + 0.001 * g**2
        variance = second / (1 - 0.999**t) - (2 * 1.5 * 0.05 / 30) ** 2
        w = w - 0.1 * (first / (1 - 0.9**t)) / np.sqrt(np.maximum(variance, 1e-6))
    return w


def _proximal(X: Floats, y: Floats) -> Floats:
    """(4.17): a step along the loss alone, and soft thresholding by λη."""
    w = np.zeros(X.shape[1])
    for _ in range(STEPS):
        rows = _coins(30)
        moved = w - 0.5 * (_mean_gradient(w, X[rows], y[rows], 30) - LAMBDA * w)
        w = np.array([np.sign(v) * max(abs(v) - 0.5 * LAMBDA, 0.0) for v in moved])
    return w


CASES = [
    Case(
        name="proximal-sgd",
        method=ProximalSGD(STEPS, batch_size=30, clip=1.5, noise_multiplier=2.0, step_size=0.5),
        objective=Logistic(L1(LAMBDA)),
        textbook=_proximal,
        repeats=4,
    ),
    Case(
        name="dp-sgd with momentum",
        method=DPSGD(STEPS, batch_size=30, clip=1.5, noise_multiplier=2.0, step_size=0.5, momentum=0.7),
        objective=Logistic(L2(LAMBDA)),
        textbook=_momentum,
        repeats=4,
    ),
    Case(
        name="dp-sgd with noise that decays",
        method=DPSGD(
            STEPS,
            batch_size=30,
            clip=1.5,
            noise_multiplier=2.0,
            step_size=0.5,
            momentum=0.7,
            noise_factors=(1.5, 1.0, 0.75),
        ),
        objective=Logistic(L2(LAMBDA)),
        textbook=_momentum,
        repeats=4,
    ),
    Case(
        name="dp-sgd of one record, projected, averaged, replace-one",
        method=DPSGD(
            STEPS,
            batch_size=1,
            clip=1.5,
            noise_multiplier=2.0,
            step_size=inverse_root(2.0, 1.0),
            projection=L2Ball(RADIUS),
            average="uniform",
        ),
        objective=Logistic(L2(LAMBDA)),
        adjacency="replace-one",
        textbook=_one_record,
        repeats=4,
    ),
    Case(
        name="dp-sgd, weighted average",
        method=DPSGD(STEPS, batch_size=30, clip=1.5, noise_multiplier=2.0, step_size=0.5, average="weighted"),
        objective=Logistic(L2(LAMBDA)),
        textbook=_weighted,
        repeats=4,
    ),
    Case(
        name="dp-adam",
        method=DPAdam(
            STEPS,
            batch_size=30,
            clip=1.5,
            noise_multiplier=2.0,
            step_size=0.1,
            first_decay=0.8,
            second_decay=0.95,
        ),
        objective=Logistic(L2(LAMBDA)),
        textbook=_adam,
        repeats=4,
    ),
    Case(
        name="dp-adam, corrected, replace-one",
        method=DPAdam(
            STEPS,
            batch_size=30,
            clip=1.5,
            noise_multiplier=0.05,
            step_size=0.1,
            stability=1e-3,
            noise_correction=True,
        ),
        objective=Logistic(L2(LAMBDA)),
        adjacency="replace-one",
        textbook=_corrected_adam,
        repeats=4,
    ),
]
