"""Asks an admin for budget, and records what is decided: an approval is carried out in its transaction."""

from dpledger.accounting.errors import InvalidInput, Unproven
from dpledger.ledger.allocations import check_allocates
from dpledger.ledger.decide import Refused, detail_of
from dpledger.ledger.errors import (
    AlreadyExists,
    NotFound,
    RequestClosed,
    RequestOfAnother,
    RequestOutdated,
    TooManyRequests,
)
from dpledger.ledger.guarantee import guarantee_fields, limit_warnings
from dpledger.ledger.idempotency import IdempotentExecutor
from dpledger.ledger.model.allocation import inner_budget
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.budget_request import (
    MAX_OPEN_REQUESTS,
    MAX_OPEN_REQUESTS_PER_TOKEN,
    BudgetRequest,
    RequestKind,
    RequestState,
)
from dpledger.ledger.model.commands import Allocate, ChangeBudget, ChangeQuota, RequestBudget
from dpledger.ledger.model.entries import identifier
from dpledger.ledger.model.quota import Quota
from dpledger.ledger.model.requests import NewAllocation, NewBudgetRequest, QuotaRaise, RequestDecision
from dpledger.ledger.ports import IdempotentRequest, Transaction
from dpledger.ledger.results import (
    AllocationRefusal,
    RequestApproval,
    RequestRecord,
    StoredResult,
)
from dpledger.ledger.unit_of_work import UnitOfWork

__all__ = ["decide_budget_request", "request_budget"]

Effect = Allocate | ChangeQuota | ChangeBudget


def request_budget(
    executor: IdempotentExecutor, name: str, asked: NewBudgetRequest, call: IdempotentRequest
) -> RequestRecord | StoredResult:
    """Record what is asked of an admin, and why; nothing is charged, and no total changes."""
    inner = _inner_budget(executor, name, asked.asked)

    def work(_transaction: Transaction, unit: UnitOfWork) -> RequestRecord:
        _check_room(unit, name, call.actor)
        kind, effect = _wanted(unit, name, asked, inner, call.actor)
        return RequestRecord(name, unit.ask(RequestBudget(kind, detail_of(effect)), call.actor))

    return executor.answer_once(name, call, work)


def _inner_budget(executor: IdempotentExecutor, name: str, asked: object) -> Budget | None:
    """The budget inside an allocation, made before the lock: a plan takes long to compose."""
    if not isinstance(asked, NewAllocation):
        return None
    shared, adjacency = executor.charger.rule(name)
    check_allocates(name, shared)
    return inner_budget(asked.budget, asked.epsilon, asked.delta, adjacency)


def _check_room(unit: UnitOfWork, name: str, actor: str) -> None:
    everybody, own = unit.count_open_requests(actor)
    if everybody >= MAX_OPEN_REQUESTS:
        raise TooManyRequests(everybody, MAX_OPEN_REQUESTS, name)
    if own >= MAX_OPEN_REQUESTS_PER_TOKEN:
        raise TooManyRequests(own, MAX_OPEN_REQUESTS_PER_TOKEN, f"this token for {name}")


def _wanted(
    unit: UnitOfWork, name: str, request: NewBudgetRequest, inner: Budget | None, actor: str
) -> tuple[RequestKind, Effect]:
    """What would carry a request out; refuses what could not be carried out now."""
    asked, reason, state = request.asked, request.reason, unit.state
    if isinstance(asked, NewAllocation):
        assert inner is not None, "it was made before the lock"
        check_allocates(name, state.budget)
        if unit.is_taken(asked.name):
            raise AlreadyExists("allocation", asked.name)
        return RequestKind.ALLOCATION, Allocate(asked.name, actor, asked.epsilon, asked.delta, inner, reason)
    if isinstance(asked, QuotaRaise):
        team = unit.stamp(actor).team
        if team is None:
            raise Unproven("the token has no team, and quotas are of teams: nothing limits it but the budget")
        present = _quota_below(unit, team, asked.fraction, asked.window_seconds)
        return RequestKind.QUOTA, ChangeQuota(team, asked.fraction, asked.window_seconds, reason, present)
    return RequestKind.BUDGET, ChangeBudget(state.budget.with_limit(asked, state.adjacency), reason)


def _quota_below(unit: UnitOfWork, team: str, fraction: float, window_seconds: int | None) -> Quota:
    """The team's quota of that window, which must be less than what is asked for."""
    found = [each for each in unit.quotas(team) if each.window_seconds == window_seconds]
    if not found:
        raise NotFound("quota", team)
    if not found[0].fraction < fraction:
        raise InvalidInput("quota.fraction", f"above the {found[0].fraction!r} that the team has", fraction)
    return found[0]


def decide_budget_request(
    executor: IdempotentExecutor, decision: RequestDecision, call: IdempotentRequest
) -> RequestRecord | RequestApproval | AllocationRefusal | StoredResult:
    """Approve, reject or withdraw an open request; what an approval does not fit stays open."""
    name = decision.dataset

    def work(
        _transaction: Transaction, unit: UnitOfWork
    ) -> RequestRecord | RequestApproval | AllocationRefusal:
        request = unit.request(decision.sequence)
        _check_open(name, request, decision, call.actor)
        if decision.state is RequestState.APPROVED:
            return _approve(unit, name, request, decision.reason, call.actor)
        return RequestRecord(name, unit.decide_request(request, decision.state, decision.reason, call.actor))

    return executor.answer_once(name, call, work)


def _check_open(name: str, request: BudgetRequest, decision: RequestDecision, actor: str) -> None:
    if decision.state is RequestState.WITHDRAWN and request.actor != actor:
        raise RequestOfAnother(identifier(name, request.sequence))
    if request.state is not RequestState.OPEN:
        raise RequestClosed(identifier(name, request.sequence), request.state.value)


def _approve(
    unit: UnitOfWork, name: str, request: BudgetRequest, reason: str | None, actor: str
) -> RequestApproval | AllocationRefusal:
    effect = _effect(unit, name, request)
    outcome = unit.approve(request, effect, reason, actor)
    if isinstance(outcome, Refused):
        assert isinstance(effect, Allocate), "nothing else is refused"
        return AllocationRefusal(name, effect.name, effect.epsilon, effect.delta, outcome)
    state = unit.state
    warnings = limit_warnings(state) if isinstance(effect, ChangeBudget) else []
    return RequestApproval(name, outcome, state.remaining(None), guarantee_fields(state), tuple(warnings))


def _effect(unit: UnitOfWork, name: str, request: BudgetRequest) -> Effect:
    """What carries a request out: what was asked, to the letter, or nothing."""
    asked = request.fields
    if request.kind is RequestKind.ALLOCATION:
        budget, part = Budget.from_document(asked["budget"]), (asked["epsilon"], asked["delta"])
        return Allocate(asked["name"], request.actor, *part, budget, asked["reason"])
    if request.kind is RequestKind.QUOTA:
        limit = asked["fraction"], asked["window_seconds"]
        try:
            present = _quota_below(unit, asked["team"], *limit)
        except (NotFound, InvalidInput) as error:
            raise RequestOutdated(identifier(name, request.sequence), str(error)) from None
        return ChangeQuota(asked["team"], *limit, asked["reason"], present)
    if unit.budget_changed_since(request.sequence):
        why = "the budget was changed after the request was made"
        raise RequestOutdated(identifier(name, request.sequence), why)
    return ChangeBudget(Budget.from_document(asked["budget"]), asked["reason"])
