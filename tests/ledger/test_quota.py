"""Quotas: never exceeded, in no window, whatever a team asks for; and nothing is refused without need."""

from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpledger.accounting.exact import Exact
from dpledger.ledger.decide import Granted, Refused, Stamp, decide
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.commands import (
    Authorize,
    ChangeBudget,
    ChangeQuota,
    Command,
    Expire,
    Reservation,
    Reserve,
    Settle,
)
from dpledger.ledger.model.entries import Charge
from dpledger.ledger.model.quota import SLICES, Quota
from dpledger.ledger.model.state import LedgerState
from dpledger.ledger.ports import StoredEntry
from dpledger.ledger.replay import BrokenLedger, Replay
from tests.ledger.builders import ADD_REMOVE, BUDGETS, adding, budget_of, gaussian, opened
from tests.ledger.driver import exact, holds_exactly

SECOND = 1_000_000
WINDOW = 64
"""Seconds: slices of two."""
NOISES = (3.0, 5.0, 9.0)


@dataclass
class Use:
    """What a team was granted: ``ended_us`` is None while it is held."""

    amounts: list[Fraction]
    ended_us: int | None


@dataclass
class Team:
    """A ledger in which one team has quotas; beside it every use with its time, kept apart."""

    state: LedgerState
    stored: list[StoredEntry]
    quotas: dict[int, Quota] = field(default_factory=dict)
    held: dict[int, tuple[Reservation, Use]] = field(default_factory=dict)
    uses: list[Use] = field(default_factory=list)
    now_us: int = 1000 * SECOND
    seen_us: int = 0

    @property
    def time_us(self) -> int:
        """The time of what is recorded now: for a quota it does not go back."""
        return max(self.now_us, self.seen_us)

    @classmethod
    def of(cls, budget: Budget) -> "Team":
        state, first = opened(budget)
        return cls(state, [first])

    def run(self, command: Command, charge: Charge | None = None, team: str | None = "lab") -> Any:
        outcome = decide(self.state, command, Stamp(self.now_us, "ann", team))
        if isinstance(outcome, Granted):
            self.state = outcome.state
            self.seen_us = self.time_us
            self.quotas |= {quota.sequence: quota for quota in outcome.quotas}
            self.stored.append(StoredEntry(outcome.entry, outcome.entry.hash, charge))
        return outcome

    @property
    def in_force(self) -> tuple[Quota, ...]:
        return tuple(self.quotas.values())

    def limit(self, fraction: float | None, window: int | None, present: Quota | None = None) -> Granted:
        granted = self.run(ChangeQuota("lab", fraction, window, "agreed", present), team=None)
        assert isinstance(granted, Granted)
        return granted

    def ask(self, charge: Charge, times: int | None) -> Granted | Refused:
        """Authorize, or reserve so often."""
        quotas = self.in_force
        each = exact(self.state.amounts_of(charge))
        if times is None:
            outcome: Granted | Refused = self.run(Authorize(charge, "run", quotas=quotas), charge)
            if isinstance(outcome, Granted):
                self.uses.append(Use(each, self.time_us))
            return outcome
        outcome = self.run(Reserve(charge, "run", times, 10**18, quotas=quotas), charge)
        if isinstance(outcome, Granted):
            use = Use([times * amount for amount in each], None)
            sequence = outcome.entry.sequence
            self.uses.append(use)
            self.held[sequence] = Reservation(sequence, charge, "run", times, 10**18, team="lab"), use
        return outcome

    def close(self, pick: int, used: int | None) -> None:
        sequence = sorted(self.held)[pick % len(self.held)]
        reservation, use = self.held.pop(sequence)
        reservation = replace(reservation, quotas=self.in_force)
        ran = reservation.times if used is None else used % (reservation.times + 1)
        self.run(Expire(reservation) if used is None else Settle(reservation, ran), team=None)
        use.amounts = [ran * amount / reservation.times for amount in use.amounts]
        use.ended_us = self.time_us

    def used(self, window_us: int | None) -> list[Fraction]:
        """What counts now, added up anew: held, or spent within the window."""
        since = -1 if window_us is None else self.time_us - window_us
        counted = [use.amounts for use in self.uses if use.ended_us is None or use.ended_us > since]
        return [sum(column, Fraction(0)) for column in zip(*counted, strict=True)] or [
            Fraction(0)
        ] * self.state.budget.size

    def holds(self, fraction: Fraction, window_us: int | None, more: list[Fraction]) -> bool:
        limits = [fraction * limit for limit in self.state.budget.exact_limits]
        borne = [a + b for a, b in zip(self.used(window_us), more, strict=True)]
        return holds_exactly(self.state.budget, borne, limits)


def replayed(team: Team) -> Replay:
    replay = Replay(1, "adult")
    for each in team.stored:
        replay.take(each)
    return replay


actions = st.one_of(
    st.tuples(st.just("ask"), st.integers(0, len(NOISES) - 1), st.none() | st.integers(1, 4)),
    st.tuples(st.just("close"), st.integers(0, 9), st.none() | st.integers(0, 9)),
    st.tuples(st.just("wait"), st.sampled_from([1, 2, 17, 63, 64, 66, -30]), st.none()),
    st.tuples(st.just("limit"), st.sampled_from([0.1, 0.35, 1.0]), st.none()),
)


@pytest.mark.parametrize("window", [None, WINDOW])
@given(
    fields=st.sampled_from(BUDGETS),
    arithmetic=st.sampled_from(["exact", "floats"]),
    fraction=st.sampled_from([0.1, 0.35, 0.6]),
    done=st.lists(actions, max_size=25),
)
def test_no_window_ever_holds_more_than_the_quota(
    window: int | None, fields: dict[str, Any], arithmetic: str, fraction: float, done: list[Any]
) -> None:
    team = Team.of(adding(fields, arithmetic))
    set_at = team.limit(fraction, window).entry.sequence
    window_us = None if window is None else window * SECOND
    longer_us = None if window is None else window * SECOND * (SLICES + 1) // SLICES
    for what, first, second in done:
        if what == "wait":
            team.now_us += first * SECOND
        elif what == "close" and team.held:
            team.close(first, second)
        elif what == "limit":
            fraction = first
            team.limit(fraction, window, team.quotas[set_at])
        elif what == "ask":
            part = Fraction(repr(fraction))
            charge = gaussian(team.state.budget, NOISES[first])
            asked = [(second or 1) * each for each in exact(team.state.amounts_of(charge))]
            within = team.holds(part, window_us, asked)
            within_longer = team.holds(part, longer_us, asked)
            outcome = team.ask(charge, second)
            assert isinstance(outcome, Refused) or within
            if within_longer and isinstance(outcome, Refused):
                assert outcome.quota is None, "refused although a slice more was free"
    again = replayed(team)
    assert {each.document for each in again.quotas.values()} == {each.document for each in team.in_force}
    assert again.state.head == team.state.head


def test_the_budget_decides_first_and_then_the_quota() -> None:
    team = Team.of(budget_of(accounting="zcdp", rho=0.5))
    team.limit(0.25, None)
    charge = gaussian(team.state.budget, 10.0)  # ρ = 0.005
    assert isinstance(team.ask(charge, 25), Granted)

    refused = team.ask(charge, 1)
    assert isinstance(refused, Refused)
    assert refused.quota is not None
    assert refused.fits == {"times": 0, "cost_fraction": 0.0}
    assert refused.remaining["rho"] == pytest.approx(0.375)
    exhausted = team.ask(charge, 101)
    assert isinstance(exhausted, Refused)
    assert exhausted.quota is None, "the budget itself does not cover it"
    assert isinstance(team.run(Authorize(charge, "run"), charge, team="others"), Granted)


def test_a_refusal_says_what_fits_and_when_more_is_free() -> None:
    team = Team.of(budget_of(accounting="zcdp", rho=0.5))
    team.limit(0.25, WINDOW)
    charge = gaussian(team.state.budget, 10.0)
    team.ask(charge, 20)
    team.close(0, 20)
    refused = team.ask(charge, 9)

    assert isinstance(refused, Refused)
    assert refused.fits["times"] == 5
    assert refused.fits["cost_fraction"] == 1.0
    assert refused.quota is not None
    assert refused.quota.left(team.state.budget) == pytest.approx(0.05)
    frees = refused.quota.frees_at_us
    assert frees is not None
    assert team.now_us + WINDOW * SECOND < frees <= team.now_us + (WINDOW + 2) * SECOND
    team.now_us = frees - 1
    assert isinstance(team.ask(charge, 9), Refused)
    team.now_us = frees
    assert isinstance(team.ask(charge, 9), Granted)


def test_what_is_held_counts_however_long_ago_it_was_reserved() -> None:
    team = Team.of(budget_of(accounting="zcdp", rho=0.5))
    team.limit(0.25, WINDOW)
    charge = gaussian(team.state.budget, 10.0)
    team.ask(charge, 25)
    team.now_us += 10 * WINDOW * SECOND
    held = team.ask(charge, 1)
    assert isinstance(held, Refused)
    assert held.quota is not None
    assert held.quota.frees_at_us is None, "only its settlement frees it"

    team.close(0, 5)
    assert isinstance(team.ask(charge, 20), Granted)
    assert isinstance(team.ask(charge, 1), Refused)


def test_a_reservation_of_before_the_quota_is_not_counted() -> None:
    team = Team.of(budget_of(accounting="zcdp", rho=0.5))
    charge = gaussian(team.state.budget, 10.0)
    team.ask(charge, 50)
    team.limit(0.25, None)
    team.close(0, 50)
    assert [quota.left(team.state.budget) for quota in team.in_force] == [0.25]
    assert {each.document for each in replayed(team).quotas.values()} == {
        each.document for each in team.in_force
    }


def test_a_lowered_budget_lowers_the_quota() -> None:
    team = Team.of(budget_of(accounting="zcdp", rho=0.5))
    team.limit(0.5, None)
    charge = gaussian(team.state.budget, 10.0)
    team.ask(charge, 20)
    team.run(ChangeBudget(team.state.budget.with_limit({"accounting": "zcdp", "rho": 0.2}, ADD_REMOVE), "r"))

    (quota,) = team.in_force
    assert quota.left(team.state.budget) == 0.0
    assert quota.room(team.state.budget)[0] == pytest.approx(0.0, abs=1e-12)
    assert isinstance(team.ask(charge, 1), Refused)


def test_a_removed_quota_limits_nothing_and_a_new_one_begins_anew() -> None:
    team = Team.of(budget_of(accounting="zcdp", rho=0.5))
    set_at = team.limit(0.1, None).entry.sequence
    charge = gaussian(team.state.budget, 10.0)
    team.ask(charge, 10)
    removed = team.limit(None, None, team.quotas.pop(set_at)).quotas
    assert [quota.removed for quota in removed] == [True]
    team.quotas.clear()
    assert isinstance(team.ask(charge, 20), Granted)

    team.limit(0.1, None)
    assert isinstance(team.ask(charge, 10), Granted)
    assert isinstance(team.ask(charge, 1), Refused)
    assert len(replayed(team).quotas) == 1


@pytest.mark.parametrize("window", [None, WINDOW])
def test_a_grant_past_a_quota_breaks_the_ledger(window: int | None) -> None:
    team = Team.of(budget_of(accounting="zcdp", rho=0.5))
    team.limit(0.1, window)
    charge = gaussian(team.state.budget, 10.0)
    team.ask(charge, 10)
    assert team.run(Authorize(charge, "run"), charge)  # as a replica that knows no quotas would
    with pytest.raises(BrokenLedger, match="entry 4: grants more than the quota of entry 2 had left"):
        replayed(team)


def test_a_team_that_was_left_out_of_an_entry_breaks_its_hash() -> None:
    team = Team.of(budget_of(accounting="zcdp", rho=0.5))
    team.limit(0.1, None)
    charge = gaussian(team.state.budget, 10.0)
    team.ask(charge, None)
    last = team.stored[-1]
    team.stored[-1] = replace(last, entry=replace(last.entry, team=None))
    with pytest.raises(BrokenLedger, match="its hash does not match"):
        replayed(team)


def test_removing_what_is_not_there_breaks_the_ledger() -> None:
    team = Team.of(budget_of(accounting="zcdp", rho=0.5))
    nothing = Quota(9, "lab", 0.5, None, (), Exact.zero(2))
    team.limit(None, None, nothing)
    with pytest.raises(BrokenLedger, match="removes a quota that was not in force"):
        replayed(team)
