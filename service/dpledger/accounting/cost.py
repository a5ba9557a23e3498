"""Costs of releases and steps: a Rényi curve, and the other notions that exist beside it."""

from dataclasses import dataclass

import numpy as np

from dpledger.accounting.errors import InvalidInput
from dpledger.accounting.rounding import Direction, add, scale, widen
from dpledger.accounting.validation import (
    Floats,
    check_count,
    check_delta,
    check_non_negative,
    check_orders,
)

__all__ = ["Cost"]


@dataclass(frozen=True, eq=False)
class Cost:
    """A proven upper bound on privacy loss, in every notion that applies.

    Parameters
    ----------
    orders, epsilons
        The Rényi curve: for neighbouring inputs, in either direction, the divergence of order
        ``orders[i]`` is at most ``epsilons[i]`` outside an event of probability ``delta``.
    delta
        Additive δ carried beside the curve (δ-approximate RDP; Bun and Steinke 2016, section 8).
        It adds up under composition.
    rho
        zCDP parameter (Bun and Steinke 2016): ε(α) ≤ ρ·α at every α > 1. None where none is proven.
    mu
        Gaussian DP parameter (Dong, Roth, Su 2022): no easier to tell apart than N(0, 1) and
        N(μ, 1). None where none is proven.
    pure_epsilon
        Pure DP parameter. None where there is none.

    ``rho``, ``mu`` and ``pure_epsilon`` also hold outside the event of probability ``delta``.
    """

    orders: Floats
    epsilons: Floats
    delta: float = 0.0
    rho: float | None = None
    mu: float | None = None
    pure_epsilon: float | None = None

    def __post_init__(self) -> None:
        epsilons = self.epsilons
        if epsilons.shape != self.orders.shape:
            raise InvalidInput("epsilons", f"{self.orders.size} numbers, one per order", epsilons.size)
        if not (np.isfinite(epsilons).all() and (epsilons >= 0.0).all()):
            raise InvalidInput("epsilons", "finite and at least 0 at every order", epsilons.tolist())
        check_delta("delta", self.delta)
        for field in ("rho", "mu", "pure_epsilon"):
            value = getattr(self, field)
            if value is not None:
                check_non_negative(field, value)
        epsilons.flags.writeable = False

    @classmethod
    def zero(cls, orders: Floats) -> "Cost":
        """The cost of releasing nothing."""
        return cls(check_orders(orders), np.zeros(len(orders)), rho=0.0, mu=0.0, pure_epsilon=0.0)

    def __add__(self, other: "Cost") -> "Cost":
        """Composition: curves, ρ, pure ε and δ add, μ adds in squares; each sum is rounded up."""
        if not np.array_equal(self.orders, other.orders):
            raise InvalidInput("orders", "the same in both costs", other.orders.tolist())
        return Cost(
            self.orders,
            add(self.epsilons, other.epsilons, Direction.UP),
            _add_delta(self.delta, other.delta),
            _add_optional(self.rho, other.rho),
            _add_in_squares(self.mu, other.mu),
            _add_optional(self.pure_epsilon, other.pure_epsilon),
        )

    def repeated(self, times: int) -> "Cost":
        """The cost of ``times`` repetitions, rounded up."""
        check_count("times", times)
        if times == 1:
            return self
        up = Direction.UP
        return Cost(
            self.orders,
            scale(self.epsilons, times, up),
            _checked_delta(scale(self.delta, times, up)),
            None if self.rho is None else scale(self.rho, times, up),
            None if self.mu is None else _widen(self.mu * float(np.sqrt(times))),
            None if self.pure_epsilon is None else scale(self.pure_epsilon, times, up),
        )


def _checked_delta(delta: float) -> float:
    if not delta < 1.0:
        raise InvalidInput("delta", "below 1 after composition", delta)
    return delta


def _add_delta(first: float, second: float) -> float:
    return _checked_delta(add(first, second, Direction.UP))


def _add_optional(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else add(first, second, Direction.UP)


def _add_in_squares(first: float | None, second: float | None) -> float | None:
    if first is None or second is None:
        return None
    if first == 0.0 or second == 0.0:
        return first + second
    return _widen(float(np.hypot(first, second)))


def _widen(value: float) -> float:
    return value if value == 0.0 else widen(value, Direction.UP, ulps=4)
