"""Replay gives the stored totals bit for bit, and finds whatever was altered."""

from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings

from dpledger.ledger import replay as replay_module
from dpledger.ledger.decide import partition_extremes
from dpledger.ledger.model.entries import EntryKind
from dpledger.ledger.model.state import ExactTotals, Totals
from dpledger.ledger.ports import StoredEntry
from dpledger.ledger.replay import BrokenLedger, Replay, differences
from tests.ledger.builders import BUDGETS, adding, budget_of, gaussian
from tests.ledger.driver import Driver
from tests.ledger.test_decide import commands, play


def replayed(stored: list[StoredEntry]) -> Replay:
    replay = Replay(1, "adult")
    for each in stored:
        replay.take(each)
    return replay


@pytest.mark.parametrize("arithmetic", ["exact", "floats"])
@pytest.mark.parametrize("partition_key", ["fixed", "private"])
@pytest.mark.parametrize("fields", BUDGETS)
@settings(max_examples=30)
@given(script=commands)
def test_replay_equals_state(
    fields: dict[str, Any], arithmetic: str, partition_key: str, script: list[tuple[str, int, int]]
) -> None:
    driver = Driver.of(adding(fields, arithmetic), partition_key)
    play(driver, script)

    replay = replayed(driver.stored)

    pairs = [(kept, replay.partitions[number]) for number, kept in driver.partitions.items()]
    assert differences(driver.state, replay.state, pairs) == []
    assert set(replay.partitions) == set(driver.partitions)


def test_reservations_closed_in_a_row_are_counted_once() -> None:
    driver = Driver.of(budget_of(accounting="zcdp", rho=0.5))
    driver.open("a", "b")
    charge = gaussian(driver.state.budget, 5.0)
    for number in (0, 1, 0):
        driver.reserve(charge, 2, number)
    for sequence, used in ((3, 0), (4, 1), (5, None)):
        driver.close(sequence, used)
    driver.authorize(charge)

    with mock.patch.object(replay_module, "partition_extremes", side_effect=partition_extremes) as counted:
        replay = replayed(driver.stored)

    assert counted.call_count == 1
    assert differences(driver.state, replay.state, []) == []


@pytest.fixture
def driver() -> Driver:
    driver = Driver.of(budget_of(accounting="zcdp", rho=0.5))
    driver.open("a", "b")
    charge = gaussian(driver.state.budget, 5.0)
    driver.authorize(charge)
    driver.reserve(charge, 3, 1)
    driver.close(4, 2)
    driver.authorize(gaussian(driver.state.budget, 9.0), 0)
    return driver


@pytest.mark.parametrize(
    "changes",
    [
        {"at_us": 7},
        {"actor": "eve"},
        {"run": "other"},
        {"kind": EntryKind.RESERVED},
        {"partition": 1},
        {"sample": 2},
    ],
)
def test_an_altered_entry_breaks_the_chain(driver: Driver, changes: dict[str, Any]) -> None:
    altered = driver.stored[2]
    driver.stored[2] = replace(altered, entry=replace(altered.entry, **changes))

    with pytest.raises(BrokenLedger, match="hash") as broken:
        replayed(driver.stored)

    assert broken.value.sequence == 3


def test_an_altered_entry_with_a_new_hash_breaks_the_next_link(driver: Driver) -> None:
    entry = replace(driver.stored[2].entry, actor="eve")
    driver.stored[2] = replace(driver.stored[2], entry=entry, hash=entry.hash)

    with pytest.raises(BrokenLedger) as broken:
        replayed(driver.stored)

    assert broken.value.sequence == 4


def test_a_missing_or_swapped_entry_is_noticed(driver: Driver) -> None:
    swapped = [*driver.stored[:2], driver.stored[3], driver.stored[2], *driver.stored[4:]]
    for stored in (driver.stored[:2] + driver.stored[3:], swapped):
        with pytest.raises(BrokenLedger, match="follows entry 2"):
            replayed(stored)


def test_a_cut_ledger_differs_from_its_book(driver: Driver) -> None:
    replay = replayed(driver.stored[:-1])

    assert {"sequence", "head"} <= {found.what for found in differences(driver.state, replay.state, [])}


def test_a_swapped_charge_is_noticed(driver: Driver) -> None:
    cheaper = gaussian(driver.state.budget, 50.0)
    driver.stored[2] = replace(driver.stored[2], charge=cheaper)

    with pytest.raises(BrokenLedger, match="charge"):
        replayed(driver.stored)


def test_one_bit_in_a_total_is_noticed(driver: Driver) -> None:
    replay = replayed(driver.stored)
    whole = driver.state.whole
    assert isinstance(whole, ExactTotals)
    shown, kept = replace(whole), whole.exact_spent
    shown.__dict__["spent"] = np.nextafter(whole.spent, 0.0)
    less = kept._replace(numerators=(kept.numerators[0] - 1, *kept.numerators[1:]))
    counted = replace(whole, exact_spent=less)
    counted.__dict__["spent"] = whole.spent

    for forged, what in ((shown, "whole.spent"), (counted, "whole.exact")):
        state = replace(driver.state, whole=forged)
        assert [found.what for found in differences(state, replay.state, [])] == [what]


def test_one_bit_in_a_total_of_floats_is_noticed() -> None:
    driver = Driver.of(replace(budget_of(accounting="zcdp", rho=0.5), exact=None))
    driver.authorize(gaussian(driver.state.budget, 5.0))
    spent = np.nextafter(driver.state.whole.spent, 0.0)
    forged = replace(driver.state, whole=Totals(spent, driver.state.whole.reserved))

    found = differences(forged, replayed(driver.stored).state, [])

    assert [each.what for each in found] == ["whole.spent"]


def test_another_budget_or_partition_is_noticed(driver: Driver) -> None:
    replay = replayed(driver.stored)
    forged = replace(driver.state, budget=budget_of(accounting="zcdp", rho=5.0))
    partition = driver.partitions[0]
    renamed = [(replace(partition, name="z", totals=driver.partitions[1].totals), replay.partitions[0])]

    assert [found.what for found in differences(forged, replay.state, [])] == ["budget"]
    assert {found.what for found in differences(driver.state, replay.state, renamed)} == {
        "partition z",
        "partition z.exact",
        "partition z.spent",
    }


def rehashed(driver: Driver, *entries: Any) -> list[StoredEntry]:
    """Entries as a forger with the database in hand would chain them."""
    stored, head = [], driver.stored[0].entry.previous
    for number, (entry, charge) in enumerate(entries, start=1):
        linked = replace(entry, sequence=number, previous=head)
        head = linked.hash
        stored.append(StoredEntry(linked, head, charge))
    return stored


def test_a_forged_chain_must_still_make_sense(driver: Driver) -> None:
    pairs = [(each.entry, each.charge) for each in driver.stored]
    twice_opened = rehashed(driver, pairs[0], pairs[2], pairs[0])
    never_opened = rehashed(driver, pairs[2])
    unknown_partition = rehashed(driver, pairs[0], pairs[5])
    unknown_reservation = rehashed(driver, pairs[0], pairs[1], pairs[4])
    uncharged = rehashed(driver, pairs[0], (replace(pairs[2][0], charge=None), None))

    for stored, problem in [
        (twice_opened, "opened once"),
        (never_opened, "opened once"),
        (unknown_partition, "never opened"),
        (unknown_reservation, "not open"),
        (uncharged, "missing"),
    ]:
        with pytest.raises(BrokenLedger, match=problem):
            replayed(stored)


def test_a_forged_chain_cannot_grant_more_than_the_budget(driver: Driver) -> None:
    pairs = [(each.entry, each.charge) for each in driver.stored]
    within = rehashed(driver, pairs[0], *[pairs[2]] * 24)  # ρ = 0.02 each, of 0.5
    beyond = rehashed(driver, pairs[0], *[pairs[2]] * 26)

    assert replayed(within).sequence == 25
    with pytest.raises(BrokenLedger, match="budget"):
        replayed(beyond)


def test_nothing_is_no_ledger() -> None:
    with pytest.raises(BrokenLedger, match="no opening entry"):
        _ = Replay(1, "adult").state
