"""Answers kept under their keys, for what no entry answers by itself."""

import functools
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Select, select, text

from dpledger.ledger.errors import KeyInFlight
from dpledger.ledger.ports import Intent, StoredAnswer
from dpledger.storage.lists import listed, of_dataset, rows_listed
from dpledger.storage.session import Session
from dpledger.storage.tables import answers

__all__ = ["answers_to", "keep_answers"]

# Both databases read this; Core has no word for it that the two dialects share.
_KEEP = text(
    "INSERT INTO answers (dataset_id, key, actor, request, outcome, body)"
    " VALUES (:dataset_id, :key, :actor, :request, :outcome, :body) ON CONFLICT DO NOTHING"
)


@functools.cache
def _with_keys(size: int) -> Select[Any]:
    return select(answers.c.actor, answers.c.key, answers.c.request, answers.c.outcome, answers.c.body).where(
        of_dataset(answers.c.dataset_id), listed(answers.c.key, size)
    )


def answers_to(session: Session, dataset_id: int, intents: Sequence[Intent]) -> dict[Intent, StoredAnswer]:
    """The answers kept for these intents, matched by actor and key."""
    keys = [intent.key for intent in intents]
    rows = rows_listed(session, _with_keys, keys, dataset_id=dataset_id)
    by_key = {(actor, key): StoredAnswer(*kept) for actor, key, *kept in rows}
    return {i: by_key[i.actor, i.key] for i in intents if (i.actor, i.key) in by_key}


def keep_answers(session: Session, dataset_id: int, kept: Sequence[tuple[Intent, StoredAnswer]]) -> None:
    """Store answers; a key that another transaction took meanwhile is in flight there."""
    rows = [
        {
            "dataset_id": dataset_id,
            "key": intent.key,
            "actor": intent.actor,
            "request": answer.request,
            "outcome": answer.outcome,
            "body": answer.body,
        }
        for intent, answer in kept
    ]
    with session.all_or_nothing():
        if rows and session.change_each(_KEEP, rows) != len(rows):
            raise KeyInFlight
