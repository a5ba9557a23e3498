"""What is listed and shown: as last committed, page by page, without any lock."""

import math

import pytest
from sqlalchemy import text

from dpledger.accounting.rounding import Direction, add, scale
from dpledger.ledger.errors import NotFound, Unavailable
from dpledger.ledger.model.commands import Authorize, ChangeBudget, Expire, OpenPartitions, Reserve, Settle
from dpledger.ledger.model.entries import EntryKind
from dpledger.ledger.model.state import LedgerState
from dpledger.ledger.ports import EntryFilter, StoredEntry
from dpledger.storage import migrate
from dpledger.storage.repository import SqlStorage
from tests.storage.ledgers import ROOMY, charge, open_ledger, same_bits, spend, write

NAMES = ["Adult", "a_b", "a-b", "adult", "adult-2", "ax", "census%", "mnist", "é", "ümlaut", "中"]


def test_datasets_are_listed_in_the_same_order_everywhere(storage: SqlStorage) -> None:
    for name in reversed(NAMES):
        open_ledger(storage, name)
    listed: list[str] = []
    while page := storage.datasets(listed[-1] if listed else "", 3, None):
        listed += [row.state.name for row in page]
        assert len(page) <= 3

    assert listed == sorted(NAMES)


@pytest.mark.parametrize(
    ("search", "found"),
    [
        ("adult", ["Adult", "adult", "adult-2"]),
        ("ADULT-", ["adult-2"]),
        ("a_b", ["a_b"]),
        ("%", ["census%"]),
        ("what mnist", ["mnist"]),
        ("\\\\", []),
        ("", sorted(NAMES)),
    ],
)
def test_datasets_are_searched_by_part_of_name_or_description(
    storage: SqlStorage, search: str, found: list[str]
) -> None:
    for name in NAMES:
        open_ledger(storage, name)

    assert [row.state.name for row in storage.datasets("", 100, search)] == found


def test_an_unknown_dataset_is_not_found(storage: SqlStorage) -> None:
    with pytest.raises(NotFound):
        storage.dataset("nowhere")


def a_mixed_ledger(storage: SqlStorage) -> LedgerState:
    """Entries 2 to 13: all kinds, two runs, one partition."""
    open_ledger(storage)
    step = charge()
    with storage.begin() as transaction:
        state = transaction.lock(["adult"])["adult"]
        state = write(transaction, state, OpenPartitions(("p",)), ChangeBudget(ROOMY, "none"), at_us=10)
        part = transaction.partitions(state.dataset_id, ["p"])["p"]
        state = write(transaction, state, *[Authorize(step, "one")] * 3, at_us=20)
        state = write(transaction, state, *[Authorize(step, "two", part)] * 2, at_us=30)
        state = write(transaction, state, Reserve(step, "two", 9, 99), Reserve(step, "two", 9, 99), at_us=40)
        held = [transaction.reservation(state.dataset_id, state.sequence - n) for n in (1, 0)]
        state = write(transaction, state, Settle(held[0], 4), Expire(held[1]), at_us=50)
        return write(transaction, state, Authorize(charge(31.0), "one"), at_us=60)


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (EntryFilter(), list(range(1, 14))),
        (EntryFilter(after=4, limit=3), [5, 6, 7]),
        (EntryFilter(after=13), []),
        (EntryFilter(newest_first=True, limit=3), [13, 12, 11]),
        (EntryFilter(newest_first=True, limit=3, after=10), [9, 8, 7]),
        (EntryFilter(kind="authorized"), [4, 5, 6, 7, 8, 13]),
        (EntryFilter(kind="settled"), [11]),
        (EntryFilter(kind="reserved", newest_first=True), [10, 9]),
        (EntryFilter(run="one"), [4, 5, 6, 13]),
        (EntryFilter(run="two", kind="authorized"), [7, 8]),
        (EntryFilter(run="two", after=8, limit=2), [9, 10]),
        (EntryFilter(partition="p"), [7, 8]),
        (EntryFilter(partition="p", run="one"), []),
        (EntryFilter(run="three"), []),
        (EntryFilter(partition="q"), []),
        (EntryFilter(kind="nonsense"), []),
    ],
)
def test_entries_are_chosen(storage: SqlStorage, chosen: EntryFilter, expected: list[int]) -> None:
    state = a_mixed_ledger(storage)

    assert [each.entry.sequence for each in storage.entries(state.dataset_id, chosen)] == expected


def test_entries_come_with_all_that_a_replay_needs(storage: SqlStorage) -> None:
    state = a_mixed_ledger(storage)

    stored = storage.entries(state.dataset_id, EntryFilter(limit=1000))

    assert all(each.entry.hash == each.hash for each in stored)
    assert stored[-1].hash == state.head
    for each in stored:
        charged = each.entry.kind in (EntryKind.AUTHORIZED, EntryKind.RESERVED)
        assert (each.charge is not None) == charged
        assert each.charge is None or each.charge.fingerprint == each.entry.charge


def tampered(storage: SqlStorage, change: str) -> list[StoredEntry]:
    """The entries after somebody changed the database by hand."""
    state = a_mixed_ledger(storage)
    storage.entries(state.dataset_id, EntryFilter())
    with storage.database.engine.begin() as connection:
        connection.execute(text(change))
    return storage.entries(state.dataset_id, EntryFilter())


def looks_whole(stored: list[StoredEntry]) -> bool:
    return all(
        each.entry.hash == each.hash
        and (each.charge.fingerprint if each.charge is not None else None) == each.entry.charge
        for each in stored
    )


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE entries SET at_us = at_us - 1 WHERE sequence = 5",
        "UPDATE entries SET run = 2 WHERE sequence = 5",
        "UPDATE entries SET charge = 2 WHERE sequence = 5",
        "UPDATE entries SET used = 3 WHERE kind = 6",
        "UPDATE entries SET detail = '{}' WHERE kind = 2",
        "UPDATE runs SET name = 'other' WHERE number = 1",
        "UPDATE actors SET name = 'other'",
        "UPDATE charges SET purpose = 'other' WHERE number = 1",
        "UPDATE charges SET amounts = epsilons WHERE number = 1",
        "UPDATE charges SET step = replace(step, '30.0', '300.0') WHERE number = 1",
        "UPDATE charges SET step = 'no step' WHERE number = 1",
    ],
)
def test_what_was_changed_by_hand_shows(storage: SqlStorage, change: str) -> None:
    assert not looks_whole(tampered(storage, change))


def test_what_was_not_changed_does_not_show(storage: SqlStorage) -> None:
    assert looks_whole(tampered(storage, "UPDATE datasets SET description = 'other'"))


def test_runs_show_what_they_spent(storage: SqlStorage) -> None:
    state = a_mixed_ledger(storage)
    step, last, up = charge(), charge(31.0), Direction.UP

    one, two = storage.runs(state.dataset_id, "", 10)

    assert (one.name, one.entries, one.first_at_us, one.last_at_us) == ("one", 4, 20, 60)
    assert (two.name, two.entries, two.first_at_us, two.last_at_us) == ("two", 6, 30, 50)
    assert same_bits(one.amounts, add(scale(step.amounts, 3, up), last.amounts, up))
    used = 2 + 4 + 9
    for found, each in zip(two.amounts, step.amounts, strict=True):
        exact = math.fsum([each] * used)
        assert exact <= found <= exact * (1 + 1e-14)


def test_runs_are_listed_page_by_page(storage: SqlStorage) -> None:
    state = open_ledger(storage)
    names = sorted(f"run-{number}" for number in range(40))
    with storage.begin() as transaction:
        locked = transaction.lock(["adult"])["adult"]
        write(transaction, locked, *[Authorize(charge(), name) for name in names])

    listed: list[str] = []
    while page := storage.runs(state.dataset_id, listed[-1] if listed else "", 7):
        listed += [run.name for run in page]
    assert listed == names
    assert {run.entries for run in storage.runs(state.dataset_id, "", 100)} == {1}


def test_partitions_are_listed_page_by_page(storage: SqlStorage) -> None:
    names = [f"day-{number}" for number in range(25)]
    open_ledger(storage)
    with storage.begin() as transaction:
        state = write(transaction, transaction.lock(["adult"])["adult"], OpenPartitions(tuple(names)))

    pages = [storage.partitions(state.dataset_id, after, 10) for after in (-1, 9, 19, 24)]
    assert [len(page) for page in pages] == [10, 10, 5, 0]
    assert [each.name for page in pages for each in page] == names


def test_what_is_read_is_what_was_committed(storage: SqlStorage) -> None:
    open_ledger(storage)
    with storage.begin() as transaction:
        state = transaction.lock(["adult"])["adult"]
        write(transaction, state, Authorize(charge(), "r"))
        assert storage.dataset("adult").state.sequence == 1
        assert len(storage.entries(state.dataset_id, EntryFilter())) == 1
        assert storage.runs(state.dataset_id, "", 10) == []

    assert storage.dataset("adult").state.sequence == 2
    assert len(storage.entries(state.dataset_id, EntryFilter())) == 2


def test_a_look_is_one_snapshot(storage: SqlStorage) -> None:
    state = open_ledger(storage)
    with storage.database.read() as session:
        count = text("SELECT count(*) FROM entries")
        before = session.rows(count, {})
        spend(storage, "adult", 5)
        assert session.rows(count, {}) == before
    assert len(storage.entries(state.dataset_id, EntryFilter())) == 6


def test_a_look_cannot_write(storage: SqlStorage) -> None:
    open_ledger(storage)
    with pytest.raises(Unavailable), storage.database.read() as session:
        session.change(text("UPDATE datasets SET description = 'changed'"), {})
    assert storage.dataset("adult").description == "what adult holds"


def test_ready_says_where_the_schema_is(storage: SqlStorage, engine_kind: str) -> None:
    ready = storage.ready()

    schema = migrate.head_revision()
    assert ready == {"database": engine_kind, "schema": schema, "instance": ready["instance"]}
    assert len(ready["instance"]) == 32
