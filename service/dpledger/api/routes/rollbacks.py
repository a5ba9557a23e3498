"""Accepting that a ledger has lost entries."""

from fastapi import APIRouter, Response

from dpledger.api.deps import IdempotentRequestDependency, ServicesDependency, decide_once
from dpledger.api.http.routing import GuardedRoute, require_scope
from dpledger.api.schemas.requests import RollbackBody
from dpledger.api.schemas.responses import RollbackAnswer
from dpledger.auth.scopes import Scope
from dpledger.ledger.marks import Mark

__all__ = ["router"]

router = APIRouter(prefix="/v1/datasets/{dataset}", tags=["datasets"], route_class=GuardedRoute)


@router.post(
    "/rollback-acceptances",
    status_code=201,
    responses={201: {"model": RollbackAnswer}},
    summary="Accept a rollback",
)
@require_scope(Scope.ADMIN, idempotent=True)
async def post_rollback_acceptance(
    dataset: str, body: RollbackBody, services: ServicesDependency, call: IdempotentRequestDependency
) -> Response:
    """Give up entries that the ledger has lost, and go on from where it is."""
    lost = Mark(body.sequence, bytes.fromhex(body.entry))
    return await decide_once(services, call, services.ledger.accept_rollback, dataset, lost, body.reason)
