"""Laplace noise: curve, ρ and μ against quadrature of the two densities and their closed form."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp

from dpledger.accounting.errors import InvalidInput
from dpledger.accounting.mechanisms import Laplace
from dpledger.accounting.mechanisms.laplace import laplace_cost, laplace_curve
from dpledger.accounting.mechanisms.pure import pure_cost
from dpledger.accounting.numerics import SMALLEST_COST
from dpledger.accounting.orders import DEFAULT_ORDERS
from dpledger.accounting.sampling import Adjacency
from tests.accounting.references import (
    SOME_ORDERS,
    Number,
    assert_bounds,
    digits,
    laplace_density,
    log_uniform,
    moderately,
    renyi_by_quadrature,
)


def exact(shift: Number, order: float, *, dps: int = 50) -> Number:
    """The divergence in closed form; checked against quadrature below."""
    with digits(dps):
        a, d = mp.mpf(order), mp.mpf(shift)
        total = a * mp.exp((a - 1) * d) + (a - 1) * mp.exp(-a * d)
        return mp.log(total / (2 * a - 1)) / (a - 1)


def error_below(cut: Number, shift: Number) -> Number:
    """P(Laplace around ``shift`` is below ``cut``)."""
    gap = cut - shift
    return mp.exp(gap) / 2 if gap < 0 else 1 - mp.exp(-gap) / 2


@pytest.mark.parametrize("shift", [0.01, 1.0, 3.0])
@pytest.mark.parametrize("order", [1.03, 2.0, 17.0])
def test_closed_form_is_the_quadrature_in_both_directions(shift: float, order: float) -> None:
    with digits(30):
        p, q = laplace_density(0, 1), laplace_density(mp.mpf(shift), 1)
        ends = [-mp.inf, 0, mp.mpf(shift), mp.inf]
        for first, second in ((p, q), (q, p)):
            found = renyi_by_quadrature(first, second, order, ends, dps=30)
            assert abs(found - exact(shift, order)) < mp.mpf("1e-15")


@pytest.mark.parametrize(
    ("sensitivity", "scale"),
    [(1.0, 1e9), (3.0, 1e4), (1.0, 30.0), (1.0, 3.0), (2.0, 1.0), (7.0, 0.3), (1.0, 1e-3)],
)
def test_curve_is_exact(sensitivity: float, scale: float) -> None:
    cost = Laplace(sensitivity, scale).cost(SOME_ORDERS, Adjacency.REPLACE_ONE)
    with digits(60):
        shift = mp.mpf(sensitivity) / mp.mpf(scale)
    for order, found in zip(SOME_ORDERS, cost.epsilons, strict=True):
        assert_bounds(found, exact(shift, order, dps=60), within=1e-13)


@moderately
@given(log_uniform(1e-12, 1e4), log_uniform(1e-9, 9e5))
def test_curve_at_any_order(shift: float, excess: float) -> None:
    orders = np.array([1.0 + excess])
    assert_bounds(laplace_curve(shift, orders)[0], exact(shift, orders[0], dps=90), within=1e-13)


@pytest.mark.parametrize("shift", [1e-323, 1e-200, 1e-160, 1e-150, 1e-140])
@pytest.mark.parametrize("order", [math.nextafter(1.0, 2.0), 1.5, 1e6])
def test_no_underflow_undercuts_a_tiny_cost(shift: float, order: float) -> None:
    true = exact(shift, order, dps=750)
    found = laplace_curve(shift, np.array([order]))[0]
    assert_bounds(found, true, within=float(max(1e-13, SMALLEST_COST / true)))


def test_the_textbook_formula_loses_all_digits_where_ours_does_not() -> None:
    order, shift = 2.0, 1e-9
    naive = math.log(order / (2 * order - 1) * math.exp(shift) + 1 / (2 * order - 1) * math.exp(-2 * shift))
    assert naive < 0.5 * exact(shift, order)
    assert_bounds(laplace_curve(shift, np.array([order]))[0], exact(shift, order), within=1e-13)


@pytest.mark.parametrize("shift", [1e3, 1e30, 1e300, 1e307])
def test_a_huge_shift_approaches_the_pure_cost(shift: float) -> None:
    cost = laplace_cost(shift, SOME_ORDERS)
    assert (cost.epsilons <= shift).all()
    assert (cost.epsilons >= shift - 1.0 / (SOME_ORDERS - 1.0)).all()
    assert (cost.rho or 0.0) >= shift - 1.0


@pytest.mark.parametrize("shift", [1e-9, 1e-3, 0.2, 1.0, 3.0, 40.0])
def test_rho_is_the_supremum_of_the_curve_over_the_order(shift: float) -> None:
    cost = laplace_cost(shift, DEFAULT_ORDERS)
    rho = cost.rho or 0.0
    with digits(50):
        assert_bounds(rho, mp.expm1(-mp.mpf(shift)) + mp.mpf(shift), within=1e-14)
        orders = [1 + mp.mpf(2) ** k for k in range(-30, 14)]
        slopes = [exact(shift, order, dps=100) / order for order in orders]
        assert all(later <= earlier for earlier, later in pairwise(slopes))
        assert slopes[0] <= rho <= slopes[0] * (1 + mp.mpf("1e-6"))


@pytest.mark.parametrize("shift", [1e-9, 1e-3, 0.2, 1.0, 1.3862, 1.3864, 3.0, 40.0, 900.0])
def test_mu_is_that_of_the_error_at_the_midpoint(shift: float) -> None:
    half = mp.mpf(laplace_cost(shift, SOME_ORDERS).mu or 0.0) / 2
    with digits(50):
        error = error_below(mp.mpf(0), mp.mpf(shift) / 2)
        assert mp.ncdf(-half) <= error
        assert mp.ncdf(-half * (1 - mp.mpf("1e-14"))) > error


@moderately
@given(log_uniform(1e-3, 30.0), st.floats(-8.0, 8.0))
def test_gaussian_trade_off_lies_below_that_of_laplace(shift: float, cut: float) -> None:
    """Both tests reject beyond a cut; at the same first error the Gaussian's second error is smaller."""
    with digits(30):
        mu, d = mp.mpf(laplace_cost(shift, SOME_ORDERS).mu or 0.0), mp.mpf(shift)
        place = d / 2 + cut * (1 + d / 4)
        first_error = 1 - error_below(place, mp.mpf(0))
        # The quantile of the Gaussian with that first error, by bisection.
        low, high = mp.mpf(-40), mp.mpf(40)
        for _ in range(90):
            middle = (low + high) / 2
            low, high = (middle, high) if mp.ncdf(-middle) > first_error else (low, middle)
        assert mp.ncdf(low - mu) <= error_below(place, d)


@moderately
@given(st.lists(log_uniform(1e-4, 10.0), min_size=2, max_size=4))
def test_several_coordinates_cost_no_more_than_one_with_the_whole_shift(shifts: list[float]) -> None:
    whole = laplace_cost(math.fsum(shifts), SOME_ORDERS)
    parts = [laplace_cost(shift, SOME_ORDERS) for shift in shifts]
    slack = 1 + 1e-13
    assert (sum(part.epsilons for part in parts) <= whole.epsilons * slack).all()
    assert math.fsum(part.rho or 0.0 for part in parts) <= (whole.rho or 0.0) * slack
    assert math.hypot(*(part.mu or 0.0 for part in parts)) <= (whole.mu or 0.0) * slack


@pytest.mark.parametrize("shift", [1e-6, 0.1, 1.0, 10.0])
def test_it_is_never_above_the_cost_of_any_pure_release(shift: float) -> None:
    laplace, pure = laplace_cost(shift, SOME_ORDERS), pure_cost(shift, SOME_ORDERS)
    assert (laplace.epsilons <= pure.epsilons * (1 + 1e-13)).all()
    assert (laplace.rho or 0.0) < (pure.rho or 0.0)
    assert (laplace.mu or 0.0) < (pure.mu or 0.0)
    assert laplace.pure_epsilon == shift


def test_the_ratio_is_rounded_up() -> None:
    cost = Laplace(1.0, 3.0).cost(SOME_ORDERS, Adjacency.ADD_REMOVE)
    assert 3 * mp.mpf(cost.pure_epsilon or 0.0) >= 1


def test_zero_sensitivity_costs_nothing() -> None:
    cost = Laplace(0, 2).cost(SOME_ORDERS, Adjacency.ADD_REMOVE)
    assert not cost.epsilons.any()
    assert (cost.rho, cost.mu, cost.pure_epsilon) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("field", "sensitivity", "scale"),
    [
        ("sensitivity", -1.0, 1.0),
        ("sensitivity", math.nan, 1.0),
        ("sensitivity", "1", 1.0),
        ("scale", 1.0, 0.0),
        ("scale", 1.0, -1.0),
        ("scale", 1.0, math.inf),
        ("scale", 1.0, True),
    ],
)
def test_refuses_what_is_no_noise(field: str, sensitivity: Any, scale: Any) -> None:
    with pytest.raises(InvalidInput) as refusal:
        Laplace(sensitivity, scale)
    assert refusal.value.field == field


def test_refuses_a_ratio_that_overflows() -> None:
    with pytest.raises(InvalidInput, match="sensitivity / scale must be a finite number"):
        Laplace(1e200, 1e-200).cost(SOME_ORDERS, Adjacency.ADD_REMOVE)
    with pytest.raises(InvalidInput, match="rho must be a finite number"):
        laplace_cost(1.7976931348623157e308, SOME_ORDERS)
