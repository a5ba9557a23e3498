"""Cost queries; nothing is recorded."""

from typing import Any

import anyio.to_thread
from fastapi import APIRouter

from dpledger.api.deps import CallerOf, ServicesDependency, evaluate_query
from dpledger.api.http.problems import ADJACENCY_MISMATCH, UNPROVEN
from dpledger.api.http.routing import GuardedRoute, require_scope
from dpledger.api.query_problems import BUSY, TOO_HARD
from dpledger.api.schemas.requests import CostRequest
from dpledger.api.schemas.responses import CostAnswer
from dpledger.auth.scopes import Scope
from dpledger.queries.amplification import cost_of_query

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["accounting"], route_class=GuardedRoute)


@router.post("/costs", response_model=CostAnswer, summary="What a step would cost")
@require_scope(Scope.READ, may_answer=[ADJACENCY_MISMATCH, UNPROVEN, BUSY, TOO_HARD])
async def post_costs(request: CostRequest, services: ServicesDependency, caller: CallerOf) -> Any:
    """Answer the proven cost of a step in every notion that applies; nothing is recorded."""
    query = request.to_query()
    if query.is_expensive:
        return await evaluate_query(services, query, caller)
    return CostAnswer.of(await anyio.to_thread.run_sync(cost_of_query, query))
