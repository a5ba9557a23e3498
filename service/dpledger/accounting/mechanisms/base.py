"""Base class of the mechanisms."""

import abc
import dataclasses
from fractions import Fraction
from typing import Any, ClassVar

from dpledger.accounting.cost import Cost
from dpledger.accounting.exact import as_given
from dpledger.accounting.sampling import Adjacency
from dpledger.accounting.validation import Floats

__all__ = ["Mechanism"]


class Mechanism(abc.ABC):
    """How noise is added: an immutable value of kind and numbers.

    Subclasses are frozen dataclasses whose fields are the wire fields; ``__post_init__`` checks
    every one of them and normalises numbers to floats, so that equal descriptions are equal bytes.
    """

    kind: ClassVar[str]
    declared: ClassVar[bool] = False
    """True where the cost is the caller's own statement rather than derived here."""
    needs_equal_sizes: ClassVar[bool] = False
    """True where the bound holds only if neighbours have equally many records."""

    @abc.abstractmethod
    def cost(self, orders: Floats, adjacency: Adjacency) -> Cost:
        """Upper bound on the cost of one release on a sample looked at in full.

        The curve bounds both directions of every neighbouring pair. ``orders`` has been checked;
        any real orders above 1 are allowed.
        """

    @property
    def gaussian_mu(self) -> float | None:
        """Sensitivity over noise for exactly Gaussian noise; None for everything else."""
        return None

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
