"""Dependencies of the routes: caller, idempotent request, decision, query."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from fastapi import Depends, Request, Response
from pydantic import BaseModel

from dpledger.api.http.idempotency import hashed_key, hashed_request
from dpledger.api.http.responses import to_response
from dpledger.api.http.routing import caller_of
from dpledger.api.queries.worker_pool import to_raw_response
from dpledger.api.services import Services
from dpledger.auth.gatekeeper import Caller
from dpledger.ledger.model.requests import Answer, Spend
from dpledger.ledger.ports import IdempotentRequest

__all__ = [
    "SHORT_LIST",
    "CallerOf",
    "IdempotentRequestDependency",
    "ServicesDependency",
    "decide_once",
    "decided_list",
    "evaluate_query",
    "house_of",
]

SHORT_LIST = 32


def house_of(request: Request) -> Services:
    """The running service behind a request."""
    services: Services = request.app.state.services
    return services


async def intent_of(request: Request) -> IdempotentRequest:
    """Who asks, under which key, for what; If-Match is part of what is asked."""
    asked: bytes | None = getattr(request.state, "asked", None)
    if asked is None:
        asked = hashed_request({"body": await request.json(), "if_match": request.headers.get("if-match")})
    key = hashed_key(request.scope["path"], request.state.key)
    return IdempotentRequest(caller_of(request).id, key, asked)


async def evaluate_query(services: Services, query: BaseModel, caller: Caller) -> Response:
    """The worker's answer to a query, which waits in the line of its token."""
    found = await services.queries.ask(query, caller.id)
    return to_raw_response(found, services.queries.retry_seconds).response()


CallerOf = Annotated[Caller, Depends(caller_of)]
ServicesDependency = Annotated[Services, Depends(house_of)]
IdempotentRequestDependency = Annotated[IdempotentRequest, Depends(intent_of)]


async def decide_once(
    services: Services, call: IdempotentRequest, work: Callable[..., Answer], *arguments: Any
) -> Response:
    """Have ``work`` decide a request in a writer's thread, and render its answer."""
    with services.in_flight.deciding(call):
        return to_response(
            await services.write(services.metrics.count_outcomes(work), *arguments, call)
        ).response()


async def decided_list(
    services: Services, call: IdempotentRequest, spends: Sequence[Spend], mode: str
) -> Response:
    """Have the ledger decide a list; a long one in a lane of its own, where it gives way to others."""
    work = services.metrics.count_outcomes(services.ledger.authorize_all)
    with services.in_flight.deciding(call):
        if len(spends) <= SHORT_LIST:
            return to_response(await services.write(work, spends, mode, call)).response()
        services.lists.deciding += 1
        try:
            return to_response(await services.lists.run(work, spends, mode, call)).response()
        finally:
            services.lists.deciding -= 1
