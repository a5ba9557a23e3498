"""Sessions of people who showed a token once and carry a cookie from then on.

The cookie names the token's id and the time at which it ends, under the server's key: it holds nothing
with which the token could be found, and nobody else can make one. The token itself is looked at with
every request, so a session ends with its token.
"""

import hmac
from dataclasses import dataclass

from dpledger.auth.errors import Unauthenticated
from dpledger.auth.gatekeeper import Caller
from dpledger.auth.scopes import Scope, covers
from dpledger.auth.tokens import is_token_id
from dpledger.ledger.clock import Clock
from dpledger.ledger.errors import NotFound
from dpledger.storage.tokens import TokenRow, TokenStore

__all__ = ["SESSION_SECONDS", "Session", "SessionKeeper"]

SESSION_SECONDS = 8 * 3600
_LONGEST_VALUE = 200


@dataclass(frozen=True)
class Session:
    """What goes into the cookie, and for how long it is good."""

    value: str
    seconds: int


class SessionKeeper:
    """Opens sessions and recognises them."""

    def __init__(self, store: TokenStore, token_key: bytes, clock: Clock) -> None:
        self._store = store
        self._key = token_key
        self._clock = clock

    def open(self, token_id: str) -> Session:
        """A session for a token that was checked just now; it ends with the token at the latest."""
        row, now_us = self._store.get(token_id), self._clock.now_us()
        ends_us = now_us + SESSION_SECONDS * 1_000_000
        if row.expires_at_us is not None:
            ends_us = min(ends_us, row.expires_at_us)
        seconds = max(0, (ends_us - now_us) // 1_000_000)
        return Session(f"{token_id}.{ends_us}.{self._seal(row, ends_us)}", seconds)

    def caller(self, value: str | None) -> Caller:
        """Whose session a cookie is; raises Unauthenticated where it is none, or none any more."""
        token_id, ends_us, seal = _parts(value)
        try:
            row = self._store.get(token_id)
        except NotFound:
            raise Unauthenticated from None
        if not hmac.compare_digest(seal.encode(), self._seal(row, ends_us).encode()):
            raise Unauthenticated
        if self._has_ended(row, ends_us):
            raise Unauthenticated
        datasets = None if row.datasets is None else frozenset(row.datasets)
        return Caller(row.id, covers(Scope(scope) for scope in row.scopes), datasets)

    def _has_ended(self, row: TokenRow, ends_us: int) -> bool:
        last_us = ends_us if row.expires_at_us is None else min(ends_us, row.expires_at_us)
        return row.revoked_at_us is not None or last_us <= self._clock.now_us()

    def _seal(self, row: TokenRow, ends_us: int) -> str:
        """Covers the token's own hash too: another token under the same id is another token."""
        statement = b"session\0%s\0%d\0%s" % (row.id.encode(), ends_us, row.keyed_hash)
        return hmac.digest(self._key, statement, "sha256").hex()


def _parts(value: str | None) -> tuple[str, int, str]:
    if value is None or len(value) > _LONGEST_VALUE or not value.isascii():
        raise Unauthenticated
    token_id, _, rest = value.partition(".")
    ends_us, _, seal = rest.partition(".")
    if not (is_token_id(token_id) and ends_us.isdigit() and len(ends_us) < 19):
        raise Unauthenticated
    return token_id, int(ends_us), seal
