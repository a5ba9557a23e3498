"""Allocations: decided on the ledger within, placed in the dataset's chain, replayed bit for bit."""

import json
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpledger.accounting.errors import InvalidInput
from dpledger.accounting.exact import as_given
from dpledger.accounting.steps import Step
from dpledger.ledger.charges import charge_for
from dpledger.ledger.decide import Granted, Refused, Stamp, authorize_in_a_row, decide, decide_in_general
from dpledger.ledger.model.allocation import (
    Allocation,
    inner_budget,
    ledger_within,
    place_ledger,
    shared_amounts,
)
from dpledger.ledger.model.commands import Allocate, Authorize, Reserve, ReturnAllocation
from dpledger.ledger.model.entries import Charge, Entry, EntryKind
from dpledger.ledger.ports import StoredEntry
from dpledger.ledger.replay import BrokenLedger, Replay, differences
from tests.ledger.builders import ADD_REMOVE, GAUSSIAN, budget_of
from tests.ledger.sharing import Sharer

KINDS: list[dict[str, Any]] = [
    {"accounting": "zcdp"},
    {"accounting": "gdp"},
    {"accounting": "rdp", "additive_delta": 1e-7},
    {"accounting": "rdp-order", "order": 128},
    {"accounting": "rdp-curve", "plan": {"releases": [{**GAUSSIAN, "noise_std": 200.0}]}},
]


def test_what_is_allocated_is_the_decimals_as_given() -> None:
    assert shared_amounts(0.1, 1e-6).fractions() == [Fraction(1, 10), Fraction(1, 10**6), 0]
    sharer = Sharer.of(0.3, 3e-6)

    assert sharer.allocate("a", 0.1, 1e-6)
    assert sharer.allocate("b", 0.2, 2e-6)

    assert sharer.state.remaining(None) == {"fraction": 0.0, "epsilon": 0.0, "delta": 0.0}
    assert not sharer.allocate("c", 1e-12, 1e-12)


def test_either_of_epsilon_and_delta_refuses() -> None:
    sharer = Sharer.of(1.0, 1e-5)
    sharer.allocate("a", 0.5, 5e-6)

    for epsilon, delta in [(0.6, 1e-6), (0.1, 6e-6)]:
        refused = sharer.run(Allocate("b", "ann", epsilon, delta, sharer.inner(epsilon, delta)))
        assert isinstance(refused, Refused)
        assert refused.fits == {"epsilon": 0.5, "delta": 5e-6}
        assert refused.remaining["epsilon"] == 0.5
        assert sharer.state.sequence == 2
    assert sharer.allocate("b", 0.5, 5e-6)


@pytest.mark.parametrize("fields", KINDS, ids=lambda fields: fields["accounting"])
def test_the_budget_inside_is_made_for_what_adds_up(fields: dict[str, Any]) -> None:
    """0.1 is a little less than the double that stands for it: a budget for the double would be too large."""
    inside = inner_budget(fields, 0.1, 1e-6, ADD_REMOVE)

    assert (inside.target["epsilon"], inside.target["delta"]) == (0.1, 1e-6)
    for name, value in (("epsilon", 0.1), ("delta", 1e-6)):
        given = {"epsilon": 0.1, "delta": 1e-6, name: value}
        alone = budget_of(**fields, **given)
        assert (inside.limits <= alone.limits).all()


@pytest.mark.parametrize("fields", KINDS, ids=lambda fields: fields["accounting"])
def test_a_spend_is_decided_as_in_a_ledger_of_its_own(fields: dict[str, Any]) -> None:
    sharer = Sharer.of(2.0, 1e-4)
    sharer.allocate("other", 1.0, 1e-5)
    sharer.allocate("part", 1.0, 1e-5, **fields)
    part = sharer.allocations["part"]
    alone = Sharer.alone(part.budget)
    step = sharer.charge("part", {**GAUSSIAN, "noise_std": 20.0})

    for _ in range(3):
        sharer.spend("part", step)
        alone.run(Authorize(replace(step, accounting=None), "run"))
    times = 0
    while sharer.hold("part", step, 2):
        times += 1
        assert isinstance(alone.run(Reserve(replace(step, accounting=None), "run", 2, 10**9)), Granted)

    assert times > 0
    assert isinstance(alone.run(Reserve(replace(step, accounting=None), "run", 2, 10**9)), Refused)
    kept = sharer.allocations["part"].totals
    assert kept.committed.tobytes() == alone.state.whole.committed.tobytes()
    assert kept.open_reservations == sharer.state.whole.open_reservations == times
    assert sharer.allocations["other"].entries == 0


def test_many_in_a_row_are_what_one_after_another_is() -> None:
    one, many = Sharer.of(1.0, 1e-5), Sharer.of(1.0, 1e-5)
    for sharer in (one, many):
        sharer.allocate("part", 1.0, 1e-5)
    step = one.charge("part", {**GAUSSIAN, "noise_std": 30.0})
    part = many.allocations["part"]
    command = Authorize(step, "run", allocation=part)
    within = ledger_within(many.state, part)

    entries, fractions, after = authorize_in_a_row(within, command, [Stamp(3, "ann")] * 1000)
    state, moved = place_ledger(many.state, part, after, len(entries), len(entries))

    granted = [one.spend("part", step, at_us=3) for _ in range(len(entries))]
    assert one.spend("part", step, at_us=3) is None
    assert [each.entry.hash for each in granted if each] == [each.hash for each in entries]
    assert len(fractions) == len(entries) > 3
    pair = one.allocations["part"], moved
    assert differences(one.state, state, [], [pair]) == []


def test_a_spend_that_names_no_allocation_is_never_granted() -> None:
    sharer = Sharer.of(1.0, 1e-5)
    sharer.allocate("part", 1.0, 1e-5)
    step = sharer.charge("part", GAUSSIAN)

    with pytest.raises(InvalidInput, match="allocations"):
        decide(sharer.state, Authorize(step, "run"), Stamp(1, "ann"))
    with pytest.raises(InvalidInput, match="allocations"):
        charge_for(sharer.state.budget, step.step, "")
    other = Sharer.alone(budget_of(accounting="zcdp", rho=0.5))
    astray = Authorize(step, "run", allocation=sharer.allocations["part"])
    assert isinstance(decide_in_general(other.state, astray, Stamp(1, "ann")), Refused)


@pytest.mark.parametrize("how", ["authorized", "used", "expired"])
def test_what_may_have_been_released_is_never_given_back(how: str) -> None:
    sharer = Sharer.of(1.0, 1e-5)
    sharer.allocate("part", 1.0, 1e-5)
    step = sharer.charge("part", {"mechanism": "zcdp", "rho": 0.0})
    if how == "authorized":
        sharer.spend("part", step)
    else:
        held = sharer.hold("part", step, 2)
        assert held is not None
        sharer.close(held.entry.sequence, 1 if how == "used" else None)

    assert not sharer.allocations["part"].is_untouched
    assert not sharer.allocations["part"].totals.spent.any()
    with pytest.raises(AssertionError, match="never given back"):
        sharer.run(ReturnAllocation(sharer.allocations["part"], "reason"))


def test_a_settlement_with_none_used_leaves_an_allocation_untouched() -> None:
    sharer = Sharer.of(1.0, 1e-5)
    sharer.allocate("part", 1.0, 1e-5)
    held = sharer.hold("part", sharer.charge("part", {**GAUSSIAN, "noise_std": 30.0}), 2)
    assert held is not None
    assert not sharer.allocations["part"].is_untouched
    sharer.close(held.entry.sequence, 0)

    sharer.give_back("part")

    assert sharer.allocations["part"].returned
    assert sharer.state.remaining(None)["epsilon"] == 1.0
    assert sharer.allocate("again", 1.0, 1e-5)
    assert sharer.spend("part", sharer.charge("part", GAUSSIAN)) is None


def test_charges_of_different_kinds_are_different_charges() -> None:
    """ρ of 1 and one of a plan's items are the same bytes of amounts, and of one step."""
    budget = budget_of(accounting="zcdp", rho=2.0)
    step = Step.from_fields([{"mechanism": "zcdp", "rho": 1.0}], None, "add-remove")
    one = charge_for(budget, step, "", allocated=True)
    other = replace(one, accounting="plan")

    assert one.accounting == "zcdp"
    assert one.fingerprint != other.fingerprint != charge_for(budget, step, "").fingerprint


def test_entries_without_an_allocation_have_the_text_they_had() -> None:
    plain = Entry(2, EntryKind.AUTHORIZED, 7, "ann", b"\0" * 32, "run")
    assert plain.canonical == '{"actor":"ann","at_us":7,"kind":"authorized","run":"run","sequence":2}'
    named = json.loads(replace(plain, allocation=5).canonical)
    assert named == {**json.loads(plain.canonical), "allocation": 5}
    assert list(named) == sorted(named)


# What a replay finds.


def shared_ledger() -> Sharer:
    sharer = Sharer.of(3.0, 1e-4)
    for index, fields in enumerate(KINDS):
        sharer.allocate(f"part-{index}", 0.5, 1e-5, **fields)
    for name in list(sharer.allocations):
        step = sharer.charge(name, {**GAUSSIAN, "noise_std": 40.0})
        sharer.spend(name, step)
        held = sharer.hold(name, step, 2)
        assert held is not None
        sharer.close(held.entry.sequence, 1)
    sharer.allocate("spare", 0.5, 1e-5)
    sharer.give_back("spare")
    return sharer


def replayed(stored: list[StoredEntry]) -> Replay:
    replay = Replay(1, "adult")
    for each in stored:
        replay.take(each)
    return replay


def test_a_replay_gives_the_allocations_bit_for_bit() -> None:
    sharer = shared_ledger()
    sharer.change(budget_of(accounting="shared", epsilon=0.1, delta=1e-4))

    replay = replayed(sharer.stored)

    kept = {each.sequence: each for each in sharer.allocations.values()}
    assert set(replay.allocations) == set(kept)
    pairs = [(kept[number], replay.allocations[number]) for number in kept]
    assert differences(sharer.state, replay.state, [], pairs) == []
    assert replay.state.guarantee.target == {"epsilon": 3.0, "delta": 1e-4}


CHANGES: dict[str, Any] = {
    "owner": "eve",
    "epsilon": 0.4,
    "delta": 1e-6,
    "entries": 7,
    "releases": 0,
    "returned": True,
    "name": "other",
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_allocation_is_found(name: str) -> None:
    sharer = shared_ledger()
    replay = replayed(sharer.stored)
    part = sharer.allocations["part-0"]
    forged = replace(part, **{name: CHANGES[name]})

    found = differences(sharer.state, replay.state, [], [(forged, replay.allocations[part.sequence])])

    assert [each.what.rpartition(".")[2] for each in found] == [name]


def test_changed_totals_and_budgets_of_an_allocation_are_found() -> None:
    sharer = shared_ledger()
    replay = replayed(sharer.stored)
    part = sharer.allocations["part-0"]
    again = replay.allocations[part.sequence]
    larger = inner_budget({"accounting": "zcdp"}, 0.6, 1e-5, ADD_REMOVE)

    assert differences(sharer.state, replay.state, [], [(replace(part, budget=larger), again)])
    emptied = replace(part, totals=Sharer.alone(part.budget).state.whole)
    assert differences(sharer.state, replay.state, [], [(emptied, again)])


def forge(sharer: Sharer, at: int, change: Any) -> list[StoredEntry]:
    """The ledger with one entry replaced, and every link after it made anew as a forger would."""
    stored: list[StoredEntry] = []
    previous = sharer.stored[0].entry.previous
    for each in sharer.stored:
        entry = change(each.entry) if each.entry.sequence == at else each.entry
        entry = replace(entry, previous=previous)
        previous = entry.hash
        stored.append(replace(each, entry=entry, hash=entry.hash))
    return stored


def detail(entry: Entry, **changed: Any) -> Entry:
    return replace(entry, detail=json.dumps({**json.loads(entry.detail or "{}"), **changed}))


FORGERIES: dict[str, tuple[int, Any, str]] = {
    "more than there is": (2, lambda e: detail(e, epsilon=9.0), "another epsilon and delta"),
    "a smaller price": (2, lambda e: detail(e, epsilon=0.1), "another epsilon and delta"),
    "a name twice": (3, lambda e: detail(e, name="part-0"), "opened before"),
    "none": (7, lambda e: replace(e, allocation=None), "not the one it was charged|cannot|allocation"),
    "one that is not there": (7, lambda e: replace(e, allocation=99), "never opened"),
    "another's": (7, lambda e: replace(e, allocation=4), "not the one it was charged"),
    "another's hold": (9, lambda e: replace(e, allocation=4), "another allocation"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_chain_is_found(name: str) -> None:
    at, change, problem = FORGERIES[name]
    sharer = shared_ledger()

    with pytest.raises((BrokenLedger, InvalidInput), match=problem):
        replayed(forge(sharer, at, change))


def test_a_return_of_what_was_used_is_found() -> None:
    sharer = shared_ledger()
    at = next(
        each.entry.sequence for each in sharer.stored if each.entry.kind is EntryKind.ALLOCATION_RETURNED
    )

    with pytest.raises(BrokenLedger, match="untouched"):
        replayed(forge(sharer, at, lambda entry: replace(entry, allocation=2)))


def test_more_than_the_shared_budget_has_is_found() -> None:
    sharer = Sharer.of(1.0, 1e-5)
    sharer.allocate("a", 0.6, 1e-6)
    inside = sharer.inner(0.6, 1e-6)
    entry = Entry(
        3,
        EntryKind.ALLOCATED,
        3,
        "ann",
        sharer.state.head,
        detail=json.dumps({"name": "b", "epsilon": 0.6, "delta": 1e-6, "budget": inside.document}),
    )

    with pytest.raises(BrokenLedger, match="more than the budget had left"):
        replayed([*sharer.stored, StoredEntry(entry, entry.hash)])


# Any course of events.

parts = st.integers(0, 3)
tenths = st.integers(1, 6)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["allocate", "spend", "hold", "close", "expire", "return"]), parts, tenths),
        max_size=40,
    )
)
def test_sums_hold_after_any_course_of_events(events: list[tuple[str, int, int]]) -> None:
    sharer = Sharer.of(1.0, 1e-5)
    for kind, pick, amount in events:
        _play(sharer, kind, pick, amount)
        standing = [each for each in sharer.allocations.values() if not each.returned]
        sums = [sum((each.amounts.fractions()[i] for each in standing), Fraction(0)) for i in (0, 1)]
        assert sums[0] <= as_given(1.0)
        assert sums[1] <= as_given(1e-5)
        for each in standing:
            assert each.budget.admits(each.totals.committed)
        assert sharer.state.whole.open_reservations == len(sharer.held)
    replay = replayed(sharer.stored)
    pairs = [(each, replay.allocations[each.sequence]) for each in sharer.allocations.values()]
    assert differences(sharer.state, replay.state, [], pairs) == []


def _play(sharer: Sharer, kind: str, pick: int, amount: int) -> None:
    standing = [each for each in sharer.allocations.values() if not each.returned]
    if kind == "allocate":
        fields = KINDS[pick % len(KINDS)]
        sharer.allocate(f"part-{len(sharer.allocations)}", amount / 10, amount * 1e-6, **fields)
    elif kind in ("close", "expire"):
        for sequence in list(sharer.held)[:1]:
            sharer.close(sequence, None if kind == "expire" else pick % 2)
    elif standing:
        part = standing[pick % len(standing)]
        if kind == "return":
            if part.is_untouched:
                sharer.give_back(part.name)
            return
        step: Charge = sharer.charge(part.name, {**GAUSSIAN, "noise_std": 30.0 + amount})
        if kind == "spend":
            sharer.spend(part.name, step)
        else:
            sharer.hold(part.name, step, amount)


def test_an_allocation_shows_what_it_has_left() -> None:
    part: Allocation = Sharer.of(1.0, 1e-5).allocate("part", 0.5, 1e-6)
    assert part.remaining()["fraction"] == 1.0
    assert part.state == "open"
    assert replace(part, returned=True).remaining()["fraction"] == 0.0
