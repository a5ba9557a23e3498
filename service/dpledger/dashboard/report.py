"""Puts a dataset's report into words, from its JSON alone: on a page of the dashboard and in a file."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dpledger.dashboard import formatting as wording
from dpledger.dashboard.verification import Verdict
from dpledger.ledger.model.entries import moment

__all__ = [
    "MOST_SHOWN",
    "amounts_down",
    "amounts_up",
    "change_text",
    "described_step",
    "headline",
    "item_rows",
    "moment_text",
    "verification_of",
]

Fields = Mapping[str, Any]
MOST_SHOWN = 100
"""How many rows of each list a page shows; the JSON has them all."""
_SYMBOLS = {"epsilon": "ε", "rho": "ρ", "mu": "μ", "mu_squared": "μ²"}
_NO_COORDINATES = {"fraction", "delta", "additive_delta", "indicative_epsilon"}


@dataclass(frozen=True)
class ItemRow:
    """One item of a plan: what it takes, and how much of it."""

    name: str
    what: str
    limit: str
    spent: str
    reserved: str
    left: str
    share: float


def amounts_up(amounts: Fields) -> str:
    """What is spent, reserved or guaranteed, in the filter's own terms, rounded up."""
    return _amounts(amounts, wording.rounded_up)


def amounts_down(amounts: Fields) -> str:
    """A limit, or what is left, rounded down."""
    return _amounts(amounts, wording.rounded_down)


def headline(amounts: Fields) -> str:
    """The first term of a guarantee, which implies the others: ε at its δ, or ρ, or μ, or a curve."""
    first = next((name for name in _SYMBOLS if name in amounts), None)
    if first is None:
        return amounts_up(amounts)
    beside = "delta" if first == "epsilon" else "additive_delta"
    return amounts_up({name: amounts[name] for name in (first, beside) if name in amounts})


def _amounts(amounts: Fields, shown: Callable[[float], str]) -> str:
    at = f" at δ = {shown(amounts['delta'])}" if "delta" in amounts else ""
    found = [
        f"{_SYMBOLS.get(name, name)} = {shown(value)}{at if name == 'epsilon' else ''}"
        for name, value in amounts.items()
        if isinstance(value, float) and name not in _NO_COORDINATES
    ]
    found += [f"a Rényi curve over {len(amounts['orders'])} orders"] if "orders" in amounts else []
    found += ["the items below"] if "items" in amounts else []
    if "indicative_epsilon" in amounts:
        found.append(f"an indicative ε = {shown(amounts['indicative_epsilon'])}{at}")
    additive = amounts.get("additive_delta")
    found += [f"additive δ = {shown(additive)}"] if additive else []
    return ", ".join(found)


def moment_text(moment: str) -> str:
    """A time to the second, in UTC."""
    return moment[:19].replace("T", " ")


def described_step(step: Fields) -> str:
    """A step in one line: its releases with all their numbers, and the sample they look at."""
    sample = step.get("sample", {})
    drawn = sample.get("scheme", "full")
    drawn += f", rate {wording.number(sample['rate'])}" if "rate" in sample else ""
    return f"{'; '.join(_release(each) for each in step['releases'])} · {drawn}"


def _release(release: Fields) -> str:
    repeated = f"{release['count']} × " if release.get("count", 1) > 1 else ""
    numbers = [
        f"{name} {wording.number(value) if isinstance(value, float) else value}"
        for name, value in release.items()
        if name not in ("mechanism", "count", "purpose") and not isinstance(value, list | dict)
    ]
    return f"{repeated}{release['mechanism']}" + (f" ({', '.join(numbers)})" if numbers else "")


def item_rows(report: Fields) -> list[ItemRow]:
    """Each item of a plan; none for another kind of budget."""
    budget = report["budget"]
    if "items" not in budget["limit"]:
        return []
    parts = [budget[part]["items"] for part in ("limit", "spent", "reserved", "remaining")]
    described = report["dataset"]["budget"]["items"]
    return [_item_row(what, *item) for what, *item in zip(described, *parts, strict=True)]


def _item_row(what: Fields, limit: Fields, spent: Fields, reserved: Fields, left: Fields) -> ItemRow:
    (most, used) = (_number_of(each) for each in (limit, spent))
    kinds = [name for name in what if name != "name"]
    described = described_step(what) if "releases" in what else f"any {kinds[0]} steps"
    return ItemRow(
        what["name"],
        described,
        _amount(limit, wording.rounded_down),
        _amount(spent, wording.rounded_up),
        _amount(reserved, wording.rounded_up),
        _amount(left, wording.rounded_down),
        min(1.0, used / most) if most > 0.0 else 1.0,
    )


def _number_of(item: Fields) -> float:
    return float(next(value for name, value in item.items() if name != "name"))


def _amount(item: Fields, shown: Callable[[float], str]) -> str:
    """The one number of an item: a whole count, or what adds up."""
    name, value = next(pair for pair in item.items() if pair[0] != "name")
    return wording.count(value) if isinstance(value, int) else f"{_SYMBOLS.get(name, name)} = {shown(value)}"


def change_text(entry: Fields) -> str:
    """What an entry changed: the limit, or the entries that were given up."""
    detail = entry["detail"]
    if entry["kind"] != "budget-changed":
        return f"lost entries given up, up to entry {wording.count(detail['lost']['sequence'])}"
    budget = json.loads(detail["budget"])
    if budget["accounting"] == "plan":
        return f"items limited to {', '.join(map(wording.rounded_down, budget['limits'][:-1]))}"
    target = amounts_down(budget["target"])
    return f"limit {target or amounts_down({'orders': budget['orders']})}"


def verification_of(dataset: str, verdict: Verdict | None) -> dict[str, Any] | None:
    """What somebody who asked on a page found, as the report has it; None before that."""
    if verdict is None or verdict.finished_at_us is None:
        return None
    return {
        "dataset": dataset,
        "sequence": verdict.sequence,
        "valid": verdict.valid,
        "problems": list(verdict.problems),
        "head": verdict.head,
        "at": moment(verdict.finished_at_us),
    }
