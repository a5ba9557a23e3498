"""Costs that the caller declares, for mechanisms that bring noise of their own.

The client adds nothing here: what the caller's function returns after the yes is what is released. The ledger
marks such an entry as declared.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from dpledger_client._checks import check_non_negative, check_numbers, check_rate
from dpledger_client.mechanisms.base import Mechanism
from dpledger_client.noise import Noise

__all__ = ["GDP", "RDP", "ZCDP", "Approximate", "Pure"]


class Declared(Mechanism):
    """A release whose noise is the caller's own affair."""

    def apply(self, value: Any, noise: Noise) -> Any:
        return value


@dataclass(frozen=True)
class Pure(Declared):
    """A release declared to be ε-DP."""

    kind: ClassVar[str] = "pure"
    epsilon: float

    def __post_init__(self) -> None:
        self._set("epsilon", check_non_negative("epsilon", self.epsilon))


@dataclass(frozen=True)
class Approximate(Declared):
    """A release declared to be (ε, δ)-DP."""

    kind: ClassVar[str] = "approximate"
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        self._set("epsilon", check_non_negative("epsilon", self.epsilon))
        self._set("delta", check_rate("delta", self.delta))


@dataclass(frozen=True)
class ZCDP(Declared):
    """A release declared to be ρ-zCDP."""

    kind: ClassVar[str] = "zcdp"
    rho: float

    def __post_init__(self) -> None:
        self._set("rho", check_non_negative("rho", self.rho))


@dataclass(frozen=True)
class GDP(Declared):
    """A release declared to be μ-GDP."""

    kind: ClassVar[str] = "gdp"
    mu: float

    def __post_init__(self) -> None:
        self._set("mu", check_non_negative("mu", self.mu))


@dataclass(frozen=True)
class RDP(Declared):
    """A release declared by its Rényi curve."""

    kind: ClassVar[str] = "rdp"
    orders: tuple[float, ...]
    epsilons: tuple[float, ...]

    def __post_init__(self) -> None:
        self._set("orders", check_numbers("orders", self.orders))
        self._set("epsilons", check_numbers("epsilons", self.epsilons))
        if len(self.orders) != len(self.epsilons):
            raise ValueError("orders and epsilons must be equally many")
