"""Accepting that a ledger has lost entries."""

from fastapi import APIRouter, Response

from dpledger.api.answers import RollbackAnswer
from dpledger.api.keyed import HouseOf, IntentOf, decided
from dpledger.api.routing import GuardedRoute, guarded
from dpledger.api.schemas import RollbackBody
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
@guarded(Scope.ADMIN, keyed=True)
async def post_rollback_acceptance(
    dataset: str, body: RollbackBody, house: HouseOf, intent: IntentOf
) -> Response:
    """Give up entries that the ledger has lost, and go on from where it is."""
    lost = Mark(body.sequence, bytes.fromhex(body.entry))
    return await decided(house, intent, house.ledger.accept_rollback, dataset, lost, body.reason)
