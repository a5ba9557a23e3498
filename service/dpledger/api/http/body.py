"""Reading request bodies strictly: what is not exactly one finite JSON value is refused.

Python's own reader takes ``NaN``, reads 1e400 as infinity and 1e-400 as zero, and keeps the last of two
equal keys. In a ledger each of these would charge something other than what was written.

Bytes and values are bounded before anything is parsed, and keys and depth before anything is validated:
one interpreter serves everybody, so what one body may take of it is small whatever the body holds.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

from dpledger.api.http.problems import (
    INVALID_INPUT,
    MALFORMED_JSON,
    RefusedRequest,
)

__all__ = ["LARGE_BODY_BYTES", "LISTS", "MAX_BODY_BYTES", "ORDINARY", "BodyLimits", "parse_json"]


@dataclass(frozen=True)
class BodyLimits:
    """How long a body may be, and how many values it may hold: numbers, texts, lists, objects."""

    most_bytes: int
    most_values: int


MAX_BODY_BYTES = 4 * 1024 * 1024
ORDINARY = BodyLimits(512 * 1024, 10_000)
LISTS = BodyLimits(MAX_BODY_BYTES, 100_000)
"""For the routes that take a thousand spends or ten thousand names at once."""
LARGE_BODY_BYTES = 16 * 1024
"""A longer body is parsed and validated in a thread, one at a time, beside the event loop."""
MAX_KEYS = 64
"""Of one object; no shape has half as many."""
MAX_DEPTH = 32
"""Far more than any body has, and far less than what exhausts whoever walks through it."""
_TOO_DEEP = "The body is nested too deeply."


def parse_json(body: bytes) -> Any:
    """Read UTF-8 JSON whose numbers all fit a double and whose objects name each key once."""
    try:
        content = json.loads(
            body.decode("utf-8"),
            parse_constant=_refuse_constant,
            parse_float=_finite_float,
            object_pairs_hook=_object_without_repeats,
        )
    except RecursionError:
        raise RefusedRequest(MALFORMED_JSON, _TOO_DEEP) from None
    except ValueError as error:
        raise RefusedRequest(MALFORMED_JSON, str(error)) from None
    # Most bodies have fewer brackets than that.
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH and _is_deeper(content, MAX_DEPTH):
        raise RefusedRequest(MALFORMED_JSON, _TOO_DEEP)
    return content


def _is_deeper(content: Any, levels: int) -> bool:
    """Whether lists and objects stand in each other more than so many times."""
    nested = [content]
    for _ in range(levels):
        nested = [inner for each in nested for inner in _inside(each)]
    return any(isinstance(each, (dict, list)) for each in nested)


def _inside(content: Any) -> Iterable[Any]:
    if isinstance(content, dict):
        return content.values()
    return content if isinstance(content, list) else ()


def _refuse_constant(name: str) -> NoReturn:
    raise RefusedRequest(INVALID_INPUT, f"{name} is not JSON: every number must be finite.")


def _finite_float(text: str) -> float:
    number = float(text)
    vanished = number == 0.0 and any(digit in "123456789" for digit in text.lower().partition("e")[0])
    if math.isinf(number) or vanished:
        raise RefusedRequest(INVALID_INPUT, f"{text[:40]} does not fit a double-precision number.")
    return number


def _object_without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > MAX_KEYS:
        raise RefusedRequest(INVALID_INPUT, f"One object holds {len(pairs)} keys; the limit is {MAX_KEYS}.")
    found = dict(pairs)
    if len(found) < len(pairs):
        repeated = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise RefusedRequest(MALFORMED_JSON, f"The key {repeated!r} stands twice in one object.")
    return found
