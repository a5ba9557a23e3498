"""Noise, rate and count by privacy-loss distributions: the known figures, each proven forward."""

import math

import pytest

from dpledger.accounting.errors import InvalidInput, Unproven, Unreachable
from dpledger.accounting.mechanisms import ZCDP, Gaussian, Laplace
from dpledger.accounting.pld.calibration import (
    largest_count,
    largest_count_beside,
    largest_rate,
    least_noise,
)
from dpledger.accounting.pld.plan import PlanLoss
from dpledger.accounting.sampling import Adjacency, Sample, Scheme
from dpledger.accounting.steps import Release, Step
from dpledger.accounting.validation import MAX_COUNT


def sgd(rate: float, noise_std: float) -> Step:
    return Step((Release(Gaussian(1.0, noise_std)),), Sample(Scheme.POISSON, rate))


def test_the_noise_for_a_thousand_steps() -> None:
    found = least_noise(lambda noise: sgd(0.01, noise), 1.0, 1e-5, times=1000)
    assert found == pytest.approx(1.4146, abs=1e-4)
    assert PlanLoss([(sgd(0.01, found), 1000)]).epsilon(1e-5, tolerance=2e-5) <= 1.0
    assert PlanLoss([(sgd(0.01, 0.999 * found), 1000)]).epsilon_bounds(1e-5).lower > 1.0


@pytest.mark.parametrize(
    ("rate", "noise_std", "epsilon", "delta", "published"),
    [
        (0.01, 1.1, 1.0, 1e-5, 421),
        (0.01, 1.1, 3.0, 1e-5, 3712),
        (0.01, 1.1, 1.0, 1e-6, 277),
        (0.05, 1.0, 3.0, 1e-5, 68),
    ],
)
def test_how_many_steps_fit(
    rate: float, noise_std: float, epsilon: float, delta: float, published: int
) -> None:
    """As many as published, proven by the upper bound; two more are refuted by the lower bound."""
    step = sgd(rate, noise_std)
    found = largest_count(step, epsilon, delta)
    assert found == published
    assert PlanLoss([(step, found)]).epsilon(delta, tolerance=2e-5) <= epsilon
    assert PlanLoss([(step, found + 2)]).epsilon_bounds(delta, tolerance=2e-5).lower > epsilon


def test_the_rate_is_proven_and_the_largest() -> None:
    found = largest_rate(lambda rate: sgd(rate, 1.1), 1.0, 1e-5, times=1000)
    assert PlanLoss([(sgd(found, 1.1), 1000)]).epsilon(1e-5, tolerance=2e-5) <= 1.0
    assert PlanLoss([(sgd(1.001 * found, 1.1), 1000)]).epsilon_bounds(1e-5).lower > 1.0


def test_a_full_sample_where_it_is_within_the_target() -> None:
    assert largest_rate(lambda rate: sgd(rate, 100.0), 1.0, 1e-5, times=10) == 1.0


def test_laplace_noise_for_one_release() -> None:
    found = least_noise(lambda scale: Step((Release(Laplace(1.0, scale)),)), 1.0, 1e-6, times=1)
    assert 1.0 / found == pytest.approx(1.0 + 2e-6, rel=1e-4)


def test_a_target_that_nothing_meets() -> None:
    with pytest.raises(Unreachable, match="one step alone"):
        largest_count(sgd(0.5, 0.5), 0.1, 1e-9)
    fixed = Release(Gaussian(1.0, 0.5))

    def beside(noise: float) -> Step:
        return Step((fixed, Release(Gaussian(1.0, noise))))

    with pytest.raises(Unreachable, match="no value"):
        least_noise(beside, 0.5, 1e-9, times=3)


@pytest.mark.parametrize(
    ("epsilon", "delta", "times"),
    [(0.0, 1e-5, 1), (math.nan, 1e-5, 1), (1.0, 0.0, 1), (1.0, 1.0, 1), (1.0, 1e-5, 0)],
)
def test_bad_targets_are_refused(epsilon: float, delta: float, times: int) -> None:
    with pytest.raises(InvalidInput):
        least_noise(lambda noise: sgd(0.1, noise), epsilon, delta, times=times)


@pytest.mark.parametrize(
    ("fixed", "caps", "published"),
    [
        ([], {"mu": 0.125}, 3600),
        ([(sgd(0.01, 1.1), 3700)], {}, 12),
        ([(sgd(0.01, 1.1), 3712)], {}, 0),
        ([(sgd(0.01, 1.1), 4000)], {}, 0),
        ([(Step((Release(Laplace(1.0, 5.0)),)), 3)], {"mu": 0.1, "rho": 0.01}, None),
    ],
)
def test_how_many_steps_fit_beside_what_is_fixed(
    fixed: list[tuple[Step, int]], caps: dict[str, float], published: int | None
) -> None:
    """As many as a plan that is opened with them may hold, and not one more; none is an answer."""
    step = sgd(0.01, 1.1)
    mu, rho = caps.get("mu", 0.0), caps.get("rho", 0.0)
    found = largest_count_beside(fixed, step, 3.0, 1e-5, mu=mu, rho=rho)
    assert published is None or found == published
    assert found == 0 or PlanLoss([*fixed, (step, found)], **caps).epsilon(1e-5) <= 3.0
    assert PlanLoss([*fixed, (step, found + 1)], **caps).epsilon(1e-5) > 3.0


def test_counts_at_the_ends_of_what_is_possible() -> None:
    free, full = Step((Release(Gaussian(0.0, 1.0)),)), Step((Release(Gaussian(1.0, 1.0)),))
    assert largest_count_beside([], free, 1.0, 1e-5) == MAX_COUNT
    assert largest_count_beside([], free, 1.0, 1e-5, rho=1.0) == 0
    assert largest_count_beside([], Step((Release(Gaussian(1.0, 1e7)),)), 1.0, 1e-5) == MAX_COUNT
    assert largest_count_beside([], full, 1e4, 1e-5) == 255  # one more is a μ that no grid holds
    assert largest_count_beside([], full, 1.0, 1e-5, mu=16.0) == 0
    with pytest.raises(InvalidInput, match="mu"):
        largest_count_beside([], full, 1.0, 1e-5, mu=-1.0)
    other = Step((Release(Gaussian(1.0, 9.0)),), adjacency=Adjacency.REPLACE_ONE)
    with pytest.raises(InvalidInput, match="one adjacency"):
        largest_count_beside([(full, 1), (other, 1)], full, 9.0, 1e-5)
    with pytest.raises(Unproven):
        largest_count_beside([], Step((Release(ZCDP(0.1)),)), 1.0, 1e-5)


def test_no_more_are_looked_for_than_asked() -> None:
    assert largest_count_beside([], sgd(0.01, 1.1), 1.0, 1e-5, most=100) == 100
    assert largest_count_beside([], sgd(0.01, 1.1), 1.0, 1e-5, most=421) == 421
    assert largest_count_beside([], sgd(0.01, 1.1), 1.0, 1e-5, most=1000) == 421
