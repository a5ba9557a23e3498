"""Reservations: a yes to up to n repetitions, settled with the number that ran."""

from fastapi import APIRouter, Request, Response

from dpledger.api.deps import IdempotentRequestDependency, ServicesDependency, decide_once
from dpledger.api.http.pagination import DEFAULT_LIMIT, Cursor, Limit, number_after, page
from dpledger.api.http.problems import (
    ADJACENCY_MISMATCH,
    ALLOCATION_RETURNED,
    BUDGET_EXHAUSTED,
    INVALID_INPUT,
    QUOTA_EXCEEDED,
    RESERVATION_CLOSED,
    UNPROVEN,
)
from dpledger.api.http.routing import GuardedRoute, caller_of, require_scope
from dpledger.api.responses import to_json_response
from dpledger.api.schemas.requests import DATASET_NAME, ReservationBody, SettlementBody
from dpledger.api.schemas.responses import (
    ReservationAnswer,
    ReservationPage,
    ReservationState,
    SettlementAnswer,
)
from dpledger.api.services import is_expensive
from dpledger.auth.scopes import Scope
from dpledger.ledger.errors import NotFound
from dpledger.ledger.model.entries import parse_identifier
from dpledger.ledger.model.requests import Settlement

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["reservations"], route_class=GuardedRoute)


@router.post(
    "/datasets/{dataset}/reservations",
    status_code=201,
    responses={201: {"model": ReservationAnswer}},
    summary="Reserve repetitions of a step",
)
@require_scope(
    Scope.SPEND,
    idempotent=True,
    may_answer=[BUDGET_EXHAUSTED, QUOTA_EXCEEDED, ALLOCATION_RETURNED, ADJACENCY_MISMATCH, UNPROVEN],
)
async def post_reservation(
    dataset: str, body: ReservationBody, services: ServicesDependency, call: IdempotentRequestDependency
) -> Response:
    """Hold up to ``times`` repetitions; what is not settled in time is charged in full."""
    spend = await services.compute(body.to_spend, dataset)
    if is_expensive(spend):
        await services.price(spend)  # the ledger finds it remembered, and no writer waits for it
    return await decide_once(
        services, call, services.ledger.reserve, spend, body.times, body.expires_in_seconds
    )


@router.get(
    "/datasets/{dataset}/reservations",
    responses={200: {"model": ReservationPage}},
    summary="List open reservations",
)
@require_scope(Scope.READ, may_answer=[INVALID_INPUT])
def get_reservations(
    dataset: str, services: ServicesDependency, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> Response:
    """List what is held and not yet settled."""
    found = services.reader.reservations(dataset, number_after(cursor), limit + 1)
    return to_json_response(page(found, limit, lambda item: item["id"].rpartition("~")[2]))


@router.post(
    "/reservations/{reservation}/settlement",
    status_code=201,
    responses={201: {"model": SettlementAnswer}},
    summary="Settle a reservation",
)
@require_scope(Scope.SPEND, idempotent=True, may_answer=[RESERVATION_CLOSED])
async def post_settlement(
    request: Request,
    reservation: str,
    body: SettlementBody,
    services: ServicesDependency,
    call: IdempotentRequestDependency,
) -> Response:
    """Close a reservation; the caller states that what was not used released nothing.

    For the token that reserved. An admin may too: in full, or with a ``statement`` of why the rest was not
    and will not be released.
    """
    dataset, sequence = _reached(request, reservation)
    by_admin = Scope.ADMIN in caller_of(request).scopes
    settlement = Settlement(dataset, sequence, body.used, body.statement, by_admin)
    return await decide_once(services, call, services.ledger.settle, settlement)


@router.get(
    "/reservations/{reservation}",
    responses={200: {"model": ReservationState}},
    summary="Show whether a reservation is open",
)
@require_scope(Scope.READ)
def get_reservation(request: Request, reservation: str, services: ServicesDependency) -> Response:
    """Show a reservation, closed ones too: whoever holds one can see that it was settled elsewhere."""
    dataset, sequence = _reached(request, reservation)
    return to_json_response(services.reader.reservation(dataset, sequence, services.clock.now_us()))


def _reached(request: Request, reservation: str) -> tuple[str, int]:
    """The dataset and sequence number in a reservation's id, if the caller's token reaches that dataset."""
    dataset, sequence = parse_identifier(reservation) or ("", 0)
    if not DATASET_NAME.fullmatch(dataset):
        raise NotFound("reservation", reservation)
    caller_of(request).require_dataset(dataset)
    return dataset, sequence
