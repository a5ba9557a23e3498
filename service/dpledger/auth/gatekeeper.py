"""Authenticates bearer tokens: the ledger's own, and an issuer's where one is trusted.

Token rows are kept in memory by id. For reading, a kept row is believed for at most
``FRESH_SECONDS``: a revoked token reads no longer than that. Whatever spends or changes something is
checked again inside the deciding transaction (``Transaction.revoked``), where nothing is kept.
"""

import hmac
import math
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

from dpledger.auth.errors import Forbidden, Unauthenticated
from dpledger.auth.scopes import Scope, covers
from dpledger.auth.tokens import (
    TokenHasher,
    TokenSecret,
    WebToken,
    is_token_id,
    read_token,
    read_web_token,
)
from dpledger.ledger.clock import Clock
from dpledger.ledger.errors import NotFound
from dpledger.storage.repositories.tokens import TokenRow, TokenStore

__all__ = ["FRESH_SECONDS", "Caller", "Gatekeeper", "WebTokenVerifier", "bearer_token"]

FRESH_SECONDS = 2.0
_KEPT = 10_000
_SCHEME = "bearer "


@dataclass(frozen=True)
class Caller:
    """A token that was shown: its id, the scopes it includes, and the datasets it is limited to."""

    id: str
    scopes: frozenset[Scope]
    datasets: frozenset[str] | None = None

    def require(self, scope: Scope, dataset: str | None = None) -> None:
        """Refuse a token without ``scope``, or one that is limited to other datasets than ``dataset``."""
        if scope not in self.scopes:
            raise Forbidden(f"this needs a token with scope {scope.value}")
        if dataset is not None and self.datasets is not None:
            self.require_dataset(dataset)

    def require_dataset(self, name: str) -> None:
        """Refuse a token that is limited to other datasets; whether this one exists is not reported."""
        if self.datasets is not None and name not in self.datasets:
            raise Forbidden(f"this token is limited to other datasets than {name!r}")

    def require_all_datasets(self) -> None:
        """Refuse a token that is limited to some datasets."""
        if self.datasets is not None:
            raise Forbidden("this needs a token that is not limited to some datasets")


class WebTokenVerifier(Protocol):
    """Authenticates the tokens of an issuer."""

    def find_cached(self, token: WebToken, max_age_seconds: float) -> Caller | None:
        """Whose token it is, from memory; None where memory does not know, or no longer."""

    def caller(self, token: WebToken) -> Caller:
        """Whose token it is; verifies it and asks the database."""


@dataclass(frozen=True, eq=False)
class _Kept:
    row: TokenRow
    caller: Caller
    read_at: float


class Gatekeeper:
    """Tells tokens apart from what is none."""

    def __init__(
        self,
        store: TokenStore,
        token_key: bytes,
        clock: Clock,
        elapsed: Callable[[], float] = monotonic,
        web_tokens: WebTokenVerifier | None = None,
    ) -> None:
        self._elapsed = elapsed
        self._web_tokens = web_tokens
        self._store = store
        self._hasher = TokenHasher(token_key)
        self._clock = clock
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._guard = threading.Lock()

    def caller(self, authorization: str | None) -> Caller:
        """Who shows this header; reads the database where memory is not fresh."""
        token = bearer_token(authorization)
        known = self.find_cached(token)
        return known if known is not None else self._looked_up(token)

    def caller_now(self, authorization: str | None) -> Caller:
        """The same from the database alone, for what is not decided in a ledger's transaction."""
        return self._looked_up(bearer_token(authorization))

    def find_cached(
        self, token: TokenSecret | WebToken, max_age_seconds: float = FRESH_SECONDS
    ) -> Caller | None:
        """The same from memory alone; None where memory does not know, or no longer.

        An issuer's token is never believed for longer than ``FRESH_SECONDS``: the deciding transaction
        asks whether its subject was shut out, and not whether its key was withdrawn.
        """
        if isinstance(token, WebToken):
            return self._verifier().find_cached(token, min(max_age_seconds, FRESH_SECONDS))
        kept = self._kept.get(token.id)
        if kept is None or self._elapsed() - kept.read_at > max_age_seconds:
            return None
        row = kept.row
        if not hmac.compare_digest(row.keyed_hash, self._hasher.hash(token)):
            raise Unauthenticated
        expired = row.expires_at_us is not None and row.expires_at_us <= self._clock.now_us()
        if expired or row.revoked_at_us is not None:
            raise Unauthenticated
        return kept.caller

    def revoke(self, token_id: str) -> None:
        """End a token; raises NotFound."""
        if not is_token_id(token_id):
            raise NotFound("token", token_id)
        self._store.revoke(token_id, self._clock.now_us())
        with self._guard:
            self._kept.pop(token_id, None)

    def _verifier(self) -> WebTokenVerifier:
        if self._web_tokens is None:
            raise Unauthenticated
        return self._web_tokens

    def _looked_up(self, token: TokenSecret | WebToken) -> Caller:
        if isinstance(token, WebToken):
            return self._verifier().caller(token)
        try:
            row = self._store.get(token.id)
        except NotFound:
            raise Unauthenticated from None
        with self._guard:
            self._kept[token.id] = _Kept(row, _caller(row), self._elapsed())
            self._kept.move_to_end(token.id)
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        caller = self.find_cached(token, math.inf)
        if caller is None:  # revoked at this moment
            raise Unauthenticated
        return caller


def bearer_token(authorization: str | None) -> TokenSecret | WebToken:
    """The token in an Authorization header."""
    if authorization is None or authorization[: len(_SCHEME)].lower() != _SCHEME:
        raise Unauthenticated
    text = authorization[len(_SCHEME) :].strip()
    token = read_token(text) or read_web_token(text)
    if token is None:
        raise Unauthenticated
    return token


def _caller(row: TokenRow) -> Caller:
    datasets = None if row.datasets is None else frozenset(row.datasets)
    return Caller(row.id, covers(Scope(scope) for scope in row.scopes), datasets)
