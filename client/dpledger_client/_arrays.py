"""Names for the arrays that the client works with, and how private data become one."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Bools", "Floats", "Integers", "as_numbers"]

Bools: TypeAlias = NDArray[np.bool_]
Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]


def as_numbers(data: Any) -> Floats:
    """Private data as doubles; what cannot be read as one becomes NaN, since an error would tell of it."""
    try:
        return np.asarray(data, dtype=np.float64)
    except (OverflowError, TypeError, ValueError):
        found: Floats = _each(np.asarray(data, dtype=object))
        return found


def _number(value: Any) -> float:
    try:
        return float(value)
    except Exception:  # whatever it is, it depends on a private value
        return np.nan


_each = np.vectorize(_number, otypes=[np.float64])
