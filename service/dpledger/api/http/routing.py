"""Routes that cannot be left open: every one says which scope it needs, or that it is public.

A guarded route first asks who is calling, then for what, and only then reads the body. What it may
answer is declared here too, so that the API's description and its behaviour have one source.
"""

from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError

from dpledger.api.http import problems
from dpledger.api.http.body import (
    LARGE_BODY_BYTES,
    LISTS,
    ORDINARY,
    BodyLimits,
    StrictRequest,
    check_media_type,
    parse_json,
)
from dpledger.api.http.idempotency import HEADER, check_key, check_single, hashed_request
from dpledger.api.http.problems import MEDIA_TYPE, ProblemKind, invalid_body
from dpledger.api.schemas.requests import DATASET_NAME
from dpledger.auth.gatekeeper import Caller
from dpledger.auth.scopes import Scope
from dpledger.ledger.errors import NotFound

__all__ = ["Guard", "GuardedRoute", "caller_of", "public", "require_scope"]

SECURITY_SCHEME = "token"
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
    """What a route asks of a request before its own code runs, and which problems it may answer."""

    scope: Scope | None
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


Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])


def require_scope(
    scope: Scope,
    *,
    idempotent: bool = False,
    may_answer: Iterable[ProblemKind] = (),
    limits: BodyLimits = ORDINARY,
) -> Callable[[Endpoint], Endpoint]:
    """Mark an endpoint with the scope it needs; ``idempotent`` where it needs an Idempotency-Key."""
    return _attach_guard(Guard(scope, idempotent, tuple(may_answer), limits))


def public(*may_answer: ProblemKind) -> Callable[[Endpoint], Endpoint]:
    """Mark an endpoint that anybody may call."""
    return _attach_guard(Guard(None, problems=may_answer))


def _attach_guard(guard: Guard) -> Callable[[Endpoint], Endpoint]:
    def mark(endpoint: Endpoint) -> Endpoint:
        endpoint.__dict__["guard"] = guard
        return endpoint

    return mark


class GuardedRoute(APIRoute):
    """A route whose endpoint is marked; an unmarked one does not start."""

    guard: Guard

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        guard = getattr(endpoint, "guard", None)
        if not isinstance(guard, Guard):
            raise TypeError(f"{path} has no scope and is not public")
        self.guard = guard
        has_body = bool(set(options.get("methods") or ()) & {"POST"})
        options["responses"] = {
            **problem_responses(guard.kinds(path, has_body)),
            **(options.get("responses") or {}),
        }
        options["openapi_extra"] = {**_describe(guard), **(options.get("openapi_extra") or {})}
        super().__init__(path, endpoint, **options)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Wrap FastAPI's handler, as its page "Custom Request and APIRoute class" shows."""
        handle = super().get_route_handler()

        async def handle_with_guard(request: Request) -> Response:
            strict = StrictRequest(request.scope, request.receive)
            strict.limits = self.guard.limits
            await admit(strict, self.guard)
            if self.body_field is not None:
                check_media_type(request.headers.get("content-type", ""))
                await self._read_beside(strict)
            return await handle(strict)

        return handle_with_guard

    async def _read_beside(self, request: StrictRequest) -> None:
        """Parse and validate a large body in a thread; the framework takes the model as it is."""
        body = await request.body()
        if len(body) <= LARGE_BODY_BYTES:
            return
        assert self.body_field is not None
        shape = self.body_field.field_info.annotation
        services = request.app.state.services
        # With the lists themselves: two threads that only compute are worse for others than one.
        run = services.lists.run if self.guard.limits is LISTS else services.read
        model, asked = await run(read_body, shape, body, request.headers.get("if-match"))
        request.take(model)
        request.state.asked = asked


def read_body(
    shape: type[BaseModel], body: bytes, if_match: str | None, pause: Callable[[], None] = lambda: None
) -> tuple[BaseModel, bytes]:
    """A body as its shape, and the hash that tells the request from another one under the same key."""
    pause()
    content = parse_json(body)
    pause()
    try:
        model = shape.model_validate(content)
    except ValidationError as error:
        raise invalid_body(error) from None
    pause()
    return model, hashed_request({"body": content, "if_match": if_match})


async def admit(request: Request, guard: Guard) -> None:
    """Let a request pass, or raise why not; the caller is kept for the endpoint."""
    if guard.scope is None:
        return
    check_single(request.scope["headers"])
    caller = await request.app.state.services.caller(request.headers.get("authorization"))
    caller.require(guard.scope)
    dataset = request.path_params.get("dataset")
    if dataset is not None:
        caller.require_dataset(dataset)
        if not DATASET_NAME.fullmatch(dataset):
            raise NotFound("dataset", dataset)
    request.state.caller = caller
    if guard.idempotent:
        key = request.headers.get(HEADER)
        request.state.key = check_key(None if key is None else key.encode("latin-1"))


def caller_of(request: Request) -> Caller:
    """Who passed the guard."""
    caller: Caller = request.state.caller
    return caller


def problem_responses(kinds: Iterable[ProblemKind]) -> dict[int | str, dict[str, Any]]:
    """The part of the API's description that lists problems by status."""
    by_status: dict[int, list[ProblemKind]] = {}
    for kind in sorted(kinds, key=lambda each: (each.status, each.slug)):
        by_status.setdefault(kind.status, []).append(kind)
    return {status: _described_problem(listed) for status, listed in by_status.items()}


def _described_problem(kinds: list[ProblemKind]) -> dict[str, Any]:
    schema = {
        "allOf": [{"$ref": "#/components/schemas/Problem"}],
        "properties": {"type": {"enum": [kind.type for kind in kinds]}},
    }
    return {
        "description": "; ".join(kind.title for kind in kinds),
        "content": {MEDIA_TYPE: {"schema": schema}},
    }


def _describe(guard: Guard) -> dict[str, Any]:
    if guard.scope is None:
        return {"security": []}
    extra: dict[str, Any] = {"security": [{SECURITY_SCHEME: []}], "x-scope": guard.scope.value}
    if guard.idempotent:
        extra["parameters"] = [
            {
                "name": HEADER,
                "in": "header",
                "required": True,
                "schema": {"type": "string", "minLength": 1, "maxLength": 255},
                "description": "A name of the caller's own for this request, kept over retries.",
            }
        ]
    return extra
