"""Baselines in numpy: no privacy, the majority, auto-clipped gradient descent."""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression

from benchmarks.utility.cells import DELTA, Score, score, split_of

__all__ = ["BASELINES", "fit_auto_clipped", "fit_majority", "fit_non_private"]

BASELINES = ("non-private", "majority")
STEPS, MOMENTUM, GAMMA = 100, 0.9, 0.01
Floats = NDArray[np.float64]


def fit_non_private(dataset: str, seed: int) -> Score:
    """scikit-learn's logistic regression, hardly regularised."""
    split = split_of(dataset, seed)
    model = LogisticRegression(C=1e3, max_iter=2_000).fit(split.X, split.y)
    return Score(
        dataset,
        "non-private",
        None,
        seed,
        *score(model.decision_function(split.test_rows), split.test_labels),
    )


def fit_majority(dataset: str, seed: int) -> Score:
    """The more frequent label for everybody."""
    split = split_of(dataset, seed)
    sign = 1.0 if split.y.mean() > 0.0 else -1.0
    margins = np.full(len(split.test_labels), sign)
    return Score(dataset, "majority", None, seed, *score(margins, split.test_labels))


def gaussian_mu(epsilon: float) -> float:
    """The μ whose Gaussian has exactly (ε, δ) (Balle, Wang 2018)."""

    def excess(log_mu: float) -> float:
        mu = math.exp(log_mu)
        upper = norm.cdf(mu / 2.0 - epsilon / mu)
        lower = math.exp(epsilon + norm.logcdf(-mu / 2.0 - epsilon / mu))
        return float(upper - lower - DELTA)

    return math.exp(float(brentq(excess, math.log(1e-5), math.log(20.0))))


def fit_auto_clipped(dataset: str, epsilon: float, seed: int) -> Score:
    """Full gradients, each divided by its norm (Bu et al. 2023), with momentum; steps as noisy-gd's."""
    split = split_of(dataset, seed)
    X = np.hstack([split.X, np.ones((len(split.X), 1))])
    w = _auto_clipped(X, split.y, gaussian_mu(epsilon), np.random.default_rng(seed))
    margins = split.test_rows @ w[:-1] + w[-1]
    return Score(dataset, "auto-clipped gd", epsilon, seed, *score(margins, split.test_labels))


def _auto_clipped(X: Floats, y: Floats, mu: float, random: np.random.Generator) -> Floats:
    norms = np.linalg.norm(X, axis=1)
    strength = len(X) * mu
    reach = min(3.0, max(1.0, math.sqrt(strength / 500.0)))
    eta = reach * strength / STEPS * (1.0 - MOMENTUM)
    w, velocity, total = np.zeros(X.shape[1]), np.zeros(X.shape[1]), np.zeros(X.shape[1])
    for step in range(STEPS):
        slopes = -y / (1.0 + np.exp(np.clip(y * (X @ w), -700.0, 700.0)))
        shortened = slopes / (np.abs(slopes) * norms + GAMMA)
        noise = random.normal(size=len(w)) * math.sqrt(STEPS) / mu
        velocity = MOMENTUM * velocity + (shortened @ X + noise) / len(X)
        w = w - eta * velocity
        total += w if step >= STEPS // 2 else 0.0
    return total / (STEPS - STEPS // 2)
