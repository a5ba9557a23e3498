"""Sending calls: retried with the same key where no answer came, never where one did."""

import asyncio
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx2

from dpledger_client import _embedded
from dpledger_client._calls import Again, Answer, Call, read_answer
from dpledger_client._patience import Retries, Waiting
from dpledger_client.errors import NoAnswer

__all__ = ["AsyncWire", "Connection", "Retries", "Wire"]


_HOPELESS = (httpx2.UnsupportedProtocol, httpx2.LocalProtocolError)
"""Requests that could not even be sent, and will not be if they are repeated."""


@dataclass(frozen=True)
class Connection:
    """Where the service is and how it is spoken to; everything here can be pickled."""

    url: str
    token: str | None = field(default=None, repr=False)
    timeout_seconds: float = 30.0
    retries: Retries = field(default_factory=Retries)
    database: str | None = None
    """The file of an embedded ledger, instead of an address."""
    transport: Any = field(default=None, repr=False)
    """Replaces the network, for tests."""

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise ValueError(f"url must start with http:// or https://, found {self.url!r}")
        if self.token is not None and not (self.token.isascii() and self.token.isprintable()):
            # Not repeated here: it may be a token with one wrong character.
            raise ValueError("token must be what `dpledger token create` prints, dpl_<id>_<secret>")

    def settings(self, transport: Any, token: str | None) -> dict[str, Any]:
        """The arguments of an HTTP client."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return {
            "base_url": self.url,
            "headers": headers,
            "timeout": self.timeout_seconds,
            "transport": transport,
        }


def _request(call: Call, key: str | None) -> dict[str, Any]:
    return {
        "method": call.method,
        "url": call.path,
        "content": call.content(),
        "params": dict(call.params),
        "headers": call.headers(key),
    }


def _read(response: httpx2.Response, key: str | None) -> Answer | Again:
    return read_answer(response.status_code, response.headers, response.content, key)


def _retry_without_answer(error: httpx2.TransportError, key: str | None) -> Again:
    unanswered = NoAnswer(f"{type(error).__name__}: {error}", key)
    if isinstance(error, _HOPELESS):
        raise unanswered from error
    return Again(unanswered)


class _Line:
    """What both wires share: a connection, and the client that is made of it when it is first needed.

    The client, with its sockets, is no part of the state that is pickled or copied, and one that was
    made before a fork is not used after it. Neither is what is remembered of datasets (``facts``).
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._client: Any = None
        self._made_for: object = None
        self._running: _embedded.Running | None = None
        self._guard = threading.RLock()
        self.facts: dict[str, Mapping[str, Any]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.connection,)

    def token_id(self) -> str:
        """The public part of the token: keys belong to it."""
        parts = (self._token() or "").split("_")
        return parts[1] if len(parts) == 3 else ""

    def _token(self) -> str | None:
        given = self.connection.token
        running = self._service()
        return given if running is None or given is not None else running.token

    def _service(self) -> "_embedded.Running | None":
        """The embedded service, started when it is first needed in this process."""
        if self.connection.database is None:
            return None
        with self._guard:
            if self._running is None or self._running.process != os.getpid():
                self._running = _embedded.enter(self.connection.database)
            return self._running

    def _waiting(self, call: Call) -> Waiting:
        connection = self.connection
        what = f"{call.method} {call.path}"
        return Waiting(connection.retries, connection.database or connection.url, what)

    def _current(self, make: Any, place: object = None) -> Any:
        """The client of this process and place, made by ``make`` if there is none."""
        with self._guard:
            here = (os.getpid(), place)
            if self._client is None or self._made_for != here:
                self._client = make()
                self._made_for = here
            return self._client

    def _leave(self) -> None:
        self._client = None
        if self._running is not None:
            _embedded.leave(self._running)
            self._running = None


class Wire(_Line):
    """Sends calls and waits."""

    def perform(self, call: Call, key: str | None = None) -> Answer:
        """The answer to a call; raises what it is refused with, or that no answer came."""
        said = self._once(call, key)
        if isinstance(said, Answer):
            return said
        waiting = self._waiting(call)
        while isinstance(said, Again):
            self.connection.retries.wait(waiting.pause(said.error, said.after_seconds))
            said = self._once(call, key)
        waiting.end()
        return said

    def _once(self, call: Call, key: str | None) -> Answer | Again:
        client: httpx2.Client = self._current(self._make)
        try:
            response = client.request(**_request(call, key))
        except httpx2.TransportError as error:
            return _retry_without_answer(error, key)
        return _read(response, key)

    def _make(self) -> httpx2.Client:
        running = self._service()
        transport = self.connection.transport if running is None else _embedded.Transport(running)
        return httpx2.Client(**self.connection.settings(transport, self._token()))

    def close(self) -> None:
        """Let go of sockets, and of the embedded service; both come back when they are needed."""
        client = self._client
        self._leave()
        if client is not None:
            client.close()


class AsyncWire(_Line):
    """Sends calls and lets others run meanwhile."""

    async def perform(self, call: Call, key: str | None = None) -> Answer:
        """The answer to a call; raises what it is refused with, or that no answer came."""
        said = await self._once(call, key)
        if isinstance(said, Answer):
            return said
        waiting = self._waiting(call)
        while isinstance(said, Again):
            await self.connection.retries.wait_async(waiting.pause(said.error, said.after_seconds))
            said = await self._once(call, key)
        waiting.end()
        return said

    async def _once(self, call: Call, key: str | None) -> Answer | Again:
        # A client's sockets belong to the event loop that they were opened on.
        place = asyncio.get_running_loop()
        client: httpx2.AsyncClient = await asyncio.to_thread(self._current, self._make, place)
        try:
            response = await client.request(**_request(call, key))
        except httpx2.TransportError as error:
            return _retry_without_answer(error, key)
        return _read(response, key)

    def _make(self) -> httpx2.AsyncClient:
        running = self._service()
        transport = self.connection.transport if running is None else _embedded.AsyncTransport(running)
        return httpx2.AsyncClient(**self.connection.settings(transport, self._token()))

    async def close(self) -> None:
        """Let go of sockets, and of the embedded service; both come back when they are needed."""
        client = self._client
        await asyncio.to_thread(self._leave)
        if client is not None:
            await client.aclose()
