"""Private rows and labels as an objective wants them, made row by row when a release looks at them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpledger_client._arrays import Bools, Floats, as_numbers

__all__ = ["Codes", "Rows", "Targets", "by_position"]


def by_position(data: Any) -> Any:
    """Something with a shape and rows that can be indexed: frames and lists become arrays.

    A list becomes one of objects: among numbers, one string would make strings of all records' values.
    """
    if hasattr(data, "to_numpy"):
        return data.to_numpy()
    if hasattr(data, "tocsr"):
        return data.tocsr()
    return data if hasattr(data, "shape") else np.asarray(data, dtype=object)


class _Prepared:
    """An array that is made of another when it is looked at; its length is public."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def __len__(self) -> int:
        return int(self._data.shape[0])

    def __getitem__(self, rows: Any) -> Floats:
        return self._convert(self._data[rows])

    def watched(self) -> Any:
        """What tells whether the data changed."""
        return self._data

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self[:], dtype=dtype)

    def _convert(self, taken: Any) -> Floats:
        return as_numbers(taken)


class Rows(_Prepared):
    """Rows as floating-point numbers, dense, with a column of ones if there is an intercept."""

    def __init__(self, X: Any, *, intercept: bool) -> None:
        super().__init__(X)
        self._intercept = intercept
        self.shape = len(self), int(X.shape[1]) + intercept
        self.ndim = 2
        self.constant_column = int(X.shape[1]) if intercept else None

    def _convert(self, taken: Any) -> Floats:
        dense = super()._convert(taken.toarray() if hasattr(taken, "toarray") else taken)
        return np.hstack([dense, np.ones((len(dense), 1))]) if self._intercept else dense


class Codes(_Prepared):
    """Labels as their classes' codes; a label that is no class has the code ``other``."""

    def __init__(self, y: Any, classes: Sequence[Any], codes: Sequence[float], other: float) -> None:
        super().__init__(y)
        self.shape = (len(self),)
        self.ndim = 1
        self._classes = classes
        self._codes = codes
        self._other = other

    def _convert(self, taken: Any) -> Floats:
        labels = np.asarray(taken)
        found = np.full(len(labels), self._other)
        for label, code in zip(self._classes, self._codes, strict=True):
            found[_equal(labels, label)] = code
        return found


def _equal(labels: Any, label: Any) -> Bools:
    """Which labels are this one; one that cannot be compared is not, since an error would tell of it."""
    try:
        return np.asarray(labels == label, dtype=np.bool_)
    except Exception:
        return np.array([_is(each, label) for each in labels], dtype=np.bool_)


def _is(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except Exception:  # whatever it is, it depends on a private value
        return False


class Targets(_Prepared):
    """Numbers, cut to within ``bound`` of zero."""

    def __init__(self, y: Any, bound: float) -> None:
        super().__init__(y)
        self.shape = (len(self),)
        self.ndim = 1
        self._bound = bound

    def _convert(self, taken: Any) -> Floats:
        return np.clip(super()._convert(taken), -self._bound, self._bound)
