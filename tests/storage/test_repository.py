"""What a transaction writes is what every later one reads, on either database."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sqlalchemy import text

from dpledger.ledger.errors import AlreadyExists, KeyInFlight, NotFound, ReservationClosed
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.budget_request import DECIDED_AS, RequestKind, request_of
from dpledger.ledger.model.commands import (
    AcceptRollback,
    Authorize,
    ChangeBudget,
    ChangeQuota,
    ChangeRenewal,
    DecideRequest,
    Expire,
    OpenPartitions,
    RequestBudget,
    Reservation,
    Reserve,
    Settle,
)
from dpledger.ledger.model.entries import GENESIS, Entry, EntryKind
from dpledger.ledger.model.renewal import EpochOpening, Period
from dpledger.ledger.model.state import LedgerState, Partition, Totals
from dpledger.ledger.ports import EntryFilter, NewEntry, StoredAnswer
from dpledger.storage.engine.failures import Busy
from dpledger.storage.repositories.tokens import TokenRow, TokenStore
from dpledger.storage.repository import BrokenChain, NotLocked, SqlStorage
from tests.storage.ledgers import (
    ACTOR,
    ROOMY,
    ZCDP,
    call,
    charge,
    decided,
    new_dataset,
    open_ledger,
    same_bits,
    same_book,
    spend,
    write,
)


def relimited(budget: Budget, factor: float) -> Budget:
    return replace(budget, limits=budget.limits * factor)


def test_a_dataset_is_opened_empty_and_read_back(storage: SqlStorage) -> None:
    with storage.begin() as transaction:
        opened = transaction.open_dataset(new_dataset("adult", records=48_842, unit="user", at_us=77))

    with storage.begin() as transaction:
        locked = transaction.lock(["adult"])["adult"]
    assert same_book(locked, opened)
    assert (locked.sequence, locked.head, locked.partitions) == (0, GENESIS, 0)
    assert same_bits(locked.whole.spent, np.zeros(ROOMY.size))
    row = storage.dataset("adult")
    assert (row.description, row.unit, row.records) == ("what adult holds", "user", 48_842)
    assert (row.opened_at_us, row.changed_at_us) == (77, 77)


@pytest.mark.parametrize("budget", [ROOMY, ZCDP], ids=["rdp", "zcdp"])
def test_a_budget_is_read_back_bit_for_bit(storage: SqlStorage, budget: Budget) -> None:
    open_ledger(storage, budget=budget)

    stored = storage.dataset("adult").state.budget

    assert stored.document == budget.document
    assert same_bits(stored.limits, budget.limits)
    assert same_bits(stored.orders, budget.orders)


def test_a_name_that_is_taken_is_refused_and_the_transaction_goes_on(storage: SqlStorage) -> None:
    first = open_ledger(storage)
    with storage.begin() as transaction:
        with pytest.raises(AlreadyExists):
            transaction.open_dataset(new_dataset("adult", ZCDP))
        other = transaction.open_dataset(new_dataset("other"))

    assert storage.dataset("adult").state.dataset_id == first.dataset_id
    assert storage.dataset("other").state.dataset_id == other.dataset_id


def test_locking_an_unknown_dataset_is_not_found(storage: SqlStorage) -> None:
    open_ledger(storage)
    with pytest.raises(NotFound, match="nowhere"), storage.begin() as transaction:
        transaction.lock(["adult", "nowhere"])


def test_several_datasets_are_locked_at_once(storage: SqlStorage) -> None:
    states = {name: open_ledger(storage, name) for name in ("c", "a", "b", "é", "z")}

    with storage.begin() as transaction:
        locked = transaction.lock(["z", "a", "é", "a"])

    assert set(locked) == {"z", "a", "é"}
    assert all(same_book(locked[name], states[name]) for name in locked)


def test_entries_follow_on_each_other_over_transactions(storage: SqlStorage) -> None:
    state = open_ledger(storage)
    for times in (1, 3, 32, 2):
        after = spend(storage, "adult", times)
        assert after.sequence == state.sequence + times
        state = after

    assert same_book(storage.dataset("adult").state, state)
    with storage.begin() as transaction:
        dataset_id = transaction.lock(["adult"])["adult"].dataset_id
        stored = [transaction.entry(dataset_id, number) for number in range(1, state.sequence + 1)]
    head = GENESIS
    for each in stored:
        assert each.entry.previous == head
        assert each.entry.hash == each.hash
        head = each.hash
    assert head == state.head


def every_kind(storage: SqlStorage) -> list[NewEntry]:
    """One entry of every kind, with every field that it can have."""
    step = charge()
    new: list[NewEntry] = []

    def taken(transaction: Any, state: Any, command: Any, at_us: int) -> Any:
        after, (entry,) = decided(transaction, state, [command], at_us)
        new.append(NewEntry(entry, None, 0.1 + 0.2))
        transaction.append(state, after, new[-1:])
        return after

    with storage.begin() as transaction:
        state = transaction.lock(["adult"])["adult"]
        state = taken(transaction, state, ChangeBudget(relimited(ROOMY, 2.0), "more — “room”\n"), 10)
        state = taken(transaction, state, OpenPartitions(("p", "q"), relimited(ROOMY, 0.5)), 11)
        part = transaction.partitions(state.dataset_id, ["q"])["q"]
        state = taken(transaction, state, Authorize(step, "läuft", part, sample=2), 12)
        for close in (lambda held: Settle(held, 3), Expire):
            held_at = state.sequence + 1
            state = taken(transaction, state, Reserve(step, "run-2", 10**9, 2**53), 13)
            held = transaction.reservation(state.dataset_id, held_at)
            state = taken(transaction, state, close(held), 14)
        state = taken(transaction, state, AcceptRollback(99, "ab" * 32, "restored"), 15)
        state = taken(transaction, state, ChangeQuota("läb", 0.1 + 0.2, 60, "agreed"), 16)
        state = taken(transaction, state, ChangeRenewal(Period.MONTH, relimited(ROOMY, 0.5), "mönthly"), 17)
        epoch = EpochOpening(state.sequence, "dated")
        state = taken(transaction, state, OpenPartitions(("2026-12",), relimited(ROOMY, 0.5), epoch), 17)
        asked = '{"fraction":0.30000000000000004,"reason":"läb"}'
        for number, decision in enumerate(DECIDED_AS):
            state = taken(transaction, state, RequestBudget(RequestKind.QUOTA, asked), 17)
            request = request_of(new[-1].entry)
            state = taken(transaction, state, DecideRequest(request, decision, "—" * number or None), 18)
    return new


def test_every_kind_of_entry_is_read_back_as_it_was(storage: SqlStorage) -> None:
    state = open_ledger(storage)
    new = every_kind(storage)

    with storage.begin() as transaction:
        transaction.lock(["adult"])
        stored = [transaction.entry(state.dataset_id, each.entry.sequence) for each in new]

    of_shared_budgets = {EntryKind.ALLOCATED, EntryKind.ALLOCATION_RETURNED}  # in test_allocations
    assert {each.entry.kind for each in new} == set(EntryKind) - {EntryKind.OPENED} - of_shared_budgets
    assert [each.entry for each in stored] == [each.entry for each in new]
    assert [each.hash for each in stored] == [each.entry.hash for each in new]
    assert {each.fraction for each in stored} == {0.1 + 0.2}
    named = [each.partition_name for each in stored if each.entry.kind is EntryKind.AUTHORIZED]
    assert named == ["q"]


def test_an_entry_brings_its_charge(storage: SqlStorage) -> None:
    state = open_ledger(storage)
    step = charge(17.0, "line-search")
    after = spend(storage, "adult", 2, each=step)

    with storage.begin() as transaction:
        transaction.lock(["adult"])
        stored = transaction.entry(state.dataset_id, after.sequence).charge
        alone = transaction.charge(state.dataset_id, step.fingerprint)

    for found in (stored, alone):
        assert found is not None
        assert found.fingerprint == step.fingerprint
        assert found.cost_fields == step.cost_fields
        assert same_bits(found.amounts, step.amounts)


def test_what_is_not_there_is_not_found(storage: SqlStorage) -> None:
    state = open_ledger(storage)
    with storage.begin() as transaction:
        transaction.lock(["adult"])
        with pytest.raises(NotFound, match="adult~2"):
            transaction.entry(state.dataset_id, 2)
        with pytest.raises(NotFound, match="adult~9"):
            transaction.reservation(state.dataset_id, 9)
        with pytest.raises(NotFound, match="charge"):
            transaction.charge(state.dataset_id, b"f" * 32)
        with pytest.raises(NotFound, match="nobody"):
            transaction.partitions(state.dataset_id, ["nobody"])


def test_a_charge_is_kept_once(storage: SqlStorage) -> None:
    open_ledger(storage)
    step = charge()
    for _ in range(3):
        spend(storage, "adult", 2, each=charge())
    other = SqlStorage(storage.database.engine)
    spend(other, "adult", 1, each=step)

    with storage.database.engine.connect() as connection:
        kept = connection.exec_driver_sql("SELECT number, fingerprint FROM charges").fetchall()
    assert [(number, bytes(fingerprint)) for number, fingerprint in kept] == [(1, step.fingerprint)]


def test_an_entry_whose_charge_was_not_kept_is_refused(storage: SqlStorage) -> None:
    state = open_ledger(storage)
    entry = Entry(2, EntryKind.AUTHORIZED, 5, ACTOR, state.head, run="r", charge=b"c" * 32)
    with pytest.raises(NotFound, match="charge"):
        append(storage, state, replace(state, sequence=2, head=entry.hash), [NewEntry(entry)])
    assert same_book(storage.dataset("adult").state, state)


def append(storage: SqlStorage, before: LedgerState, after: LedgerState, entries: list[NewEntry]) -> None:
    with storage.begin() as transaction:
        transaction.lock([before.name])
        transaction.append(before, after, entries)


def broken_appends() -> list[Any]:
    """What must not be appended to a state at entry 1."""
    return [
        pytest.param(lambda b, e: (b, replace(b, sequence=2, head=e.hash), []), id="nothing"),
        pytest.param(lambda b, e: (b, b, [e]), id="not the state after"),
        pytest.param(lambda b, e: (b, replace(b, sequence=3, head=e.hash), [e]), id="another sequence"),
        pytest.param(lambda b, e: (b, replace(b, sequence=2, head=b.head), [e]), id="another head"),
        pytest.param(
            lambda b, e: (b, replace(b, sequence=3, head=e.hash), [replace(e, sequence=3)]), id="a gap"
        ),
        pytest.param(
            lambda b, e: (b, replace(b, sequence=2, head=e.hash), [replace(e, previous=b"x" * 32)]),
            id="another previous",
        ),
        pytest.param(
            lambda b, e: (
                b,
                replace(b, sequence=2, head=e.hash, budget=relimited(b.budget, 2.0)),
                [e],
            ),
            id="a budget from nowhere",
        ),
    ]


@pytest.mark.parametrize("broken", broken_appends())
def test_entries_that_break_the_chain_are_refused(storage: SqlStorage, broken: Any) -> None:
    state = open_ledger(storage)
    entry = Entry(2, EntryKind.AUTHORIZED, 5, ACTOR, state.head, run="r")
    before, after, entries = broken(state, entry)
    with pytest.raises(BrokenChain):
        append(storage, before, after, [NewEntry(each) for each in entries])
    assert same_book(storage.dataset("adult").state, state)


def test_a_key_of_another_actor_is_refused(storage: SqlStorage) -> None:
    state = open_ledger(storage)
    entry = Entry(2, EntryKind.AUTHORIZED, 5, ACTOR, state.head, run="r")
    new = NewEntry(entry, call(1, actor="somebody"))
    with pytest.raises(BrokenChain, match="actor"):
        append(storage, state, replace(state, sequence=2, head=entry.hash), [new])


def test_a_state_that_was_written_here_is_not_read_again(storage: SqlStorage) -> None:
    open_ledger(storage)
    spend(storage, "adult", 2)
    after = spend(storage, "adult", 1)

    with storage.begin() as transaction:
        assert transaction.lock(["adult"])["adult"] is after
    assert same_book(storage.dataset("adult").state, after)


@pytest.mark.parametrize(
    "change",
    ["spent = reserved", "open_reservations = 1", "guaranteed_since = 7", "partition_key = 'private'"],
)
def test_a_row_that_somebody_else_touched_is_read_anew(storage: SqlStorage, change: str) -> None:
    open_ledger(storage)
    after = spend(storage, "adult", 2)
    with storage.database.engine.begin() as connection:
        connection.execute(text(f"UPDATE datasets SET {change}"))

    with storage.begin() as transaction:
        locked = transaction.lock(["adult"])["adult"]
    stored = storage.dataset("adult").state
    assert same_book(locked, stored)
    assert locked.guaranteed_since == stored.guaranteed_since
    assert locked is not after


def test_a_state_that_was_rolled_back_is_forgotten(storage: SqlStorage) -> None:
    open_ledger(storage)
    before = spend(storage, "adult", 1)

    def write_and_fail() -> None:
        with storage.begin() as transaction:
            write(transaction, transaction.lock(["adult"])["adult"], Authorize(charge(), "run-1"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_and_fail()

    with storage.begin() as transaction:
        assert same_book(transaction.lock(["adult"])["adult"], before)


def test_nothing_is_written_to_a_dataset_that_is_not_locked(storage: SqlStorage) -> None:
    state = open_ledger(storage)
    entry = Entry(2, EntryKind.AUTHORIZED, 5, ACTOR, state.head, run="r")
    after = replace(state, sequence=2, head=entry.hash)
    with storage.begin() as transaction:
        for write_ in (
            lambda: transaction.append(state, after, [NewEntry(entry)]),
            lambda: transaction.keep_charge(state.dataset_id, charge()),
            lambda: transaction.save_partitions(state.dataset_id, []),
            lambda: transaction.reservation(state.dataset_id, 1),
        ):
            with pytest.raises(NotLocked):
                write_()


def test_a_book_that_moved_on_without_the_lock_is_noticed(storage: SqlStorage) -> None:
    state = open_ledger(storage)

    def write_behind_a_back() -> None:
        with storage.begin() as transaction:
            locked = transaction.lock(["adult"])["adult"]
            transaction._session.change(text("UPDATE datasets SET sequence = 7"), {})
            write(transaction, locked, Authorize(charge(), "r"))

    with pytest.raises(Busy, match="adult") as raised:
        write_behind_a_back()
    assert storage.is_transient(raised.value)
    assert storage.dataset("adult").state.sequence == 1
    assert storage.entries(state.dataset_id, EntryFilter(after=1)) == []


# Keys ------------------------------------------------------------------------------------------------


def append_for(storage: SqlStorage, *numbers: int) -> list[Entry]:
    """One authorization for each key."""
    step = charge()
    with storage.begin() as transaction:
        state = transaction.lock(["adult"])["adult"]
        after, entries = decided(transaction, state, [Authorize(step, "r")] * len(numbers))
        new = [NewEntry(e, call(n), n / 64) for e, n in zip(entries, numbers, strict=True)]
        transaction.append(state, after, new)
    return entries


def test_entries_answer_their_keys(storage: SqlStorage) -> None:
    state = open_ledger(storage)
    other = open_ledger(storage, "other")
    entries = append_for(storage, *range(40))
    asked = [call(n) for n in range(-300, 300)]
    changed = call(3, request=b"another request!")

    with storage.begin() as transaction:
        transaction.lock(["adult", "other"])
        found = transaction.known(state.dataset_id, [*asked, changed, call(3, actor="token-2")], 0).entries
        assert transaction.known(other.dataset_id, asked, 0).entries == {}
        assert transaction.known(state.dataset_id, [], 0).entries == {}

    assert set(found) == {*[call(n) for n in range(40)], changed}
    for number, entry in enumerate(entries):
        stored = found[call(number)]
        assert stored.entry == entry
        assert stored.request == b"r" * 16
        assert stored.fraction == number / 64
        assert stored.charge is not None
        assert stored.charge.fingerprint == entry.charge
    assert found[changed].request == b"r" * 16


def test_a_key_answers_once(storage: SqlStorage) -> None:
    open_ledger(storage)
    append_for(storage, 1)
    with pytest.raises(Exception, match=r"(?i)unique"):
        append_for(storage, 1)
    assert storage.dataset("adult").state.sequence == 2


@pytest.mark.parametrize("dataset_id", [0, 1])
def test_answers_are_kept_under_their_keys(storage: SqlStorage, dataset_id: int) -> None:
    open_ledger(storage)
    kept = {call(n): StoredAnswer(b"%016d" % n, "refused", f'{{"ε": {n}}}') for n in range(70)}
    with storage.begin() as transaction:
        transaction.keep_answers(dataset_id, list(kept.items()))
        transaction.keep_answers(dataset_id, [])

    with storage.begin() as transaction:
        asked = [*kept, call(-1), call(1, actor="token-2")]
        assert transaction.answers(dataset_id, asked) == kept
        assert transaction.answers(dataset_id + 1, asked) == {}


def test_a_key_that_is_taken_meanwhile_is_in_flight(storage: SqlStorage) -> None:
    answer = StoredAnswer(b"r" * 16, "granted", "{}")
    with storage.begin() as transaction:
        transaction.keep_answers(0, [(call(1), answer)])
    with pytest.raises(KeyInFlight), storage.begin() as transaction:
        transaction.keep_answers(0, [(call(2), answer), (call(1), replace(answer, outcome="refused"))])

    with storage.begin() as transaction:
        assert transaction.answers(0, [call(1), call(2)]) == {call(1): answer}


# Budgets ---------------------------------------------------------------------------------------------


def test_the_budget_in_force_at_an_entry(storage: SqlStorage) -> None:
    state = open_ledger(storage)
    half, double = relimited(ROOMY, 0.5), relimited(ROOMY, 2.0)
    with storage.begin() as transaction:
        state = transaction.lock(["adult"])["adult"]
        step = charge()
        state = write(
            transaction, state, ChangeBudget(half, "less"), Authorize(step, "r"), ChangeBudget(double, "more")
        )
        write(transaction, state, Authorize(step, "r"), ChangeBudget(half, "less again"))

    expected = [ROOMY, ROOMY, half, half, double, double, half, half]
    with storage.begin() as transaction:
        found = [transaction.budget_at(state.dataset_id, number) for number in range(8)]
    assert [each.document for each in found] == [each.document for each in expected]
    assert storage.dataset("adult").state.budget.document == half.document


def test_a_changed_budget_is_what_the_next_lock_reads(storage: SqlStorage) -> None:
    open_ledger(storage)
    changed = relimited(ROOMY, 3.0)
    with storage.begin() as transaction:
        after = write(transaction, transaction.lock(["adult"])["adult"], ChangeBudget(changed, "why"))

    with storage.begin() as transaction:
        assert same_book(transaction.lock(["adult"])["adult"], after)
    with SqlStorage(storage.database.engine).begin() as transaction:
        assert same_book(transaction.lock(["adult"])["adult"], after)


# Partitions ------------------------------------------------------------------------------------------


def test_partitions_are_read_back_bit_for_bit(storage: SqlStorage) -> None:
    state = open_ledger(storage, partition_key="private")
    own = relimited(ROOMY, 0.25)
    step = charge()
    with storage.begin() as transaction:
        state = transaction.lock(["adult"])["adult"]
        state = write(transaction, state, OpenPartitions(("p", "q")), OpenPartitions(("r",), own))
        parts = transaction.partitions(state.dataset_id, ["r", "p"])
        state = write(transaction, state, Authorize(step, "run", parts["r"]))
        state = write(transaction, state, Reserve(step, "run", 7, 10**15, parts["p"]))

    with storage.begin() as transaction:
        assert same_book(transaction.lock(["adult"])["adult"], state)
        found = transaction.partitions(state.dataset_id, ["p", "q", "r"])
        assert [each.name for each in transaction.all_partitions(state.dataset_id)] == ["p", "q", "r"]
    assert state.partitions == 3
    assert {name: each.number for name, each in found.items()} == {"p": 0, "q": 1, "r": 2}
    assert same_bits(found["r"].totals.spent, step.amounts)
    assert found["r"].budget is not None
    assert found["r"].budget.document == own.document
    assert found["p"].totals.open_reservations == 1
    assert same_bits(found["p"].totals.reserved, state.extremes.first)
    assert found["q"].budget is None
    assert same_bits(found["q"].totals.spent, np.zeros(ROOMY.size))


def test_ten_thousand_partitions_in_one_call(storage: SqlStorage) -> None:
    names = tuple(f"user-{number}" for number in range(10_000))
    open_ledger(storage)
    with storage.begin() as transaction:
        state = transaction.lock(["adult"])["adult"]
        state = write(transaction, state, OpenPartitions(names, relimited(ROOMY, 0.5)))

    with storage.begin() as transaction:
        transaction.lock(["adult"])
        numbered = list(transaction.all_partitions(state.dataset_id))
        chosen = transaction.partitions(state.dataset_id, names[::17])
    assert [each.name for each in numbered] == list(names)
    assert [each.number for each in numbered] == list(range(10_000))
    assert set(chosen) == set(names[::17])
    with storage.database.engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM budgets").scalar() == 2


@pytest.mark.parametrize("names", [("p",), ("q", "p"), ("q", "q")])
def test_a_partition_name_that_is_taken_is_refused(storage: SqlStorage, names: tuple[str, ...]) -> None:
    open_ledger(storage)
    with storage.begin() as transaction:
        state = write(transaction, transaction.lock(["adult"])["adult"], OpenPartitions(("p",)))

    fresh = [Partition(1 + n, name, None, Totals.zero(ROOMY.size)) for n, name in enumerate(names)]
    with storage.begin() as transaction:
        transaction.lock(["adult"])
        with pytest.raises(AlreadyExists):
            transaction.save_partitions(state.dataset_id, fresh)
    assert [each.name for each in storage.partitions(state.dataset_id, -1, 10)] == ["p"]


# Reservations ----------------------------------------------------------------------------------------


def reserve(storage: SqlStorage, *expiries: int, name: str = "adult") -> list[int]:
    """Open reservations with these times of expiry; their sequence numbers."""
    step = charge()
    with storage.begin() as transaction:
        state = transaction.lock([name])[name]
        after = write(transaction, state, *[Reserve(step, "run", 5, expiry) for expiry in expiries])
    return list(range(state.sequence + 1, after.sequence + 1))


def test_a_reservation_is_read_back(storage: SqlStorage) -> None:
    state = open_ledger(storage)
    (sequence,) = reserve(storage, 10**15)

    with storage.begin() as transaction:
        transaction.lock(["adult"])
        held = transaction.reservation(state.dataset_id, sequence)

    assert (held.sequence, held.run, held.times, held.expires_at_us) == (sequence, "run", 5, 10**15)
    assert held.charge.fingerprint == charge().fingerprint
    assert held.partition is None


def test_due_reservations_are_those_whose_time_is_over_oldest_first(storage: SqlStorage) -> None:
    state = open_ledger(storage)
    open_ledger(storage, "later")
    late, soon, now, never = reserve(storage, 300, 100, 200, 10**15)
    reserve(storage, 250, name="later")

    def due(now_us: int) -> list[int]:
        with storage.begin() as transaction:
            transaction.lock(["adult"])
            return [held.sequence for held in transaction.due_reservations(state.dataset_id, now_us)]

    assert due(99) == []
    assert due(200) == [soon, now]
    assert due(10**14) == [soon, now, late]
    assert storage.datasets_due(99, 10) == []
    assert storage.datasets_due(200, 10) == ["adult"]
    assert storage.datasets_due(250, 10) == ["adult", "later"]
    assert storage.datasets_due(250, 1) == ["adult"]
    assert [each.sequence for each in storage.open_reservations(state.dataset_id, late, 10)] == [
        soon,
        now,
        never,
    ]


@pytest.mark.parametrize(("close", "how"), [(lambda held: Settle(held, 2), "settled"), (Expire, "expired")])
def test_a_closed_reservation_is_neither_open_nor_due(storage: SqlStorage, close: Any, how: str) -> None:
    state = open_ledger(storage)
    (sequence,) = reserve(storage, 100)
    with storage.begin() as transaction:
        state = transaction.lock(["adult"])["adult"]
        held = transaction.reservation(state.dataset_id, sequence)
        after = write(transaction, state, close(held))

    with storage.begin() as transaction:
        assert same_book(transaction.lock(["adult"])["adult"], after)
        with pytest.raises(ReservationClosed, match=rf"adult~{sequence} is {how}"):
            transaction.reservation(state.dataset_id, sequence)
        assert transaction.due_reservations(state.dataset_id, 10**15) == []
    with storage.begin() as transaction:
        again, entries = decided(transaction, after, [close(held)])
    with pytest.raises(ReservationClosed):
        append(storage, after, again, [NewEntry(entry) for entry in entries])
    assert same_book(storage.dataset("adult").state, after)
    assert storage.datasets_due(10**15, 10) == []
    assert storage.open_reservations(state.dataset_id, 0, 10) == []


def test_a_reservation_may_be_made_and_settled_in_one_group(storage: SqlStorage) -> None:
    open_ledger(storage)
    step = charge()
    with storage.begin() as transaction:
        state = transaction.lock(["adult"])["adult"]
        held_book, (made,) = decided(transaction, state, [Reserve(step, "run", 5, 100)])
        held = Reservation(made.sequence, step, "run", 5, 100)
        after, (closed,) = decided(transaction, held_book, [Settle(held, 2)])
        transaction.append(state, after, [NewEntry(made), NewEntry(closed)])

    assert storage.open_reservations(state.dataset_id, 0, 10) == []
    (run,) = storage.runs(state.dataset_id, "", 10)
    assert run.entries == 2
    assert same_bits(run.amounts, storage.dataset("adult").state.whole.spent)


# Tokens ----------------------------------------------------------------------------------------------


def test_tokens_that_have_not_ended_are_told_with_their_teams(storage: SqlStorage) -> None:
    tokens = TokenStore(storage.database)
    for name, expires in (("good", None), ("later", 100), ("revoked", None)):
        team = "lab" if name == "later" else None
        tokens.add(TokenRow(name, b"h", ("spend",), None, "", 0, expires, team=team))
    tokens.revoke("revoked", 50)

    with storage.begin() as transaction:
        asked = ["good", "later", "revoked", "unknown"]
        assert transaction.teams(asked, 99) == {"good": None, "later": "lab"}
        assert transaction.teams(asked, 100) == {"good": None}
        assert transaction.teams([], 100) == {}
