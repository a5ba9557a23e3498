"""Authenticates machines by the issuer's bearer tokens.

A token that was verified is kept for a moment, so that a training does not pay for a signature with
every step; its times are compared with every request.
"""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from dpledger.auth.errors import Forbidden, Unauthenticated
from dpledger.auth.federation import Federation
from dpledger.auth.gatekeeper import Caller
from dpledger.auth.identities import Identities, Identity
from dpledger.auth.provider import Provider
from dpledger.auth.tokens import WebToken
from dpledger.auth.web_tokens import ACCESS_TYPES, verify_token
from dpledger.ledger.clock import Clock

__all__ = ["Bearers"]

_KEPT = 10_000


@dataclass(frozen=True, eq=False)
class _Kept:
    caller: Caller
    ends_at_us: int
    read_at: float


class Bearers:
    """Verifies the issuer's tokens for one audience."""

    def __init__(
        self,
        federation: Federation,
        audience: str,
        provider: Provider,
        identities: Identities,
        clock: Clock,
        elapsed: Callable[[], float] = monotonic,
    ) -> None:
        self._federation = federation
        self._audience = audience
        self._provider = provider
        self._identities = identities
        self._clock = clock
        self._elapsed = elapsed
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()
        self._guard = threading.Lock()

    def find_cached(self, token: WebToken, max_age_seconds: float) -> Caller | None:
        """Whose token this is, from memory; None where memory does not know, or no longer."""
        kept = self._kept.get(_digest(token))
        if kept is None or self._elapsed() - kept.read_at > max_age_seconds:
            return None
        if kept.ends_at_us <= self._clock.now_us():
            raise Unauthenticated
        return kept.caller

    def caller(self, token: WebToken) -> Caller:
        """Whose token this is; verifies it, and asks the database whether the subject was shut out."""
        now_us = self._clock.now_us()
        found = verify_token(token, self._provider, self._audience, now_us, ACCESS_TYPES)
        granted = self._federation.granted(found.claims)
        if granted is None:
            raise Forbidden("no grant of this service belongs to this token's claims")
        row = self._identities.row(Identity(self._federation.issuer, found.subject, *granted))
        if row.revoked_at_us is not None:
            raise Unauthenticated
        caller = Caller(row.id, *granted)
        with self._guard:
            self._kept[_digest(token)] = _Kept(caller, found.ends_at_us, self._elapsed())
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return caller


def _digest(token: WebToken) -> bytes:
    return hashlib.sha256(token.text.encode()).digest()
