"""Cursored lists: ``limit`` and ``next`` in, ``items`` and ``next`` out."""

import base64
import binascii
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Query

from dpledger.accounting.errors import InvalidInput

__all__ = ["DEFAULT_LIMIT", "MAX_LIMIT", "Cursor", "Limit", "number_after", "page", "text_after"]

DEFAULT_LIMIT = 100
MAX_LIMIT = 1000

Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="How many items at most.")]
Cursor = Annotated[
    str | None,
    Query(alias="next", max_length=1000, description="The `next` of the page before; absent at first."),
]


def page(items: list[dict[str, Any]], limit: int, key: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """The first ``limit`` of ``limit + 1`` items, and the cursor behind them if there are more."""
    shown = items[:limit]
    more = len(items) > limit
    return {"items": shown, "next": _cursor(key(shown[-1])) if more else None}


def text_after(cursor: str | None) -> str:
    """The text behind which a page starts; empty for the first page."""
    if cursor is None:
        return ""
    text = _read(cursor)
    if not text.isprintable():
        raise _not_a_cursor(cursor)
    return text


def number_after(cursor: str | None, first: int = 0) -> int:
    """The number behind which a page starts; ``first`` for the first page."""
    if cursor is None:
        return first
    text = _read(cursor)
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise _not_a_cursor(cursor)
    return int(text)


def _cursor(value: object) -> str:
    return base64.urlsafe_b64encode(str(value).encode()).decode().rstrip("=")


def _read(cursor: str) -> str:
    padded = cursor + "=" * (-len(cursor) % 4)
    try:
        return base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise _not_a_cursor(cursor) from None


def _not_a_cursor(cursor: str) -> InvalidInput:
    return InvalidInput("next", "the next of an earlier page", cursor)
