"""Kairouz, Oh and Viswanath: against enumeration of all outcomes of k randomized responses."""

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp

from dpledger.accounting.composition import kov_closed_epsilon, kov_optimal_delta, kov_optimal_epsilon
from dpledger.accounting.composition.optimal import MOST_OPTIMAL
from dpledger.accounting.errors import InvalidInput
from tests.accounting.references import Number, assert_bounds, digits, hockey_stick, log_uniform, moderately


def product(first: Sequence[Number], second: Sequence[Number]) -> list[Number]:
    return [a * b for a in first for b in second]


def composed(parts: Sequence[tuple[float, float]]) -> tuple[list[Number], list[Number]]:
    """All outcomes of independent leaky randomized responses, one for each (ε, δ)."""
    p, q = [mp.mpf(1)], [mp.mpf(1)]
    for epsilon, delta in parts:
        keep, rest = mp.exp(epsilon) / (1 + mp.exp(epsilon)), 1 - mp.mpf(delta)
        p = product(p, [mp.mpf(delta), mp.mpf(0), rest * keep, rest * (1 - keep)])
        q = product(q, [mp.mpf(0), mp.mpf(delta), rest * (1 - keep), rest * keep])
    return p, q


@given(
    log_uniform(0.01, 3.0),
    st.one_of(st.just(0.0), log_uniform(1e-9, 0.2)),
    st.integers(1, 4),
    st.floats(0.0, 1.2),
)
@moderately
def test_the_optimal_delta_is_that_of_enumeration(
    epsilon: float, delta: float, times: int, share: float
) -> None:
    total = share * times * epsilon
    with digits(40):
        exact = hockey_stick(*composed([(epsilon, delta)] * times), total, dps=40)
    found = kov_optimal_delta(epsilon, delta, times, total)
    assert mp.mpf(found) >= exact - mp.mpf(10) ** -35
    assert found <= float(exact) * (1.0 + 1e-9) + 1e-14


@pytest.mark.parametrize(("epsilon", "delta", "times"), [(0.3, 1e-8, 30), (0.1, 0.0, 64), (1.5, 1e-10, 7)])
def test_the_optimal_delta_passes_through_the_theorem_s_points(
    epsilon: float, delta: float, times: int
) -> None:
    """Theorem 3.3 as it is printed: ε_i = (k − 2i)ε."""
    for i in range(times // 2 + 1):
        with digits(60):
            e = mp.mpf(epsilon)
            likely = (
                mp.fsum(
                    mp.binomial(times, j) * (mp.exp((times - j) * e) - mp.exp((times - 2 * i + j) * e))
                    for j in range(i)
                )
                / (1 + mp.exp(e)) ** times
            )
            exact = 1 - (1 - mp.mpf(delta)) ** times * (1 - likely)
        found = kov_optimal_delta(epsilon, delta, times, (times - 2 * i) * epsilon)
        assert mp.mpf(found) * (1 + mp.mpf(10) ** -12) >= exact
        assert found == pytest.approx(float(exact), rel=1e-9, abs=1e-14)


@given(log_uniform(1e-3, 1.0), st.integers(1, 300), log_uniform(1e-9, 0.2))
@moderately
def test_the_optimal_epsilon_is_proven_and_the_least(epsilon: float, times: int, delta: float) -> None:
    found = kov_optimal_epsilon(epsilon, 0.0, times, delta)
    assert kov_optimal_delta(epsilon, 0.0, times, found) <= delta
    if found > 1e-9:
        assert kov_optimal_delta(epsilon, 0.0, times, found * (1.0 - 1e-7)) >= delta * (1.0 - 1e-4)
    assert found <= times * epsilon * (1.0 + 1e-14)


@given(
    st.lists(st.tuples(log_uniform(0.01, 1.5), st.integers(1, 2)), min_size=1, max_size=3),
    log_uniform(1e-8, 0.3),
)
@moderately
def test_the_closed_form_is_never_below_enumeration(parts: list[tuple[float, int]], slack: float) -> None:
    epsilon = kov_closed_epsilon(parts, slack)
    each = [(e, 0.0) for e, times in parts for _ in range(times)]
    with digits(40):
        assert hockey_stick(*composed(each), epsilon, dps=40) <= slack


@given(log_uniform(1e-3, 1.0), st.integers(1, 3000), log_uniform(1e-12, 0.3))
@moderately
def test_the_closed_form_is_its_formula_and_above_the_optimum(
    epsilon: float, times: int, slack: float
) -> None:
    with digits(40):
        e, d = mp.mpf(epsilon), mp.mpf(slack)
        drift, square = times * e * mp.tanh(e / 2), times * e * e
        spread = min(mp.log(mp.e + mp.sqrt(square) / d), mp.log(1 / d))
        printed = min(times * e, drift + mp.sqrt(2 * square * spread))
    found = kov_closed_epsilon([(epsilon, times)], slack)
    assert_bounds(found, printed, within=1e-13)
    assert kov_optimal_delta(epsilon, 0.0, times, found) <= slack


def test_releases_that_cost_nothing_do_not_count() -> None:
    assert kov_closed_epsilon([(0.0, 5)], 1e-5) == 0.0
    assert kov_optimal_epsilon(0.0, 0.0, 5, 1e-5) == 0.0
    assert kov_optimal_delta(0.0, 0.0, 5, 0.0) == 0.0


def test_beyond_the_sum_nothing_is_left_but_the_failures() -> None:
    assert kov_optimal_delta(0.1, 0.0, 10, 2.0) == 0.0
    assert kov_optimal_delta(0.1, 1e-6, 10, 2.0) == pytest.approx(1e-5, rel=1e-5)


def test_releases_without_any_privacy_are_told_so() -> None:
    assert kov_optimal_delta(1e300, 0.0, 10, 1.0) == 1.0
    assert kov_optimal_delta(1e308, 0.0, 10, 1e308) == 1.0


def test_a_delta_below_the_failures_is_refused() -> None:
    with pytest.raises(InvalidInput, match="delta"):
        kov_optimal_epsilon(0.1, 1e-6, 10, 1e-6)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0, "x", None])
def test_bad_numbers_are_refused(bad: float) -> None:
    for arguments in ((bad, 0.0, 5, 1.0), (0.1, bad, 5, 1.0), (0.1, 0.0, 5, bad)):
        with pytest.raises(InvalidInput):
            kov_optimal_delta(*arguments)
    with pytest.raises(InvalidInput):
        kov_optimal_epsilon(0.1, 0.0, 5, bad)
    with pytest.raises(InvalidInput):
        kov_closed_epsilon([(bad, 1)], 1e-5)
    with pytest.raises(InvalidInput):
        kov_closed_epsilon([(0.1, 1)], bad)


@pytest.mark.parametrize("times", [0, -1, MOST_OPTIMAL + 1, 1.5])
def test_counts_out_of_range_are_refused(times: int) -> None:
    with pytest.raises(InvalidInput, match="times"):
        kov_optimal_delta(0.1, 0.0, times, 1.0)


def test_a_delta_too_small_for_a_float_is_not_zero() -> None:
    """Below the sum of all ε something always fails: here with probability e^−940."""
    assert kov_optimal_delta(1.0, 0.0, 3000, 2999.9) > 0.0
    assert kov_optimal_delta(1.0, 0.0, 3000, 3000.1) == 0.0


@pytest.mark.parametrize("epsilon", [1e-155, 1e-200, 1e-300])
@pytest.mark.parametrize("slack", [1e-300, 1e-5])
def test_the_closed_form_of_tiny_releases_is_not_zero(epsilon: float, slack: float) -> None:
    with digits():
        root = mp.mpf(epsilon) * mp.sqrt(7)
        spread = min(mp.log(1 / mp.mpf(slack)), mp.log(mp.e + root / mp.mpf(slack)))
        exact = min(7 * mp.mpf(epsilon), 7 * mp.mpf(epsilon) ** 2 / 2 + root * mp.sqrt(2 * spread))
        assert_bounds(kov_closed_epsilon([(epsilon, 7)], slack), exact, within=1e-14)


def test_a_sum_that_overflows_is_refused() -> None:
    with pytest.raises(InvalidInput):
        kov_closed_epsilon([(1e308, 1), (1e308, 1)], 1e-5)


@given(log_uniform(1e-300, 1e-20), st.floats(0.0, 2.0))
@moderately
def test_the_optimal_delta_of_tiny_releases_is_never_below(epsilon: float, share: float) -> None:
    with digits(700):
        step = mp.mpf(epsilon)
        gaps = [(2 - 2 * flips) * step - mp.mpf(share * epsilon) for flips in range(2)]
        exact = mp.fsum(
            (1 + flips) * mp.exp(-flips * step) * -mp.expm1(-gap) / (1 + mp.exp(-step)) ** 2
            for flips, gap in enumerate(gaps)
            if gap > 0
        )
        assert mp.mpf(kov_optimal_delta(epsilon, 0.0, 2, share * epsilon)) >= exact
