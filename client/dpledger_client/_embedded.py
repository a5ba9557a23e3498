"""A service inside this process: the same application and the same HTTP messages, without a socket.

The application runs on an event loop in a thread of its own. Of one ledger file there is at most one in
a process, shared by all handles. Several processes may embed the same file, as several servers may.
"""

import asyncio
import atexit
import contextlib
import hashlib
import importlib
import os
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import httpx2

from dpledger_client.errors import MissingExtra

__all__ = ["AsyncTransport", "Running", "Transport", "enter", "leave"]

_ACTOR = "embedded"
_STOP_SECONDS = 30.0


def _service_module(name: str) -> Any:
    """A module of the service. The client depends on it here alone, and only when it is used."""
    try:
        return importlib.import_module(f"dpledger.{name}")
    except ModuleNotFoundError as error:
        raise MissingExtra("an embedded ledger needs: pip install 'dpledger-client[embedded]'") from error


class Running:
    """One running service."""

    def __init__(self, database: str) -> None:
        self.database = database
        self.process = os.getpid()
        self.users = 0
        self.app = _application(database)
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        ready: Future[str] = Future()
        self._thread = threading.Thread(target=self._run, args=(ready,), name="dpledger", daemon=True)
        self._thread.start()
        self.token = ready.result()

    def _run(self, ready: "Future[str]") -> None:
        try:
            self._loop.run_until_complete(self._serve(ready))
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)
        finally:
            self._loop.close()

    async def _serve(self, ready: "Future[str]") -> None:
        async with self.app.router.lifespan_context(self.app):
            ready.set_result(await asyncio.to_thread(_own_token, self.app.state.services))
            await self._stop.wait()

    def respond(self, request: httpx2.Request, content: bytes) -> "Future[httpx2.Response]":
        """The application's response, from its own thread."""
        return asyncio.run_coroutine_threadsafe(self._respond(request, content), self._loop)

    async def _respond(self, request: httpx2.Request, content: bytes) -> httpx2.Response:
        inner = httpx2.Request(request.method, request.url, headers=request.headers, content=content)
        response = await httpx2.ASGITransport(self.app).handle_async_request(inner)
        body = await response.aread()
        return httpx2.Response(response.status_code, headers=response.headers, content=body)

    def stop(self) -> None:
        """Finish what was accepted and close the ledger."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_STOP_SECONDS)


def _application(database: str) -> Any:
    settings = _service_module("settings").Settings(database=f"sqlite:///{database}")
    return _service_module("api.app").create_app(settings)


def _own_token(services: Any) -> str:
    """The token of embedded use: the same at every start, since idempotency keys belong to a token."""
    scope = _service_module("auth.scopes").Scope.ADMIN
    request = _service_module("auth.issuer").TokenRequest(frozenset({scope}), description="embedded client")
    key = hashlib.sha256(_ACTOR.encode()).digest()[:16]
    call = _service_module("ledger.ports").IdempotentRequest(_ACTOR, key, key)
    token, _row, _again = services.issuer.create_once(request, call)
    text: str = token.text
    return text


_RUNNING: dict[str, Running] = {}
_GUARD = threading.Lock()


def enter(database: str) -> Running:
    """The service on this file, started if it is not running in this process."""
    with _GUARD:
        running = _RUNNING.get(database)
        if running is None or running.process != os.getpid():
            running = _RUNNING[database] = Running(database)
        running.users += 1
        return running


def leave(running: Running) -> None:
    """One user less; the last one stops it."""
    with _GUARD:
        running.users -= 1
        if running.users == 0 and running.process == os.getpid():
            _RUNNING.pop(running.database, None)
            running.stop()


@atexit.register
def _stop_all() -> None:
    for running in _RUNNING.values():
        # What was answered is on disk; a thread that can no longer start at the very end loses nothing.
        with contextlib.suppress(Exception):
            if running.process == os.getpid():
                running.stop()


def database_path(path: str | os.PathLike[str]) -> str:
    """One name for one file."""
    return str(Path(path).resolve())


class Transport(httpx2.BaseTransport):
    """Hands requests to an embedded service and waits."""

    def __init__(self, running: Running) -> None:
        self._running = running

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        return self._running.respond(request, request.read()).result()


class AsyncTransport(httpx2.AsyncBaseTransport):
    """Hands requests to an embedded service and lets others run meanwhile."""

    def __init__(self, running: Running) -> None:
        self._running = running

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        content = await request.aread()
        return await asyncio.wrap_future(self._running.respond(request, content))
