"""Totals and sums: rounded up, bit for bit as the accounting package rounds."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dpledger.accounting.exact import Exact
from dpledger.accounting.rounding import Direction, add, widen
from dpledger.accounting.validation import Floats
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.state import ExactTotals, Totals, add_up
from tests.ledger.builders import ADD_REMOVE, BUDGETS, opened

amounts = hnp.arrays(np.float64, 5, elements=st.floats(0.0, 1e300))


@given(first=amounts, second=amounts)
def test_a_raised_sum_has_the_bits_of_the_accounting_package(first: Floats, second: Floats) -> None:
    assert add_up(first, second).tobytes() == add(first, second, Direction.UP).tobytes()


@given(st.floats(1e-300, 1e300), st.floats(0.0, 1.0, exclude_max=True))
def test_what_is_left_has_the_bits_of_the_accounting_package(value: float, share: float) -> None:
    budget = Budget("zcdp", np.empty(0), np.array([value, 0.0]), {"rho": value})
    left = budget.remaining_at(share)["rho"]
    assert left == max(0.0, widen(value * share, Direction.DOWN, ulps=4))
    assert budget.remaining_at(1.0)["rho"] == value


@given(st.floats(0.0, 2.0))
def test_a_fraction_left_is_rounded_down(used: float) -> None:
    budget = Budget("zcdp", np.empty(0), np.array([1.0, 0.0]), {"rho": 1.0})
    [left] = budget.fractions_left(np.array([[used, 0.0]]))
    expected = max(0.0, float(widen(1.0 - used * (1.0 + 2.0**-51), Direction.DOWN, ulps=4)))
    assert left == (1.0 if used == 0.0 else expected)


@given(spent=amounts, held=amounts)
def test_adding_leaves_what_was_there_alone(spent: Floats, held: Floats) -> None:
    before = spent.tobytes(), held.tobytes()
    totals = Totals(spent, np.zeros(5))

    after = totals.charged(held).held(held)

    assert (spent.tobytes(), held.tobytes()) == before
    assert (after.committed >= after.spent).all()
    assert after.open_reservations == 1


@given(each=amounts, times=st.integers(1, 1000), data=st.data())
def test_settling_all_reservations_leaves_nothing_on_hold(each: Floats, times: int, data: Any) -> None:
    used = data.draw(st.integers(0, times))
    with np.errstate(over="ignore", invalid="ignore"):
        held = Totals.zero(5).held(each * times)
        settled = held.settled(each, times, used)

    assert settled.reserved.tolist() == [0.0] * 5
    assert settled.open_reservations == 0


def test_settling_one_of_two_keeps_the_other_on_hold() -> None:
    each, other = np.array([0.1, 0.0]), np.array([0.7, 1e-6])

    totals = Totals.zero(2).held(3 * each).held(other).settled(each, 3, 1)

    assert (totals.reserved >= other).all()
    assert totals.reserved == pytest.approx(other)
    assert totals.spent == pytest.approx(each)
    assert totals.open_reservations == 1


@pytest.mark.parametrize("fields", BUDGETS)
@pytest.mark.parametrize("partition_key", ["fixed", "private"])
def test_what_overflows_does_not_fit(fields: dict[str, Any], partition_key: str) -> None:
    exact, _ = opened(Budget.from_fields(fields, ADD_REMOVE), partition_key)
    floats, _ = opened(replace(exact.budget, exact=None), partition_key)
    huge = np.full(exact.budget.size, 1e308)
    spent = {id(exact): ExactTotals.zero(huge.size).charged(Exact.of_floats(huge))}

    for state in (exact, floats):
        full = replace(state, whole=spent.get(id(state), Totals.zero(huge.size).charged(huge)))

        assert not full.fits(np.full(state.budget.size, 1.7e308), None)
        assert not state.fits(np.full(state.budget.size, math.inf), None)
