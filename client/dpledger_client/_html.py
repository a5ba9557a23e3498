"""Small tables for notebooks: what a value says, escaped, without scripts, styles or outside files.

What is left is rounded down and what is spent is rounded up, to four digits.
"""

import decimal
import html
import math
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["amounts_text", "bar_text", "percent_left", "table"]

_DOWN, _UP = (decimal.Context(prec=4, rounding=way) for way in (decimal.ROUND_FLOOR, decimal.ROUND_CEILING))
_SYMBOLS = {"epsilon": "ε", "rho": "ρ", "mu": "μ", "mu_squared": "μ²", "pure_epsilon": "pure ε"}
_NO_COORDINATES = {"fraction", "delta", "additive_delta", "indicative_epsilon"}
_WIDTH = 24


def table(caption: str, rows: Iterable[tuple[str, object]]) -> str:
    """Names and values under a caption; what is None is left out."""
    shown = [
        f'<tr><th style="text-align: left">{html.escape(name)}</th>'
        f'<td style="text-align: left">{html.escape(str(value))}</td></tr>'
        for name, value in rows
        if value is not None
    ]
    title = f'<caption style="text-align: left">{html.escape(caption)}</caption>'
    return f"<table>{title}<tbody>{''.join(shown)}</tbody></table>"


def amounts_text(amounts: Mapping[str, Any], *, up: bool) -> str | None:
    """Amounts in the filter's own terms; None where there are none to show."""
    at = f" at δ = {_number(amounts['delta'], up)}" if amounts.get("delta") else ""
    found = [
        f"{_SYMBOLS.get(name, name)} = {_number(value, up)}{at if name == 'epsilon' else ''}"
        for name, value in amounts.items()
        if isinstance(value, float) and name not in _NO_COORDINATES
    ]
    found += [f"a Rényi curve over {len(amounts['orders'])} orders"] if amounts.get("orders") else []
    found += [_item_text(item, up) for item in amounts.get("items", ())]
    if "indicative_epsilon" in amounts:
        found.append(f"an indicative ε = {_number(amounts['indicative_epsilon'], up)}{at}")
    found += (
        [f"additive δ = {_number(amounts['additive_delta'], up)}"] if amounts.get("additive_delta") else []
    )
    return ", ".join(found) or None


def _item_text(item: Mapping[str, Any], up: bool) -> str:
    name, value = next(pair for pair in item.items() if pair[0] != "name")
    amount = str(value) if isinstance(value, int) else f"{_SYMBOLS.get(name, name)} = {_number(value, up)}"
    return f"{item['name']}: {amount}"


def bar_text(fraction: float) -> str:
    """What is left as a bar with its per cent, rounded down."""
    filled = math.floor(min(1.0, max(0.0, fraction)) * _WIDTH)
    return f"{'█' * filled}{'·' * (_WIDTH - filled)} {percent_left(fraction)}"


def percent_left(fraction: float) -> str:
    """A part that is left, in per cent, rounded down."""
    tenths = decimal.Decimal(repr(float(fraction))).scaleb(3).to_integral_value(decimal.ROUND_FLOOR)
    return f"{tenths.scaleb(-1):.1f} %"


def _number(value: float, up: bool) -> str:
    # Rounded from the shortest decimal that reads back as the value, so that 0.1 stays 0.1.
    rounded = (_UP if up else _DOWN).create_decimal(repr(float(value)))
    return f"{float(rounded):.4g}"
