"""Bounds of features that are not public: one noisy histogram over powers of two, charged like any look.

A value falls into one of 129 bins: zero, for what is nearer to zero than 2⁻¹⁶, and [2ᵏ, 2ᵏ⁺¹) with either
sign for k from −16 to 47. Bins and their edges are fixed in advance and the same for every dataset.
"""

import math
from typing import Any

import numpy as np

from dpledger_client._arrays import Floats, Integers
from dpledger_client.mechanisms import Gaussian
from dpledger_client.releases import Release

__all__ = ["BOUNDS_SHARE", "bin_counts", "bounds_from", "histogram_release", "histogram_sensitivity"]

BOUNDS_SHARE = 0.1
"""Of what is to be spent, in μ²."""
_LEAST, _MOST = -16, 47
_SIDE = _MOST - _LEAST + 1
_ZERO = _SIDE
BINS = 2 * _SIDE + 1
_RARE = 0.002
"""A bin that holds fewer of the records bounds nothing."""


def histogram_sensitivity(columns: int, adjacency: str) -> float:
    """How far the counts of all columns' bins move between neighbours, in L2, rounded up.

    Statement: √d under add-remove, √(2d) under replace-one. Conditions: a record counts for at most one
    bin of each of d columns, with 1. Proof: a record that comes changes at most one count of each column
    by 1; one that is replaced takes 1 from one bin of a column and adds 1 to another.
    """
    changed = columns if adjacency == "add-remove" else 2 * columns
    return math.nextafter(math.sqrt(changed), math.inf)


def histogram_release(columns: int, adjacency: str, mu: float) -> Release:
    """The counts with Gaussian noise, for μ."""
    sensitivity = histogram_sensitivity(columns, adjacency)
    return Release(Gaussian(sensitivity, sensitivity / mu), purpose="bounds")


def bin_counts(rows: Floats) -> Floats:
    """How many values of each column are in each bin; what is no number is in none."""
    columns = rows.shape[1]
    bins = _bins(rows)
    places = np.where(bins >= 0, bins + BINS * np.arange(columns), BINS * columns)
    counts = np.bincount(places.ravel(), minlength=BINS * columns + 1)[:-1]
    return counts.astype(np.float64)


def _bins(rows: Floats) -> Integers:
    with np.errstate(all="ignore"):
        exponents = np.clip(np.frexp(rows)[1].astype(np.int64) - 1, _LEAST, _MOST)
    sides = exponents - _LEAST
    signed = np.where(rows > 0.0, _ZERO + 1 + sides, _ZERO - 1 - sides)
    large = np.where(np.isinf(rows), np.where(rows > 0.0, BINS - 1, 0), signed)
    near = np.where(np.abs(rows) < 2.0**_LEAST, _ZERO, large)
    return np.where(np.isnan(rows), -1, near).astype(np.int64)


def bounds_from(noisy: Any, columns: int, records: int, noise_std: float) -> tuple[Floats, Floats]:
    """Each column's bounds: the outermost bins that hold more than noise and 0.2 % of the records.

    A column of which nothing stands out from the noise, or nothing but zero, has the bounds of all columns
    together, whose mean counts are √d times as exact. This looks at what was released alone.
    """
    counts = np.asarray(noisy, dtype=np.float64).reshape(columns, BINS)
    beyond = math.sqrt(2.0 * math.log(2.0 * BINS * columns))
    low, high, found = _outermost(counts, max(_RARE * records, beyond * noise_std))
    pooled = counts.mean(axis=0, keepdims=True)
    together = _outermost(pooled, max(_RARE * records, beyond * noise_std / math.sqrt(columns)))
    low_all, high_all = (-1.0, 1.0) if not together[2][0] else (float(together[0][0]), float(together[1][0]))
    return np.where(found, low, low_all), np.where(found, high, high_all)


def _outermost(counts: Floats, threshold: float) -> tuple[Floats, Floats, Any]:
    """The outer edges of the outermost bins above a threshold, and whether there are any but zero."""
    above = counts > threshold
    first, last = above.argmax(axis=1), BINS - 1 - above[:, ::-1].argmax(axis=1)
    return (
        _edge(first, lower=True),
        _edge(last, lower=False),
        (above & (np.arange(BINS) != _ZERO)).any(axis=1),
    )


def _edge(bins: Any, *, lower: bool) -> Floats:
    """The lower or the upper edge of bins."""
    sides = np.abs(bins - _ZERO) - 1
    far = bins < _ZERO if lower else bins > _ZERO
    powers = np.exp2(_LEAST + sides + far)
    found: Floats = np.where(bins == _ZERO, 0.0, np.where(bins < _ZERO, -powers, powers))
    return found
