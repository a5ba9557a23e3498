"""Gives each request its id, measures it, and turns unforeseen errors into problems."""

import itertools
import re
import secrets
import time
from collections.abc import Iterable

from starlette.routing import BaseRoute, Match, Mount
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dpledger.api.http.problems import problem_of
from dpledger.api.metrics import METHODS, Metrics, template_of
from dpledger.logs import REQUEST_ID

__all__ = ["REQUEST_ID_HEADER", "RequestContext", "request_id"]

REQUEST_ID_HEADER = b"x-request-id"
_GIVEN = re.compile(rb"[\x21-\x7e]{1,128}")
_PROCESS = secrets.token_hex(6).encode()
_numbers = itertools.count(1)


def request_id(given: bytes | None) -> bytes:
    """The id that the caller gave, if it can be shown in a log, or a new one."""
    # It goes back to the caller and into every line of the log: a token must not.
    if given is not None and _GIVEN.fullmatch(given) and b"dpl_" not in given:
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
        own = request_id(dict(scope["headers"]).get(REQUEST_ID_HEADER))
        REQUEST_ID.set(own.decode())
        arrived = time.perf_counter()
        app, root = scope["app"], scope.get("root_path", "")
        started = False

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = [*message["headers"], (REQUEST_ID_HEADER, own)]
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
            self._metrics.observe_request(scope["method"], template_of(scope), time.perf_counter() - arrived)
