"""Scopes of tokens."""

import enum
from collections.abc import Iterable

__all__ = ["Scope", "covers"]


class Scope(enum.Enum):
    """Each scope includes the ones below it."""

    ADMIN = "admin"
    """Open datasets and partitions, change budgets, make and revoke tokens."""

    SPEND = "spend"
    """Authorize, reserve and settle."""

    READ = "read"
    """Read budgets, entries, runs and costs."""


_INCLUDED = {
    Scope.ADMIN: frozenset(Scope),
    Scope.SPEND: frozenset({Scope.SPEND, Scope.READ}),
    Scope.READ: frozenset({Scope.READ}),
}


def covers(granted: Iterable[Scope]) -> frozenset[Scope]:
    """Every scope that these scopes include."""
    return frozenset().union(*(_INCLUDED[scope] for scope in granted))
