"""Allocations: parts of a shared budget, each with a budget of its own inside."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from dpledger.api.deps import IdempotentRequestDependency, ServicesDependency, decide_once
from dpledger.api.http.pagination import DEFAULT_LIMIT, Cursor, Limit, number_after, page
from dpledger.api.http.problems import (
    ADJACENCY_MISMATCH,
    ALLOCATION_IN_USE,
    ALLOCATION_RETURNED,
    ALREADY_EXISTS,
    BUDGET_EXHAUSTED,
    INVALID_INPUT,
    QUOTA_EXCEEDED,
    UNPROVEN,
    UNREACHABLE,
)
from dpledger.api.http.routing import GuardedRoute, caller_of, require_scope
from dpledger.api.responses import to_json_response
from dpledger.api.schemas.requests import AllocationBody, AllocationReturnBody
from dpledger.api.schemas.responses import (
    AllocationAnswer,
    AllocationPage,
    AllocationReturnAnswer,
    AllocationView,
)
from dpledger.auth.scopes import Scope

__all__ = ["router"]

router = APIRouter(
    prefix="/v1/datasets/{dataset}/allocations", tags=["allocations"], route_class=GuardedRoute
)


@router.post("", status_code=201, responses={201: {"model": AllocationAnswer}}, summary="Open an allocation")
@require_scope(
    Scope.SPEND,
    idempotent=True,
    may_answer=[
        BUDGET_EXHAUSTED,
        QUOTA_EXCEEDED,
        ALREADY_EXISTS,
        ADJACENCY_MISMATCH,
        UNPROVEN,
        UNREACHABLE,
    ],
)
async def post_allocation(
    dataset: str, body: AllocationBody, services: ServicesDependency, call: IdempotentRequestDependency
) -> Response:
    """Take a part of a shared budget, with a budget of its own inside; the caller's token owns it."""
    asked = await services.compute(body.to_allocation)
    await services.compose(services.ledger.compose_allocation, dataset, asked)
    return await decide_once(services, call, services.ledger.allocate, dataset, asked)


@router.get("", responses={200: {"model": AllocationPage}}, summary="List allocations")
@require_scope(Scope.READ, may_answer=[INVALID_INPUT])
def get_allocations(
    dataset: str, services: ServicesDependency, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> Response:
    """List allocations in the order in which they were opened, with what each has left."""
    found = services.reader.allocations(dataset, number_after(cursor), limit + 1)
    return to_json_response(page(found, limit, lambda item: item["sequence"]))


@router.get("/{allocation}", responses={200: {"model": AllocationView}}, summary="Show an allocation")
@require_scope(Scope.READ, may_answer=[INVALID_INPUT])
def get_allocation(
    dataset: str,
    allocation: str,
    services: ServicesDependency,
    delta: Annotated[float | None, Query(description="The δ at which the running ε is shown.")] = None,
) -> Response:
    """Show limit, spent, reserved and remaining of an allocation."""
    return to_json_response(services.reader.allocation(dataset, allocation, delta))


@router.post(
    "/{allocation}/return",
    status_code=201,
    responses={201: {"model": AllocationReturnAnswer}},
    summary="Return an allocation",
)
@require_scope(Scope.SPEND, idempotent=True, may_answer=[ALLOCATION_IN_USE, ALLOCATION_RETURNED])
async def post_allocation_return(
    request: Request,
    dataset: str,
    allocation: str,
    body: AllocationReturnBody,
    services: ServicesDependency,
    call: IdempotentRequestDependency,
) -> Response:
    """Give back an allocation from which nothing was released.

    For the token that asked for it, or an admin. What was authorized, settled as used or expired counts for
    good.
    """
    by_admin = Scope.ADMIN in caller_of(request).scopes
    return await decide_once(
        services, call, services.ledger.return_allocation, dataset, allocation, body.reason, by_admin
    )
