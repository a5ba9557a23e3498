"""A long ledger is as quick as a short one, and its entries stay small."""

import hashlib
import os
import re
from typing import Any

from sqlalchemy import Engine

from dpledger.ledger.model.commands import Authorize
from dpledger.ledger.model.entries import Charge
from dpledger.ledger.ports import IdempotentRequest, NewEntry
from dpledger.storage.engine.session import PostgresqlSession, Session, SqliteSession
from dpledger.storage.read_models.fractions import fractions_left
from dpledger.storage.repositories import entries, tokens
from dpledger.storage.repositories import idempotency as answers
from dpledger.storage.repository import SqlStorage
from tests.storage.ledgers import ACTOR, call, charge, decided, open_ledger

ENTRIES = 4_096
GROUP = 256
MOST_BYTES_PER_ENTRY = 400


def fill(storage: SqlStorage, step: Charge) -> int:
    """Authorize steps as the service does, each under a key of its own; returns the dataset's id."""
    state = open_ledger(storage)
    while state.sequence <= ENTRIES:
        with storage.begin() as transaction:
            before = transaction.lock(["adult"])["adult"]
            state, made = decided(
                transaction, before, [Authorize(step, "run-1")] * GROUP, 1_763_000_000_000_000
            )
            new = [NewEntry(entry, _call(entry.sequence), 1 / 3) for entry in made]
            transaction.append(before, state, new)
    return state.dataset_id


def _call(number: int) -> IdempotentRequest:
    raw = hashlib.sha256(str(number).encode()).digest()
    return IdempotentRequest(ACTOR, raw[:16], raw[16:])


def size_of(engine: Engine) -> int:
    """Bytes of the whole ledger: every table and index."""
    if engine.dialect.name == "sqlite":
        with engine.connect() as connection:
            raw: Any = connection.connection.driver_connection
            raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return os.path.getsize(str(engine.url.database))
    tables = (
        "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r' AND relname = 'entries'"
    )
    with engine.connect() as connection:
        return int(connection.exec_driver_sql(tables).scalar_one())


def test_an_entry_with_its_indexes_takes_few_bytes(storage: SqlStorage, engine: Engine) -> None:
    empty = size_of(engine)
    fill(storage, charge())

    assert (size_of(engine) - empty) / ENTRIES <= MOST_BYTES_PER_ENTRY


HOT = {
    "keys": (entries.select_answering(32), "ux_entries_key"),
    "answers": (answers.select_kept(32), "pk_answers|sqlite_autoindex_answers_1"),
    "tokens": (tokens.select_valid(2), "pk_tokens|sqlite_autoindex_tokens_1"),
}


def plan_of(session: Session, statement: Any) -> str:
    text = session.texts[statement]
    values = {"dataset_id": 1, "now_us": 1}
    each = [call(n).key for n in range(sum(name.startswith("each_") for name in text.names))]
    listed = [key.hex() for key in each] if "tokens" in text.sql else each
    explain = "EXPLAIN QUERY PLAN" if isinstance(session, SqliteSession) else "EXPLAIN"
    found = session._raw.execute(f"{explain} {text.sql}", text.positions(values, listed)).fetchall()
    return "\n".join(str(row[-1]) for row in found)


def test_a_decision_looks_things_up_by_their_own_index(storage: SqlStorage) -> None:
    """Also in a database so new that the planner knows nothing of it."""
    fill(storage, charge())

    with storage.begin() as transaction:
        plans = {name: plan_of(transaction._session, statement) for name, (statement, _) in HOT.items()}
    for name, (_, index) in HOT.items():
        assert re.search(rf"(Index\b.*|INDEX )({index})", plans[name]), plans[name]
        assert "Seq Scan" not in plans[name]
        assert "SCAN" not in plans[name]


def test_every_statement_is_compiled_once() -> None:
    for texts in (SqliteSession.texts, PostgresqlSession.texts):
        statement = entries.select_answering(4)
        assert texts[statement] is texts[entries.select_answering(4)]


def test_what_is_asked_again_and_again_is_compiled_once(storage: SqlStorage) -> None:
    """Compiled statements are kept for good, so one that is made anew each time would fill the memory."""
    open_ledger(storage)
    with storage.database.read() as session:
        kept = session.texts
    counts = set()
    for _ in range(3):
        fractions_left(storage.database, ["adult", "trips"])
        storage.datasets("", 10, "adult")
        counts.add(len(kept))

    assert len(counts) == 1
