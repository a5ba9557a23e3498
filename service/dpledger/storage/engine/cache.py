"""A bounded cache shared by threads; the least recently used goes first."""

import threading
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from typing import Any

__all__ = ["Cache", "TransactionCache"]


class Cache:
    """Values by key, at most ``size`` of them."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[Hashable, Any] = OrderedDict()
        self._guard = threading.Lock()

    def get(self, key: Hashable) -> Any:
        """The value, or None."""
        with self._guard:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
            return value

    def update(self, values: Mapping[Hashable, Any]) -> None:
        """Remember these."""
        with self._guard:
            self._values.update(values)
            while len(self._values) > self._size:
                self._values.popitem(last=False)

    def clear(self) -> None:
        """Forget everything."""
        with self._guard:
            self._values.clear()


class TransactionCache:
    """What one transaction found or made, on top of what is known to be committed.

    A number given out by a transaction that then rolls back will be given to something else. So what
    a transaction learns stays with it, and joins the shared memory only by :meth:`publish`, which is
    called after its commit.
    """

    def __init__(self, shared: Cache) -> None:
        self._shared = shared
        self._own: dict[Hashable, Any] = {}

    def get(self, key: Hashable) -> Any:
        """What this transaction or an earlier one has noted, or None."""
        value = self._own.get(key)
        if value is None:
            value = self._shared.get(key)
            if value is not None:
                self._own[key] = value
        return value

    def note(self, key: Hashable, value: Any) -> None:
        """Keep for the rest of this transaction."""
        self._own[key] = value

    def publish(self) -> None:
        """Share what was noted; only ever after the commit."""
        if self._own:
            self._shared.update(self._own)
