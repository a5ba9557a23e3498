"""Settles a reservation for a job that is gone."""

from starlette.requests import Request
from starlette.responses import Response

from dpledger.auth.gatekeeper import Caller
from dpledger.dashboard import formatting as wording
from dpledger.dashboard.actions.fields import Fields, read_count, read_prose
from dpledger.dashboard.actions.submission import (
    Review,
    Submission,
    admin_of,
    form_page,
    post,
    sequence_of,
)
from dpledger.dashboard.http import services_of
from dpledger.ledger.errors import NotFound, ReservationClosed
from dpledger.ledger.model.commands import Reservation
from dpledger.ledger.model.entries import identifier
from dpledger.ledger.model.requests import Settlement
from dpledger.ledger.results import SettlementRecord

__all__ = ["get_settlement", "post_settlement"]


def get_settlement(request: Request) -> Response:
    """The form that settles one open reservation."""
    return _page(request, admin_of(request), {"used": request.query_params.get("used", "")[:20]}, None)


def _settle(submission: Submission) -> Response:
    services, asked = submission.services, _read(submission)
    here = f"/datasets/{asked.dataset}"
    if submission.is_confirmed:
        settle = services.metrics.count_outcomes(services.ledger.settle)
        call = submission.call({"used": asked.used, "statement": asked.statement})
        return submission.redirect(f"{here}/entries/{sequence_of(settle(asked, call))}")
    preview = services.preview.settle(asked, submission.unrecorded)
    assert isinstance(preview, SettlementRecord), "a preview looks no key up"
    return submission.review_page(_review(preview, asked), f"{here}#reservations")


def _refuse(submission: Submission, problem: Exception) -> Response:
    return _page(submission.request, submission.caller, submission.fields, problem)


post_settlement = post(_settle, _refuse)


def _read(submission: Submission) -> Settlement:
    named, fields = submission.request.path_params, submission.fields
    statement = read_prose(fields, "statement") or None
    return Settlement(named["dataset"], named["sequence"], read_count(fields, "used"), statement, True)


def _page(request: Request, caller: Caller, fields: Fields, problem: Exception | None) -> Response:
    dataset, held = request.path_params["dataset"], _find(request)
    shown = {"dataset": dataset, "held": held, "fields": fields, "is_own": held.actor == caller.id}
    return form_page(request, caller, "settlement.html", problem, **shown)


def _find(request: Request) -> Reservation:
    """The reservation, if it is open."""
    dataset, sequence = request.path_params["dataset"], request.path_params["sequence"]
    services = services_of(request)
    state = services.storage.dataset(dataset).state
    found = services.storage.open_reservations(state.dataset_id, sequence - 1, 1)
    if found and found[0].sequence == sequence:
        return found[0]
    closed = services.storage.reservation(state.dataset_id, sequence)
    if closed is None:
        raise NotFound("reservation", identifier(dataset, sequence))
    raise ReservationClosed(identifier(dataset, sequence), closed.state)


def _review(preview: SettlementRecord, asked: Settlement) -> Review:
    held, used = preview.reservation, asked.used
    back = held.times - used
    sentences = [
        f"Of the {wording.count(held.times)} repetitions that run {held.run} holds, {wording.count(used)} "
        "are charged for good."
    ]
    if back:
        sentences.append(
            f"{wording.count(back)} are given back, for others to spend: you state that they released "
            "nothing, and will not. A job that still runs must be stopped first."
        )
    sentences.append("This is recorded as an entry and cannot be taken back.")
    amount = wording.remaining_text(preview.budget, preview.fraction)
    left = ", ".join(filter(None, [wording.left_percent(preview.fraction), amount]))
    rows = [
        ("Repetitions", f"{wording.count(held.times)} held", f"{wording.count(used)} charged"),
        (_where(held), "", f"{left} left"),
    ]
    if asked.statement is not None:
        rows.append(("Statement", "", asked.statement))
    title = f"Settle reservation {held.sequence} of {asked.dataset}"
    return Review(title, tuple(sentences), tuple(rows), "Settle")


def _where(held: Reservation) -> str:
    if held.allocation is not None:
        return f"Allocation {held.allocation.name}"
    return "Budget" if held.partition is None else f"Partition {held.partition.name}"
