"""Names for the arrays that the client works with, and how private data become one."""

import warnings
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Bools", "Floats", "Integers", "as_numbers", "by_place"]

Bools: TypeAlias = NDArray[np.bool_]
Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]

_PLAIN = "?bBhHiIlLqQefd"
"""Types of numbers of which every one is a double, but for rounding."""


def as_numbers(data: Any) -> Floats:
    """Private data as doubles; what cannot be read as one becomes NaN, since an error would tell of it.

    The numbers of a row lie together. Where those of a column do, as in a frame, a product rounds a row in
    another way than where it is the only one, so that one record more would change what it counts with.
    """
    if isinstance(data, np.ndarray) and data.dtype.char in _PLAIN:
        return np.asarray(data, dtype=np.float64, order="C")
    with warnings.catch_warnings(action="ignore"):  # a warning would tell as much
        try:
            return _doubles(data)
        except Exception:  # whatever it is, it depends on a private value
            return _doubles(_each(np.asarray(data, dtype=object)))


def _doubles(data: Any) -> Floats:
    with np.errstate(all="ignore"):
        return np.asarray(data, dtype=np.float64, order="C")


def _number(value: Any) -> float:
    """One value, as it is read in an array: not as ``float`` does, which differs for dates."""
    alone = np.empty(1, dtype=object)
    alone[0] = value
    try:
        return float(_doubles(alone)[0])
    except Exception:
        return np.nan


_each = np.vectorize(_number, otypes=[np.float64])


def by_place(data: Any) -> Any:
    """Data whose rows are found by their place, as an array's are.

    A frame's or a series' are found by an index: what an absent record leaves there is an error, or another
    record's label.
    """
    return data.to_numpy() if hasattr(data, "to_numpy") else data
