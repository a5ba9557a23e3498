"""Costs compose: each notion by its own rule, rounded up, and refused when it is no cost."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp

from dpledger.accounting.cost import Cost
from dpledger.accounting.errors import InvalidInput
from dpledger.accounting.mechanisms import Approximate, Gaussian, Laplace, Pure
from dpledger.accounting.sampling import Adjacency
from tests.accounting.references import SOME_ORDERS, assert_bounds, log_uniform, moderately

ORDERS = np.array([1.5, 2.0, 8.0])
SIZES = log_uniform(1e-12, 1e6)


def cost_of(size: float, delta: float = 0.0) -> Cost:
    return Cost(ORDERS, ORDERS * size, delta, rho=size, mu=size, pure_epsilon=size)


@moderately
@given(SIZES, SIZES)
def test_a_sum_is_never_below_the_exact_one(first: float, second: float) -> None:
    total = cost_of(first, 1e-9) + cost_of(second, 3e-9)
    exact = Fraction(first) + Fraction(second)
    for found in (total.rho or 0.0, total.pure_epsilon or 0.0):
        assert exact <= Fraction(found) <= exact * (1 + Fraction(1, 10**15))
    for left, right, found in zip(ORDERS * first, ORDERS * second, total.epsilons, strict=True):
        assert Fraction(left) + Fraction(right) <= Fraction(found)
    with mp.workdps(50):
        assert_bounds(total.mu or 0.0, mp.hypot(mp.mpf(first), mp.mpf(second)), within=1e-14)
    assert Fraction(1e-9) + Fraction(3e-9) <= Fraction(total.delta) <= Fraction(4.000001e-9)


@moderately
@given(SIZES, st.integers(2, 10**9))
def test_a_repetition_is_never_below_the_exact_one(size: float, times: int) -> None:
    total = cost_of(size).repeated(times)
    exact = Fraction(size) * times
    for found in (total.rho or 0.0, total.pure_epsilon or 0.0):
        assert exact <= Fraction(found) <= exact * (1 + Fraction(1, 10**15))
    for one, found in zip(ORDERS * size, total.epsilons, strict=True):
        assert Fraction(one) * times <= Fraction(found)
    with mp.workdps(50):
        assert_bounds(total.mu or 0.0, mp.mpf(size) * mp.sqrt(times), within=1e-14)


@pytest.mark.parametrize("times", [2, 3, 17])
def test_repeating_agrees_with_adding(times: int) -> None:
    one = Laplace(1.0, 2.0).cost(SOME_ORDERS, Adjacency.ADD_REMOVE)
    added = one
    for _ in range(times - 1):
        added = added + one
    repeated = one.repeated(times)
    assert repeated.epsilons == pytest.approx(added.epsilons, rel=1e-14)
    assert repeated.rho == pytest.approx(added.rho, rel=1e-14)
    assert repeated.mu == pytest.approx(added.mu, rel=1e-13)
    assert repeated.pure_epsilon == pytest.approx(added.pure_epsilon, rel=1e-14)


def test_a_notion_that_one_side_lacks_is_gone() -> None:
    gaussian = Gaussian(1.0, 2.0).cost(SOME_ORDERS, Adjacency.ADD_REMOVE)
    pure = Pure(0.3).cost(SOME_ORDERS, Adjacency.ADD_REMOVE)
    for total in (gaussian + pure, pure + gaussian):
        assert total.pure_epsilon is None
        assert total.rho is not None
        assert total.mu is not None
    bare = Cost(ORDERS, ORDERS * 0.1)
    total = bare + cost_of(0.1)
    assert (total.rho, total.mu, total.pure_epsilon) == (None, None, None)
    assert (bare.repeated(3).rho, bare.repeated(3).mu, bare.repeated(3).pure_epsilon) == (None, None, None)


def test_adding_nothing_and_repeating_once_change_nothing() -> None:
    one = cost_of(0.1, 1e-6)
    for same in (one + Cost.zero(ORDERS), Cost.zero(ORDERS) + one, one.repeated(1)):
        assert same.epsilons.tolist() == one.epsilons.tolist()
        assert (same.delta, same.rho, same.mu, same.pure_epsilon) == (1e-6, 0.1, 0.1, 0.1)
    nothing = Cost.zero(ORDERS).repeated(1000)
    assert not nothing.epsilons.any()
    assert (nothing.delta, nothing.rho, nothing.mu, nothing.pure_epsilon) == (0.0, 0.0, 0.0, 0.0)


def test_delta_adds_up_and_must_stay_below_one() -> None:
    half = Approximate(1.0, 0.5).cost(SOME_ORDERS, Adjacency.ADD_REMOVE)
    with pytest.raises(InvalidInput, match="delta must be below 1 after composition"):
        half + half
    with pytest.raises(InvalidInput, match="delta must be below 1 after composition"):
        half.repeated(2)
    assert Approximate(1.0, 1e-6).cost(ORDERS, Adjacency.ADD_REMOVE).repeated(10).delta >= 1e-5


def test_orders_must_agree() -> None:
    with pytest.raises(InvalidInput, match="orders must be the same in both costs"):
        cost_of(0.1) + Cost.zero(np.array([2.0]))


@pytest.mark.parametrize("times", [0, -1, 1.5, True])
def test_only_whole_repetitions(times: Any) -> None:
    with pytest.raises(InvalidInput, match="times must be a whole number"):
        cost_of(0.1).repeated(times)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1e-300])
def test_what_is_no_epsilon_is_refused(bad: float) -> None:
    with pytest.raises(InvalidInput, match="epsilons must be finite and at least 0 at every order"):
        Cost(ORDERS, np.array([0.1, bad, 0.1]))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0])
@pytest.mark.parametrize("field", ["rho", "mu", "pure_epsilon", "delta"])
def test_what_is_no_cost_is_refused(field: str, bad: float) -> None:
    with pytest.raises(InvalidInput) as refusal:
        Cost(ORDERS, ORDERS * 0.1, **{field: bad})
    assert refusal.value.field == field


def test_one_epsilon_for_each_order() -> None:
    with pytest.raises(InvalidInput, match="epsilons must be 3 numbers, one per order"):
        Cost(ORDERS, np.array([0.1, 0.2]))


def test_a_sum_that_overflows_is_refused() -> None:
    huge = Cost(np.array([2.0]), np.array([1.7e308]))
    with pytest.raises(InvalidInput, match="finite"):
        huge + huge
    with pytest.raises(InvalidInput, match="finite"):
        huge.repeated(2)


def test_a_curve_cannot_be_changed_afterwards() -> None:
    with pytest.raises(ValueError, match="read-only"):
        cost_of(0.1).epsilons[0] = 0.0
