"""A trusted OpenID Connect issuer: who it is, and which scopes and datasets its claims grant."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from dpledger.auth.scopes import Scope, covers

__all__ = [
    "CALLBACK_PATH",
    "LOGIN_SECONDS",
    "Federation",
    "Grant",
    "LoginClient",
    "is_trusted_url",
    "parse_grants",
]

CALLBACK_PATH = "/dashboard/login/sso/callback"
"""Where the issuer sends a browser back to, below the service's public address."""
LOGIN_SECONDS = 600
"""How long a login may take that was begun."""
MOST_GRANTS = 200
MOST_VALUES = 1000
_DATASET = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_LISTS_IN_TEXTS = ("scope", "scp")
"""Claims whose text is a list with spaces between its values (RFC 8693, 4.2; Entra ID)."""
_BY_STRENGTH = (Scope.ADMIN, Scope.SPEND, Scope.READ)


@dataclass(frozen=True)
class Grant:
    """A scope, for some datasets or for all of them, that a value of the issuer's claim stands for."""

    value: str
    scope: Scope
    datasets: frozenset[str] | None = None


@dataclass(frozen=True)
class LoginClient:
    """The service as the issuer's client, for the dashboard's login."""

    client_id: str
    redirect_url: str
    secret: str | None = field(default=None, repr=False)
    scopes: str = "openid"


@dataclass(frozen=True)
class Federation:
    """An issuer, the audience of its bearer tokens, the client for logins, and what a claim grants."""

    issuer: str
    grants: tuple[Grant, ...]
    claim: str = "groups"
    audience: str | None = None
    login: LoginClient | None = None

    def granted(self, claims: Mapping[str, Any]) -> tuple[frozenset[Scope], frozenset[str] | None] | None:
        """The scopes and datasets of somebody with these claims; None where nothing is granted.

        The strongest scope that any value stands for, for the datasets of every value that stands for
        it. A weaker one on other datasets adds nothing: a caller has one list of datasets, and to unite
        the lists of two scopes would grant the stronger scope on the datasets of the weaker. An email address
        that the issuer did not verify stands for nothing.
        """
        if self.claim == "email" and claims.get("email_verified") is not True:
            return None  # some issuers let anybody write any address into an account
        values = _values(_found(claims, self.claim), self.claim in _LISTS_IN_TEXTS)
        matched = [grant for grant in self.grants if grant.value in values]
        for scope in _BY_STRENGTH:
            lists = [grant.datasets for grant in matched if grant.scope is scope]
            if lists:
                named = [each for each in lists if each is not None]
                return covers([scope]), frozenset().union(*named) if len(named) == len(lists) else None
        return None


def parse_grants(text: str) -> tuple[Grant, ...]:
    """Grants as ``value=scope`` or ``value=scope:dataset,dataset``, with semicolons between them.

    The last ``=`` counts: a group may be named by a distinguished name. Raises ValueError.
    """
    found = tuple(_grant(part) for each in text.split(";") if (part := each.strip()))
    if not 1 <= len(found) <= MOST_GRANTS:
        raise ValueError(f"must list between 1 and {MOST_GRANTS} grants")
    return found


def _grant(text: str) -> Grant:
    value, equals, rest = text.rpartition("=")
    name, colon, listed = rest.partition(":")
    if not equals or not value.strip() or name.strip() not in {scope.value for scope in Scope}:
        raise ValueError(f"{text!r} must be <value>=<scope> or <value>=<scope>:<dataset>,<dataset>")
    datasets = frozenset(each.strip() for each in listed.split(","))
    if colon and not all(_DATASET.fullmatch(each) for each in datasets):
        raise ValueError(f"{text!r} must name datasets behind its colon")
    return Grant(value.strip(), Scope(name.strip()), datasets if colon else None)


def is_trusted_url(url: str) -> bool:
    """Whether a URL may be asked: https, or http on this machine, and without a password or a fragment."""
    try:
        parts = urlsplit(url)
        usable = bool(parts.hostname) and parts.username is None and parts.port != 0 and not parts.fragment
    except ValueError:
        return False
    return usable and (parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK))


def _found(claims: Mapping[str, Any], name: str) -> object:
    """A claim by its own name, or else by a path with dots, such as ``realm_access.roles``."""
    if name in claims:
        return claims[name]
    inner: object = claims
    for part in name.split("."):
        inner = inner.get(part) if isinstance(inner, Mapping) else None
    return inner


def _values(claim: object, is_spaced: bool) -> frozenset[str]:
    """The values of a claim: a list of texts, or one text, which holds several where it lists scopes.

    Some issuers write a list of one group as a text, and groups may have spaces in their names.
    """
    if isinstance(claim, str):
        claim = claim.split() if is_spaced else [claim]
    if not isinstance(claim, list) or len(claim) > MOST_VALUES:
        return frozenset()
    return frozenset(each for each in claim if isinstance(each, str))
