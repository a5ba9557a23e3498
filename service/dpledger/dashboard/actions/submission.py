"""A form that an admin sent: whose it is, whether it was reviewed, and under which key it is done."""

import hashlib
import json
import secrets
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from dpledger.accounting.errors import AccountingError
from dpledger.auth.gatekeeper import Caller
from dpledger.auth.scopes import Scope
from dpledger.dashboard.http import caller_of, read_form, render, services_of
from dpledger.dashboard.security import check_same_origin
from dpledger.dashboard.services import Services
from dpledger.ledger.errors import (
    KeyReused,
    LedgerError,
    NotFound,
    PreconditionFailed,
    TokenEnded,
    Unavailable,
)
from dpledger.ledger.ports import IdempotentRequest
from dpledger.ledger.results import Result, StoredResult

__all__ = ["Review", "Submission", "admin_of", "form_page", "post", "sequence_of", "status_of"]

_LONGEST_FORM_BYTES = 64 * 1024
_KEY_BYTES = 16
_HASH_BYTES = 16
_CONFIRMED = "confirm"


@dataclass(frozen=True)
class Review:
    """What a change would lead to, before anybody confirms it.

    ``rows`` are what it is about, now and afterwards.
    """

    title: str
    sentences: tuple[str, ...]
    rows: tuple[tuple[str, str, str], ...]
    button: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Submission:
    """A form that was sent, by an admin and from a page of ours."""

    request: Request
    caller: Caller
    fields: dict[str, str]

    @property
    def services(self) -> Services:
        """The parts of the running service."""
        return services_of(self.request)

    @property
    def is_confirmed(self) -> bool:
        """Whether what it leads to was shown before."""
        return self.fields.get("stage") == _CONFIRMED

    def call(self, content: dict[str, Any]) -> IdempotentRequest:
        """Who asks, under the form's own key, for what."""
        key = self.fields.get("key", "")
        if len(key) != 2 * _KEY_BYTES or not key.isascii() or not key.isalnum():
            raise HTTPException(400, "the form must be sent from its own page")
        asked = json.dumps(content, sort_keys=True, separators=(",", ":"))
        hashes = [f"{self.request.url.path}\0{key}", asked]
        return IdempotentRequest(self.caller.id, *[_hash(each) for each in hashes])

    @property
    def unrecorded(self) -> IdempotentRequest:
        """Who asks for a preview, of which nothing is kept."""
        return IdempotentRequest(self.caller.id, b"", b"")

    def redirect(self, path: str) -> Response:
        """Go on to a page of the dashboard, which a reload reads and does not send again."""
        return RedirectResponse(f"{self.request.scope['root_path']}{path}", 303)

    def review_page(self, review: Review, back: str, **more: str) -> Response:
        """What it would lead to, with the form to confirm it; ``more`` are fields beside those sent."""
        kept = {name: value for name, value in self.fields.items() if name not in ("stage", "key")}
        hidden = {**kept, **more, "stage": _CONFIRMED, "key": secrets.token_hex(_KEY_BYTES)}
        shown = {"review": review, "hidden": hidden, "action": self.request.url.path, "back": back}
        return HTMLResponse(render(self.request, "review.html", self.caller, **shown))


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:_HASH_BYTES]


def admin_of(request: Request) -> Caller:
    """Whose session this is, if it has the scope admin; the token behind it is looked at anew."""
    caller = caller_of(request)
    caller.require(Scope.ADMIN)
    return caller


def form_page(
    request: Request, caller: Caller, template: str, problem: Exception | None, **values: Any
) -> Response:
    """The page with a form; with what was wrong, if it was sent before."""
    status = 200 if problem is None else status_of(problem)
    said = "" if problem is None else f"{problem}."
    return HTMLResponse(render(request, template, caller, problem=said, **values), status)


def post(
    work: Callable[[Submission], Response], refuse: Callable[[Submission, Exception], Response]
) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    """An endpoint that takes a form; ``refuse`` shows it again with what was wrong."""

    def answer(request: Request, fields: dict[str, str]) -> Response:
        submission = Submission(request, admin_of(request), fields)
        try:
            return work(submission)
        except (NotFound, Unavailable, TokenEnded):
            raise
        except (AccountingError, LedgerError) as error:
            return refuse(submission, error)

    async def endpoint(request: Request) -> Response:
        check_same_origin(request)
        fields = await read_form(request, _LONGEST_FORM_BYTES)
        return await services_of(request).write(answer, request, fields)

    return endpoint


def status_of(error: Exception) -> int:
    """The status that the API gives to the same error."""
    if isinstance(error, PreconditionFailed):
        return 412
    return 422 if isinstance(error, (AccountingError, KeyReused)) else 409


def sequence_of(result: Result) -> int:
    """The entry that records a change, also where it is answered again from what was kept."""
    if isinstance(result, StoredResult):
        return int(json.loads(result.body)["sequence"])
    entry = getattr(result, "entry", None)
    return int(getattr(result, "sequence", 0) if entry is None else entry.sequence)
