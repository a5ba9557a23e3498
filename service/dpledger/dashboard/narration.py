"""Puts an entry into words: a sentence for its kind, and its fields as rows of a table."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dpledger.dashboard import formatting as wording
from dpledger.dashboard.report import described_step, moment_text
from dpledger.ledger.model.budget import Budget

__all__ = ["Narrated", "Row", "narrate"]

Fields = Mapping[str, Any]
_MOST_NAMES = 20
_LABELS = {
    "id": "Id",
    "sequence": "Entry",
    "kind": "Kind",
    "at": "Time",
    "actor": "Token",
    "run": "Run",
    "team": "Team",
    "partition": "Partition",
    "allocation": "Allocation",
    "purpose": "Purpose",
    "times": "Repetitions held",
    "used": "Repetitions charged",
    "sample": "Sample drawn by",
    "reservation": "Reservation",
    "expires_at": "Expires",
    "declared": "Cost declared by the client",
    "fraction_left": "Left after it",
    "hash": "Hash",
}
_COSTS = {"rho": "ρ (zCDP)", "mu": "μ (Gaussian DP)", "pure_epsilon": "pure ε", "delta": "additive δ"}


@dataclass(frozen=True)
class Row:
    """A field of an entry; ``link`` is the kind of thing that its value leads to, if any."""

    label: str
    value: str
    link: str = ""
    target: str = ""


@dataclass(frozen=True)
class Narrated:
    """An entry in words: what happened, its fields, its releases, what it cost, and what else it records."""

    sentence: str
    rows: list[Row]
    releases: list[list[Row]]
    cost: list[Row]
    detail: list[Row]


def narrate(entry: Fields) -> Narrated:
    """An entry, as the API shows it, in words; one of a kind that has no sentence by its name."""
    say = _SENTENCES.get(entry["kind"], _unknown)
    step = entry.get("step", {})
    return Narrated(
        say(entry),
        [_row(name, value) for name, value in entry.items() if name not in ("step", "cost", "detail")],
        [_release_rows(each) for each in step.get("releases", ())],
        _cost_rows(entry.get("cost", {})),
        _detail_rows(entry.get("detail", {})),
    )


def _row(name: str, value: Any) -> Row:
    label = _LABELS.get(name, name.replace("_", " ").capitalize())
    if name in ("at", "expires_at"):
        return Row(label, f"{moment_text(value)} UTC")
    if name == "fraction_left":
        return Row(label, wording.left_percent(value))
    if name in ("reservation", "sample"):
        return Row(label, value, "entry", value.rpartition("~")[2])
    links = {"run": "run", "hash": "hash", "actor": "code"}
    return Row(label, _value_text(value), links.get(name, ""), str(value))


def _value_text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, int):
        return wording.count(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _release_rows(release: Fields) -> list[Row]:
    return [Row(name.replace("_", " "), _value_text(value)) for name, value in release.items()]


def _cost_rows(cost: Fields) -> list[Row]:
    """The cost in each notion that applies, as it was charged: to the last digit."""
    found = [Row(label, repr(cost[name])) for name, label in _COSTS.items() if cost.get(name) is not None]
    orders = cost.get("orders") or []
    if len(orders) == 1:
        found.append(Row(f"Rényi ε at α = {wording.number(orders[0])}", repr(cost["epsilons"][0])))
    elif orders:
        ends = f"{wording.number(orders[0])} to {wording.number(orders[-1])}"
        most = wording.rounded_up(max(cost["epsilons"]))
        found.append(Row("Rényi curve", f"{len(orders)} orders from {ends}, ε at most {most}"))
    return found


def _detail_rows(detail: Fields) -> list[Row]:
    return [_detail_row(name, value) for name, value in detail.items()]


def _detail_row(name: str, value: Any) -> Row:
    label = name.replace("_", " ").capitalize()
    if name == "budget" and isinstance(value, str):
        return Row("Budget", _budget_text(value))
    if name == "fraction" and isinstance(value, float):
        return Row("Part of the budget", wording.part_percent(value))
    if name == "window_seconds":
        return Row("Window", wording.window_text(value))
    if isinstance(value, list):
        more = f" and {len(value) - _MOST_NAMES} more" if len(value) > _MOST_NAMES else ""
        return Row(label, ", ".join(map(_value_text, value[:_MOST_NAMES])) + more)
    return Row(label, "none" if value is None else _value_text(value))


def _budget_text(document: str) -> str:
    """A budget's limit with its accounting; its own text where it is of a kind that is not known here."""
    try:
        budget = Budget.from_document(document)
    except (KeyError, TypeError, ValueError):
        return document
    return f"{budget.accounting}: {wording.limit_text(budget)}"


def _detail(entry: Fields, name: str) -> Any:
    return entry.get("detail", {}).get(name)


def _step(entry: Fields) -> str:
    purpose = f", for {entry['purpose']}" if entry.get("purpose") else ""
    return f"{described_step(entry['step'])}{purpose}" if "step" in entry else "a step"


def _where(entry: Fields) -> str:
    found = f" on partition {entry['partition']}" if "partition" in entry else ""
    return found + (f" from allocation {entry['allocation']}" if "allocation" in entry else "")


def _opened(entry: Fields) -> str:
    detail = entry.get("detail", {})
    budget = f" with the budget {_budget_text(detail['budget'])}" if "budget" in detail else ""
    return f"The dataset was opened{budget}. Its rule, orders and weights have been fixed since."


def _budget_changed(entry: Fields) -> str:
    return f"An admin changed the limit of the budget to {_budget_text(_detail(entry, 'budget'))}."


def _authorized(entry: Fields) -> str:
    return f"Run {entry['run']} was granted one step{_where(entry)}: {_step(entry)}."


def _reserved(entry: Fields) -> str:
    until = f" until {moment_text(entry['expires_at'])} UTC" if "expires_at" in entry else ""
    times = wording.count(entry["times"])
    return f"Run {entry['run']} reserved up to {times} repetitions{_where(entry)}{until}: {_step(entry)}."


def _settled(entry: Fields) -> str:
    used = wording.count(entry["used"])
    return f"Reservation {entry['reservation']} was settled: {used} repetitions ran, the rest was given back."


def _expired(entry: Fields) -> str:
    used = wording.count(entry["used"])
    return f"Nobody settled reservation {entry['reservation']} in time: all {used} repetitions were charged."


def _partitions_opened(entry: Fields) -> str:
    many = wording.count(len(_detail(entry, "names") or ()))
    return f"{many} partitions were opened: disjoint parts with ledgers of their own."


def _rollback_accepted(_entry: Fields) -> str:
    return "An admin gave up entries that the ledger had lost, so that it could go on."


def _allocated(entry: Fields) -> str:
    named = _detail(entry, "name") or entry.get("allocation", "")
    return f"Allocation {named} was opened: a part of the shared budget, with a budget of its own inside."


def _allocation_returned(entry: Fields) -> str:
    return f"Allocation {entry.get('allocation', '')} was given back: nothing had been released from it."


def _quota_changed(entry: Fields) -> str:
    detail = entry.get("detail", {})
    window = wording.window_text(detail.get("window_seconds"))
    if detail.get("fraction") is None:
        return f"The quota of team {detail.get('team')} {window} was removed."
    part = wording.part_percent(detail["fraction"])
    return f"Team {detail.get('team')} may use at most {part} of the budget {window}."


_ASKED_FOR = {"allocation": "an allocation", "quota": "a larger quota", "budget": "another budget"}


def _budget_requested(entry: Fields) -> str:
    wanted = _ASKED_FOR.get(str(_detail(entry, "kind")), "budget")
    return f"A token asked an admin for {wanted}. Nothing was charged."


def _request_approved(entry: Fields) -> str:
    return (
        f"An admin approved the request of entry {_detail(entry, 'request')}: the next entry carries it out."
    )


def _request_rejected(entry: Fields) -> str:
    return f"An admin rejected the request of entry {_detail(entry, 'request')}."


def _request_withdrawn(entry: Fields) -> str:
    return f"The token that made the request of entry {_detail(entry, 'request')} withdrew it."


def _renewal_changed(entry: Fields) -> str:
    period, budget = _detail(entry, "period"), _detail(entry, "budget")
    if budget is None:
        return f"An admin ended the renewal by {period}: no new epoch gets a budget of its own."
    return f"Every new {period} gets a budget of its own, for new records: {_budget_text(budget)}."


def _unknown(entry: Fields) -> str:
    return f"An entry of the kind {entry['kind'].replace('-', ' ')}."


_SENTENCES: dict[str, Callable[[Fields], str]] = {
    "opened": _opened,
    "budget-changed": _budget_changed,
    "authorized": _authorized,
    "reserved": _reserved,
    "settled": _settled,
    "expired": _expired,
    "partitions-opened": _partitions_opened,
    "rollback-accepted": _rollback_accepted,
    "allocated": _allocated,
    "allocation-returned": _allocation_returned,
    "quota-changed": _quota_changed,
    "budget-requested": _budget_requested,
    "request-approved": _request_approved,
    "request-rejected": _request_rejected,
    "request-withdrawn": _request_withdrawn,
    "renewal-changed": _renewal_changed,
}
