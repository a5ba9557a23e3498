"""The moments accountant's closed form against the exact curve."""

import math

import numpy as np
import pytest
from hypothesis import given

from dpledger.accounting.amplification.moments import moments_accountant_curve
from dpledger.accounting.amplification.poisson_gaussian import (
    poisson_gaussian_curve,
    poisson_gaussian_log_moment,
)
from dpledger.accounting.errors import InvalidInput, Unproven
from dpledger.accounting.validation import Floats
from tests.accounting.references import log_uniform, moderately

ORDERS: Floats = 1.0 + np.geomspace(0.02, 2000.0, 120)


def covered(rate: float, noise: float) -> Floats:
    """The orders that satisfy both conditions, written out once more."""
    found = []
    for order in ORDERS:
        gap = math.log(1.0 + 1.0 / (rate * (order - 1.0)))
        first = 0.5 * noise**2 * gap - 2.0 * math.log(noise)
        second = 0.5 * noise**2 * gap**2 - math.log(5.0) - 2.0 * math.log(noise)
        if order <= first and order * (gap + math.log(rate * order) + 0.5 / noise**2) <= second:
            found.append(order)
    return np.array(found)


@moderately
@given(rate=log_uniform(1e-7, 0.199), noise=log_uniform(4.01, 300.0))
def test_never_below_the_exact_curve(rate: float, noise: float) -> None:
    orders = covered(rate, noise)
    found = moments_accountant_curve(rate, 1.0 / noise, orders)
    exact = poisson_gaussian_curve(rate, 1.0 / noise, orders)
    assert (found >= exact).all()
    np.testing.assert_allclose(found, 2.0 * rate**2 * orders / noise**2, rtol=1e-14)


@pytest.mark.parametrize("noise", [4.5, 10.0])
@pytest.mark.parametrize("rate", [1e-4, 0.1])
def test_covers_what_the_theorem_covers_and_refuses_the_next_order(rate: float, noise: float) -> None:
    orders = covered(rate, noise)
    assert 20 < orders.size < ORDERS.size
    moments_accountant_curve(rate, 1.0 / noise, orders)
    with pytest.raises(Unproven, match="covers no order"):
        moments_accountant_curve(rate, 1.0 / noise, ORDERS[: orders.size + 1])


@pytest.mark.parametrize(("rate", "noise"), [(0.21, 5.0), (0.1, 3.9), (0.1, 1.0)])
def test_refuses_large_rates_and_little_noise(rate: float, noise: float) -> None:
    with pytest.raises(Unproven, match="needs rate"):
        moments_accountant_curve(rate, 1.0 / noise, np.array([2.0]))


def test_the_leading_term_of_the_lemma_alone_is_below_the_truth() -> None:
    """Lemma 15.10 without its O(q³λ³/σ³), at the edge of its own conditions."""
    noise, rate = 1.0, 1.0 / 16.0
    power = noise**2 * math.log(1.0 / (rate * noise))
    exact = poisson_gaussian_log_moment(rate, 1.0 / noise, np.array([1.0 + power]))[0]
    leading = rate**2 * power * (power + 1.0) / ((1.0 - rate) * noise**2)
    assert leading == pytest.approx(0.04358, abs=5e-6)
    assert exact == pytest.approx(0.04727, abs=5e-6)
    assert leading < exact


def test_no_sample_costs_nothing() -> None:
    assert not moments_accountant_curve(0.0, 0.1, np.array([2.0, 3.0])).any()


@pytest.mark.parametrize(("rate", "mu"), [(-0.1, 0.1), (0.1, 0.0), (0.1, -1.0), (math.nan, 0.1)])
def test_out_of_range_is_refused(rate: float, mu: float) -> None:
    with pytest.raises(InvalidInput):
        moments_accountant_curve(rate, mu, np.array([2.0]))


def test_a_rate_too_small_to_divide_by_is_covered() -> None:
    assert (moments_accountant_curve(1e-320, 0.01, np.array([1.0 + 1e-9, 3.0])) > 0.0).all()
