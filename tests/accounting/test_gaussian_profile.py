"""The exact privacy profile of a Gaussian against 60-digit arithmetic."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp

from dpledger.accounting.errors import AccountingError, InvalidInput
from dpledger.accounting.gaussian_profile import (
    classic_gaussian_noise_std,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_log_delta,
    gaussian_mu_within,
)
from tests.accounting.references import Number, assert_bounds, digits, log_uniform, moderately

EPSILONS = [0.0, 1e-6, 1e-3, 0.1, 1.0, 5.0, 30.0, 300.0, 1e4]
MUS = [1e-6, 1e-3, 0.03, 0.3, 0.4999, 0.5, 1.0, 3.0, 10.0, 50.0, 141.0, 200.0]
BAD = [math.nan, math.inf, -math.inf, -1.0, "1", None, True]


def exact_delta(epsilon: float, mu: float, *, dps: int = 80) -> Number:
    """Balle and Wang's formula as it stands; both terms are exact to that many digits, tails included."""
    with digits(dps):
        e, m = mp.mpf(epsilon), mp.mpf(mu)
        return mp.ncdf(m / 2 - e / m) - mp.exp(e) * mp.ncdf(-m / 2 - e / m)


def near_enough(epsilon: float, mu: float) -> bool:
    """Whether δ is above 1e-300."""
    return epsilon / mu - mu / 2.0 < 36.5


@pytest.mark.parametrize(("epsilon", "mu"), [(e, m) for e in EPSILONS for m in MUS if near_enough(e, m)])
def test_delta_is_never_below_the_formula_and_within_a_billionth(epsilon: float, mu: float) -> None:
    assert_bounds(gaussian_delta(epsilon, mu), exact_delta(epsilon, mu), within=1e-9)


@given(log_uniform(1e-4, 100.0), log_uniform(1e-3, 20.0))
@moderately
def test_delta_bounds_the_formula_anywhere(epsilon: float, mu: float) -> None:
    if near_enough(epsilon, mu):
        assert_bounds(gaussian_delta(epsilon, mu), exact_delta(epsilon, mu), within=1e-9)


def test_delta_reaches_three_hundred_orders_of_magnitude_down() -> None:
    found = gaussian_delta(1.0, 0.027)
    assert 1e-305 < found < 1e-299
    assert_bounds(found, exact_delta(1.0, 0.027), within=1e-9)


@pytest.mark.parametrize(("epsilon", "mu"), [(1.0, 1e-3), (1e4, 1.0), (700.0, 1e-12), (1.0, 1e-100)])
def test_where_delta_underflows_it_is_the_smallest_float_and_its_logarithm_a_bound(
    epsilon: float, mu: float
) -> None:
    assert gaussian_delta(epsilon, mu) == math.ulp(0.0)
    near = epsilon / mu - mu / 2.0
    assert gaussian_log_delta(epsilon, mu) == pytest.approx(-near * near / 2.0, rel=1e-2)


def test_no_noise_to_speak_of_gives_delta_one_and_no_sensitivity_gives_zero() -> None:
    assert gaussian_delta(0.0, 100.0) == 1.0
    assert gaussian_delta(1.0, 0.0) == 0.0
    assert gaussian_delta(1e308, 1e-300) == math.ulp(0.0)
    assert gaussian_delta(0.0, 1e300) == 1.0
    assert gaussian_epsilon(0.0, 1e-5) == 0.0


def test_at_epsilon_zero_delta_is_the_total_variation() -> None:
    assert gaussian_delta(0.0, 0.7) == pytest.approx(math.erf(0.7 / math.sqrt(8.0)), rel=1e-12)


@given(log_uniform(1e-6, 1e3), log_uniform(1e-300, 0.999))
@moderately
def test_epsilon_is_proven_by_its_delta_and_the_least(mu: float, delta: float) -> None:
    epsilon = gaussian_epsilon(mu, delta)
    assert gaussian_delta(epsilon, mu) <= delta
    if epsilon > 0.0:
        assert gaussian_delta(epsilon * (1.0 - 1e-10), mu) > delta


@given(st.one_of(st.just(0.0), log_uniform(1e-6, 1e4)), log_uniform(1e-300, 0.999))
@moderately
def test_mu_is_proven_by_its_delta_and_the_largest(epsilon: float, delta: float) -> None:
    mu = gaussian_mu_within(epsilon, delta)
    assert gaussian_delta(epsilon, mu) <= delta
    assert gaussian_delta(epsilon, mu * (1.0 + 1e-10)) > delta


@pytest.mark.parametrize("delta", [5e-324, 1e-308, 1.0 - 2.0**-53])
def test_inverses_work_at_the_ends_of_delta(delta: float) -> None:
    assert gaussian_delta(gaussian_epsilon(1.0, delta), 1.0) <= delta
    assert gaussian_delta(1.0, gaussian_mu_within(1.0, delta)) <= delta


def test_known_values() -> None:
    """σ of the analytic Gaussian for (1, 1e-5), and A-DDP's algorithm with half its sensitivity."""
    mu = gaussian_mu_within(1.0, 1e-5)
    assert 1.0 / mu == pytest.approx(3.7306, abs=1e-3)
    assert gaussian_delta(1.0, 2.0 * mu) == pytest.approx(0.0104, abs=5e-5)


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 0.7, 0.99])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.1, 0.9])
def test_the_classic_noise_is_private_and_more_than_needed(epsilon: float, delta: float) -> None:
    noise = classic_gaussian_noise_std(epsilon, delta, 2.0)
    assert_bounds(noise, mp.mpf(2) * mp.sqrt(2 * mp.log(mp.mpf(1.25) / delta)) / epsilon, within=1e-12)
    assert gaussian_delta(epsilon, 2.0 / noise) <= delta
    assert noise >= 2.0 / gaussian_mu_within(epsilon, delta)


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 2.0])
def test_the_classic_noise_is_refused_outside_its_conditions(epsilon: float) -> None:
    with pytest.raises(InvalidInput, match="epsilon"):
        classic_gaussian_noise_std(epsilon, 1e-5, 1.0)


@pytest.mark.parametrize("bad", BAD)
def test_bad_numbers_are_refused(bad: float) -> None:
    calls: list[Callable[[], object]] = [
        lambda: gaussian_delta(bad, 1.0),
        lambda: gaussian_delta(1.0, bad),
        lambda: gaussian_epsilon(bad, 1e-5),
        lambda: gaussian_epsilon(1.0, bad),
        lambda: gaussian_mu_within(bad, 1e-5),
        lambda: gaussian_mu_within(1.0, bad),
        lambda: classic_gaussian_noise_std(0.5, bad, 1.0),
        lambda: classic_gaussian_noise_std(0.5, 1e-5, bad),
    ]
    for call in calls:
        with pytest.raises(InvalidInput):
            call()


@pytest.mark.parametrize("delta", [0.0, 1.0])
def test_the_ends_of_delta_are_refused(delta: float) -> None:
    with pytest.raises(InvalidInput, match="delta"):
        gaussian_epsilon(1.0, delta)
    with pytest.raises(InvalidInput, match="delta"):
        gaussian_mu_within(1.0, delta)


def test_a_mu_without_a_finite_epsilon_is_refused() -> None:
    with pytest.raises(InvalidInput, match="mu"):
        gaussian_epsilon(1e200, 1e-5)


@given(log_uniform(1e-307, 1e-9), st.floats(0.0, 8.0))
@moderately
def test_a_tiny_mu_loses_nothing_to_the_size_of_its_logarithm(mu: float, ratio: float) -> None:
    epsilon = mu * ratio
    exact = exact_delta(epsilon, mu, dps=400)
    with digits(30):
        assert mp.mpf(gaussian_delta(epsilon, mu)) >= exact
        assert gaussian_log_delta(epsilon, mu) >= mp.log(exact)


@pytest.mark.parametrize("mu", [3e7, 1e9, 1e50, 1e150])
def test_a_large_mu_has_an_epsilon_or_is_refused(mu: float) -> None:
    try:
        epsilon = gaussian_epsilon(mu, 1e-10)
    except AccountingError:
        return
    assert gaussian_delta(epsilon, mu) <= 1e-10
