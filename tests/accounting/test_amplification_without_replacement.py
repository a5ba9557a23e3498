"""Sampling without replacement: enumerated mechanisms, and Gaussians in the plane."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp

from dpledger.accounting.amplification.poisson_gaussian import poisson_gaussian_curve
from dpledger.accounting.amplification.without_replacement import (
    dominating_pair_curve,
    wang_balle_kasiviswanathan_curve,
)
from dpledger.accounting.errors import InvalidInput
from dpledger.accounting.mechanisms.pure import pure_curve
from dpledger.accounting.orders import DEFAULT_ORDERS
from dpledger.accounting.validation import Floats
from tests.accounting.quadrature import normal_integral
from tests.accounting.references import assert_bounds, digits, log_uniform, moderately

ORDERS: Floats = np.array([1.2, 2.0, 2.6, 3.0, 5.0, 9.0, 16.0])
KINDS = (0, 1, 2)

Table = dict[tuple[int, ...], Floats]
"""A mechanism on samples of records of three kinds: a distribution for each sample, order ignored."""


def gaussian(mu: float) -> Callable[[Floats], Floats]:
    return lambda orders: orders * (mu * mu / 2.0)


def divergence(p: Floats, q: Floats, orders: Floats) -> Floats:
    logs = orders[:, None] * np.log(p) + (1.0 - orders[:, None]) * np.log(q)
    values: Floats = np.log(np.exp(logs).sum(axis=1)) / (orders - 1.0)
    return values


def neighbours(size: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Datasets of that size that differ in one record."""
    return [
        ((*rest, a), (*rest, b))
        for rest in itertools.combinations_with_replacement(KINDS, size - 1)
        for a, b in itertools.permutations(KINDS, 2)
    ]


def worst(table: Callable[[tuple[int, ...]], Floats], size: int, orders: Floats) -> Floats:
    pairs = [divergence(table(a), table(b), orders) for a, b in neighbours(size)]
    largest: Floats = np.maximum(np.max(pairs, axis=0), 0.0)
    return largest


def sampled(table: Table, size: int) -> Callable[[tuple[int, ...]], Floats]:
    """The mechanism on a uniformly random subset of that size."""

    def output(dataset: tuple[int, ...]) -> Floats:
        subsets = list(itertools.combinations(dataset, size))
        mixture: Floats = np.mean([table[tuple(sorted(subset))] for subset in subsets], axis=0)
        return mixture

    return output


def table_of(size: int, weights: list[list[int]]) -> Table:
    samples = itertools.combinations_with_replacement(KINDS, size)
    return {sample: np.array(row) / sum(row) for sample, row in zip(samples, weights, strict=True)}


@moderately
@given(data=st.data(), size=st.integers(1, 2), others=st.integers(1, 3), with_pure=st.booleans())
def test_wang_balle_kasiviswanathan_is_never_below(
    data: st.DataObject, size: int, others: int, with_pure: bool
) -> None:
    rows = math.comb(len(KINDS) + size - 1, size)
    row = st.lists(st.integers(1, 30), min_size=3, max_size=3)
    table = table_of(size, data.draw(st.lists(row, min_size=rows, max_size=rows)))
    total = size + others

    def curve(orders: Floats) -> Floats:
        return worst(lambda sample: table[tuple(sorted(sample))], size, orders) + 1e-13

    ratios = [
        np.abs(np.log(table[tuple(sorted(a))] / table[tuple(sorted(b))])).max() for a, b in neighbours(size)
    ]
    pure = float(max(ratios)) + 1e-13 if with_pure else None
    found = wang_balle_kasiviswanathan_curve(size / total, curve, ORDERS, pure_epsilon=pure)
    assert (found >= worst(sampled(table, size), total, ORDERS) - 1e-13).all()


def declared(order: Any, pure: float | None) -> Any:
    """A curve to amplify, with or without a pure ε above it."""
    return mp.mpf(order) / 8 if pure is None else mp.mpf(pure) * order / (order + 1)


@pytest.mark.parametrize("pure", [None, 0.02, 0.8, 5.0])
@pytest.mark.parametrize("order", [2, 3, 7, 64])
def test_wang_balle_kasiviswanathan_against_its_formula(order: int, pure: float | None) -> None:
    rate = 0.02
    with digits(40):
        q, top = mp.mpf(rate), mp.inf if pure is None else mp.expm1(mp.mpf(pure))
        twice = declared(2, pure)
        total = 1 + q**2 * mp.binomial(order, 2) * min(4 * mp.expm1(twice), mp.exp(twice) * min(2, top**2))
        for j in range(3, order + 1):
            total += q**j * mp.binomial(order, j) * mp.exp((j - 1) * declared(j, pure)) * min(2, top**j)
        exact = min(mp.log(total) / (order - 1), declared(order, pure))

    def curve(orders: Floats) -> Floats:
        return np.array([float(declared(float(order), pure)) for order in orders]) * (1.0 + 1e-15)

    found = wang_balle_kasiviswanathan_curve(rate, curve, np.array([float(order)]), pure_epsilon=pure)[0]
    assert_bounds(found, exact, within=1e-9)


def test_a_pure_bound_helps() -> None:
    def curve(orders: Floats) -> Floats:
        return pure_curve(0.1, orders)

    without = wang_balle_kasiviswanathan_curve(0.05, curve, ORDERS)
    with_pure = wang_balle_kasiviswanathan_curve(0.05, curve, ORDERS, pure_epsilon=0.1)
    assert (with_pure <= without).all()
    assert with_pure[-1] < 0.5 * without[-1]


@pytest.mark.parametrize("bound", [wang_balle_kasiviswanathan_curve, dominating_pair_curve])
def test_ends_of_the_rate(bound: Callable[..., Floats]) -> None:
    base: Any = gaussian(0.4) if bound is wang_balle_kasiviswanathan_curve else 0.4
    assert not bound(0.0, base, DEFAULT_ORDERS).any()
    np.testing.assert_allclose(bound(1.0, base, DEFAULT_ORDERS), gaussian(0.4)(DEFAULT_ORDERS), rtol=1e-14)


def test_what_costs_nothing_still_does() -> None:
    assert not wang_balle_kasiviswanathan_curve(0.3, np.zeros_like, ORDERS, pure_epsilon=0.0).any()
    assert not dominating_pair_curve(0.3, 0.0, ORDERS).any()
    assert (dominating_pair_curve(1e-300, 1e-300, ORDERS) > 0.0).all()


def exact_dominating_pair(rate: float, mu: float, order: float) -> Any:
    """log(1 + E[r^α + r^(1−α) − r − 1; r > 1]) / (α−1), by quadrature at 40 digits."""
    with digits(40):
        q, m, a = mp.mpf(rate), mp.mpf(mu), mp.mpf(order)

        def integrand(u: Any) -> Any:
            log_ratio = mp.log1p(q * mp.expm1(u * m - m * m / 2))
            return mp.expm1((a - 1) * log_ratio) * -mp.expm1(-a * log_ratio) * mp.exp(log_ratio)

        step = min(2.0, 2.5 / mu)
        ends = [mu / 2.0 + step * k for k in range(int((order * mu + 12.0) / step) + 2)]
        return mp.log1p(normal_integral(integrand, list(itertools.pairwise(ends)))) / (a - 1)


@pytest.mark.parametrize("order", [1.03, 2.0, 5.5, 24.0])
@pytest.mark.parametrize(("rate", "mu"), [(1e-6, 0.5), (0.01, 1.0), (0.01, 3.0), (0.3, 0.02), (0.8, 1.5)])
def test_dominating_pair_never_below_and_tight(rate: float, mu: float, order: float) -> None:
    found = dominating_pair_curve(rate, mu, np.array([order]))[0]
    assert_bounds(found, exact_dominating_pair(rate, mu, order), within=2e-3)


@settings(moderately, max_examples=25)
@given(rate=log_uniform(1e-6, 0.999), mu=log_uniform(0.01, 2.5), excess=log_uniform(0.02, 6.0))
def test_dominating_pair_drawn_cases(rate: float, mu: float, excess: float) -> None:
    found = dominating_pair_curve(rate, mu, np.array([1.0 + excess]))[0]
    assert_bounds(found, exact_dominating_pair(rate, mu, 1.0 + excess), within=2e-3)


@given(rate=st.floats(1e-9, 1.0), mu=log_uniform(1e-3, 60.0))
@moderately
def test_between_the_subsampled_gaussian_and_no_sampling(rate: float, mu: float) -> None:
    orders = DEFAULT_ORDERS[::5]
    found = dominating_pair_curve(rate, mu, orders)
    assert (found >= poisson_gaussian_curve(rate, mu, orders) * (1.0 - 2e-8)).all()
    assert (found <= gaussian(mu)(orders) * (1.0 + 1e-14)).all()


def planar(rate: float, order: float, x: Floats, other: Floats, step: float = 0.15) -> Floats:
    """D_α of (1−q)N(y) + qN(x) from (1−q)N(y) + qN(x') in the plane with y at the origin, both directions."""
    reach = 8.0 + order * max(np.linalg.norm(x), np.linalg.norm(other))
    axis = np.arange(-reach, reach + step, step)
    u = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)
    first, second = (np.log1p(rate * np.expm1(u @ v - v @ v / 2.0)) for v in (x, other))
    base = -(u**2).sum(axis=-1) / 2.0 + 2.0 * math.log(step / math.sqrt(2.0 * math.pi))
    logs = [base + order * a + (1.0 - order) * b for a, b in ((first, second), (second, first))]
    return np.array([np.log(np.exp(log).sum()) / (order - 1.0) for log in logs])


def lens(mu: float, count: int) -> list[tuple[Floats, Floats]]:
    """(x, x') around y at the origin, all distances at most μ and |x − x'| = μ."""
    grid = itertools.product(np.linspace(-0.5, 0.5, count), np.linspace(0.0, math.sqrt(0.75), count))
    places = [np.array(place) for place in grid]
    ends = (np.array([0.5, 0.0]), np.array([-0.5, 0.0]))
    return [
        (mu * (ends[0] - y), mu * (ends[1] - y))
        for y in places
        if max(np.linalg.norm(y - end) for end in ends) <= 1.0 + 1e-12
    ]


@pytest.mark.parametrize(
    ("rate", "mu", "order"), [(0.01, 1.0, 2.0), (0.1, 0.5, 4.0), (0.5, 1.0, 1.5), (0.01, 2.0, 3.0)]
)
def test_dominating_pair_covers_every_place_of_the_record_drawn_instead(
    rate: float, mu: float, order: float
) -> None:
    bound = dominating_pair_curve(rate, mu, np.array([order]))[0]
    found = [planar(rate, order, *pair).max() for pair in lens(mu, 7)]
    assert max(found) <= bound
    assert max(found) > 0.6 * bound  # and it is not far above


@moderately
@given(
    rate=log_uniform(1e-3, 0.9),
    mu=log_uniform(0.2, 1.5),
    order=st.floats(1.1, 5.0),
    angles=st.tuples(st.floats(0.0, 6.3), st.floats(0.0, 6.3)),
    radii=st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 1.0)),
)
def test_dominating_pair_covers_drawn_places(
    rate: float, mu: float, order: float, angles: tuple[float, float], radii: tuple[float, float]
) -> None:
    x, other = (
        mu * radius * np.array([math.cos(angle), math.sin(angle)])
        for radius, angle in zip(radii, angles, strict=True)
    )
    distance = float(np.linalg.norm(x - other))
    shrink = min(1.0, mu / distance) if distance > 0.0 else 1.0
    true = planar(rate, order, x * shrink, other * shrink, step=0.3).max()
    assert true <= dominating_pair_curve(rate, mu, np.array([order]))[0] + 1e-12


@pytest.mark.parametrize(("order", "ratio"), [(1.5, 1.207), (2.0, 1.194), (4.0, 1.140)])
def test_the_subsampled_gaussian_is_no_bound_without_replacement(order: float, ratio: float) -> None:
    """x, x' and the record drawn instead of them at the corners of an equilateral triangle."""
    x, other = np.array([1.0, 0.0]), np.array([0.5, math.sqrt(0.75)])
    true = planar(0.01, order, x, other).max()
    claimed = poisson_gaussian_curve(0.01, 1.0, np.array([order]))[0]
    assert true / claimed == pytest.approx(ratio, abs=1e-3)
    assert dominating_pair_curve(0.01, 1.0, np.array([order]))[0] > true


def test_at_the_record_itself_the_divergence_is_the_subsampled_gaussian() -> None:
    x, other = np.array([1.0, 0.0]), np.array([0.0, 0.0])
    for order in (1.5, 4.0):
        both = planar(0.05, order, x, other)
        assert both[0] == pytest.approx(poisson_gaussian_curve(0.05, 1.0, np.array([order]))[0], rel=1e-6)
        assert both[1] < both[0]


def test_up_to_many_times_tighter_than_the_general_bound() -> None:
    orders = np.array([2.0, 8.0, 20.0, 64.0])
    general = wang_balle_kasiviswanathan_curve(0.01, gaussian(1.0 / 30.0), orders)
    exact = dominating_pair_curve(0.01, 1.0 / 30.0, orders)
    assert (general > 3.8 * exact).all()
    assert general[1] > 22.0 * exact[1]


@pytest.mark.parametrize("rate", [-0.1, 1.5, math.nan])
def test_out_of_range_is_refused(rate: float) -> None:
    with pytest.raises(InvalidInput):
        dominating_pair_curve(rate, 1.0, ORDERS)
    with pytest.raises(InvalidInput):
        wang_balle_kasiviswanathan_curve(rate, gaussian(1.0), ORDERS)
    with pytest.raises(InvalidInput):
        dominating_pair_curve(0.5, rate - 2.0, ORDERS)
    with pytest.raises(InvalidInput):
        wang_balle_kasiviswanathan_curve(0.5, gaussian(1.0), ORDERS, pure_epsilon=rate - 2.0)


@pytest.mark.parametrize("mu", [60.0, 80.0, 1e3, 1e4])
@pytest.mark.parametrize("excess", [1e-12, 1e-9, 1e-6, 1e-4])
def test_orders_close_to_one_with_hardly_any_noise(mu: float, excess: float) -> None:
    """Panels beyond 38 standard deviations hold no mass."""
    order = np.array([1.0 + excess])
    found = dominating_pair_curve(0.01, mu, order)
    assert poisson_gaussian_curve(0.01, mu, order) <= found <= order * mu * mu / 2.0 * (1.0 + 1e-15)
