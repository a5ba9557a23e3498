"""Pure and approximate DP through randomized response, and Gaussian DP, against enumeration."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp

from dpledger.accounting.conversion.gdp import (
    classic_gaussian_mu,
    gdp_renyi,
    gdp_rho,
    mu_within_zcdp,
)
from dpledger.accounting.conversion.pure import (
    approximate_delta_at,
    approximate_epsilon_at,
    bun_steinke_pure_rho,
    pure_delta_at,
    pure_epsilon_at,
    pure_renyi,
    pure_rho,
    pure_within_approximate,
    pure_within_curve,
    pure_within_gdp,
    pure_within_zcdp,
)
from dpledger.accounting.errors import InvalidInput, Unproven
from dpledger.accounting.gaussian_profile import classic_gaussian_noise_std, gaussian_delta
from dpledger.accounting.mechanisms.pure import pure_curve, pure_mu
from tests.accounting.references import (
    SOME_ORDERS,
    Number,
    assert_bounds,
    bernoulli,
    digits,
    hockey_stick,
    kl,
    log_uniform,
    moderately,
    renyi,
)

ROUNDING = mp.mpf(10) ** -45
"""What sixty digits leave of an exact zero."""


def response(epsilon: float) -> tuple[list[Number], list[Number]]:
    """Randomized response under the two inputs."""
    keep = mp.exp(epsilon) / (1 + mp.exp(epsilon))
    return bernoulli(keep), bernoulli(1 - keep)


def leaky_response(epsilon: float, delta: float) -> tuple[list[Number], list[Number]]:
    """Randomized response that gives its input away with probability δ: the worst (ε, δ)-DP pair."""
    first, second = response(epsilon)
    rest = 1 - mp.mpf(delta)
    return [mp.mpf(delta), 0, *(rest * p for p in first)], [0, mp.mpf(delta), *(rest * q for q in second)]


@given(log_uniform(1e-6, 40.0), log_uniform(1e-6, 40.0))
@moderately
def test_delta_of_pure_is_randomized_response(pure: float, at: float) -> None:
    with digits(60):
        exact = hockey_stick(*response(pure), at, dps=60)
    found = pure_delta_at(pure, at)
    if pure <= at:
        assert found == 0.0
        assert exact < ROUNDING
    else:
        assert_bounds(found, exact, within=1e-8)


@given(log_uniform(1e-6, 40.0), log_uniform(1e-15, 0.99))
@moderately
def test_epsilon_of_pure_is_randomized_response(pure: float, delta: float) -> None:
    epsilon = pure_epsilon_at(pure, delta)
    with digits(60):
        assert hockey_stick(*response(pure), epsilon, dps=60) <= delta + ROUNDING
        if epsilon > 1e-9:
            assert hockey_stick(*response(pure), epsilon * (1 - 1e-6) - 1e-12, dps=60) > delta * (1 - 1e-9)


@given(log_uniform(1e-3, 10.0), log_uniform(1e-12, 0.9), st.floats(0.0, 12.0))
@moderately
def test_delta_of_approximate_is_the_leaky_response(epsilon: float, delta: float, at: float) -> None:
    with digits(60):
        exact = hockey_stick(*leaky_response(epsilon, delta), at, dps=60)
    assert_bounds(approximate_delta_at(epsilon, delta, at), exact - ROUNDING, within=1e-9)


@given(log_uniform(1e-3, 10.0), log_uniform(1e-12, 0.9), log_uniform(1e-12, 0.95))
@moderately
def test_epsilon_of_approximate_is_the_leaky_response(epsilon: float, delta: float, wanted: float) -> None:
    if wanted < delta:
        with pytest.raises(Unproven, match="smaller"):
            approximate_epsilon_at(epsilon, delta, wanted)
        return
    found = approximate_epsilon_at(epsilon, delta, wanted)
    assert found <= epsilon
    with digits(60):
        assert hockey_stick(*leaky_response(epsilon, delta), found, dps=60) <= wanted + ROUNDING


@given(log_uniform(1e-9, 500.0))
@moderately
def test_rho_of_pure_is_the_divergence_of_randomized_response(epsilon: float) -> None:
    with digits(400):
        exact = kl(*response(epsilon), dps=400)
    assert_bounds(pure_rho(epsilon), exact, within=1e-12)
    assert pure_rho(epsilon) <= bun_steinke_pure_rho(epsilon) * (1.0 + 1e-14)
    assert_bounds(bun_steinke_pure_rho(epsilon), mp.mpf(epsilon) ** 2 / 2, within=1e-14)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 2.0, 8.0])
def test_rho_bounds_the_whole_curve(epsilon: float) -> None:
    for order in (1.0001, 1.5, 2.0, 5.0, 50.0):
        with digits(60):
            assert renyi(*response(epsilon), order, dps=60) <= order * mp.mpf(pure_rho(epsilon))


@pytest.mark.parametrize("epsilon", [0.0, 1e-6, 0.3, 4.0])
def test_the_curve_of_pure_is_randomized_response(epsilon: float) -> None:
    for order, found in zip(SOME_ORDERS, pure_renyi(epsilon, SOME_ORDERS), strict=True):
        with digits(80):
            assert mp.mpf(float(found)) >= renyi(*response(epsilon), order, dps=80)


@given(log_uniform(1e-6, 30.0), log_uniform(1e-12, 0.9))
@moderately
def test_pure_within_an_approximate_goal_is_proven_and_the_largest(epsilon: float, delta: float) -> None:
    found = pure_within_approximate(epsilon, delta)
    assert found > epsilon * (1.0 - 1e-12)
    assert pure_delta_at(found, epsilon) <= delta
    assert pure_delta_at(found * (1.0 + 1e-6) + 1e-9, epsilon) > delta * (1.0 - 1e-9)


@given(log_uniform(1e-12, 500.0))
@moderately
def test_pure_within_zcdp_is_proven_and_the_largest(rho: float) -> None:
    found = pure_within_zcdp(rho)
    assert pure_rho(found) <= rho < pure_rho(found * (1.0 + 1e-10))
    assert found >= math.sqrt(2.0 * rho) * (1.0 - 1e-14)


@given(log_uniform(1e-9, 30.0))
@moderately
def test_pure_within_gdp_is_proven_and_the_largest(mu: float) -> None:
    found = pure_within_gdp(mu)
    assert pure_mu(found) <= mu < pure_mu(found * (1.0 + 1e-9))


@given(log_uniform(1e-9, 50.0))
@moderately
def test_pure_within_a_curve_is_proven_and_the_largest(scale: float) -> None:
    orders = np.array([1.5, 4.0, 64.0])
    curve = scale * np.array([1.0, 2.0, 3.0])
    found = pure_within_curve(orders, curve)
    assert (pure_curve(found, orders) <= curve).all()
    assert (pure_curve(found * (1.0 + 1e-9), orders) > curve).any()


def test_nothing_allowed_is_nothing_spent() -> None:
    assert pure_within_zcdp(0.0) == pure_within_gdp(0.0) == mu_within_zcdp(0.0) == 0.0
    assert pure_within_curve(np.array([2.0, 3.0]), np.array([0.0, 1.0])) == 0.0
    assert pure_rho(0.0) == bun_steinke_pure_rho(0.0) == gdp_rho(0.0) == 0.0
    assert pure_epsilon_at(0.0, 0.5) == pure_delta_at(0.0, 0.0) == 0.0
    assert gdp_renyi(0.0, SOME_ORDERS).tolist() == [0.0] * SOME_ORDERS.size


def test_a_large_delta_leaves_nothing_of_a_small_epsilon() -> None:
    assert pure_epsilon_at(0.1, 0.9) == 0.0
    assert approximate_epsilon_at(0.1, 0.01, 0.9) == 0.0
    assert approximate_epsilon_at(0.1, 0.01, 0.01) == 0.1


@given(log_uniform(1e-9, 1e3))
@moderately
def test_gaussian_dp_to_rho_and_back(mu: float) -> None:
    rho = gdp_rho(mu)
    assert_bounds(rho, mp.mpf(mu) ** 2 / 2, within=1e-14)
    assert gdp_rho(mu_within_zcdp(rho)) <= rho
    assert mu_within_zcdp(rho) == pytest.approx(mu, rel=1e-12)
    assert (gdp_renyi(mu, SOME_ORDERS) >= SOME_ORDERS * mu * mu / 2.0).all()


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 0.99])
def test_the_classic_mu_is_private_and_the_classic_noise(epsilon: float) -> None:
    mu = classic_gaussian_mu(epsilon, 1e-6)
    assert gaussian_delta(epsilon, mu) <= 1e-6
    assert 1.0 / mu == pytest.approx(classic_gaussian_noise_std(epsilon, 1e-6, 1.0), rel=1e-12)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0, "x", None])
def test_bad_numbers_are_refused(bad: float) -> None:
    for call in (pure_rho, bun_steinke_pure_rho, pure_within_zcdp, pure_within_gdp, gdp_rho, mu_within_zcdp):
        with pytest.raises(InvalidInput):
            call(bad)
    for pair in (pure_delta_at, pure_epsilon_at, pure_within_approximate, classic_gaussian_mu):
        with pytest.raises(InvalidInput):
            pair(bad, 0.5)
        with pytest.raises(InvalidInput):
            pair(0.5, bad)
    for triple in (approximate_delta_at, approximate_epsilon_at):
        for arguments in ((bad, 0.1, 0.5), (0.5, bad, 0.5), (0.5, 0.1, bad)):
            with pytest.raises(InvalidInput):
                triple(*arguments)


def test_a_pure_epsilon_whose_square_overflows_is_refused() -> None:
    with pytest.raises(InvalidInput):
        bun_steinke_pure_rho(1e200)
    with pytest.raises(InvalidInput):
        gdp_rho(1e200)
