"""Builds what stands behind a trusted issuer.

It is imported only where one is named: it needs the extra ``oidc``.
"""

from dataclasses import dataclass

from dpledger.auth.bearers import Bearers
from dpledger.auth.federation import Federation
from dpledger.auth.identities import Identities
from dpledger.auth.provider import Provider
from dpledger.auth.sign_on import SignOn
from dpledger.ledger.clock import Clock
from dpledger.storage.repositories.tokens import TokenStore
from dpledger.storage.sessions import SessionStore

__all__ = ["Federated", "open_federation"]


@dataclass(frozen=True)
class Federated:
    """What verifies an issuer's bearer tokens, and what logs people in through it; either may be off."""

    bearers: Bearers | None
    sign_on: SignOn | None


def open_federation(
    federation: Federation, tokens: TokenStore, ended: SessionStore, key: bytes, clock: Clock
) -> Federated:
    """Build both around one memory of the issuer's keys; nothing is asked of it yet."""
    provider, identities = Provider(federation.issuer), Identities(tokens, key, clock)
    bearers = (
        Bearers(federation, federation.audience, provider, identities, clock) if federation.audience else None
    )
    client = federation.login
    sign_on = SignOn(federation, client, provider, identities, ended, key, clock) if client else None
    return Federated(bearers, sign_on)
