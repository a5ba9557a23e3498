"""Sets, changes and removes quotas of teams."""

from starlette.requests import Request
from starlette.responses import Response

from dpledger.auth.gatekeeper import Caller
from dpledger.dashboard import formatting as wording
from dpledger.dashboard.actions.fields import (
    Fields,
    read_part,
    read_reason,
    read_seconds,
    read_team,
)
from dpledger.dashboard.actions.submission import (
    Review,
    Submission,
    admin_of,
    form_page,
    post,
    sequence_of,
)
from dpledger.dashboard.http import read_text, services_of
from dpledger.ledger.model.requests import NewQuota
from dpledger.ledger.results import QuotaChange

__all__ = ["get_quota", "post_quota"]

_REMOVE = "remove"


def get_quota(request: Request) -> Response:
    """The form that sets a quota, or changes or removes the one that its address names."""
    caller = admin_of(request)
    named = {name: read_text(request, name) or "" for name in ("team", "window", "window_unit", "percent")}
    return _page(request, caller, named, None)


def _change(submission: Submission) -> Response:
    services, dataset = submission.services, submission.request.path_params["dataset"]
    asked = _read(submission.fields)
    if submission.is_confirmed:
        change = services.metrics.count_outcomes(services.ledger.change_quota)
        call = submission.call(vars(asked))
        return submission.redirect(f"/datasets/{dataset}/entries/{sequence_of(change(dataset, asked, call))}")
    preview = services.preview.change_quota(dataset, asked, submission.unrecorded)
    assert isinstance(preview, QuotaChange), "a preview looks no key up"
    return submission.review_page(_review(preview, asked), f"/datasets/{dataset}#teams")


def _refuse(submission: Submission, problem: Exception) -> Response:
    return _page(submission.request, submission.caller, submission.fields, problem)


post_quota = post(_change, _refuse)


def _read(fields: Fields) -> NewQuota:
    part = None if fields.get("change") == _REMOVE else read_part(fields, "percent")
    return NewQuota(read_team(fields), part, read_seconds(fields, "window"), read_reason(fields))


def _page(request: Request, caller: Caller, fields: Fields, problem: Exception | None) -> Response:
    dataset = request.path_params["dataset"]
    state = services_of(request).storage.dataset(dataset).state
    return form_page(request, caller, "quota.html", problem, state=state, fields=fields)


def _review(preview: QuotaChange, asked: NewQuota) -> Review:
    removing = preview.quota is None
    verb = "Remove" if removing else "Set"
    said = (_review_removal if removing else _review_setting)(preview, asked)
    closing = "A quota limits use. What is proven of the outputs is the dataset's budget alone."
    title = f"{verb} the quota of team {asked.team} on {preview.dataset}"
    rows = (*said[1], ("Reason", "", asked.reason))
    return Review(title, (said[0], closing), rows, f"{verb} the quota")


_Rows = tuple[tuple[str, str, str], ...]


def _review_removal(_preview: QuotaChange, asked: NewQuota) -> tuple[str, _Rows]:
    window = wording.window_text(asked.window_seconds)
    sentence = (
        f"Team {asked.team} is no longer limited to a part of the budget {window}. The budget, and other "
        "quotas of the team, go on to decide what it may spend."
    )
    return sentence, (("Quota", f"team {asked.team}, {window}", "none"),)


def _review_setting(preview: QuotaChange, asked: NewQuota) -> tuple[str, _Rows]:
    quota, window = preview.quota, wording.window_text(asked.window_seconds)
    assert quota is not None, "it is set"
    part = wording.part_percent(quota.fraction)
    is_new = quota.sequence == preview.entry.sequence
    sentence = (
        f"The tokens of team {asked.team} may together use at most {part} of the budget {window}, from the "
        "entry that records this on. What was granted before does not count."
        if is_new
        else f"The quota of team {asked.team} {window} becomes {part} of the budget. What counts since entry "
        f"{quota.sequence} goes on to count."
    )
    left = wording.left_percent(quota.at(preview.entry.at_us).left(preview.budget))
    return sentence, (("Quota", "", f"{part} {window}"), ("Left of the budget within it", "", left))
