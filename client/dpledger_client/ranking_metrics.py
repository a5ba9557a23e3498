"""Ranking metrics: NDCG@k and average precision, for one list and as a mean over lists.

Documents are ranked by falling score; equal scores keep their order. A list without a relevant
document counts as 0.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpledger_client._arrays import Floats
from dpledger_client._checks import check_count

__all__ = ["average_precision", "discounts", "gains", "mean_average_precision", "mean_ndcg", "ndcg"]

MOST_RELEVANT = 30.0


def gains(relevances: ArrayLike) -> Floats:
    """2^y − 1 for each relevance y, which counts as one in [0, 30], and as 0 if it is not finite."""
    given = np.asarray(relevances, dtype=np.float64)
    known = np.where(np.isfinite(given), given, 0.0)
    grades: Floats = np.exp2(np.clip(known, 0.0, MOST_RELEVANT)) - 1.0
    return grades


def discounts(places: int) -> Floats:
    """1/log₂(i + 1) for the places i = 1, 2, …"""
    falling: Floats = 1.0 / np.log2(np.arange(places) + 2.0)
    return falling


def ndcg(scores: ArrayLike, relevances: ArrayLike, k: int | None = None) -> float:
    """Normalised discounted cumulative gain of the first k, all if None (Chen 2020, dissertation, (6.1))."""
    grades = gains(relevances)
    ranked = grades[_ranking(scores, grades)]
    places = _places(ranked, k)
    ideal = float(np.sort(grades)[::-1][:places] @ discounts(places))
    return float(ranked[:places] @ discounts(places)) / ideal if ideal > 0.0 else 0.0


def average_precision(scores: ArrayLike, relevances: ArrayLike, k: int | None = None) -> float:
    """The mean of precision@i over the relevant places i ≤ k (Chen 2020, dissertation, (6.2)).

    Any relevance above 0 is relevant.
    """
    relevant = np.asarray(relevances, dtype=np.float64) > 0.0
    ranked = relevant[_ranking(scores, relevant)]
    hits = np.flatnonzero(ranked[: _places(ranked, k)])
    return float(np.mean(np.arange(1, len(hits) + 1) / (hits + 1.0))) if len(hits) else 0.0


def mean_ndcg(scores: Sequence[Any], relevances: Sequence[Any], k: int | None = None) -> float:
    """NDCG@k, averaged over lists."""
    return _mean(ndcg, scores, relevances, k)


def mean_average_precision(scores: Sequence[Any], relevances: Sequence[Any], k: int | None = None) -> float:
    """MAP@k: average precision, averaged over lists."""
    return _mean(average_precision, scores, relevances, k)


def _mean(
    measure: Callable[[Any, Any, int | None], float],
    scores: Sequence[Any],
    relevances: Sequence[Any],
    k: int | None,
) -> float:
    return float(np.mean([measure(one, other, k) for one, other in zip(scores, relevances, strict=True)]))


def _ranking(scores: ArrayLike, judged: Any) -> Any:
    given = np.asarray(scores, dtype=np.float64)
    if given.shape != judged.shape or given.ndim != 1:
        raise ValueError(f"a list has a score for each relevance, found {given.shape} and {judged.shape}")
    return np.argsort(-given, kind="stable")


def _places(ranked: Any, k: int | None) -> int:
    return len(ranked) if k is None else min(check_count("k", k), len(ranked))
