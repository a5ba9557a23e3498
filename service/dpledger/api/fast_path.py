"""``POST /v1/datasets/{dataset}/authorizations``, the call that every training step makes.

It stands in front of the framework's routing, because the framework's own handling of a request costs more
than deciding it. Order of checks, errors and answers are those of every other route: both are let in by
:func:`dpledger.api.http.admission.admit`. Only what cannot change is cached: a body that was read before
means the same again, and a dataset's charge for a step never changes once the dataset is open.
"""

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

# The framework names the route of a span and of its own metrics nowhere else.
from fastapi.telemetry._api import _route_selected
from pydantic import ValidationError
from starlette.types import ASGIApp, Receive, Scope, Send

from dpledger.api.http.admission import (
    ROUTE_KEY,
    Admission,
    Guard,
    RequestContext,
    admit,
    hashed_key,
    hashed_request,
)
from dpledger.api.http.body import LARGE_BODY_BYTES, parse_json
from dpledger.api.http.problems import invalid_body
from dpledger.api.metrics import AUTHORIZATIONS, Metrics
from dpledger.api.responses import RawResponse, error_response
from dpledger.api.schemas.requests import SpendBody
from dpledger.api.services import is_expensive
from dpledger.auth import scopes
from dpledger.ledger.errors import KeyInFlight
from dpledger.ledger.model.entries import Charge
from dpledger.ledger.model.requests import Authorization, Spend
from dpledger.ledger.ports import IdempotentRequest

if TYPE_CHECKING:
    from dpledger.api.services import Services, Ticket

__all__ = ["AuthorizationEndpoint", "FastPath", "dataset_in"]

_KEPT_BODIES = 1024
_LONGEST_KEPT_BYTES = 16 * 1024
_PREFIX = "/v1/datasets/"
_SUFFIX = "/authorizations"
_ANY_AGE = float("inf")
_GUARD = Guard(scopes.Scope.SPEND, idempotent=True)


@dataclass(frozen=True, eq=False)
class ParsedBody:
    """A body that was read: the spend, what it costs once that is known, and the hash that tells it apart."""

    spend: Spend
    charge: Charge | None
    request: bytes


def dataset_in(scope: Scope) -> str | None:
    """The dataset whose authorizations a request is sent to; None for every other request."""
    if scope["type"] != "http" or scope["method"] != "POST":
        return None
    path: str = scope["path"]
    if not (path.startswith(_PREFIX) and path.endswith(_SUFFIX)):
        return None
    dataset = path[len(_PREFIX) : -len(_SUFFIX)]
    return dataset if dataset and "/" not in dataset else None


class FastPath:
    """Serves authorizations before the framework's middleware; everything else goes on to it.

    Both ways have the same request context around them.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._context = RequestContext(self._serve, metrics)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        dataset = dataset_in(scope)
        if dataset is None:
            await self._app(scope, receive, send)
        else:
            scope["path_params"] = {"dataset": dataset}
            await self._context(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        dataset = scope["path_params"]["dataset"]
        endpoint: AuthorizationEndpoint = scope["app"].authorizations
        scope[ROUTE_KEY] = AUTHORIZATIONS
        _route_selected(scope=scope, path=AUTHORIZATIONS)
        try:
            # Whether the token still stands is asked again in the transaction: memory of any age will do.
            admission = await admit(
                endpoint.services, _GUARD, scope, receive, dataset, max_age_seconds=_ANY_AGE
            )
            answer = await endpoint.authorize(dataset, scope["path"], admission)
        except Exception as error:
            answer = error_response(error)
        await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
        await send({"type": "http.response.body", "body": answer.body})


class AuthorizationEndpoint:
    """Reads, checks and queues authorizations; answers each when its group has committed."""

    def __init__(self, services: "Services") -> None:
        self.services = services
        self._read: OrderedDict[tuple[str, bytes], ParsedBody] = OrderedDict()
        self._waiting: list[tuple[Authorization, Ticket]] = []

    async def authorize(self, dataset: str, path: str, admission: Admission) -> RawResponse:
        """The response to a request that was admitted; raises what turns it away before it is decided."""
        services, asked = self.services, self._read.get((dataset, admission.body))
        if asked is None:
            asked = await self._read_body(dataset, admission)
        else:
            self._read.move_to_end((dataset, admission.body))
        call = IdempotentRequest(admission.caller.id, hashed_key(path, admission.key), asked.request)
        mark, in_flight = call[:2], services.in_flight
        if mark in in_flight:
            raise KeyInFlight
        in_flight.add(mark)
        try:
            decided = await self._enqueue(Authorization(asked.spend, call, asked.charge))
            # Answers are written and signed here, while the next group commits.
            return services.responses.respond(decided)
        finally:
            in_flight.discard(mark)

    async def _read_body(self, dataset: str, admission: Admission) -> ParsedBody:
        body = admission.body
        # What turns a body away tells of the dataset, and no transaction asks about the token first.
        await self.services.caller(admission.authorization)
        run = self.services.read if len(body) > LARGE_BODY_BYTES else self.services.compute
        asked = await run(self._parse, dataset, body)
        if asked.charge is None:
            asked = replace(asked, charge=await self.services.price(asked.spend))
        if len(body) <= _LONGEST_KEPT_BYTES:
            self._read[dataset, body] = asked
            if len(self._read) > _KEPT_BODIES:
                self._read.popitem(last=False)
        return asked

    def _parse(self, dataset: str, body: bytes) -> ParsedBody:
        content = parse_json(body)
        try:
            spend = SpendBody.model_validate(content).to_spend(dataset)
        except ValidationError as error:
            raise invalid_body(error) from None
        charge = None if is_expensive(spend) else self.services.ledger.charge(spend)
        return ParsedBody(spend, charge, hashed_request(content))

    def _enqueue(self, authorization: Authorization) -> "Ticket":
        """Wait for the others that this turn of the event loop brings, then go to the workers together.

        A group that starts with the first request alone costs as much as one with all of them, and its
        thread and the event loop then take the interpreter from each other at every statement.
        """
        loop = self.services.loop  # asking for the running one is a system call
        ticket: Ticket = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._submit)
        self._waiting.append((authorization, ticket))
        return ticket

    def _submit(self) -> None:
        waiting, self._waiting = self._waiting, []
        try:
            self.services.committer.submit(waiting)
        except Exception as error:  # whatever it is, nobody may wait for ever
            for _, ticket in waiting:
                if not ticket.done():
                    ticket.set_result(error)
