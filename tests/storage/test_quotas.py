"""Quotas as they are stored, and the databases' own refusal of writers that do not know of them."""

from dataclasses import replace

import pytest

from dpledger.accounting.exact import Exact
from dpledger.ledger.model.commands import ChangeQuota
from dpledger.ledger.model.quota import Quota
from dpledger.storage.engine.codec import Damaged
from dpledger.storage.repositories import quotas as rows
from dpledger.storage.repository import SqlStorage
from tests.storage.ledgers import open_ledger, spend, write

SPENT = Exact((3, 0, 5, 7, 1), 2**70)


def kept(sequence: int, team: str = "lab", window: int | None = 60) -> Quota:
    slices = ((12, SPENT), (14, Exact.zero(5))) if window else ((0, SPENT),)
    return Quota(sequence, team, 0.1, window, slices, SPENT.times(2), 3, 99)


def test_what_is_kept_comes_back_the_same(storage: SqlStorage) -> None:
    dataset_id = open_ledger(storage).dataset_id
    given = [kept(2), kept(3, window=None), kept(4, "office")]
    with storage.begin() as transaction:
        transaction.lock(["adult"])
        transaction.save_quotas(dataset_id, given)
        changed = replace(given[0], fraction=0.7, slices=(), held=Exact.zero(5), open_reservations=0)
        transaction.save_quotas(dataset_id, [changed])
        assert [each.document for each in transaction.quotas(dataset_id, "lab")] == [
            changed.document,
            given[1].document,
        ]
        assert transaction.count_quotas(dataset_id) == 3
        transaction.save_quotas(dataset_id, [replace(changed, removed=True)])

    assert [each.sequence for each in storage.quotas(dataset_id, 0, 10)] == [3, 4]
    assert [each.sequence for each in storage.quotas(dataset_id, 3, 10)] == [4]
    assert [each.sequence for each in storage.quotas(dataset_id, 0, 1)] == [3]


def test_a_quota_that_cannot_be_read_is_damaged(storage: SqlStorage) -> None:
    dataset_id = open_ledger(storage).dataset_id
    with storage.begin() as transaction:
        transaction.lock(["adult"])
        transaction.save_quotas(dataset_id, [kept(2)])
    with storage.database.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE quotas SET slices = '[[1]]'")
    with pytest.raises(Damaged, match="the quota of entry 2"), storage.database.read() as session:
        rows.quotas_page(session, dataset_id, 0, 1)


def test_a_writer_that_knows_no_quotas_cannot_write(storage: SqlStorage) -> None:
    """An older replica moves a dataset on without saying that it looked at the quotas."""
    open_ledger(storage)
    move = "UPDATE datasets SET sequence = sequence + 1"
    with storage.database.engine.begin() as connection:
        connection.exec_driver_sql(move)
        connection.exec_driver_sql("UPDATE datasets SET sequence = sequence - 1")
    with storage.begin() as transaction:
        state = transaction.lock(["adult"])["adult"]
        write(transaction, state, ChangeQuota("lab", 0.5, None, "agreed"))
    assert storage.dataset("adult").state.has_quotas
    assert spend(storage, "adult", 1).sequence == 3

    with pytest.raises(Exception, match=r"(?i)check"), storage.database.engine.begin() as connection:
        connection.exec_driver_sql(move)
    assert storage.dataset("adult").state.sequence == 3
