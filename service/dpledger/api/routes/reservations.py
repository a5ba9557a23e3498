"""Reservations: a yes to up to n repetitions, settled with the number that ran."""

from fastapi import APIRouter, Request, Response

from dpledger.api.answers import ReservationAnswer, ReservationPage, ReservationState, SettlementAnswer
from dpledger.api.house import takes_long
from dpledger.api.keyed import HouseOf, IntentOf, decided
from dpledger.api.pagination import DEFAULT_LIMIT, Cursor, Limit, number_after, page
from dpledger.api.problems import (
    ADJACENCY_MISMATCH,
    BUDGET_EXHAUSTED,
    INVALID_INPUT,
    RESERVATION_CLOSED,
    UNPROVEN,
)
from dpledger.api.rendering import shown
from dpledger.api.routing import GuardedRoute, caller_of, guarded
from dpledger.api.schemas import DATASET_NAME, ReservationBody, SettlementBody
from dpledger.auth.scopes import Scope
from dpledger.ledger.answers import parse_identifier
from dpledger.ledger.errors import NotFound
from dpledger.ledger.requests import Settlement

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["reservations"], route_class=GuardedRoute)


@router.post(
    "/datasets/{dataset}/reservations",
    status_code=201,
    responses={201: {"model": ReservationAnswer}},
    summary="Reserve repetitions of a step",
)
@guarded(Scope.SPEND, keyed=True, may_answer=[BUDGET_EXHAUSTED, ADJACENCY_MISMATCH, UNPROVEN])
async def post_reservation(dataset: str, body: ReservationBody, house: HouseOf, intent: IntentOf) -> Response:
    """Hold up to ``times`` repetitions; what is not settled in time is charged in full."""
    spend = await house.compute(body.to_spend, dataset)
    if takes_long(spend):
        await house.price(spend)  # the ledger finds it remembered, and no writer waits for it
    return await decided(house, intent, house.ledger.reserve, spend, body.times, body.expires_in_seconds)


@router.get(
    "/datasets/{dataset}/reservations",
    responses={200: {"model": ReservationPage}},
    summary="List open reservations",
)
@guarded(Scope.READ, may_answer=[INVALID_INPUT])
def get_reservations(
    dataset: str, house: HouseOf, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> Response:
    """List what is held and not yet settled."""
    found = house.reader.reservations(dataset, number_after(cursor), limit + 1)
    return shown(page(found, limit, lambda item: item["id"].rpartition("~")[2]))


@router.post(
    "/reservations/{reservation}/settlement",
    status_code=201,
    responses={201: {"model": SettlementAnswer}},
    summary="Settle a reservation",
)
@guarded(Scope.SPEND, keyed=True, may_answer=[RESERVATION_CLOSED])
async def post_settlement(
    request: Request, reservation: str, body: SettlementBody, house: HouseOf, intent: IntentOf
) -> Response:
    """Close a reservation; the caller states that what was not used released nothing.

    For the token that reserved. An admin may too: in full, or with a ``statement`` of why the rest was not
    and will not be released.
    """
    dataset, sequence = _reached(request, reservation)
    by_admin = Scope.ADMIN in caller_of(request).scopes
    settlement = Settlement(dataset, sequence, body.used, body.statement, by_admin)
    return await decided(house, intent, house.ledger.settle, settlement)


@router.get(
    "/reservations/{reservation}",
    responses={200: {"model": ReservationState}},
    summary="Show whether a reservation is open",
)
@guarded(Scope.READ)
def get_reservation(request: Request, reservation: str, house: HouseOf) -> Response:
    """Show a reservation, closed ones too: whoever holds one can see that it was settled elsewhere."""
    dataset, sequence = _reached(request, reservation)
    return shown(house.reader.reservation(dataset, sequence, house.clock.now_us()))


def _reached(request: Request, reservation: str) -> tuple[str, int]:
    """The dataset and sequence number in a reservation's id, if the caller's token reaches that dataset."""
    dataset, sequence = parse_identifier(reservation) or ("", 0)
    if not DATASET_NAME.fullmatch(dataset):
        raise NotFound("reservation", reservation)
    caller_of(request).require_dataset(dataset)
    return dataset, sequence
