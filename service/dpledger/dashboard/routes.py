"""The dashboard's pages. Each first asks whose session it is; reading is all that a page can do."""

import hashlib
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlencode

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from dpledger import __version__
from dpledger.auth.errors import AuthError, Unauthenticated
from dpledger.auth.federation import LOGIN_SECONDS
from dpledger.auth.gatekeeper import Caller
from dpledger.auth.scopes import Scope
from dpledger.dashboard.assets import ASSETS, asset_response
from dpledger.dashboard.pages import Pages
from dpledger.dashboard.report import verification_of
from dpledger.dashboard.security import COOKIE, LOGIN_COOKIE, check_same_origin
from dpledger.dashboard.services import Services
from dpledger.dashboard.verification import Verifier
from dpledger.dashboard.views import MOST_SPENDERS, EntryQuery, dataset_page, datasets_page, run_page
from dpledger.ledger.errors import Unavailable
from dpledger.ledger.model.entries import EntryKind
from dpledger.ledger.report import MOST_ROWS, report_document
from dpledger.storage.read_models.dashboard import Cursor, reader
from dpledger.storage.read_models.fractions import WHOLE

if TYPE_CHECKING:
    from dpledger.auth.sign_on import SignOn

__all__ = ["ROUTES", "login_page", "problem_page"]

_LONGEST_FORM_BYTES = 4096
_LONGEST_TEXT = 200
_LARGEST_NUMBER = 10**15
_HOUR_US = 3_600_000_000


def _services(request: Request) -> Services:
    services: Services = request.app.state.services()
    return services


def _verifier(request: Request) -> Verifier:
    verifier: Verifier = request.app.state.verifier
    return verifier


def _render(request: Request, template: str, caller: Caller | None, **values: Any) -> str:
    pages: Pages = request.app.state.pages
    root = request.scope["root_path"]
    origin = f"{_scheme(request)}://{request.url.netloc}"
    return pages.render(template, root=root, origin=origin, caller=caller, version=__version__, **values)


def _scheme(request: Request) -> str:
    """How the browser came here; a proxy in front says so, and a caller who lies deceives only himself."""
    return "https" if request.headers.get("x-forwarded-proto") == "https" else request.url.scheme


def _caller(request: Request) -> Caller:
    """Whose session this is; the token behind it is looked at anew."""
    caller = _services(request).sessions.caller(request.cookies.get(COOKIE))
    caller.require(Scope.READ)
    name = request.path_params.get("dataset")
    if name is not None:
        caller.require_dataset(name)
    return caller


def _text(request: Request, name: str) -> str | None:
    """A text of the query; empty is absent. Spaces stay: a name may begin or end with one."""
    text = request.query_params.get(name, "")
    if len(text) > _LONGEST_TEXT or not text.isprintable():
        raise HTTPException(400, f"{name} must be at most {_LONGEST_TEXT} printable characters")
    return text or None


def _number(request: Request, name: str, absent: int) -> int:
    """A number of the query."""
    text = request.query_params.get(name)
    if text is None:
        return absent
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= _LARGEST_NUMBER):
        raise HTTPException(400, f"{name} must be a number")
    return int(text)


def _place(request: Request) -> Cursor | None:
    """Where the page before ended."""
    text = _text(request, "after")
    if text is None:
        return None
    left, tilde, name = text.partition("~")
    if not (tilde and left.isascii() and left.isdigit() and len(left) < 6 and int(left) <= WHOLE):
        raise HTTPException(400, "after must be the link of an earlier page")
    return Cursor(int(left), name)


def _not_modified(request: Request, tag: str) -> Response | None:
    """304 where the browser has the page that this tag stands for."""
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers={"ETag": tag})
    return None


def _tag(*parts: object) -> str:
    return f'"{hashlib.sha256(repr((__version__, *parts)).encode()).hexdigest()[:32]}"'


def _page(request: Request, tag: str, template: str, caller: Caller, **values: Any) -> Response:
    return HTMLResponse(_render(request, template, caller, tag=tag, **values), headers={"ETag": tag})


def get_datasets(request: Request) -> Response:
    """All datasets, the most urgent first."""
    caller = _caller(request)
    after, search = _place(request), (_text(request, "search") or "").strip() or None
    with reader(_services(request).storage.database) as reading:
        page = datasets_page(reading, caller.datasets, after, search)
    tag = _tag(page, caller.id)
    shown = {"page": page, "search": search or "", "after": after}
    return _not_modified(request, tag) or _page(request, tag, "datasets.html", caller, **shown)


def get_dataset(request: Request) -> Response:
    """One dataset."""
    caller, name = _caller(request), request.path_params["dataset"]
    kind = _text(request, "kind")
    if kind is not None and kind not in {each.value for each in EntryKind}:
        raise HTTPException(400, "kind must be a kind of entry")
    query = EntryQuery(
        kind,
        _text(request, "run"),
        _text(request, "partition"),
        _number(request, "before", 0),
        _text(request, "allocation"),
    )
    after, behind = _number(request, "partitions", -1), _number(request, "allocations", 0)
    services, verdict = _services(request), _verifier(request).last(name)
    now_us = services.clock.now_us()
    with reader(services.storage.database) as reading:
        tag = _tag(reading.position(name), verdict, caller.id, str(request.url.query), now_us // _HOUR_US)
        unchanged = _not_modified(request, tag)
        if unchanged is not None:
            return unchanged
        page = dataset_page(reading, name, query, after, now_us, behind)
    shown = {"page": page, "query": query, "more": _more(query), "verdict": verdict}
    limits = {"kinds": [each.value for each in EntryKind], "most_spenders": MOST_SPENDERS}
    return _page(request, tag, "dataset.html", caller, **shown, **limits)


def _more(query: EntryQuery) -> str:
    """The filters as they stand in the link to the next page."""
    named = {
        "kind": query.kind,
        "run": query.run,
        "partition": query.partition,
        "allocation": query.allocation,
    }
    return urlencode({name: value for name, value in named.items() if value})


def get_report(request: Request) -> Response:
    """A dataset's report; what replaying found is of the last time that somebody asked for it."""
    caller, name = _caller(request), request.path_params["dataset"]
    services, verdict = _services(request), _verifier(request).last(name)
    rows, now_us = services.storage.report(name, MOST_ROWS), services.clock.now_us()
    report = report_document(rows, now_us, verification_of(name, verdict))
    return HTMLResponse(_render(request, "report.html", caller, report=report))


def get_run(request: Request) -> Response:
    """One run of a dataset."""
    caller, name = _caller(request), request.path_params["dataset"]
    run, before = _text(request, "name") or "", _number(request, "before", 0)
    with reader(_services(request).storage.database) as reading:
        tag = _tag(reading.position(name), caller.id, str(request.url.query))
        unchanged = _not_modified(request, tag)
        if unchanged is not None:
            return unchanged
        page = run_page(reading, name, run, before)
    return _page(request, tag, "run.html", caller, page=page)


def get_entry(request: Request) -> Response:
    """One entry with everything that it records."""
    caller, name = _caller(request), request.path_params["dataset"]
    services, sequence = _services(request), request.path_params["sequence"]
    if sequence > _LARGEST_NUMBER:
        raise HTTPException(404, "there is no such entry")
    entry = services.reader.entry(name, sequence)
    with reader(services.storage.database) as reading:
        is_last = reading.position(name).sequence == sequence
    return HTMLResponse(_render(request, "entry.html", caller, dataset=name, entry=entry, is_last=is_last))


def post_verification(request: Request) -> Response:
    """Begin to verify a ledger; the page shows how it goes."""
    check_same_origin(request)
    _caller(request)
    services, name = _services(request), request.path_params["dataset"]
    services.storage.dataset(name)
    if not _verifier(request).start(name, services.reader, services.clock):
        raise HTTPException(409, "another verification is running; ask again when it has finished")
    return RedirectResponse(f"{request.scope['root_path']}/datasets/{name}#chain", 303)


def login_page(request: Request) -> Response:
    """The form that asks for a token."""
    return _login_form(request, request.query_params.get("next", ""))


def _login_form(request: Request, wanted: str, problem: str | None = None, status: int = 401) -> Response:
    status = 200 if problem is None else status
    own, sign_on = _own_path(request, wanted), _services(request).sign_on
    shown = {"problem": problem, "wanted": own, "sign_on": sign_on and urlencode({"next": own})}
    return HTMLResponse(_render(request, "login.html", None, **shown), status)


def _own_path(request: Request, path: str) -> str:
    """A path of the dashboard to go on to; its first page for anything else."""
    root = f"{request.scope['root_path']}/"
    return path if path.startswith(root) and path.isprintable() and "\\" not in path else root


async def post_login(request: Request) -> Response:
    """Take a token, once, and give a session for it."""
    check_same_origin(request)
    form = await _form(request)
    return await run_in_threadpool(_log_in, request, form.get("token", "").strip(), form.get("next", ""))


async def _form(request: Request) -> dict[str, str]:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _LONGEST_FORM_BYTES:
            raise HTTPException(413, "the form is too large")
    return {name: values[-1] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}


def _log_in(request: Request, token: str, wanted: str) -> Response:
    services = _services(request)
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
    session = _services(request).sessions.open(token_id)
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
        page = _render(request, "signed_on.html", None, wanted=_own_path(request, ended.wanted))
        response = _with_session(request, HTMLResponse(page), ended.token_id)
    response.delete_cookie(LOGIN_COOKIE, **_login_cookie(request))
    return response


def _sign_on(request: Request) -> "SignOn":
    sign_on = _services(request).sign_on
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
        "secure": _scheme(request) == "https",
    }


def post_logout(request: Request) -> Response:
    """End the session, for every copy of its cookie and at every replica, then forget the cookie."""
    check_same_origin(request)
    _services(request).sessions.end(request.cookies.get(COOKIE))
    response = RedirectResponse(f"{request.scope['root_path']}/login", 303)
    response.delete_cookie(COOKIE, **_cookie(request))
    return response


def get_asset(request: Request) -> Response:
    """A file that pages load."""
    asset = ASSETS.get(request.path_params["file"])
    if asset is None:
        raise HTTPException(404, "there is no such file")
    return asset_response(request, asset)


def problem_page(request: Request, status: int, title: str, detail: str) -> Response:
    """What went wrong, on a page."""
    return HTMLResponse(
        _render(request, "problem.html", None, status=status, title=title, detail=detail), status
    )


ROUTES = [
    Route("/", get_datasets),
    Route("/login", login_page),
    Route("/login", post_login, methods=["POST"]),
    Route("/login/sso", begin_sign_on),
    Route("/login/sso/callback", end_sign_on),
    Route("/logout", post_logout, methods=["POST"]),
    Route("/datasets/{dataset}", get_dataset),
    Route("/datasets/{dataset}/report", get_report),
    Route("/datasets/{dataset}/run", get_run),
    Route("/datasets/{dataset}/entries/{sequence:int}", get_entry),
    Route("/datasets/{dataset}/verification", post_verification, methods=["POST"]),
    Route("/static/{file}", get_asset),
]
