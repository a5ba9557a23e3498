"""Base class of the mechanisms."""

import abc
import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Self, cast

import numpy as np

from dpledger.accounting.cost import Cost
from dpledger.accounting.errors import Unproven
from dpledger.accounting.exact import as_given
from dpledger.accounting.pld.items import Items, gaussian_items, private_items
from dpledger.accounting.sampling import Adjacency
from dpledger.accounting.validation import Floats

__all__ = ["SCALE", "STANDARD_DEVIATION", "Mechanism", "NoiseField", "NoiseLevel"]

_ONE_ORDER = np.array([2.0])
_SENSITIVITY = "sensitivity"
_HINTS = "__annotations__"


@dataclass(frozen=True)
class NoiseField:
    """The field of a mechanism that holds the size of its noise, and the letter that is written for it."""

    name: str
    symbol: str


STANDARD_DEVIATION = NoiseField("noise_std", "σ")
SCALE = NoiseField("scale", "b")


@dataclass(frozen=True)
class NoiseLevel:
    """The size of a release's noise over its sensitivity, for a reader: ``symbol``/Δ = ``ratio``."""

    symbol: str
    ratio: float

    @classmethod
    def of(cls, symbol: str, size: float, sensitivity: float) -> "NoiseLevel | None":
        """The level; None where no double holds it."""
        ratio = size / sensitivity if sensitivity else math.inf
        return cls(symbol, ratio) if math.isfinite(ratio) else None


class Mechanism(abc.ABC):
    """How noise is added: an immutable value of kind and numbers.

    Subclasses are frozen dataclasses whose fields are the wire fields; ``__post_init__`` checks
    every one of them and normalises numbers to floats, so that equal descriptions are equal bytes.
    A class that leaves out ``kind``, ``expensive``, ``noise_field`` or the ``choices`` of a word is refused
    when it is defined.
    """

    kind: ClassVar[str]
    """Its name on the wire."""
    expensive: ClassVar[bool]
    """True where pricing one release may take seconds; 64 releases of any other take less than one."""
    noise_field: ClassVar[NoiseField | None]
    """The noise that a calibration may solve for; None where no field alone is that."""
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """The words that each field takes that is a word."""
    declared: ClassVar[bool] = False
    """True where the cost is the caller's own statement rather than derived here."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        missing = [name for name in ("kind", "expensive", "noise_field") if not hasattr(cls, name)]
        missing = missing or _missing(cls)
        if missing:
            raise TypeError(f"{cls.__qualname__} lacks {', '.join(missing)}")

    @abc.abstractmethod
    def cost(self, orders: Floats, adjacency: Adjacency) -> Cost:
        """Upper bound on the cost of one release on a sample looked at in full.

        The curve bounds both directions of every neighbouring pair. ``orders`` has been checked;
        any real orders above 1 are allowed.
        """

    @property
    def expensive_parts(self) -> int:
        """How many releases have to be priced for one of it that take long each."""
        return int(self.expensive)

    @property
    def needs_equal_sizes(self) -> bool:
        """Whether the bound holds only if neighbours have equally many records."""
        return False

    @property
    def gaussian_mu(self) -> float | None:
        """Sensitivity over noise for exactly Gaussian noise; None for everything else."""
        return None

    @property
    def dominating_mu(self) -> float | None:
        """μ of the Gaussian pair that dominates it in full; None where no such pair is known."""
        return self.gaussian_mu

    @property
    def laplace_shift(self) -> float | None:
        """L1 sensitivity over scale for exactly Laplace noise, rounded up; None for everything else."""
        return None

    @property
    def private_claim(self) -> tuple[float, float] | None:
        """(ε, δ) of what is charged by the pair of randomized response; None for everything else."""
        return None

    @property
    def noise_level(self) -> NoiseLevel | None:
        """The noise over the sensitivity; None where there is no such number."""
        if self.noise_field is None:
            return None
        size: float = getattr(self, self.noise_field.name)
        sensitivity: float = getattr(self, _SENSITIVITY)
        return NoiseLevel.of(self.noise_field.symbol, size, sensitivity)

    def dominating_pairs(self, adjacency: Adjacency) -> Items:
        """The pairs that dominate one release on a sample looked at in full, the same in both directions.

        Statement: the Gaussian pair of ``dominating_mu`` where there is one; otherwise, for what is ε-DP up
        to δ, the pair of randomized response with e^ε and δ.
        Conditions: those of :meth:`cost`, whose checks are made on the way.
        Source: Dong, Roth, Su 2022; Kairouz, Oh, Viswanath 2015.

        Raises
        ------
        Unproven
            Where neither applies.
        """
        if self.dominating_mu is not None:
            return gaussian_items(self.dominating_mu)
        cost = self.cost(_ONE_ORDER, adjacency)
        if cost.pure_epsilon is None:
            raise Unproven(f"{self.kind} has no dominating pair that is proven here")
        return private_items(cost.pure_epsilon, cost.delta)

    def dominates(self, other: "Mechanism", adjacency: Adjacency) -> bool:
        """Whether its pair on a sample provably dominates that of another mechanism.

        Statement: by equality; by μ' ≤ μ where both have a Gaussian pair; by ε' ≤ ε and δ' ≤ δ where both are
        charged by the pair of randomized response, which dominates whatever is (ε', δ')-private; between
        mechanisms of one kind by :meth:`dominates_alike`.
        Source: Blackwell 1953; Kairouz, Oh, Viswanath 2015; see :mod:`dpledger.accounting.pld.domination`.
        """
        if self == other:
            return True
        mine, theirs = self.dominating_mu, other.dominating_mu
        if mine is not None and theirs is not None:
            return theirs <= mine
        claim, claimed = self.private_claim, other.private_claim
        if claim is not None and claimed is not None:
            return claimed[0] <= claim[0] and claimed[1] <= claim[1]
        return type(self) is type(other) and self.dominates_alike(cast(Any, other), adjacency)

    def dominates_alike(self, other: Self, adjacency: Adjacency) -> bool:
        """Whether it dominates another of its own kind by monotone parameters; not, unless that is proven."""
        return False

    @property
    def exact_rho(self) -> Fraction | None:
        """ρ where it is a rational function of the numbers as given; None where only a bound is known."""
        squared = self.exact_mu_squared
        return None if squared is None else squared / 2

    @property
    def exact_mu_squared(self) -> Fraction | None:
        """μ² where it is a rational function of the numbers as given; None where only a bound is known."""
        return None

    @property
    def exact_pure_epsilon(self) -> Fraction | None:
        """Pure ε where it is a number as given; None where there is none, or only a bound is known."""
        return None

    @property
    def exact_delta(self) -> Fraction:
        """The additive δ as given; 0 for a mechanism without one."""
        return as_given(getattr(self, "delta", 0.0))

    def exact_epsilon(self, order: float, as_read: Fraction) -> Fraction | None:
        """The Rényi cost at ``order``, read as ``as_read``: α·ρ where ρ is exact, and so the curve."""
        rho = self.exact_rho
        return None if rho is None else as_read * rho

    def fields(self) -> dict[str, Any]:
        """The wire form: ``mechanism`` and every field that is set."""
        wire: dict[str, Any] = {"mechanism": self.kind}
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if value is not None:
                wire[field.name] = list(value) if isinstance(value, tuple) else value
        return wire


def _missing(mechanism: type[Mechanism]) -> list[str]:
    """What a class does not say of the fields that it has."""
    hints = {name: hint for each in mechanism.__mro__ for name, hint in each.__dict__.get(_HINTS, {}).items()}
    words = [name for name, hint in hints.items() if hint in (str, "str")]
    missing = [f"the choices of {name}" for name in words if name not in mechanism.choices]
    if mechanism.noise_field is not None and mechanism.noise_field.name not in hints:
        missing.append(f"the field {mechanism.noise_field.name}")
    inherited = mechanism.noise_level is Mechanism.noise_level
    if mechanism.noise_field is not None and inherited and _SENSITIVITY not in hints:
        missing.append(f"the field {_SENSITIVITY}, or a noise_level of its own")
    return missing
