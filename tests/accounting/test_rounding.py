"""Outward rounding, against exact rational arithmetic."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpledger.accounting.rounding import Direction, add, scale, widen
from tests.accounting.references import moderately

FINITE = st.floats(-1e150, 1e150)
COUNTS = st.integers(1, 10**9)


def on_side(found: float, exact: Fraction, direction: Direction) -> bool:
    difference = Fraction(found) - exact
    return difference >= 0 if direction is Direction.UP else difference <= 0


@pytest.mark.parametrize("direction", list(Direction))
@moderately
@given(first=FINITE, second=FINITE)
def test_a_sum_lies_on_its_side_and_next_to_the_exact_one(
    direction: Direction, first: float, second: float
) -> None:
    exact = Fraction(first) + Fraction(second)
    found = add(first, second, direction)
    assert on_side(found, exact, direction)
    assert abs(Fraction(found) - exact) <= 2 * Fraction(math.ulp(found))
    assert add(np.array([first]), np.array([second]), direction).tolist() == [found]


@pytest.mark.parametrize("direction", list(Direction))
def test_adding_an_exact_zero_changes_nothing(direction: Direction) -> None:
    assert add(0.3, 0.0, direction) == 0.3
    assert add(0.0, 0.3, direction) == 0.3
    assert add(np.array([0.3, 0.0]), np.array([0.0, 0.0]), direction).tolist() == [0.3, 0.0]


@pytest.mark.parametrize("direction", list(Direction))
@moderately
@given(value=st.floats(0.0, 1e100), times=COUNTS)
def test_a_multiple_lies_on_its_side_and_next_to_the_exact_one(
    direction: Direction, value: float, times: int
) -> None:
    exact = Fraction(value) * times
    found = scale(value, times, direction)
    assert on_side(found, exact, direction)
    assert abs(Fraction(found) - exact) <= 2 * Fraction(math.ulp(found))
    assert scale(np.array([value]), times, direction).tolist() == [found]


def test_once_and_zero_are_exact() -> None:
    assert scale(0.1, 1, Direction.UP) == 0.1
    assert scale(0.0, 7, Direction.UP) == 0.0
    assert scale(np.array([0.0, 0.0]), 7, Direction.UP).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("ulps", [1, 4, 100])
@moderately
@given(value=FINITE)
def test_widening_moves_by_at_least_the_stated_units(ulps: int, value: float) -> None:
    room = ulps * Fraction(math.ulp(value))
    for sign, direction in ((1, Direction.UP), (-1, Direction.DOWN)):
        for found in (
            widen(value, direction, ulps=ulps),
            float(widen(np.array([value]), direction, ulps=ulps)[0]),
        ):
            assert sign * (Fraction(found) - Fraction(value)) >= room
            assert abs(Fraction(found) - Fraction(value)) <= 2 * room + 2 * Fraction(math.ulp(value))


def test_an_overflow_is_silent_and_not_finite() -> None:
    """Warnings are errors in this suite, so that the refusal that follows is InvalidInput."""
    huge = np.array([1.7e308])
    assert not np.isfinite(add(huge, huge, Direction.UP)).any()
    assert not np.isfinite(scale(huge, 2, Direction.UP)).any()
    assert not np.isfinite(widen(np.array([math.inf, 1.7976931348623157e308]), Direction.UP, ulps=2)).any()
