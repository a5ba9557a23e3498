"""Private moments of rows: how long rows are, their means and squares, and their second-moment matrix.

Each is one Gaussian release of a sum over records. Every record's term is computed from its own row, with
public numbers, and is shortened to norm 1, so that one record more moves the sum by at most 1; the limits are
held with the same room for rounding errors as in clipping. A row that is not finite counts for nothing. Sums
are silent: a warning that a value is too large for a double would tell of it.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dpledger_client._arrays import Floats, as_numbers
from dpledger_client._checks import check_choice
from dpledger_client.mechanisms import Gaussian
from dpledger_client.objectives.base import ADJACENCIES, blocks, clip_factors, limit_under, usable
from dpledger_client.optimizers.noise_levels import noise_for_multiplier
from dpledger_client.optimizers.support.planning import Item, step_item
from dpledger_client.optimizers.training import Training
from dpledger_client.releases import Release

__all__ = [
    "matrix_noise",
    "moment_release",
    "noise_of",
    "norm_counts",
    "norm_release",
    "private_row_norm",
    "row_norm_item",
    "row_norm_of",
    "scaled_sum",
    "second_moments",
    "second_moments_release",
    "shortened",
    "split_statistics",
    "statistics_release",
    "statistics_sum",
    "symmetric",
]

NORM_BINS = 28
"""Bins of norms, each 2^¼ wide: from the largest public norm to 1/128 of it, and below."""
_ROOT_OF_TWO = math.sqrt(2.0)
_MOVED = math.nextafter(_ROOT_OF_TWO, 2.0)
_TOO_LONG = 0.1
"""The share of rows that may be longer than the norm that is found."""
_silently = np.errstate(all="ignore")


def _sensitivity(adjacency: str, replaced: float) -> float:
    check_choice("adjacency", adjacency, ADJACENCIES)
    return 1.0 if adjacency == "add-remove" else replaced


def _release(sensitivity: float, multiplier: float, purpose: str) -> Release:
    return Release(Gaussian(sensitivity, noise_for_multiplier(multiplier, sensitivity)), purpose=purpose)


def norm_release(adjacency: str, multiplier: float) -> Release:
    """Counts by bins of norm. A record is in one bin at most: 1, or √2 where it moves to another."""
    return _release(_sensitivity(adjacency, _MOVED), multiplier, "row norms")


def moment_release(adjacency: str, multiplier: float, purpose: str = "moments") -> Release:
    """A sum of vectors of norm at most 1, which may point anywhere: 1, or 2 where one is replaced."""
    return _release(_sensitivity(adjacency, 2.0), multiplier, purpose)


def second_moments_release(adjacency: str, multiplier: float) -> Release:
    """Σ xxᵀ of rows of norm at most 1: 1, or √2 where one is replaced.

    Proof: ‖xxᵀ‖_F = ‖x‖² ≤ 1, and ‖xxᵀ − x′x′ᵀ‖_F² = ‖x‖⁴ + ‖x′‖⁴ − 2(x·x′)² ≤ 2. The triangle that is
    released, off the diagonal times √2, has the Frobenius norm of the matrix.
    """
    return _release(_sensitivity(adjacency, _MOVED), multiplier, "second moments")


@_silently
def norm_counts(X: Any, longest: float) -> Floats:
    """How many rows are in each bin of norm; the last bin has all that are shorter."""
    total = np.zeros(NORM_BINS)
    edges = _edges(longest)[:-1]
    for part in blocks(X):
        rows = as_numbers(X[part])
        norms = np.sqrt(np.vecdot(rows, rows))
        found = norms[np.isfinite(norms)]
        places = np.count_nonzero(found[:, None] <= edges, axis=1)
        total += np.bincount(places, minlength=NORM_BINS)
    return total


def _edges(longest: float) -> Floats:
    """The lower edges of the bins; what is above ``longest`` counts in the first."""
    return np.asarray(longest * 2.0 ** (-np.arange(1, NORM_BINS + 1) / 4.0))


def row_norm_of(counts: Floats, longest: float, records: int) -> float:
    """The shortest of the bins' upper edges that noisily at most a tenth of the rows are longer than."""
    longer = np.cumsum(counts) > _TOO_LONG * records
    place = int(np.argmax(longer)) if longer.any() else NORM_BINS - 1
    return float(longest * 2.0 ** (-place / 4.0))


def row_norm_item(adjacency: str, multiplier: float) -> Item:
    """The look of :func:`private_row_norm`, as an item of a plan."""
    return step_item("row norms", norm_release(adjacency, multiplier))


def private_row_norm(
    training: Training, multiplier: float, longest: float, rows: Callable[[Any], Any] = lambda X: X
) -> float:
    """Ask for the counts of rows by norm, and give the norm that about nine in ten rows are within.

    ``rows`` makes other rows of X, each by itself; ``longest`` is over the root of their number of columns.
    """
    columns = int(rows(training.source.X).shape[1])
    most = longest * math.sqrt(columns)
    counts: Floats = training.authorized(norm_release(training.adjacency, multiplier)).release(
        lambda batch: norm_counts(rows(batch.X), most)
    )
    return row_norm_of(counts, most, training.records)


@_silently
def shortened(rows: Floats, norm: float = 1.0) -> Floats:
    """Rows of norm at most ``norm``; one that is not finite becomes 0."""
    factors = clip_factors(np.sqrt(np.vecdot(rows, rows)), limit_under(norm))
    return usable(rows, factors) * factors[:, None]


@_silently
def scaled_sum(X: Any, norm: float) -> Floats:
    """Σ x/norm, each term shortened to norm 1."""
    total = np.zeros(X.shape[1])
    for part in blocks(X):
        total += shortened(as_numbers(X[part]) / norm).sum(axis=0)
    return total


@_silently
def second_moments(X: Any, norm: float) -> Floats:
    """Σ xxᵀ/norm² of rows shortened to ``norm``: its triangle, as a vector whose norm is the matrix's."""
    columns = int(X.shape[1])
    matrix = np.zeros((columns, columns))
    for part in blocks(X):
        short = shortened(as_numbers(X[part]) / norm)
        matrix += short.T @ short
    matrix *= np.where(np.eye(columns, dtype=np.bool_), 1.0, _ROOT_OF_TWO)
    return matrix[np.triu_indices(columns)]


def symmetric(triangle: Floats, columns: int) -> Floats:
    """The matrix of a triangle as :func:`second_moments` makes it."""
    matrix = np.zeros((columns, columns))
    matrix[np.triu_indices(columns)] = triangle
    matrix = (matrix + matrix.T) / _ROOT_OF_TWO
    np.fill_diagonal(matrix, np.diagonal(matrix) / _ROOT_OF_TWO)
    return matrix


def statistics_release(adjacency: str, multiplier: float) -> Release:
    """(Σ xxᵀ, Σ tx) of rows of norm at most 1 and targets within [−1, 1], together: √2, or √6.

    Proof: ‖xxᵀ‖_F² + ‖tx‖² ≤ 2, and where one is replaced ‖xxᵀ − x′x′ᵀ‖_F² ≤ 2 and ‖tx − t′x′‖² ≤ 4.
    """
    check_choice("adjacency", adjacency, ADJACENCIES)
    square = 2.0 if adjacency == "add-remove" else 6.0
    return _release(math.nextafter(math.sqrt(square), 3.0), multiplier, "sufficient statistics")


@_silently
def statistics_sum(X: Any, targets: Any, norm: float, bound: float = 1.0) -> Floats:
    """The triangle of Σ xxᵀ/norm², then Σ tx/(norm·bound); rows are shortened to ``norm``.

    Targets are cut to [−bound, bound].
    """
    cross = np.zeros(int(X.shape[1]))
    scaled = as_numbers(targets) / bound
    bounded = np.clip(np.where(np.isfinite(scaled), scaled, 0.0), -1.0, 1.0)
    for part in blocks(X):
        cross += bounded[part] @ shortened(as_numbers(X[part]) / norm)
    return np.concatenate([second_moments(X, norm), cross])


def split_statistics(found: Floats, norm: float, records: int) -> tuple[Floats, Floats]:
    """The mean of xxᵀ and of tx, from a noisy :func:`statistics_sum`."""
    columns = math.isqrt(2 * len(found) + 2) - 1
    while columns * (columns + 3) // 2 != len(found):
        columns += 1
    triangle, cross = found[:-columns], found[-columns:]
    return symmetric(triangle, columns) * norm**2 / records, cross * norm / records


def noise_of(release: Release) -> float:
    """The standard deviation of a Gaussian release's noise."""
    assert isinstance(release.mechanism, Gaussian)
    return release.mechanism.noise_std


def matrix_noise(release: Release, columns: int, norm: float, records: int) -> float:
    """The spectral norm that the noise of a released mean of xxᵀ has, about: √(2d) times an entry's."""
    return math.sqrt(2.0 * columns) * noise_of(release) * norm**2 / records
