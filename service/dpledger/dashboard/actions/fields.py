"""Reads the fields of forms strictly, within the bounds that the API sets for the same fields.

``tests/dashboard/test_fields.py`` holds both to the same inputs.
"""

import decimal
import math
import re
from collections.abc import Mapping

from dpledger.accounting.errors import InvalidInput
from dpledger.auth.tokens import holds_token

__all__ = [
    "DATASET_NAME",
    "LONGEST_PROSE",
    "MOST_DATASETS",
    "MOST_SECONDS",
    "TEAM_NAME",
    "Fields",
    "read_count",
    "read_datasets",
    "read_number",
    "read_part",
    "read_prose",
    "read_reason",
    "read_seconds",
    "read_team",
]

Fields = Mapping[str, str]
LONGEST_PROSE = 2000
MOST_SECONDS = 10 * 366 * 86_400
MOST_DATASETS = 1000
TEAM_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
DATASET_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
UNITS = {"seconds": 1, "hours": 3600, "days": 86_400}
_NUMBER = re.compile(r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,5})?", re.ASCII)
_LONGEST_NUMBER = 400


def read_number(fields: Fields, name: str) -> float:
    """A decimal number that a double holds; a number that is not zero is not read as zero."""
    text = fields.get(name, "").strip()
    if len(text) > _LONGEST_NUMBER or not _NUMBER.fullmatch(text):
        raise InvalidInput(name, "a number such as 0.5 or 1e-6", text[:_LONGEST_NUMBER])
    return _to_double(name, decimal.Decimal(text))


def read_part(fields: Fields, name: str) -> float:
    """A percentage above 0 and at most 100, as a part of one: the decimal as written, shifted."""
    text = fields.get(name, "").strip()
    if len(text) > _LONGEST_NUMBER or not _NUMBER.fullmatch(text):
        raise InvalidInput(name, "a percentage such as 25", text[:_LONGEST_NUMBER])
    part = _to_double(name, decimal.Decimal(text).scaleb(-2))
    if not 0.0 < part <= 1.0:
        raise InvalidInput(name, "a percentage above 0 and at most 100", text)
    return part


def _to_double(name: str, written: decimal.Decimal) -> float:
    value = float(written)
    if not math.isfinite(value) or (value == 0.0 and written != 0):
        raise InvalidInput(name, "a number that a double holds", str(written))
    return value


def read_count(fields: Fields, name: str) -> int:
    """A whole number that is not negative."""
    text = fields.get(name, "").strip()
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise InvalidInput(name, "a whole number", text[:_LONGEST_NUMBER])
    return int(text)


def read_prose(fields: Fields, name: str) -> str:
    """A text, perhaps empty, that is kept for good and shown to others."""
    text = fields.get(name, "").replace("\r\n", "\n").strip()
    if len(text) > LONGEST_PROSE:
        raise InvalidInput(name, f"at most {LONGEST_PROSE} characters", len(text))
    if not all(character.isprintable() or character in "\n\t" for character in text):
        raise InvalidInput(name, "printable characters, tabs and line ends only", "others")
    if holds_token(text):
        raise InvalidInput(name, "a text without a token", "one")
    return text


def read_reason(fields: Fields, name: str = "reason") -> str:
    """A text that is not empty."""
    text = read_prose(fields, name)
    if not text:
        raise InvalidInput(name, "given: it is recorded with the change", text)
    return text


def read_team(fields: Fields, name: str = "team") -> str:
    """The label of a team."""
    text = fields.get(name, "").strip()
    if not TEAM_NAME.fullmatch(text):
        raise InvalidInput(name, "letters, digits, dots, dashes and underscores, 100 at most", text[:200])
    if holds_token(text):
        raise InvalidInput(name, "a label without a token", "one")
    return text


def read_seconds(fields: Fields, name: str) -> int | None:
    """A time of so many seconds, hours or days; None where it is left empty."""
    if not fields.get(name, "").strip():
        return None
    unit = fields.get(f"{name}_unit", "days")
    if unit not in UNITS:
        raise InvalidInput(f"{name}_unit", f"one of {', '.join(UNITS)}", unit[:200])
    seconds = read_count(fields, name) * UNITS[unit]
    if not 1 <= seconds <= MOST_SECONDS:
        raise InvalidInput(name, "at least a second and at most ten years", fields[name])
    return seconds


def read_datasets(fields: Fields, name: str) -> frozenset[str] | None:
    """Names of datasets, by spaces, commas or lines; None where it is left empty."""
    names = fields.get(name, "").replace(",", " ").split()
    odd = next((each for each in names if not DATASET_NAME.fullmatch(each)), None)
    if odd is not None:
        raise InvalidInput(name, "names of datasets", odd[:200])
    if len(names) > MOST_DATASETS:
        raise InvalidInput(name, f"at most {MOST_DATASETS} names", len(names))
    return frozenset(names) or None
