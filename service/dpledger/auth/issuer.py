"""Making tokens."""

import hmac
from collections.abc import Iterable
from dataclasses import dataclass

from dpledger.auth.scopes import Scope
from dpledger.auth.tokens import TokenHasher, TokenSecret, derived_token, new_token
from dpledger.ledger.clock import Clock
from dpledger.ledger.errors import AlreadyExists, KeyReused
from dpledger.ledger.ports import IdempotentRequest
from dpledger.storage.repositories.tokens import TokenRow, TokenStore

__all__ = ["Issuer", "TokenRequest"]


@dataclass(frozen=True)
class TokenRequest:
    """What a token is to be good for."""

    scopes: frozenset[Scope]
    datasets: frozenset[str] | None = None
    description: str = ""
    expires_in_us: int | None = None
    team: str | None = None


class Issuer:
    """Makes tokens and keeps their hashes."""

    def __init__(self, store: TokenStore, token_key: bytes, clock: Clock) -> None:
        self._store = store
        self._key = token_key
        self._hasher = TokenHasher(token_key)
        self._clock = clock

    def first_token(self) -> TokenSecret | None:
        """An admin token if the ledger has no token yet; of several that ask at once, one gets it."""
        token = new_token()
        request = TokenRequest(frozenset({Scope.ADMIN}), description="made at the first start")
        return token if self._store.add_first(self._row(token, request)) else None

    def create(self, request: TokenRequest) -> TokenSecret:
        """A new token; its secret is nowhere but in the answer."""
        token = new_token()
        self._store.add(self._row(token, request))
        return token

    def create_once(
        self, request: TokenRequest, call: IdempotentRequest
    ) -> tuple[TokenSecret, TokenRow, bool]:
        """The token that this request makes, its row, and whether it was made before."""
        token = derived_token(self._key, call.actor, call.key, call.request)
        row = self._row(token, request)
        try:
            self._store.add(row)
        except AlreadyExists:
            return token, self._made_before(token), True
        return token, row, False

    def _made_before(self, token: TokenSecret) -> TokenRow:
        row = self._store.get(token.id)
        if not hmac.compare_digest(row.keyed_hash, self._hasher.hash(token)):
            raise KeyReused
        return row

    def _row(self, token: TokenSecret, request: TokenRequest) -> TokenRow:
        now_us = self._clock.now_us()
        return TokenRow(
            id=token.id,
            keyed_hash=self._hasher.hash(token),
            scopes=_names(request.scopes),
            datasets=None if request.datasets is None else tuple(sorted(request.datasets)),
            description=request.description,
            created_at_us=now_us,
            expires_at_us=None if request.expires_in_us is None else now_us + request.expires_in_us,
            team=request.team,
        )


def _names(scopes: Iterable[Scope]) -> tuple[str, ...]:
    return tuple(sorted(scope.value for scope in scopes))
