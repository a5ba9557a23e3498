"""Reads requests and answers them: sessions, queries, forms, templates, tags."""

import hashlib
from typing import Any
from urllib.parse import parse_qs

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from dpledger import __version__
from dpledger.auth.gatekeeper import Caller
from dpledger.auth.scopes import Scope
from dpledger.dashboard.pages import Pages
from dpledger.dashboard.security import COOKIE
from dpledger.dashboard.services import Services
from dpledger.dashboard.verification import Verifier

__all__ = [
    "LARGEST_NUMBER",
    "caller_of",
    "compute_tag",
    "not_modified",
    "page_response",
    "problem_page",
    "read_form",
    "read_number",
    "read_text",
    "render",
    "scheme_of",
    "services_of",
    "verifier_of",
]

_LONGEST_FORM_BYTES = 4096
_MOST_FIELDS = 64
_LONGEST_TEXT = 200
LARGEST_NUMBER = 10**15


def services_of(request: Request) -> Services:
    """The parts of the running service."""
    services: Services = request.app.state.services()
    return services


def verifier_of(request: Request) -> Verifier:
    """What verifies ledgers in the background."""
    verifier: Verifier = request.app.state.verifier
    return verifier


def render(request: Request, template: str, caller: Caller | None, **values: Any) -> str:
    """A page as text, with what every page shows."""
    pages: Pages = request.app.state.pages
    root = request.scope["root_path"]
    origin = f"{scheme_of(request)}://{request.url.netloc}"
    own = {"root": root, "origin": origin, "caller": caller, "is_admin": _is_admin(caller)}
    return pages.render(template, **own, version=__version__, **values)


def _is_admin(caller: Caller | None) -> bool:
    """Whether a session may change anything, and is shown the forms for it."""
    return caller is not None and Scope.ADMIN in caller.scopes


def scheme_of(request: Request) -> str:
    """How the browser came here; a proxy in front says so, and a caller who lies deceives only himself."""
    return "https" if request.headers.get("x-forwarded-proto") == "https" else request.url.scheme


def caller_of(request: Request) -> Caller:
    """Whose session this is; the token behind it is looked at anew."""
    caller = services_of(request).sessions.caller(request.cookies.get(COOKIE))
    caller.require(Scope.READ)
    name = request.path_params.get("dataset")
    if name is not None:
        caller.require_dataset(name)
    return caller


def read_text(request: Request, name: str) -> str | None:
    """A text of the query; empty is absent. Spaces stay: a name may begin or end with one."""
    text = request.query_params.get(name, "")
    if len(text) > _LONGEST_TEXT or not text.isprintable():
        raise HTTPException(400, f"{name} must be at most {_LONGEST_TEXT} printable characters")
    return text or None


def read_number(request: Request, name: str, absent: int) -> int:
    """A number of the query."""
    text = request.query_params.get(name)
    if text is None:
        return absent
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= LARGEST_NUMBER):
        raise HTTPException(400, f"{name} must be a number")
    return int(text)


def not_modified(request: Request, tag: str) -> Response | None:
    """304 where the browser has the page that this tag stands for."""
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers={"ETag": tag})
    return None


def compute_tag(*parts: object) -> str:
    """An ETag of everything that a page is made from."""
    return f'"{hashlib.sha256(repr((__version__, *parts)).encode()).hexdigest()[:32]}"'


def page_response(request: Request, tag: str, template: str, caller: Caller, **values: Any) -> Response:
    """A page with its ETag."""
    return HTMLResponse(render(request, template, caller, tag=tag, **values), headers={"ETag": tag})


async def read_form(request: Request, most_bytes: int = _LONGEST_FORM_BYTES) -> dict[str, str]:
    """The fields of a form, of one that came twice the last."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > most_bytes:
            raise HTTPException(413, "the form is too large")
    try:
        found = parse_qs(body.decode("utf-8", "replace"), max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise HTTPException(400, f"the form may hold {_MOST_FIELDS} fields") from None
    return {name: values[-1] for name, values in found.items()}


def problem_page(request: Request, status: int, title: str, detail: str) -> Response:
    """What went wrong, on a page."""
    return HTMLResponse(
        render(request, "problem.html", None, status=status, title=title, detail=detail), status
    )
