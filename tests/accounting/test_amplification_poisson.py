"""Poisson sampling of any curve: exact enumeration of two-point and random discrete mechanisms."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp

from dpledger.accounting.amplification.poisson import POISSON_METHODS, poisson_curve
from dpledger.accounting.amplification.poisson_gaussian import poisson_gaussian_curve
from dpledger.accounting.amplification.whole_orders import MAX_WHOLE, base_moments, log_binomial_sums
from dpledger.accounting.errors import InvalidInput
from dpledger.accounting.orders import DEFAULT_ORDERS
from dpledger.accounting.validation import Floats
from tests.accounting.references import assert_bounds, digits, log_uniform, moderately, renyi, renyi_both_ways

WHOLE: Floats = DEFAULT_ORDERS[np.floor(DEFAULT_ORDERS) == DEFAULT_ORDERS]

Distribution = Sequence[Any]


def two_sided(p: Distribution, q: Distribution) -> Any:
    """The exact curve of a pair, the larger of both directions, just above in float64."""

    def curve(orders: Floats) -> Floats:
        exact = [float(renyi_both_ways(p, q, float(a), dps=40)) for a in orders]
        return np.maximum(exact, 0.0) * (1.0 + 1e-14)

    return curve


def mixed(p: Distribution, q: Distribution, rate: float) -> list[Any]:
    return [(1 - mp.mpf(rate)) * b + mp.mpf(rate) * a for a, b in zip(p, q, strict=True)]


def gaussian(mu: float) -> Any:
    return lambda orders: orders * (mu * mu / 2.0)


weights = st.lists(st.integers(1, 40), min_size=2, max_size=4)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[list[Any], list[Any]]:
    """Two distributions on the same few outcomes."""
    first = draw(weights)
    second = draw(st.lists(st.integers(1, 40), min_size=len(first), max_size=len(first)))
    with digits(60):
        return [mp.mpf(x) / sum(first) for x in first], [mp.mpf(x) / sum(second) for x in second]


@moderately
@given(
    pair=pairs(), rate=log_uniform(1e-4, 0.999), order=st.sampled_from([1.2, 2.0, 2.5, 3.0, 6.0, 6.7, 12.0])
)
def test_never_below_either_direction(pair: Any, rate: float, order: float) -> None:
    p, q = pair
    found = poisson_curve(rate, two_sided(p, q), np.array([order]))[0]
    with digits(30):
        assert found >= renyi_both_ways(mixed(p, q, rate), q, order, dps=30) - mp.mpf("1e-25")


@pytest.mark.parametrize("mu", [0.1, 0.9, 2.0])
@pytest.mark.parametrize("rate", [1e-6, 0.01, 0.4, 0.95])
def test_exact_for_gaussians_at_whole_orders(rate: float, mu: float) -> None:
    exact = poisson_gaussian_curve(rate, mu, WHOLE)
    found = poisson_curve(rate, gaussian(mu), WHOLE)
    assert (found >= exact * (1 - 2e-8)).all()
    few = WHOLE <= 64
    np.testing.assert_allclose(found[few], exact[few], rtol=2e-8)
    np.testing.assert_allclose(found, exact, rtol=5e-3)


@pytest.mark.parametrize("rate", [1e-3, 0.3])
def test_whole_orders_against_the_formula_at_40_digits(rate: float) -> None:
    for order in (2, 5, 40, 700):
        with digits(40):
            q = mp.mpf(rate)
            total = (1 - q) ** (order - 1) * (1 + (order - 1) * q) + mp.fsum(
                mp.binomial(order, k) * (1 - q) ** (order - k) * q**k * mp.exp((k - 1) * k * mp.mpf(0.125))
                for k in range(2, order + 1)
            )
            exact = mp.log(total) / (order - 1)
        found = poisson_curve(rate, gaussian(0.5), np.array([float(order)]))[0]
        assert_bounds(found, exact, within=1e-9 if order <= 64 else 2e-4)


def test_between_whole_orders_the_chord() -> None:
    at = poisson_curve(0.05, gaussian(1.0), np.array([1.5, 2.0, 2.75, 3.0]))
    assert at[0] == pytest.approx(at[1], rel=1e-12)  # (α−1)ε(α) from 0 at α = 1
    assert 1.75 * at[2] == pytest.approx(0.25 * 1.0 * at[1] + 0.75 * 2.0 * at[3], rel=1e-12)


@given(rate=st.floats(1e-9, 1.0), mu=log_uniform(1e-3, 20.0))
@moderately
def test_rises_with_the_order_and_stays_below_the_curve_without_sampling(rate: float, mu: float) -> None:
    orders = DEFAULT_ORDERS[::6]
    found = poisson_curve(rate, gaussian(mu), orders)
    assert (found > 0.0).all()
    assert (found <= gaussian(mu)(orders)).all()
    assert (np.diff(found) >= 0.0).all()


@pytest.mark.parametrize("rate", [1e-4, 0.02, 0.5])
def test_zhu_wang_is_never_below(rate: float) -> None:
    tight = poisson_curve(rate, gaussian(0.8), WHOLE)
    loose = poisson_curve(rate, gaussian(0.8), WHOLE, method="zhu-wang")
    assert (loose >= tight).all()
    assert loose[0] == pytest.approx(tight[0], rel=1e-12)  # no factor at α = 2
    assert loose[8] > 1.004 * tight[8]


def test_zhu_wang_against_its_formula() -> None:
    rate, order = 0.1, 8
    with digits(30):
        q = mp.mpf(rate)
        total = (1 - q) ** (order - 1) * (order * q - q + 1)
        for k in range(2, order + 1):
            factor = 1 if k == 2 else 3
            total += (
                factor
                * mp.binomial(order, k)
                * q**k
                * (1 - q) ** (order - k)
                * mp.exp((k - 1) * k * mp.mpf(0.125))
            )
        exact = mp.log(total) / (order - 1)
    found = poisson_curve(rate, gaussian(0.5), np.array([float(order)]), method="zhu-wang")[0]
    assert_bounds(found, exact, within=1e-9)
    assert found == pytest.approx(0.0368, abs=5e-5)


@pytest.mark.parametrize("method", POISSON_METHODS)
def test_a_one_sided_curve_is_not_enough_and_no_factor_mends_it(method: str) -> None:
    """P is certain of an outcome that Q has with probability 1/2: D(P ‖ Q) = log 2 at every order."""
    p, q, order = [1, 0], [mp.mpf(1) / 2, mp.mpf(1) / 2], 2.0
    assert renyi(p, q, order) == pytest.approx(math.log(2.0))
    claimed = poisson_curve(
        0.5, lambda orders: np.full(orders.size, math.log(2.0)), np.array([order]), method=method
    )
    true = renyi(q, mixed(p, q, 0.5), order)
    assert true == pytest.approx(math.log(4.0 / 3.0))
    assert claimed[0] == pytest.approx(math.log(1.25))
    assert claimed[0] < true


@pytest.mark.parametrize("mu", [0.01, 1.0])
def test_ends_of_the_rate(mu: float) -> None:
    assert not poisson_curve(0.0, gaussian(mu), DEFAULT_ORDERS).any()
    np.testing.assert_array_equal(
        poisson_curve(1.0, gaussian(mu), DEFAULT_ORDERS), gaussian(mu)(DEFAULT_ORDERS)
    )


def test_what_costs_nothing_still_does_and_what_costs_something_never_costs_nothing() -> None:
    assert not poisson_curve(0.5, np.zeros_like, DEFAULT_ORDERS).any()
    assert (poisson_curve(1e-300, gaussian(1.0), DEFAULT_ORDERS) > 0.0).all()


def test_very_large_orders_and_costs_fall_back_to_the_curve_without_sampling() -> None:
    orders = np.array([1.5, MAX_WHOLE + 1.0, 1e6])
    found = poisson_curve(0.1, gaussian(0.001), orders)
    np.testing.assert_array_equal(found[1:], gaussian(0.001)(orders)[1:])
    beyond = np.array([MAX_WHOLE + 1.0, 1e6])
    np.testing.assert_array_equal(poisson_curve(0.1, gaussian(0.1), beyond), gaussian(0.1)(beyond))
    huge = poisson_curve(0.1, lambda at: np.full(at.size, 1e295), np.array([2.0, 3.5]))
    assert (huge >= 1e295 - 1e280).all()


def test_many_terms_are_summed_in_parts() -> None:
    wholes = np.arange(2.0, 1500.0)
    sums = log_binomial_sums(wholes, np.zeros(1498))
    with digits(30):
        for n in (3, 700, 1499):
            exact = mp.log(mp.mpf(2) ** n - 1 - n)
            assert_bounds(sums[n - 2], exact, within=1e-10)


def test_the_base_between_its_knots_is_bounded_by_chords() -> None:
    base, at = base_moments(gaussian(0.3), np.array([2.0, 5000.0]), np.array([3.3]))
    whole = np.arange(2.0, 5001.0)
    exact = (whole - 1.0) * gaussian(0.3)(whole)
    assert (base >= exact).all()
    np.testing.assert_allclose(base, exact, rtol=1e-3)
    assert at[0] == gaussian(0.3)(np.array([3.3]))[0]


@pytest.mark.parametrize(
    ("rate", "orders", "method"),
    [(-1.0, [2.0], "steinke"), (math.nan, [2.0], "steinke"), (0.1, [0.5], "steinke"), (0.1, [2.0], "none")],
)
def test_out_of_range_is_refused(rate: float, orders: list[float], method: str) -> None:
    with pytest.raises(InvalidInput):
        poisson_curve(rate, gaussian(1.0), np.array(orders), method=method)
