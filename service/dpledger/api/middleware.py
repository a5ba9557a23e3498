"""Around every request: a name for it, and a last net for errors."""

import itertools
import re
import secrets
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dpledger.api.logs import REQUEST_ID
from dpledger.api.metrics import Metrics, template_of
from dpledger.api.problems import problem_of

__all__ = ["REQUEST_ID_HEADER", "RequestContext", "request_id"]

REQUEST_ID_HEADER = b"x-request-id"
_GIVEN = re.compile(rb"[\x21-\x7e]{1,128}")
_PROCESS = secrets.token_hex(6).encode()
_numbers = itertools.count(1)


def request_id(given: bytes | None) -> bytes:
    """The id that the caller gave, if it can be shown in a log, or a new one."""
    if given is not None and _GIVEN.fullmatch(given):
        return given
    return b"%s-%d" % (_PROCESS, next(_numbers))


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
        started = False

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = [*message["headers"], (REQUEST_ID_HEADER, own)]
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except Exception as error:
            response = problem_of(error).response()
            if started:  # half an answer is out: only cutting the connection tells the caller
                raise
            await response(scope, receive, send_with_id)
        finally:
            self._metrics.answered(scope["method"], template_of(scope), time.perf_counter() - arrived)
