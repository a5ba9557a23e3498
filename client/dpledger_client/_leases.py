"""Lifetime of a hold: until its deadline, or until it is seen to be closed.

A settlement is a statement that nothing more was or will be released, and what it gives back is spent again.
The service takes it from the token that reserved, or from an admin who states on record that the job is
dead. A job that is not dead after all must notice, so the holder asks every ``CONFIRM_SECONDS``
whether its reservation is still open, and stops when it is not. A deadline is kept by this process' own
clock, from before the reservation was asked for, and with a margin, so that what was not used can still be
settled. What expired was charged in full.
"""

import math
import threading
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any

from dpledger_client.errors import DPLedgerError

__all__ = ["Lease"]

CONFIRM_SECONDS = 30.0
"""How old the last word that a reservation is open may be when it is used."""
_MARGIN = 0.02
_LONGEST_MARGIN_SECONDS = 10.0


class Lease:
    """Until when a reservation may be used, as far as this process knows.

    Parameters
    ----------
    asked_at
        When the reservation was asked for, on the clock of :func:`now`: it was open no earlier.
    seconds
        For how long.
    ask
        Asks the service for the reservation as it stands; None where somebody else does, for :meth:`note`.
    """

    def __init__(
        self, asked_at: float, seconds: float, ask: Callable[[], Mapping[str, Any]] | None = None
    ) -> None:
        self._confirmed_at = asked_at
        self._ends_at = _deadline(asked_at, seconds)
        self._ask = ask
        self._asking = threading.Lock()
        self.failure: DPLedgerError | OSError | None = None
        self.closed: str | None = None
        self.calm_until = 0.0
        self._calm()

    def _calm(self) -> None:
        """Work out until when nothing has to be asked or refused: a use then reads the clock alone."""
        if self.closed is not None or self.failure is not None:
            self.calm_until = -math.inf
        elif self._ask is None:
            self.calm_until = self._ends_at
        else:
            self.calm_until = min(self._ends_at, self._confirmed_at + CONFIRM_SECONDS)

    @property
    def over(self) -> bool:
        """Whether nothing more may be taken."""
        return self.closed is not None or monotonic() >= self._ends_at

    @property
    def reason(self) -> str:
        """Why it is over."""
        return "is past its deadline" if self.closed is None else f"was {self.closed} elsewhere"

    def doubt(self) -> None:
        """Count the last known state as old: the answer was one given before, perhaps long ago."""
        self._confirmed_at = -math.inf
        self._calm()

    def fail(self, error: DPLedgerError | OSError) -> None:
        """Note that somebody asked for the reservation and got no answer: it is not used until one comes."""
        self.failure = error
        self._calm()

    def confirm(self) -> None:
        """Ask whether the reservation is open, if no recent answer says so; raises where no answer comes."""
        if self.failure is not None:
            raise self.failure
        if self._ask is None or not self._stale or self.over:
            return
        with self._asking:
            if self._stale:
                asked_at = monotonic()
                self.note(asked_at, self._ask())

    @property
    def _stale(self) -> bool:
        return monotonic() - self._confirmed_at >= CONFIRM_SECONDS

    def note(self, asked_at: float, state: Mapping[str, Any]) -> None:
        """Take what the service said of the reservation, asked at that time."""
        self.failure = None
        self._confirmed_at = asked_at
        self._ends_at = min(self._ends_at, _deadline(asked_at, float(state["expires_in_seconds"])))
        if state["state"] != "open":
            self.closed = str(state["state"])
        self._calm()


def _deadline(asked_at: float, seconds: float) -> float:
    return asked_at + seconds - min(_MARGIN * seconds, _LONGEST_MARGIN_SECONDS)
