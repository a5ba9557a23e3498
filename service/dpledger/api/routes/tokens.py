"""Tokens: made, listed and revoked by administrators whose own token reaches every dataset."""

from typing import Any

from fastapi import APIRouter, Request, Response

from dpledger.api.answers import TokenMadeAnswer, TokenPage
from dpledger.api.house import House
from dpledger.api.idempotency import REPLAYED_HEADER
from dpledger.api.keyed import HouseOf, IntentOf
from dpledger.api.logs import log_event
from dpledger.api.pagination import DEFAULT_LIMIT, Cursor, Limit, page, text_after
from dpledger.api.problems import INVALID_INPUT
from dpledger.api.rendering import shown
from dpledger.api.routing import GuardedRoute, guarded
from dpledger.api.schemas import TokenBody
from dpledger.auth.issuer import TokenRequest
from dpledger.auth.scopes import Scope
from dpledger.ledger.entries import moment
from dpledger.ledger.ports import Intent
from dpledger.storage.tokens import TokenRow

__all__ = ["router", "token_fields"]

router = APIRouter(prefix="/v1/tokens", tags=["tokens"], route_class=GuardedRoute)


@router.post("", status_code=201, responses={201: {"model": TokenMadeAnswer}}, summary="Make a token")
@guarded(Scope.ADMIN, keyed=True)
async def post_token(request: Request, body: TokenBody, house: HouseOf, intent: IntentOf) -> Response:
    """Make a token; its secret is shown in this answer and stored nowhere."""
    with house.in_flight.deciding(intent):
        return await house.write(_made, house, request.headers.get("authorization"), body, intent)


def _made(house: House, authorization: str | None, body: TokenBody, intent: Intent) -> Response:
    _require_admin_of_all(house, authorization)
    seconds = body.expires_in_seconds
    wanted = TokenRequest(
        frozenset(body.scopes),
        None if body.datasets is None else frozenset(body.datasets),
        body.description,
        None if seconds is None else int(seconds * 1e6),
    )
    token, row, replayed = house.issuer.create_once(wanted, intent)
    log_event("token made", token=row.id, by=intent.actor, again=replayed)
    headers = {REPLAYED_HEADER: "true"} if replayed else {}
    made = {**token_fields(row), "revoked_at": None, "token": token.text}
    return shown(made, 201, headers)


def _require_admin_of_all(house: House, authorization: str | None) -> None:
    """Ask the database itself: a token revoked a moment ago makes and revokes nothing."""
    caller = house.gatekeeper.caller_now(authorization)
    caller.require(Scope.ADMIN)
    caller.require_all_datasets()


@router.get("", responses={200: {"model": TokenPage}}, summary="List tokens")
@guarded(Scope.ADMIN, may_answer=[INVALID_INPUT])
def get_tokens(
    request: Request, house: HouseOf, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> Response:
    """List tokens by id, revoked ones included, without their secrets."""
    _require_admin_of_all(house, request.headers.get("authorization"))
    found = [token_fields(row) for row in house.tokens.list(text_after(cursor), limit + 1)]
    return shown(page(found, limit, lambda item: item["id"]))


@router.delete("/{token}", status_code=204, summary="Revoke a token")
@guarded(Scope.ADMIN)
async def delete_token(request: Request, token: str, house: HouseOf) -> Response:
    """Revoke a token; it decides nothing from now on, and reads nothing after two seconds."""
    authorization = request.headers.get("authorization")
    return await house.write(_revoked, house, authorization, token)


def _revoked(house: House, authorization: str | None, token_id: str) -> Response:
    _require_admin_of_all(house, authorization)
    house.gatekeeper.revoke(token_id)
    log_event("token revoked", token=token_id)
    return Response(status_code=204)


def token_fields(row: TokenRow) -> dict[str, Any]:
    """A token as it is shown."""
    return {
        "id": row.id,
        "scopes": list(row.scopes),
        "datasets": None if row.datasets is None else list(row.datasets),
        "description": row.description,
        "created_at": moment(row.created_at_us),
        "expires_at": None if row.expires_at_us is None else moment(row.expires_at_us),
        "revoked_at": None if row.revoked_at_us is None else moment(row.revoked_at_us),
    }
