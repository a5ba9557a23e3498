"""Changes the limit of a dataset's budget."""

import json
import math
from typing import Any, NoReturn

from starlette.requests import Request
from starlette.responses import Response

from dpledger.accounting.errors import InvalidInput
from dpledger.auth.gatekeeper import Caller
from dpledger.dashboard import formatting as wording
from dpledger.dashboard.actions.fields import Fields, read_count, read_number, read_reason
from dpledger.dashboard.actions.submission import (
    Review,
    Submission,
    admin_of,
    form_page,
    post,
    sequence_of,
)
from dpledger.dashboard.http import services_of
from dpledger.dashboard.report import amounts_up
from dpledger.ledger.errors import PreconditionFailed
from dpledger.ledger.guarantee import guarantee_fields
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.state import LedgerState
from dpledger.ledger.results import BudgetChange

__all__ = ["get_budget", "number_fields", "post_budget"]

_LABELS = {"epsilon": "ε", "delta": "δ", "rho": "ρ", "mu": "μ", "additive_delta": "δ set aside"}
_LONGEST_DOCUMENT = 40_000


def get_budget(request: Request) -> Response:
    """The form that changes a limit."""
    return _page(request, admin_of(request), None, None)


def _change(submission: Submission) -> Response:
    services, dataset = submission.services, submission.request.path_params["dataset"]
    reason = read_reason(submission.fields)
    state = services.storage.dataset(dataset).state
    budget = _read_budget(state.budget, submission.fields)
    if submission.is_confirmed:
        seen = read_count(submission.fields, "sequence")
        change = services.metrics.count_outcomes(services.ledger.change_budget)
        call = submission.call({"budget": budget, "reason": reason, "sequence": seen})
        done = change(dataset, budget, reason, seen, call)
        return submission.redirect(f"/datasets/{dataset}/entries/{sequence_of(done)}")
    preview = services.preview.change_budget(dataset, budget, reason, state.sequence, submission.unrecorded)
    assert isinstance(preview, BudgetChange), "a preview looks no key up"
    review = _review(state, state.budget.with_limit(budget, state.adjacency), preview, reason)
    return submission.review_page(review, f"/datasets/{dataset}", sequence=str(state.sequence))


def _refuse(submission: Submission, problem: Exception) -> Response:
    if isinstance(problem, PreconditionFailed):
        problem = _Moved(problem.expected, problem.found)
    return _page(submission.request, submission.caller, submission.fields, problem)


post_budget = post(_change, _refuse)


class _Moved(PreconditionFailed):
    """The ledger went on since the change was reviewed."""

    def __str__(self) -> str:
        return (
            f"The ledger was at entry {self.expected} when you looked and is at {self.found} now, so nothing "
            "was changed. Review the change again"
        )


def number_fields(budget: Budget) -> dict[str, str]:
    """The numbers that give a budget's limit, by their names, with their labels; none for a list of them.

    One that was given as (ε, δ) is changed as such, although its target also names what follows from them.
    """
    known = budget.filter.fields
    names = ["epsilon", "delta"] if {"epsilon", "delta"} <= set(budget.target) & known else ["rho", "mu"]
    found = [name for name in names if name in budget.target and name in known]
    if not found or known & {"items", "orders"}:
        return {}
    return {name: _LABELS[name] for name in [*found, *(["additive_delta"] if _sets_aside(budget) else [])]}


def _sets_aside(budget: Budget) -> bool:
    return "additive_delta" in budget.filter.fields


def _read_budget(budget: Budget, fields: Fields) -> dict[str, Any]:
    """The wire form of the limit that a form asks for."""
    names = number_fields(budget)
    if not names:
        return {**_read_document(fields), "accounting": budget.accounting}
    given = [name for name in names if name != "additive_delta" or fields.get(name, "").strip()]
    return {"accounting": budget.accounting, **{name: read_number(fields, name) for name in given}}


def _read_document(fields: Fields) -> dict[str, Any]:
    """A limit that is more than two numbers, as the API takes it."""
    text = fields.get("document", "")
    if len(text) > _LONGEST_DOCUMENT:
        raise InvalidInput("budget", f"at most {_LONGEST_DOCUMENT} characters", len(text))
    try:
        found = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except RecursionError:
        raise InvalidInput("budget", "an object that is not nested", "a deep one") from None
    except InvalidInput:
        raise
    except ValueError as error:
        raise InvalidInput("budget", f"JSON ({error})", text[:40]) from None
    if not isinstance(found, dict):
        raise InvalidInput("budget", "an object with the fields of the limit", text[:40])
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise InvalidInput("budget", "of finite numbers", name)


def _finite(text: str) -> float:
    number = float(text)
    vanished = number == 0.0 and any(digit in "123456789" for digit in text.lower().partition("e")[0])
    if math.isinf(number) or vanished:
        raise InvalidInput("budget", "of numbers that a double holds", text[:40])
    return number


def _page(request: Request, caller: Caller, fields: Fields | None, problem: Exception | None) -> Response:
    dataset = request.path_params["dataset"]
    state = services_of(request).storage.dataset(dataset).state
    names = number_fields(state.budget)
    shown = {
        "state": state,
        "names": names,
        "fields": _present(state.budget, names) if fields is None else fields,
        "limit": wording.limit_text(state.budget),
        "guarantee": wording.guarantee_text(state),
    }
    return form_page(request, caller, "budget.html", problem, **shown)


def _present(budget: Budget, names: dict[str, str]) -> dict[str, str]:
    """The limit in force, as the form shows it before anybody changes it."""
    if names:
        return {name: repr(budget.target[name]) for name in names if name in budget.target}
    known = budget.filter.fields
    shown = budget.filter.coordinates(budget, budget.limits) if "orders" in known else budget.shown
    taken = {name: value for name, value in shown.items() if name in known}
    return {"document": json.dumps(taken, ensure_ascii=False, indent=2)}


def _review(before: LedgerState, budget: Budget, preview: BudgetChange, reason: str) -> Review:
    now, after = before.remaining(None), preview.remaining
    rows = (
        ("Limit", wording.limit_text(before.budget), wording.limit_text(budget)),
        ("Left", wording.left_percent(now["fraction"]), wording.left_percent(after["fraction"])),
        ("Guarantee", amounts_up(guarantee_fields(before)), amounts_up(preview.guarantee)),
        ("Reason", "", reason),
    )
    sentences = ["From the next request on, the new limit decides what is granted on this dataset."]
    if after["fraction"] <= 0.0:
        sentences.append("It closes the dataset: as much is spent or held already, and nothing is granted.")
    if preview.guarantee["lowered"]:
        sentences.append("What was released under the larger limit stays released, so the guarantee stays.")
    elif preview.guarantee["since"] == preview.sequence:
        sentences.append(
            "The guarantee of everyone in this dataset becomes that of the larger limit, and no later change "
            "takes that back."
        )
    title = f"Change the budget of {before.name}"
    return Review(title, tuple(sentences), rows, "Change the budget", tuple(preview.warnings))
