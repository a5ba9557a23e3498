"""Checks at the edge: what is accepted, and that each refusal names field, range and value."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dpledger.accounting.errors import AdjacencyMismatch, InvalidInput, Unproven
from dpledger.accounting.validation import (
    MAX_COUNT,
    check_choice,
    check_count,
    check_delta,
    check_flag,
    check_non_negative,
    check_open_unit,
    check_orders,
    check_positive,
    check_rate,
    check_vector,
)

Check = Callable[[str, Any], object]
NO_NUMBERS = [math.nan, math.inf, -math.inf, "1", None, True, [1.0], 10**400, 1j, np.float64("nan")]


@pytest.mark.parametrize(
    "check", [check_positive, check_non_negative, check_rate, check_delta, check_open_unit]
)
@pytest.mark.parametrize("value", NO_NUMBERS)
def test_what_is_no_finite_number_is_refused(check: Check, value: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^size must be") as refusal:
        check("size", value)
    assert refusal.value.field == "size"
    assert refusal.value.found is value


@pytest.mark.parametrize(
    ("check", "inside", "outside"),
    [
        (check_positive, [5e-324, 1.0, 1e308], [0.0, -0.0, -1.0]),
        (check_non_negative, [0.0, 5e-324, 1e308], [-5e-324, -1.0]),
        (check_rate, [0.0, 0.5, 1.0], [-0.1, 1.0000001]),
        (check_delta, [0.0, 0.5, 0.999], [-1e-9, 1.0]),
        (check_open_unit, [5e-324, 0.999], [0.0, 1.0]),
    ],
)
def test_ranges(check: Check, inside: list[float], outside: list[float]) -> None:
    assert [check("size", value) for value in inside] == inside
    for value in outside:
        with pytest.raises(InvalidInput, match=r"^size must be a .*number .*found"):
            check("size", value)


@pytest.mark.parametrize("value", [3, np.int64(3), np.float32(3.0), 3.0])
def test_numbers_become_floats(value: Any) -> None:
    found = check_positive("size", value)
    assert type(found) is float
    assert found == 3.0


@pytest.mark.parametrize("check", [check_non_negative, check_rate, check_delta])
def test_negative_zero_becomes_zero(check: Check) -> None:
    found = check("size", -0.0)
    assert isinstance(found, float)
    assert math.copysign(1.0, found) == 1.0


@pytest.mark.parametrize("value", [1, MAX_COUNT, np.int32(7)])
def test_counts(value: Any) -> None:
    assert check_count("times", value) == int(value)
    assert type(check_count("times", value)) is int


@pytest.mark.parametrize("value", [0, -1, MAX_COUNT + 1, 1.0, True, "3", None])
def test_what_is_no_count_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput, match=rf"^times must be a whole number from 1 to {MAX_COUNT}, found"):
        check_count("times", value)


def test_counts_have_a_range_of_their_own() -> None:
    assert check_count("queries", 0, least=0, most=5) == 0
    with pytest.raises(InvalidInput, match="from 0 to 5, found 6"):
        check_count("queries", 6, least=0, most=5)


def test_flags() -> None:
    assert check_flag("monotonic", True) is True
    for value in (1, 0, "true", None):
        with pytest.raises(InvalidInput, match=r"^monotonic must be true or false"):
            check_flag("monotonic", value)


def test_choices() -> None:
    assert check_choice("noise", "laplace", ["laplace", "gaussian"]) == "laplace"
    for value in ("Laplace", "", None, 3, ["laplace"]):
        with pytest.raises(InvalidInput, match=r"^noise must be one of laplace, gaussian, found"):
            check_choice("noise", value, ["laplace", "gaussian"])


@pytest.mark.parametrize("values", [[1, 2.5], (1, 2.5), np.array([1.0, 2.5])])
def test_vectors_are_read_only_floats(values: Any) -> None:
    found = check_vector("sizes", values)
    assert found.tolist() == [1.0, 2.5]
    assert found.dtype == np.float64
    assert not found.flags.writeable


def test_a_vector_is_a_copy() -> None:
    mine = np.array([1.0, 2.0])
    found = check_vector("sizes", mine)
    mine[0] = 5.0
    assert found.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    "values",
    [
        "12",
        b"12",
        [],
        [[1.0]],
        1.0,
        None,
        [1.0, math.nan],
        [math.inf],
        ["1"],
        [True, 2.0],
        [1, [2]],
        [10**400],
        {1.0},
    ],
)
def test_what_is_no_vector_is_refused(values: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^sizes must be a list of 1 to 3 finite numbers, found"):
        check_vector("sizes", values, most=3)


def test_vectors_have_a_longest_length() -> None:
    with pytest.raises(InvalidInput, match="1 to 3 finite"):
        check_vector("sizes", [1.0] * 4, most=3)


@pytest.mark.parametrize("orders", [[1.0, 2.0], [2.0, 2.0], [3.0, 2.0], [2.0, 1.1e6], [0.5], [-2.0]])
def test_orders_increase_strictly_within_their_range(orders: list[float]) -> None:
    with pytest.raises(InvalidInput, match=r"^orders must be strictly increasing numbers in \(1, 1e\+06\]"):
        check_orders(orders)


def test_orders_are_accepted_up_to_their_ends() -> None:
    assert check_orders([math.nextafter(1.0, 2.0), 1e6]).size == 2
    with pytest.raises(InvalidInput, match=r"^budget.orders must be a list of 1 to 4096"):
        check_orders(np.linspace(2.0, 3.0, 4097), field="budget.orders")


def test_a_refusal_for_adjacency_says_what_is_needed_and_what_is_there() -> None:
    refusal = AdjacencyMismatch("Theorem 1", "add-remove", "replace-one")
    assert isinstance(refusal, Unproven)
    assert str(refusal) == "Theorem 1 holds under add-remove adjacency, the dataset uses replace-one"
    assert (refusal.theorem, refusal.needs, refusal.found) == ("Theorem 1", "add-remove", "replace-one")
