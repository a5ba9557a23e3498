"""A lane for work that takes long: one at a time, giving way to authorizations between its parts.

All threads share one interpreter. Work in a lane stops after each millisecond for three while an
authorization is being decided, so that it costs others a millisecond here and there and never a queue.
"""

import functools
import time
from collections.abc import Callable
from typing import Any, TypeVar

import anyio
import anyio.to_thread

from dpledger.ledger.errors import Unavailable

__all__ = ["Lane"]

MOST_WAITING = 32
RUN_SECONDS = 0.001
PAUSE_SECONDS = 0.003
T = TypeVar("T")


class Lane:
    """Runs work in one thread at a time; refuses what would wait behind too many others."""

    def __init__(self, others_wait: Callable[[], bool]) -> None:
        self._others_wait = others_wait
        self._limiter = anyio.CapacityLimiter(1)
        self._resumed_at = 0.0
        self.waiting = 0
        self.deciding = 0

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run ``work(*arguments, pause)`` when it is its turn; it calls ``pause`` between its parts."""
        if self.waiting > MOST_WAITING:
            raise Unavailable(f"{self.waiting} lists are waiting")
        self.waiting += 1
        try:
            call = functools.partial(work, *arguments, self._pause)
            return await anyio.to_thread.run_sync(call, limiter=self._limiter)
        finally:
            self.waiting -= 1

    def _pause(self) -> None:
        """Let others run, if it has been a while; called by the one thread that works."""
        if time.perf_counter() - self._resumed_at < RUN_SECONDS:
            return
        time.sleep(PAUSE_SECONDS if self._others_wait() else 0.0)
        self._resumed_at = time.perf_counter()
