"""Closes reservations, for both clients."""

import warnings

from dpledger_client._calls import Answer
from dpledger_client._models import as_settlement
from dpledger_client.errors import NoAnswer, ReservationClosed, UnsettledWarning
from dpledger_client.permits import Hold

__all__ = ["record_failed_settlement", "record_settlement"]


def record_settlement(hold: Hold, answer: Answer) -> None:
    """Keep how a reservation was settled."""
    hold.settlement = as_settlement(answer.body)


def record_failed_settlement(hold: Hold, error: Exception, cause: BaseException | None) -> None:
    """Judge a settlement that failed.

    Where the work itself failed, ``cause`` is what counts, and this is a note to it. Otherwise: an
    expired reservation is charged in full, which covers what was used; one that could not be reached will
    be, once it expires, which is worth a warning; anything else should not happen and is raised.
    """
    if cause is not None:
        cause.add_note(f"reservation {hold.granted.id} was not settled: {error}")
    elif isinstance(error, NoAnswer):
        warnings.warn(_describe_open_hold(hold, error), UnsettledWarning, stacklevel=3)
    elif not (isinstance(error, ReservationClosed) and error.how == "expired"):
        raise error


def _describe_open_hold(hold: Hold, error: NoAnswer) -> str:
    granted = hold.granted
    return (
        f"reservation {granted.id} could not be settled ({error}); all {granted.times} repetitions "
        f"will be charged at {granted.expires_at}, {hold.used} were used"
    )
