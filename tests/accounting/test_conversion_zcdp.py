"""zCDP to (ε, δ) and back."""

import math

import pytest
from hypothesis import given
from mpmath import mp

from dpledger.accounting.conversion.zcdp import (
    bun_steinke_delta,
    bun_steinke_epsilon,
    bun_steinke_rho,
    zcdp_delta,
    zcdp_epsilon,
    zcdp_order_within,
    zcdp_rho_within,
)
from dpledger.accounting.errors import InvalidInput
from dpledger.accounting.gaussian_profile import gaussian_delta, gaussian_epsilon
from tests.accounting.references import Number, assert_bounds, digits, log_uniform, moderately


def tight_epsilon(rho: float, delta: float) -> Number:
    """Corollary 13, minimised by bisecting the derivative at 40 digits."""
    with digits(40):
        r, goal = mp.mpf(rho), -mp.log(mp.mpf(delta))
        high = mp.log(min(mp.sqrt(goal / r), mp.expm1(goal)))
        low = high - 80
        for _ in range(140):
            middle = (low + high) / 2
            a = mp.exp(middle)
            low, high = (low, middle) if r * a * a + mp.log1p(a) > goal else (middle, high)
        a = mp.exp(low)
        return max(r * (1 + a) - mp.log1p(1 / a) - (mp.log1p(a) - goal) / a, mp.mpf(0))


@given(log_uniform(1e-8, 1e3), log_uniform(1e-14, 0.97))
@moderately
def test_tight_epsilon_is_the_minimum(rho: float, delta: float) -> None:
    found, exact = zcdp_epsilon(rho, delta), tight_epsilon(rho, delta)
    assert mp.mpf(found) >= exact
    assert found <= float(exact) * (1.0 + 1e-9) + 1e-13


@given(log_uniform(1e-8, 1e3), log_uniform(1e-300, 0.97))
@moderately
def test_the_chain_exact_gaussian_tight_closed_form(rho: float, delta: float) -> None:
    mu = math.sqrt(2.0 * rho) * (1.0 - 1e-15)
    assert gaussian_epsilon(mu, delta) <= zcdp_epsilon(rho, delta) <= bun_steinke_epsilon(rho, delta)


@given(log_uniform(1e-6, 100.0), log_uniform(1e-3, 100.0))
@moderately
def test_the_same_chain_in_delta(rho: float, epsilon: float) -> None:
    mu = math.sqrt(2.0 * rho) * (1.0 - 1e-15)
    assert gaussian_delta(epsilon, mu) <= zcdp_delta(rho, epsilon) <= bun_steinke_delta(rho, epsilon)


@given(log_uniform(1e-6, 100.0), log_uniform(1e-12, 0.9))
@moderately
def test_epsilon_and_delta_are_one_another_s_inverse(rho: float, delta: float) -> None:
    epsilon = zcdp_epsilon(rho, delta)
    if epsilon > 0.0:
        assert zcdp_delta(rho, epsilon) == pytest.approx(delta, rel=1e-6)
    closed = bun_steinke_epsilon(rho, delta)
    assert bun_steinke_delta(rho, closed) == pytest.approx(delta, rel=1e-6)
    assert bun_steinke_delta(rho, closed) >= mp.exp(-((mp.mpf(closed) - rho) ** 2) / (4 * mp.mpf(rho)))


@given(log_uniform(1e-8, 1e3), log_uniform(1e-300, 0.97))
@moderately
def test_the_closed_form_is_its_formula(rho: float, delta: float) -> None:
    exact = mp.mpf(rho) + 2 * mp.sqrt(mp.mpf(rho) * -mp.log(mp.mpf(delta)))
    assert_bounds(bun_steinke_epsilon(rho, delta), exact, within=1e-13)


@given(log_uniform(1e-6, 100.0), log_uniform(1e-300, 0.97))
@moderately
def test_rho_is_proven_by_its_epsilon_and_the_largest(epsilon: float, delta: float) -> None:
    tight, closed = zcdp_rho_within(epsilon, delta), bun_steinke_rho(epsilon, delta)
    assert zcdp_epsilon(tight, delta) <= epsilon < zcdp_epsilon(tight * (1.0 + 1e-8), delta)
    assert bun_steinke_epsilon(closed, delta) <= epsilon < bun_steinke_epsilon(closed * (1.0 + 1e-11), delta)
    assert closed <= tight
    order = zcdp_order_within(epsilon, delta)
    budget = epsilon - math.log1p(-1.0 / order) + math.log(delta * order) / (order - 1.0)
    assert budget / order == pytest.approx(tight, rel=1e-5)


def test_nothing_spent_is_nothing_lost() -> None:
    assert zcdp_epsilon(0.0, 1e-5) == bun_steinke_epsilon(0.0, 1e-5) == 0.0
    assert zcdp_delta(0.0, 1.0) == bun_steinke_delta(0.0, 1.0) == 0.0
    assert bun_steinke_rho(0.0, 1e-5) == 0.0


def test_the_tight_conversion_allows_something_even_at_epsilon_zero() -> None:
    rho = zcdp_rho_within(0.0, 0.1)
    assert 0.0 < rho < 0.1
    assert zcdp_epsilon(rho, 0.1) == 0.0


def test_below_rho_the_closed_form_says_nothing() -> None:
    assert bun_steinke_delta(2.0, 2.0) == 1.0
    assert bun_steinke_delta(2.0, 1.0) == 1.0


@pytest.mark.parametrize(
    ("rho", "epsilon"),
    [(1e300, 1.0), (1e-300, 1.0), (5e-324, 1e-9), (1e4, 1e5), (1e-300, 1e308), (1e300, 1e308)],
)
def test_extreme_rho_is_bounded_without_overflow(rho: float, epsilon: float) -> None:
    assert 0.0 < zcdp_delta(rho, epsilon) <= 1.0
    assert zcdp_epsilon(rho, 1e-5) <= bun_steinke_epsilon(rho, 1e-5)


def test_a_rho_without_a_finite_epsilon_is_refused() -> None:
    with pytest.raises(InvalidInput, match="rho"):
        bun_steinke_epsilon(1.7976931348623157e308, 1e-300)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0, "x", None, True])
def test_bad_numbers_are_refused(bad: float) -> None:
    for call in (zcdp_epsilon, bun_steinke_epsilon, zcdp_rho_within, bun_steinke_rho, zcdp_order_within):
        with pytest.raises(InvalidInput):
            call(bad, 1e-5)
        with pytest.raises(InvalidInput):
            call(1.0, bad)
    for other in (zcdp_delta, bun_steinke_delta):
        with pytest.raises(InvalidInput):
            other(bad, 1.0)
        with pytest.raises(InvalidInput):
            other(1.0, bad)


@pytest.mark.parametrize("delta", [0.0, 1.0])
def test_the_ends_of_delta_are_refused(delta: float) -> None:
    for call in (zcdp_epsilon, bun_steinke_epsilon, zcdp_rho_within, bun_steinke_rho):
        with pytest.raises(InvalidInput, match="delta"):
            call(1.0, delta)


def test_a_delta_among_the_smallest_floats_is_rounded_up() -> None:
    """There a unit in the last place is no longer a small share: e^−740 is four of them."""
    rho, epsilon = 5.8532699734158875, 136.92602710452886
    with digits():
        exact = mp.exp(-((mp.mpf(epsilon) - mp.mpf(rho)) ** 2) / (4 * mp.mpf(rho)))
        assert mp.mpf(bun_steinke_delta(rho, epsilon)) >= exact
        least = min(
            mp.exp(a * ((1 + a) * mp.mpf(rho) - mp.mpf(epsilon)) - mp.log1p(a) - a * mp.log1p(1 / a))
            for a in (mp.mpf(k) / 1000 for k in range(10_900, 11_500))
        )
        assert mp.mpf(zcdp_delta(rho, epsilon)) >= least * (1 - mp.mpf(10) ** -5)
