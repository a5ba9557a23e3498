"""Retry policy, and the log messages while a request waits."""

import asyncio
import logging
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass

from dpledger_client._checks import check_count, check_non_negative
from dpledger_client.errors import NoAnswer

__all__ = ["Retries", "Waiting"]

_LOG = logging.getLogger("dpledger_client")
"""Without a handler of the caller's own, warnings appear on stderr."""
_FIRST_WORD_SECONDS = 1.0
_NEXT_WORD_SECONDS = 30.0
_MOST_DOUBLINGS = 60


@dataclass(frozen=True)
class Retries:
    """How often and how long to try again when no answer came.

    A request that changes something carries an idempotency key and keeps it, so asking again is safe
    whatever became of the first. Pauses double and are drawn at random below their limit, so that many
    workers do not come back at once; a service that says how long it needs is given that time.

    Attributes
    ----------
    attempts
        How often it is asked at most; None: as often as ``patience_seconds`` allows.
    first_pause_seconds, longest_pause_seconds
        The limits below which pauses are drawn.
    patience_seconds
        For how long it is asked again. Longer than a restart of the service takes, or a fail-over of its
        database: a job that gives up earlier loses its work.
    """

    attempts: int | None = None
    first_pause_seconds: float = 0.1
    longest_pause_seconds: float = 5.0
    patience_seconds: float = 300.0

    def __post_init__(self) -> None:
        if self.attempts is not None:
            check_count("attempts", self.attempts)
        check_non_negative("first_pause_seconds", self.first_pause_seconds)
        check_non_negative("longest_pause_seconds", self.longest_pause_seconds)
        check_non_negative("patience_seconds", self.patience_seconds)

    def pauses(self) -> Iterator[float]:
        """How long to pause before each further attempt; ends where patience does."""
        began, paused, attempt = time.monotonic(), 0.0, 1
        while self.attempts is None or attempt < self.attempts:
            left = self.patience_seconds - max(paused, time.monotonic() - began)
            if left <= 0.0:
                return
            doubled = self.first_pause_seconds * 2.0 ** min(attempt - 1, _MOST_DOUBLINGS)
            longest = min(self.longest_pause_seconds, doubled)
            pause = min(left, random.uniform(0.0, longest))  # spreads retries  # nosec B311
            yield pause
            paused += pause
            attempt += 1

    def wait(self, seconds: float) -> None:
        """Let time pass before the next attempt."""
        time.sleep(seconds)

    async def wait_async(self, seconds: float) -> None:
        """The same while others run."""
        await asyncio.sleep(seconds)


class Waiting:
    """One request that has no answer yet: the pauses before it is asked again, and word of the wait.

    Word is given when a second has passed, and then every half minute: a restart of the service is not
    an error, but a job that stands still should say why.
    """

    def __init__(self, retries: Retries, where: str, what: str) -> None:
        self._pauses = retries.pauses()
        self._patience = retries.patience_seconds
        self._where = where
        self._what = what
        self._began = time.monotonic()
        self._paused = 0.0
        self._asked = 1
        self._next_word = _FIRST_WORD_SECONDS

    def pause(self, error: NoAnswer, after_seconds: float) -> float:
        """How long to pause before the next attempt; raises ``error`` where patience ends."""
        pause = next(self._pauses, None)
        if pause is None:
            error.add_note(f"asked {self._asked} times within {self._seconds:.0f} s")
            raise error
        pause = max(pause, after_seconds)
        if self._seconds + pause >= self._next_word:
            self._next_word = self._seconds + pause + _NEXT_WORD_SECONDS
            self._say(error)
        self._paused += pause
        self._asked += 1
        return pause

    def _say(self, error: NoAnswer) -> None:
        _LOG.warning(
            "waiting for %s: no answer to %s for %.0f s (%s); asking under the same key for up to %.0f s",
            self._where,
            self._what,
            self._seconds,
            error,
            self._patience,
        )

    def end(self) -> None:
        """An answer came."""
        if self._next_word > _FIRST_WORD_SECONDS:
            _LOG.warning("%s answered %s after %.0f s", self._where, self._what, self._seconds)

    @property
    def _seconds(self) -> float:
        return max(self._paused, time.monotonic() - self._began)
