"""Simulations that fixed the constants of the rule of noisy gradient descent (docs/rule.md).

    python -m benchmarks.rule_simulation [clip | intercept | step]

Nothing here is private: the data are drawn, and noise of the rule's size is added without a ledger. Each line
is a case, with the accuracy on held-out records for each setting; the last lines are how far each setting is
below the best of its case, and below the majority, on average and at worst.
"""

import argparse
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm

from dpledger_client._arrays import Floats
from dpledger_client.objectives.base import Objective
from dpledger_client.objectives.linear import Logistic, Softmax

__all__ = ["Case", "Setting", "accuracy", "drawn"]

DELTA = 1e-6
STEPS = 100
MOMENTUM = 0.9
_TEST = 4_000
_SHARE = 0.12
"""The mean square of a feature within [−1, 1], as a rule of thumb."""


@dataclass(frozen=True)
class Case:
    """A kind of data, its shape, and how much is kept of the first class."""

    kind: str
    records: int
    features: int
    classes: int
    kept: float = 1.0


@dataclass(frozen=True)
class Setting:
    """What the rule leaves open.

    Attributes
    ----------
    clip, factor
        Of gradients; of k = √(s/500) within [1, 3].
    intercept
        a of f = a/(nμ), the intercept's share of a row's squared norm; 0: its column is 1.
    cap
        The largest step over 2(1 + momentum)/L; infinite: any.
    """

    clip: float = 0.5
    factor: float = 1.0
    intercept: float = 15.0
    cap: float = math.inf


SHAPES = (
    Case("one-hot", 500, 20, 2, 0.2),
    Case("one-hot", 5_000, 100, 2, 0.3),
    Case("dense", 500, 10, 2, 0.2),
    Case("dense", 500, 10, 2),
    Case("dense", 2_000, 200, 2, 0.2),
    Case("dense", 2_000, 200, 2),
    Case("low-rank", 1_500, 64, 10),
    Case("clusters", 500, 10, 3, 0.15),
    Case("dense", 500, 600, 2, 0.25),
)
LARGE = (
    Case("one-hot", 60_000, 60, 2),
    Case("dense", 60_000, 20, 2),
    Case("low-rank", 60_000, 40, 2),
    Case("low-rank", 40_000, 40, 6),
)
GRIDS: dict[str, tuple[tuple[Case, ...], tuple[float, ...], tuple[Setting, ...]]] = {
    "clip": (
        SHAPES,
        (0.1, 0.5, 2.0),
        tuple(Setting(clip, factor) for clip in (0.3, 0.5, 1.0) for factor in (0.5, 1.0, 3.0)),
    ),
    "intercept": (SHAPES, (0.05, 0.3, 2.0), tuple(Setting(intercept=a) for a in (0.0, 15.0, 33.0, 80.0))),
    "step": (LARGE, (0.4, 2.0, 9.0), tuple(Setting(cap=cap) for cap in (math.inf, 30.0, 10.0, 3.0, 1.0))),
}
"""For each constant: the cases, the ε, and the settings that were compared."""


def drawn(case: Case, random: np.random.Generator) -> tuple[Floats, Any]:
    """Features within [−1, 1] and labels, four thousand more than the case has records."""
    wanted = case.records + _TEST
    X, y = _drawn(case, math.ceil(wanted * 2.5), random)
    kept = (y != 0) | (random.random(len(y)) < case.kept)
    return X[kept][:wanted], y[kept][:wanted]


def _drawn(case: Case, number: int, random: np.random.Generator) -> tuple[Floats, Any]:
    if case.kind == "clusters":
        y = random.integers(case.classes, size=number)
        centres = random.normal(size=(case.classes, case.features)) * 0.75
        return np.clip(centres[y] + 0.25 * random.normal(size=(number, case.features)), -1.0, 1.0), y
    X, scores = _scored(case, number, random)
    return X, np.argmax(scores + 0.7 * random.gumbel(size=scores.shape), axis=1)


def _scored(case: Case, number: int, random: np.random.Generator) -> tuple[Floats, Floats]:
    shape = case.features, case.classes
    if case.kind == "dense":
        X = np.clip(random.normal(0.0, 0.25, (number, case.features)), -1.0, 1.0)
        return X, X @ random.normal(size=shape) * 8.0 / math.sqrt(case.features)
    if case.kind == "low-rank":
        rank = max(3, case.features // 10)
        hidden = random.normal(size=(number, rank))
        mixed = hidden @ random.normal(size=(rank, case.features)) / math.sqrt(rank)
        X = np.clip(0.3 * mixed + 0.05 * random.normal(size=mixed.shape) + 0.3, 0.0, 1.0)
        return X, hidden @ random.normal(size=(rank, case.classes)) * 1.2
    X = _one_hot(case.features, number, random)
    scores: Floats = X @ (random.normal(size=shape) * (random.random((case.features, 1)) < 0.6) * 0.9)
    scores[:, 0] += 1.2
    return X, scores


def _one_hot(features: int, number: int, random: np.random.Generator) -> Floats:
    """Categories with Zipf frequencies, and four columns of numbers."""
    columns: list[Floats] = []
    left = features - 4
    while left > 0:
        count = min(left, int(random.integers(2, 16)))
        frequencies = 1.0 / np.arange(1, count + 1) ** 1.2
        chosen = random.choice(count, size=number, p=frequencies / frequencies.sum())
        columns.append(np.eye(count)[chosen])
        left -= count
    rare = (random.random(number) < 0.08) * random.random(number)
    numbers = [np.clip(random.lognormal(-2.0, 1.0, number), 0.0, 1.0), rare, random.beta(2, 5, number)]
    columns.append(np.stack([*numbers, np.clip(random.normal(0.0, 0.3, number), -1.0, 1.0)], axis=1))
    return np.hstack(columns)


def mu_within(epsilon: float) -> float:
    """The μ of (ε, δ) (Balle, Wang 2018)."""

    def excess(mu: float) -> float:
        return float(
            norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu) - DELTA
        )

    return float(brentq(excess, 1e-4, 50.0))


def accuracy(case: Case, X: Floats, y: Any, mu: float, setting: Setting, seed: int) -> float:
    """Of noisy gradient descent by the rule with a setting, on the last four thousand records."""
    usual = math.sqrt(_SHARE * case.features)
    share = min(0.95, setting.intercept / (case.records * mu))
    constant = max(1.0, usual * math.sqrt(share / (1.0 - share)))
    rows = np.hstack([X, np.full((len(X), 1), constant)])
    objective: Objective = Logistic() if case.classes == 2 else Softmax(case.classes)
    labels = 2.0 * y - 1.0 if case.classes == 2 else y.astype(np.float64)
    train = slice(0, case.records)
    w = _descend(objective, rows[train], labels[train], mu, setting, _step(case, mu, setting), seed)
    margins = rows[case.records :] @ w.reshape(rows.shape[1], -1)
    guess = margins[:, 0] > 0.0 if case.classes == 2 else np.argmax(margins, axis=1)
    return float(np.mean(guess == y[case.records :]))


def _step(case: Case, mu: float, setting: Setting) -> float:
    strength = case.records * mu / setting.clip
    reach = setting.factor * min(3.0, max(1.0, math.sqrt(strength / 500.0)))
    curvature = (1.0 + _SHARE * case.features) / (4.0 if case.classes == 2 else 2.0)
    largest = setting.cap * 2.0 * (1.0 + MOMENTUM) / curvature
    return min(reach * strength / STEPS * (1.0 - MOMENTUM), largest)


def _descend(
    objective: Objective, X: Floats, y: Floats, mu: float, setting: Setting, step: float, seed: int
) -> Floats:
    random = np.random.default_rng(seed)
    noise_std = setting.clip * math.sqrt(STEPS) / mu
    w = np.zeros(objective.dimension(X, y))
    velocity, total = np.zeros_like(w), np.zeros_like(w)
    for iteration in range(STEPS):
        noisy = objective.clipped_gradient_sum(w, X, y, setting.clip) + noise_std * random.normal(
            size=w.shape
        )
        velocity = MOMENTUM * velocity + noisy / len(X)
        w = w - step * velocity
        if iteration >= STEPS // 2:
            total += w
    return total / (STEPS - STEPS // 2)


def _lines(
    cases: Sequence[Case], epsilons: Sequence[float], settings: Sequence[Setting], seeds: int
) -> Iterator[tuple[str, float, list[float]]]:
    for number, (case, epsilon) in enumerate(itertools.product(cases, epsilons)):
        X, y = drawn(case, np.random.default_rng(300 + number // len(epsilons)))
        majority = float(np.mean(y[case.records :] == np.bincount(y[: case.records]).argmax()))
        mu = mu_within(epsilon)
        found = [
            float(np.mean([accuracy(case, X, y, mu, setting, seed) for seed in range(seeds)]))
            for setting in settings
        ]
        yield f"{case} ε={epsilon}", majority, found


def main() -> None:
    """Print the cases, and then each setting's distance from the best."""
    parser = argparse.ArgumentParser(description="Simulations that fixed the constants of the rule.")
    parser.add_argument("grid", nargs="?", choices=GRIDS, default="intercept")
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    cases, epsilons, settings = GRIDS[given.grid]
    majorities, table = [], []
    for name, majority, found in _lines(cases, epsilons, settings, given.seeds):
        print(f"{name}: majority {majority:.3f},", " ".join(f"{each:.3f}" for each in found), flush=True)
        majorities.append(majority)
        table.append(found)
    scores = np.array(table)
    behind = scores.max(axis=1, keepdims=True) - scores
    below = np.maximum(0.0, np.array(majorities)[:, None] - scores)
    for index, setting in enumerate(settings):
        far, short = behind[:, index], below[:, index]
        print(f"{setting}: behind the best by {far.mean():.4f}, at worst {far.max():.3f};", end=" ")
        print(f"below the majority by {short.mean():.4f}, at worst {short.max():.3f}")


if __name__ == "__main__":
    main()
