"""Alerts as they are stored: noticed once, taken by one at a time, armed again."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from dpledger.storage.read_models.fractions import fractions_left
from dpledger.storage.repositories.alerts import AlertStore
from dpledger.storage.repository import SqlStorage
from tests.storage.ledgers import ZCDP, open_ledger

LIMIT = 100
LEFT = "UPDATE datasets SET left_basis_points = {left} WHERE name = '{name}'"


def leave(storage: SqlStorage, name: str, left: int) -> None:
    """As an entry does that leaves so many ten-thousandths."""
    with storage.database.engine.begin() as connection:
        connection.exec_driver_sql(LEFT.format(left=left, name=name))


@pytest.fixture
def store(storage: SqlStorage) -> AlertStore:
    for name in ("adult", "trips"):
        open_ledger(storage, name, ZCDP)
    return AlertStore(storage.database)


def test_a_threshold_is_passed_when_its_part_is_gone_and_not_before(
    storage: SqlStorage, store: AlertStore
) -> None:
    leave(storage, "adult", 2001)
    assert store.notice([8000], 5, LIMIT) == 0
    leave(storage, "adult", 2000)
    assert store.notice([8000], 6, LIMIT) == 1
    assert store.notice([8000], 7, LIMIT) == 0

    (alert,) = store.claim(7, 10, LIMIT)
    assert (alert.dataset, alert.threshold, alert.left_basis_points, alert.noticed_at_us) == (
        "adult",
        8000,
        2000,
        6,
    )
    assert (alert.sequence, alert.attempts) == (1, 0)


def test_one_that_is_taken_comes_back_when_its_lease_is_over(storage: SqlStorage, store: AlertStore) -> None:
    leave(storage, "adult", 0)
    store.notice([5000], 0, LIMIT)
    (alert,) = store.claim(0, 10, LIMIT)

    assert store.claim(9, 20, LIMIT) == []
    (again,) = store.claim(10, 20, LIMIT)
    assert (again.id, again.attempts) == (alert.id, 1)
    assert store.waiting() == 1


def test_of_many_who_take_at_once_one_gets_it(storage: SqlStorage, store: AlertStore) -> None:
    leave(storage, "adult", 0)
    leave(storage, "trips", 0)
    store.notice([5000], 0, LIMIT)

    with ThreadPoolExecutor(8) as pool:
        taken = [
            alert for found in pool.map(lambda _: store.claim(0, 100, LIMIT), range(8)) for alert in found
        ]

    assert sorted(alert.dataset for alert in taken) == ["adult", "trips"]


def test_what_was_told_is_not_taken_again(storage: SqlStorage, store: AlertStore) -> None:
    leave(storage, "adult", 0)
    store.notice([5000], 0, LIMIT)
    (alert,) = store.claim(0, 10, LIMIT)
    store.mark_delivered(alert, 5)

    assert store.claim(1000, 2000, LIMIT) == []
    assert store.waiting() == 0


def test_a_threshold_is_armed_again_only_after_delivery(storage: SqlStorage, store: AlertStore) -> None:
    leave(storage, "adult", 4000)
    store.notice([5000], 0, LIMIT)
    leave(storage, "adult", 9000)
    assert store.rearm() == 0
    (alert,) = store.claim(0, 10, LIMIT)
    store.mark_delivered(alert, 5)

    assert store.rearm() == 1
    leave(storage, "adult", 4000)
    assert store.notice([5000], 20, LIMIT) == 1
    (another,) = store.claim(20, 30, LIMIT)
    assert another.id != alert.id


def test_a_late_note_does_not_touch_the_alert_that_came_after(storage: SqlStorage, store: AlertStore) -> None:
    leave(storage, "adult", 4000)
    store.notice([5000], 0, LIMIT)
    (slow,) = store.claim(0, 10, LIMIT)
    (quick,) = store.claim(10, 20, LIMIT)
    store.mark_delivered(quick, 11)
    leave(storage, "adult", 9000)
    store.rearm()
    leave(storage, "adult", 4000)
    store.notice([5000], 12, LIMIT)

    store.mark_delivered(slow, 13)
    store.postpone(slow, 10_000)

    assert store.waiting() == 1
    assert len(store.claim(12, 30, LIMIT)) == 1


def test_no_more_are_noticed_at_once_than_wanted(storage: SqlStorage, store: AlertStore) -> None:
    leave(storage, "adult", 0)
    leave(storage, "trips", 0)

    assert [store.notice([5000], 0, 1) for _ in range(3)] == [1, 1, 0]


def test_what_is_left_is_read_for_known_names(storage: SqlStorage, store: AlertStore) -> None:
    leave(storage, "adult", 1234)

    assert store.instance()
    assert fractions_left(storage.database, ["trips", "adult", "nobody"]) == {"adult": 0.1234, "trips": 1.0}
    assert fractions_left(storage.database, []) == {}
