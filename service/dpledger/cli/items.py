"""Items of a budget as tables: what each takes, and what is used of it."""

from collections.abc import Callable
from typing import Any

from dpledger.cli.ledgers import Fields
from dpledger.cli.output import number_down, number_up, show_table

__all__ = ["SYMBOLS", "show_planned_items", "show_used_items"]

SYMBOLS = {"epsilon": "ε", "rho": "ρ", "mu": "μ", "mu_squared": "μ²"}
"""How the coordinates of filters are written."""


def show_planned_items(budget: Fields) -> None:
    """Each item of a budget with what it takes and its count or cap, where the budget has items."""
    rows = [[item["name"], _takes(item), _size(item)] for item in budget.get("items", ())]
    if rows:
        show_table(("item", "takes", "limit>"), rows, "no items")


def show_used_items(found: Fields) -> None:
    """Limit, used, reserved and left of each item, where the budget has items; used includes reserved."""
    if "items" not in found["limit"]:
        return
    parts = [found[part]["items"] for part in ("limit", "spent", "reserved", "remaining")]
    ways = (number_down, number_up, number_up, number_down)
    rows = [
        [
            items[0]["name"],
            *(_amount(item, way) for item, way in zip(items, ways, strict=True)),
            _mark(items[3]),
        ]
        for items in zip(*parts, strict=True)
    ]
    columns = ("item", "limit>", "spent>", "reserved>", "left>", "")
    show_table(columns, rows, "no items")


def _amount(item: Fields, shown: Callable[[float], str]) -> str:
    """The one number of an item: a whole count, or what adds up."""
    ((name, value),) = [pair for pair in item.items() if pair[0] != "name"]
    return str(value) if isinstance(value, int) else f"{SYMBOLS.get(name, name)} = {shown(value)}"


def _mark(left: Fields) -> str:
    return "" if any(value for name, value in left.items() if name != "name") else "used up"


def _takes(item: Fields) -> str:
    """The step in the form that the command line reads, or what a cap adds up."""
    if "releases" not in item:
        ((kind, _),) = [pair for pair in item.items() if pair[0] != "name"]
        return f"any {kind} steps"
    sample = item.get("sample", {})
    drawn = [str(sample["scheme"])] if "scheme" in sample else []
    drawn += [f"rate {sample['rate']:g}"] if "rate" in sample else []
    return " ".join([*map(_release, item["releases"]), *drawn])


def _release(release: Fields) -> str:
    fields = [f"{name}={_value(value)}" for name, value in release.items() if name != "mechanism"]
    return f"{release['mechanism']}:{','.join(fields)}"


def _value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _size(item: Fields) -> str:
    if "times" in item:
        return str(item["times"])
    ((_, cap),) = [pair for pair in item.items() if pair[0] != "name"]
    return ", ".join(f"{SYMBOLS.get(name, name)} = {number_down(value)}" for name, value in cap.items())
