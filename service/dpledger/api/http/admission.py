"""The one way in: request id, metrics and span around every request; token, key and body before its route.

:class:`RequestContext` stands around the framework and around the fast path alike, and :func:`admit` lets a
request pass into either. A key belongs to a token and an address: the same key sent to another dataset is
another request. Requests are compared by their canonical JSON, so spaces and the order of keys do not matter.
"""

import hashlib
import itertools
import json
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Match, Mount
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dpledger.api.http import problems
from dpledger.api.http.body import ORDINARY, BodyLimits
from dpledger.api.http.problems import ProblemKind, RefusedRequest, problem_of
from dpledger.api.metrics import METHODS, Metrics, template_of
from dpledger.api.schemas.requests import DATASET_NAME
from dpledger.auth import scopes
from dpledger.auth.gatekeeper import FRESH_SECONDS, Caller, bearer_token
from dpledger.ledger.errors import KeyInFlight, NotFound
from dpledger.ledger.ports import IdempotentRequest
from dpledger.logs import REQUEST_ID

if TYPE_CHECKING:
    from dpledger.api.services import Services

__all__ = [
    "HEADER",
    "ROUTE_KEY",
    "Admission",
    "Guard",
    "InFlight",
    "RequestContext",
    "admit",
    "check_key",
    "hashed_key",
    "hashed_request",
    "receive_body",
]

HEADER = "Idempotency-Key"
MAX_KEY_CHARACTERS = 255
HEADERS_KEY = "dpledger.headers"
"""Where a request's scope holds its headers by name; of one that came twice, the last."""
ROUTE_KEY = "dpledger.route"
"""Where a request's scope names its route, if the framework has not chosen one."""
SINGLE_HEADERS = frozenset({b"authorization", b"content-type", b"idempotency-key", b"if-match"})
"""Headers that a request may carry once: of two, one reader would take the first and another the last."""
_HASH_BYTES = 16
_REQUEST_ID_HEADER = b"x-request-id"
_GIVEN_ID = re.compile(rb"[\x21-\x7e]{1,128}")
_PROCESS = secrets.token_hex(6).encode()
_numbers = itertools.count(1)
_BODY_PROBLEMS = (
    problems.MALFORMED_JSON,
    problems.PAYLOAD_TOO_LARGE,
    problems.UNSUPPORTED_MEDIA_TYPE,
    problems.INVALID_INPUT,
)
_KEY_PROBLEMS = (
    problems.KEY_MISSING,
    problems.KEY_INVALID,
    problems.KEY_IN_FLIGHT,
    problems.KEY_REUSED,
    problems.TOKEN_ENDED,
    problems.LEDGER_ROLLED_BACK,
)
_DATABASE_PROBLEMS = (problems.UNAVAILABLE,)


@dataclass(frozen=True)
class Guard:
    """Conditions of a route that a request must meet before its code runs, and problems it may answer."""

    scope: scopes.Scope | None
    idempotent: bool = False
    problems: tuple[ProblemKind, ...] = ()
    limits: BodyLimits = ORDINARY

    def kinds(self, path: str, has_body: bool) -> set[ProblemKind]:
        """Every problem that the route may answer."""
        found = {problems.INTERNAL_ERROR, *self.problems}
        if self.scope is not None:
            found |= {problems.UNAUTHENTICATED, problems.FORBIDDEN, problems.REPEATED_HEADER}
            found |= set(_DATABASE_PROBLEMS)
        if "{" in path:
            found |= {problems.NOT_FOUND}
        if has_body:
            found |= set(_BODY_PROBLEMS)
        return found | set(_KEY_PROBLEMS) if self.idempotent else found


class Admission(NamedTuple):
    """A request that may pass: its caller, its token, its idempotency key and its body, if it has them."""

    caller: Caller
    authorization: str
    key: bytes
    body: bytes


async def admit(
    services: "Services",
    guard: Guard,
    scope: Scope,
    receive: Receive,
    dataset: str | None,
    *,
    has_body: bool = True,
    max_age_seconds: float = FRESH_SECONDS,
) -> Admission:
    """Authenticate, check scope, dataset and key, and receive the body, in this order; raises why not.

    Parameters
    ----------
    guard
        What the route asks for; its scope is given.
    dataset
        The dataset in the request's path, if there is one.
    max_age_seconds
        How old memory of a token may be. A deciding transaction asks about the token again.
    """
    headers: dict[bytes, bytes] = scope[HEADERS_KEY]
    if len(headers) < len(scope["headers"]):
        _check_single(scope["headers"])
    authorization = headers.get(b"authorization", b"").decode("latin-1")
    caller = services.gatekeeper.find_cached(bearer_token(authorization), max_age_seconds)
    if caller is None:
        caller = await services.caller(authorization)
    assert guard.scope is not None, "public routes admit everybody"
    caller.require(guard.scope, dataset)
    if dataset is not None and not DATASET_NAME.fullmatch(dataset):
        await services.caller(authorization)
        raise NotFound("dataset", dataset)
    key = check_key(headers.get(b"idempotency-key")) if guard.idempotent else b""
    if not has_body:
        return Admission(caller, authorization, key, b"")
    media_type = headers.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip().lower()
    if media_type != "application/json":
        kind = problems.UNSUPPORTED_MEDIA_TYPE
        raise RefusedRequest(kind, f"Content-Type is {media_type or 'missing'}.")
    body = await receive_body(receive, guard.limits, headers.get(b"content-length"))
    return Admission(caller, authorization, key, body)


def _check_single(headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Refuse a request that says twice what it may say once."""
    seen: set[bytes] = set()
    for name, _ in headers:
        if name in seen and name in SINGLE_HEADERS:
            kind = problems.KEY_INVALID if name == b"idempotency-key" else problems.REPEATED_HEADER
            raise RefusedRequest(kind, f"The header {name.decode()} was sent twice.")
        seen.add(name)


def check_key(value: bytes | None) -> bytes:
    """The key as it was sent: 1 to 255 printable ASCII characters."""
    if value is None:
        raise RefusedRequest(problems.KEY_MISSING, f"Send {HEADER} with a name of your own for this request.")
    if not (
        1 <= len(value) <= MAX_KEY_CHARACTERS and value.isascii() and value.decode("ascii").isprintable()
    ):
        raise RefusedRequest(
            problems.KEY_INVALID, f"{HEADER} takes 1 to {MAX_KEY_CHARACTERS} printable ASCII characters."
        )
    return value


async def receive_body(receive: Receive, limits: BodyLimits, declared: bytes | None) -> bytes:
    """The body, piece by piece; refused as soon as it exceeds its limits, or declares that it will."""
    received, values = bytearray(), 1
    length = int(declared) if declared is not None and declared.isdigit() else 0
    more = True
    while more and length <= limits.most_bytes:
        message = await receive()
        if message["type"] == "http.disconnect":  # half a body may well look like a whole one
            raise ClientDisconnect
        piece: bytes = message.get("body", b"")
        received += piece
        length = len(received)
        # Every value but the first follows one of these. Some may stand in a text: the bound stays above.
        values += piece.count(b",") + piece.count(b"[") + piece.count(b"{")
        if values > limits.most_values and length <= limits.most_bytes:
            raise RefusedRequest(
                problems.PAYLOAD_TOO_LARGE, f"The body may hold at most {limits.most_values} values."
            )
        more = message.get("more_body", False)
    if length > limits.most_bytes:
        raise RefusedRequest(problems.PAYLOAD_TOO_LARGE, f"The limit is {limits.most_bytes} bytes.")
    return bytes(received)


def hashed_key(path: str, key: bytes) -> bytes:
    """The stored form of a key sent to ``path``."""
    return hashlib.sha256(path.encode() + b"\0" + key).digest()[:_HASH_BYTES]


def hashed_request(content: Any) -> bytes:
    """The stored form of a request, which tells it from another one under the same key."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).digest()[:_HASH_BYTES]


class InFlight(set[tuple[str, bytes]]):
    """The requests that this process is deciding now, by actor and key."""

    @contextmanager
    def deciding(self, call: IdempotentRequest) -> Iterator[None]:
        """Hold a request for as long as it takes to answer it; refuses one that is being decided."""
        mark = call[:2]
        if mark in self:
            raise KeyInFlight
        self.add(mark)
        try:
            yield
        finally:
            self.discard(mark)


class RequestContext:
    """Gives each request its id, takes its time, and turns a failure that nobody foresaw into a problem."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope[HEADERS_KEY] = headers = dict(scope["headers"])
        own = _request_id(headers.get(_REQUEST_ID_HEADER))
        REQUEST_ID.set(own.decode())
        arrived = time.perf_counter()
        app, root = scope["app"], scope.get("root_path", "")
        started = False

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = [*message["headers"], (_REQUEST_ID_HEADER, own)]
                if message["status"] == 405:
                    _name_methods(message, app.routes, {**scope, "root_path": root})
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except Exception as error:
            response = problem_of(error).response()
            if started:  # half an answer is out: only cutting the connection tells the caller
                raise
            await response(scope, receive, send_with_id)
        finally:
            route = scope.get(ROUTE_KEY) or template_of(scope)
            self._metrics.observe_request(scope["method"], route, time.perf_counter() - arrived)


def _request_id(given: bytes | None) -> bytes:
    """The id that the caller gave, if it can be shown in a log, or a new one."""
    # It goes back to the caller and into every line of the log: a token must not.
    if given is not None and _GIVEN_ID.fullmatch(given) and b"dpl_" not in given:
        return given
    return b"%s-%d" % (_PROCESS, next(_numbers))


def methods_at(routes: Iterable[BaseRoute], scope: Scope) -> set[str]:
    """Every method that some route takes at a request's address."""
    found: set[str] = set()
    for route in routes:
        if isinstance(route, Mount):
            match, inner = route.matches(scope)
            found |= methods_at(route.routes, {**scope, **inner}) if match is Match.FULL else set()
        else:
            taken = (name for name in METHODS if route.matches({**scope, "method": name})[0] is Match.FULL)
            found.update(taken)
    return found


def _name_methods(message: Message, routes: Iterable[BaseRoute], scope: Scope) -> None:
    """Have ``Allow`` name all methods: the router names those of the first route at the address."""
    others = [(name, value) for name, value in message["headers"] if name.lower() != b"allow"]
    allowed = ", ".join(sorted(methods_at(routes, scope))).encode()
    message["headers"] = [*others, (b"allow", allowed)]
