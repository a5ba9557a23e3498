"""Releases: a mechanism, how often it may run on its sample, and what for."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from dpledger_client._checks import check_count
from dpledger_client.mechanisms.base import Mechanism

__all__ = ["Release", "Releases", "as_releases"]


@dataclass(frozen=True)
class Release:
    """One mechanism of a step, run up to ``count`` times on the step's sample.

    The whole ``count`` is paid up front. ``purpose`` is a note to whoever reads the ledger, and a name
    by which :meth:`Authorization.release` finds it.
    """

    mechanism: Mechanism
    count: int = 1
    purpose: str | None = None

    def __post_init__(self) -> None:
        check_count("count", self.count)

    def fields(self) -> dict[str, Any]:
        """The wire form; what has its default is left out."""
        wire = self.mechanism.fields()
        if self.count != 1:
            wire["count"] = self.count
        if self.purpose is not None:
            wire["purpose"] = self.purpose
        return wire


Releases: TypeAlias = Mechanism | Release | Sequence[Mechanism | Release]
"""One or several; a bare mechanism is a release of it."""


def as_releases(releases: Releases) -> tuple[Release, ...]:
    """The releases of a step, at least one."""
    if isinstance(releases, Release):
        return (releases,)
    listed = [releases] if isinstance(releases, Mechanism) else list(releases)
    if not listed:
        raise ValueError("a step has at least one release")
    return tuple(each if isinstance(each, Release) else Release(each) for each in listed)
