"""Quotas: limits to how much of a dataset's budget the tokens of one team may use."""

from fastapi import APIRouter, Response

from dpledger.api.deps import IdempotentRequestDependency, ServicesDependency, decide_once
from dpledger.api.http.pagination import DEFAULT_LIMIT, Cursor, Limit, number_after, page
from dpledger.api.http.problems import INVALID_INPUT, UNPROVEN
from dpledger.api.http.routing import GuardedRoute, require_scope
from dpledger.api.responses import to_json_response
from dpledger.api.schemas.requests import QuotaBody
from dpledger.api.schemas.responses import QuotaAnswer, QuotaPage
from dpledger.auth.scopes import Scope

__all__ = ["router"]

router = APIRouter(prefix="/v1/datasets/{dataset}/quotas", tags=["quotas"], route_class=GuardedRoute)


@router.post("", status_code=201, responses={201: {"model": QuotaAnswer}}, summary="Change a quota")
@require_scope(Scope.ADMIN, idempotent=True, may_answer=[UNPROVEN])
async def post_quota(
    dataset: str, body: QuotaBody, services: ServicesDependency, call: IdempotentRequestDependency
) -> Response:
    """Set the quota of a team and window, change its fraction, or remove it; recorded as an entry.

    It counts what is granted by later entries. A quota limits use: what is proven is the dataset's budget.
    """
    return await decide_once(services, call, services.ledger.change_quota, dataset, body.to_quota())


@router.get("", responses={200: {"model": QuotaPage}}, summary="List quotas")
@require_scope(Scope.READ, may_answer=[INVALID_INPUT])
def get_quotas(
    dataset: str, services: ServicesDependency, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> Response:
    """List the quotas in force, with what each has left now and when its window frees something."""
    found = services.reader.quotas(dataset, number_after(cursor), limit + 1, services.clock.now_us())
    return to_json_response(page(found, limit, lambda item: item["sequence"]))
