"""Numbers, times and steps in words. What is left is rounded down and what is spent is rounded up."""

import datetime as dt
import decimal
import json
import math
from typing import Any

from dpledger.accounting.steps import Release, Step
from dpledger.accounting.validation import Floats
from dpledger.ledger.guarantee import guarantee_fields
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.filter import Meter
from dpledger.ledger.model.state import LedgerState

__all__ = [
    "amount_text",
    "count",
    "guarantee_text",
    "instant_iso",
    "instant_text",
    "items_left_text",
    "left_percent",
    "limit_text",
    "minute_text",
    "number",
    "part_percent",
    "part_text",
    "pretty",
    "relative_noise",
    "remaining_text",
    "rounded_down",
    "rounded_up",
    "rule_text",
    "share_percent",
    "step_text",
    "window_text",
]

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_DOWN, _UP = (decimal.Context(prec=4, rounding=way) for way in (decimal.ROUND_FLOOR, decimal.ROUND_CEILING))
_THREE_UP = decimal.Context(prec=3, rounding=decimal.ROUND_CEILING)
# Shares are quotients of doubles: their last bits must not make 25.0 % into 25.1 %.
_LESS_THE_LAST_BITS = 100 * (1 - decimal.Decimal("1e-12"))
_PLAIN_EXPONENTS = range(-6, 6)
_MANY = 10.0
_SYMBOLS = {"epsilon": "ε", "rho": "ρ", "mu": "μ"}
_FEW_ITEMS = 2
_LONGEST_NAME = 24
_UNITS = (("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1))


def number(value: float | None) -> str:
    """Four digits that matter; enough to compare, short enough to read."""
    if value is None:
        return "none"
    return f"{value:.4g}".replace("e-0", "e-").replace("e+0", "e+")


def rounded_down(value: float) -> str:
    """The same, never above the value: for limits and for what is left."""
    return _short(_DOWN.create_decimal(_written(value)))


def rounded_up(value: float) -> str:
    """The same, never below the value: for what is spent."""
    return _short(_UP.create_decimal(_written(value)))


def _short(rounded: decimal.Decimal) -> str:
    """A rounded number in words; the largest doubles round up to what no double can hold."""
    value = float(rounded)
    return number(value) if math.isfinite(value) else str(rounded).lower()


def _written(value: float) -> str:
    """The shortest decimal that stands for this double: a limit of 0.7 is not 0.6999 because of its bits."""
    return repr(float(value))


def count(value: int) -> str:
    """A whole number in groups of three."""
    return f"{value:,}".replace(",", " ")


def left_percent(fraction: float) -> str:
    """A part that is left, in per cent, rounded down."""
    if 0.0 < fraction < 0.001:
        return "< 0.1 %"
    if fraction > _MANY:
        return "over 1000 %"
    tenths = decimal.Decimal(_written(fraction)).scaleb(3).to_integral_value(decimal.ROUND_FLOOR)
    return f"{tenths.scaleb(-1):.1f} %"


def share_percent(fraction: float) -> str:
    """A part that is spent, in per cent, rounded up to three digits that matter."""
    if fraction <= 0.0:
        return "0 %"
    if not math.isfinite(fraction):
        return "over 100 %"
    percent = _THREE_UP.multiply(decimal.Decimal(_written(fraction)), _LESS_THE_LAST_BITS)
    return f"{percent:f} %" if percent.adjusted() in _PLAIN_EXPONENTS else f"{percent:.2e} %"


def part_percent(fraction: float) -> str:
    """A part that may be used, in per cent, rounded down to four digits that matter."""
    return f"{_short(_DOWN.create_decimal(decimal.Decimal(_written(fraction)).scaleb(2)))} %"


def window_text(seconds: int | None) -> str:
    """The window of a quota in its largest whole unit."""
    if seconds is None:
        return "in all"
    name, size = next(each for each in _UNITS if seconds % each[1] == 0)
    many = seconds // size
    return f"within {count(many)} {name}{'' if many == 1 else 's'}"


def instant_text(at_us: int) -> str:
    """A time to the second, in UTC."""
    return (_EPOCH + dt.timedelta(microseconds=at_us)).strftime("%Y-%m-%d %H:%M:%S")


def minute_text(at_us: int) -> str:
    """A time to the minute, in UTC."""
    return instant_text(at_us)[:-3]


def instant_iso(at_us: int) -> str:
    """A time as machines read it."""
    return (_EPOCH + dt.timedelta(microseconds=at_us)).isoformat(timespec="milliseconds")


def rule_text(budget: Budget) -> str:
    """The rule that decides."""
    return budget.filter.summary


def limit_text(budget: Budget) -> str:
    """The limit in its own terms."""
    amount = _amount_text(budget.target)
    if not amount:
        return _limits_text(budget)
    return f"{amount} at δ = {number(budget.target['delta'])}" if "delta" in budget.target else amount


def guarantee_text(state: LedgerState) -> str:
    """What is proven of all outputs together: the largest limit that was ever in force."""
    fields = guarantee_fields(state)
    named = [f"{symbol} = {rounded_up(fields[name])}" for name, symbol in _SYMBOLS.items() if name in fields]
    found = named[0] if named else _limits_text(state.guarantee)
    found += f" at δ = {rounded_up(fields['delta'])}" if "delta" in fields else ""
    found += f", since entry {count(fields['since'])}"
    return f"{found}; the limit is lower and limits what is to come" if fields["lowered"] else found


def remaining_text(budget: Budget, fraction: float) -> str:
    """What is left in the limit's own terms, or nothing where they are a curve."""
    return _amount_text(budget.remaining_at(fraction))


def part_text(amounts: dict[str, Any]) -> str:
    """ε and δ of a part of a shared budget, or of what is left to hand out."""
    return f"ε = {rounded_down(amounts['epsilon'])}, δ = {rounded_down(amounts['delta'])}"


def amount_text(meter: Meter, amount: float, *, is_limit: bool = False) -> str:
    """An amount of a meter: a whole number where steps are counted, else rounded to the safe side."""
    if meter.step is not None:
        return count(round(amount))
    return rounded_down(amount) if is_limit else rounded_up(amount)


def items_left_text(budget: Budget, committed: Floats) -> str:
    """What is left of the first items of a budget, each in its own terms."""
    meters = budget.filter.meters(budget, committed)
    more = f" and {len(meters) - _FEW_ITEMS} more" if len(meters) > _FEW_ITEMS else ""
    return ", ".join(_item_left_text(meter) for meter in meters[:_FEW_ITEMS]) + more


def _item_left_text(meter: Meter) -> str:
    left = max(0.0, meter.limit - meter.used)
    amounts = [amount_text(meter, each, is_limit=True) for each in (left, meter.limit)]
    symbol = f"{meter.symbol} = " if meter.symbol else ""
    return f"{symbol}{' of '.join(amounts)} {_clipped(meter.label)}"


def _clipped(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"


def _limits_text(budget: Budget) -> str:
    """The limits of a budget whose target is in no term of its own."""
    if budget.orders.size:
        return f"a curve over {budget.orders.size} orders"
    meters = budget.filter.meters(budget, budget.limits)
    return ", ".join(f"{meter.label} = {rounded_down(meter.limit)}" for meter in meters[:_FEW_ITEMS])


def _amount_text(amounts: dict[str, Any]) -> str:
    """The first of ε, ρ and μ that there is."""
    found = [
        f"{symbol} = {rounded_down(amounts[name])}" for name, symbol in _SYMBOLS.items() if name in amounts
    ]
    return found[0] if found else ""


def relative_noise(release: Release) -> float | None:
    """The noise's standard deviation or scale over the sensitivity; None where no double holds it."""
    level = release.mechanism.noise_level
    return None if level is None else level.ratio


def step_text(step: Step) -> str:
    """A step in one line: its releases, and the sample they look at."""
    releases = ", ".join(_release_text(release) for release in step.releases[:3])
    more = len(step.releases) - 3
    sample = step.sample
    drawn = sample.scheme.value if sample.rate is None else f"{sample.scheme.value} q = {number(sample.rate)}"
    return f"{releases}{f' and {more} more' if more > 0 else ''} · {drawn}"


def _release_text(release: Release) -> str:
    level = release.mechanism.noise_level
    repeated = f"{release.count} × " if release.count > 1 else ""
    noise = "" if level is None else f" {level.symbol}/Δ = {number(level.ratio)}"
    return f"{repeated}{release.mechanism.kind}{noise}"


def pretty(fields: dict[str, Any]) -> str:
    """JSON with one field a line."""
    lines = [
        f"  {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in fields.items()
    ]
    return "{\n" + ",\n".join(lines) + "\n}"
