"""Bounds on connections: how many there are, and how long a request may take to arrive.

The web server itself waits for ever for the rest of a request, and takes as many connections as the
system allows. Here a head and a body each have their time, and the number of connections is limited.
At the limit, the connection that has kept the service waiting longest for its request makes room;
where none does, the new one is answered 503 at once.
"""

import asyncio
import time
from collections import Counter
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from dpledger.api.http.problems import MEDIA_TYPE, REQUEST_TIMEOUT, TOO_MANY_CONNECTIONS, Problem
from dpledger.logs import log_event

__all__ = ["BoundedProtocol", "Connections"]

RETRY_SECONDS = 1
LOG_SECONDS = 1.0
DISCARD_SECONDS = 0.02
"""The pause after each piece of a body that was refused and that nobody reads."""
SPARE_FILES = 128
"""Open files that are no connections of clients: the database's, the worker's, the log's."""
_REASONS = {408: "Request Timeout", 503: "Service Unavailable"}


class Connections:
    """What one server allows, and what it counted."""

    def __init__(self, most: int, head_seconds: float, body_seconds: float) -> None:
        self.most = min(most, _most_by_files())
        self.head_seconds = head_seconds
        self.body_seconds = body_seconds
        self.ended: Counter[str] = Counter()
        self.open: set[Any] = set()
        self._logged_at = -LOG_SECONDS

    def protocol(self) -> "type[BoundedProtocol]":
        """The class that the web server makes one of for each connection."""
        return type("BoundedProtocol", (BoundedProtocol,), {"bounds": self})

    def note(self, reason: str) -> None:
        """Count a connection that was ended, and say so, at most once per second."""
        self.ended[reason] += 1
        now = time.monotonic()
        if now - self._logged_at >= LOG_SECONDS:
            self._logged_at = now
            log_event(
                "connections ended", reason=reason, open=len(self.open), limit=self.most, **dict(self.ended)
            )


class BoundedProtocol(HttpToolsProtocol):
    """One connection, within the bounds of its server."""

    bounds: ClassVar[Connections]
    _timer: asyncio.TimerHandle | None = None
    _receiving = False
    _in_body = False
    _since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, or make room for it, or refuse it."""
        super().connection_made(transport)
        self._since = self.loop.time()
        self._wait(self.bounds.head_seconds)
        self.bounds.open = self.connections
        if len(self.connections) > self.bounds.most:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what arrived; what is still missing has its time."""
        super().data_received(data)
        if not self._receiving:
            self._stop_waiting()
            return
        if self._timer is None:
            self._wait(self.bounds.body_seconds if self._in_body else self.bounds.head_seconds)
        if self._in_body and self._is_answered:
            # The answer is out and the rest is thrown away; at full speed that would keep the loop busy.
            self.flow.pause_reading()
            self.loop.call_later(DISCARD_SECONDS, self._read_on)

    def on_message_begin(self) -> None:
        """A request begins."""
        self._receiving, self._in_body, self._since = True, False, self.loop.time()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Its head is here."""
        self._in_body = True
        self._stop_waiting()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """All of it is here."""
        self._receiving = False
        super().on_message_complete()

    def _wait(self, seconds: float) -> None:
        self._timer = self.loop.call_later(seconds, self._expire)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _read_on(self) -> None:
        if not self.transport.is_closing():
            self.flow.resume_reading()

    def _expire(self) -> None:
        self._timer = None
        if self.transport.is_closing():
            return
        if self.pipeline:  # it waits for the answer before it, not for its sender
            self._wait(self.bounds.body_seconds)
        elif self._answering and not self._in_body:
            self.cycle.keep_alive = False
        else:
            part = "body" if self._in_body else "head"
            seconds = self.bounds.body_seconds if self._in_body else self.bounds.head_seconds
            self.bounds.note(f"{part}_timeout")
            self._end(Problem(REQUEST_TIMEOUT, f"The {part} did not arrive within {seconds:g} s."))

    @property
    def _answering(self) -> bool:
        return self._started is not None and not self._started.response_complete

    @property
    def _started(self) -> RequestResponseCycle | None:
        """The last request whose head arrived; there is none before the first, whatever its type says."""
        return self.cycle

    @property
    def _is_answered(self) -> bool:
        return self._started is not None and self._started.response_complete

    @property
    def _has_answered(self) -> bool:
        """Whether the request that is arriving, or the one before it, has an answer that is under way."""
        cycle = self._started
        return cycle is not None and cycle.response_started and (self._in_body or not cycle.response_complete)

    @property
    def _kept_waiting(self) -> bool:
        """Whether the service waits for a request that has not arrived."""
        return not self.transport.is_closing() and (self._receiving or self._started is None)

    def _make_room(self) -> None:
        others = [each for each in self.connections if isinstance(each, BoundedProtocol) and each is not self]
        waited_for = [each for each in others if each._kept_waiting]
        self.bounds.note("too_many")
        ended = min(waited_for, key=lambda each: each._since, default=self)
        detail = f"The service takes {self.bounds.most} connections at once."
        ended._end(Problem(TOO_MANY_CONNECTIONS, detail, headers={"Retry-After": str(RETRY_SECONDS)}))

    def _end(self, problem: Problem) -> None:
        """Say why, unless there is an answer already, and close."""
        if not self._has_answered:
            self.transport.write(_written(problem))
        if self._answering:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()


def _written(problem: Problem) -> bytes:
    """A problem as a whole answer."""
    status, body = problem.kind.status, problem.body
    headers = {
        "content-type": MEDIA_TYPE,
        "content-length": str(len(body)),
        "connection": "close",
        **problem.headers,
    }
    lines = [
        f"HTTP/1.1 {status} {_REASONS[status]}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body


def _most_by_files() -> int:
    """How many connections the system's limit on open files leaves room for."""
    try:
        import resource
    except ImportError:  # a system without this limit
        return 2**31
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**31 if allowed == resource.RLIM_INFINITY else max(allowed - SPARE_FILES, allowed // 2)
