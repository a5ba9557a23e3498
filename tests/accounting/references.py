"""Slow, obvious references: exact divergences at 50 digits, by enumeration and by quadrature.

Nothing here shares code with the package. A discrete distribution is a list of probabilities over the
same outcomes in the same order; a density is a function of one mpmath number.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import mpmath
import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from mpmath import mp

from dpledger.accounting.orders import DEFAULT_ORDERS
from dpledger.accounting.validation import Floats

__all__ = [
    "SOME_ORDERS",
    "Density",
    "Number",
    "assert_bounds",
    "bernoulli",
    "digits",
    "gaussian_density",
    "hockey_stick",
    "hockey_stick_by_quadrature",
    "kl",
    "laplace_density",
    "log_uniform",
    "moderately",
    "renyi",
    "renyi_both_ways",
    "renyi_by_quadrature",
    "renyi_by_quadrature_both_ways",
]

Number = Any
"""An mpmath number; the library carries no annotations."""

Density = Callable[[Number], Number]

SOME_ORDERS: Floats = DEFAULT_ORDERS[
    np.unique(np.r_[0 : DEFAULT_ORDERS.size : 12, 40:60:5, DEFAULT_ORDERS.size - 1])
]
"""A subset of the default grid, both ends included."""


moderately = settings(deadline=None, max_examples=60, derandomize=True)
"""Hypothesis settings for tests whose reference is slow."""


def log_uniform(low: float, high: float) -> st.SearchStrategy[float]:
    """Floats spread evenly in logarithm."""
    return st.floats(float(np.log10(low)), float(np.log10(high))).map(lambda exponent: 10.0**exponent)


@contextmanager
def digits(count: int = 50) -> Iterator[None]:
    """Work with ``count`` decimal digits."""
    with mp.workdps(count):
        yield


def renyi(p: Sequence[Number], q: Sequence[Number], order: float, *, dps: int = 50) -> Number:
    """Rényi divergence D_order(p ‖ q) of two discrete distributions, by enumeration."""
    with digits(dps):
        order = mp.mpf(order)
        if any(b == 0 and a != 0 for a, b in zip(p, q, strict=True)):
            return mp.inf
        present = [(mp.mpf(a), mp.mpf(b)) for a, b in zip(p, q, strict=True) if a != 0]
        return mp.log(mp.fsum(a**order * b ** (1 - order) for a, b in present)) / (order - 1)


def renyi_both_ways(p: Sequence[Number], q: Sequence[Number], order: float, *, dps: int = 50) -> Number:
    """The larger of D_order(p ‖ q) and D_order(q ‖ p)."""
    return max(renyi(p, q, order, dps=dps), renyi(q, p, order, dps=dps))


def kl(p: Sequence[Number], q: Sequence[Number], *, dps: int = 50) -> Number:
    """Kullback-Leibler divergence of two discrete distributions: the order 1."""
    with digits(dps):
        pairs = [(mp.mpf(a), mp.mpf(b)) for a, b in zip(p, q, strict=True) if a != 0]
        return mp.fsum(a * mp.log(a / b) for a, b in pairs)


def hockey_stick(p: Sequence[Number], q: Sequence[Number], epsilon: Number, *, dps: int = 50) -> Number:
    """The exact δ at ε: sup over events of p(E) − e^ε q(E)."""
    with digits(dps):
        factor = mp.exp(epsilon)
        return mp.fsum(max(mp.mpf(a) - factor * b, 0) for a, b in zip(p, q, strict=True))


def renyi_by_quadrature(
    p: Density, q: Density, order: float, points: Sequence[Number], *, dps: int = 50
) -> Number:
    """D_order(p ‖ q) of two densities; ``points`` are the ends and every kink between them."""
    with digits(dps):
        order = mp.mpf(order)
        total = mp.quad(lambda x: q(x) * mp.exp(order * (mp.log(p(x)) - mp.log(q(x)))), list(points))
        return mp.log(total) / (order - 1)


def renyi_by_quadrature_both_ways(
    p: Density, q: Density, order: float, points: Sequence[Number], *, dps: int = 50
) -> Number:
    """The larger of the two directions."""
    return max(
        renyi_by_quadrature(p, q, order, points, dps=dps), renyi_by_quadrature(q, p, order, points, dps=dps)
    )


def hockey_stick_by_quadrature(
    p: Density, q: Density, epsilon: Number, points: Sequence[Number], *, dps: int = 30
) -> Number:
    """The exact δ at ε of two densities; ``points`` must hold where p = e^ε q."""
    with digits(dps):
        factor = mp.exp(epsilon)
        return mp.quad(lambda x: max(p(x) - factor * q(x), mp.mpf(0)), list(points))


def bernoulli(probability: Number) -> list[Number]:
    """The two-point distribution with that probability first."""
    return [mp.mpf(probability), 1 - mp.mpf(probability)]


def gaussian_density(mean: Number, std: Number) -> Density:
    """Density of N(mean, std²)."""
    return lambda x: mpmath.npdf(x, mean, std)


def laplace_density(mean: Number, scale: Number) -> Density:
    """Density of Laplace noise of that scale around ``mean``."""
    return lambda x: mp.exp(-abs(x - mean) / scale) / (2 * scale)


def assert_bounds(found: float, exact: Number, *, within: float) -> None:
    """``found`` is never below ``exact`` and above it by at most a share ``within``."""
    value = mp.mpf(float(found))
    assert mp.isfinite(value)
    assert value >= exact, f"below the exact value: {found!r} < {mp.nstr(exact, 20)}"
    assert value <= exact * (1 + mp.mpf(within)), f"too loose: {found!r} > {mp.nstr(exact, 20)}"
