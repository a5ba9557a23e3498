"""Renewal by epochs: budgets of their own for the new data of each calendar period."""

from fastapi import APIRouter, Response

from dpledger.api.deps import IdempotentRequestDependency, ServicesDependency, decide_once
from dpledger.api.http.problems import ALREADY_EXISTS, UNPROVEN, UNREACHABLE
from dpledger.api.http.routing import GuardedRoute, require_scope
from dpledger.api.responses import to_json_response
from dpledger.api.schemas.requests import EpochBody, RenewalBody
from dpledger.api.schemas.responses import PartitionsAnswer, RenewalAnswer
from dpledger.auth.scopes import Scope

__all__ = ["router"]

router = APIRouter(prefix="/v1/datasets/{dataset}", tags=["partitions"], route_class=GuardedRoute)


@router.post(
    "/renewal", status_code=201, responses={201: {"model": RenewalAnswer}}, summary="Set a renewal policy"
)
@require_scope(Scope.ADMIN, idempotent=True, may_answer=[UNPROVEN, UNREACHABLE])
async def post_renewal(
    dataset: str, body: RenewalBody, services: ServicesDependency, call: IdempotentRequestDependency
) -> Response:
    """Set the period and the budget of new epochs, change the budget, or end the policy; as an entry.

    Partitions that are there keep their budgets and what was spent.
    """
    return await decide_once(services, call, services.ledger.change_renewal, dataset, body.to_renewal())


@router.get("/renewal", responses={200: {"model": RenewalAnswer}}, summary="Show a renewal policy")
@require_scope(Scope.READ)
def get_renewal(dataset: str, services: ServicesDependency) -> Response:
    """Show the policy in force, and which epochs may be opened now."""
    return to_json_response(services.reader.renewal(dataset, services.clock.now_us()))


@router.post(
    "/epochs", status_code=201, responses={201: {"model": PartitionsAnswer}}, summary="Open an epoch"
)
@require_scope(Scope.SPEND, idempotent=True, may_answer=[ALREADY_EXISTS])
async def post_epoch(
    dataset: str, body: EpochBody, services: ServicesDependency, call: IdempotentRequestDependency
) -> Response:
    """Open the partition of the present or the next epoch, stating that its records are new."""
    return await decide_once(services, call, services.ledger.open_epoch, dataset, body.to_epoch())
