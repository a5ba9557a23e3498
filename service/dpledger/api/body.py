"""Reading request bodies strictly: what is not exactly one finite JSON value is refused.

Python's own reader takes ``NaN``, reads 1e400 as infinity and 1e-400 as zero, and keeps the last of two
equal keys. In a ledger each of these would charge something other than what was written.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable
from typing import Any, NoReturn

import anyio.to_thread
from fastapi import Request

from dpledger.api.problems import (
    INVALID_INPUT,
    MALFORMED_JSON,
    PAYLOAD_TOO_LARGE,
    UNSUPPORTED_MEDIA_TYPE,
    RefusedRequest,
)

__all__ = ["MAX_BODY_BYTES", "StrictRequest", "check_media_type", "parse_json"]

MAX_BODY_BYTES = 4 * 1024 * 1024
LARGE_BODY_BYTES = 64 * 1024
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
    found = dict(pairs)
    if len(found) < len(pairs):
        repeated = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise RefusedRequest(MALFORMED_JSON, f"The key {repeated!r} stands twice in one object.")
    return found


class StrictRequest(Request):
    """A request whose body is bounded in size and read by :func:`parse_json`."""

    async def body(self) -> bytes:
        """The body, at most ``MAX_BODY_BYTES`` long."""
        if not hasattr(self, "_body"):
            received = bytearray()
            async for chunk in self.stream():
                received += chunk
                if len(received) > MAX_BODY_BYTES:
                    raise RefusedRequest(PAYLOAD_TOO_LARGE, f"The limit is {MAX_BODY_BYTES} bytes.")
            self._body = bytes(received)
        return self._body

    async def json(self) -> Any:
        """The body as strict JSON; a large one is read in a thread, beside the event loop."""
        if not hasattr(self, "_content"):
            body = await self.body()
            large = len(body) > LARGE_BODY_BYTES
            self._content = await anyio.to_thread.run_sync(parse_json, body) if large else parse_json(body)
        return self._content


def check_media_type(content_type: str) -> None:
    """Refuse what does not say that it is JSON."""
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise RefusedRequest(UNSUPPORTED_MEDIA_TYPE, f"Content-Type is {media_type or 'missing'}.")
