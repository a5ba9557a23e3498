"""Errors on the wire: ``application/problem+json`` (RFC 9457), one table from error to status."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from dpledger.accounting.errors import AdjacencyMismatch, InvalidInput, Unproven, Unreachable
from dpledger.auth.errors import Forbidden, Unauthenticated
from dpledger.ledger.errors import (
    AllocationInUse,
    AllocationOfAnother,
    AllocationReturned,
    AlreadyExists,
    KeyInFlight,
    KeyReused,
    NotFound,
    PreconditionFailed,
    RequestClosed,
    RequestOfAnother,
    RequestOutdated,
    ReservationClosed,
    ReservedByAnother,
    RolledBack,
    TokenEnded,
    TooManyRequests,
    Unavailable,
)
from dpledger.logs import log_failure, without_tokens

__all__ = [
    "DOMAIN_ERRORS",
    "MEDIA_TYPE",
    "Problem",
    "ProblemKind",
    "RefusedRequest",
    "install_problem_handlers",
    "invalid_body",
    "problem_of",
]

MEDIA_TYPE = "application/problem+json"
MAX_DETAIL_CHARACTERS = 500
MAX_LISTED_ERRORS = 20


@dataclass(frozen=True)
class ProblemKind:
    """One kind of problem: its slug, HTTP status and title."""

    slug: str
    status: int
    title: str

    @property
    def type(self) -> str:
        """The ``type`` member, a reference relative to the service's address."""
        return f"/problems/{self.slug}"


MALFORMED_JSON = ProblemKind("malformed-json", 400, "The body is not JSON")
KEY_MISSING = ProblemKind("idempotency-key-missing", 400, "The request needs an Idempotency-Key")
KEY_INVALID = ProblemKind("idempotency-key-invalid", 400, "The Idempotency-Key cannot be used")
REPEATED_HEADER = ProblemKind("repeated-header", 400, "A header is repeated")
UNAUTHENTICATED = ProblemKind("unauthenticated", 401, "The request carries no valid token")
TOKEN_ENDED = ProblemKind("token-ended", 401, "The token expired or was revoked before the decision")
FORBIDDEN = ProblemKind("forbidden", 403, "The token lacks the required scope or dataset")
NOT_FOUND = ProblemKind("not-found", 404, "Not found")
METHOD_NOT_ALLOWED = ProblemKind("method-not-allowed", 405, "Method not allowed")
BUDGET_EXHAUSTED = ProblemKind("budget-exhausted", 409, "The budget does not cover the request")
QUOTA_EXCEEDED = ProblemKind("quota-exceeded", 409, "The team's quota does not cover the request")
ALREADY_EXISTS = ProblemKind("already-exists", 409, "The name already exists")
ALLOCATION_IN_USE = ProblemKind("allocation-in-use", 409, "The allocation may have released something")
ALLOCATION_RETURNED = ProblemKind("allocation-returned", 409, "The allocation was returned")
REQUEST_CLOSED = ProblemKind("request-closed", 409, "The request was decided before")
REQUEST_OUTDATED = ProblemKind("request-outdated", 409, "What the request was made for has changed")
TOO_MANY_REQUESTS = ProblemKind("too-many-requests", 409, "Too many requests for budget are open")
RESERVATION_CLOSED = ProblemKind("reservation-closed", 409, "The reservation is no longer open")
LEDGER_ROLLED_BACK = ProblemKind("ledger-rolled-back", 409, "The ledger is behind its high-water mark")
KEY_IN_FLIGHT = ProblemKind("idempotency-key-in-flight", 409, "The first request is still being decided")
PRECONDITION_FAILED = ProblemKind("precondition-failed", 412, "The state has changed")
REQUEST_TIMEOUT = ProblemKind("request-timeout", 408, "The request did not arrive in time")
PAYLOAD_TOO_LARGE = ProblemKind("payload-too-large", 413, "The body is too large")
UNSUPPORTED_MEDIA_TYPE = ProblemKind("unsupported-media-type", 415, "The body must be application/json")
INVALID_INPUT = ProblemKind("invalid-input", 422, "An input is outside its range")
ADJACENCY_MISMATCH = ProblemKind("adjacency-mismatch", 422, "The bound holds under the other adjacency")
UNPROVEN = ProblemKind("unproven", 422, "No proven bound covers this")
UNREACHABLE = ProblemKind("unreachable", 422, "No parameter meets the target")
KEY_REUSED = ProblemKind("idempotency-key-reused", 422, "The key was used with another request")
PRECONDITION_REQUIRED = ProblemKind("precondition-required", 428, "The request needs If-Match")
INTERNAL_ERROR = ProblemKind("internal-error", 500, "Internal error")
UNAVAILABLE = ProblemKind("unavailable", 503, "The ledger is unavailable")
TOO_MANY_CONNECTIONS = ProblemKind("too-many-connections", 503, "Too many connections")

_BY_STATUS = {404: NOT_FOUND, 405: METHOD_NOT_ALLOWED, 413: PAYLOAD_TOO_LARGE}
_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="dpledger"'}


@dataclass(frozen=True)
class Rule:
    """How one domain error is rendered: its kind, the attributes and the headers that go with it."""

    kind: ProblemKind
    members: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)


DOMAIN_ERRORS: dict[type[Exception], Rule] = {
    InvalidInput: Rule(INVALID_INPUT, ("field",)),
    AdjacencyMismatch: Rule(ADJACENCY_MISMATCH, ("theorem", "needs", "found")),
    Unproven: Rule(UNPROVEN),
    Unreachable: Rule(UNREACHABLE),
    Unauthenticated: Rule(UNAUTHENTICATED, headers=_CHALLENGE),
    Forbidden: Rule(FORBIDDEN),
    NotFound: Rule(NOT_FOUND, ("kind", "name")),
    AllocationInUse: Rule(ALLOCATION_IN_USE, ("allocation", "how")),
    AllocationOfAnother: Rule(FORBIDDEN, ("allocation",)),
    AllocationReturned: Rule(ALLOCATION_RETURNED, ("allocation",)),
    AlreadyExists: Rule(ALREADY_EXISTS, ("kind", "name")),
    KeyReused: Rule(KEY_REUSED),
    KeyInFlight: Rule(KEY_IN_FLIGHT, headers={"Retry-After": str(KeyInFlight.retry_after_seconds)}),
    PreconditionFailed: Rule(PRECONDITION_FAILED, ("expected", "found")),
    RequestClosed: Rule(REQUEST_CLOSED, ("request", "how")),
    RequestOfAnother: Rule(FORBIDDEN, ("request",)),
    RequestOutdated: Rule(REQUEST_OUTDATED, ("request", "why")),
    ReservationClosed: Rule(RESERVATION_CLOSED, ("reservation", "how")),
    ReservedByAnother: Rule(FORBIDDEN, ("reservation",)),
    RolledBack: Rule(LEDGER_ROLLED_BACK, ("dataset", "sequence", "entry", "found")),
    TokenEnded: Rule(TOKEN_ENDED, headers=_CHALLENGE),
    TooManyRequests: Rule(TOO_MANY_REQUESTS, ("open_requests", "most")),
    # Nobody reads this answer: the connection is gone. It is no failure of the service either.
    ClientDisconnect: Rule(REQUEST_TIMEOUT),
    Unavailable: Rule(UNAVAILABLE, headers={"Retry-After": str(Unavailable.retry_after_seconds)}),
}
"""The one table from domain error to problem; the nearest class in an error's ancestry decides."""


class RefusedRequest(HTTPException):
    """A request that is turned away for its form, before the domain sees it."""

    def __init__(self, kind: ProblemKind, detail: str) -> None:
        super().__init__(kind.status, detail)
        self.kind = kind


@dataclass(frozen=True)
class Problem:
    """One problem, ready to be sent."""

    kind: ProblemKind
    detail: str
    members: Mapping[str, object] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def body(self) -> bytes:
        """The JSON text; escaped to ASCII, since a detail may quote what UTF-8 cannot carry."""
        kind, detail = self.kind, self.detail
        shown = detail if len(detail) <= MAX_DETAIL_CHARACTERS else detail[: MAX_DETAIL_CHARACTERS - 1] + "…"
        own = {"type": kind.type, "title": kind.title, "status": kind.status, "detail": shown}
        # A token that was given as an id, a name or a key stands in whatever quotes it.
        return without_tokens(json.dumps({**own, **self.members}, allow_nan=False)).encode("ascii")

    def response(self) -> Response:
        """The problem as an answer."""
        return Response(self.body, self.kind.status, dict(self.headers), MEDIA_TYPE)


def problem_of(error: Exception) -> Problem:
    """The problem that an error is; what is in no table is logged, and is an internal error."""
    if isinstance(error, RequestValidationError):
        return _validation_problem(error)
    if isinstance(error, HTTPException):
        return _http_problem(error)
    for ancestor in type(error).__mro__:
        rule = DOMAIN_ERRORS.get(ancestor)
        if rule is not None:
            members = {name: getattr(error, name) for name in rule.members}
            return Problem(rule.kind, str(error), members, rule.headers)
    log_failure(error)
    return Problem(INTERNAL_ERROR, "The failure is in the service's log. Ask again with the same key.")


def _http_problem(error: HTTPException) -> Problem:
    kind = error.kind if isinstance(error, RefusedRequest) else _BY_STATUS.get(error.status_code)
    if kind is None:
        kind = ProblemKind("http-error", error.status_code, "The request failed")
    return Problem(kind, error.detail, headers=dict(error.headers or {}))


def _validation_problem(error: RequestValidationError) -> Problem:
    listed = error.errors()[:MAX_LISTED_ERRORS]
    found = [{"field": field_path(item["loc"]), "message": item["msg"]} for item in listed]
    first = found[0]
    members = {"field": first["field"], "errors": found}
    return Problem(INVALID_INPUT, f"{first['field']}: {first['message']}", members)


def invalid_body(error: ValidationError) -> RequestValidationError:
    """A body that does not have its shape, as the framework itself would say it."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return RequestValidationError([{**item, "loc": ("body", *item["loc"])} for item in found])


def field_path(location: Sequence[str | int]) -> str:
    """``("body", "releases", 0, "count")`` as ``releases[0].count``; the whole body is ``body``."""
    path = ""
    for part in location[1:]:
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    return path.removeprefix(".") or str(location[0])


def _render_problem(_request: Request, error: Exception) -> Response:
    return problem_of(error).response()


_RENDERED: tuple[type[Exception], ...] = (*DOMAIN_ERRORS, HTTPException, RequestValidationError)


def install_problem_handlers(app: FastAPI) -> None:
    """Answer every foreseen error of ``app`` as a problem; the rest is caught around it."""
    handler: Callable[[Request, Any], Response] = _render_problem
    for error in _RENDERED:
        app.add_exception_handler(error, handler)
