"""Sessions of people who showed a token once and carry a cookie from then on.

The cookie names the token's id, the time at which it ends and a number of its own, under the server's
key: it holds nothing with which the token could be found, and nobody else can make one. The token itself
is looked at with every request, so a session ends with its token. A session that somebody logged out of
is kept in the database as ended, so that a copy of its cookie opens nothing, at any replica.
"""

import hmac
import re
import secrets
from dataclasses import dataclass

from dpledger.auth.errors import Unauthenticated
from dpledger.auth.gatekeeper import Caller
from dpledger.auth.scopes import Scope, covers
from dpledger.auth.tokens import is_token_id
from dpledger.ledger.clock import Clock
from dpledger.ledger.errors import NotFound
from dpledger.storage.repositories.tokens import TokenRow, TokenStore
from dpledger.storage.sessions import SessionStore

__all__ = ["SESSION_SECONDS", "Session", "SessionKeeper"]

SESSION_SECONDS = 8 * 3600
_LONGEST_VALUE = 200
_NUMBER_BYTES = 16
_VALUE = re.compile(r"([^.]+)\.([0-9]{1,18})\.([0-9a-f]{32})\.([0-9a-f]{64})")


@dataclass(frozen=True)
class Session:
    """What goes into the cookie, and for how long it is good."""

    value: str
    seconds: int


class SessionKeeper:
    """Opens sessions, recognises them and ends them."""

    def __init__(self, store: TokenStore, ended: SessionStore, token_key: bytes, clock: Clock) -> None:
        self._store = store
        self._ended = ended
        self._key = token_key
        self._clock = clock

    def open(self, token_id: str) -> Session:
        """A session for a token that was checked just now; it ends with the token at the latest."""
        row, now_us = self._store.get(token_id), self._clock.now_us()
        ends_us = now_us + SESSION_SECONDS * 1_000_000
        if row.expires_at_us is not None:
            ends_us = min(ends_us, row.expires_at_us)
        seconds = max(0, (ends_us - now_us) // 1_000_000)
        number = secrets.token_bytes(_NUMBER_BYTES)
        seal = self._seal(row, ends_us, number)
        return Session(f"{token_id}.{ends_us}.{number.hex()}.{seal}", seconds)

    def caller(self, value: str | None) -> Caller:
        """Whose session a cookie is; raises Unauthenticated where it is none, or none any more."""
        row, _, _ = self._valid(value)
        datasets = None if row.datasets is None else frozenset(row.datasets)
        return Caller(row.id, covers(Scope(scope) for scope in row.scopes), datasets)

    def end(self, value: str | None) -> None:
        """End a session for good; what is no session, or none any more, needs no end."""
        try:
            _, ends_us, number = self._valid(value)
        except Unauthenticated:
            return
        self._ended.end(number, ends_us, self._clock.now_us())

    def _valid(self, value: str | None) -> tuple[TokenRow, int, bytes]:
        """The token behind a cookie, when its session ends, and its number."""
        token_id, ends_us, number, seal = _parts(value)
        try:
            row = self._store.get(token_id)
        except NotFound:
            raise Unauthenticated from None
        if not hmac.compare_digest(seal, self._seal(row, ends_us, number)):
            raise Unauthenticated
        if self._has_ended(row, ends_us) or self._ended.has_ended(number):
            raise Unauthenticated
        return row, ends_us, number

    def _has_ended(self, row: TokenRow, ends_us: int) -> bool:
        last_us = ends_us if row.expires_at_us is None else min(ends_us, row.expires_at_us)
        return row.revoked_at_us is not None or last_us <= self._clock.now_us()

    def _seal(self, row: TokenRow, ends_us: int, number: bytes) -> str:
        """Covers the token's own hash too: another token under the same id is another token."""
        statement = b"session\0%s\0%d\0%s\0%s" % (row.id.encode(), ends_us, number, row.keyed_hash)
        return hmac.digest(self._key, statement, "sha256").hex()


def _parts(value: str | None) -> tuple[str, int, bytes, str]:
    """The token's id, the end, the number and the seal that a cookie names."""
    if value is None or len(value) > _LONGEST_VALUE:
        raise Unauthenticated
    found = _VALUE.fullmatch(value)
    if found is None or not is_token_id(found[1]):
        raise Unauthenticated
    return found[1], int(found[2]), bytes.fromhex(found[3]), found[4]
