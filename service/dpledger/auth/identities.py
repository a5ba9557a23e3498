"""The issuer's subjects as actors of the ledger: each has one row among the tokens, and no secret.

An actor is known by the same id however often its token is renewed, so that a request that is repeated
with a new one is the same request. The row is what an administrator revokes to shut a subject out.
"""

import base64
import hmac
from dataclasses import dataclass

from dpledger.auth.scopes import Scope
from dpledger.ledger.clock import Clock
from dpledger.ledger.errors import AlreadyExists, NotFound
from dpledger.storage.repositories.tokens import TokenRow, TokenStore

__all__ = ["Identities", "Identity"]

_ID_BYTES = 10


@dataclass(frozen=True)
class Identity:
    """A subject of the issuer, and what its claims grant at the moment."""

    issuer: str
    subject: str
    scopes: frozenset[Scope]
    datasets: frozenset[str] | None


class Identities:
    """Finds and makes the rows of subjects."""

    def __init__(self, store: TokenStore, key: bytes, clock: Clock) -> None:
        self._store = store
        self._key = key
        self._clock = clock

    def row(self, identity: Identity) -> TokenRow:
        """The row of a subject, made where there is none; one that is there stays as it is."""
        row = self._row(identity)
        try:
            return self._store.get(row.id)
        except NotFound:
            pass
        try:
            self._store.add(row)
        except AlreadyExists:  # made by another request in between
            return self._store.get(row.id)
        return row

    def update(self, identity: Identity) -> TokenRow:
        """The row of a subject with what is granted now; a revoked one stays revoked."""
        return self._store.put(self._row(identity))

    def _row(self, identity: Identity) -> TokenRow:
        origin = b"%s\0%s" % (identity.issuer.encode(), identity.subject.encode())
        named = hmac.digest(self._key, b"identity id\0" + origin, "sha256")[:_ID_BYTES]
        return TokenRow(
            id=base64.b32encode(named).decode().rstrip("=").lower(),
            # No token hashes to this: tokens are hashed under another prefix.
            keyed_hash=hmac.digest(self._key, b"identity\0" + origin, "sha256"),
            scopes=tuple(sorted(scope.value for scope in identity.scopes)),
            datasets=None if identity.datasets is None else tuple(sorted(identity.datasets)),
            description=f"single sign-on: {identity.subject}",
            created_at_us=self._clock.now_us(),
        )
