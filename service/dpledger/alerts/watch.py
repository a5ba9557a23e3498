"""Looks now and then for datasets beyond a threshold, and tells until somebody has taken it."""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

import anyio.to_thread

from dpledger.alerts.webhook import NotDelivered
from dpledger.ledger.clock import Clock
from dpledger.ledger.errors import Unavailable
from dpledger.storage.read_models.fractions import WHOLE
from dpledger.storage.repositories.alerts import Alert, AlertStore

__all__ = ["Watch", "pause_seconds"]

logger = logging.getLogger("dpledger.alerts")
LEASE_SECONDS = 60.0
"""How long one process has for telling one alert before another may; longer than any answer takes."""
FIRST_PAUSE_SECONDS = 5.0
LONGEST_PAUSE_SECONDS = 3600.0
AT_ONCE = 100
"""How many are noticed in one transaction: SQLite's authorizations wait for it."""


class Receiver(Protocol):
    """The receiver of alerts."""

    def deliver(self, alert: Alert, instance: str) -> None:
        """Tell one alert; raises NotDelivered."""
        ...


def pause_seconds(attempts: int, part: float = 1.0) -> float:
    """How long to wait after so many attempts: twice as long each time, of which a random part."""
    longest = FIRST_PAUSE_SECONDS * 2.0 ** min(max(attempts - 1, 0), 20)
    return min(LONGEST_PAUSE_SECONDS, longest) * (0.5 + 0.5 * part)


class Watch:
    """Compares, keeps and tells; if it dies at any point, what happened is delivered again."""

    def __init__(
        self, store: AlertStore, receiver: Receiver, thresholds: Sequence[float], clock: Clock
    ) -> None:
        self._store = store
        self._receiver = receiver
        self._thresholds = sorted({round(WHOLE * each) for each in thresholds})
        self._clock = clock
        self._instance = store.instance()
        self._stopping = asyncio.Event()
        self.outcomes: Counter[str] = Counter()

    def check(self) -> None:
        """One round: forget what is over, notice what is new, deliver what is due.

        A failure ends the round: whoever does not take one alert will hardly take the next.
        """
        self._store.rearm()
        self._store.notice(self._thresholds, self._clock.now_us(), AT_ONCE)
        reported = True
        while reported and not self._stopping.is_set():
            now_us = self._clock.now_us()
            claimed = self._store.claim(now_us, now_us + int(LEASE_SECONDS * 1e6), 1)
            reported = bool(claimed) and self._deliver(claimed[0])

    def _deliver(self, alert: Alert) -> bool:
        fields: dict[str, object] = {
            "alert": alert.id,
            "dataset": alert.dataset,
            "threshold": alert.threshold,
        }
        attempts = alert.attempts + 1
        try:
            self._receiver.deliver(alert, self._instance)
        except NotDelivered as error:
            pause = pause_seconds(attempts, random.random())  # spreads retries  # nosec B311
            self._store.postpone(alert, self._clock.now_us() + int(pause * 1e6))
            self.outcomes["failed"] += 1
            more = {"attempts": attempts, "reason": str(error), "again_in_seconds": round(pause)}
            logger.warning("alert not delivered", extra={"fields": fields | more})
            return False
        self._store.mark_delivered(alert, self._clock.now_us())
        self.outcomes["delivered"] += 1
        logger.info("alert delivered", extra={"fields": fields})
        return True

    @asynccontextmanager
    async def running(self, every_seconds: float) -> AsyncIterator[None]:
        """Check now and then while the block runs; a delivery under way is waited for."""
        task = asyncio.create_task(self._check_repeatedly(every_seconds))
        try:
            yield
        finally:
            self._stopping.set()
            await task

    async def _check_repeatedly(self, every_seconds: float) -> None:
        while not self._stopping.is_set():
            try:
                await anyio.to_thread.run_sync(self.check)
            except Unavailable as error:
                logger.info("alerts not checked", extra={"fields": {"reason": str(error)}})
            except Exception:  # whatever it is, what is passed later must not wait for a restart
                logger.exception("alerts not checked")
            await _passed_or_set(self._stopping, every_seconds)


async def _passed_or_set(event: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return
