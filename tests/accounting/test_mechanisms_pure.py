"""Pure ε: the curve, ρ and μ of randomized response, against enumeration at 50 digits and more."""

import math

import numpy as np
import pytest
from hypothesis import given
from mpmath import mp

from dpledger.accounting.errors import InvalidInput
from dpledger.accounting.mechanisms import Pure, RandomizedResponse
from dpledger.accounting.mechanisms.pure import pure_cost, pure_curve
from dpledger.accounting.numerics import SMALLEST_COST
from dpledger.accounting.orders import DEFAULT_ORDERS
from dpledger.accounting.sampling import Adjacency
from tests.accounting.references import (
    SOME_ORDERS,
    Number,
    assert_bounds,
    digits,
    kl,
    log_uniform,
    moderately,
    renyi,
    renyi_both_ways,
)


def truth(epsilon: float) -> list[Number]:
    """The answers of randomized response to a true bit; reversed for the other bit."""
    return [1 / (1 + mp.exp(-mp.mpf(epsilon))), 1 / (1 + mp.exp(mp.mpf(epsilon)))]


def exact(epsilon: float, order: float, *, dps: int = 60) -> Number:
    with digits(dps):
        return renyi_both_ways(truth(epsilon), truth(epsilon)[::-1], order, dps=dps)


def quantile(probability: Number) -> Number:
    """Φ⁻¹ by root finding on log Φ, from the asymptotic start."""
    start = -mp.sqrt(-2 * mp.log(probability)) if probability < mp.mpf("0.1") else mp.mpf(-0.5)
    return mp.findroot(lambda x: mp.log(mp.ncdf(x)) - mp.log(probability), start)


@pytest.mark.parametrize("epsilon", [1e-9, 1e-4, 0.02, 0.5, 1.0, 4.0, 20.0, 300.0])
def test_curve_is_that_of_randomized_response(epsilon: float) -> None:
    cost = RandomizedResponse(epsilon).cost(SOME_ORDERS, Adjacency.ADD_REMOVE)
    for order, found in zip(SOME_ORDERS, cost.epsilons, strict=True):
        assert_bounds(found, exact(epsilon, order), within=1e-13)


@moderately
@given(log_uniform(1e-12, 1e4), log_uniform(1e-9, 9e5))
def test_curve_at_any_order(epsilon: float, excess: float) -> None:
    orders = np.array([1.0 + excess])
    assert_bounds(
        pure_curve(epsilon, orders)[0], exact(epsilon, orders[0], dps=90 + int(epsilon)), within=1e-13
    )


@pytest.mark.parametrize("epsilon", [1e-323, 1e-200, 1e-160, 1e-150, 1e-140])
@pytest.mark.parametrize("order", [math.nextafter(1.0, 2.0), 1.5, 1e6])
def test_no_underflow_undercuts_a_tiny_cost(epsilon: float, order: float) -> None:
    found = pure_curve(epsilon, np.array([order]))[0]
    true = exact(epsilon, order, dps=750)
    assert_bounds(found, true, within=float(max(1e-13, SMALLEST_COST / true)))


@pytest.mark.parametrize("epsilon", [1e3, 1e30, 1e300, 1e307])
def test_a_huge_epsilon_is_its_own_bound(epsilon: float) -> None:
    cost = pure_cost(epsilon, SOME_ORDERS)
    assert (cost.epsilons <= epsilon).all()
    assert (cost.epsilons >= epsilon - np.log1p(1.0) / (SOME_ORDERS - 1.0)).all()
    assert cost.rho is not None
    assert epsilon <= cost.rho <= epsilon * (1 + 1e-14)


@pytest.mark.parametrize("epsilon", [1e-8, 1e-3, 0.1, 1.0, 3.0, 30.0])
def test_rho_is_the_supremum_of_the_curve_over_the_order(epsilon: float) -> None:
    cost = pure_cost(epsilon, DEFAULT_ORDERS)
    with digits(60):
        assert_bounds(cost.rho or 0.0, kl(truth(epsilon), truth(epsilon)[::-1], dps=60), within=1e-14)
    slopes = cost.epsilons / DEFAULT_ORDERS
    assert (np.diff(slopes) <= 1e-13 * slopes[:-1]).all()
    assert slopes[0] <= (cost.rho or 0.0) * (1 + 1e-13)


def test_rho_is_below_the_classic_half_square() -> None:
    assert (pure_cost(1.0, SOME_ORDERS).rho or 0.0) < 0.93 * 0.5


@pytest.mark.parametrize("epsilon", [1e-12, 1e-5, 0.3, 1.0, 1.0986, 1.1, 2.0, 10.0, 200.0, 2e3])
def test_mu_makes_a_gaussian_err_as_often_at_its_midpoint(epsilon: float) -> None:
    with digits(60):
        exact_mu = -2 * quantile(1 / (1 + mp.exp(mp.mpf(epsilon))))
        assert_bounds(pure_cost(epsilon, SOME_ORDERS).mu or 0.0, exact_mu, within=3e-14)


def log_tail(z: Number) -> Number:
    """log Φ(−z) by Laplace's continued fraction, for large z."""
    fraction = mp.mpf(0)
    for k in range(100, 0, -1):
        fraction = k / (z + fraction)
    return -z * z / 2 - mp.log(2 * mp.pi) / 2 - mp.log(z + fraction)


@pytest.mark.parametrize("epsilon", [1e4, 1e5, 1e6, 1e8, 1e100, 1e200])
def test_mu_in_the_far_tail(epsilon: float) -> None:
    with digits(250):
        half = mp.mpf(pure_cost(epsilon, SOME_ORDERS).mu or 0.0) / 2
        log_error = -mp.mpf(epsilon)  # log(1 + e^−ε) is below e^−10000
        assert log_tail(half) <= log_error
        assert log_tail(half * (1 - mp.mpf("1e-14"))) > log_error


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 5.0])
def test_gaussian_trade_off_lies_below_that_of_pure_dp(epsilon: float) -> None:
    mu = mp.mpf(pure_cost(epsilon, SOME_ORDERS).mu or 0.0)
    for cut in np.linspace(-6.0, 6.0 + float(mu), 121):
        first_error, second_error = mp.ncdf(-cut), mp.ncdf(cut - mu)
        pure = max(1 - mp.exp(epsilon) * first_error, mp.exp(-epsilon) * (1 - first_error))
        assert second_error <= pure


@pytest.mark.parametrize("kind", [Pure, RandomizedResponse])
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_both_spellings_cost_the_same(
    kind: type[Pure] | type[RandomizedResponse], adjacency: Adjacency
) -> None:
    cost = kind(0.7).cost(SOME_ORDERS, adjacency)
    assert np.array_equal(cost.epsilons, pure_curve(0.7, SOME_ORDERS))
    assert (cost.pure_epsilon, cost.delta) == (0.7, 0.0)
    assert (cost.epsilons <= 0.7).all()


@pytest.mark.parametrize("kind", [Pure, RandomizedResponse])
def test_zero_epsilon_costs_nothing(kind: type[Pure] | type[RandomizedResponse]) -> None:
    cost = kind(0).cost(SOME_ORDERS, Adjacency.ADD_REMOVE)
    assert not cost.epsilons.any()
    assert (cost.rho, cost.mu, cost.pure_epsilon) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("kind", [Pure, RandomizedResponse])
@pytest.mark.parametrize("epsilon", [-1.0, math.nan, math.inf, "1", None, True, 10**400])
def test_refuses_what_is_no_epsilon(kind: type[Pure] | type[RandomizedResponse], epsilon: float) -> None:
    with pytest.raises(InvalidInput, match="epsilon must be a finite number at least 0"):
        kind(epsilon)


def test_refuses_a_cost_that_overflows() -> None:
    with pytest.raises(InvalidInput):
        pure_cost(1.7976931348623157e308, SOME_ORDERS)


def test_only_the_declared_one_is_marked_so() -> None:
    assert Pure.declared
    assert not RandomizedResponse.declared


def test_one_direction_of_randomized_response_equals_the_other() -> None:
    assert renyi(truth(1.0), truth(1.0)[::-1], 3.5) == renyi(truth(1.0)[::-1], truth(1.0), 3.5)
