"""Routes that cannot be left open: every one says which scope it needs, or that it is public.

A guarded route admits a request before its own code runs. What it may answer is declared here too, so
that the API's description and its behaviour have one source.
"""

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError

from dpledger.api.http.admission import HEADER, Admission, Guard, admit, hashed_request, receive_body
from dpledger.api.http.body import LARGE_BODY_BYTES, LISTS, ORDINARY, BodyLimits, parse_json
from dpledger.api.http.problems import MEDIA_TYPE, ProblemKind, invalid_body
from dpledger.auth.gatekeeper import Caller
from dpledger.auth.scopes import Scope

__all__ = ["GuardedRoute", "admission_of", "caller_of", "public", "require_scope"]

SECURITY_SCHEME = "token"
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


class StrictRequest(Request):
    """A request whose body is bounded and read by :func:`parse_json`."""

    limits: BodyLimits = ORDINARY

    async def body(self) -> bytes:
        """The body, within the limits of its route."""
        if not hasattr(self, "_body"):
            declared = self.headers.get("content-length", "").encode("latin-1")
            self._body = await receive_body(self.receive, self.limits, declared)
        return self._body

    async def json(self) -> Any:
        """The body as strict JSON, or as the model that it was validated to beside the event loop."""
        if not hasattr(self, "_content"):
            self._content = parse_json(await self.body())
        return self._content

    def take(self, content: Any) -> None:
        """Have :meth:`json` return a value that was read elsewhere."""
        self._content = content


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
            if self.guard.scope is not None:
                await self._admit(strict)
            return await handle(strict)

        return handle_with_guard

    async def _admit(self, request: StrictRequest) -> None:
        """Let a request pass, or raise why not; its admission is kept for the endpoint."""
        # A request with a key has a body, also where the framework does not read it.
        has_body = self.body_field is not None or self.guard.idempotent
        services, dataset = request.app.state.services, request.path_params.get("dataset")
        admission = await admit(
            services, self.guard, request.scope, request.receive, dataset, has_body=has_body
        )
        request.state.admission = admission
        if has_body:
            request._body = admission.body
        if self.body_field is not None and len(admission.body) > LARGE_BODY_BYTES:
            await self._read_beside(request, admission.body)

    async def _read_beside(self, request: StrictRequest, body: bytes) -> None:
        """Parse and validate a large body in a thread; the framework takes the model as it is."""
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


def admission_of(request: Request) -> Admission:
    """The admission of a request that passed the guard."""
    admission: Admission = request.state.admission
    return admission


def caller_of(request: Request) -> Caller:
    """The caller of a request that passed the guard."""
    return admission_of(request).caller


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
