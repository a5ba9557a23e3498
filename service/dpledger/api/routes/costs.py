"""What a step would cost; nothing is recorded."""

from fastapi import APIRouter

from dpledger.accounting.orders import DEFAULT_ORDERS
from dpledger.accounting.stepcost import cost_of
from dpledger.accounting.validation import check_orders
from dpledger.api.answers import CostAnswer
from dpledger.api.problems import ADJACENCY_MISMATCH, UNPROVEN
from dpledger.api.routing import GuardedRoute, guarded
from dpledger.api.schemas import CostRequest
from dpledger.auth.scopes import Scope

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["accounting"], route_class=GuardedRoute)


@router.post("/costs", summary="What a step would cost")
@guarded(Scope.READ, may_answer=[ADJACENCY_MISMATCH, UNPROVEN])
def post_costs(request: CostRequest) -> CostAnswer:
    """Answer the proven cost of a step in every notion that applies; nothing is recorded."""
    # Not async on purpose: FastAPI then runs it in a thread, and a slow bound leaves the event loop free.
    orders = DEFAULT_ORDERS if request.orders is None else check_orders(request.orders)
    return CostAnswer.of(cost_of(request.step(), orders))
