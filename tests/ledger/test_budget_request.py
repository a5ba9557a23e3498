"""Requests for budget: what replay refuses of them, whoever wrote it under right hashes."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from dpledger.ledger.decide import Granted, Stamp, decide, detail_of
from dpledger.ledger.model.allocation import inner_budget
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.budget_request import (
    BudgetRequest,
    RequestKind,
    RequestState,
    decided_request,
    is_carried_out_by,
    request_of,
)
from dpledger.ledger.model.commands import (
    Allocate,
    ChangeBudget,
    ChangeQuota,
    Command,
    DecideRequest,
    RequestBudget,
)
from dpledger.ledger.model.entries import Entry
from dpledger.ledger.model.quota import Quota
from dpledger.ledger.model.state import LedgerState
from dpledger.ledger.ports import StoredEntry
from dpledger.ledger.replay import BrokenLedger, Replay, differences
from tests.ledger.builders import ADD_REMOVE, budget_of, opened

ZCDP = budget_of(accounting="zcdp", rho=0.5)
HIGHER = budget_of(accounting="zcdp", rho=1.0)
MORE = budget_of(accounting="zcdp", rho=2.0)
SHARED = budget_of(accounting="shared", epsilon=3.0, delta=1e-5)
APPROVED = RequestState.APPROVED


@dataclass
class Writer:
    """Writes whatever it is asked for under right hashes, as only the service should."""

    state: LedgerState
    stored: list[StoredEntry]
    quotas: dict[int, Quota] = field(default_factory=dict)
    at_us: int = 10

    @classmethod
    def of(cls, budget: Budget) -> "Writer":
        state, first = opened(budget)
        return cls(state, [first])

    def write(self, command: Command, actor: str = "admin", team: str | None = None) -> Entry:
        outcome = decide(self.state, command, Stamp(self.at_us, actor, team))
        assert isinstance(outcome, Granted)
        self.state = outcome.state
        self.quotas |= {quota.sequence: quota for quota in outcome.quotas}
        self.stored.append(StoredEntry(outcome.entry, outcome.entry.hash))
        return outcome.entry

    def ask(self, kind: RequestKind, effect: Allocate | ChangeQuota | ChangeBudget) -> BudgetRequest:
        return request_of(self.write(RequestBudget(kind, detail_of(effect)), "ann", "lab"))

    def close(self, request: BudgetRequest, state: RequestState, actor: str = "admin") -> BudgetRequest:
        return decided_request(request, self.write(DecideRequest(request, state, "seen"), actor))

    def replayed(self) -> Replay:
        replay = Replay(1, "adult")
        for each in self.stored:
            replay.take(each)
        return replay


def part(name: str = "study", epsilon: float = 1.0) -> Allocate:
    inside = inner_budget({"accounting": "zcdp"}, epsilon, 1e-6, ADD_REMOVE)
    return Allocate(name, "ann", epsilon, 1e-6, inside, "a study")


RAISE = ChangeBudget(HIGHER, "another year")


def approved(writer: Writer, kind: RequestKind, asked: Allocate | ChangeQuota | ChangeBudget) -> None:
    writer.close(writer.ask(kind, asked), APPROVED)


def breaks(writer: Writer, problem: str) -> None:
    with pytest.raises(BrokenLedger, match=problem):
        writer.replayed()


def test_requests_are_replayed_with_what_became_of_them() -> None:
    writer = Writer.of(SHARED)
    one = writer.ask(RequestKind.ALLOCATION, part())
    two = writer.ask(RequestKind.ALLOCATION, part("other"))
    three = writer.ask(RequestKind.BUDGET, ChangeBudget(SHARED, "as it is"))
    four = writer.close(two, RequestState.WITHDRAWN, "ann")
    done = writer.close(one, APPROVED)
    writer.write(part())
    closed = writer.close(three, RequestState.REJECTED)
    five = writer.ask(RequestKind.ALLOCATION, part("last"))

    replay = writer.replayed()
    assert replay.requests == {2: done, 3: four, 4: closed, 9: five}
    assert (done.carried_out_at, closed.carried_out_at, five.carried_out_at) == (7, None, None)
    assert replay.allocations[7].owner == "ann"
    assert replay.state.governed
    assert differences(writer.state, replay.state, []) == []


def test_a_request_changes_no_total() -> None:
    writer = Writer.of(ZCDP)
    before = writer.state
    writer.close(writer.ask(RequestKind.BUDGET, RAISE), RequestState.REJECTED)
    after = writer.state
    moved_back = replace(after, sequence=before.sequence, head=before.head, governed=False)
    assert differences(before, moved_back, []) == []


def test_an_approval_of_a_request_that_never_was_breaks_the_ledger() -> None:
    writer = Writer.of(ZCDP)
    writer.close(BudgetRequest(7, RequestKind.BUDGET, detail_of(RAISE), "ann", None, 1), APPROVED)
    breaks(writer, "entry 2: decides request 7, which is not open")


@pytest.mark.parametrize("first", [APPROVED, RequestState.REJECTED, RequestState.WITHDRAWN])
@pytest.mark.parametrize("second", [APPROVED, RequestState.REJECTED, RequestState.WITHDRAWN])
def test_a_request_that_is_decided_twice_breaks_the_ledger(first: RequestState, second: RequestState) -> None:
    writer = Writer.of(ZCDP)
    asked = writer.ask(RequestKind.BUDGET, RAISE)
    writer.close(asked, first, "ann")
    if first is APPROVED:
        writer.write(RAISE, "ann")
    writer.replayed()
    writer.close(asked, second, "ann")
    breaks(writer, "decides request 2, which is not open")


def write_later(writer: Writer) -> None:
    writer.at_us = 11
    writer.write(RAISE)


def carried_out_otherwise() -> dict[str, Callable[[Writer], object]]:
    return {
        "more": lambda writer: writer.write(ChangeBudget(MORE, RAISE.reason)),
        "for another reason": lambda writer: writer.write(ChangeBudget(HIGHER, "none")),
        "by another admin": lambda writer: writer.write(RAISE, "eve"),
        "later": write_later,
        "something else": lambda writer: writer.write(ChangeQuota("lab", 0.5, None, RAISE.reason)),
        "nothing": lambda writer: writer.ask(RequestKind.BUDGET, RAISE),
    }


@pytest.mark.parametrize("how", carried_out_otherwise())
def test_an_approval_whose_effect_is_not_what_was_asked_breaks_the_ledger(how: str) -> None:
    writer = Writer.of(ZCDP)
    approved(writer, RequestKind.BUDGET, RAISE)
    carried_out_otherwise()[how](writer)
    breaks(writer, "entry 4: is not what the request asked that was approved before it")


def test_an_allocation_larger_than_was_asked_for_breaks_the_ledger() -> None:
    writer = Writer.of(SHARED)
    approved(writer, RequestKind.ALLOCATION, part())
    writer.write(part(epsilon=2.0))
    breaks(writer, "is not what the request asked")


def test_an_approval_at_the_end_lacks_what_it_carries_out() -> None:
    writer = Writer.of(ZCDP)
    approved(writer, RequestKind.BUDGET, RAISE)
    assert writer.replayed().lacks_effect_of == 2
    writer.write(RAISE)
    assert writer.replayed().lacks_effect_of is None


def test_an_approval_past_what_the_budget_has_breaks_the_ledger() -> None:
    writer = Writer.of(SHARED)
    approved(writer, RequestKind.ALLOCATION, part(epsilon=2.0))
    writer.write(part(epsilon=2.0))
    approved(writer, RequestKind.ALLOCATION, part("other", 1.0))
    writer.write(part("other", 1.0))
    writer.replayed()
    over = Writer.of(SHARED)
    over.state = replace(over.state, budget=budget_of(accounting="shared", epsilon=9.0, delta=1e-5))
    approved(over, RequestKind.ALLOCATION, part(epsilon=4.0))
    over.write(part(epsilon=4.0))
    breaks(over, "entry 4: grants more than the budget had left")


def test_a_request_that_was_outdated_breaks_the_ledger_that_approves_it() -> None:
    writer = Writer.of(ZCDP)
    asked = writer.ask(RequestKind.BUDGET, RAISE)
    writer.write(ChangeBudget(MORE, "more"))
    writer.close(asked, APPROVED)
    breaks(writer, "approves request 2, which was outdated")


@pytest.mark.parametrize("present", [None, 0.5, 0.7])
def test_a_quota_that_is_not_raised_breaks_the_ledger_that_approves_it(present: float | None) -> None:
    writer = Writer.of(ZCDP)
    if present is not None:
        writer.write(ChangeQuota("lab", present, None, "agreed"))
    approved(writer, RequestKind.QUOTA, ChangeQuota("lab", 0.5, None, "more"))
    breaks(writer, "which was outdated")


def test_a_quota_is_raised_by_an_approval() -> None:
    writer = Writer.of(ZCDP)
    writer.write(ChangeQuota("lab", 0.2, None, "agreed"))
    asked = ChangeQuota("lab", 0.5, None, "more", writer.quotas[2])
    approved(writer, RequestKind.QUOTA, asked)
    writer.write(asked)
    (quota,) = writer.replayed().quotas.values()
    assert (quota.sequence, quota.fraction) == (2, 0.5)


def test_a_withdrawal_by_another_breaks_the_ledger() -> None:
    writer = Writer.of(ZCDP)
    writer.close(writer.ask(RequestKind.BUDGET, RAISE), RequestState.WITHDRAWN, "eve")
    breaks(writer, "withdraws the request of another token")


def test_what_an_entry_says_is_what_was_asked() -> None:
    writer = Writer.of(ZCDP)
    asked = writer.ask(RequestKind.BUDGET, RAISE)
    assert asked.asked == detail_of(RAISE)
    assert asked.fields == json.loads(detail_of(RAISE))
    assert (asked.reason, asked.actor, asked.team) == ("another year", "ann", "lab")
    effect = writer.write(RAISE)
    assert not is_carried_out_by(asked, effect), "it is still open"
