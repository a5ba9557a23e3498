"""Amounts, steps, items and curves of a budget in words and tables."""

from collections.abc import Callable
from typing import Any

from dpledger.cli.ledgers import Fields
from dpledger.cli.output import number_down, number_up, show_table

__all__ = ["coordinates_text", "show_curve", "show_planned_items", "show_used_items", "step_text"]

_SYMBOLS = {"epsilon": "ε", "rho": "ρ", "mu": "μ", "mu_squared": "μ²"}
"""How the coordinates of filters are written."""
_NO_COORDINATES = {"fraction", "open", "delta", "additive_delta", "indicative_epsilon"}


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
    return str(value) if isinstance(value, int) else f"{_SYMBOLS.get(name, name)} = {shown(value)}"


def _mark(left: Fields) -> str:
    return "" if any(value for name, value in left.items() if name != "name") else "used up"


def _takes(item: Fields) -> str:
    """The step, or what a cap adds up."""
    if "releases" not in item:
        ((kind, _),) = [pair for pair in item.items() if pair[0] != "name"]
        return f"any {kind} steps"
    return step_text(item)


def step_text(step: Fields) -> str:
    """A step in the form that the command line reads."""
    sample = step.get("sample", {})
    drawn = [str(sample["scheme"])] if "scheme" in sample else []
    drawn += [f"rate {sample['rate']:g}"] if "rate" in sample else []
    return " ".join([*map(_release, step["releases"]), *drawn])


def _release(release: Fields) -> str:
    fields = [f"{name}={_value(value)}" for name, value in release.items() if name != "mechanism"]
    return f"{release['mechanism']}:{','.join(fields)}"


def _value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _size(item: Fields) -> str:
    if "times" in item:
        return str(item["times"])
    ((_, cap),) = [pair for pair in item.items() if pair[0] != "name"]
    return ", ".join(f"{_SYMBOLS.get(name, name)} = {number_down(value)}" for name, value in cap.items())


def coordinates_text(amounts: Fields, shown: Callable[[float], str]) -> str:
    """Numbers of their own, such as ρ, μ² or ε; curves and items are shown in a table below."""
    found = [
        f"{_SYMBOLS.get(name, name)} = {shown(value)}"
        for name, value in amounts.items()
        if name not in _NO_COORDINATES and isinstance(value, float)
    ]
    if "indicative_epsilon" in amounts:
        found.append(f"an indicative ε = {shown(amounts['indicative_epsilon'])}")
    found += [f"δ = {amounts['delta']:g}"] if "delta" in amounts else []
    found += ["its curve below"] if "orders" in amounts else []
    found += ["its items below"] if "items" in amounts else []
    found += [f"additive δ = {shown(amounts['additive_delta'])}"] if amounts.get("additive_delta") else []
    return ", ".join(found)


def show_curve(found: Fields) -> None:
    """Limit, spent and left at every order that has room at all."""
    orders = found["limit"].get("orders")
    if orders is None:
        return
    parts = [found[part]["epsilons"] for part in ("limit", "spent", "remaining")]
    rows = [
        [f"{order:.6g}", number_down(limit), number_up(spent), number_down(left)]
        for order, limit, spent, left in zip(orders, *parts, strict=True)
        if limit > 0.0
    ]
    show_table(("order>", "limit ε>", "spent ε>", "left ε>"), rows, "no order has any room")
