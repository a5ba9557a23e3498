"""High-water marks: how far each ledger is known to have come, kept outside of its database.

A hash chain shows that entries were altered, not that the newest ones are gone: an older copy of a
database is a valid ledger. So the service remembers, for each dataset, the last entry that it saw
committed, in memory and in a file, and refuses to write to a ledger that no longer holds that entry.

A mark is raised only after its entry was committed. It may lag behind the ledger, where the process
is killed before it was saved, but it never claims an entry that there was not.
"""

import logging
import threading
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from dpledger.ledger.errors import Unavailable
from dpledger.ledger.model.state import LedgerState

__all__ = ["LAG_SECONDS", "HighWaterMarks", "Mark", "MarkStore", "mark_of"]

logger = logging.getLogger(__name__)
LAG_SECONDS = 0.2
"""How long a mark may be in memory alone: saving is in nobody's way, and once for many commits."""


class Mark(NamedTuple):
    """The last entry that was seen of a ledger: its sequence number and its hash."""

    sequence: int
    head: bytes


def mark_of(state: LedgerState) -> Mark:
    """The mark of a state as it stands."""
    return Mark(state.sequence, state.head)


class MarkStore(Protocol):
    """Where marks survive the process."""

    def get(self, name: str) -> Mark | None:
        """The mark of a dataset; raises Unavailable."""
        ...

    def advance(self, marks: Mapping[str, Mark]) -> None:
        """Save marks, durably, where they are further than what is there."""
        ...

    def replace(self, name: str, lost: Mark, mark: Mark) -> None:
        """Save a mark in the place of one that was given up; raises Unavailable."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


class HighWaterMarks:
    """The marks of one process, saved by a thread of their own where there is a store.

    Any thread may use them. A dataset's mark is read from the store when it is first asked for.
    """

    def __init__(self, store: MarkStore | None = None) -> None:
        self._store = store
        self._marks: dict[str, Mark] = {}
        self._unsaved: dict[str, Mark] = {}
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        if store is not None:
            self._thread = threading.Thread(target=self._save_now_and_then, name="marks", daemon=True)
            self._thread.start()

    @property
    def unsaved(self) -> int:
        """How many datasets have a mark that is not saved yet."""
        return len(self._unsaved)

    def get(self, name: str) -> Mark | None:
        """The mark of a dataset, or None where it was never seen."""
        found = self._marks.get(name)
        return self.reread(name) if found is None else found

    def reread(self, name: str) -> Mark | None:
        """The furthest mark that this process or another one with the same store has set."""
        try:
            saved = None if self._store is None else self._store.get(name)
        except Unavailable:
            if name not in self._marks:
                raise
            saved = None
        with self._changed:
            known = self._marks.get(name)
            if saved is not None and (known is None or saved.sequence > known.sequence):
                known = self._marks[name] = saved
            return known

    def advance(self, states: Iterable[LedgerState]) -> None:
        """Raise the marks of ledgers whose states were committed."""
        with self._changed:
            for state in states:
                known = self._marks.get(state.name)
                if known is None or state.sequence > known.sequence:
                    self._marks[state.name] = mark = Mark(state.sequence, state.head)
                    if self._store is not None:
                        self._unsaved[state.name] = mark
            self._changed.notify()

    def replace(self, name: str, lost: Mark, mark: Mark) -> None:
        """Set a mark back, once it was accepted that ``lost`` is gone."""
        if self._store is not None:
            self._store.replace(name, lost, mark)
        with self._changed:
            if self._marks.get(name) == lost:
                self._marks[name] = mark
                self._unsaved.pop(name, None)

    def save(self) -> None:
        """Save what is in memory alone."""
        with self._changed:
            unsaved = dict(self._unsaved)
        if self._store is None or not unsaved:
            return
        self._store.advance(unsaved)
        with self._changed:
            for name, mark in unsaved.items():
                if self._unsaved.get(name) == mark:
                    del self._unsaved[name]

    def close(self) -> None:
        """Save everything and stop."""
        self._stopping.set()
        with self._changed:
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
        self._save_or_log()
        if self._store is not None:
            self._store.close()

    def _save_now_and_then(self) -> None:
        while not self._stopping.is_set():
            with self._changed:
                while not (self._unsaved or self._stopping.is_set()):
                    self._changed.wait()
            self._stopping.wait(LAG_SECONDS)
            self._save_or_log()

    def _save_or_log(self) -> None:
        try:
            self.save()
        except Exception:  # the ledger itself is on disk; a mark that lags refuses nothing wrongly
            logger.exception("high-water marks could not be saved")
