"""Requests for budget, with what was decided of each."""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import (
    BigInteger,
    Integer,
    Select,
    SmallInteger,
    Text,
    bindparam,
    case,
    func,
    literal_column,
    select,
    update,
)
from sqlalchemy.sql.elements import ColumnElement

from dpledger.ledger.errors import RequestClosed
from dpledger.ledger.model.budget_request import BudgetRequest, RequestKind, RequestState
from dpledger.storage.engine.codec import OPEN, Damaged
from dpledger.storage.engine.session import Row, Session, of_dataset
from dpledger.storage.tables import IS_OPEN, budget_requests

__all__ = [
    "REQUEST",
    "budget_requests_page",
    "count_open_requests",
    "decode_request",
    "find_budget_request",
    "is_open_request",
    "save_budget_requests",
]

_STATE_CODES = {
    RequestState.OPEN: OPEN,
    RequestState.APPROVED: 1,
    RequestState.REJECTED: 2,
    RequestState.WITHDRAWN: 3,
}
"""What the numbers mean can never change: they are in every database."""
_STATES = {code: state for state, code in _STATE_CODES.items()}
is_open_request: ColumnElement[bool] = literal_column(f"budget_requests.{IS_OPEN}")
"""The condition that a request is open, in the words of the index of those."""
REQUEST = (
    budget_requests.c.sequence,
    budget_requests.c.kind,
    budget_requests.c.asked,
    budget_requests.c.actor,
    budget_requests.c.team,
    budget_requests.c.at_us,
    budget_requests.c.state,
    budget_requests.c.decided_at,
    budget_requests.c.decided_by,
    budget_requests.c.decided_team,
    budget_requests.c.decided_at_us,
    budget_requests.c.decision_reason,
)
_REQUESTS: Select[Any] = select(*REQUEST).where(of_dataset(budget_requests.c.dataset_id))
_THIS = budget_requests.c.sequence == bindparam("asked_at", type_=BigInteger)
_ONE = _REQUESTS.where(_THIS)
_PAGE = (
    _REQUESTS.where(budget_requests.c.sequence > bindparam("after", type_=BigInteger))
    .order_by(budget_requests.c.sequence)
    .limit(bindparam("limit", type_=Integer))
)
_PAGE_IN_STATE = _PAGE.where(budget_requests.c.state == bindparam("in_state", type_=SmallInteger))
_PAGE_OF_OPEN = _PAGE.where(is_open_request)
_OWN = case((budget_requests.c.actor == bindparam("actor", type_=Text), 1), else_=0)
_COUNTS = select(func.count(), func.coalesce(func.sum(_OWN), 0)).where(
    of_dataset(budget_requests.c.dataset_id), is_open_request
)
_DECIDE = (
    update(budget_requests)
    .where(of_dataset(budget_requests.c.dataset_id), _THIS, is_open_request)
    .values(
        state=bindparam("new_state", type_=SmallInteger),
        decided_at=bindparam("new_at", type_=BigInteger),
        decided_by=bindparam("new_by", type_=Text),
        decided_team=bindparam("new_team", type_=Text),
        decided_at_us=bindparam("new_at_us", type_=BigInteger),
        decision_reason=bindparam("new_reason", type_=Text),
    )
)


def find_budget_request(session: Session, dataset_id: int, sequence: int) -> BudgetRequest | None:
    """The request that an entry made, open or decided; None where it made none."""
    row = session.row(_ONE, {"dataset_id": dataset_id, "asked_at": sequence})
    return None if row is None else decode_request(row)


def budget_requests_page(
    session: Session, dataset_id: int, after: int, limit: int, state: RequestState | None
) -> list[BudgetRequest]:
    """Requests by the entries that made them, behind one; all, or those in one state."""
    values: dict[str, Any] = {"dataset_id": dataset_id, "after": after, "limit": limit}
    if state is RequestState.OPEN:
        rows = session.rows(_PAGE_OF_OPEN, values)
    elif state is None:
        rows = session.rows(_PAGE, values)
    else:
        rows = session.rows(_PAGE_IN_STATE, {**values, "in_state": _STATE_CODES[state]})
    return [decode_request(row) for row in rows]


def count_open_requests(session: Session, dataset_id: int, actor: str) -> tuple[int, int]:
    """How many requests are open, and how many of them a token made."""
    everybody, own = session.rows(_COUNTS, {"dataset_id": dataset_id, "actor": actor})[0]
    return int(everybody), int(own)


def save_budget_requests(session: Session, dataset_id: int, changed: Iterable[BudgetRequest]) -> None:
    """Insert open requests, and write what was decided of the others, once."""
    for request in changed:
        if request.state is RequestState.OPEN:
            session.insert(budget_requests, [_columns(dataset_id, request)])
        elif session.change(_DECIDE, _decision(dataset_id, request)) != 1:
            raise RequestClosed(str(request.sequence), "not open")


def decode_request(row: Row) -> BudgetRequest:
    """A request from its columns."""
    sequence, kind, asked, actor, team, at_us, state, *decision = row
    try:
        known = RequestKind(kind), _STATES[state]
    except (KeyError, ValueError) as error:
        raise Damaged(f"the request of entry {sequence} cannot be read: {error}") from error
    return BudgetRequest(sequence, known[0], asked, actor, team, at_us, known[1], *decision)


def _columns(dataset_id: int, request: BudgetRequest) -> Row:
    asked = dataset_id, request.sequence, request.at_us, request.kind.value, request.asked
    return (*asked, request.actor, request.team, OPEN, None, None, None, None, None)


def _decision(dataset_id: int, request: BudgetRequest) -> dict[str, Any]:
    return {
        "dataset_id": dataset_id,
        "asked_at": request.sequence,
        "new_state": _STATE_CODES[request.state],
        "new_at": request.decided_at,
        "new_by": request.decided_by,
        "new_team": request.decided_team,
        "new_at_us": request.decided_at_us,
        "new_reason": request.decision_reason,
    }
