"""Decisions hold in exact arithmetic, whatever the order of commands; a refusal changes nothing."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpledger.accounting.rounding import Direction, scale
from dpledger.ledger.decide import (
    Granted,
    Refused,
    Stamp,
    authorize_in_a_row,
    decide,
    decide_in_general,
)
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.commands import Authorize, Reserve
from dpledger.ledger.model.entries import Charge
from dpledger.ledger.replay import differences
from tests.ledger.builders import ADD_REMOVE, BUDGETS, adding, budget_of, gaussian
from tests.ledger.driver import Driver, holds_exactly

NOISES = [3.0, 7.0, 20.0, 55.0]
MANY = 10**6
VERBS = ["authorize", "reserve", "settle", "expire", "open", "own", "halve", "double"]

Script = list[tuple[str, int, int]]


def _scripts(verbs: list[str], most: int, least: int = 0) -> st.SearchStrategy[Script]:
    each = st.tuples(st.sampled_from(verbs), st.integers(0, 3), st.integers(0, 5))
    return st.lists(each, min_size=least, max_size=most)


commands = _scripts(VERBS, 30)
# Small steps alone seldom come near a limit. Here are partitions from the start; reservations take half of
# what fits, there or in the whole, and in the end all of it: one partition more or less is an overspend.
crowded = st.tuples(
    _scripts(["open", "open", "own"], 3, least=2),
    st.lists(st.tuples(st.just("half"), st.integers(0, 3), st.integers(0, 2)), max_size=5),
    _scripts(["half", *VERBS[:4]], 5),
    _scripts(["fill"], 3, least=1),
).map(lambda parts: [*itertools.chain(*parts)])


def play(driver: Driver, script: Script) -> None:
    first = driver.state.budget
    charges = [gaussian(first, noise) for noise in NOISES]
    for verb, which, number in script:
        place = None if number >= len(driver.partitions) else number
        if verb == "authorize":
            driver.authorize(charges[which], place)
        elif verb == "reserve":
            driver.reserve(charges[which], number + 1, place)
        elif verb in ("half", "fill"):
            reserve_most(driver, charges[which], 1 if verb == "fill" else 2, place)
        elif verb in ("settle", "expire") and driver.held:
            sequence = min(driver.held)
            used = min(which, driver.held[sequence].times) if verb == "settle" else None
            driver.close(sequence, used)
        elif verb in ("open", "own") and len(driver.partitions) < 5:
            # A limit of its own that comes after the spending closes a partition, as a lowered budget does.
            own = halved(first) if verb == "own" and not driver.state.committed_for(None).any() else None
            driver.open(f"p{len(driver.partitions)}", budget=own)
        elif verb in ("halve", "double") and not driver.partitions:
            driver.change(halved(first) if verb == "halve" else first)


def reserve_most(driver: Driver, charge: Charge, parts: int, place: int | None) -> None:
    """Reserve one of so many parts of what the ledger says would fit."""
    outcome = driver.reserve(charge, MANY, place)
    if isinstance(outcome, Refused) and outcome.fits["times"] >= parts:
        driver.reserve(charge, outcome.fits["times"] // parts, place)


def halved(budget: Budget) -> Budget:
    limits = np.where(budget.limits > 0.0, budget.limits / 2, budget.limits)
    return Budget(budget.accounting, budget.orders, limits, budget.target, budget.weights)


@pytest.mark.parametrize("arithmetic", ["exact", "floats"])
@pytest.mark.parametrize("partition_key", ["fixed", "private"])
@pytest.mark.parametrize("fields", BUDGETS)
@settings(max_examples=30)
@given(script=st.one_of(crowded, crowded, commands))
def test_no_record_ever_bears_more_than_the_filter_allows(
    fields: dict[str, Any], arithmetic: str, partition_key: str, script: Script
) -> None:
    driver = Driver.of(adding(fields, arithmetic), partition_key)
    script = [each for each in script if each[0] not in ("halve", "double")]

    play(driver, script)

    for borne, limits in driver.borne():
        assert holds_exactly(driver.state.budget, borne, limits)


@pytest.mark.parametrize("fields", BUDGETS)
def test_spending_goes_on_until_nothing_fits_and_hardly_earlier(fields: dict[str, Any]) -> None:
    driver = Driver.of(Budget.from_fields(fields, ADD_REMOVE))
    charge = gaussian(driver.state.budget, 12.0)

    while isinstance(driver.authorize(charge), Granted):
        pass

    ((borne, limits),) = driver.borne()
    more = [a + b for a, b in zip(borne, [*map(float, charge.amounts)], strict=True)]
    slack = [float(limit) * (1 - 1e-9) for limit in limits]
    assert not all(a <= b for a, b in zip(more, slack, strict=True))
    assert driver.state.budget.fraction_left(driver.state.committed_for(None)) < 0.2


@pytest.mark.parametrize("arithmetic", ["exact", "floats"])
@pytest.mark.parametrize("partition_key", ["fixed", "private"])
@pytest.mark.parametrize("fields", BUDGETS)
@settings(max_examples=30)
@given(noises=st.lists(st.sampled_from([1.0, *NOISES]), max_size=40))
def test_the_short_way_of_a_plain_authorization_gives_the_same_bits(
    fields: dict[str, Any], arithmetic: str, partition_key: str, noises: list[float]
) -> None:
    driver = Driver.of(adding(fields, arithmetic), partition_key)
    for noise in noises:
        command = Authorize(gaussian(driver.state.budget, noise), "run")
        general = decide_in_general(driver.state, command, Stamp(driver.state.sequence + 1, "ann"))

        outcome = driver.authorize(command.charge)

        assert type(outcome) is type(general)
        if isinstance(outcome, Granted) and isinstance(general, Granted):
            assert differences(outcome.state, general.state, []) == []
            assert outcome.entry == general.entry
            assert (outcome.partitions, outcome.recount) == (general.partitions, general.recount)


def test_a_refusal_says_what_was_asked_and_what_would_fit() -> None:
    driver = Driver.of(budget_of(accounting="zcdp", rho=0.5))
    charge = gaussian(driver.state.budget, 1.0)  # ρ = 0.5 and a little for rounding up
    small = gaussian(driver.state.budget, 10.0)  # ρ = 0.005

    refused = driver.reserve(small, 250)

    assert isinstance(refused, Refused)
    assert refused.fits["times"] in (99, 100)
    assert refused.fits["cost_fraction"] == 1.0
    assert refused.remaining == {"fraction": 1.0, "rho": 0.5}
    assert refused.sequence == 1
    assert np.array_equal(refused.amounts, scale(small.amounts, 250, Direction.UP))
    assert isinstance(driver.reserve(small, refused.fits["times"]), Granted)
    again = driver.authorize(charge)
    assert isinstance(again, Refused)
    assert again.fits["times"] == 0
    assert 0.0 <= again.fits["cost_fraction"] < 0.02


def test_what_fits_respects_a_partitions_own_limit() -> None:
    driver = Driver.of(budget_of(accounting="zcdp", rho=0.5))
    driver.open("small", budget=budget_of(accounting="zcdp", rho=0.01))
    charge = gaussian(driver.state.budget, 2.0)  # ρ = 0.125

    refused = driver.authorize(charge, 0)

    assert isinstance(refused, Refused)
    assert refused.fits["cost_fraction"] == pytest.approx(0.08)


@pytest.mark.parametrize(("partition_key", "place"), [("fixed", None), ("private", None), ("private", 1)])
def test_what_fits_respects_the_limits_of_other_partitions(partition_key: str, place: int | None) -> None:
    driver = Driver.of(budget_of(accounting="zcdp", rho=0.5), partition_key)
    driver.open("small", budget=budget_of(accounting="zcdp", rho=0.01))
    driver.open("plain")
    charge = gaussian(driver.state.budget, 2.0)  # ρ = 0.125

    refused = driver.authorize(charge, place)

    assert isinstance(refused, Refused)
    assert refused.fits["cost_fraction"] == pytest.approx(0.08)


@pytest.mark.parametrize("fields", BUDGETS)
def test_a_refusal_changes_nothing_and_later_smaller_spends_still_fit(fields: dict[str, Any]) -> None:
    driver = Driver.of(Budget.from_fields(fields, ADD_REMOVE))
    before = driver.state

    assert isinstance(driver.authorize(gaussian(before.budget, 0.05)), Refused)
    assert driver.state is before
    assert isinstance(driver.authorize(gaussian(before.budget, 50.0)), Granted)


@settings(max_examples=100)
@given(noise=st.sampled_from(NOISES), times=st.integers(1, 3000))
def test_the_largest_number_of_repetitions_that_fits_is_reported(noise: float, times: int) -> None:
    driver = Driver.of(budget_of(accounting="rdp", epsilon=1.0, delta=1e-5))
    charge = gaussian(driver.state.budget, noise)
    command = Reserve(charge, "run", times, 1)

    outcome = decide(driver.state, command, Stamp(2, "ann"))

    if isinstance(outcome, Refused):
        fitting = outcome.fits["times"]
        assert fitting < times
        assert not fitting or driver.state.fits(driver.state.amounts_of(charge), None, fitting)
        assert not driver.state.fits(driver.state.amounts_of(charge), None, fitting + 1)


def test_a_limit_below_what_is_spent_closes_the_dataset_and_rewrites_nothing() -> None:
    driver = Driver.of(budget_of(accounting="zcdp", rho=0.5))
    charge = gaussian(driver.state.budget, 2.0)
    driver.authorize(charge)
    spent = driver.state.whole.spent

    driver.change(budget_of(accounting="zcdp", rho=0.1))

    assert driver.state.whole.spent is spent
    assert driver.state.budget.fraction_left(spent) == 0.0
    assert isinstance(driver.authorize(gaussian(driver.state.budget, 1000.0)), Refused)
    driver.change(budget_of(accounting="zcdp", rho=0.5))
    assert isinstance(driver.authorize(charge), Granted)


def test_what_is_spent_on_the_whole_leaves_less_for_every_partition() -> None:
    driver = Driver.of(budget_of(accounting="zcdp", rho=0.5))
    driver.open("a", "b")
    charge = gaussian(driver.state.budget, 1.5)  # ρ = 0.222

    assert isinstance(driver.authorize(charge, 0), Granted)
    assert isinstance(driver.authorize(charge, 1), Granted)
    assert isinstance(driver.authorize(charge), Granted)
    assert isinstance(driver.authorize(charge), Refused)
    assert isinstance(driver.authorize(charge, 0), Refused)


def test_under_a_private_key_the_two_largest_partitions_add_up() -> None:
    charge_at = 1.5
    fixed, private = (Driver.of(budget_of(accounting="zcdp", rho=0.5), key) for key in ("fixed", "private"))
    for driver in (fixed, private):
        driver.open("a", "b", "c")
        charge = gaussian(driver.state.budget, charge_at)
        assert isinstance(driver.authorize(charge, 0), Granted)
        assert isinstance(driver.authorize(charge, 1), Granted)

    assert isinstance(fixed.authorize(charge, 0), Granted)
    assert isinstance(private.authorize(charge, 0), Refused)
    assert isinstance(private.authorize(charge, 2), Granted)


@pytest.mark.parametrize("arithmetic", ["exact", "floats"])
@pytest.mark.parametrize(("partition_key", "noise"), [("fixed", 1.6), ("private", 2.3)])
def test_the_whole_has_what_the_largest_partitions_leave(
    arithmetic: str, partition_key: str, noise: float
) -> None:
    """One partition bears ρ = 0.125, another overtakes it with 0.32: one or both count, by the key."""
    driver = Driver.of(adding({"accounting": "zcdp", "rho": 0.5}, arithmetic), partition_key)
    driver.open("a", "b", "c")
    for number, spent in enumerate([2.0, 1.25]):
        assert isinstance(driver.authorize(gaussian(driver.state.budget, spent), number), Granted)

    assert isinstance(driver.authorize(gaussian(driver.state.budget, noise)), Refused)
    assert isinstance(driver.authorize(gaussian(driver.state.budget, 4.0 * noise)), Granted)


def test_parallel_composition_shows_the_largest_partition() -> None:
    driver = Driver.of(budget_of(accounting="zcdp", rho=0.5))
    driver.open(*"abc")
    for number, noise in enumerate([10.0, 5.0, 20.0]):
        driver.authorize(gaussian(driver.state.budget, noise), number)

    assert driver.state.committed_for(None)[0] == np.nextafter(0.02, 1.0)


def test_an_authorization_looks_again_only_at_what_it_names() -> None:
    driver = Driver.of(budget_of(accounting="zcdp", rho=0.5))
    charge = gaussian(driver.state.budget, 5.0)

    outcome = driver.run(Authorize(charge, "run", None, 1), charge)

    assert isinstance(outcome, Granted)
    assert outcome.entry.sample == 1


@pytest.mark.parametrize("arithmetic", ["exact", "floats"])
@pytest.mark.parametrize("fields", BUDGETS)
@settings(max_examples=30)
@given(
    before=st.lists(st.integers(0, 3), max_size=3),
    noise=st.sampled_from(NOISES),
    actors=st.lists(st.sampled_from([("a", None), ("b", "lab")]), min_size=1, max_size=40),
)
def test_steps_in_a_row_are_the_same_bits_as_one_after_another(
    fields: dict[str, Any],
    arithmetic: str,
    before: list[int],
    noise: float,
    actors: list[tuple[str, str | None]],
) -> None:
    driver = Driver.of(adding(fields, arithmetic))
    for which in before:
        driver.authorize(gaussian(driver.state.budget, NOISES[which]))
    state, command = driver.state, Authorize(gaussian(driver.state.budget, noise), "job")

    entries, fractions, after = authorize_in_a_row(
        state, command, [Stamp(7, actor, team) for actor, team in actors]
    )

    for number, (actor, team) in enumerate(actors):
        outcome = decide(state, command, Stamp(7, actor, team))
        if isinstance(outcome, Refused):
            assert number == len(entries)
            break
        state = outcome.state
        assert entries[number] == outcome.entry
        assert fractions[number] == state.budget.fraction_left(state.whole.spent)
    else:
        assert len(entries) == len(actors)
    assert (after.sequence, after.head) == (state.sequence, state.head)
    assert after.whole.spent.tobytes() == state.whole.spent.tobytes()
