"""Lists, makes and revokes tokens; for admins whose token reaches every dataset.

A secret is shown in the answer to the form that made it, and nowhere else: no address, log or store holds it.
A repeat of that form, as a double click is one, is answered the same for a short while.
"""

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from dpledger.accounting.errors import InvalidInput
from dpledger.auth.gatekeeper import Caller
from dpledger.auth.issuer import TokenRequest
from dpledger.auth.scopes import Scope
from dpledger.dashboard import formatting as wording
from dpledger.dashboard.actions.fields import (
    Fields,
    read_datasets,
    read_prose,
    read_seconds,
    read_team,
)
from dpledger.dashboard.actions.submission import Review, Submission, admin_of, form_page, post
from dpledger.dashboard.http import read_text, render, services_of
from dpledger.logs import log_event
from dpledger.storage.repositories.tokens import TokenRow

__all__ = ["get_new_token", "get_revocation", "get_tokens", "post_revocation", "post_token"]

_ROWS = 50
_SHOWN_AGAIN_US = 120_000_000
_WORDS = {
    Scope.READ: "It reads budgets, entries, runs and costs.",
    Scope.SPEND: "It spends: it authorizes, reserves and settles, and reads.",
    Scope.ADMIN: "It may do everything: open datasets, change budgets, make and revoke tokens.",
}


def _admin_of_all(request: Request) -> Caller:
    caller = admin_of(request)
    caller.require_all_datasets()
    return caller


def get_tokens(request: Request) -> Response:
    """Tokens by id, revoked ones included, without their secrets."""
    caller, services = _admin_of_all(request), services_of(request)
    after = read_text(request, "after") or ""
    found = list(services.tokens.list(after, _ROWS + 1))
    shown = {"tokens": found[:_ROWS], "next": found[_ROWS - 1].id if len(found) > _ROWS else None}
    values = {**shown, "after": after, "now_us": services.clock.now_us()}
    return HTMLResponse(render(request, "tokens.html", caller, **values))


def get_new_token(request: Request) -> Response:
    """The form that makes a token."""
    return form_page(request, _admin_of_all(request), "token.html", None, fields={})


def _make(submission: Submission) -> Response:
    submission.caller.require_all_datasets()
    asked = _read(submission.fields)
    if submission.is_confirmed:
        return _made(submission, asked)
    return submission.review_page(_review_making(asked, submission.fields), "/tokens")


def _made(submission: Submission, asked: TokenRequest) -> Response:
    services = submission.services
    content = {
        "scopes": sorted(each.value for each in asked.scopes),
        "datasets": None if asked.datasets is None else sorted(asked.datasets),
        "description": asked.description,
        "expires_in_us": asked.expires_in_us,
        "team": asked.team,
    }
    call = submission.call(content)
    token, row, replayed = services.issuer.create_once(asked, call)
    log_event("token created", token=row.id, by=call.actor, again=replayed)
    is_recent = services.clock.now_us() - row.created_at_us < _SHOWN_AGAIN_US
    shown = {"row": row, "secret": token.text if is_recent else None}
    return HTMLResponse(render(submission.request, "token_made.html", submission.caller, **shown))


def _refuse(submission: Submission, problem: Exception) -> Response:
    submission.caller.require_all_datasets()
    return form_page(submission.request, submission.caller, "token.html", problem, fields=submission.fields)


post_token = post(_make, _refuse)


def _read(fields: Fields) -> TokenRequest:
    scopes = {each.value: each for each in Scope}
    scope = scopes.get(fields.get("scope", ""))
    if scope is None:
        raise InvalidInput("scope", f"one of {', '.join(scopes)}", fields.get("scope", "")[:200])
    seconds = read_seconds(fields, "expires")
    return TokenRequest(
        frozenset({scope}),
        read_datasets(fields, "datasets"),
        read_prose(fields, "description"),
        None if seconds is None else seconds * 1_000_000,
        read_team(fields) if fields.get("team", "").strip() else None,
    )


def _review_making(asked: TokenRequest, fields: Fields) -> Review:
    (scope,) = asked.scopes
    named = "all datasets" if asked.datasets is None else ", ".join(sorted(asked.datasets))
    lasts = "until it is revoked"
    if asked.expires_in_us is not None:
        lasts = f"for {fields['expires'].strip()} {fields.get('expires_unit', 'days')}"
    sentences = [
        _WORDS[scope],
        "Its secret is shown once, on the next page, and is stored nowhere: have a place for it ready.",
    ]
    rows = [("Scope", "", scope.value), ("Reaches", "", named), ("Lasts", "", lasts)]
    rows += [("Team", "", asked.team)] if asked.team is not None else []
    rows += [("Description", "", asked.description)] if asked.description else []
    return Review("Make a token", tuple(sentences), tuple(rows), "Make the token")


def get_revocation(request: Request) -> Response:
    """What revoking a token would end, with the form to confirm it."""
    caller = _admin_of_all(request)
    row = services_of(request).tokens.get(request.path_params["token"])
    return Submission(request, caller, {}).review_page(_review_end(row, caller), "/tokens")


def _revoke(submission: Submission) -> Response:
    submission.caller.require_all_datasets()
    token = submission.request.path_params["token"]
    if not submission.is_confirmed:
        return get_revocation(submission.request)
    submission.services.gatekeeper.revoke(token)
    log_event("token revoked", token=token)
    return submission.redirect("/tokens")


def _refuse_to_revoke(_submission: Submission, problem: Exception) -> Response:
    raise problem


post_revocation = post(_revoke, _refuse_to_revoke)


def _review_end(row: TokenRow, caller: Caller) -> Review:
    sentences = ["It decides nothing from now on, and reads nothing after two seconds. No token comes back."]
    if row.id == caller.id:
        sentences.append("It is the token of this session: you will be logged out.")
    sentences.append("What it holds by open reservations stays held until an admin settles it or it expires.")
    rows = [("Token", row.id, "revoked"), ("Scope", ", ".join(row.scopes), "")]
    rows += [("Description", row.description, "")] if row.description else []
    rows.append(("Made", f"{wording.minute_text(row.created_at_us)} UTC", ""))
    return Review(f"Revoke token {row.id[:8]}…", tuple(sentences), tuple(rows), "Revoke the token")
