"""Repeats a transaction that the database rolled back."""

import random
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

__all__ = ["ATTEMPTS", "Transactional", "run_in_transaction"]

ATTEMPTS = 8
_FIRST_PAUSE_SECONDS = 0.005
_LONGEST_PAUSE_SECONDS = 0.2

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")
R = TypeVar("R")


class Transactional(Protocol[T_co]):
    """What can open a transaction and knows which of its errors are passing."""

    def begin(self) -> AbstractContextManager[T_co]:
        """A transaction: commits at the end of the block, rolls back on an exception."""
        ...

    def is_transient(self, error: BaseException) -> bool:
        """Whether the transaction was rolled back for a reason that may be gone."""
        ...


def _pause(longest_seconds: float) -> None:
    """Wait for a random time, so that those who lost against each other do not meet again."""
    time.sleep(random.uniform(0.0, longest_seconds))


def run_in_transaction(
    storage: Transactional[T],
    work: Callable[[T], R],
    attempts: int = ATTEMPTS,
    pause: Callable[[float], None] = _pause,
) -> R:
    """Run ``work`` in one transaction and commit it, at most ``attempts`` times.

    Only what the database says it has rolled back is run again, after a random pause that grows. An
    unknown outcome never is: a connection lost during COMMIT may have committed.
    """
    for attempt in range(1, attempts):
        try:
            return _once(storage, work)
        except Exception as error:
            if not storage.is_transient(error):
                raise
        pause(min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2**attempt))
    return _once(storage, work)


def _once(storage: Transactional[T], work: Callable[[T], R]) -> R:
    with storage.begin() as transaction:
        return work(transaction)
