"""Detects data that change while one permit is in use.

A filter covers records that arrive while the ledger runs if each permit reads the data once. One permit that
releases before and after they changed is not covered, and this sees it as far as it can be seen.
"""

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpledger_client.errors import DataChanged

__all__ = ["Watch", "fingerprint"]

_MOST_BYTES = 1 << 26
"""Of larger arrays some rows are read, spread evenly: all of them would take longer than the release."""
_MOST_ITEMS = 100_000
_SPARSE = ("data", "indices", "indptr")


class Watch:
    """Remembers data as they are now."""

    def __init__(self, data: Sequence[Any]) -> None:
        self._data = data
        self._known = fingerprint(data)

    def check(self, permit: str) -> None:
        """Refuse to go on if they are not the same any more."""
        if fingerprint(self._data) != self._known:
            raise DataChanged(
                f"the data changed while permit {permit} was in use: what one permit releases must come from "
                "the data at one moment. Copy them before, or ask anew for what they are now"
            )


def fingerprint(data: Any) -> Any:
    """What tells data from changed data: shapes, where they lie, and a checksum of their bytes.

    Not of a cryptographic kind: it is for changes by mistake, and cheap beside a pass over the data.
    Data that are of no known kind count by their type and length alone.
    """
    underlying = getattr(data, "watched", None)
    if underlying is not None:
        return fingerprint(underlying())
    if isinstance(data, np.ndarray):
        return data.shape, data.dtype.str, data.ctypes.data, _checksum(data)
    if isinstance(data, list | tuple):
        return len(data), tuple(fingerprint(item) for item in data[:_MOST_ITEMS])
    if all(hasattr(data, name) for name in _SPARSE):
        return data.shape, tuple(fingerprint(getattr(data, name)) for name in _SPARSE)
    if hasattr(data, "_version") and hasattr(data, "data_ptr"):  # a tensor counts its changes in place
        return tuple(data.shape), data.data_ptr(), data._version
    if isinstance(data, bool | int | float | str | bytes | None):
        return data
    return type(data).__name__, len(data) if hasattr(data, "__len__") else id(data)


def _checksum(array: Any) -> Any:
    """Of an array's bytes in their order; of objects, which they are."""
    if array.dtype.hasobject:
        return tuple(id(item) for item in array.ravel()[:_MOST_ITEMS])
    every = -(-array.nbytes // _MOST_BYTES) if array.ndim else 1
    rows = np.ascontiguousarray(array[::every] if every > 1 else array)
    return zlib.crc32(rows.reshape(-1).view(np.uint8).data)
