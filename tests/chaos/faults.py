"""Faults: their names, how often each was made, and the one seed that draws them all."""

import random
import threading
from collections import Counter

__all__ = ["LINK_FAULTS", "REQUEST_FAULTS", "Tally", "stream"]

REQUEST_FAULTS = (
    "request lost",
    "answer lost",
    "request delayed",
    "answer delayed",
    "connection reset",
    "request cut",
    "answer cut",
    "request fragmented",
    "answer fragmented",
    "request duplicated",
)
"""What may happen to a request between a client and the service."""

LINK_FAULTS = ("link lost", "link delayed", "link reset", "link cut", "link fragmented", "link duplicated")
"""What may happen to a connection between the service and its database."""


class Tally:
    """Counts faults by kind, from any thread."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._guard = threading.Lock()

    def note(self, kind: str) -> None:
        """Count one more."""
        with self._guard:
            self._counts[kind] += 1

    def counts(self) -> dict[str, int]:
        """How many there were of each kind."""
        with self._guard:
            return dict(sorted(self._counts.items()))

    @property
    def total(self) -> int:
        """How many there were."""
        return sum(self.counts().values())


def stream(seed: int, *names: object) -> random.Random:
    """Random numbers that belong to one part of a run: the same for the same seed and names."""
    return random.Random(":".join(map(str, (seed, *names))))
