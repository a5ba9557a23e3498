"""Requests for budget: what a token may not do by itself, asked of an admin, who approves or rejects.

Statement: a request is decided at most once, and its approval carries out what was asked, to the letter: the
entry behind an approval has the very detail that the request has as ``asked``. Until then nothing is charged
and no total changes; what is carried out is decided like the same call of the admin who approves.
"""

import enum
import json
from dataclasses import dataclass, replace
from typing import Any

from dpledger.ledger.model.entries import Entry, EntryKind

__all__ = [
    "CARRIED_OUT_AS",
    "DECIDED_AS",
    "MAX_OPEN_REQUESTS",
    "MAX_OPEN_REQUESTS_PER_TOKEN",
    "BudgetRequest",
    "RequestKind",
    "RequestState",
    "decided_request",
    "is_carried_out_by",
    "request_of",
]

MAX_OPEN_REQUESTS = 1000
"""How many requests may be open in a dataset."""
MAX_OPEN_REQUESTS_PER_TOKEN = 20
"""How many of them may be of one token."""


class RequestKind(enum.Enum):
    """What is asked for."""

    ALLOCATION = "allocation"
    QUOTA = "quota"
    BUDGET = "budget"


class RequestState(enum.Enum):
    """What became of a request."""

    OPEN = "open"
    APPROVED = "approved"
    REJECTED = "rejected"
    WITHDRAWN = "withdrawn"


CARRIED_OUT_AS = {
    RequestKind.ALLOCATION: EntryKind.ALLOCATED,
    RequestKind.QUOTA: EntryKind.QUOTA_CHANGED,
    RequestKind.BUDGET: EntryKind.BUDGET_CHANGED,
}
"""The kind of entry that carries out each."""
DECIDED_AS = {
    RequestState.APPROVED: EntryKind.REQUEST_APPROVED,
    RequestState.REJECTED: EntryKind.REQUEST_REJECTED,
    RequestState.WITHDRAWN: EntryKind.REQUEST_WITHDRAWN,
}
_STATES = {kind: state for state, kind in DECIDED_AS.items()}


@dataclass(frozen=True)
class BudgetRequest:
    """A request by the entry that made it, and the entry that decided it.

    ``asked`` is the detail of the entry that would carry it out, ``actor`` the id of the token that asked and
    ``team`` its label. ``decided_at`` is the number of the entry that decided; an approval is followed by the
    entry that carries it out.
    """

    sequence: int
    kind: RequestKind
    asked: str
    actor: str
    team: str | None
    at_us: int
    state: RequestState = RequestState.OPEN
    decided_at: int | None = None
    decided_by: str | None = None
    decided_team: str | None = None
    decided_at_us: int | None = None
    decision_reason: str | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """What was asked, as the entry that carries it out records it."""
        asked: dict[str, Any] = json.loads(self.asked)
        return asked

    @property
    def reason(self) -> str:
        """Why it was asked."""
        return str(self.fields["reason"])

    @property
    def carried_out_at(self) -> int | None:
        """The number of the entry that carried it out."""
        done = self.state is RequestState.APPROVED and self.decided_at is not None
        return self.decided_at + 1 if done and self.decided_at is not None else None


def request_of(entry: Entry) -> BudgetRequest:
    """The request that an entry made."""
    detail = json.loads(entry.detail or "{}")
    asked = json.dumps(detail["asked"], sort_keys=True, separators=(",", ":"), allow_nan=False)
    return BudgetRequest(
        entry.sequence, RequestKind(detail["kind"]), asked, entry.actor, entry.team, entry.at_us
    )


def decided_request(request: BudgetRequest, entry: Entry) -> BudgetRequest:
    """A request after the entry that decided it."""
    return replace(
        request,
        state=_STATES[entry.kind],
        decided_at=entry.sequence,
        decided_by=entry.actor,
        decided_team=entry.team,
        decided_at_us=entry.at_us,
        decision_reason=json.loads(entry.detail or "{}").get("reason"),
    )


def is_carried_out_by(request: BudgetRequest, entry: Entry) -> bool:
    """Whether an entry is the one that an approval must be followed by."""
    same_moment = (request.decided_by, request.decided_at_us) == (entry.actor, entry.at_us)
    asked = (CARRIED_OUT_AS[request.kind], request.asked)
    return same_moment and asked == (entry.kind, entry.detail)
