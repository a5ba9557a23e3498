"""What is compared: datasets, budgets, seeds; how a fit is scored, and how cells are counted."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.datasets import load

__all__ = [
    "DATASETS",
    "DEFAULT",
    "DELTA",
    "EPSILONS",
    "MEASURES",
    "SEEDS",
    "Score",
    "Split",
    "Summary",
    "best_cells",
    "score",
    "split_of",
    "summarize",
]

DATASETS = ("adult", "bank")
EPSILONS = (0.05, 0.1, 0.4, 1.6)
DELTA = 1e-8
SEEDS = 5
DEFAULT = "one call"
MEASURES = ("accuracy", "auc")
_FEWEST = 2
"""Seeds below which a mean has no standard error and is no candidate for the best."""
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Split:
    """Rows in [0, 1] by public ranges, and labels −1 and 1."""

    X: Floats
    y: Floats
    test_rows: Floats
    test_labels: Floats


@dataclass(frozen=True)
class Score:
    """One fit, in percent; ``epsilon`` is None for what has no privacy."""

    dataset: str
    method: str
    epsilon: float | None
    seed: int
    accuracy: float
    auc: float
    seconds: float = math.nan


@dataclass(frozen=True)
class Summary:
    """Means and standard errors over seeds."""

    seeds: int
    mean: Mapping[str, float]
    error: Mapping[str, float]


@lru_cache(maxsize=10)
def split_of(name: str, seed: int) -> Split:
    """Adult's own test file whatever the seed; of Bank, which has none, the seed's fifth."""
    data = load(name)
    train, test = data.split(seed % SEEDS)
    y = data.y.astype(np.float64)
    return Split(data.X[train], y[train], data.X[test], y[test])


def score(margins: Any, y: Floats) -> tuple[float, float]:
    """Accuracy at margin 0 and the area under the curve, in percent; equal margins share their ranks."""
    margins = np.asarray(margins, dtype=np.float64)
    _, places, counts = np.unique(margins, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2.0)[places]
    positive = y > 0.0
    ones, zeros = int(positive.sum()), int((~positive).sum())
    area = (ranks[positive].sum() - ones * (ones + 1) / 2.0) / (ones * zeros)
    return 100.0 * float(np.mean((margins > 0.0) == positive)), 100.0 * float(area)


def summarize(scores: Iterable[Score]) -> dict[tuple[str, float | None, str], Summary]:
    """By dataset, ε and method."""
    grouped: dict[tuple[str, float | None, str], list[Score]] = {}
    for each in scores:
        grouped.setdefault((each.dataset, each.epsilon, each.method), []).append(each)
    return {key: _summary(found) for key, found in grouped.items()}


def _summary(found: list[Score]) -> Summary:
    means, errors = {}, {}
    for measure in MEASURES:
        values = np.array([getattr(each, measure) for each in found])
        means[measure] = float(values.mean())
        several = len(values) >= _FEWEST
        errors[measure] = float(values.std(ddof=1) / math.sqrt(len(values))) if several else math.nan
    return Summary(len(found), means, errors)


def best_cells(summaries: Mapping[tuple[str, float | None, str], Summary]) -> list[tuple[str, bool]]:
    """For each cell, who is best of all that have a budget, and whether the default is within its error.

    The error is that of the best's mean: the default must not be further below it than that.
    """
    found = []
    for dataset in DATASETS:
        for epsilon in EPSILONS:
            private = {
                method: summary
                for (data, budget, method), summary in summaries.items()
                if (data, budget) == (dataset, epsilon) and summary.seeds >= _FEWEST
            }
            for measure in MEASURES if DEFAULT in private else ():
                best = max(private, key=lambda method: private[method].mean[measure])
                gap = private[best].mean[measure] - private[DEFAULT].mean[measure]
                found.append((best, gap <= private[best].error[measure]))
    return found
