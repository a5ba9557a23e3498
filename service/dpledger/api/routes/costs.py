"""What a step would cost; nothing is recorded."""

from typing import Any

import anyio.to_thread
from fastapi import APIRouter

from dpledger.api.answering import BUSY
from dpledger.api.answers import CostAnswer
from dpledger.api.house import LONG
from dpledger.api.keyed import CallerOf, HouseOf, answered
from dpledger.api.problems import ADJACENCY_MISMATCH, UNPROVEN
from dpledger.api.routing import GuardedRoute, guarded
from dpledger.api.schemas import CostRequest
from dpledger.api.worker import TOO_HARD
from dpledger.auth.scopes import Scope

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["accounting"], route_class=GuardedRoute)


@router.post("/costs", response_model=CostAnswer, summary="What a step would cost")
@guarded(Scope.READ, may_answer=[ADJACENCY_MISMATCH, UNPROVEN, BUSY, TOO_HARD])
async def post_costs(request: CostRequest, house: HouseOf, caller: CallerOf) -> Any:
    """Answer the proven cost of a step in every notion that applies; nothing is recorded."""
    if any(release.mechanism in LONG for release in request.releases):
        return await answered(house, request, caller)
    return CostAnswer.of(await anyio.to_thread.run_sync(request.cost))
