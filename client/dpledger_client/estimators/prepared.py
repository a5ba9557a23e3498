"""Private rows and labels as an objective wants them, made row by row when a release looks at them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpledger_client._arrays import Bools, Floats, as_numbers
from dpledger_client.estimators.scaling import Scaling

__all__ = ["Codes", "Rows", "Targets", "WithWeights", "by_position"]


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
    """Rows as floating-point numbers, dense and scaled, with a constant column if there is an intercept."""

    def __init__(self, X: Any, *, constant: float | None = None, scaling: Scaling | None = None) -> None:
        super().__init__(X)
        self._constant = constant
        self._scaling = scaling
        self.shape = len(self), int(X.shape[1]) + (constant is not None)
        self.ndim = 2
        self.constant_column = None if constant is None else int(X.shape[1])

    def _convert(self, taken: Any) -> Floats:
        dense = super()._convert(taken.toarray() if hasattr(taken, "toarray") else taken)
        if self._constant is None:
            return dense if self._scaling is None else self._scaling.apply(dense)
        wide = np.full((len(dense), self.shape[1]), self._constant)
        if self._scaling is None:
            wide[:, :-1] = dense
        else:
            self._scaling.apply(dense, wide[:, :-1])
        return wide


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
    """Numbers, cut to bounds and scaled."""

    def __init__(self, y: Any, scaling: Scaling | None = None) -> None:
        super().__init__(y)
        self.shape = (len(self),)
        self.ndim = 1
        self._scaling = scaling

    def _convert(self, taken: Any) -> Floats:
        numbers = super()._convert(taken)
        return numbers if self._scaling is None else self._scaling.apply(numbers)


class WithWeights:
    """Labels, and beside each its record's weight, which the objective cuts to [0, 1]."""

    def __init__(self, labels: Any, weights: Any) -> None:
        self._labels = labels
        self._weights = weights
        self.shape = (len(labels), 2)
        self.ndim = 2

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, rows: Any) -> Floats:
        return np.stack([self._labels[rows], as_numbers(self._weights[rows])], axis=-1)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self[:], dtype=dtype)

    def watched(self) -> Any:
        """What tells whether the data changed."""
        return [self._labels.watched(), self._weights]
