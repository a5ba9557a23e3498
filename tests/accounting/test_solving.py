"""Inverse problems: candidates are found by bracketing and accepted only when proven."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpledger.accounting.errors import Unreachable
from dpledger.accounting.rounding import Direction
from dpledger.accounting.solving import (
    Ascent,
    bracketed_root,
    newton_root,
    orders_around,
    prove_nearby,
)
from tests.accounting.references import log_uniform, moderately


def test_a_bracketed_root_is_found() -> None:
    assert bracketed_root(lambda x: x * x - 2.0, 0.0, 2.0) == pytest.approx(math.sqrt(2.0), rel=1e-14)


@pytest.mark.parametrize(("low", "high", "nearest"), [(2.0, 3.0, 2.0), (-1.0, 0.0, 0.0)])
def test_without_a_change_of_sign_the_nearer_end_is_given(low: float, high: float, nearest: float) -> None:
    assert bracketed_root(lambda x: x - 1.0, low, high) == nearest


@given(log_uniform(1e-6, 1e6))
@moderately
def test_newton_finds_the_zero_of_a_concave_function(zero: float) -> None:
    found = newton_root(lambda x: (math.log(x / zero), 1.0 / x), zero / 50.0)
    assert found == pytest.approx(zero, rel=1e-13)


def test_newton_that_never_settles_gives_its_last_guess() -> None:
    assert newton_root(lambda x: (1.0, 1e-9), 1.0) > 0.0


@pytest.mark.parametrize("direction", list(Direction))
def test_a_value_is_moved_only_until_it_holds(direction: Direction) -> None:
    limit = 1.0 + (1e-12 if direction is Direction.UP else -1e-12)

    def holds(value: float) -> bool:
        return value >= limit if direction is Direction.UP else value <= limit

    found = prove_nearby(1.0, holds, direction)
    assert holds(found)
    assert found == pytest.approx(1.0, abs=1e-11)
    assert prove_nearby(found, holds, direction) == found


def test_what_cannot_be_proven_nearby_is_unreachable() -> None:
    with pytest.raises(Unreachable, match="forward evaluation"):
        prove_nearby(1.0, lambda _: False, Direction.UP)


@given(st.floats(-20.0, 20.0), st.floats(-20.0, 20.0), log_uniform(0.1, 100.0))
@moderately
def test_an_ascent_finds_where_a_rising_function_crosses_zero(
    zero: float, start: float, steepness: float
) -> None:
    ascent = Ascent(-40.0, 40.0, 2.0)
    here, value = ascent.find(lambda x: steepness * (x - zero) + math.sinh((x - zero) / 8.0), start, 1e-9)
    assert abs(value) <= 1e-9 or ascent.high - ascent.low <= 1e-9
    assert here == pytest.approx(zero, abs=1e-6)


@given(st.floats(-5.0, 5.0), st.floats(-20.0, 20.0))
@moderately
def test_an_ascent_survives_infinities_and_cliffs(zero: float, start: float) -> None:
    def cliff(x: float) -> float:
        if x < zero - 3.0:
            return -math.inf
        return math.inf if x > zero + 3.0 else math.copysign(min(1.0, abs(x - zero) ** 0.1), x - zero)

    here, _ = Ascent(-40.0, 40.0, 2.0).find(cliff, start, 1e-9)
    assert here == pytest.approx(zero, abs=1e-6)


def test_an_ascent_without_a_zero_ends_at_its_limit() -> None:
    ascent = Ascent(0.0, 10.0, 1.0)
    here, value = ascent.find(lambda _: -1.0, 5.0, 1e-9)
    assert (here, value) == (10.0, -1.0)
    assert ascent.high == 10.0


def test_orders_around_lie_between_the_neighbours() -> None:
    orders = np.array([1.5, 2.0, 4.0, 8.0])
    inside = orders_around(orders, 2, points=9)
    assert (inside[0], inside[-1]) == (pytest.approx(2.0), pytest.approx(8.0))
    assert (np.diff(inside) > 0.0).all()
    assert orders_around(orders, 0, points=5)[0] == pytest.approx(1.5)
    assert orders_around(orders, 3, points=5)[-1] == pytest.approx(8.0)
