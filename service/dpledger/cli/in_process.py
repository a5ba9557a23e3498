"""The service's own application for one request, without a socket."""

import asyncio

import httpx2

from dpledger.api.app import create_app
from dpledger.cli.databases import one_line_failures
from dpledger.settings import Settings

__all__ = ["InProcess"]


class InProcess(httpx2.BaseTransport):
    """Starts the application for one request and stops it when that is answered."""

    def __init__(self, settings: Settings) -> None:
        self._app = create_app(settings)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """The application's response."""
        with one_line_failures():
            return asyncio.run(self._respond(request.method, request.url, request.headers, request.read()))

    async def _respond(
        self, method: str, url: httpx2.URL, headers: httpx2.Headers, content: bytes
    ) -> httpx2.Response:
        async with self._app.router.lifespan_context(self._app):
            inner = httpx2.Request(method, url, headers=headers, content=content)
            response = await httpx2.ASGITransport(self._app).handle_async_request(inner)
            body = await response.aread()
            return httpx2.Response(response.status_code, headers=response.headers, content=body)
