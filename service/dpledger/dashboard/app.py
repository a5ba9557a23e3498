"""The dashboard as an application of its own, to be mounted beside the API."""

import logging
from collections.abc import Callable
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dpledger.auth.errors import Forbidden, Unauthenticated
from dpledger.dashboard.http import problem_page
from dpledger.dashboard.pages import Pages
from dpledger.dashboard.routes import ROUTES
from dpledger.dashboard.security import SafeHeaders
from dpledger.dashboard.services import Services
from dpledger.dashboard.verification import Verifier
from dpledger.ledger.errors import LedgerError, NotFound, ReservationClosed, TokenEnded, Unavailable

__all__ = ["create_dashboard"]

logger = logging.getLogger(__name__)
Handler = Callable[[Request, Exception], Response]


def create_dashboard(services: Callable[[], Services]) -> Starlette:
    """Build the application; ``services`` is asked with each request, when the service has started."""
    app = Starlette(
        routes=ROUTES,
        middleware=[Middleware(SafeHeaders), Middleware(FaultPages)],
        exception_handlers={
            Unauthenticated: _to_login,
            TokenEnded: _to_login,
            Forbidden: _make_handler(403, "This token does not reach that far"),
            ReservationClosed: _make_handler(409, "This reservation is closed"),
            NotFound: _make_handler(404, "Not found"),
            Unavailable: _make_handler(503, "The database does not answer"),
            LedgerError: _make_handler(409, "The ledger refuses this"),
            HTTPException: _error_page,
        },
    )
    app.state.services = services
    app.state.verifier = Verifier()
    app.state.pages = Pages()
    return app


class FaultPages:
    """Shows a failure that nobody foresaw as a page, and tells the log why.

    Starlette's own way would answer outside of the protecting headers and cut the connection.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        started = False

        async def send_and_note(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        except Exception:
            if started:
                raise
            logger.exception("unexpected error")
            page = problem_page(
                Request(scope), 500, "Something went wrong here", "The service's log says what."
            )
            await page(scope, receive, send)


def _to_login(request: Request, _error: Exception) -> Response:
    root = request.scope["root_path"]
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    query = urlencode({"next": wanted}) if request.method == "GET" and wanted != f"{root}/" else ""
    return RedirectResponse(f"{root}/login{f'?{query}' if query else ''}", 303)


def _make_handler(status: int, title: str) -> Handler:
    def handle(request: Request, error: Exception) -> Response:
        response = problem_page(request, status, title, f"{error}.")
        if isinstance(error, Unavailable):
            response.headers["Retry-After"] = str(error.retry_after_seconds)
        return response

    return handle


def _error_page(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    title = "Not found" if error.status_code == 404 else "This request cannot be answered"
    response = problem_page(request, error.status_code, title, f"{error.detail}.")
    response.headers.update(error.headers or {})
    return response
