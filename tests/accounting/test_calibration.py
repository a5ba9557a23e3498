"""Calibration: proven forward, no less privacy than asked, and no more noise than the best known."""

import functools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpledger.accounting.amplification.poisson_gaussian import poisson_gaussian_curve
from dpledger.accounting.calibration import (
    Calibration,
    Goal,
    calibrate_noise,
    calibrate_noise_std,
    calibrate_rate,
    calibrate_steps,
)
from dpledger.accounting.conversion import Approximate, Gdp, Zcdp, epsilon_at
from dpledger.accounting.conversion.renyi import renyi_budget
from dpledger.accounting.errors import AccountingError, InvalidInput, Unproven, Unreachable
from dpledger.accounting.gaussian_profile import gaussian_delta, gaussian_epsilon, gaussian_mu_within
from dpledger.accounting.mechanisms import GDP, ZCDP, Gaussian, Laplace, Pure
from dpledger.accounting.mechanisms import Approximate as ApproximateRelease
from dpledger.accounting.mechanisms.base import Mechanism
from dpledger.accounting.sampling import Adjacency, Sample, Scheme
from dpledger.accounting.stepcost import cost_of
from dpledger.accounting.steps import Release, Step
from dpledger.accounting.validation import MAX_COUNT
from tests.accounting.references import log_uniform, moderately


def gaussian(noise: float, rate: float | None = None) -> Step:
    sample = Sample() if rate is None else Sample(Scheme.POISSON, rate)
    return Step((Release(Gaussian(1.0, noise)),), sample)


def laplace(scale: float) -> Step:
    return Step((Release(Laplace(1.0, scale)),))


def epsilon_of(step: Step, found: Calibration, delta: float) -> float:
    """Forward, at the order that the answer names, from scratch."""
    assert found.order is not None
    total = cost_of(step, np.array([found.order])).repeated(found.steps)
    return epsilon_at(total, delta)[0]


def proven_epsilon(found: Calibration) -> float:
    assert isinstance(found.guarantee, Approximate)
    return found.guarantee.epsilon


def least_noise(epsilon: float, delta: float, rate: float, steps: int) -> float:
    """Slow reference: bisect the noise at each of many real orders and take the least."""
    best = 1.0 + 2.0 * -math.log(delta) / epsilon
    orders = 1.0 + np.geomspace(max(0.4, best / 30.0), 2.0 * best, 100)
    budgets = renyi_budget(orders, epsilon, math.log(delta)) / steps
    low, high = 0.1, 1e3
    for _ in range(22):
        middle = math.sqrt(low * high)
        if (poisson_gaussian_curve(rate, 1.0 / middle, orders) <= budgets).any():
            high = middle
        else:
            low = middle
    return high


def test_the_published_noise_for_a_thousand_steps() -> None:
    """q = 0.01, δ = 1e-5, ε = 1: dp-accounting finds 1.513122 by Rényi."""
    found = calibrate_noise_std(1.0, 1e-5, steps=1000, rate=0.01)
    assert 1.51305 <= found.value <= 1.513122
    assert found.order == pytest.approx(16.85, abs=0.2)
    assert epsilon_of(gaussian(found.value, 0.01), found, 1e-5) <= 1.0


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0, 20.0])
@pytest.mark.parametrize(("rate", "steps"), [(0.01, 1000), (0.001, 100_000), (0.1, 100), (0.5, 1)])
def test_noise_is_proven_and_within_a_thousandth_of_the_least(
    epsilon: float, rate: float, steps: int
) -> None:
    found = calibrate_noise_std(epsilon, 1e-6, steps=steps, rate=rate)
    assert proven_epsilon(found) <= epsilon
    assert epsilon_of(gaussian(found.value, rate), found, 1e-6) <= epsilon
    assert found.value <= least_noise(epsilon, 1e-6, rate, steps) * 1.001


@given(log_uniform(0.05, 15.0), log_uniform(1e-10, 1e-3), log_uniform(1e-4, 0.9), st.integers(1, 20_000))
@moderately
def test_noise_is_always_proven_and_uses_up_the_target(
    epsilon: float, delta: float, rate: float, steps: int
) -> None:
    found = calibrate_noise_std(epsilon, delta, steps=steps, rate=rate)
    assert epsilon_of(gaussian(found.value, rate), found, delta) <= epsilon
    assert proven_epsilon(found) <= epsilon
    assert proven_epsilon(found) == pytest.approx(epsilon, rel=1e-5)


def test_noise_scales_with_sensitivity() -> None:
    one = calibrate_noise_std(1.0, 1e-5, steps=100, rate=0.05)
    ten = calibrate_noise_std(1.0, 1e-5, steps=100, rate=0.05, sensitivity=10.0)
    assert ten.value == pytest.approx(10.0 * one.value, rel=1e-4)


@given(log_uniform(0.01, 20.0), log_uniform(1e-12, 0.1), st.integers(1, 10_000))
@moderately
def test_full_looks_get_the_exact_noise(epsilon: float, delta: float, steps: int) -> None:
    found = calibrate_noise_std(epsilon, delta, steps=steps, sensitivity=3.0)
    exact = 3.0 * math.sqrt(steps) / gaussian_mu_within(epsilon, delta)
    assert found.value == pytest.approx(exact, rel=1e-6)
    assert gaussian_delta(epsilon, 3.0 * math.sqrt(steps) / found.value) <= delta


def test_samples_of_fixed_size_need_more_noise_under_replace_one() -> None:
    fixed = calibrate_noise_std(
        1.0, 1e-5, steps=10, rate=0.1, adjacency=Adjacency.REPLACE_ONE, scheme=Scheme.WITHOUT_REPLACEMENT
    )
    sample = Sample(Scheme.WITHOUT_REPLACEMENT, 0.1)
    step = Step((Release(Gaussian(1.0, fixed.value)),), sample, Adjacency.REPLACE_ONE)
    assert epsilon_of(step, fixed, 1e-5) <= 1.0
    assert fixed.value > calibrate_noise_std(1.0, 1e-5, steps=10, rate=0.1).value


def test_laplace_noise_for_many_releases() -> None:
    found = calibrate_noise(laplace, Approximate(1.0, 1e-6), steps=100)
    assert epsilon_of(laplace(found.value), found, 1e-6) <= 1.0
    assert found.value < 100.0
    slightly_less = cost_of(laplace(found.value * 0.999), np.array([found.order])).repeated(100)
    assert epsilon_at(slightly_less, 1e-6)[0] > 1.0


@pytest.mark.parametrize(
    ("goal", "exact"),
    [(Zcdp(0.5), math.sqrt(10.0 / (2.0 * 0.5))), (Gdp(0.5), math.sqrt(10.0) / 0.5)],
)
def test_other_goals_have_closed_forms(goal: Goal, exact: float) -> None:
    found = calibrate_noise(gaussian, goal, steps=10, start=100.0)
    assert found.value == pytest.approx(exact, rel=1e-6)
    assert found.value >= exact
    assert found.order is None
    total = cost_of(gaussian(found.value), np.array([2.0])).repeated(10)
    assert (total.rho if isinstance(goal, Zcdp) else total.mu) <= (  # type: ignore[operator]
        goal.rho if isinstance(goal, Zcdp) else goal.mu  # type: ignore[union-attr]
    )


def test_a_goal_that_the_step_has_no_notion_of_is_refused() -> None:
    for goal in (Zcdp(0.5), Gdp(0.5)):
        with pytest.raises(Unproven, match="no"):
            calibrate_noise(lambda noise: gaussian(noise, 0.1), goal, steps=10)


def test_noise_cannot_mend_what_another_release_spends() -> None:
    def step(noise: float) -> Step:
        return Step((Release(Gaussian(1.0, noise)), Release(Pure(3.0))))

    with pytest.raises(Unreachable, match=r"even at 1\.14e\+26 the plan needs epsilon 30\.\d+"):
        calibrate_noise(step, Approximate(1.0, 1e-6), steps=10)


def test_noise_cannot_mend_an_additive_delta() -> None:
    def step(noise: float) -> Step:
        return Step((Release(Gaussian(1.0, noise)), Release(ApproximateRelease(0.001, 1e-7))))

    with pytest.raises(Unreachable, match="additive"):
        calibrate_noise(step, Approximate(1.0, 1e-6), steps=10)
    found = calibrate_noise(step, Approximate(1.0, 1e-6), steps=9)
    total = cost_of(step(found.value), np.array([2.0])).repeated(9)
    assert total.mu is not None
    assert gaussian_delta(1.0, total.mu) + total.delta <= 1e-6 * (1.0 + 1e-12)


def test_a_noise_that_the_mechanism_itself_refuses_is_passed_over() -> None:
    def step(noise: float) -> Step:
        if noise < 3.0:
            raise InvalidInput("noise", "at least 3", noise)
        return gaussian(noise)

    found = calibrate_noise(step, Approximate(1.0, 1e-5), steps=4)
    assert found.value == pytest.approx(2.0 / gaussian_mu_within(1.0, 1e-5), rel=1e-6)


def test_large_and_small_units_are_all_the_same() -> None:
    for unit in (1e-30, 1e30):
        found = calibrate_noise_std(1.0, 1e-5, steps=100, rate=0.05, sensitivity=unit)
        assert found.value == pytest.approx(
            unit * calibrate_noise_std(1.0, 1e-5, steps=100, rate=0.05).value, rel=1e-4
        )


def test_a_target_too_small_for_any_order_is_unreachable() -> None:
    with pytest.raises(Unreachable, match="the target is epsilon 1e-05"):
        calibrate_noise_std(1e-5, 1e-9, steps=10, rate=0.1)


@pytest.mark.parametrize(("noise", "steps", "epsilon"), [(1.1, 1000, 1.0), (5.0, 100, 0.5), (0.8, 10, 4.0)])
def test_the_rate_is_proven_and_the_largest(noise: float, steps: int, epsilon: float) -> None:
    found = calibrate_rate(lambda rate: gaussian(noise, rate), Approximate(epsilon, 1e-5), steps=steps)
    assert 0.0 < found.value < 1.0
    assert epsilon_of(gaussian(noise, found.value), found, 1e-5) <= epsilon
    more = calibrate_noise_std(epsilon, 1e-5, steps=steps, rate=found.value)
    assert more.value == pytest.approx(noise, rel=1e-3)


def test_a_rate_of_one_is_granted_where_it_fits() -> None:
    found = calibrate_rate(lambda rate: gaussian(100.0, rate), Approximate(1.0, 1e-5), steps=10)
    assert found.value == 1.0
    assert proven_epsilon(found) <= 1.0


def test_a_rate_cannot_mend_a_budget_without_room() -> None:
    with pytest.raises(Unreachable, match="even at 1e-12"):
        calibrate_rate(lambda rate: gaussian(1.0, rate), Approximate(1e-5, 1e-9), steps=10)


@pytest.mark.parametrize(("epsilon", "steps"), [(1.0, 141), (3.0, 3132)])
def test_steps_of_dp_sgd(epsilon: float, steps: int) -> None:
    """q = 0.01, σ = 1.1, δ = 1e-5, for a fixed plan: the whole δ at the best real order."""
    found = calibrate_steps(gaussian(1.1, 0.01), Approximate(epsilon, 1e-5))
    assert found.steps == found.value == steps
    assert epsilon_of(gaussian(1.1, 0.01), found, 1e-5) <= epsilon


@pytest.mark.parametrize("goal", [Approximate(3.0, 1e-5), Zcdp(0.37), Gdp(1.1)])
def test_steps_of_a_full_gaussian_are_the_most_that_fit(goal: Goal) -> None:
    found = calibrate_steps(gaussian(20.0), goal)

    def spent(steps: int) -> float:
        total = cost_of(gaussian(20.0), np.array([2.0])).repeated(steps)
        assert total.rho is not None
        assert total.mu is not None
        if isinstance(goal, Approximate):
            return gaussian_epsilon(total.mu, goal.delta) / goal.epsilon
        return total.rho / goal.rho if isinstance(goal, Zcdp) else total.mu / goal.mu

    # In ρ and μ the count is that of exact arithmetic, which these floats are rounded up from.
    assert spent(found.steps) <= 1.0 + (0.0 if isinstance(goal, Approximate) else 1e-14)
    assert spent(found.steps + 1) > 1.0


def test_steps_that_cost_nothing_are_granted_the_largest_count() -> None:
    assert calibrate_steps(Step((Release(Pure(0.0)),)), Approximate(1.0, 1e-5)).steps == MAX_COUNT


def test_steps_with_an_additive_delta_stop_where_delta_ends() -> None:
    leaky = Step((Release(ApproximateRelease(1e-4, 1e-8)),))
    assert calibrate_steps(leaky, Approximate(5.0, 1e-6)).steps == 99


def test_not_even_one_step_is_unreachable() -> None:
    with pytest.raises(Unreachable, match=r"one step alone needs epsilon 4\.37"):
        calibrate_steps(gaussian(1.0), Approximate(3.0, 1e-5))


def test_answers_have_a_wire_form() -> None:
    found = calibrate_noise_std(1.0, 1e-5, steps=10, rate=0.1)
    wire = found.fields()
    assert wire["parameter"] == "noise_std"
    assert wire["value"] == found.value
    assert wire["guarantee"]["epsilon"] <= 1.0
    assert wire["order"] == found.order
    assert "order" not in calibrate_steps(gaussian(20.0), Zcdp(0.5)).fields()


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -1.0, "x", None])
def test_bad_targets_are_refused(bad: float) -> None:
    calls: list[Callable[[], object]] = [
        lambda: calibrate_noise_std(bad, 1e-5, steps=10),
        lambda: calibrate_noise_std(1.0, bad, steps=10),
        lambda: calibrate_noise_std(1.0, 1e-5, steps=10, sensitivity=bad),
        lambda: calibrate_noise(gaussian, Zcdp(bad), steps=10),
        lambda: calibrate_noise(gaussian, Gdp(bad), steps=10),
        lambda: calibrate_noise(gaussian, Approximate(bad, 1e-5), steps=10),
        lambda: calibrate_noise(gaussian, Approximate(1.0, bad), steps=10),
        lambda: calibrate_noise(gaussian, Zcdp(0.5), steps=10, start=bad),
        lambda: calibrate_steps(gaussian(1.0), Approximate(1.0, bad)),
    ]
    for call in calls:
        with pytest.raises(InvalidInput):
            call()


@pytest.mark.parametrize("steps", [0, -3, 1.5, "x", 10**10])
def test_bad_counts_are_refused(steps: int) -> None:
    with pytest.raises(InvalidInput, match="steps"):
        calibrate_noise_std(1.0, 1e-5, steps=steps, rate=0.1)
    with pytest.raises(InvalidInput, match="steps"):
        calibrate_rate(lambda rate: gaussian(1.0, rate), Approximate(1.0, 1e-5), steps=steps)


@pytest.mark.parametrize("rate", [-0.1, 1.1, math.nan])
def test_bad_rates_are_refused(rate: float) -> None:
    with pytest.raises(InvalidInput, match="rate"):
        calibrate_noise_std(1.0, 1e-5, steps=10, rate=rate)


def test_a_dense_sweep_of_targets_is_answered_smoothly() -> None:
    """Refined orders that all but coincide once made reachable targets, about one in fifty, unreachable."""
    targets = [*np.linspace(0.05, 8.0, 240), 1.5031687791861241, 1.65]
    found = {
        float(epsilon): calibrate_noise_std(float(epsilon), 1e-5, steps=1000, rate=0.01).value
        for epsilon in sorted(targets)
    }

    noises = list(found.values())
    assert noises == sorted(noises, reverse=True)
    for epsilon in (1.5031687791861241, 1.65):
        assert found[epsilon] == pytest.approx(least_noise(epsilon, 1e-5, 0.01, 1000), rel=1e-3)


def test_a_dense_sweep_of_noises_gives_rates_and_steps_without_a_gap() -> None:
    goal = Approximate(1.0, 1e-5)
    noises = [float(noise) for noise in np.linspace(1.2, 6.0, 80)]
    rates = [calibrate_rate(functools.partial(gaussian, noise), goal, steps=1000).value for noise in noises]
    steps = [calibrate_steps(gaussian(noise, 0.01), goal).value for noise in noises]

    assert rates == sorted(rates)
    assert steps == sorted(steps)


@pytest.mark.parametrize("sensitivity", [1e-300, 1e-100, 1e100, 1e300])
def test_noise_is_as_large_as_the_sensitivity_whatever_that_is(sensitivity: float) -> None:
    plain = calibrate_noise_std(1.0, 1e-5, steps=10, rate=0.1).value
    found = calibrate_noise_std(1.0, 1e-5, steps=10, rate=0.1, sensitivity=sensitivity).value
    assert found / sensitivity == pytest.approx(plain, rel=1e-5)


@pytest.mark.parametrize(
    ("epsilon", "delta", "rate", "sensitivity"),
    [
        (2.0, 3e-3, 1e-12, 1.7e308),
        (1.0, 1e-3, 0.0, 1e-300),
        (1e50, 0.5, 0.99, 1e-310),
        (1e-300, 5e-324, 0.99, 1.0),
    ],
)
def test_noise_at_the_ends_of_the_floats_is_answered_or_refused(
    epsilon: float, delta: float, rate: float, sensitivity: float
) -> None:
    try:
        found = calibrate_noise_std(epsilon, delta, steps=92, rate=rate, sensitivity=sensitivity)
    except AccountingError:
        return
    assert 0.0 < found.value < math.inf
    assert proven_epsilon(found) <= epsilon


def test_a_search_for_noise_may_start_at_the_largest_float() -> None:
    found = calibrate_noise(gaussian, Zcdp(1e-300), steps=1, start=1.7e308)
    assert found.value < math.inf
    assert isinstance(found.guarantee, Zcdp)
    assert found.guarantee.rho <= 1e-300


@pytest.mark.parametrize(
    ("epsilon", "delta", "rate", "steps", "enough", "order"),
    [(0.2745, 2.4254e-9, 0.0011408, 14, 2.017, 55.24), (27.05, 4.718e-13, 0.04836, 8, 0.4445, 2.256)],
)
def test_the_best_order_is_found_where_the_grid_next_to_it_allows_little_or_nothing(
    epsilon: float, delta: float, rate: float, steps: int, enough: float, order: float
) -> None:
    """The answers were 3.8 % and 8.3 % above the noise that one order shows to be enough."""
    total = cost_of(gaussian(enough, rate), np.array([order])).repeated(steps)
    assert epsilon_at(total, delta)[0] <= epsilon
    assert calibrate_noise_std(epsilon, delta, steps=steps, rate=rate).value <= 1.001 * enough


@pytest.mark.parametrize(
    ("goal", "release", "steps"),
    [
        (Zcdp(1.0), Gaussian(1.0, 1.0), 2),
        (Zcdp(0.5), Gaussian(1.0, 10.0), 100),
        (Zcdp(0.3), ZCDP(0.1), 3),
        (Gdp(0.3), Gaussian(0.1, 1.0), 9),
        (Gdp(0.3), GDP(0.1), 9),
    ],
)
def test_steps_are_counted_as_on_paper(goal: Goal, release: Mechanism, steps: int) -> None:
    found = calibrate_steps(Step((Release(release),)), goal)

    assert (found.value, found.steps) == (steps, steps)
    assert found.guarantee.fields() == goal.fields()
