"""Authorizations: one at a time, and lists across datasets and partitions."""

import contextlib

from fastapi import APIRouter, Request, Response

from dpledger.accounting.errors import AccountingError
from dpledger.api.answers import AuthorizationAnswer, BulkAnswer
from dpledger.api.authorizing import AuthorizationDesk
from dpledger.api.body import LISTS
from dpledger.api.house import takes_long
from dpledger.api.keyed import SHORT_LIST, HouseOf, IntentOf, decided_list
from dpledger.api.problems import ADJACENCY_MISMATCH, BUDGET_EXHAUSTED, NOT_FOUND, UNPROVEN
from dpledger.api.routing import GuardedRoute, caller_of, guarded
from dpledger.api.schemas import BulkBody
from dpledger.auth.scopes import Scope
from dpledger.ledger.errors import LedgerError

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["authorizations"], route_class=GuardedRoute)
_SPEND = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/SpendBody"}}}}
_REFUSALS = (BUDGET_EXHAUSTED, ADJACENCY_MISMATCH, UNPROVEN)


@router.post(
    "/datasets/{dataset}/authorizations",
    status_code=201,
    responses={201: {"model": AuthorizationAnswer}},
    openapi_extra={"requestBody": {"required": True, **_SPEND}},
    summary="Authorize one step",
)
@guarded(Scope.SPEND, keyed=True, may_answer=_REFUSALS)
async def post_authorization(request: Request, dataset: str) -> Response:
    """Decide one step and record it; the answer comes after the commit."""
    desk: AuthorizationDesk = request.app.desk
    return (await desk.answer(dataset, request.scope, request.receive)).response()


@router.post(
    "/authorizations",
    status_code=201,
    responses={201: {"model": BulkAnswer}},
    summary="Authorize a list across datasets and partitions",
)
@guarded(Scope.SPEND, keyed=True, may_answer=[*_REFUSALS, NOT_FOUND], limits=LISTS)
async def post_authorizations(request: Request, body: BulkBody, house: HouseOf, intent: IntentOf) -> Response:
    """Decide a list in one transaction: all or nothing, or each on its own."""
    for name in {item.dataset for item in body.items}:
        caller_of(request).require_dataset(name)
    long = len(body.items) > SHORT_LIST
    spends = await (house.lists.run(body.spends) if long else house.compute(body.spends))
    for spend in filter(takes_long, spends):
        with contextlib.suppress(LedgerError, AccountingError):  # told item by item
            await house.price(spend)
    return await decided_list(house, intent, spends, body.mode)
