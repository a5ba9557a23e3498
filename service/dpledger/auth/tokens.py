"""Bearer tokens: ``dpl_<id>_<secret>``. The id is public; of the rest only a keyed hash is kept.

A token made through the API is derived from the server's key and the request's idempotency key, so
that a repeated request is answered with the same token although its secret is stored nowhere.
"""

import base64
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass, field

__all__ = [
    "MAX_TOKEN_CHARACTERS",
    "MAX_WEB_TOKEN_CHARACTERS",
    "TokenHasher",
    "TokenSecret",
    "WebToken",
    "derived_token",
    "holds_token",
    "is_token_id",
    "new_token",
    "read_token",
    "read_web_token",
]

MAX_TOKEN_CHARACTERS = 128
MAX_WEB_TOKEN_CHARACTERS = 16 * 1024
_ID_BYTES = 10
_SECRET_BYTES = 32
_BLOCK_BYTES = 64
_ID = re.compile(r"[a-z2-7]{1,40}")
_WEB_SHAPE = re.compile(r"eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")
_SHAPE = re.compile(rf"dpl_({_ID.pattern})_[a-z2-7]{{16,80}}")


@dataclass(frozen=True)
class TokenSecret:
    """A token as its bearer holds it; the text never shows in a log."""

    id: str
    text: str = field(repr=False)


@dataclass(frozen=True)
class WebToken:
    """A text that has the shape of an issuer's JSON Web Token; nothing of it is verified."""

    text: str = field(repr=False)


def new_token() -> TokenSecret:
    """A token of the operating system's randomness."""
    return _join(_base32(secrets.token_bytes(_ID_BYTES)), secrets.token_bytes(_SECRET_BYTES))


def derived_token(key: bytes, actor: str, idempotency_key: bytes, request: bytes) -> TokenSecret:
    """The one token that ``actor`` gets for this key and request.

    The id depends on the key alone and the secret on the request too: another request under the
    same key meets the same id with another secret, and is recognised by that.
    """
    origin = actor.encode() + b"\0" + idempotency_key
    token_id = hmac.digest(key, b"token id\0" + origin, "sha256")[:_ID_BYTES]
    return _join(_base32(token_id), hmac.digest(key, b"token secret\0" + origin + request, "sha256"))


def holds_token(text: str) -> bool:
    """Whether a token stands somewhere in a text."""
    return _SHAPE.search(text) is not None


def is_token_id(text: str) -> bool:
    """Whether a text can be the id of a token."""
    return _ID.fullmatch(text) is not None


def read_token(text: str) -> TokenSecret | None:
    """The token that a text is, or None."""
    found = _SHAPE.fullmatch(text) if len(text) <= MAX_TOKEN_CHARACTERS else None
    return None if found is None else TokenSecret(found[1], text)


def read_web_token(text: str) -> WebToken | None:
    """The JSON Web Token that a text looks like, or None."""
    is_one = len(text) <= MAX_WEB_TOKEN_CHARACTERS and _WEB_SHAPE.fullmatch(text) is not None
    return WebToken(text) if is_one else None


class TokenHasher:
    """What is stored of a token: HMAC-SHA256 (RFC 2104) under the server's key.

    Written out from two hashes: every request is checked with it, and the library's one-shot function
    gives the interpreter's lock away, which under load takes far longer than the hash itself.
    """

    def __init__(self, key: bytes) -> None:
        padded = key.ljust(_BLOCK_BYTES, b"\0")
        self._inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in padded))
        self._outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in padded))

    def hash(self, token: TokenSecret) -> bytes:
        """The keyed hash of one token."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(b"token\0" + token.text.encode())
        outer.update(inner.digest())
        return outer.digest()


def _join(token_id: str, secret: bytes) -> TokenSecret:
    return TokenSecret(token_id, f"dpl_{token_id}_{_base32(secret)}")


def _base32(raw: bytes) -> str:
    return base64.b32encode(raw).decode().rstrip("=").lower()
