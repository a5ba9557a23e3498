"""Classes of what a client meets: an answer that is final, one to ask again for, and silence.

Final: decided, or refused for what the request is; nothing changes by asking again. Transient: certainly not
decided, so that it may be asked again in any form. Ambiguous: perhaps decided, so that it must be asked again
under the same key. What is in no class is a fault of the service.
"""

import enum
import http.client
from dataclasses import dataclass

from tests.reliability.wire import Heard

__all__ = ["Class", "Met", "class_of_answer", "class_of_error"]


class Class(enum.Enum):
    """What a client may conclude."""

    FINAL = "final"
    TRANSIENT = "transient"
    AMBIGUOUS = "ambiguous"
    UNCLASSIFIED = "unclassified"


@dataclass(frozen=True)
class Met:
    """One thing that a client met on the way to its answer."""

    kind: Class
    what: str


_FINAL = {
    ("budget-exhausted", 409),
    ("reservation-closed", 409),
    ("allocation-in-use", 409),
    ("allocation-returned", 409),
    ("precondition-failed", 412),
}
_TRANSIENT = {
    ("idempotency-key-in-flight", 409),
    ("request-timeout", 408),
    ("too-many-connections", 503),
}
# A connection to the database that is lost during COMMIT may have committed.
_AMBIGUOUS = {("unavailable", 503)}


def class_of_answer(heard: Heard) -> Met:
    """The class of an answer over HTTP, by its problem and status together."""
    if heard.body is None:
        # Every answer has one: Python's reader takes a head that was cut for a whole one.
        return Met(Class.AMBIGUOUS, "answer cut in its head")
    if heard.status in (200, 201):
        return Met(Class.FINAL, "done")
    found = heard.problem or "no problem", heard.status
    for known, kind in ((_FINAL, Class.FINAL), (_TRANSIENT, Class.TRANSIENT), (_AMBIGUOUS, Class.AMBIGUOUS)):
        if found in known:
            return Met(kind, found[0])
    return Met(Class.UNCLASSIFIED, f"{found[1]} {found[0]}: {heard.body}")


def class_of_error(error: Exception, *, sent: bool) -> Met:
    """The class of an error of the connection; ``sent`` is whether any of the request may have left."""
    if isinstance(error, (OSError, http.client.HTTPException)):
        return Met(Class.AMBIGUOUS if sent else Class.TRANSIENT, type(error).__name__)
    return Met(Class.UNCLASSIFIED, repr(error))
