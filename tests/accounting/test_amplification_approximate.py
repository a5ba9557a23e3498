"""(ε, δ) on a sample: exact hockey-stick divergences of the pair that every (ε, δ) comes from."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp

from dpledger.accounting.amplification.approximate import (
    amplified_approximate,
    amplified_delta,
    amplified_epsilon,
)
from dpledger.accounting.amplification.pairing import check_pairing
from dpledger.accounting.amplification.poisson import poisson_curve
from dpledger.accounting.errors import AdjacencyMismatch, InvalidInput
from dpledger.accounting.mechanisms.pure import pure_curve
from dpledger.accounting.sampling import Adjacency, Sample, Scheme
from tests.accounting.references import assert_bounds, digits, hockey_stick, log_uniform, moderately

POISSON, WITHOUT = Scheme.POISSON, Scheme.WITHOUT_REPLACEMENT
ADD, REPLACE = Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE


def leaky(epsilon: float, delta: float) -> tuple[list[Any], list[Any]]:
    """Kairouz, Oh, Viswanath: reveal which with probability δ, else randomized response."""
    true = (1 - mp.mpf(delta)) * mp.exp(epsilon) / (1 + mp.exp(epsilon))
    other = (1 - mp.mpf(delta)) / (1 + mp.exp(epsilon))
    return [mp.mpf(delta), true, other, mp.mpf(0)], [mp.mpf(0), other, true, mp.mpf(delta)]


def mixed(p: list[Any], q: list[Any], rate: float) -> list[Any]:
    return [(1 - mp.mpf(rate)) * b + mp.mpf(rate) * a for a, b in zip(p, q, strict=True)]


@moderately
@given(rate=log_uniform(1e-12, 0.999), epsilon=log_uniform(1e-12, 690.0))
def test_epsilon_never_below_and_tight(rate: float, epsilon: float) -> None:
    with digits(60):
        exact = mp.log1p(mp.mpf(rate) * mp.expm1(mp.mpf(epsilon)))
        assert_bounds(amplified_epsilon(rate, epsilon), exact, within=1e-14)


@pytest.mark.parametrize("rate", [1e-300, 1e-9, 0.3, 1.0 - 1e-12])
@pytest.mark.parametrize("epsilon", [699.0, 701.0, 5000.0, 1e6])
def test_large_epsilon_in_log_space(rate: float, epsilon: float) -> None:
    with digits(60):
        exact = mp.log1p(mp.mpf(rate) * mp.expm1(mp.mpf(epsilon)))
        assert_bounds(amplified_epsilon(rate, epsilon), exact, within=1e-12)


@moderately
@given(rate=log_uniform(1e-4, 0.99), epsilon=log_uniform(1e-3, 8.0), delta=log_uniform(1e-9, 0.3))
def test_the_sampled_pair_is_within_it_in_both_directions(rate: float, epsilon: float, delta: float) -> None:
    with digits(40):
        p, q = leaky(epsilon, delta)
        found = amplified_approximate(Sample(POISSON, rate), ADD, epsilon, delta)
        for first, second in ((mixed(p, q, rate), q), (q, mixed(p, q, rate))):
            assert hockey_stick(first, second, found[0]) <= found[1]
        below = found[0] * (1 - mp.mpf("1e-6"))
        assert hockey_stick(mixed(p, q, rate), q, below) > mp.mpf(rate) * delta  # no smaller ε would do


def test_without_replacement_one_of_three_records_is_within_it() -> None:
    """The record that differs is drawn with probability 1/3, and otherwise one of two others."""
    with digits(40):
        p, q = leaky(0.7, 0.01)
        epsilon, delta = amplified_approximate(Sample(WITHOUT, 1 / 3), REPLACE, 0.7, 0.01)
        others = [(q, q), (q, p), (p, p)]
        for a, b in others:
            rest = [(x + y) / 3 for x, y in zip(a, b, strict=True)]
            first = [x / 3 + r for x, r in zip(p, rest, strict=True)]
            second = [x / 3 + r for x, r in zip(q, rest, strict=True)]
            assert hockey_stick(first, second, epsilon) <= delta
            assert hockey_stick(second, first, epsilon) <= delta


@pytest.mark.parametrize("epsilon_at", [0.05, 0.2, 0.5])
@pytest.mark.parametrize("rate", [0.05, 0.5])
def test_a_curve_with_delta_is_amplified_with_rate_times_delta(rate: float, epsilon_at: float) -> None:
    """The amplified curve and q·δ bound the exact δ of the sampled pair; the curve alone does not."""
    epsilon, delta, orders = 1.0, 0.01, np.arange(2.0, 200.0)
    curve = poisson_curve(rate, lambda at: pure_curve(epsilon, at), orders)
    tails = (orders - 1.0) * (curve - epsilon_at) + (orders - 1.0) * np.log1p(-1.0 / orders) - np.log(orders)
    from_curve = min(1.0, float(np.exp(tails.min())))
    with digits(40):
        p, q = leaky(epsilon, delta)
        true = hockey_stick(mixed(p, q, rate), q, epsilon_at)
        assert true <= (1 - mp.mpf(rate) * delta) * from_curve + amplified_delta(rate, delta)
        assert hockey_stick(mixed(p, q, rate), q, 20.0) > 0.99 * rate * delta  # all of q·δ is needed


def test_ends() -> None:
    assert amplified_epsilon(0.0, 3.0) == 0.0
    assert amplified_epsilon(1.0, 3.0) == 3.0
    assert amplified_epsilon(0.4, 0.0) == 0.0
    assert amplified_delta(0.0, 0.1) == 0.0
    assert amplified_delta(1.0, 0.1) == 0.1
    assert amplified_delta(0.5, 0.0) == 0.0
    assert amplified_approximate(Sample(), REPLACE, 2.0, 1e-6) == (2.0, 1e-6)


@given(rate=st.floats(0.0, 1.0), epsilon=st.floats(0.0, 1e6), delta=st.floats(0.0, 0.999))
def test_sampling_never_costs_more(rate: float, epsilon: float, delta: float) -> None:
    assert amplified_epsilon(rate, epsilon) <= epsilon
    assert rate * delta <= amplified_delta(rate, delta) <= delta


@pytest.mark.parametrize(("scheme", "adjacency"), [(POISSON, REPLACE), (WITHOUT, ADD)])
def test_the_other_adjacency_is_refused(scheme: Scheme, adjacency: Adjacency) -> None:
    with pytest.raises(AdjacencyMismatch, match="amplification by"):
        check_pairing(scheme, adjacency)
    with pytest.raises(AdjacencyMismatch):
        amplified_approximate(Sample(scheme, 0.1), adjacency, 1.0, 0.0)


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_a_full_look_goes_with_either(adjacency: Adjacency) -> None:
    check_pairing(Scheme.FULL, adjacency)


@pytest.mark.parametrize(
    ("rate", "epsilon", "delta"), [(1.5, 1.0, 0.0), (0.5, -1.0, 0.0), (0.5, math.inf, 0.0), (0.5, 1.0, 1.0)]
)
def test_out_of_range_is_refused(rate: float, epsilon: float, delta: float) -> None:
    with pytest.raises(InvalidInput):
        amplified_approximate(Sample(POISSON, rate), ADD, epsilon, delta)
