"""Tokens: made, listed and revoked by administrators whose own token reaches every dataset."""

from typing import Any

from fastapi import APIRouter, Request, Response

from dpledger.api.deps import IdempotentRequestDependency, ServicesDependency
from dpledger.api.http.pagination import DEFAULT_LIMIT, Cursor, Limit, page, text_after
from dpledger.api.http.problems import INVALID_INPUT
from dpledger.api.http.routing import GuardedRoute, require_scope
from dpledger.api.responses import REPLAYED_HEADER, to_json_response
from dpledger.api.schemas.requests import TokenBody
from dpledger.api.schemas.responses import TokenMadeAnswer, TokenPage
from dpledger.api.services import Services
from dpledger.auth.issuer import TokenRequest
from dpledger.auth.scopes import Scope
from dpledger.ledger.model.entries import moment
from dpledger.ledger.ports import IdempotentRequest
from dpledger.logs import log_event
from dpledger.storage.repositories.tokens import TokenRow

__all__ = ["router", "token_fields"]

router = APIRouter(prefix="/v1/tokens", tags=["tokens"], route_class=GuardedRoute)


@router.post("", status_code=201, responses={201: {"model": TokenMadeAnswer}}, summary="Make a token")
@require_scope(Scope.ADMIN, idempotent=True)
async def post_token(
    request: Request, body: TokenBody, services: ServicesDependency, call: IdempotentRequestDependency
) -> Response:
    """Make a token; its secret is shown in this answer and stored nowhere."""
    with services.in_flight.deciding(call):
        return await services.write(_made, services, request.headers.get("authorization"), body, call)


def _made(
    services: Services, authorization: str | None, body: TokenBody, call: IdempotentRequest
) -> Response:
    _require_admin_of_all(services, authorization)
    seconds = body.expires_in_seconds
    wanted = TokenRequest(
        frozenset(body.scopes),
        None if body.datasets is None else frozenset(body.datasets),
        body.description,
        None if seconds is None else int(seconds * 1e6),
        body.team,
    )
    token, row, replayed = services.issuer.create_once(wanted, call)
    log_event("token created", token=row.id, by=call.actor, again=replayed)
    headers = {REPLAYED_HEADER: "true"} if replayed else {}
    made = {**token_fields(row), "revoked_at": None, "token": token.text}
    return to_json_response(made, 201, headers)


def _require_admin_of_all(services: Services, authorization: str | None) -> None:
    """Ask the database itself: a token revoked a moment ago makes and revokes nothing."""
    caller = services.gatekeeper.caller_now(authorization)
    caller.require(Scope.ADMIN)
    caller.require_all_datasets()


@router.get("", responses={200: {"model": TokenPage}}, summary="List tokens")
@require_scope(Scope.ADMIN, may_answer=[INVALID_INPUT])
def get_tokens(
    request: Request, services: ServicesDependency, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> Response:
    """List tokens by id, revoked ones included, without their secrets."""
    _require_admin_of_all(services, request.headers.get("authorization"))
    found = [token_fields(row) for row in services.tokens.list(text_after(cursor), limit + 1)]
    return to_json_response(page(found, limit, lambda item: item["id"]))


@router.delete("/{token}", status_code=204, summary="Revoke a token")
@require_scope(Scope.ADMIN)
async def delete_token(request: Request, token: str, services: ServicesDependency) -> Response:
    """Revoke a token; it decides nothing from now on, and reads nothing after two seconds."""
    authorization = request.headers.get("authorization")
    return await services.write(_revoke, services, authorization, token)


def _revoke(services: Services, authorization: str | None, token_id: str) -> Response:
    _require_admin_of_all(services, authorization)
    services.gatekeeper.revoke(token_id)
    log_event("token revoked", token=token_id)
    return Response(status_code=204)


def token_fields(row: TokenRow) -> dict[str, Any]:
    """A token as it is shown; of a team, if it has one."""
    team = {} if row.team is None else {"team": row.team}
    return {
        "id": row.id,
        "scopes": list(row.scopes),
        "datasets": None if row.datasets is None else list(row.datasets),
        "description": row.description,
        **team,
        "created_at": moment(row.created_at_us),
        "expires_at": None if row.expires_at_us is None else moment(row.expires_at_us),
        "revoked_at": None if row.revoked_at_us is None else moment(row.revoked_at_us),
    }
