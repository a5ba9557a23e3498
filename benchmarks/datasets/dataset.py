"""A dataset as the benchmarks use it: rows, labels, public ranges and classes, and its split."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.datasets.columns import Floats

__all__ = ["Dataset", "Indices"]

Indices = NDArray[np.intp]
FOLDS = 5


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows ``X`` with labels ``y``.

    ``bounds`` has one public pair (low, high) per column, ``classes`` the public labels; ``held_out`` marks
    the rows of the dataset's own test file, ``groups`` has the query of each row of a ranking dataset.
    """

    name: str
    X: Floats
    y: NDArray[Any]
    names: list[str]
    bounds: Floats
    classes: tuple[int, ...]
    held_out: NDArray[np.bool_] | None = None
    groups: NDArray[np.int64] | None = None

    def split(
        self, fold: int = 0, *, folds: int = FOLDS, seed: int = 0, own: bool = True
    ) -> tuple[Indices, Indices]:
        """Training and test rows: the dataset's own where it has a test file, else a seeded fold.

        A fold is one of ``folds`` parts of a permutation that ``seed`` fixes; rows of one group stay
        together. ``own=False`` takes folds of a dataset with a test file, too.
        """
        if not 0 <= fold < folds:
            raise ValueError(f"fold must be in [0, {folds}), not {fold}")
        if own and self.held_out is not None:
            test = self.held_out
        else:
            keys, which = self._keys()
            chosen = np.random.default_rng(seed).permutation(keys)[fold::folds]
            test = np.isin(which, chosen)
        return np.flatnonzero(~test), np.flatnonzero(test)

    def _keys(self) -> tuple[Indices, Indices]:
        """The keys that folds share out, and each row's key."""
        if self.groups is None:
            rows = np.arange(len(self.X))
            return rows, rows
        distinct, which = np.unique(self.groups, return_inverse=True)
        return np.arange(len(distinct)), which
