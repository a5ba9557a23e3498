"""Renewal by epochs: which there are, what replay refuses, and that nobody bears more than the limits."""

import datetime as dt
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpledger.ledger.decide import Granted, Stamp, decide
from dpledger.ledger.model.commands import ChangeRenewal, Command, OpenPartitions
from dpledger.ledger.model.entries import GENESIS, Entry, EntryKind
from dpledger.ledger.model.renewal import EpochOpening, Period, epochs_at, units_lie_in_one_partition
from dpledger.ledger.replay import BrokenLedger, Replay
from tests.ledger.builders import budget_of, gaussian
from tests.ledger.driver import Driver, holds_exactly

DAY_US = 86_400 * 10**6
ZCDP = budget_of(accounting="zcdp", rho=0.5)
OWN = budget_of(accounting="zcdp", rho=0.1)
NOVEMBER_US = 1_700_000_000 * 10**6
ACTIONS = st.sampled_from(["spend", "whole", "epoch"])
SCRIPTS = st.lists(st.tuples(ACTIONS, st.integers(0, 9)), max_size=30)


def at(year: int, month: int, day: int) -> int:
    moment = dt.datetime(year, month, day, 23, 59, 59, tzinfo=dt.UTC)
    return int(moment.timestamp()) * 10**6


@pytest.mark.parametrize(
    ("period", "day", "epochs"),
    [
        (Period.DAY, (2026, 12, 31), ("2026-12-31", "2027-01-01")),
        (Period.DAY, (2024, 2, 28), ("2024-02-28", "2024-02-29")),
        (Period.WEEK, (2026, 12, 31), ("2026-W53", "2027-W01")),
        (Period.WEEK, (2027, 1, 3), ("2026-W53", "2027-W01")),
        (Period.MONTH, (2026, 11, 30), ("2026-11", "2026-12")),
        (Period.MONTH, (2026, 12, 1), ("2026-12", "2027-01")),
        (Period.MONTH, (2026, 1, 31), ("2026-01", "2026-02")),
        (Period.QUARTER, (2026, 9, 30), ("2026-Q3", "2026-Q4")),
        (Period.QUARTER, (2026, 11, 30), ("2026-Q4", "2027-Q1")),
        (Period.YEAR, (2026, 2, 1), ("2026", "2027")),
    ],
)
def test_the_present_and_the_next_epoch(period: Period, day: Any, epochs: tuple[str, str]) -> None:
    assert epochs_at(period, at(*day)) == epochs


@given(period=st.sampled_from(Period), day=st.integers(0, 40_000))
def test_epochs_follow_on_each_other_without_gaps(period: Period, day: int) -> None:
    """From one day to the next the epoch stays, or becomes the one that was next."""
    today, tomorrow = epochs_at(period, day * DAY_US), epochs_at(period, (day + 1) * DAY_US)
    assert tomorrow[0] in today
    assert today[0] < today[1]
    assert today != tomorrow or today[0] == tomorrow[0]


def opening(**fields: Any) -> Entry:
    return Entry(1, EntryKind.OPENED, 1, "admin", GENESIS, detail=json.dumps(fields))


def test_which_units_lie_in_one_partition() -> None:
    assert units_lie_in_one_partition(opening(unit="record"))
    assert not units_lie_in_one_partition(opening(unit="user"))
    assert not units_lie_in_one_partition(opening())
    assert units_lie_in_one_partition(opening(unit="user", units_in_one_partition=True))
    assert not units_lie_in_one_partition(opening(unit="user", units_in_one_partition=1))


def of_records(partition_key: str = "fixed") -> Driver:
    """A ledger whose unit is the record, with one partition."""
    driver = Driver.of(ZCDP, partition_key)
    (first,) = driver.stored
    detail = json.dumps({**json.loads(first.entry.detail or ""), "unit": "record"}, separators=(",", ":"))
    entry = replace(first.entry, detail=detail)
    driver.state = replace(driver.state, head=entry.hash)
    driver.stored = [replace(first, entry=entry, hash=entry.hash)]
    driver.open("2023-10")
    return driver


def run(driver: Driver, command: Command, at_us: int = NOVEMBER_US) -> None:
    outcome = decide(driver.state, command, Stamp(at_us, "ann"))
    assert isinstance(outcome, Granted)
    driver._take(outcome, None)


def policy(driver: Driver, period: Period = Period.MONTH, budget: Any = OWN) -> int:
    run(driver, ChangeRenewal(period, budget, "each month"))
    return driver.state.sequence


def epoch(driver: Driver, name: str, renewal: int, budget: Any = OWN, at_us: int = NOVEMBER_US) -> None:
    run(driver, OpenPartitions((name,), budget, EpochOpening(renewal, "dated in it")), at_us)


def replayed(driver: Driver) -> Replay:
    replay = Replay(1, "adult")
    for each in driver.stored:
        replay.take(each)
    return replay


def test_epochs_are_replayed() -> None:
    driver = of_records()
    epoch(driver, "2023-11", policy(driver))
    epoch(driver, "2023-12", policy(driver, budget=ZCDP), ZCDP)
    policy(driver, budget=None)
    replay = replayed(driver)
    assert [each.name for each in replay.partitions.values()] == ["2023-10", "2023-11", "2023-12"]
    assert replay.state.governed


@pytest.mark.parametrize("name", ["2023-10", "2024-01", "2023-11-14", "2023", "north"])
def test_an_epoch_that_is_past_or_far_breaks_the_ledger(name: str) -> None:
    driver = of_records()
    epoch(driver, name, policy(driver))
    with pytest.raises(BrokenLedger, match="neither the present nor the next epoch"):
        replayed(driver)


def test_an_epoch_of_another_time_breaks_the_ledger() -> None:
    driver = of_records()
    epoch(driver, "2023-11", policy(driver), at_us=NOVEMBER_US + 60 * DAY_US)
    with pytest.raises(BrokenLedger, match="neither the present nor the next epoch"):
        replayed(driver)


def test_an_epoch_with_another_budget_breaks_the_ledger() -> None:
    driver = of_records()
    epoch(driver, "2023-11", policy(driver), ZCDP)
    with pytest.raises(BrokenLedger, match="another budget"):
        replayed(driver)


def test_an_epoch_without_a_statement_breaks_the_ledger() -> None:
    driver = of_records()
    run(driver, OpenPartitions(("2023-11",), OWN, EpochOpening(policy(driver), "")))
    with pytest.raises(BrokenLedger, match="without its statement"):
        replayed(driver)


def test_an_epoch_without_the_policy_in_force_breaks_the_ledger() -> None:
    never = of_records()
    epoch(never, "2023-11", 2)
    other = of_records()
    first = policy(other)
    policy(other)
    epoch(other, "2023-11", first)
    ended = of_records()
    epoch(ended, "2023-11", policy(ended, budget=None))
    for driver in (never, other, ended):
        with pytest.raises(BrokenLedger, match="a policy that was not in force"):
            replayed(driver)


def test_a_policy_for_what_cannot_be_renewed_breaks_the_ledger() -> None:
    users = Driver.of(ZCDP)
    users.open("a")
    policy(users)
    without = of_records()
    del without.stored[1:]
    without.state = replace(without.state, sequence=1, head=without.stored[0].entry.hash, partitions=0)
    policy(without)
    for driver in (users, without):
        with pytest.raises(BrokenLedger, match="recurs over epochs, or has no partitions"):
            replayed(driver)


def test_another_period_breaks_the_ledger() -> None:
    driver = of_records()
    policy(driver)
    policy(driver, Period.WEEK)
    with pytest.raises(BrokenLedger, match="changes the period"):
        replayed(driver)


@pytest.mark.parametrize("partition_key", ["fixed", "private"])
@given(
    script=st.lists(st.tuples(st.sampled_from(["spend", "whole", "epoch"]), st.integers(0, 9)), max_size=30)
)
def test_no_record_bears_more_than_its_limits_however_many_epochs_are_opened(
    partition_key: str, script: list[tuple[str, int]]
) -> None:
    """Exactly, by sums that are kept apart; and what was spent before an epoch stays spent."""
    driver = of_records(partition_key)
    renewal, day = policy(driver), NOVEMBER_US
    for what, number in script:
        if what == "epoch":
            spent = {each.number: each.totals.committed.tolist() for each in driver.partitions.values()}
            name, day = epochs_at(Period.MONTH, day)[0], day + 31 * DAY_US
            if name not in {each.name for each in driver.partitions.values()}:
                epoch(driver, name, renewal, at_us=day - 31 * DAY_US)
            kept = {each.number: each.totals.committed.tolist() for each in driver.partitions.values()}
            assert {number: kept[number] for number in spent} == spent
        else:
            chosen = None if what == "whole" else number % len(driver.partitions)
            granted = driver.authorize(gaussian(driver.state.budget, 3.0 + number), chosen)
            if isinstance(granted, Granted) and what == "whole":
                assert all(holds_exactly(driver.state.budget, *each) for each in driver.borne())
        limits = list(driver.state.budget.exact_limits)
        for borne, _ in driver.borne():
            assert holds_exactly(driver.state.budget, borne, limits)
