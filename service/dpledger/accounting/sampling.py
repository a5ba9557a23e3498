"""Adjacency, and how the part of the dataset that a step looks at is drawn."""

import enum
from dataclasses import dataclass
from typing import Any

from dpledger.accounting.errors import InvalidInput
from dpledger.accounting.validation import check_choice, check_rate

__all__ = ["Adjacency", "Sample", "Scheme"]


class Adjacency(enum.Enum):
    """When two datasets are neighbours."""

    ADD_REMOVE = "add-remove"
    REPLACE_ONE = "replace-one"


class Scheme(enum.Enum):
    """How a sample is drawn."""

    FULL = "full"
    POISSON = "poisson"
    WITHOUT_REPLACEMENT = "without-replacement"


@dataclass(frozen=True)
class Sample:
    """The part of the dataset that one step looks at.

    ``rate`` is each record's probability (Poisson: independent coins; without replacement: the
    sample's size over the dataset's size, a public number). A full look has no rate.
    """

    scheme: Scheme = Scheme.FULL
    rate: float | None = None

    def __post_init__(self) -> None:
        if self.scheme is Scheme.FULL:
            if self.rate is not None and self.rate != 1.0:
                raise InvalidInput("sample.rate", "absent for a full look", self.rate)
            object.__setattr__(self, "rate", None)
        else:
            object.__setattr__(self, "rate", check_rate("sample.rate", self.rate))

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> "Sample":
        """Read the wire form ``{"scheme": …, "rate": …}``."""
        unknown = set(fields) - {"scheme", "rate"}
        if unknown:
            raise InvalidInput("sample", "an object with scheme and rate", sorted(unknown))
        scheme = check_choice("sample.scheme", fields.get("scheme"), [s.value for s in Scheme])
        return cls(Scheme(scheme), fields.get("rate"))

    def fields(self) -> dict[str, Any]:
        """The wire form."""
        wire: dict[str, Any] = {"scheme": self.scheme.value}
        if self.rate is not None:
            wire["rate"] = self.rate
        return wire
