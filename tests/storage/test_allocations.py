"""Allocations on both databases: stored, read back bit for bit, named by entries and reservations."""

from dataclasses import replace

import pytest

from dpledger.accounting.sampling import Adjacency
from dpledger.accounting.steps import Step
from dpledger.ledger.charges import charge_for
from dpledger.ledger.decide import Granted, Stamp, decide
from dpledger.ledger.errors import AlreadyExists, NotFound
from dpledger.ledger.model.allocation import Allocation, inner_budget
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.commands import Allocate, Authorize, Command, Reserve, ReturnAllocation, Settle
from dpledger.ledger.model.entries import Charge, EntryKind
from dpledger.ledger.model.state import LedgerState
from dpledger.ledger.ports import EntryFilter, NewEntry
from dpledger.ledger.replay import differences
from dpledger.storage.repository import SqlStorage, SqlTransaction
from tests.storage.ledgers import ACTOR, open_ledger

SHARED = Budget.from_fields({"accounting": "shared", "epsilon": 1.0, "delta": 1e-5}, Adjacency.ADD_REMOVE)


def take(transaction: SqlTransaction, state: LedgerState, command: Command) -> Granted:
    """Decide a command, and write it with what it changes."""
    outcome = decide(state, command, Stamp(state.sequence + 1, ACTOR))
    assert isinstance(outcome, Granted)
    charge = getattr(command, "charge", None)
    if isinstance(charge, Charge):
        transaction.keep_charge(state.dataset_id, charge)
    assert outcome.allocation is not None
    transaction.save_allocations(state.dataset_id, [outcome.allocation])
    transaction.append(state, outcome.state, [NewEntry(outcome.entry, None, 0.5)])
    return outcome


def opening(name: str, kind: str = "zcdp", epsilon: float = 0.1) -> Allocate:
    inside = inner_budget({"accounting": kind}, epsilon, 1e-6, Adjacency.ADD_REMOVE)
    return Allocate(name, ACTOR, epsilon, 1e-6, inside, "a reason")


def charge_in(allocation: Allocation, noise_std: float = 200.0) -> Charge:
    release = {"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": noise_std}
    step = Step.from_fields([release], None, "add-remove")
    return charge_for(allocation.budget, step, "", allocated=True)


def test_an_allocation_is_read_back_as_it_was(storage: SqlStorage) -> None:
    state = open_ledger(storage, budget=SHARED)
    kept: dict[str, Allocation] = {}
    with storage.begin() as transaction:
        state = transaction.lock(["adult"])["adult"]
        for name, kind in (("a", "zcdp"), ("b", "rdp"), ("c", "gdp")):
            taken = take(transaction, state, opening(name, kind, 0.3))
            state, part = taken.state, taken.allocation
            assert part is not None
            taken = take(transaction, state, Authorize(charge_in(part), "run", allocation=part))
            assert taken.allocation is not None
            state, kept[name] = taken.state, taken.allocation

    found = {each.name: each for each in storage.allocations(state.dataset_id, 0, 10)}

    assert list(found) == ["a", "b", "c"]
    again = storage.dataset("adult").state
    pairs = [(kept[name], found[name]) for name in kept]
    assert differences(state, again, [], pairs) == []
    one = storage.allocation(state.dataset_id, "b")
    assert one is not None
    assert (one.sequence, one.budget.document) == (kept["b"].sequence, kept["b"].budget.document)
    assert storage.allocation(state.dataset_id, "z") is None
    page = storage.allocations(state.dataset_id, kept["a"].sequence, 1)
    assert [each.name for each in page] == ["b"]


def test_entries_and_reservations_name_their_allocation(storage: SqlStorage) -> None:
    open_ledger(storage, budget=SHARED)
    with storage.begin() as transaction:
        state = transaction.lock(["adult"])["adult"]
        state = take(transaction, state, opening("a")).state
        part = transaction.allocations(state.dataset_id, ["a"])["a"]
        taken = take(transaction, state, Reserve(charge_in(part), "run", 3, 10**9, allocation=part))
        held = transaction.reservation(state.dataset_id, taken.entry.sequence)
        assert held.allocation is not None
        assert held.allocation.totals.open_reservations == 1
        taken = take(transaction, taken.state, Settle(held, 0))
        part = transaction.allocations(state.dataset_id, ["a"])["a"]
        state = take(transaction, taken.state, ReturnAllocation(part, "spare")).state

    entries = storage.entries(state.dataset_id, EntryFilter(allocation="a"))
    assert [each.entry.kind for each in entries] == [
        EntryKind.RESERVED,
        EntryKind.SETTLED,
        EntryKind.ALLOCATION_RETURNED,
    ]
    assert {each.allocation_name for each in entries} == {"a"}
    (opened,) = storage.entries(state.dataset_id, EntryFilter(kind="allocated"))
    assert (opened.entry.sequence, opened.allocation_name) == (2, None)
    for each in (*entries, opened):
        assert each.entry.hash == each.hash
    assert storage.allocation_counts(state.dataset_id) == (0, 1)
    assert storage.entries(state.dataset_id, EntryFilter(allocation="z")) == []


def test_charges_keep_the_kind_of_their_allocation(storage: SqlStorage) -> None:
    open_ledger(storage, budget=SHARED)
    with storage.begin() as transaction:
        state = transaction.lock(["adult"])["adult"]
        taken = take(transaction, state, opening("a"))
        assert taken.allocation is not None
        charge = charge_in(taken.allocation)
        other = replace(charge, accounting="plan")
        for each in (charge, other):
            transaction.keep_charge(state.dataset_id, each)
        found = [transaction.charge(state.dataset_id, each.fingerprint) for each in (charge, other)]

    assert [each.accounting for each in found] == ["zcdp", "plan"]
    assert [each.fingerprint for each in found] == [charge.fingerprint, other.fingerprint]


def test_a_name_is_taken_once(storage: SqlStorage) -> None:
    open_ledger(storage, budget=SHARED)
    with storage.begin() as transaction:
        state = transaction.lock(["adult"])["adult"]
        taken = take(transaction, state, opening("a"))
        assert taken.allocation is not None
        with pytest.raises(AlreadyExists, match="an allocation 'a'"):
            transaction.save_allocations(state.dataset_id, [replace(taken.allocation, sequence=9)])
        with pytest.raises(NotFound, match="allocation 'z'"):
            transaction.allocations(state.dataset_id, ["a", "z"])
