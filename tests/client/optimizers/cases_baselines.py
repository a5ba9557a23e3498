"""The baselines that the papers compare with."""

import numpy as np

from dpledger_client._arrays import Floats
from dpledger_client.noise import current_noise
from dpledger_client.objectives import L2, HuberSVM, LeastSquares, Logistic
from dpledger_client.optimizers import L2Ball
from dpledger_client.optimizers.methods.objective_perturbation import ObjectivePerturbation
from dpledger_client.optimizers.methods.output_perturbation import OutputPerturbation
from dpledger_client.optimizers.methods.private_majority import PrivateMajority
from dpledger_client.optimizers.methods.privgene import PrivGene
from dpledger_client.optimizers.methods.sgd_advanced import SGDAdvanced
from dpledger_client.optimizers.methods.sgd_moments import SGDMoments
from dpledger_client.sampling import poisson, without_replacement
from tests.client.optimizers.contract import FEATURES, RECORDS, Case, classification

STEPS, LAMBDA, RADIUS = 20, 0.1, 0.6
ROW_NORM = 0.9


def _short(X: Floats) -> Floats:
    """Rows of norm ROW_NORM at most, less the margin that clipping leaves."""
    limit = ROW_NORM * (1.0 - 2.0**-20)
    return np.array([row * min(1.0, limit / np.sqrt(row @ row)) for row in X])


def _logistic_sum(w: Floats, X: Floats, y: Floats) -> Floats:
    total = np.zeros_like(w)
    for row, label in zip(X, y, strict=True):
        total = total - label * row / (1.0 + np.exp(label * row @ w))
    return total


def _descent(X: Floats, y: Floats) -> Floats:
    short, w = _short(X), np.zeros(X.shape[1])
    eta = 2.0 / (ROW_NORM**2 / 4.0 + 2.0 * LAMBDA)
    for _ in range(STEPS):
        w = w - eta * (_logistic_sum(w, short, y) / len(X) + LAMBDA * w)
    return w


def _least_squares_descent(X: Floats, y: Floats) -> Floats:
    w = np.zeros(X.shape[1])
    for iteration in range(1, STEPS + 1):
        moved = w - 1.0 / iteration * np.mean([(row @ w - label) * row for row, label in zip(X, y)], axis=0)  # noqa: B905
        w = moved / max(1.0, np.sqrt(np.sum(moved**2)) / RADIUS)
    return w


def _exact(X: Floats, y: Floats) -> Floats:
    """Newton's method on the regularised sum of logistic losses."""
    short, w = _short(X), np.zeros(X.shape[1])
    for _ in range(30):
        gradient = _logistic_sum(w, short, y) + RECORDS * LAMBDA * w
        chance = 1.0 / (1.0 + np.exp(-short @ w))
        hessian = (short.T * (chance * (1.0 - chance))) @ short + RECORDS * LAMBDA * np.eye(len(w))
        w = w - np.linalg.solve(hessian, gradient)
    return w


def _exact_svm(X: Floats, y: Floats) -> Floats:
    """Gradient descent, long enough, on the huberized hinge loss with both regularisers."""
    w = np.zeros(X.shape[1])
    for _ in range(3000):
        short = 1.0 - y * (X @ w)
        slopes = -y * (np.clip(short, -0.5, 0.5) + 0.5)
        w = w - (X.T @ slopes / RECORDS + (LAMBDA + 0.05) * w)
    return w


def _genes(X: Floats, y: Floats, strength: float = 0.0) -> Floats:
    random = np.random.default_rng(3)
    candidates = random.uniform(-2.0, 2.0, (30, X.shape[1]))
    for generation in range(8):
        losses = []
        for w in candidates:
            each = np.log1p(np.exp(-y * (X @ w)))
            penalty = RECORDS * strength / 2.0 * np.sum(w**2)
            losses.append(np.sum(np.minimum(each, 3.0 * (1.0 - 2.0**-20))) + penalty)
        best = candidates[np.argsort(losses, kind="stable")[:5]]
        children = []
        for _ in range(30):
            one, other = random.choice(5, size=2, replace=False)
            point = random.integers(0, X.shape[1] + 1)
            child = np.concatenate([best[one, :point], best[other, point:]])
            child[random.integers(X.shape[1])] += random.uniform(-(0.9**generation), 0.9**generation)
            children.append(np.clip(child, -2.0, 2.0))
        candidates = np.array(children)
    return np.asarray(best[0])


def _poisson_sgd(X: Floats, y: Floats) -> Floats:
    w = np.zeros(X.shape[1])
    for _ in range(STEPS):
        rows = poisson(RECORDS, 6 / RECORDS, current_noise().bits)
        w = w - 0.5 * (_logistic_sum(w, X[rows], y[rows]) / 6 + LAMBDA * w)
    return w


def _fixed_size_sgd(X: Floats, y: Floats) -> Floats:
    w, iterates = np.zeros(X.shape[1]), []
    for _ in range(STEPS):
        iterates.append(w)
        rows = without_replacement(RECORDS, 6, current_noise().bits)
        w = w - 0.5 * (_logistic_sum(w, X[rows], y[rows]) / 6 + LAMBDA * w)
    return np.asarray(np.mean(iterates, axis=0))


def _most_frequent(_: Floats, y: Floats) -> Floats:
    return np.array([1.0 if np.sum(y == 1.0) > np.sum(y == -1.0) else -1.0])


ENOUGH_FOR_300 = 300 // FEATURES

CASES = [
    Case(
        name="output-perturbation",
        method=OutputPerturbation(STEPS, noise_multiplier=3.0, row_norm=ROW_NORM),
        objective=Logistic(L2(LAMBDA)),
        adjacency="replace-one",
        textbook=_descent,
        rho=lambda _: 1.0 / (2.0 * 3.0**2),
        repeats=ENOUGH_FOR_300,
    ),
    Case(
        name="output-perturbation of least squares in a ball",
        method=OutputPerturbation(
            STEPS, noise_multiplier=3.0, row_norm=1.01, step_size=lambda t: 1.0 / t, projection=L2Ball(RADIUS)
        ),
        objective=LeastSquares(),
        adjacency="replace-one",
        textbook=_least_squares_descent,
        rho=lambda _: 1.0 / (2.0 * 3.0**2),
        repeats=ENOUGH_FOR_300,
    ),
    Case(
        name="objective-perturbation",
        method=ObjectivePerturbation(noise_multiplier=3.0, row_norm=ROW_NORM),
        quiet=ObjectivePerturbation(noise_multiplier=3.0, row_norm=ROW_NORM, tolerance=1e-9),
        objective=Logistic(L2(LAMBDA)),
        textbook=_exact,
    ),
    Case(
        name="objective-perturbation of an SVM, replace-one",
        method=ObjectivePerturbation(noise_multiplier=3.0, extra_strength=0.05, row_norm=1.01),
        quiet=ObjectivePerturbation(noise_multiplier=3.0, extra_strength=0.05, row_norm=1.01, tolerance=1e-9),
        objective=HuberSVM(0.5, L2(LAMBDA)),
        adjacency="replace-one",
        textbook=_exact_svm,
    ),
    Case(
        name="privgene",
        method=PrivGene(
            8, epsilon=0.3, loss_clip=3.0, population=30, parents=5, half_width=2.0, mutation=1.0, seed=3
        ),
        textbook=_genes,
    ),
    Case(
        name="privgene with a regulariser",
        method=PrivGene(
            8, epsilon=0.3, loss_clip=3.0, population=30, parents=5, half_width=2.0, mutation=1.0, seed=3
        ),
        objective=Logistic(L2(0.5)),
        textbook=lambda X, y: _genes(X, y, 0.5),
    ),
    Case(
        name="privgene, replace-one",
        method=PrivGene(
            8, epsilon=0.3, loss_clip=3.0, population=30, parents=5, half_width=2.0, mutation=1.0, seed=3
        ),
        adjacency="replace-one",
        textbook=_genes,
    ),
    Case(
        name="sgd-advanced, replace-one",
        method=SGDAdvanced(
            STEPS, batch_size=6, clip=1.5, epsilon=0.8, delta=1e-5, step_size=0.5, average="uniform"
        ),
        objective=Logistic(L2(LAMBDA)),
        adjacency="replace-one",
        textbook=_fixed_size_sgd,
        repeats=4,
    ),
    Case(
        name="sgd-moments",
        method=SGDMoments(STEPS, batch_size=6, clip=1.5, epsilon=0.8, delta=1e-5, step_size=0.5),
        objective=Logistic(L2(LAMBDA)),
        textbook=_poisson_sgd,
        repeats=4,
    ),
    Case(name="private-majority", method=PrivateMajority(0.7), textbook=_most_frequent),
    Case(
        name="private-majority, replace-one",
        method=PrivateMajority(0.7, labels=(-1.0, 0.0, 1.0)),
        data=lambda: classification(seed=6),
        adjacency="replace-one",
        textbook=_most_frequent,
    ),
]
