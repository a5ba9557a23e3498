"""Attacks on what a training releases: its lower bound on ε, and the noise that is halved for its power.

An attack sees every release of a training on one of two neighbours and says which it was by a score. A
threshold is chosen on a quarter of the trainings; on the others its rates bound ε from below.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import beta

from dpledger_client import noise, permits
from dpledger_client._arrays import Bools, Floats, Integers
from dpledger_client._bits import SeededBits
from dpledger_client.noise import Noise, ThresholdNoise

__all__ = ["CONFIDENCE", "HalvedNoise", "Output", "lower_bound", "seeded", "watched"]

CONFIDENCE = 0.999
_MOST_THRESHOLDS = 200
Output = tuple[Any, Any]
"""A mechanism, and what it released."""


def _epsilons(hits: Integers, misses: Integers, trials: int, delta: float) -> Floats:
    """ε ≥ log((P(S) − δ)/Q(S)) where each event S happened so often under P and under Q.

    The rates are Clopper and Pearson's, from below and from above, at half the risk each.
    """
    risk = (1.0 - CONFIDENCE) / 2.0
    likely = np.where(hits > 0, beta.ppf(risk, np.maximum(hits, 1), trials - hits + 1), 0.0) - delta
    unlikely = np.where(
        misses < trials, beta.ppf(1.0 - risk, misses + 1, np.maximum(trials - misses, 1)), 1.0
    )
    with np.errstate(divide="ignore"):
        return np.log(np.maximum(likely, 0.0) / unlikely)


def lower_bound(with_canary: Sequence[float], without: Sequence[float], delta: float) -> float:
    """A lower bound on ε at δ, at 99.9 % confidence; 0 where there is none above it.

    The event is "score above" or "score at most" a threshold, for one direction or the other; which of all
    these is chosen on the first quarters, and its rates are counted on the rest.
    """
    p, q = np.asarray(with_canary), np.asarray(without)
    quarter = min(len(p), len(q)) // 4
    levels = np.unique(np.concatenate([p[:quarter], q[:quarter]]))
    if len(levels) > _MOST_THRESHOLDS:
        levels = np.quantile(levels, np.linspace(0.0, 1.0, _MOST_THRESHOLDS))
    chosen = int(np.argmax(_bounds(p[:quarter], q[:quarter], levels, delta)))
    return max(0.0, float(_bounds(p[quarter:], q[quarter:], levels, delta)[chosen]))


def _bounds(p: Floats, q: Floats, levels: Floats, delta: float) -> Floats:
    """Of "above" each level, and then of "at most" each level."""
    trials = min(len(p), len(q))
    above = [np.count_nonzero(each[:trials, None] > levels, axis=0) for each in (p, q)]
    upper = _epsilons(above[0], above[1], trials, delta)
    lower = _epsilons(trials - above[1], trials - above[0], trials, delta)
    return np.concatenate([upper, lower])


class HalvedNoise(Noise):
    """All noise at half of its width, as a bug might draw it: the attacks must notice."""

    def gaussian(self, value: ArrayLike, sensitivity: float, noise_std: float) -> Floats:
        return super().gaussian(value, sensitivity, noise_std / 2.0)

    def laplace(self, value: ArrayLike, sensitivity: float, scale: float) -> Floats:
        return super().laplace(value, sensitivity, scale / 2.0)

    def discrete_gaussian(self, value: ArrayLike, noise_std: float) -> Integers:
        return super().discrete_gaussian(value, noise_std / 2.0)

    def discrete_laplace(self, value: ArrayLike, scale: int) -> Integers:
        return super().discrete_laplace(value, max(1, scale // 2))

    def gumbel_choice(self, scores: ArrayLike, scale: float) -> int:
        return super().gumbel_choice(scores, scale / 2.0)

    def exponential_choice(self, scores: ArrayLike, scale: float) -> int:
        return super().exponential_choice(scores, scale / 2.0)

    def laplace_choice(self, scores: ArrayLike, sensitivity: float, scale: float) -> int:
        return super().laplace_choice(scores, sensitivity, scale / 2.0)

    def flip(self, truth: ArrayLike, epsilon: float) -> Bools:
        return super().flip(truth, epsilon * 2.0)

    def first_above(self, queries: Any, threshold: float, plan: ThresholdNoise) -> int | None:
        halved = replace(plan, threshold_scale=plan.threshold_scale / 2.0, query_scale=plan.query_scale / 2.0)
        return super().first_above(queries, threshold, halved)

    def passes(self, distance: int, epsilon: float, delta: float) -> bool:
        return super().passes(distance, epsilon * 2.0, delta)


@contextmanager
def seeded(seed: int, *, halved: bool) -> Iterator[None]:
    """The product's own noise from a seed, or all of it at half its width."""
    with noise._in_force((HalvedNoise if halved else Noise)(SeededBits(seed))):
        yield


@contextmanager
def watched(outputs: list[Output]) -> Iterator[None]:
    """Keep whatever is released meanwhile, with its mechanism."""
    made = permits._made

    def kept(release: Any, value: Any) -> Any:
        output = made(release, value)
        outputs.append((release.mechanism, output))
        return output

    permits._made = kept
    try:
        yield
    finally:
        permits._made = made
