"""The five notions of privacy as values, and what is asked of a conversion."""

import dataclasses
import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from dpledger.accounting.errors import InvalidInput
from dpledger.accounting.validation import (
    Floats,
    check_choice,
    check_delta,
    check_non_negative,
    check_open_unit,
    check_orders,
    check_vector,
)

__all__ = [
    "Approximate",
    "Gdp",
    "Guarantee",
    "Notion",
    "Pure",
    "Rdp",
    "Target",
    "Zcdp",
    "guarantee_from_fields",
]


class Notion(enum.Enum):
    """A notion of differential privacy, by its name on the wire."""

    PURE = "pure"
    APPROXIMATE = "approximate"
    ZCDP = "zcdp"
    RDP = "rdp"
    GDP = "gdp"


@dataclass(frozen=True)
class Pure:
    """ε-DP."""

    notion: ClassVar[Notion] = Notion.PURE
    epsilon: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_non_negative("epsilon", self.epsilon))

    def fields(self) -> dict[str, Any]:
        """The wire form."""
        return {"notion": self.notion.value, "epsilon": self.epsilon}


@dataclass(frozen=True)
class Approximate:
    """(ε, δ)-DP; δ in [0, 1)."""

    notion: ClassVar[Notion] = Notion.APPROXIMATE
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_non_negative("epsilon", self.epsilon))
        object.__setattr__(self, "delta", check_delta("delta", self.delta))

    def fields(self) -> dict[str, Any]:
        """The wire form."""
        return {"notion": self.notion.value, "epsilon": self.epsilon, "delta": self.delta}


@dataclass(frozen=True)
class Zcdp:
    """ρ-zCDP: ε(α) ≤ ρ·α at every α > 1."""

    notion: ClassVar[Notion] = Notion.ZCDP
    rho: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "rho", check_non_negative("rho", self.rho))

    def fields(self) -> dict[str, Any]:
        """The wire form."""
        return {"notion": self.notion.value, "rho": self.rho}


@dataclass(frozen=True)
class Gdp:
    """μ-GDP: no easier to tell apart than N(0, 1) and N(μ, 1)."""

    notion: ClassVar[Notion] = Notion.GDP
    mu: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "mu", check_non_negative("mu", self.mu))

    def fields(self) -> dict[str, Any]:
        """The wire form."""
        return {"notion": self.notion.value, "mu": self.mu}


@dataclass(frozen=True, eq=False)
class Rdp:
    """A Rényi curve at given orders, outside an event of probability ``delta``.

    A guarantee is never negative; where a curve is a *budget* (the answer of an inverse problem) an
    order that allows nothing is left out.
    """

    notion: ClassVar[Notion] = Notion.RDP
    orders: Floats
    epsilons: Floats
    delta: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "orders", check_orders(self.orders))
        object.__setattr__(self, "epsilons", check_vector("epsilons", self.epsilons))
        object.__setattr__(self, "delta", check_delta("delta", self.delta))
        if self.epsilons.shape != self.orders.shape:
            raise InvalidInput("epsilons", f"{self.orders.size} numbers, one per order", self.epsilons.size)
        if (self.epsilons < 0.0).any():
            raise InvalidInput("epsilons", "at least 0 at every order", self.epsilons.tolist())

    def fields(self) -> dict[str, Any]:
        """The wire form; ``delta`` only where it is not zero."""
        wire: dict[str, Any] = {"notion": self.notion.value}
        wire |= {"orders": self.orders.tolist(), "epsilons": self.epsilons.tolist()}
        return wire | {"delta": self.delta} if self.delta else wire


Guarantee = Pure | Approximate | Zcdp | Rdp | Gdp

_KINDS: dict[str, type[Pure | Approximate | Zcdp | Rdp | Gdp]] = {
    kind.notion.value: kind for kind in (Pure, Approximate, Zcdp, Rdp, Gdp)
}


def guarantee_from_fields(fields: dict[str, Any]) -> Guarantee:
    """Read the wire form ``{"notion": "zcdp", "rho": 0.5}``; unknown and missing fields are refused."""
    rest = dict(fields)
    kind = _KINDS[check_choice("notion", rest.pop("notion", None), _KINDS)]
    known = [field.name for field in dataclasses.fields(kind)]
    _refuse_unknown(rest, known)
    for name in known:
        if name not in rest and not (kind is Rdp and name == "delta"):
            raise InvalidInput(name, f"given for {kind.notion.value}", None)
    return kind(**rest)


@dataclass(frozen=True, eq=False)
class Target:
    """What a conversion is asked for: a notion, and what that notion leaves free.

    ``approximate`` takes exactly one of ``delta`` (the answer is ε) and ``epsilon`` (the answer is
    δ); ``rdp`` takes ``orders``; the others take nothing.
    """

    notion: Notion
    epsilon: float | None = None
    delta: float | None = None
    orders: Floats | None = None

    def __post_init__(self) -> None:
        if self.epsilon is not None:
            object.__setattr__(self, "epsilon", check_non_negative("epsilon", self.epsilon))
        if self.delta is not None:
            object.__setattr__(self, "delta", check_open_unit("delta", self.delta))
        if self.orders is not None:
            object.__setattr__(self, "orders", check_orders(self.orders))
        self._check_allowed()

    def _check_allowed(self) -> None:
        if self.notion is not Notion.APPROXIMATE and (self.epsilon, self.delta) != (None, None):
            raise InvalidInput("to", "without epsilon and delta unless approximate", self.notion.value)
        if self.notion is not Notion.RDP and self.orders is not None:
            raise InvalidInput("orders", "absent unless the target is rdp", self.notion.value)

    def fields(self) -> dict[str, Any]:
        """The wire form: the notion and what is set."""
        wire: dict[str, Any] = {"notion": self.notion.value}
        wire |= {"epsilon": self.epsilon, "delta": self.delta}
        wire |= {"orders": None if self.orders is None else self.orders.tolist()}
        return {name: value for name, value in wire.items() if value is not None}

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> "Target":
        """Read the wire form ``{"notion": "approximate", "delta": 1e-6}``."""
        rest = dict(fields)
        notion = Notion(check_choice("notion", rest.pop("notion", None), [n.value for n in Notion]))
        _refuse_unknown(rest, ("epsilon", "delta", "orders"))
        return cls(notion, **rest)


def _refuse_unknown(given: dict[str, Any], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            raise InvalidInput(name, "absent: known fields are " + ", ".join(known), given[name])
