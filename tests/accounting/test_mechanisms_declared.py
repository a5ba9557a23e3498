"""Declared costs: taken at their word, never below it at any order, and marked."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp

from dpledger.accounting.errors import InvalidInput, Unproven
from dpledger.accounting.mechanisms import GDP, MECHANISMS, RDP, ZCDP, Approximate, Gaussian, Mechanism, Pure
from dpledger.accounting.sampling import Adjacency
from tests.accounting.references import (
    SOME_ORDERS,
    Number,
    assert_bounds,
    digits,
    hockey_stick,
    log_uniform,
    moderately,
    renyi,
)

ADD_REMOVE = Adjacency.ADD_REMOVE


def test_exactly_the_declared_kinds_are_marked() -> None:
    declared = {kind for kind, mechanism in MECHANISMS.items() if mechanism.declared}
    assert declared == {"pure", "approximate", "zcdp", "gdp", "rdp"}


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 6.0])
def test_approximate_is_pure_beside_a_delta(epsilon: float) -> None:
    cost, pure = (m.cost(SOME_ORDERS, ADD_REMOVE) for m in (Approximate(epsilon, 1e-5), Pure(epsilon)))
    assert np.array_equal(cost.epsilons, pure.epsilons)
    assert cost.delta == 1e-5
    assert (cost.rho, cost.mu, cost.pure_epsilon) == (pure.rho, pure.mu, epsilon)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 6.0])
def test_the_worst_approximate_pair_is_the_mixture_that_is_charged(epsilon: float) -> None:
    """With probability δ all is revealed, otherwise randomized response: its δ at ε is exactly δ."""
    delta = mp.mpf("1e-3")
    with digits(50):
        truth = 1 / (1 + mp.exp(-mp.mpf(epsilon)))
        p = [delta, (1 - delta) * truth, (1 - delta) * (1 - truth), mp.mpf(0)]
        assert abs(hockey_stick(p, p[::-1], mp.mpf(epsilon)) - delta) < mp.mpf("1e-45")
        cost = Approximate(epsilon, float(delta)).cost(np.array([4.0]), ADD_REMOVE)
        assert_bounds(cost.epsilons[0], renyi([truth, 1 - truth], [1 - truth, truth], 4.0), within=1e-13)


@moderately
@given(log_uniform(1e-300, 1e100))
def test_zcdp_is_a_line(rho: float) -> None:
    cost = ZCDP(rho).cost(SOME_ORDERS, ADD_REMOVE)
    with digits(50):
        for order, found in zip(SOME_ORDERS, cost.epsilons, strict=True):
            assert_bounds(found, mp.mpf(order) * mp.mpf(rho), within=1e-15)
    assert (cost.rho, cost.mu, cost.pure_epsilon) == (rho, None, None)


@pytest.mark.parametrize("mu", [1e-6, 0.4, 1.0, 12.0])
def test_gdp_is_the_curve_of_a_gaussian(mu: float) -> None:
    cost = GDP(mu).cost(SOME_ORDERS, ADD_REMOVE)
    with digits(50):
        for order, found in zip(SOME_ORDERS, cost.epsilons, strict=True):
            assert_bounds(found, mp.mpf(order) * mp.mpf(mu) ** 2 / 2, within=1e-15)
        assert_bounds(cost.rho or 0.0, mp.mpf(mu) ** 2 / 2, within=1e-15)
    assert (cost.mu, cost.pure_epsilon) == (mu, None)


def test_gdp_is_not_amplified_as_a_gaussian() -> None:
    assert GDP(1.0).gaussian_mu is None
    assert Gaussian(1.0, 1.0).gaussian_mu is not None


@pytest.mark.parametrize("mechanism", [ZCDP(0.0), GDP(0.0), Pure(0.0), Approximate(0.0, 0.0)])
def test_a_declared_zero_costs_nothing(mechanism: Mechanism) -> None:
    assert not mechanism.cost(SOME_ORDERS, ADD_REMOVE).epsilons.any()


def test_rdp_gives_the_declared_numbers_at_the_declared_orders() -> None:
    orders, epsilons = (1.5, 2.0, 3.7, 64.0), (0.1, 0.13, 0.3, 7.0)
    cost = RDP(orders, epsilons).cost(np.array(orders), ADD_REMOVE)
    assert cost.epsilons.tolist() == list(epsilons)
    assert (cost.rho, cost.mu, cost.pure_epsilon, cost.delta) == (None, None, None, 0.0)


def chord(order: float, low: tuple[float, float], high: tuple[float, float]) -> Number:
    """(α−1)ε(α) on the straight line between two declared points, over α−1."""
    with digits(50):
        (a, e), (b, f), x = map(mp.mpf, low), map(mp.mpf, high), mp.mpf(order)
        return ((a - 1) * e * (b - x) + (b - 1) * f * (x - a)) / (b - a) / (x - 1)


@moderately
@given(st.floats(2.0, 9.0), log_uniform(1e-8, 10.0), st.floats(1.0, 5.0))
def test_rdp_between_orders_is_the_chord(order: float, first: float, growth: float) -> None:
    declared = RDP((2.0, 9.0), (first, first * growth))
    found = declared.cost(np.array([order]), ADD_REMOVE).epsilons[0]
    assert_bounds(found, chord(order, (2.0, first), (9.0, first * growth)), within=1e-14)


@pytest.mark.parametrize("epsilon", [0.2, 2.0])
def test_rdp_of_a_true_curve_stays_above_it(epsilon: float) -> None:
    declared_at = np.array([1.2, 2.0, 5.0, 40.0])
    curve = Pure(epsilon).cost(declared_at, ADD_REMOVE).epsilons
    between = np.linspace(1.05, 40.0, 300)
    found = RDP(tuple(declared_at), tuple(curve)).cost(between, ADD_REMOVE).epsilons
    assert (found >= Pure(epsilon).cost(between, ADD_REMOVE).epsilons * (1 - 1e-13)).all()
    assert (np.diff(found) >= -1e-14).all()


def test_rdp_below_the_first_order_is_its_epsilon() -> None:
    found = RDP((3.0, 4.0), (0.5, 0.6)).cost(np.array([1.001, 2.0, 3.0]), ADD_REMOVE).epsilons
    assert found.tolist() == [0.5, 0.5, 0.5]


def test_rdp_takes_a_later_epsilon_where_it_is_smaller() -> None:
    found = RDP((2.0, 4.0, 8.0), (0.9, 0.5, 0.7)).cost(np.array([1.5, 2.0, 3.0, 4.0]), ADD_REMOVE).epsilons
    assert found.tolist() == [0.5, 0.5, 0.5, 0.5]


def test_rdp_beyond_the_last_order_is_refused() -> None:
    with pytest.raises(Unproven, match="ends at order 64, asked for order 65"):
        RDP((2.0, 64.0), (0.1, 0.2)).cost(np.array([2.0, 65.0]), ADD_REMOVE)


def test_rdp_of_zeros_costs_nothing() -> None:
    assert not RDP((2.0, 64.0), (0.0, 0.0)).cost(np.array([1.5, 7.0, 64.0]), ADD_REMOVE).epsilons.any()


def test_rdp_is_a_hashable_value_of_floats() -> None:
    first, second = RDP((2, 3), (0, 1)), RDP(np.array([2.0, 3.0]), [-0.0, 1.0])  # type: ignore[arg-type]
    assert first == second
    assert hash(first) == hash(second)
    assert first.fields() == {"mechanism": "rdp", "orders": [2.0, 3.0], "epsilons": [0.0, 1.0]}
    assert math.copysign(1.0, second.epsilons[0]) == 1.0


@pytest.mark.parametrize(
    ("field", "orders", "epsilons"),
    [
        ("orders", (1.0, 2.0), (0.1, 0.2)),
        ("orders", (3.0, 2.0), (0.1, 0.2)),
        ("orders", (), ()),
        ("orders", (2.0, math.inf), (0.1, 0.2)),
        ("orders", ("2",), (0.1,)),
        ("epsilons", (2.0, 3.0), (0.1,)),
        ("epsilons", (2.0, 3.0), (0.1, -0.1)),
        ("epsilons", (2.0, 3.0), (0.1, math.nan)),
        ("epsilons", (2.0, 3.0), "ab"),
    ],
)
def test_rdp_refuses_what_is_no_curve(field: str, orders: Any, epsilons: Any) -> None:
    with pytest.raises(InvalidInput) as refusal:
        RDP(orders, epsilons)
    assert refusal.value.field == field


@pytest.mark.parametrize(
    ("kind", "values", "field"),
    [
        (Approximate, (-1.0, 0.1), "epsilon"),
        (Approximate, (1.0, 1.0), "delta"),
        (Approximate, (1.0, -0.1), "delta"),
        (ZCDP, (math.nan,), "rho"),
        (ZCDP, (-0.1,), "rho"),
        (GDP, (math.inf,), "mu"),
        (GDP, (None,), "mu"),
    ],
)
def test_refuses_what_is_no_cost(kind: type[Any], values: tuple[Any, ...], field: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        kind(*values)
    assert refusal.value.field == field


@pytest.mark.parametrize("mechanism", [ZCDP(1e305), GDP(1e154), GDP(1e300)])
def test_refuses_a_curve_that_overflows(mechanism: Mechanism) -> None:
    with pytest.raises(InvalidInput, match="finite"):
        mechanism.cost(SOME_ORDERS, ADD_REMOVE)
