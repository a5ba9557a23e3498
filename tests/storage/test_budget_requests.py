"""Requests for budget as they are stored, and the databases' own refusal of writers that know of none."""

from dataclasses import replace

import pytest

from dpledger.ledger.errors import RequestClosed
from dpledger.ledger.model.budget_request import BudgetRequest, RequestKind, RequestState
from dpledger.ledger.model.commands import RequestBudget
from dpledger.storage.engine.codec import Damaged
from dpledger.storage.repository import SqlStorage
from tests.storage.ledgers import open_ledger, spend, write

ASKED = '{"fraction":0.5,"reason":"more","team":"lab","window_seconds":null}'


def asked(sequence: int, actor: str = "ann", at_us: int = 5) -> BudgetRequest:
    return BudgetRequest(sequence, RequestKind.QUOTA, ASKED, actor, "lab", at_us)


def decided(request: BudgetRequest, state: RequestState) -> BudgetRequest:
    return replace(
        request, state=state, decided_at=9, decided_by="eve", decided_at_us=8, decision_reason="seen"
    )


def test_what_is_kept_comes_back_the_same(storage: SqlStorage) -> None:
    dataset_id = open_ledger(storage).dataset_id
    given = [asked(2), asked(3, "bob"), asked(4), asked(5)]
    with storage.begin() as transaction:
        transaction.lock(["adult"])
        transaction.save_budget_requests(dataset_id, given)
        assert transaction.count_open_requests(dataset_id, "ann") == (4, 3)
    closed = [decided(each, state) for each, state in zip(given[:3], list(RequestState)[1:], strict=True)]
    with storage.begin() as transaction:
        transaction.lock(["adult"])
        transaction.save_budget_requests(dataset_id, closed)
        assert [transaction.budget_request(dataset_id, number) for number in (2, 5)] == [closed[0], given[3]]
        assert transaction.count_open_requests(dataset_id, "bob") == (1, 0)
        assert transaction.budget_request(dataset_id, 6) is None

    assert storage.budget_requests(dataset_id, 0, 10) == [*closed, given[3]]
    assert storage.budget_requests(dataset_id, 2, 2) == [*closed[1:]]
    for state, kept in zip(list(RequestState)[1:], closed, strict=True):
        assert storage.budget_requests(dataset_id, 0, 10, state) == [kept]
    assert storage.budget_requests(dataset_id, 0, 10, RequestState.OPEN) == [given[3]]


def test_a_request_is_decided_once(storage: SqlStorage) -> None:
    dataset_id = open_ledger(storage).dataset_id
    with storage.begin() as transaction:
        transaction.lock(["adult"])
        transaction.save_budget_requests(dataset_id, [asked(2)])
        transaction.save_budget_requests(dataset_id, [decided(asked(2), RequestState.REJECTED)])
        with pytest.raises(RequestClosed):
            transaction.save_budget_requests(dataset_id, [decided(asked(2), RequestState.APPROVED)])


def test_open_ones_of_all_datasets_are_read_by_time(storage: SqlStorage) -> None:
    kept = {}
    for name, times in (("adult", (5, 9)), ("birds", (7,))):
        dataset_id = open_ledger(storage, name).dataset_id
        with storage.begin() as transaction:
            transaction.lock([name])
            kept[name] = [asked(2 + index, at_us=at_us) for index, at_us in enumerate(times)]
            transaction.save_budget_requests(dataset_id, kept[name])
    first, last = [("adult", each) for each in kept["adult"]]
    middle = ("birds", kept["birds"][0])
    assert storage.open_requests(10) == [first, middle, last]
    assert storage.open_requests(2, None, (5, "adult", 2)) == [middle, last]
    assert storage.open_requests(10, ["birds", "cats"]) == [middle]
    assert storage.open_requests(1, ["birds", "adult"]) == [first]


def test_a_request_that_cannot_be_read_is_damaged(storage: SqlStorage) -> None:
    dataset_id = open_ledger(storage).dataset_id
    with storage.begin() as transaction:
        transaction.lock(["adult"])
        transaction.save_budget_requests(dataset_id, [asked(2)])
    with storage.database.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE budget_requests SET kind = 'money'")
    with pytest.raises(Damaged, match="the request of entry 2"):
        storage.budget_requests(dataset_id, 0, 1)


def test_a_writer_that_knows_no_requests_cannot_write(storage: SqlStorage) -> None:
    """An older replica moves a dataset on without saying that it knows of requests."""
    open_ledger(storage)
    move = "UPDATE datasets SET sequence = sequence + 1"
    with storage.database.engine.begin() as connection:
        connection.exec_driver_sql(move)
        connection.exec_driver_sql("UPDATE datasets SET sequence = sequence - 1")
    with storage.begin() as transaction:
        state = transaction.lock(["adult"])["adult"]
        write(transaction, state, RequestBudget(RequestKind.QUOTA, ASKED))
    assert storage.dataset("adult").state.governed
    assert spend(storage, "adult", 1).sequence == 3

    with pytest.raises(Exception, match=r"(?i)check"), storage.database.engine.begin() as connection:
        connection.exec_driver_sql(move)
    assert storage.dataset("adult").state.sequence == 3
