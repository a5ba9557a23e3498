"""Time as the ledger sees it; tests set their own."""

import datetime as dt
from typing import Protocol

from dpledger.ledger.model.entries import instant

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """Anything that tells the time in microseconds since the epoch."""

    def now_us(self) -> int:
        """Microseconds since the epoch, in UTC."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_us(self) -> int:
        """Microseconds since the epoch, in UTC."""
        return instant(dt.datetime.now(dt.UTC))
