"""A-DDP's Sampling Composition, with the adjacency that makes it true."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp

from dpledger.accounting.composition import (
    Plan,
    compose,
    sampling_composition_delta,
    sampling_composition_epsilon,
)
from dpledger.accounting.composition.sampling import MOST_ROUNDS
from dpledger.accounting.errors import InvalidInput, Unproven
from dpledger.accounting.gaussian_profile import gaussian_delta, gaussian_epsilon, gaussian_mu_within
from dpledger.accounting.mechanisms import Gaussian, Laplace
from dpledger.accounting.sampling import Adjacency, Sample, Scheme
from dpledger.accounting.steps import Release, Step
from tests.accounting.references import (
    Number,
    assert_bounds,
    digits,
    gaussian_density,
    hockey_stick_by_quadrature,
    log_uniform,
    moderately,
)


def printed_delta(epsilon: float, rate: float, rounds: int, noise: float, shift: float) -> Number:
    """Theorem 1 as it is printed, at 60 digits."""
    with digits(60):
        e, p = mp.mpf(epsilon), mp.mpf(rate)
        total = mp.mpf(0)
        for i in range(1, rounds + 1):
            mu = mp.mpf(shift) * mp.sqrt(i) / noise
            profile = mp.ncdf(mu / 2 - e / mu) - mp.exp(e) * mp.ncdf(-mu / 2 - e / mu)
            total += mp.binomial(rounds, i) * p**i * (1 - p) ** (rounds - i) * profile
        return total


@given(log_uniform(0.01, 10.0), log_uniform(1e-3, 0.9), st.integers(1, 40), log_uniform(0.3, 10.0))
@moderately
def test_delta_is_never_below_the_printed_sum(epsilon: float, rate: float, rounds: int, noise: float) -> None:
    found = sampling_composition_delta(
        epsilon, rate=rate, rounds=rounds, noise_std=noise, replace_one_sensitivity=1.0
    )
    exact = printed_delta(epsilon, rate, rounds, noise, 1.0)
    assert mp.mpf(found) >= exact
    if exact > 1e-300:
        assert_bounds(found, exact, within=1e-9)


@pytest.mark.parametrize("rate", [0.05, 0.3, 0.9])
@pytest.mark.parametrize("epsilon", [0.1, 0.7])
def test_one_round_is_never_below_the_exact_mixture_under_replace_one(rate: float, epsilon: float) -> None:
    """The replaced record moves the sum from +C to −C: H = 2C. With H = C large rates are undercharged."""
    clip, noise = 1.0, 1.5

    def mixture(centre: float) -> object:
        drawn, other = gaussian_density(centre, noise), gaussian_density(0.0, noise)
        return lambda x: rate * drawn(x) + (1 - rate) * other(x)

    points = [-20, -4, -2, -1, 0, 1, 2, 4, 20]
    exact = hockey_stick_by_quadrature(mixture(clip), mixture(-clip), epsilon, points)  # type: ignore[arg-type]
    claims = [
        sampling_composition_delta(epsilon, rate=rate, rounds=1, noise_std=noise, replace_one_sensitivity=h)
        for h in (clip, 2.0 * clip)
    ]
    assert exact <= claims[1]
    assert (claims[0] < exact) == ((rate, epsilon) in {(0.3, 0.1), (0.9, 0.1), (0.9, 0.7)})


def test_with_half_its_sensitivity_the_algorithm_s_claim_is_false() -> None:
    """One release of Algorithm 1 (p = 1, H = C) claimed (1, 1e-5): the true δ is 0.0104."""
    noise = 1.0 / gaussian_mu_within(1.0, 1e-5)
    claimed = sampling_composition_delta(
        1.0, rate=1.0, rounds=1, noise_std=noise, replace_one_sensitivity=1.0
    )
    honest = sampling_composition_delta(1.0, rate=1.0, rounds=1, noise_std=noise, replace_one_sensitivity=2.0)
    assert claimed <= 1e-5 * (1 + 1e-9)
    assert honest == pytest.approx(0.0104, abs=5e-5)
    assert honest == pytest.approx(gaussian_delta(1.0, 2.0 / noise), rel=1e-9)


def test_the_theorem_is_an_order_of_magnitude_looser_than_the_curve() -> None:
    """p = 0.01, σ/H = 1, T = 1000: 23.4 where the exact subsampled Gaussian has 1.83."""
    loose = sampling_composition_epsilon(
        1e-5, rate=0.01, rounds=1000, noise_std=1.0, replace_one_sensitivity=1.0
    )
    assert loose == pytest.approx(23.4, abs=0.05)
    poisson = Step((Release(Gaussian(1.0, 1.0)),), Sample(Scheme.POISSON, 0.01))
    plan = Plan(((poisson, 1000),), 1e-5)
    assert compose(plan, "pld").epsilon == pytest.approx(1.83, abs=0.005)
    assert compose(plan, "rdp").epsilon < 2.11


@given(log_uniform(1e-3, 1.0), st.integers(1, 300), log_uniform(0.3, 20.0), log_uniform(1e-12, 0.1))
@moderately
def test_epsilon_is_proven_by_its_delta_and_the_least(
    rate: float, rounds: int, noise: float, delta: float
) -> None:
    plan = {"rate": rate, "rounds": rounds, "noise_std": noise, "replace_one_sensitivity": 1.0}
    epsilon = sampling_composition_epsilon(delta, **plan)  # type: ignore[arg-type]
    assert sampling_composition_delta(epsilon, **plan) <= delta  # type: ignore[arg-type]
    if epsilon > 1e-6:
        assert sampling_composition_delta(epsilon * (1 - 1e-6), **plan) > delta  # type: ignore[arg-type]


def test_full_participation_is_the_gaussian_itself() -> None:
    found = sampling_composition_epsilon(
        1e-6, rate=1.0, rounds=16, noise_std=4.0, replace_one_sensitivity=1.0
    )
    assert found == pytest.approx(gaussian_epsilon(1.0, 1e-6), rel=1e-9)
    assert found >= gaussian_epsilon(1.0, 1e-6)


def test_no_participation_costs_nothing_to_speak_of() -> None:
    plan = {"rate": 0.0, "rounds": 16, "noise_std": 4.0, "replace_one_sensitivity": 1.0}
    assert 0.0 <= sampling_composition_delta(1.0, **plan) < 1e-300  # type: ignore[arg-type]
    assert sampling_composition_epsilon(1e-6, **plan) == 0.0  # type: ignore[arg-type]


def test_a_hundred_thousand_rounds_are_summed_in_time() -> None:
    epsilon = sampling_composition_epsilon(
        1e-6, rate=1e-4, rounds=100_000, noise_std=20.0, replace_one_sensitivity=1.0
    )
    lightest, heaviest = gaussian_epsilon(1.0 / 20.0, 1e-6), gaussian_epsilon(math.sqrt(60) / 20.0, 1e-6)
    assert lightest < epsilon < heaviest


def test_the_plan_s_own_sensitivity_is_the_replace_one_sensitivity() -> None:
    clip, noise = 1.0, 8.0
    step = Step(
        (Release(Gaussian(2.0 * clip, noise)),),
        Sample(Scheme.WITHOUT_REPLACEMENT, 0.01),
        Adjacency.REPLACE_ONE,
    )
    found = compose(Plan(((step, 100),), 1e-5), "a-ddp")
    expected = sampling_composition_epsilon(
        1e-5, rate=0.01, rounds=100, noise_std=noise, replace_one_sensitivity=2.0 * clip
    )
    assert found.method == "sampling"
    assert found.epsilon == pytest.approx(expected, rel=1e-9)
    full = Step((Release(Gaussian(2.0, 8.0)),), Sample(), Adjacency.REPLACE_ONE)
    assert compose(Plan(((full, 4),), 1e-5), "sampling").epsilon == pytest.approx(
        gaussian_epsilon(0.5, 1e-5), rel=1e-9
    )


def test_what_the_theorem_does_not_cover_is_refused() -> None:
    gaussian = Step((Release(Gaussian(1.0, 1.0)),), Sample(), Adjacency.REPLACE_ONE)
    other = Step((Release(Gaussian(1.0, 2.0)),), Sample(), Adjacency.REPLACE_ONE)
    laplace = Step((Release(Laplace(1.0, 1.0)),), Sample(), Adjacency.REPLACE_ONE)
    with pytest.raises(Unproven, match="same noise"):
        compose(Plan(((gaussian, 1), (other, 1)), 1e-5), "sampling")
    with pytest.raises(Unproven, match="Gaussian"):
        compose(Plan(((laplace, 1),), 1e-5), "sampling")


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0, "x", None])
@pytest.mark.parametrize("field", ["rate", "noise_std", "replace_one_sensitivity"])
def test_bad_numbers_are_refused(field: str, bad: float) -> None:
    good = {"rate": 0.1, "rounds": 10, "noise_std": 1.0, "replace_one_sensitivity": 1.0}
    with pytest.raises(InvalidInput, match=field):
        sampling_composition_delta(1.0, **(good | {field: bad}))  # type: ignore[arg-type]
    with pytest.raises(InvalidInput):
        sampling_composition_delta(bad, **good)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput):
        sampling_composition_epsilon(bad, **good)  # type: ignore[arg-type]


@pytest.mark.parametrize("rounds", [0, -1, 2.5, MOST_ROUNDS + 1])
def test_rounds_out_of_range_are_refused(rounds: int) -> None:
    with pytest.raises(InvalidInput, match="rounds"):
        sampling_composition_delta(1.0, rate=0.1, rounds=rounds, noise_std=1.0, replace_one_sensitivity=1.0)


def test_a_delta_too_small_for_a_float_is_not_zero() -> None:
    assert (
        sampling_composition_delta(40.0, rate=0.5, rounds=3, noise_std=1.0, replace_one_sensitivity=0.5) > 0.0
    )
