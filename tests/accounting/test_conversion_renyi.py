"""Rényi curves to (ε, δ) and back: the formulas at 50 digits, and exact mechanisms below them."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp

from dpledger.accounting.amplification.poisson_gaussian import poisson_gaussian_curve
from dpledger.accounting.conversion.renyi import (
    curve_at_orders,
    delta_at,
    epsilon_at,
    mironov_budget,
    mironov_delta,
    mironov_epsilon,
    renyi_budget,
    renyi_delta,
    renyi_epsilon,
)
from dpledger.accounting.cost import Cost
from dpledger.accounting.errors import InvalidInput
from dpledger.accounting.gaussian_profile import gaussian_delta, gaussian_epsilon
from dpledger.accounting.mechanisms.gaussian import gaussian_cost
from dpledger.accounting.mechanisms.pure import pure_curve
from dpledger.accounting.orders import DEFAULT_ORDERS
from tests.accounting.references import (
    SOME_ORDERS,
    Number,
    assert_bounds,
    bernoulli,
    digits,
    hockey_stick,
    log_uniform,
    moderately,
)


def balle_epsilon(order: float, epsilon: float, delta: float) -> Number:
    """Theorem 21 as it is printed."""
    with digits(50):
        a, e, d = mp.mpf(order), mp.mpf(float(epsilon)), mp.mpf(delta)
        return e + mp.log((a - 1) / a) - (mp.log(d) + mp.log(a)) / (a - 1)


def balle_delta(order: float, epsilon: float, at: float) -> Number:
    """The same, solved for δ."""
    with digits(50):
        a = mp.mpf(order)
        return mp.exp((a - 1) * (mp.mpf(float(epsilon)) - at)) / (a - 1) * (1 - 1 / a) ** a


def balle_budget(order: float, epsilon: float, delta: float) -> Number:
    """The same, solved for the curve."""
    return 2 * mp.mpf(epsilon) - balle_epsilon(order, epsilon, delta)


@given(log_uniform(1e-6, 50.0), log_uniform(1e-300, 0.9999))
@moderately
def test_each_order_alone_bounds_the_printed_formula(rho: float, delta: float) -> None:
    epsilons = SOME_ORDERS * rho
    for order, epsilon, found in zip(
        SOME_ORDERS, epsilons, renyi_epsilon(SOME_ORDERS, epsilons, delta), strict=True
    ):
        exact = balle_epsilon(order, epsilon, delta)
        assert mp.mpf(float(found)) >= exact
        assert found <= max(0.0, float(exact)) + 1e-13 * (
            1.0 + abs(math.log(delta)) / (order - 1.0) + epsilon
        )


@given(log_uniform(1e-4, 10.0), log_uniform(1e-3, 100.0))
@moderately
def test_each_order_alone_bounds_the_printed_delta(rho: float, at: float) -> None:
    epsilons = SOME_ORDERS * rho
    for order, epsilon, found in zip(
        SOME_ORDERS, epsilons, renyi_delta(SOME_ORDERS, epsilons, at), strict=True
    ):
        exact = balle_delta(order, epsilon, at)
        assert mp.mpf(float(found)) >= min(exact, 1)
        if 1e-300 < exact < 1:
            assert_bounds(found, exact, within=1e-9 * max(1.0, order * (epsilon + at) * 1e-4))


@pytest.mark.parametrize("order", [1.0 + 2.0**-40, 1.03, 2.0, 1e3, 1e6])
def test_orders_close_to_one_and_far_from_it_lose_nothing(order: float) -> None:
    orders = np.array([order])
    assert_bounds(
        float(renyi_epsilon(orders, np.array([0.5]), 1e-6)[0]), balle_epsilon(order, 0.5, 1e-6), within=1e-12
    )


@given(log_uniform(1e-3, 30.0), log_uniform(1e-12, 0.5))
@moderately
def test_a_gaussian_is_never_above_what_its_curve_says(mu: float, delta: float) -> None:
    cost = gaussian_cost(mu, DEFAULT_ORDERS)
    epsilon, order = epsilon_at(cost, delta)
    assert epsilon >= gaussian_epsilon(mu, delta)
    assert order in DEFAULT_ORDERS
    assert delta_at(cost, epsilon) <= delta * (1.0 + 1e-9)
    assert delta_at(cost, epsilon) >= gaussian_delta(epsilon, mu)


@given(log_uniform(0.05, 5.0), log_uniform(1e-3, 5.0))
@moderately
def test_randomized_response_is_never_above_what_its_curve_says(pure: float, at: float) -> None:
    cost = Cost(DEFAULT_ORDERS, pure_curve(pure, DEFAULT_ORDERS))
    with digits(50):
        keep = mp.exp(pure) / (1 + mp.exp(pure))
        exact = hockey_stick(bernoulli(keep), bernoulli(1 - keep), at)
    assert delta_at(cost, at) >= exact


def test_balle_is_never_above_mironov_and_mironov_is_its_formula() -> None:
    epsilons = SOME_ORDERS * 0.01
    ours, theirs = renyi_epsilon(SOME_ORDERS, epsilons, 1e-5), mironov_epsilon(SOME_ORDERS, epsilons, 1e-5)
    assert (ours <= theirs).all()
    for order, epsilon, found in zip(SOME_ORDERS, epsilons, theirs, strict=True):
        assert_bounds(found, mp.mpf(float(epsilon)) - mp.log(1e-5) / (mp.mpf(order) - 1), within=1e-13)
    deltas = mironov_delta(SOME_ORDERS, epsilons, 2.0)
    assert (renyi_delta(SOME_ORDERS, epsilons, 2.0) <= deltas).all()
    for order, epsilon, found in zip(SOME_ORDERS, epsilons, deltas, strict=True):
        exact = mp.exp((mp.mpf(order) - 1) * (mp.mpf(float(epsilon)) - 2))
        assert mp.mpf(float(found)) >= min(exact, 1)


def test_a_curve_below_zero_after_conversion_gives_zero_not_less() -> None:
    cost = Cost(DEFAULT_ORDERS, np.full(DEFAULT_ORDERS.size, 1e-9))
    assert epsilon_at(cost, 0.5)[0] == 0.0


@pytest.mark.parametrize(("steps", "published"), [(1000, 1.7118), (10_000, 5.6320)])
def test_published_epsilon_of_dp_sgd_by_renyi(steps: int, published: float) -> None:
    """q = 0.01, σ = 1.1, δ = 1e-5, on the tenths of orders that the published values were found on."""
    orders = np.arange(11, 200) / 10.0
    step = Cost(orders, poisson_gaussian_curve(0.01, 1.0 / 1.1, orders))
    assert epsilon_at(step.repeated(steps), 1e-5)[0] == pytest.approx(published, abs=1e-4)


def test_an_additive_delta_is_taken_from_the_target() -> None:
    curve = DEFAULT_ORDERS * 0.01
    plain, beside = Cost(DEFAULT_ORDERS, curve), Cost(DEFAULT_ORDERS, curve, delta=4e-6)
    assert epsilon_at(beside, 1e-5)[0] == pytest.approx(epsilon_at(plain, 6e-6)[0], rel=1e-12)
    assert epsilon_at(beside, 1e-5)[0] >= epsilon_at(plain, 6e-6)[0]
    assert delta_at(beside, 1.0) == pytest.approx(delta_at(plain, 1.0) + 4e-6, rel=1e-12)


@pytest.mark.parametrize("additive", [1e-5, 2e-5])
def test_a_target_within_the_additive_delta_is_refused(additive: float) -> None:
    cost = Cost(DEFAULT_ORDERS, DEFAULT_ORDERS * 0.01, delta=additive)
    with pytest.raises(InvalidInput, match="additive"):
        epsilon_at(cost, 1e-5)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0, 0.0, 1.0, 2.0, "x", None])
def test_bad_deltas_are_refused(bad: float) -> None:
    with pytest.raises(InvalidInput, match="delta"):
        epsilon_at(gaussian_cost(1.0, DEFAULT_ORDERS), bad)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0, "x", None])
def test_bad_epsilons_are_refused(bad: float) -> None:
    with pytest.raises(InvalidInput, match="epsilon"):
        delta_at(gaussian_cost(1.0, DEFAULT_ORDERS), bad)


@given(log_uniform(0.01, 20.0), log_uniform(1e-12, 0.5))
@moderately
def test_budgets_are_below_the_formula_and_convert_back_within_the_goal(epsilon: float, delta: float) -> None:
    budgets = renyi_budget(SOME_ORDERS, epsilon, math.log(delta))
    for order, budget in zip(SOME_ORDERS, budgets, strict=True):
        exact = balle_budget(order, epsilon, delta)
        assert mp.mpf(float(budget)) <= exact
        assert budget == pytest.approx(float(exact), abs=1e-11 * (1.0 + abs(math.log(delta)) / (order - 1.0)))
    useful = budgets > 0.0
    again = renyi_epsilon(SOME_ORDERS[useful], budgets[useful], delta)
    assert (again <= epsilon * (1.0 + 1e-12) + 1e-13 * abs(math.log(delta)) / (SOME_ORDERS[useful] - 1)).all()


def test_mironovs_budget_is_the_tight_one_at_the_attainable_share() -> None:
    share = (1.0 / SOME_ORDERS) * (1.0 - 1.0 / SOME_ORDERS) ** (SOME_ORDERS - 1.0)
    tight = renyi_budget(SOME_ORDERS, 1.0, np.log(share) + math.log(1e-5))
    plain = mironov_budget(SOME_ORDERS, 1.0, math.log(1e-5))
    np.testing.assert_allclose(tight, plain, rtol=1e-9, atol=1e-12)


@given(st.lists(st.floats(0.05, 3.0), min_size=2, max_size=4), st.data())
@moderately
def test_the_chord_bounds_the_divergence_between_known_orders(
    tilts: list[float], data: st.DataObject
) -> None:
    """Against an exact two-point mechanism, which the curve knows at a few orders only."""
    known = np.array([1.5, 2.0, 4.0, 8.0, 32.0])
    wanted = np.array(sorted({data.draw(st.floats(1.01, 32.0)) for _ in tilts} | {8.0}))
    epsilon = tilts[0]
    found = curve_at_orders(known, pure_curve(epsilon, known), wanted)
    assert (found >= pure_curve(epsilon, wanted) * (1.0 - 1e-12)).all()
    assert found[wanted == 8.0] == pytest.approx(pure_curve(epsilon, np.array([8.0])), rel=1e-13)


@pytest.mark.parametrize("epsilon", [1e13, 1e308])
@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e300])
def test_extreme_numbers_give_a_delta_and_no_noise(scale: float, epsilon: float) -> None:
    cost = Cost(SOME_ORDERS, SOME_ORDERS * scale)
    assert 0.0 < delta_at(cost, epsilon) <= 1.0
    assert (mironov_delta(SOME_ORDERS, cost.epsilons, 1e12) <= 1.0).all()


def test_a_given_curve_that_falls_is_read_by_its_later_values() -> None:
    known = np.array([2.0, 4.0, 8.0])
    found = curve_at_orders(known, np.array([5.0, 5.0, 1.0]), np.array([2.0, 3.0, 8.0]))
    assert found.tolist() == pytest.approx([1.0, 1.0, 1.0])


def test_orders_beyond_the_curve_are_refused() -> None:
    with pytest.raises(InvalidInput, match="last order"):
        curve_at_orders(np.array([2.0, 4.0]), np.array([0.1, 0.2]), np.array([5.0]))


def test_a_delta_among_the_smallest_floats_is_rounded_up() -> None:
    orders = np.linspace(700.0, 745.0, 400) / 0.5 + 1.0
    curve = np.full(orders.size, 0.5)
    tight, closed = renyi_delta(orders, curve, 1.0), mironov_delta(orders, curve, 1.0)
    with digits():
        for order, by_balle, by_mironov in zip(orders.tolist(), tight, closed, strict=True):
            exact = mp.exp(-(mp.mpf(order) - 1) / 2)
            assert mp.mpf(float(by_mironov)) >= exact
            assert mp.mpf(float(by_balle)) >= exact / order * (1 - 1 / mp.mpf(order)) ** (mp.mpf(order) - 1)
