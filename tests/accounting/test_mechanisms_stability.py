"""Propose-test-release: every neighbouring pair of the mechanism, enumerated."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp

from dpledger.accounting.errors import InvalidInput
from dpledger.accounting.mechanisms import Approximate, ProposeTestRelease
from dpledger.accounting.sampling import Adjacency
from tests.accounting.references import (
    SOME_ORDERS,
    Number,
    hockey_stick,
    log_uniform,
    moderately,
    renyi_both_ways,
)


def passes(distance: float, epsilon: float, delta: float) -> Number:
    """P(distance + Laplace(1/ε) > log(1/δ)/ε)."""
    gap = mp.mpf(epsilon) * distance + mp.log(mp.mpf(delta))
    return mp.exp(gap) / 2 if gap < 0 else 1 - mp.exp(-gap) / 2


def outcomes(distance: float, value: int, epsilon: float, delta: float) -> list[Number]:
    """Probabilities of: nothing, the value 0, the value 1."""
    success = passes(distance, epsilon, delta)
    return [1 - success, *(success if other == value else mp.mpf(0) for other in (0, 1))]


@moderately
@given(log_uniform(1e-3, 8.0), log_uniform(1e-12, 0.9), st.integers(0, 60))
def test_neighbours_with_one_value_are_epsilon_dp(epsilon: float, delta: float, distance: int) -> None:
    with mp.workdps(50):
        p, q = (outcomes(step, 0, epsilon, delta) for step in (distance, distance + 1))
        assert hockey_stick(p, q, mp.mpf(epsilon)) <= mp.mpf("1e-45")
        assert hockey_stick(q, p, mp.mpf(epsilon)) <= mp.mpf("1e-45")
        orders = np.array([1.1, 2.0, 30.0])
        cost = ProposeTestRelease(epsilon, delta).cost(orders, Adjacency.ADD_REMOVE)
        for order, found in zip(orders, cost.epsilons, strict=True):
            assert mp.mpf(float(found)) >= renyi_both_ways(p[:2], q[:2], order)


@moderately
@given(log_uniform(1e-3, 8.0), log_uniform(1e-12, 0.9))
def test_neighbours_with_two_values_are_unstable_and_show_them_with_half_delta(
    epsilon: float, delta: float
) -> None:
    with mp.workdps(50):
        p, q = (outcomes(0, value, epsilon, delta) for value in (0, 1))
        assert hockey_stick(p, q, mp.mpf(epsilon)) <= delta
        assert abs(hockey_stick(p, q, mp.mpf(epsilon)) - mp.mpf(delta) / 2) < mp.mpf("1e-45")


def test_a_distance_counted_to_another_value_would_break_the_claim() -> None:
    """That distance is 1, not 0, on both of two neighbours with two values."""
    epsilon, delta = 2.0, 1e-6
    p, q = (outcomes(1, value, epsilon, delta) for value in (0, 1))
    assert hockey_stick(p, q, mp.mpf(epsilon)) > 3 * delta


def test_cost_is_that_of_the_approximate_guarantee_but_derived() -> None:
    mechanism = ProposeTestRelease(0.5, 1e-7)
    cost = mechanism.cost(SOME_ORDERS, Adjacency.REPLACE_ONE)
    same = Approximate(0.5, 1e-7).cost(SOME_ORDERS, Adjacency.REPLACE_ONE)
    assert np.array_equal(cost.epsilons, same.epsilons)
    assert (cost.delta, cost.rho, cost.mu) == (1e-7, same.rho, same.mu)
    assert not mechanism.declared


@pytest.mark.parametrize(
    ("field", "epsilon", "delta"),
    [
        ("epsilon", 0.0, 1e-6),
        ("epsilon", math.inf, 1e-6),
        ("delta", 1.0, 0.0),
        ("delta", 1.0, 1.0),
        ("delta", 1.0, math.nan),
    ],
)
def test_refuses_what_leaves_no_threshold(field: str, epsilon: Any, delta: Any) -> None:
    with pytest.raises(InvalidInput) as refusal:
        ProposeTestRelease(epsilon, delta)
    assert refusal.value.field == field
