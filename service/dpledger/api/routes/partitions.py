"""Partitions: disjoint parts of a dataset, each with a ledger of its own."""

from fastapi import APIRouter, Response

from dpledger.api.deps import IdempotentRequestDependency, ServicesDependency, decide_once
from dpledger.api.http.body import LISTS
from dpledger.api.http.pagination import DEFAULT_LIMIT, Cursor, Limit, number_after, page
from dpledger.api.http.problems import ALREADY_EXISTS, INVALID_INPUT, UNPROVEN
from dpledger.api.http.routing import GuardedRoute, require_scope
from dpledger.api.responses import to_json_response
from dpledger.api.schemas.requests import PartitionsBody
from dpledger.api.schemas.responses import PartitionPage, PartitionsAnswer, PartitionView
from dpledger.auth.scopes import Scope

__all__ = ["router"]

router = APIRouter(prefix="/v1/datasets/{dataset}/partitions", tags=["partitions"], route_class=GuardedRoute)


@router.post("", status_code=201, responses={201: {"model": PartitionsAnswer}}, summary="Open partitions")
@require_scope(Scope.ADMIN, idempotent=True, may_answer=[ALREADY_EXISTS, UNPROVEN], limits=LISTS)
async def post_partitions(
    dataset: str, body: PartitionsBody, services: ServicesDependency, call: IdempotentRequestDependency
) -> Response:
    """Open many at once, each with the dataset's budget or with one of their own."""
    own = None if body.budget is None else body.budget.fields()
    return await decide_once(services, call, services.ledger.open_partitions, dataset, body.wanted(), own)


@router.get("", responses={200: {"model": PartitionPage}}, summary="List partitions")
@require_scope(Scope.READ, may_answer=[INVALID_INPUT])
def get_partitions(
    dataset: str, services: ServicesDependency, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> Response:
    """List partitions with what each has left, the spend on the whole included."""
    found = services.reader.partitions(dataset, number_after(cursor, first=-1), limit + 1)
    return to_json_response(page(found, limit, lambda item: item["number"]))


@router.get("/{partition:path}", responses={200: {"model": PartitionView}}, summary="Show a partition")
@require_scope(Scope.READ)
def get_partition(dataset: str, partition: str, services: ServicesDependency) -> Response:
    """Show limit, spent, reserved and remaining of one partition, the spend on the whole included."""
    return to_json_response(services.reader.partition(dataset, partition))
