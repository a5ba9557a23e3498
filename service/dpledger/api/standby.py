"""Watches whether PostgreSQL has a synchronous standby, on which guarantee 1 rests across a fail-over."""

import asyncio
import logging

import anyio.to_thread

from dpledger.ledger.errors import Unavailable
from dpledger.logs import log_event
from dpledger.storage.engine.session import Database
from dpledger.storage.replication import Replication, read_replication

__all__ = ["StandbyWatch"]

logger = logging.getLogger(__name__)


class StandbyWatch:
    """Checks repeatedly: a standby goes away, and a promoted server waits for nobody at first."""

    def __init__(self, database: Database, required: bool) -> None:
        self._database = database
        self._required = required
        self._last: Replication | None = None

    async def watch(self, seconds: float) -> None:
        """Check every so many seconds, for ever; what changes is logged."""
        while True:
            try:
                await anyio.to_thread.run_sync(self.check)
            except Unavailable:
                self._last = None
            except Exception:  # whatever it is, the next check must not wait for a restart
                logger.exception("the standby could not be checked")
            await asyncio.sleep(seconds)

    def check(self) -> Replication:
        """Ask the server now; raises Unavailable."""
        found = read_replication(self._database)
        if self._last is None or self._last.problem != found.problem:
            if found.problem is not None:
                logger.warning("no synchronous standby", extra={"fields": {"reason": found.problem}})
            else:
                log_event("synchronous standby", standbys=found.synchronous)
        self._last = found
        return found

    def refuse_unready(self) -> None:
        """Raise Unavailable where a standby is required and commits do not wait for one now."""
        if self._required:
            problem = self.check().problem
            if problem is not None:
                raise Unavailable(f"a synchronous standby is required: {problem}")

    def gauge(self) -> dict[tuple[str, ...], float]:
        """How many standbys commits wait for, as last seen; nothing while the server is away."""
        last = self._last
        return {} if last is None else {(): last.synchronous if last.names else 0}
