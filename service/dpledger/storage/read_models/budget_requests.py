"""Reads which requests for budget are open, in one dataset and over all: what an admin has to decide."""

import functools
from collections.abc import Sequence
from typing import Any

from sqlalchemy import BigInteger, Integer, Select, Text, bindparam, select, tuple_

from dpledger.ledger.model.budget_request import BudgetRequest
from dpledger.storage.engine.session import Row, Session, in_list, select_in_list
from dpledger.storage.repositories.budget_requests import REQUEST, decode_request, is_open_request
from dpledger.storage.tables import budget_requests, datasets

__all__ = ["open_requests"]

_BY_TIME = budget_requests.c.at_us, datasets.c.name, budget_requests.c.sequence
_BEHIND = tuple_(*_BY_TIME) > tuple_(
    bindparam("at_us", type_=BigInteger),
    bindparam("name", type_=Text),
    bindparam("sequence", type_=BigInteger),
)
_OPEN: Select[Any] = (
    select(datasets.c.name, *REQUEST)
    .join(datasets, datasets.c.id == budget_requests.c.dataset_id)
    .where(is_open_request, _BEHIND)
    .order_by(*_BY_TIME)
    .limit(bindparam("limit", type_=Integer))
)


@functools.cache
def _open_among(size: int) -> Select[Any]:
    return _OPEN.where(in_list(datasets.c.name, size))


def open_requests(
    session: Session, limit: int, names: Sequence[str] | None, after: tuple[int, str, int] | None
) -> list[tuple[str, BudgetRequest]]:
    """Open requests by time, each with its dataset's name: of all datasets, or of some names.

    ``after`` is the time in microseconds, the dataset and the sequence number to start behind.
    """
    at_us, name, sequence = after or (-1, "", 0)
    values = {"at_us": at_us, "name": name, "sequence": sequence, "limit": limit}
    if names is None:
        rows = session.rows(_OPEN, values)
    else:
        rows = select_in_list(session, _open_among, names, **values) if names else []
    return sorted([_decode(row) for row in rows], key=_place)[:limit]


def _decode(row: Row) -> tuple[str, BudgetRequest]:
    return row[0], decode_request(row[1:])


def _place(found: tuple[str, BudgetRequest]) -> tuple[int, str, int]:
    name, request = found
    return request.at_us, name, request.sequence
