"""Thresholds that datasets have passed, and whether they were delivered.

A row says that a dataset was seen beyond a threshold. It is found by comparing with what each dataset
has left, as every entry stores it: no entry writes here, and nothing is missed by a process that was
not running. Whoever tells takes the row on lease; a lease that runs out is taken again.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BigInteger,
    Integer,
    SmallInteger,
    Text,
    bindparam,
    delete,
    exists,
    func,
    literal_column,
    select,
    text,
    update,
)

from dpledger.ledger.idempotency import run_in_transaction
from dpledger.storage.engine.session import Database, Row, Session
from dpledger.storage.read_models.fractions import WHOLE
from dpledger.storage.repositories.instance import instance_id
from dpledger.storage.tables import alerts, datasets

__all__ = ["Alert", "AlertStore"]


@dataclass(frozen=True)
class Alert:
    """A dataset that has passed a threshold, in ten-thousandths of its budget; ``id`` names it for ever."""

    dataset_id: int
    dataset: str
    threshold: int
    id: str
    sequence: int
    left_basis_points: int
    noticed_at_us: int
    due_at_us: int
    attempts: int


_SMALL, _BIG = SmallInteger(), BigInteger()
_its_row = (alerts.c.dataset_id == datasets.c.id) & (
    alerts.c.threshold == bindparam("threshold", type_=_SMALL)
)
_PASSED = (
    select(datasets.c.id, datasets.c.sequence, datasets.c.left_basis_points)
    .where(
        datasets.c.left_basis_points <= bindparam("most_left", type_=_SMALL),
        ~exists(select(alerts.c.id).where(_its_row)),
    )
    .order_by(datasets.c.left_basis_points, datasets.c.name)
    .limit(bindparam("limit", type_=Integer()))
)
# Both databases read this; Core has no word for it that the two dialects share.
_NOTICE = text(
    "INSERT INTO alerts (dataset_id, threshold, id, sequence, left_basis_points, noticed_at_us, due_at_us,"
    " attempts) VALUES (:dataset_id, :threshold, :id, :sequence, :left, :now_us, :now_us, 0)"
    " ON CONFLICT (dataset_id, threshold) DO NOTHING"
)
_has_more_again = exists(
    select(datasets.c.id).where(
        datasets.c.id == alerts.c.dataset_id,
        datasets.c.left_basis_points > literal_column(str(WHOLE)) - alerts.c.threshold,
    )
)
_told_and_over = alerts.c.delivered_at_us.is_not(None) & _has_more_again
_ANY_OVER = select(exists(select(alerts.c.id).where(_told_and_over)))
_REARM = delete(alerts).where(_told_and_over)
_DUE = (
    select(
        alerts.c.dataset_id,
        datasets.c.name,
        alerts.c.threshold,
        alerts.c.id,
        alerts.c.sequence,
        alerts.c.left_basis_points,
        alerts.c.noticed_at_us,
        alerts.c.due_at_us,
        alerts.c.attempts,
    )
    .join(datasets, datasets.c.id == alerts.c.dataset_id)
    .where(alerts.c.delivered_at_us.is_(None), alerts.c.due_at_us <= bindparam("now_us", type_=_BIG))
    .order_by(alerts.c.due_at_us)
    .limit(bindparam("limit", type_=Integer()))
)
_WAITING = select(func.count()).select_from(alerts).where(alerts.c.delivered_at_us.is_(None))
_this_one = (
    (alerts.c.dataset_id == bindparam("of", type_=_BIG))
    & (alerts.c.threshold == bindparam("at", type_=_SMALL))
    & (alerts.c.id == bindparam("named", type_=Text()))
    & alerts.c.delivered_at_us.is_(None)
)
_CLAIM = (
    update(alerts)
    .where(_this_one, alerts.c.due_at_us == bindparam("seen_us", type_=_BIG))
    .values(due_at_us=bindparam("until_us", type_=_BIG), attempts=alerts.c.attempts + literal_column("1"))
)
_POSTPONE = update(alerts).where(_this_one).values(due_at_us=bindparam("until_us", type_=_BIG))
_DELIVERED = update(alerts).where(_this_one).values(delivered_at_us=bindparam("now_us", type_=_BIG))


class AlertStore:
    """Notices, hands out and marks alerts; any number of processes may do so at once."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def instance(self) -> str:
        """The database's own id."""
        with self._database.read() as session:
            return instance_id(session)

    def notice(self, thresholds: Sequence[int], now_us: int, limit: int) -> int:
        """Keep an alert for each dataset newly beyond a threshold, at most ``limit`` for each threshold."""
        with self._database.read() as session:
            found = [row for each in thresholds for row in _find_passed(session, each, limit)]
        if not found:
            return 0
        rows = [{**row, "id": uuid.uuid4().hex, "now_us": now_us} for row in found]
        return self._change(_NOTICE, rows)

    def rearm(self) -> int:
        """Forget alerts that were delivered and whose datasets have more left again; says how many."""
        with self._database.read() as session:
            if not session.rows(_ANY_OVER, {})[0][0]:
                return 0
        return self._change(_REARM, [{}])

    def claim(self, now_us: int, until_us: int, limit: int) -> list[Alert]:
        """Take alerts that nobody is telling until ``until_us``; then another one may."""
        with self._database.read() as session:
            due = [Alert(*row) for row in session.rows(_DUE, {"now_us": now_us, "limit": limit})]
        return [each for each in due if self._change(_CLAIM, [_claim(each, until_us)]) == 1]

    def postpone(self, alert: Alert, until_us: int) -> None:
        """Let nobody tell it again before a time."""
        self._change(_POSTPONE, [{**_one(alert), "until_us": until_us}])

    def mark_delivered(self, alert: Alert, now_us: int) -> None:
        """Mark it as delivered."""
        self._change(_DELIVERED, [{**_one(alert), "now_us": now_us}])

    def waiting(self) -> int:
        """How many alerts are not delivered yet."""
        with self._database.read() as session:
            return int(session.rows(_WAITING, {})[0][0])

    def _change(self, statement: Any, rows: Sequence[dict[str, Any]]) -> int:
        return run_in_transaction(
            self._database, lambda session: sum(session.change(statement, row) for row in rows)
        )


def _find_passed(session: Session, threshold: int, limit: int) -> list[dict[str, Any]]:
    values = {"threshold": threshold, "most_left": WHOLE - threshold, "limit": limit}
    return [_alert_row(threshold, row) for row in session.rows(_PASSED, values)]


def _alert_row(threshold: int, row: Row) -> dict[str, Any]:
    dataset_id, sequence, left = row
    return {"dataset_id": dataset_id, "threshold": threshold, "sequence": sequence, "left": left}


def _one(alert: Alert) -> dict[str, Any]:
    return {"of": alert.dataset_id, "at": alert.threshold, "named": alert.id}


def _claim(alert: Alert, until_us: int) -> dict[str, Any]:
    return {**_one(alert), "seen_us": alert.due_at_us, "until_us": until_us}
