"""Step descriptions: immutable, versioned, canonical values with a stable hash.

A stored description's meaning never changes: when a bound's formula or a field's reading changes in
a way that would alter what an old description says happened, ``STEP_VERSION`` grows and the old
version is still read as before. (A tighter proof of the same description does not change it.)
"""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dpledger.accounting.errors import InvalidInput
from dpledger.accounting.mechanisms import MECHANISMS
from dpledger.accounting.mechanisms.base import Mechanism
from dpledger.accounting.sampling import Adjacency, Sample, Scheme
from dpledger.accounting.validation import check_choice, check_count

__all__ = ["MAX_RELEASES", "STEP_VERSION", "Release", "Step", "mechanism_from_fields", "releases_from_fields"]

STEP_VERSION = 1
MAX_RELEASES = 64


@dataclass(frozen=True)
class Release:
    """One mechanism, repeated up to ``count`` times on the step's sample."""

    mechanism: Mechanism
    count: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", check_count("count", self.count))

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> "Release":
        """Read the wire form of a release; ``purpose`` is the ledger's affair and not read here."""
        rest = dict(fields)
        rest.pop("purpose", None)
        count = rest.pop("count", 1)
        return cls(mechanism_from_fields(rest), count)

    def fields(self) -> dict[str, Any]:
        """The wire form; ``count`` only where it is not one."""
        wire = self.mechanism.fields()
        if self.count != 1:
            wire["count"] = self.count
        return wire


@dataclass(frozen=True)
class Step:
    """Releases that look at one sample together, under an adjacency."""

    releases: tuple[Release, ...]
    sample: Sample = field(default_factory=Sample)
    adjacency: Adjacency = Adjacency.ADD_REMOVE

    def __post_init__(self) -> None:
        if not 1 <= len(self.releases) <= MAX_RELEASES:
            raise InvalidInput("releases", f"1 to {MAX_RELEASES} of them", len(self.releases))
        ordered = tuple(sorted(self.releases, key=lambda release: _canonical_json(release.fields())))
        object.__setattr__(self, "releases", ordered)

    @classmethod
    def from_fields(
        cls, releases: list[dict[str, Any]], sample: dict[str, Any] | None, adjacency: str
    ) -> "Step":
        """Read the wire form used by authorizations and cost queries."""
        chosen = check_choice("adjacency", adjacency, [a.value for a in Adjacency])
        drawn = Sample() if sample is None else Sample.from_fields(sample)
        return cls(tuple(Release.from_fields(r) for r in releases), drawn, Adjacency(chosen))

    @property
    def needs_equal_sizes(self) -> bool:
        """Whether its bound holds only if neighbours have equally many records in what it looks at."""
        drawn = self.sample.scheme is Scheme.WITHOUT_REPLACEMENT
        return drawn or any(release.mechanism.needs_equal_sizes for release in self.releases)

    @functools.cached_property
    def canonical(self) -> str:
        """The one text that stands for this description."""
        return _canonical_json(
            {
                "version": STEP_VERSION,
                "adjacency": self.adjacency.value,
                "sample": self.sample.fields(),
                "releases": [release.fields() for release in self.releases],
            }
        )

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical text, in hexadecimal."""
        return hashlib.sha256(self.canonical.encode()).hexdigest()

    @classmethod
    def from_canonical(cls, text: str) -> "Step":
        """Read a stored description back; refuses a version that this code does not know."""
        stored = json.loads(text)
        if stored.get("version") != STEP_VERSION:
            raise InvalidInput("version", f"{STEP_VERSION}", stored.get("version"))
        return cls.from_fields(stored["releases"], stored["sample"], stored["adjacency"])


def releases_from_fields(releases: Sequence[dict[str, Any]], where: str = "") -> tuple[Release, ...]:
    """Read the wire forms of releases; an error names the one that it is in, after ``where``.

    Several tunings in one step would take as much of everybody's time as so many steps.
    """
    found = tuple(_release(f"{where}releases[{index}]", fields) for index, fields in enumerate(releases))
    expensive = sum(each.mechanism.expensive_parts for each in found)
    if expensive > MAX_RELEASES:
        requirement = f"of at most {MAX_RELEASES} that take long to price, those of tunings' trials included"
        raise InvalidInput(f"{where}releases", requirement, expensive)
    return found


def _release(where: str, fields: dict[str, Any]) -> Release:
    try:
        return Release.from_fields(fields)
    except InvalidInput as error:
        raise error.inside(where) from error


def mechanism_from_fields(fields: dict[str, Any]) -> Mechanism:
    """Build a mechanism from its wire fields; unknown kinds and fields are refused."""
    rest = dict(fields)
    kind = check_choice("mechanism", rest.pop("mechanism", None), sorted(MECHANISMS))
    chosen = MECHANISMS[kind]
    known = {f.name: f for f in dataclasses.fields(chosen)}  # type: ignore[arg-type]
    for name in rest:
        if name not in known:
            raise InvalidInput(name, f"absent: {kind} takes {', '.join(known)}", rest[name])
    missing = [name for name, f in known.items() if _is_required(f) and name not in rest]
    if missing:
        raise InvalidInput(missing[0], f"given for {kind}", None)
    values = {name: tuple(v) if isinstance(v, list) else v for name, v in rest.items()}
    return chosen(**values)


def _is_required(dataclass_field: Any) -> bool:
    return (
        dataclass_field.default is dataclasses.MISSING
        and dataclass_field.default_factory is dataclasses.MISSING
    )


def _canonical_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
