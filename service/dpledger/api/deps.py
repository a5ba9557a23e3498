"""Dependencies of the routes: caller, idempotent request, decision, query."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from fastapi import Depends, Request, Response

from dpledger.api.http.admission import hashed_key, hashed_request
from dpledger.api.http.routing import admission_of, caller_of
from dpledger.api.query_problems import to_raw_response
from dpledger.api.responses import RawResponse
from dpledger.api.services import Services
from dpledger.auth.gatekeeper import Caller
from dpledger.ledger.bulk import no_pause
from dpledger.ledger.model.requests import Spend
from dpledger.ledger.ports import IdempotentRequest
from dpledger.ledger.results import Result
from dpledger.queries.requests import Query

__all__ = [
    "SHORT_LIST",
    "CallerOf",
    "IdempotentRequestDependency",
    "ServicesDependency",
    "decide_once",
    "decided_list",
    "evaluate_query",
    "services_of",
]

SHORT_LIST = 32


def services_of(request: Request) -> Services:
    """The running service behind a request."""
    services: Services = request.app.state.services
    return services


async def idempotent_request_of(request: Request) -> IdempotentRequest:
    """Who asks, under which key, for what; If-Match is part of what is asked."""
    asked: bytes | None = getattr(request.state, "asked", None)
    if asked is None:
        asked = hashed_request({"body": await request.json(), "if_match": request.headers.get("if-match")})
    admission = admission_of(request)
    key = hashed_key(request.scope["path"], admission.key)
    return IdempotentRequest(admission.caller.id, key, asked)


async def evaluate_query(services: Services, query: Query, caller: Caller) -> Response:
    """The worker's answer to a query, which waits in the line of its token."""
    found = await services.queries.ask(query, caller.id)
    return to_raw_response(found, services.queries.retry_seconds).response()


CallerOf = Annotated[Caller, Depends(caller_of)]
ServicesDependency = Annotated[Services, Depends(services_of)]
IdempotentRequestDependency = Annotated[IdempotentRequest, Depends(idempotent_request_of)]


async def decide_once(
    services: Services, call: IdempotentRequest, work: Callable[..., Result], *arguments: Any
) -> Response:
    """Have ``work`` decide a request in a writer's thread, and render its result."""
    with services.in_flight.deciding(call):
        result = await services.write(services.metrics.count_outcomes(work), *arguments, call)
        return services.responses.respond(result).response()


async def decided_list(
    services: Services, call: IdempotentRequest, spends: Sequence[Spend], mode: str
) -> Response:
    """Have the ledger decide a list; a long one in a lane of its own, where it gives way to others."""
    decide = services.metrics.count_outcomes(services.ledger.authorize_all)

    def work(pause: Callable[[], None] = no_pause) -> RawResponse:
        return services.responses.respond(decide(spends, mode, call, pause), pause)

    with services.in_flight.deciding(call):
        if len(spends) <= SHORT_LIST:
            return (await services.write(work)).response()
        services.lists.deciding += 1
        try:
            return (await services.lists.run(work)).response()
        finally:
            services.lists.deciding -= 1
