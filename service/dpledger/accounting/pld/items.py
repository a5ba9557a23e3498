"""The pairs that dominate one release, from the numbers that mechanisms are described by.

A mechanism says which of these it is: ``Mechanism.dominating_pairs``.
"""

import functools

from dpledger.accounting.errors import InvalidInput
from dpledger.accounting.pld.pairs import (
    BoundedRangePair,
    DominatingPair,
    GaussianPair,
    LaplacePair,
    randomized_response_pair,
)

__all__ = [
    "LARGEST_LOSS",
    "Items",
    "bounded_range_items",
    "check_mu",
    "check_rho",
    "gaussian_items",
    "laplace_items",
    "nothing_lost",
    "private_items",
]

Items = tuple[tuple[DominatingPair, int], ...]
"""Pairs with multiplicities; none at all where nothing is lost."""

LARGEST_LOSS = 650.0
"""A step's losses beyond this are refused: their exponentials are no floats, and no budget allows them."""
_LARGEST_MU = 16.0
"""μ²/2 + 32μ stays below it."""
_LARGEST_RHO = 128.0
"""ρ + 2√(512ρ) stays below it."""

_atoms = functools.lru_cache(maxsize=256)(randomized_response_pair)


def gaussian_items(mu: float) -> Items:
    """N(μ, 1) against N(0, 1)."""
    return ((GaussianPair(check_mu(mu)), 1),) if mu else ()


def laplace_items(shift: float, times: int = 1) -> Items:
    """Laplace noise under a shift of so many scales in L1, ``times`` over."""
    return ((LaplacePair(_bounded("sensitivity / scale", shift)), times),) if shift else ()


def bounded_range_items(epsilon: float) -> Items:
    """Whatever has bounded range ε."""
    return ((BoundedRangePair(_bounded("epsilon", epsilon)), 1),) if epsilon else ()


def private_items(epsilon: float, delta: float) -> Items:
    """Whatever is (ε, δ)-DP: the pair of randomized response with e^ε, and δ."""
    if epsilon == 0.0 and delta == 0.0:
        return ()
    return ((_atoms(_bounded("epsilon", epsilon) if epsilon else 0.0, delta), 1),)


def nothing_lost() -> DominatingPair:
    """The pair of two equal laws."""
    return _atoms(0.0, 0.0)


def check_mu(mu: float) -> float:
    """A μ whose losses a grid can hold."""
    return _bounded("mu", mu, _LARGEST_MU)


def check_rho(rho: float) -> float:
    """A ρ whose losses a grid can hold."""
    return _bounded("rho", rho, _LARGEST_RHO, 1e-20)


def _bounded(field: str, value: float, most: float = LARGEST_LOSS, least: float = 1e-12) -> float:
    """A parameter whose losses a grid can hold; tiny ones are rounded up."""
    if value > most:
        raise InvalidInput(field, f"at most {most:g} for privacy-loss distributions", value)
    return max(value, least)
