"""Plain tables on standard output; remaining amounts are rounded down, spent amounts up."""

import decimal
import json
import math
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import typer
from rich import box
from rich.console import Console, JustifyMethod
from rich.table import Table

__all__ = [
    "amount_text",
    "guarantee_text",
    "left_text",
    "limit_text",
    "moment_text",
    "number_down",
    "number_up",
    "percent_left",
    "percent_spent",
    "print_json",
    "show_pairs",
    "show_table",
    "show_warnings",
]

_UNBOUNDED_COLUMNS = 10_000
_DOWN, _UP = (decimal.Context(prec=6, rounding=way) for way in (decimal.ROUND_FLOOR, decimal.ROUND_CEILING))
_MANY = 10.0
_SYMBOLS = {"epsilon": "ε", "rho": "ρ", "mu": "μ"}


def print_json(value: Any) -> None:
    """One line of JSON whose floats round-trip exactly."""
    typer.echo(json.dumps(value, allow_nan=False))


def show_table(columns: Sequence[str], rows: Sequence[Sequence[str]], empty: str) -> None:
    """Rows under their headings, or one line that says what to do where there is none.

    A heading that ends in ``>`` stands over numbers, which are set to the right; one that ends in ``?``
    is left out, the last first, where the terminal is too narrow for all.
    """
    console = _console()
    if not rows:
        return console.print(empty)
    kept = list(range(len(columns)))
    optional = [index for index in kept if "?" in columns[index]]
    table = _table(columns, rows, kept)
    while optional and _width(console, table) > console.width:
        kept.remove(optional.pop())
        table = _table(columns, rows, kept)
    return console.print(table)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], kept: Sequence[int]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for index in kept:
        heading = columns[index].rstrip(">?")
        justify: JustifyMethod = "right" if ">" in columns[index] else "left"
        table.add_column(heading, justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*(row[index] for index in kept))
    return table


def _width(console: Console, table: Table) -> int:
    """How many columns of the screen a table takes when nothing is folded."""
    return console.measure(table, options=console.options.update(width=_UNBOUNDED_COLUMNS)).maximum


def show_pairs(pairs: Iterable[tuple[str, str | None]]) -> None:
    """Names and values, one per line; what has no value is left out."""
    grid = Table.grid(padding=(0, 2))
    for name, value in pairs:
        if value is not None:
            grid.add_row(name, value)
    _console().print(grid)


def show_warnings(answer: dict[str, Any]) -> None:
    """Say on standard error what an answer warns of; a service of before may not warn at all."""
    for warning in answer.get("warnings", ()):
        typer.echo(f"warning: {warning}", err=True)


def _console() -> Console:
    console = Console(file=sys.stdout, markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        # A pipe has no edge: nothing is folded or left out for whoever reads on.
        console.width = _UNBOUNDED_COLUMNS
    return console


def number_down(value: float | None) -> str:
    """Six digits, never above the value: for limits and for what is left."""
    return "none" if value is None else _six(value, _DOWN)


def number_up(value: float | None) -> str:
    """Six digits, never below the value: for costs and what is spent."""
    return "none" if value is None else _six(value, _UP)


def _six(value: float, context: decimal.Context) -> str:
    # Rounded from the shortest decimal that reads back as the value, so that 0.1 stays 0.1.
    rounded = context.create_decimal(repr(value))
    # The largest doubles round up to what no double can hold.
    beyond = math.isfinite(value) and not math.isfinite(float(rounded))
    return str(rounded).lower() if beyond else f"{float(rounded):.6g}"


def percent_left(fraction: float) -> str:
    """A part that is left, in per cent, rounded down."""
    return _percent(fraction, decimal.ROUND_FLOOR)


def percent_spent(fraction: float) -> str:
    """A part that is spent, in per cent, rounded up."""
    return _percent(fraction, decimal.ROUND_CEILING) if math.isfinite(fraction) else "over 100 %"


def _percent(fraction: float, way: str) -> str:
    if fraction > _MANY:
        return "over 1000 %"
    tenths = decimal.Decimal(repr(fraction)).scaleb(3).to_integral_value(way)
    return f"{tenths.scaleb(-1):.1f} %"


def amount_text(amounts: dict[str, Any]) -> str:
    """What is left, in the budget's own terms."""
    found = [
        f"{symbol} = {number_down(amounts[name])}" for name, symbol in _SYMBOLS.items() if name in amounts
    ]
    if not found:
        return percent_left(amounts["fraction"]) if "fraction" in amounts else "a curve"
    return f"{found[0]} at δ = {amounts['delta']:g}" if "delta" in amounts else found[0]


def left_text(left: dict[str, Any]) -> str:
    """What is left, in the budget's own terms if it has such, and in per cent."""
    percent = percent_left(left["fraction"])
    amount = amount_text(left)
    return percent if amount == percent else f"{amount} ({percent})"


def limit_text(budget: dict[str, Any]) -> str:
    """A budget's limit with its rule."""
    return f"{budget['accounting']}, {amount_text(budget)}"


def guarantee_text(guarantee: dict[str, Any]) -> str:
    """What is proven of all outputs together, rounded up, and what the limit is for where it is lower."""
    named = [f"{_SYMBOLS[name]} = {number_up(guarantee[name])}" for name in _SYMBOLS if name in guarantee]
    found = named[0] if named else "a curve"
    found += f" at δ = {guarantee['delta']:g}" if "delta" in guarantee else ""
    since = f"{found}, since entry {guarantee['since']}"
    return f"{since}; the budget is lower and limits what is to come" if guarantee["lowered"] else since


def moment_text(moment: str | None) -> str:
    """A time to the second, in UTC."""
    return "never" if moment is None else moment[:19].replace("T", " ")
