"""The Poisson-subsampled Gaussian against quadrature and exact sums at 40 digits."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp

from dpledger.accounting.amplification import poisson_gaussian
from dpledger.accounting.amplification.poisson_gaussian import (
    poisson_gaussian_curve,
    poisson_gaussian_log_moment,
)
from dpledger.accounting.errors import InvalidInput
from dpledger.accounting.orders import DEFAULT_ORDERS
from dpledger.accounting.validation import Floats
from tests.accounting.quadrature import normal_integral
from tests.accounting.references import assert_bounds, digits, log_uniform, moderately

OPACUS_ORDERS: Floats = np.array([1 + x / 10 for x in range(1, 100)] + [float(x) for x in range(12, 64)])
TIGHT = 2e-8
"""What is claimed of the excess over the exact value; 1e-8 where rounding alone decides."""


def panels(rate: float, mu: float, order: float) -> list[tuple[float, float]]:
    """Panels of a length on which the integrand is smooth, where it is within e^−70 of its largest."""
    width = min(2.0, 2.5 / mu)
    ends = np.arange(-25.0, order * mu + 25.0 + width, width)
    logs = np.logaddexp(math.log1p(-rate), math.log(rate) + ends * mu - mu * mu / 2.0)
    small = np.minimum(np.abs(np.expm1(np.minimum(logs, 600.0))) * order, 10.0) + 1e-300
    sizes = np.where(order * logs > 2.0, order * logs, 2.0 * np.log(small)) - ends**2 / 2.0
    kept = sizes > sizes.max() - 70.0
    kept |= np.roll(kept, 1) | np.roll(kept, -1)
    return [(a, b) for a, b, keep in zip(ends[:-1], ends[1:], kept[:-1], strict=True) if keep]


def by_quadrature(rate: float, mu: float, order: float) -> Any:
    """ε(α) of the mixture against the Gaussian, through I − 1 = E[(1+t)^α − 1 − αt]."""
    with digits(40):
        q, m, a = mp.mpf(rate), mp.mpf(mu), mp.mpf(order)

        def excess(u: Any) -> Any:
            t = q * mp.expm1(u * m - m * m / 2)
            return (1 + t) ** a - 1 - a * t

        return mp.log1p(normal_integral(excess, panels(rate, mu, order))) / (a - 1)


def by_binomials(rate: float, mu: float, order: int) -> Any:
    """ε(n) at a whole order, by the exact sum of Mironov, Talwar, Zhang."""
    with digits(40):
        q, m = mp.mpf(rate), mp.mpf(mu)
        terms = (
            mp.binomial(order, k) * (1 - q) ** (order - k) * q**k * mp.expm1(k * (k - 1) * m * m / 2)
            for k in range(2, order + 1)
        )
        return mp.log1p(mp.fsum(terms)) / (order - 1)


def at(rate: float, mu: float, order: float) -> float:
    return float(poisson_gaussian_curve(rate, mu, np.array([order]))[0])


@pytest.mark.parametrize("order", [2, 3, 12, 64, 65, 200])
@pytest.mark.parametrize("noise", [0.05, 0.3, 1.1, 6.0, 1000.0])
@pytest.mark.parametrize("rate", [1e-9, 1e-4, 0.01, 0.5, 0.97, 1.0 - 1e-9])
def test_whole_orders(rate: float, noise: float, order: int) -> None:
    assert_bounds(at(rate, 1.0 / noise, order), by_binomials(rate, 1.0 / noise, order), within=TIGHT)


REAL = [
    *itertools.product((1e-9, 0.01, 0.97), (0.3, 1.1, 1000.0), (1.03, 2.5, 100.5)),
    *itertools.product((1e-5, 0.5), (6.0, 1000.0), (1.03, 700.5, 8193.0)),
    (0.01, 0.05, 1.03),
]


@pytest.mark.parametrize(("rate", "noise", "order"), REAL)
def test_real_orders(rate: float, noise: float, order: float) -> None:
    assert_bounds(at(rate, 1.0 / noise, order), by_quadrature(rate, 1.0 / noise, order), within=TIGHT)


@settings(moderately, max_examples=35)
@given(
    rate=st.one_of(log_uniform(1e-9, 0.99), log_uniform(1e-8, 0.4).map(lambda gap: 1.0 - gap)),
    noise=log_uniform(0.2, 1000.0),
    excess=log_uniform(0.03, 8000.0),
)
def test_drawn_cases(rate: float, noise: float, excess: float) -> None:
    order = 1.0 + excess
    if len(panels(rate, 1.0 / noise, order)) > 60:
        order = 1.0 + min(excess, 3.0 * noise)
    assert_bounds(at(rate, 1.0 / noise, order), by_quadrature(rate, 1.0 / noise, order), within=TIGHT)


@pytest.mark.parametrize(("rate", "noise"), [(0.01, 1.1), (1e-6, 1.0), (0.3, 30.0), (0.95, 0.7), (0.2, 0.05)])
@pytest.mark.parametrize("orders", [DEFAULT_ORDERS, OPACUS_ORDERS], ids=["default", "opacus"])
def test_many_orders_at_once_agree_with_each_alone(rate: float, noise: float, orders: Floats) -> None:
    together = poisson_gaussian_curve(rate, 1.0 / noise, orders)
    alone = [at(rate, 1.0 / noise, float(order)) for order in orders]
    np.testing.assert_allclose(together, alone, rtol=TIGHT)


@pytest.mark.parametrize("order", [1.1, 2.0, 4.5, 16.0])
@pytest.mark.parametrize(("rate", "mu"), [(0.01, 1.0), (0.3, 2.0), (0.9, 0.5), (1e-4, 3.0)])
def test_the_other_direction_is_smaller(rate: float, mu: float, order: float) -> None:
    with digits(40):
        q, m, a = mp.mpf(rate), mp.mpf(mu), mp.mpf(order)

        def power(u: Any) -> Any:
            return (1 + q * mp.expm1(u * m - m * m / 2)) ** (1 - a)

        pieces = [(x, x + 0.5) for x in np.arange(-20.0, 24.0, 0.5)]
        reverse = mp.log(normal_integral(power, pieces)) / (a - 1)
    assert 0 < reverse < at(rate, mu, order)


def test_no_sample_and_no_sensitivity_cost_nothing() -> None:
    assert not poisson_gaussian_curve(0.0, 2.0, DEFAULT_ORDERS).any()
    assert not poisson_gaussian_curve(0.5, 0.0, DEFAULT_ORDERS).any()


def test_rate_one_is_the_gaussian() -> None:
    curve = poisson_gaussian_curve(1.0, 0.7, DEFAULT_ORDERS)
    gaussian = DEFAULT_ORDERS * 0.49 / 2.0
    assert (curve >= gaussian).all()
    np.testing.assert_allclose(curve, gaussian, rtol=1e-14)


@given(rate=st.floats(1e-6, 1.0), mu=log_uniform(1e-3, 30.0))
@moderately
def test_between_zero_and_the_curve_without_sampling(rate: float, mu: float) -> None:
    curve = poisson_gaussian_curve(rate, mu, DEFAULT_ORDERS)
    assert (curve > 0.0).all()
    assert (curve <= DEFAULT_ORDERS * mu * mu / 2.0 * (1.0 + 1e-14)).all()


@pytest.mark.parametrize("mu", [1e-3, 0.5, 4.0, 40.0])
def test_rises_with_rate_noise_and_order(mu: float) -> None:
    rates = [1e-12, 1e-7, 1e-3, 0.05, 0.4, 0.91, 0.999, 1.0]
    curves = np.array([poisson_gaussian_curve(rate, mu, DEFAULT_ORDERS) for rate in rates])
    assert (np.diff(curves, axis=0) > -TIGHT * curves[1:]).all()
    assert (np.diff(curves, axis=1) > -TIGHT * curves[:, 1:]).all()
    more_noise = np.array([poisson_gaussian_curve(rate, mu / 1.01, DEFAULT_ORDERS) for rate in rates])
    assert (more_noise < curves).all()


@pytest.mark.parametrize(("rate", "mu"), [(1e-60, 1.0), (1e-300, 1e-300), (5e-324, 1e-9), (0.01, 1e-200)])
def test_the_smallest_parameters_cost_something(rate: float, mu: float) -> None:
    curve = poisson_gaussian_curve(rate, mu, DEFAULT_ORDERS[DEFAULT_ORDERS < 100.0])
    assert (curve > 0.0).all()
    assert (curve < 1e-90).all()


@pytest.mark.parametrize("order", [1.0001, 1.003, 1.01])
def test_tiny_noise_near_order_one_stays_sound_and_bounded_in_work(order: float) -> None:
    with digits(40):
        lower = mp.log1p(mp.mpf(0.3) ** order * mp.exp(mp.mpf(order) * (order - 1) * 300**2 / 2) / 2)
    assert at(0.3, 300.0, order) >= lower / (order - 1)


def test_the_largest_orders_are_quick_and_sound() -> None:
    orders = np.linspace(9.0e5, 1e6, 64)
    curve = poisson_gaussian_curve(0.001, 0.01, orders)
    with digits(40):
        for found, order in zip(curve, map(mp.mpf, orders), strict=True):
            peak = order / (order - 1) * mp.log(mp.mpf(0.001)) + order * mp.mpf(0.01) ** 2 / 2
            assert_bounds(found, peak, within=1e-6)


def test_the_log_moment_is_the_curve_times_order_less_one() -> None:
    moments = poisson_gaussian_log_moment(0.01, 0.9, DEFAULT_ORDERS)
    curve = poisson_gaussian_curve(0.01, 0.9, DEFAULT_ORDERS)
    np.testing.assert_allclose(moments, curve * (DEFAULT_ORDERS - 1.0), rtol=1e-14)


@pytest.mark.parametrize(
    ("rate", "mu", "orders"),
    [
        (-0.1, 1.0, [2.0]),
        (1.1, 1.0, [2.0]),
        (math.nan, 1.0, [2.0]),
        (0.1, -1.0, [2.0]),
        (0.1, math.inf, [2.0]),
        (0.1, math.nan, [2.0]),
        (0.1, 1e200, [2.0]),
        (0.1, 1.0, [1.0]),
        (0.1, 1.0, [3.0, 2.0]),
        (0.1, 1.0, [math.nan]),
        (0.1, 1.0, [2.0, math.nan, 4.0]),
        (0.1, 1.0, [2.0, math.inf]),
        (0.1, 1.0, [[2.0, 3.0], [4.0, 5.0]]),
    ],
)
def test_out_of_range_is_refused(rate: float, mu: float, orders: list[Any]) -> None:
    with pytest.raises(InvalidInput):
        poisson_gaussian_curve(rate, mu, np.array(orders))


def test_what_is_remembered_depends_on_no_privacy_parameter() -> None:
    first = poisson_gaussian_curve(0.02, 0.8, DEFAULT_ORDERS)
    poisson_gaussian_curve(0.3, 1.7, DEFAULT_ORDERS)
    for cache in (poisson_gaussian._plan, poisson_gaussian._rule):
        cache.cache_clear()
    np.testing.assert_array_equal(first, poisson_gaussian_curve(0.02, 0.8, DEFAULT_ORDERS))
