"""Protects the pages: sessions, forms, and what a browser may load."""

from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dpledger.auth.errors import Forbidden

__all__ = ["COOKIE", "HEADERS", "LOGIN_COOKIE", "SafeHeaders", "check_same_origin"]

COOKIE = "dpledger_session"
LOGIN_COOKIE = "dpledger_login"
"""A login at an issuer that was begun and not ended yet."""
HEADERS = {
    # Scripts, styles and data come from this server alone, and nothing inline runs.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class SafeHeaders:
    """Puts the protecting headers on every answer; a page that says nothing else is not stored."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await self._app(scope, receive, send_safely)


def check_same_origin(request: Request) -> None:
    """Refuse a form that another site sent, or of which nobody says where it came from.

    Browsers say it themselves, and a page cannot make them lie: ``Sec-Fetch-Site`` where the
    connection is trusted, ``Origin`` with every POST.
    """
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    if site is not None:
        good = site == "same-origin"
    else:
        good = origin is not None and urlsplit(origin).netloc == request.headers.get("host")
    if not good:
        raise Forbidden("this form must be sent from the dashboard's own pages")
