"""Exact vectors against Fractions: sums are those on paper, or rounded up."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpledger.accounting.exact import MOST_BITS, Exact, as_given, float_above, float_below, rows_above

NUMBERS = st.fractions(min_value=0, max_value=10**6, max_denominator=10**9)
VECTORS = st.lists(NUMBERS, min_size=3, max_size=3)
PRIMES = (10**30 + 57, 10**31 + 33, 10**40 + 121)


def test_a_number_is_the_decimal_that_it_was_written_as() -> None:
    assert as_given(0.1) == Fraction(1, 10)
    assert as_given(0.1) + as_given(0.2) == as_given(0.3)
    assert as_given(1e-320) == Fraction(1, 10**320)


@given(st.fractions(min_value=0, max_value=10**300))
def test_floats_enclose_a_number(value: Fraction) -> None:
    above, below = float_above(value), float_below(value)
    assert Fraction(below) <= value
    assert Fraction(above) >= value or as_given(above) == value
    assert math.nextafter(below, math.inf) >= above


def test_what_no_double_holds_is_infinite_above() -> None:
    assert float_above(Fraction(10) ** 400) == math.inf


@given(VECTORS, VECTORS, st.integers(1, 1000))
def test_a_sum_is_the_one_on_paper(first: list[Fraction], second: list[Fraction], times: int) -> None:
    total = Exact.of(first).plus(Exact.of(second), times)
    assert total.fractions() == [one + times * two for one, two in zip(first, second, strict=True)]
    assert total.minus(Exact.of(second), times).fractions() == first
    assert Exact.of(first).times(times).fractions() == [times * one for one in first]


@given(VECTORS)
def test_floats_are_at_or_above_and_zero_only_for_zero(values: list[Fraction]) -> None:
    exact = Exact.of(values)
    for value, near, shown in zip(values, exact.above(), exact.shown(), strict=True):
        assert Fraction(near) >= value
        assert (near == 0.0) == (value == 0)
        assert Fraction(shown) >= value or as_given(shown) == value
    assert rows_above([exact, exact.plus(exact)])[0].tolist() == exact.above().tolist()


@given(VECTORS, VECTORS)
def test_limits_are_compared_as_on_paper(values: list[Fraction], limits: list[Fraction]) -> None:
    exact = Exact.of(values)
    expected = [value <= limit for value, limit in zip(values, limits, strict=True)]
    assert exact.within(exact.floors(limits)) == expected


def test_denominators_stay_bounded_and_what_is_added_is_rounded_up() -> None:
    total, paper = Exact.zero(1), Fraction(0)
    for number in range(60):
        step = Fraction(1, PRIMES[number % 3] + 2 * number)
        total, paper = total.plus(Exact.of([step])), paper + step
        assert total.denominator.bit_length() <= MOST_BITS + 257
        assert total.fractions()[0] >= paper
    assert float(total.fractions()[0] - paper) < 1e-70


def test_values_with_many_denominators_are_rounded_up_together() -> None:
    values = [Fraction(1, PRIMES[number % 3] + 2 * number) for number in range(30)]
    found = Exact.of(values).fractions()
    assert all(one >= two for one, two in zip(found, values, strict=True))
    assert found != values


def test_taking_away_leaves_no_less_than_the_exact_rest() -> None:
    odd = Exact.of([Fraction(1, 3**800)])
    total = Exact.of([Fraction(1, 7**450)]).plus(odd, 3)
    rest = total.minus(odd, 2).fractions()[0]
    assert rest >= Fraction(1, 7**450) + Fraction(1, 3**800)
    assert total.minus(odd, 10**9).fractions()[0] >= 0


@given(VECTORS)
def test_text_is_read_back(values: list[Fraction]) -> None:
    exact = Exact.of(values)
    assert Exact.from_text(exact.text) == exact


@pytest.mark.parametrize("text", ["", "0:1", "1:-1", "1:", "x:1", "1:1,", "01:1", "1:1 "])
def test_no_other_text_is_read(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  what Python's own reading of numbers says is as good
        Exact.from_text(text)


def test_doubles_are_the_numbers_that_they_are() -> None:
    assert Exact.of_floats(np.array([0.1, 0.5])).fractions() == [Fraction(0.1), Fraction(1, 2)]
