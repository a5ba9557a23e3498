"""Quotas in force, with what counts of each."""

import json
from collections.abc import Iterable
from typing import Any

from sqlalchemy import (
    BigInteger,
    Double,
    Integer,
    Select,
    Text,
    bindparam,
    delete,
    func,
    select,
    update,
)

from dpledger.accounting.exact import Exact
from dpledger.ledger.model.quota import Quota
from dpledger.storage.engine.codec import Damaged
from dpledger.storage.engine.session import Row, Session, of_dataset
from dpledger.storage.tables import quotas

__all__ = ["count_quotas", "find_quotas", "quotas_page", "save_quotas"]

_QUOTA: Select[Any] = (
    select(
        quotas.c.sequence,
        quotas.c.team,
        quotas.c.fraction,
        quotas.c.window_seconds,
        quotas.c.slices,
        quotas.c.held,
        quotas.c.open_reservations,
        quotas.c.latest_us,
    )
    .where(of_dataset(quotas.c.dataset_id))
    .order_by(quotas.c.sequence)
)
_OF_TEAM = _QUOTA.where(quotas.c.team == bindparam("team", type_=Text))
_PAGE = _QUOTA.where(quotas.c.sequence > bindparam("after", type_=BigInteger)).limit(
    bindparam("limit", type_=Integer)
)
_COUNT = select(func.count()).select_from(quotas).where(of_dataset(quotas.c.dataset_id))
_THIS = of_dataset(quotas.c.dataset_id), quotas.c.sequence == bindparam("set_at", type_=BigInteger)
_SAVE = (
    update(quotas)
    .where(*_THIS)
    .values(
        fraction=bindparam("new_fraction", type_=Double),
        slices=bindparam("new_slices", type_=Text),
        held=bindparam("new_held", type_=Text),
        open_reservations=bindparam("new_open", type_=Integer),
        latest_us=bindparam("new_latest_us", type_=BigInteger),
    )
)
_FORGET = delete(quotas).where(*_THIS)


def find_quotas(session: Session, dataset_id: int, team: str) -> list[Quota]:
    """The quotas of a team by the entries that set them."""
    return [_decode(row) for row in session.rows(_OF_TEAM, {"dataset_id": dataset_id, "team": team})]


def quotas_page(session: Session, dataset_id: int, after: int, limit: int) -> list[Quota]:
    """Quotas by the entries that set them, behind one."""
    values = {"dataset_id": dataset_id, "after": after, "limit": limit}
    return [_decode(row) for row in session.rows(_PAGE, values)]


def count_quotas(session: Session, dataset_id: int) -> int:
    """How many quotas are in force."""
    return int(session.rows(_COUNT, {"dataset_id": dataset_id})[0][0])


def save_quotas(session: Session, dataset_id: int, changed: Iterable[Quota]) -> None:
    """Update quotas, insert those that are not there, and forget those that were removed."""
    for quota in changed:
        this = {"dataset_id": dataset_id, "set_at": quota.sequence}
        if quota.removed:
            session.change(_FORGET, this)
        elif session.change(_SAVE, {**this, **_changes(quota)}) != 1:
            session.insert(quotas, [_columns(dataset_id, quota)])


def _decode(row: Row) -> Quota:
    sequence, team, fraction, window_seconds, slices, held, open_reservations, latest_us = row
    try:
        spent = tuple((int(index), Exact.from_text(text)) for index, text in json.loads(slices))
        kept = spent, Exact.from_text(held)
    except (TypeError, ValueError) as error:
        raise Damaged(f"the quota of entry {sequence} cannot be read: {error}") from error
    return Quota(sequence, team, fraction, window_seconds, *kept, open_reservations, latest_us)


def _columns(dataset_id: int, quota: Quota) -> Row:
    limits = dataset_id, quota.sequence, quota.team, quota.fraction, quota.window_seconds
    return (*limits, _slices_text(quota), quota.held.text, quota.open_reservations, quota.latest_us)


def _changes(quota: Quota) -> dict[str, Any]:
    return {
        "new_fraction": quota.fraction,
        "new_slices": _slices_text(quota),
        "new_held": quota.held.text,
        "new_open": quota.open_reservations,
        "new_latest_us": quota.latest_us,
    }


def _slices_text(quota: Quota) -> str:
    return json.dumps([[index, spent.text] for index, spent in quota.slices], separators=(",", ":"))
