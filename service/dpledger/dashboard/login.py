"""Logging in, by a token or at an issuer, and out."""

from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from dpledger.auth.errors import AuthError, Unauthenticated
from dpledger.auth.federation import LOGIN_SECONDS
from dpledger.auth.scopes import Scope
from dpledger.dashboard.http import read_form, render, scheme_of, services_of
from dpledger.dashboard.security import COOKIE, LOGIN_COOKIE, check_same_origin
from dpledger.ledger.errors import Unavailable

if TYPE_CHECKING:
    from dpledger.auth.sign_on import SignOn

__all__ = ["begin_sign_on", "end_sign_on", "login_page", "post_login", "post_logout"]


def login_page(request: Request) -> Response:
    """The form that asks for a token."""
    return _login_form(request, request.query_params.get("next", ""))


def _login_form(request: Request, wanted: str, problem: str | None = None, status: int = 401) -> Response:
    status = 200 if problem is None else status
    own, sign_on = _own_path(request, wanted), services_of(request).sign_on
    shown = {"problem": problem, "wanted": own, "sign_on": sign_on and urlencode({"next": own})}
    return HTMLResponse(render(request, "login.html", None, **shown), status)


def _own_path(request: Request, path: str) -> str:
    """A path of the dashboard to go on to; its first page for anything else."""
    root = f"{request.scope['root_path']}/"
    return path if path.startswith(root) and path.isprintable() and "\\" not in path else root


async def post_login(request: Request) -> Response:
    """Take a token, once, and give a session for it."""
    check_same_origin(request)
    form = await read_form(request)
    return await run_in_threadpool(_log_in, request, form.get("token", "").strip(), form.get("next", ""))


def _log_in(request: Request, token: str, wanted: str) -> Response:
    services = services_of(request)
    try:
        caller = services.gatekeeper.caller_now(f"Bearer {token}")
        caller.require(Scope.READ)
    except Unauthenticated:
        problem = "This is not a valid token. It may have been revoked or have expired."
        return _login_form(request, wanted, problem)
    except AuthError as error:
        return _login_form(request, wanted, f"{error}.")
    return _with_session(request, RedirectResponse(_own_path(request, wanted), 303), caller.id)


def _with_session(request: Request, response: Response, token_id: str) -> Response:
    session = services_of(request).sessions.open(token_id)
    response.set_cookie(COOKIE, session.value, max_age=session.seconds, **_cookie(request))
    return response


def begin_sign_on(request: Request) -> Response:
    """Send the browser to the issuer, with a cookie by which it is known when it comes back."""
    wanted = request.query_params.get("next", "")
    try:
        begun = _sign_on(request).begin(_own_path(request, wanted))
    except Unavailable as error:
        return _login_form(request, wanted, f"{error}.", 503)
    response = RedirectResponse(begun.url, 303)
    response.set_cookie(LOGIN_COOKIE, begun.cookie, max_age=LOGIN_SECONDS, **_login_cookie(request))
    return response


def end_sign_on(request: Request) -> Response:
    """Open a session for whom the issuer vouches for.

    A page and no redirection: the session's cookie does not travel with what another site began, and
    the step from this page to the next one is the first that does not count as such.
    """
    try:
        ended = _sign_on(request).end(request.cookies.get(LOGIN_COOKIE), request.query_params)
    except Unauthenticated:
        response = _login_form(request, "", "The login was not completed. Begin it again.")
    except Unavailable as error:
        response = _login_form(request, "", f"{error}.", 503)
    except AuthError as error:
        response = _login_form(request, "", f"{error}.", 403)
    else:
        page = render(request, "signed_on.html", None, wanted=_own_path(request, ended.wanted))
        response = _with_session(request, HTMLResponse(page), ended.token_id)
    response.delete_cookie(LOGIN_COOKIE, **_login_cookie(request))
    return response


def _sign_on(request: Request) -> "SignOn":
    sign_on = services_of(request).sign_on
    if sign_on is None:
        raise HTTPException(404, "there is no single sign-on here")
    return sign_on


def _login_cookie(request: Request) -> dict[str, Any]:
    """The issuer's site begins the way back, which a strict cookie would not go along with."""
    return {**_cookie(request), "path": f"{request.scope['root_path']}/login/sso", "samesite": "lax"}


def _cookie(request: Request) -> dict[str, Any]:
    return {
        "path": request.scope["root_path"],
        "httponly": True,
        "samesite": "strict",
        "secure": scheme_of(request) == "https",
    }


def post_logout(request: Request) -> Response:
    """End the session, for every copy of its cookie and at every replica, then forget the cookie."""
    check_same_origin(request)
    services_of(request).sessions.end(request.cookies.get(COOKIE))
    response = RedirectResponse(f"{request.scope['root_path']}/login", 303)
    response.delete_cookie(COOKIE, **_cookie(request))
    return response
