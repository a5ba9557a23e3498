"""``POST /v1/datasets/{dataset}/authorizations``, the call that every training step makes.

It is a plain ASGI application that stands in front of the framework, because the framework's own
handling of a request costs more than deciding it. Order of checks, errors and answers are those of
every other route. What is cached is only what cannot change: a body that was read before means the
same again, and a dataset's charge for a step never changes once the dataset is open.
"""

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pydantic import ValidationError
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from dpledger.api.http.body import (
    LARGE_BODY_BYTES,
    ORDINARY,
    BodyReader,
    check_media_type,
    declared_length,
    parse_json,
)
from dpledger.api.http.idempotency import check_key, check_single, hashed_key, hashed_request
from dpledger.api.http.middleware import REQUEST_ID_HEADER, request_id
from dpledger.api.http.problems import invalid_body
from dpledger.api.http.responses import RawResponse, error_response, to_response
from dpledger.api.schemas.requests import DATASET_NAME, SpendBody
from dpledger.api.services import is_expensive
from dpledger.auth import scopes
from dpledger.auth.gatekeeper import Caller, bearer_token
from dpledger.ledger.errors import NotFound
from dpledger.ledger.model.entries import Charge
from dpledger.ledger.model.requests import Authorization, Spend
from dpledger.ledger.ports import IdempotentRequest
from dpledger.logs import REQUEST_ID

if TYPE_CHECKING:
    from dpledger.api.services import Services, Ticket

__all__ = ["AuthorizationEndpoint", "dataset_in"]

_KEPT_BODIES = 1024
_LONGEST_KEPT_BYTES = 16 * 1024
_PREFIX = "/v1/datasets/"
_SUFFIX = "/authorizations"
_ANY_AGE = float("inf")


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


class AuthorizationEndpoint:
    """Reads, checks and queues authorizations; answers each when its group has committed."""

    def __init__(self, services: "Services") -> None:
        self._services = services
        self._read: OrderedDict[tuple[str, bytes], ParsedBody] = OrderedDict()
        self._waiting: list[tuple[Authorization, Ticket]] = []

    async def serve(self, dataset: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, whatever happens."""
        headers = dict(scope["headers"])
        own_id = request_id(headers.get(REQUEST_ID_HEADER))
        REQUEST_ID.set(own_id.decode())
        try:
            if len(headers) < len(scope["headers"]):
                check_single(scope["headers"])
            answer = await self._answer(dataset, scope["path"], headers, receive)
        except Exception as error:
            answer = error_response(error)
        answer.headers.append((REQUEST_ID_HEADER, own_id))
        await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
        await send({"type": "http.response.body", "body": answer.body})

    async def answer(self, dataset: str, scope: Scope, receive: Receive) -> RawResponse:
        """The answer to one request; raises what turns it away before it is decided."""
        return await self._answer(dataset, scope["path"], dict(scope["headers"]), receive)

    async def _answer(
        self, dataset: str, path: str, headers: dict[bytes, bytes], receive: Receive
    ) -> RawResponse:
        authorization = headers.get(b"authorization", b"").decode("latin-1")
        caller = await self._caller(authorization)
        caller.require(scopes.Scope.SPEND)
        caller.require_dataset(dataset)
        key = check_key(headers.get(b"idempotency-key"))
        check_media_type(headers.get(b"content-type", b"").decode("latin-1"))
        body = await _body(receive, headers.get(b"content-length"))
        asked = await self._read_body(dataset, body, authorization)
        call = IdempotentRequest(caller.id, hashed_key(path, key), asked.request)
        return await self._decide(Authorization(asked.spend, call, asked.charge))

    async def _caller(self, authorization: str) -> Caller:
        # Whether the token still stands is asked again in the transaction, so memory of any age will do.
        known = self._services.gatekeeper.find_cached(bearer_token(authorization), _ANY_AGE)
        return known if known is not None else await self._services.caller(authorization)

    async def _read_body(self, dataset: str, body: bytes, authorization: str) -> ParsedBody:
        asked = self._read.get((dataset, body))
        if asked is not None:
            self._read.move_to_end((dataset, body))
            return asked
        # What turns a body away tells of the dataset, and no transaction asks about the token first.
        await self._services.caller(authorization)
        run = self._services.read if len(body) > LARGE_BODY_BYTES else self._services.compute
        asked = await run(self._parse, dataset, body)
        if asked.charge is None:
            asked = replace(asked, charge=await self._services.price(asked.spend))
        if len(body) <= _LONGEST_KEPT_BYTES:
            self._read[dataset, body] = asked
            if len(self._read) > _KEPT_BODIES:
                self._read.popitem(last=False)
        return asked

    def _parse(self, dataset: str, body: bytes) -> ParsedBody:
        if not DATASET_NAME.fullmatch(dataset):
            raise NotFound("dataset", dataset)
        content = parse_json(body)
        try:
            spend = SpendBody.model_validate(content).to_spend(dataset)
        except ValidationError as error:
            raise invalid_body(error) from None
        charge = None if is_expensive(spend) else self._services.ledger.charge(spend)
        return ParsedBody(spend, charge, hashed_request(content))

    async def _decide(self, authorization: Authorization) -> RawResponse:
        services = self._services
        mark = services.in_flight.enter(authorization.call)
        try:
            decided = await self._enqueue(authorization)
            # Answers are written and signed here, while the next group commits.
            return to_response(decided if isinstance(decided, Exception) else services.ledger.reply(decided))
        finally:
            services.in_flight.leave(mark)

    def _enqueue(self, authorization: Authorization) -> "Ticket":
        """Wait for the others that this turn of the event loop brings, then go to the workers together.

        A group that starts with the first request alone costs as much as one with all of them, and its
        thread and the event loop then take the interpreter from each other at every statement.
        """
        loop = self._services.loop  # asking for the running one is a system call
        ticket: Ticket = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._submit)
        self._waiting.append((authorization, ticket))
        return ticket

    def _submit(self) -> None:
        waiting, self._waiting = self._waiting, []
        try:
            self._services.committer.submit(waiting)
        except Exception as error:  # whatever it is, nobody may wait for ever
            for _, ticket in waiting:
                if not ticket.done():
                    ticket.set_result(error)


async def _body(receive: Receive, declared: bytes | None) -> bytes:
    reader = BodyReader(ORDINARY, declared_length(declared))
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":  # half a body may well look like a whole one
            raise ClientDisconnect
        reader.add(message.get("body", b""))
        more = message.get("more_body", False)
    return reader.body()
