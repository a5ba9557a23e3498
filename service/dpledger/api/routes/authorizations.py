"""Authorizations: one at a time, and lists across datasets and partitions."""

import contextlib

from fastapi import APIRouter, Request, Response

from dpledger.accounting.errors import AccountingError
from dpledger.api.deps import SHORT_LIST, IdempotentRequestDependency, ServicesDependency, decided_list
from dpledger.api.fast_path import AuthorizationEndpoint
from dpledger.api.http.body import LISTS
from dpledger.api.http.problems import (
    ADJACENCY_MISMATCH,
    ALLOCATION_RETURNED,
    BUDGET_EXHAUSTED,
    NOT_FOUND,
    QUOTA_EXCEEDED,
    UNPROVEN,
)
from dpledger.api.http.routing import GuardedRoute, admission_of, caller_of, require_scope
from dpledger.api.schemas.requests import BulkBody
from dpledger.api.schemas.responses import AuthorizationAnswer, BulkAnswer
from dpledger.api.services import is_expensive
from dpledger.auth.scopes import Scope
from dpledger.ledger.errors import LedgerError

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["authorizations"], route_class=GuardedRoute)
_SPEND = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/SpendBody"}}}}
_REFUSALS = (BUDGET_EXHAUSTED, QUOTA_EXCEEDED, ALLOCATION_RETURNED, ADJACENCY_MISMATCH, UNPROVEN)


@router.post(
    "/datasets/{dataset}/authorizations",
    status_code=201,
    responses={201: {"model": AuthorizationAnswer}},
    openapi_extra={"requestBody": {"required": True, **_SPEND}},
    summary="Authorize one step",
)
@require_scope(Scope.SPEND, idempotent=True, may_answer=_REFUSALS)
async def post_authorization(request: Request, dataset: str) -> Response:
    """Decide one step and record it; the answer comes after the commit."""
    endpoint: AuthorizationEndpoint = request.app.authorizations
    return (await endpoint.authorize(dataset, request.scope["path"], admission_of(request))).response()


@router.post(
    "/authorizations",
    status_code=201,
    responses={201: {"model": BulkAnswer}},
    summary="Authorize a list across datasets and partitions",
)
@require_scope(Scope.SPEND, idempotent=True, may_answer=[*_REFUSALS, NOT_FOUND], limits=LISTS)
async def post_authorizations(
    request: Request, body: BulkBody, services: ServicesDependency, call: IdempotentRequestDependency
) -> Response:
    """Decide a list in one transaction: all or nothing, or each on its own."""
    for name in {item.dataset for item in body.items}:
        caller_of(request).require_dataset(name)
    long = len(body.items) > SHORT_LIST
    spends = await (services.lists.run(body.spends) if long else services.compute(body.spends))
    for spend in filter(is_expensive, spends):
        with contextlib.suppress(LedgerError, AccountingError):  # reported item by item
            await services.price(spend)
    return await decided_list(services, call, spends, body.mode)
