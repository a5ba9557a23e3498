"""Answers kept under their idempotency keys, where no entry answers by itself."""

import functools
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Select, select, text

from dpledger.ledger.errors import KeyInFlight
from dpledger.ledger.ports import IdempotentRequest, StoredAnswer
from dpledger.storage.engine.session import Row, Session, in_list, of_dataset, select_in_list
from dpledger.storage.tables import answers

__all__ = ["answers_among", "answers_to", "keep_answers", "select_kept"]

# Both databases read this; Core has no word for it that the two dialects share.
_KEEP = text(
    "INSERT INTO answers (dataset_id, key, actor, request, outcome, body)"
    " VALUES (:dataset_id, :key, :actor, :request, :outcome, :body) ON CONFLICT DO NOTHING"
)


@functools.cache
def select_kept(size: int) -> Select[Any]:
    """The answers that are kept under keys."""
    return select(answers.c.actor, answers.c.key, answers.c.request, answers.c.outcome, answers.c.body).where(
        of_dataset(answers.c.dataset_id), in_list(answers.c.key, size)
    )


def answers_to(
    session: Session, dataset_id: int, calls: Sequence[IdempotentRequest]
) -> dict[IdempotentRequest, StoredAnswer]:
    """The answers kept for these requests, matched by actor and key."""
    rows = select_in_list(session, select_kept, [call.key for call in calls], dataset_id=dataset_id)
    return answers_among(calls, rows)


def answers_among(
    calls: Sequence[IdempotentRequest], rows: Sequence[Row]
) -> dict[IdempotentRequest, StoredAnswer]:
    """The answers found, by request."""
    by_key = {(actor, key): StoredAnswer(*kept) for actor, key, *kept in rows}
    return {i: by_key[i.actor, i.key] for i in calls if (i.actor, i.key) in by_key}


def keep_answers(
    session: Session, dataset_id: int, kept: Sequence[tuple[IdempotentRequest, StoredAnswer]]
) -> None:
    """Store answers; a key that another transaction took meanwhile is in flight there."""
    rows = [
        {
            "dataset_id": dataset_id,
            "key": call.key,
            "actor": call.actor,
            "request": answer.request,
            "outcome": answer.outcome,
            "body": answer.body,
        }
        for call, answer in kept
    ]
    with session.all_or_nothing():
        if rows and session.change_each(_KEEP, rows) != len(rows):
            raise KeyInFlight
