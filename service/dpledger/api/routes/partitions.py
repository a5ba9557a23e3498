"""Partitions: disjoint parts of a dataset, each with a ledger of its own."""

from fastapi import APIRouter, Response

from dpledger.api.answers import PartitionPage, PartitionsAnswer
from dpledger.api.body import LISTS
from dpledger.api.keyed import HouseOf, IntentOf, decided
from dpledger.api.pagination import DEFAULT_LIMIT, Cursor, Limit, number_after, page
from dpledger.api.problems import ALREADY_EXISTS, INVALID_INPUT
from dpledger.api.rendering import shown
from dpledger.api.routing import GuardedRoute, guarded
from dpledger.api.schemas import PartitionsBody
from dpledger.auth.scopes import Scope

__all__ = ["router"]

router = APIRouter(prefix="/v1/datasets/{dataset}/partitions", tags=["partitions"], route_class=GuardedRoute)


@router.post("", status_code=201, responses={201: {"model": PartitionsAnswer}}, summary="Open partitions")
@guarded(Scope.ADMIN, keyed=True, may_answer=[ALREADY_EXISTS], limits=LISTS)
async def post_partitions(dataset: str, body: PartitionsBody, house: HouseOf, intent: IntentOf) -> Response:
    """Open many at once, each with the dataset's budget or with one of their own."""
    own = None if body.budget is None else body.budget.fields()
    return await decided(house, intent, house.ledger.open_partitions, dataset, body.wanted(), own)


@router.get("", responses={200: {"model": PartitionPage}}, summary="List partitions")
@guarded(Scope.READ, may_answer=[INVALID_INPUT])
def get_partitions(
    dataset: str, house: HouseOf, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> Response:
    """List partitions with what each has left, the spend on the whole included."""
    found = house.reader.partitions(dataset, number_after(cursor, first=-1), limit + 1)
    return shown(page(found, limit, lambda item: item["number"]))
