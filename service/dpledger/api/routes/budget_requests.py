"""Requests for budget: what a token may not do by itself, decided by an admin."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from dpledger.api.deps import IdempotentRequestDependency, ServicesDependency, decide_once
from dpledger.api.http.pagination import DEFAULT_LIMIT, Cursor, Limit, number_after, page
from dpledger.api.http.problems import (
    ADJACENCY_MISMATCH,
    ALREADY_EXISTS,
    BUDGET_EXHAUSTED,
    INVALID_INPUT,
    QUOTA_EXCEEDED,
    REQUEST_CLOSED,
    REQUEST_OUTDATED,
    TOO_MANY_REQUESTS,
    UNPROVEN,
    UNREACHABLE,
)
from dpledger.api.http.routing import GuardedRoute, require_scope
from dpledger.api.responses import to_json_response
from dpledger.api.schemas.requests import BudgetRequestBody, DecisionBody, WithdrawalBody
from dpledger.api.schemas.responses import BudgetRequestAnswer, BudgetRequestPage, RequestDecisionAnswer
from dpledger.auth.scopes import Scope
from dpledger.ledger.errors import NotFound
from dpledger.ledger.model.budget_request import RequestState
from dpledger.ledger.model.entries import parse_identifier
from dpledger.ledger.model.requests import NewAllocation, RequestDecision

__all__ = ["router"]

router = APIRouter(
    prefix="/v1/datasets/{dataset}/budget-requests", tags=["budget requests"], route_class=GuardedRoute
)


@router.post("", status_code=201, responses={201: {"model": BudgetRequestAnswer}}, summary="Ask for budget")
@require_scope(
    Scope.SPEND,
    idempotent=True,
    may_answer=[TOO_MANY_REQUESTS, ALREADY_EXISTS, ADJACENCY_MISMATCH, UNPROVEN, UNREACHABLE],
)
async def post_budget_request(
    dataset: str, body: BudgetRequestBody, services: ServicesDependency, call: IdempotentRequestDependency
) -> Response:
    """Ask an admin for an allocation, a larger quota or another budget; nothing is charged."""
    request = await services.compute(body.to_request)
    if isinstance(request.asked, NewAllocation):
        await services.compose(services.ledger.compose_allocation, dataset, request.asked)
    return await decide_once(services, call, services.ledger.request_budget, dataset, request)


@router.get("", responses={200: {"model": BudgetRequestPage}}, summary="List requests for budget")
@require_scope(Scope.READ, may_answer=[INVALID_INPUT])
def get_budget_requests(
    dataset: str,
    services: ServicesDependency,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
    state: Annotated[RequestState | None, Query(description="Only those in this state.")] = None,
) -> Response:
    """List requests for budget in the order in which they were made, with what was decided."""
    found = services.reader.budget_requests(dataset, number_after(cursor), limit + 1, state)
    return to_json_response(page(found, limit, lambda item: item["sequence"]))


@router.get("/{request}", responses={200: {"model": BudgetRequestAnswer}}, summary="Show a request")
@require_scope(Scope.READ)
def get_budget_request(dataset: str, request: str, services: ServicesDependency) -> Response:
    """Show a request for budget, and what was decided."""
    return to_json_response(services.reader.budget_request(dataset, _sequence(dataset, request)))


@router.post(
    "/{request}/decision",
    status_code=201,
    responses={201: {"model": RequestDecisionAnswer}},
    summary="Approve or reject a request",
)
@require_scope(
    Scope.ADMIN,
    idempotent=True,
    may_answer=[REQUEST_CLOSED, REQUEST_OUTDATED, BUDGET_EXHAUSTED, QUOTA_EXCEEDED, ALREADY_EXISTS],
)
async def post_request_decision(
    dataset: str,
    request: str,
    body: DecisionBody,
    services: ServicesDependency,
    call: IdempotentRequestDependency,
) -> Response:
    """Approve a request, which carries it out as if the admin had made the call, or reject it with a reason.

    What does not fit is refused, and the request stays open.
    """
    decision = body.to_decision(dataset, _sequence(dataset, request))
    return await decide_once(services, call, services.ledger.decide_budget_request, decision)


@router.post(
    "/{request}/withdrawal",
    status_code=201,
    responses={201: {"model": BudgetRequestAnswer}},
    summary="Withdraw a request",
)
@require_scope(Scope.SPEND, idempotent=True, may_answer=[REQUEST_CLOSED])
async def post_request_withdrawal(
    dataset: str,
    request: str,
    body: WithdrawalBody,
    services: ServicesDependency,
    call: IdempotentRequestDependency,
) -> Response:
    """Withdraw an open request; for the token that made it."""
    sequence = _sequence(dataset, request)
    decision = RequestDecision(dataset, sequence, RequestState.WITHDRAWN, body.reason)
    return await decide_once(services, call, services.ledger.decide_budget_request, decision)


def _sequence(dataset: str, request: str) -> int:
    found = parse_identifier(request)
    if found is None or found[0] != dataset:
        raise NotFound("request", request)
    return found[1]
