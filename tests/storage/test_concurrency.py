"""Transactions that meet: who waits, who sees what, and what is left of one that is undone."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dpledger.ledger.decide import Granted, Stamp, decide
from dpledger.ledger.idempotency import run_in_transaction
from dpledger.ledger.model.commands import Authorize, ChangeBudget, OpenPartitions, Reserve
from dpledger.ledger.ports import EntryFilter, NewEntry, StoredAnswer
from dpledger.storage.engine.session import Database
from dpledger.storage.repository import SqlStorage, SqlTransaction
from dpledger.storage.tables import metadata
from tests.storage.ledgers import (
    ACTOR,
    ROOMY,
    ZCDP,
    call,
    charge,
    costing,
    new_dataset,
    open_in,
    open_ledger,
    same_bits,
    spend,
    write,
)

SECONDS = 60
SOON = 0.15
"""Long enough for a thread that does not wait to get through."""


def together(work: Callable[[int], Any], number: int) -> list[Any]:
    """Let threads do their work at the same moment."""
    barrier = threading.Barrier(number)

    def meet(index: int) -> Any:
        barrier.wait(SECONDS)
        return work(index)

    with ThreadPoolExecutor(number) as pool:
        futures = [pool.submit(meet, index) for index in range(number)]
        return [future.result(SECONDS) for future in futures]


def test_sixteen_requests_against_a_budget_of_one_grant_one(storage: SqlStorage) -> None:
    open_ledger(storage, budget=ZCDP)
    step = costing(0.3)
    replica = SqlStorage(storage.database.engine)

    def ask(index: int) -> bool:
        with (storage if index % 2 else replica).begin() as transaction:
            state = transaction.lock(["adult"])["adult"]
            outcome = decide(state, Authorize(step, f"run-{index}"), Stamp(index, ACTOR))
            if isinstance(outcome, Granted):
                transaction.keep_charge(state.dataset_id, step)
                transaction.append(state, outcome.state, [NewEntry(outcome.entry, call(index))])
            return isinstance(outcome, Granted)

    assert sum(together(ask, 16)) == 1
    stored = storage.dataset("adult").state
    assert stored.sequence == 2
    assert same_bits(stored.whole.spent, step.amounts)


def test_many_writers_leave_no_gap(storage: SqlStorage) -> None:
    state = open_ledger(storage)
    replica = SqlStorage(storage.database.engine)

    def ask(index: int) -> None:
        for turn in range(5):
            spend(
                storage if turn % 2 else replica, "adult", 1 + turn % 3, f"run-{index}", charge(20.0 + index)
            )

    together(ask, 4)

    stored = storage.entries(state.dataset_id, EntryFilter(limit=1000))
    assert [each.entry.sequence for each in stored] == list(range(1, 1 + 1 + 4 * 9))
    assert all(each.entry.hash == each.hash for each in stored)
    assert stored[-1].hash == storage.dataset("adult").state.head
    for each in stored[1:]:
        assert each.charge is not None
        assert each.charge.fingerprint == charge(20.0 + int(str(each.entry.run)[4:])).fingerprint
    assert [run.entries for run in storage.runs(state.dataset_id, "", 10)] == [9] * 4


def held_open(storage: SqlStorage, name: str, release: threading.Event, locked: threading.Event) -> None:
    """Lock a dataset, write to it, and commit only when asked to."""
    with storage.begin() as transaction:
        state = transaction.lock([name])[name]
        write(transaction, state, Authorize(charge(), "first"))
        locked.set()
        assert release.wait(SECONDS)


class Holder:
    """A thread that keeps a dataset locked while the block runs."""

    def __init__(self, storage: SqlStorage, name: str) -> None:
        self._release, self._locked = threading.Event(), threading.Event()
        self._pool = ThreadPoolExecutor(2)
        self._held = self._pool.submit(held_open, storage, name, self._release, self._locked)

    def __enter__(self) -> "Holder":
        assert self._locked.wait(SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self.let_go()
        self._pool.shutdown()

    def meanwhile(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        return self._pool.submit(work, *arguments)

    def let_go(self) -> None:
        self._release.set()
        self._held.result(SECONDS)


def test_a_second_writer_waits_and_then_sees_what_the_first_left(storage: SqlStorage) -> None:
    open_ledger(storage)
    with Holder(storage, "adult") as holder:
        second = holder.meanwhile(spend, storage, "adult", 1, "second")
        wait([second], SOON)
        assert not second.done()
        holder.let_go()
        assert second.result(SECONDS).sequence == 3

    runs = storage.runs(storage.dataset("adult").state.dataset_id, "", 10)
    assert [run.name for run in runs] == ["first", "second"]


def test_a_budget_changed_while_a_writer_waits_is_the_one_it_decides_on(storage: SqlStorage) -> None:
    open_ledger(storage)
    release, locked = threading.Event(), threading.Event()
    changed = replace(ROOMY, limits=ROOMY.limits * 2)

    def change() -> None:
        with storage.begin() as transaction:
            write(transaction, transaction.lock(["adult"])["adult"], ChangeBudget(changed, "more"))
            locked.set()
            assert release.wait(SECONDS)

    def read() -> str:
        with storage.begin() as transaction:
            return transaction.lock(["adult"])["adult"].budget.document

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(change)
        assert locked.wait(SECONDS)
        second = pool.submit(read)
        wait([second], SOON)
        assert not second.done()
        release.set()
        first.result(SECONDS)
        assert second.result(SECONDS) == changed.document


def test_nobody_who_reads_waits(storage: SqlStorage) -> None:
    open_ledger(storage)
    with Holder(storage, "adult") as holder:
        look = holder.meanwhile(storage.dataset, "adult")
        assert look.result(SECONDS).state.sequence == 1
    assert storage.dataset("adult").state.sequence == 2


def test_writers_of_different_datasets_wait_only_on_sqlite(storage: SqlStorage, engine_kind: str) -> None:
    open_ledger(storage)
    open_ledger(storage, "other")
    with Holder(storage, "adult") as holder:
        other = holder.meanwhile(spend, storage, "other", 1)
        wait([other], SECONDS if engine_kind == "postgresql" else SOON)
        assert other.done() == (engine_kind == "postgresql")
        holder.let_go()
        assert other.result(SECONDS).sequence == 2


def test_datasets_locked_together_never_deadlock(storage: SqlStorage) -> None:
    names = [f"set-{number}" for number in range(6)]
    for name in names:
        open_ledger(storage, name)

    def ask(index: int) -> None:
        mine = names[index:] + names[:index]
        for _ in range(5):
            with storage.begin() as transaction:
                for name, state in transaction.lock(mine).items():
                    write(transaction, state, Authorize(charge(), f"{name}-{index}"))

    together(ask, 4)

    assert {storage.dataset(name).state.sequence for name in names} == {1 + 4 * 5}


def test_a_deadlock_is_lost_by_one_who_then_runs_again(storage: SqlStorage) -> None:
    for name in ("a", "b"):
        open_ledger(storage, name)
    barrier = threading.Barrier(2)
    attempts = [0, 0]

    def ask(index: int) -> None:
        order = ("a", "b") if index else ("b", "a")

        def work(transaction: SqlTransaction) -> None:
            attempts[index] += 1
            first = transaction.lock(order[:1])[order[0]]
            if attempts[index] == 1 and storage.database.engine.dialect.name == "postgresql":
                barrier.wait(SECONDS)
            second = transaction.lock(order[1:])[order[1]]
            for state in (first, second):
                write(transaction, state, Authorize(charge(), f"run-{index}"))

        run_in_transaction(storage, work)

    together(ask, 2)

    assert {storage.dataset(name).state.sequence for name in ("a", "b")} == {3}
    lost = sum(attempts) - 2
    assert lost == (1 if storage.database.engine.dialect.name == "postgresql" else 0)


# What is undone --------------------------------------------------------------------------------------


class Undone(Exception):
    """Raised at the end of a transaction that must leave nothing."""


def undo(storage: SqlStorage, work: Callable[[SqlTransaction], Any]) -> None:
    def end_badly() -> None:
        with storage.begin() as transaction:
            work(transaction)
            raise Undone

    with pytest.raises(Undone):
        end_badly()


def contents(database: Database) -> dict[str, list[Any]]:
    with database.reading.connect() as connection:
        return {
            name: sorted(connection.execute(table.select()).fetchall(), key=repr)
            for name, table in metadata.tables.items()
        }


def test_what_is_undone_leaves_nothing(storage: SqlStorage) -> None:
    open_ledger(storage)
    spend(storage, "adult", 2)
    before = contents(storage.database)

    def work(transaction: SqlTransaction) -> None:
        state = transaction.lock(["adult"])["adult"]
        state = write(transaction, state, OpenPartitions(("p",)), ChangeBudget(ROOMY, "why"))
        write(transaction, state, Reserve(charge(99.0), "other", 3, 77), Authorize(charge(), "another"))
        transaction.keep_answers(0, [(call(5), StoredAnswer(b"r" * 16, "refused", "{}"))])
        open_in(transaction, new_dataset("another"))

    undo(storage, work)

    assert contents(storage.database) == before


def test_a_number_given_out_by_an_undone_transaction_is_not_remembered(storage: SqlStorage) -> None:
    """The next transaction gives the same numbers to another run, actor and charge."""
    state = open_ledger(storage)
    phantom, real = charge(40.0, "phantom"), charge(50.0, "real")

    def work(transaction: SqlTransaction) -> None:
        write(transaction, transaction.lock(["adult"])["adult"], Authorize(phantom, "phantom"))

    undo(storage, work)
    spend(storage, "adult", 1, "real", real)
    spend(storage, "adult", 1, "phantom", phantom)

    stored = storage.entries(state.dataset_id, EntryFilter(after=1))
    assert [each.entry.run for each in stored] == ["real", "phantom"]
    for each, expected in zip(stored, (real, phantom), strict=True):
        assert each.entry.hash == each.hash
        assert each.charge is not None
        assert each.charge.fingerprint == expected.fingerprint
    runs = {run.name: run.amounts for run in storage.runs(state.dataset_id, "", 10)}
    assert same_bits(runs["real"], real.amounts)
    assert same_bits(runs["phantom"], phantom.amounts)


def test_a_budget_of_an_undone_transaction_is_not_remembered(storage: SqlStorage) -> None:
    open_ledger(storage)
    changed = [replace(ROOMY, limits=ROOMY.limits * factor) for factor in (2.0, 3.0)]

    def change(budget: Any) -> Callable[[SqlTransaction], Any]:
        return lambda tx: write(tx, tx.lock(["adult"])["adult"], ChangeBudget(budget, "why"))

    undo(storage, lambda tx: (change(changed[0])(tx), tx.lock(["adult"])))
    run_in_transaction(storage, change(changed[1]))

    with storage.begin() as transaction:
        assert transaction.lock(["adult"])["adult"].budget.document == changed[1].document


def test_what_another_process_numbered_is_found(storage: SqlStorage) -> None:
    """Two processes remember different things; neither gives a number out twice."""
    state = open_ledger(storage)
    replica = SqlStorage(storage.database.engine)
    for turn, each in enumerate([storage, replica, replica, storage]):
        spend(each, "adult", 1, f"run-{turn % 3}", charge(30.0 + turn % 3))

    stored = storage.entries(state.dataset_id, EntryFilter(after=1))
    assert [each.entry.run for each in stored] == ["run-0", "run-1", "run-2", "run-0"]
    assert all(each.entry.hash == each.hash for each in stored)
    assert [run.entries for run in storage.runs(state.dataset_id, "", 10)] == [2, 1, 1]


def test_sums_that_another_process_added_to_are_read_again(storage: SqlStorage) -> None:
    """A process remembers the sums that it wrote last; they hold only until somebody else's entry."""
    state = open_ledger(storage)
    replica = SqlStorage(storage.database.engine)
    step, exact = charge(), {"one": 0, "two": 0}
    turns = [(storage, "one", 2), (storage, "one", 1), (replica, "one", 3), (storage, "one", 1)]
    turns += [(storage, "one", 2), (replica, "two", 2), (replica, "two", 1), (storage, "one", 1)]
    for number, (each, run, times) in enumerate(turns):
        if number == 2:
            undo(each, lambda tx: write(tx, tx.lock(["adult"])["adult"], Authorize(step, "one")))
        spend(each, "adult", times, run, step)
        exact[run] += times

    found = {run.name: run for run in storage.runs(state.dataset_id, "", 10)}

    assert {name: run.entries for name, run in found.items()} == exact
    for name, times in exact.items():
        assert np.all(found[name].amounts >= times * step.amounts)
        np.testing.assert_allclose(found[name].amounts, times * step.amounts, rtol=1e-14)
