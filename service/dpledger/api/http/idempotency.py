"""Idempotency keys: one request, one decision, however often it is sent.

A key belongs to a token and an address: the same key sent to another dataset is another request. What
was asked is compared by its canonical JSON, so spaces and the order of keys do not matter.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from dpledger.api.http.problems import KEY_INVALID, KEY_MISSING, REPEATED_HEADER, RefusedRequest
from dpledger.ledger.errors import KeyInFlight
from dpledger.ledger.ports import IdempotentRequest

__all__ = [
    "HEADER",
    "REPLAYED_HEADER",
    "InFlight",
    "check_key",
    "check_single",
    "hashed_key",
    "hashed_request",
]

HEADER = "Idempotency-Key"
REPLAYED_HEADER = "Idempotency-Replayed"
MAX_KEY_CHARACTERS = 255
_HASH_BYTES = 16


SINGLE_HEADERS = frozenset({b"authorization", b"content-type", b"idempotency-key", b"if-match"})
"""What a request may say once: of two, one reader would take the first and another the last."""


def check_single(headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Refuse a request that says twice what it may say once."""
    seen: set[bytes] = set()
    for name, _ in headers:
        if name in seen and name in SINGLE_HEADERS:
            kind = KEY_INVALID if name == b"idempotency-key" else REPEATED_HEADER
            raise RefusedRequest(kind, f"The header {name.decode()} was sent twice.")
        seen.add(name)


def check_key(value: bytes | None) -> bytes:
    """The key as it was sent: 1 to 255 printable ASCII characters."""
    if value is None:
        raise RefusedRequest(KEY_MISSING, f"Send {HEADER} with a name of your own for this request.")
    if not (
        1 <= len(value) <= MAX_KEY_CHARACTERS and value.isascii() and value.decode("ascii").isprintable()
    ):
        raise RefusedRequest(
            KEY_INVALID, f"{HEADER} takes 1 to {MAX_KEY_CHARACTERS} printable ASCII characters."
        )
    return value


def hashed_key(path: str, key: bytes) -> bytes:
    """What is stored of a key sent to ``path``."""
    return hashlib.sha256(path.encode() + b"\0" + key).digest()[:_HASH_BYTES]


def hashed_request(content: Any) -> bytes:
    """What is stored of a request, to tell it from another one under the same key."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).digest()[:_HASH_BYTES]


class InFlight:
    """The requests that this process is deciding now."""

    def __init__(self) -> None:
        self._deciding: set[tuple[str, bytes]] = set()

    def __len__(self) -> int:
        return len(self._deciding)

    def enter(self, call: IdempotentRequest) -> tuple[str, bytes]:
        """Note that a request is being decided; refuses one that already is."""
        mark = (call.actor, call.key)
        if mark in self._deciding:
            raise KeyInFlight
        self._deciding.add(mark)
        return mark

    def leave(self, mark: tuple[str, bytes]) -> None:
        """Note that it has been answered."""
        self._deciding.discard(mark)

    @contextmanager
    def deciding(self, call: IdempotentRequest) -> Iterator[None]:
        """Hold a request for as long as it takes to answer it."""
        mark = self.enter(call)
        try:
            yield
        finally:
            self.leave(mark)
