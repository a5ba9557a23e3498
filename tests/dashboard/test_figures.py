"""The numbers that are drawn, and how they are worded."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpledger.accounting.sampling import Adjacency
from dpledger.accounting.steps import Step
from dpledger.dashboard import charts as figures
from dpledger.dashboard import formatting as wording
from dpledger.dashboard.charts import Point
from dpledger.ledger.model.budget import Budget
from dpledger.storage.read_models.dashboard import Level

DAY_US = 86_400_000_000
ORDERS = np.array([2.0, 8.0, 32.0])
LIMITS = np.array([1.0, 2.0, 4.0, 0.0])
SOME = Budget("rdp", ORDERS, LIMITS, {"epsilon": 1.0, "delta": 1e-5}, np.full(3, 1 / 3))
ALL = Budget("rdp-curve", ORDERS, LIMITS, {})


def test_one_order_within_its_limit_is_enough_so_the_one_with_most_left_binds() -> None:
    used = np.array([0.9, 0.5, 3.0, 0.0])

    assert SOME.filter.binding(SOME, used) == 1
    assert SOME.filter.share(SOME, used, 1) == 0.25
    assert SOME.fraction_left(used) == pytest.approx(0.75)


def test_where_all_orders_count_the_one_with_least_left_binds() -> None:
    used = np.array([0.9, 0.5, 3.0, 0.0])

    assert ALL.filter.binding(ALL, used) == 0
    assert ALL.fraction_left(used) == pytest.approx(0.1)


def test_an_order_without_a_limit_never_binds_for_some_and_does_for_all_once_used() -> None:
    limits = np.array([0.0, 2.0, 4.0, 0.0])
    some, every = (Budget(b.accounting, ORDERS, limits, b.target, b.weights) for b in (SOME, ALL))
    unused, used = np.array([0.0, 1.0, 1.0, 0.0]), np.array([0.1, 1.0, 1.0, 0.0])

    assert some.filter.binding(some, used) == 2
    assert every.filter.binding(every, unused) == 1
    assert every.filter.binding(every, used) == 0
    assert every.filter.share(every, used, 0) == math.inf
    assert every.filter.share(every, unused, 0) == 0.0


def test_nothing_usable_binds_at_the_first_order() -> None:
    none = Budget("rdp-curve", ORDERS, np.zeros(4), {})

    assert none.filter.binding(none, np.zeros(4)) == 0


@given(st.lists(st.floats(0.0, 10.0), min_size=3, max_size=3))
def test_the_share_at_the_binding_order_is_what_is_not_left(spent: list[float]) -> None:
    used = np.array([*spent, 0.0])
    for budget in (SOME, ALL):
        share = budget.filter.share(budget, used, budget.filter.binding(budget, used))
        assert budget.fraction_left(used) == pytest.approx(max(0.0, 1.0 - share), abs=1e-12)


def test_a_curve_has_one_point_an_order_and_one_that_binds() -> None:
    points = figures.curve(SOME, np.array([0.9, 0.5, 3.0, 0.0]))

    assert [(point.order, point.spent, point.limit) for point in points] == [
        (2, 0.9, 1),
        (8, 0.5, 2),
        (32, 3, 4),
    ]
    assert [point.binds for point in points] == [False, True, False]


def test_a_scalar_accounting_has_no_curve() -> None:
    zcdp = Budget.from_fields({"accounting": "zcdp", "rho": 0.5}, Adjacency.ADD_REMOVE)

    assert figures.curve(zcdp, np.zeros(2)) == []
    assert zcdp.filter.binding(zcdp, np.array([0.1, 0.0])) == 0


def test_a_burn_down_runs_from_the_opening_to_now() -> None:
    points = figures.burn_down([Level(5, 20, 0.8)], 10, Point(40, 9, 0.7), 50)

    assert points == [Point(10, 1, 1.0), Point(20, 5, 0.8), Point(40, 9, 0.7), Point(50, 9, 0.7)]


def test_a_burn_down_says_nothing_twice() -> None:
    assert figures.burn_down([Level(5, 20, 0.8)], 10, Point(20, 5, 0.8), 20) == [
        Point(10, 1, 1.0),
        Point(20, 5, 0.8),
    ]
    assert figures.burn_down([], 10, Point(10, 1, 1.0), 10) == [Point(10, 1, 1.0)]


def steady(days: int, a_day: float) -> list[Point]:
    """A budget of which the same part is spent at noon of each day; looked at in the following night."""
    spends = [Point(day * DAY_US + DAY_US // 2, day + 2, 1.0 - a_day * (day + 1)) for day in range(days)]
    return [Point(0, 1, 1.0), *spends]


def test_a_steady_pace_goes_on() -> None:
    now_us = 5 * DAY_US

    projected = figures.projection(steady(5, 0.1), now_us)

    assert projected.window == "24 hours"
    assert projected.at_us == pytest.approx(now_us + 5 * DAY_US)


def test_the_pace_is_that_of_the_shortest_window_with_spending() -> None:
    points = steady(5, 0.1)

    week = figures.projection(points, 8 * DAY_US)
    month = figures.projection(points, 20 * DAY_US)

    # Since day 1 at noon 0.4 was spent in 7 days; since the first spend 0.5 in 19.5 days.
    assert (week.window, week.at_us) == ("7 days", 8 * DAY_US + round(0.5 / 0.4 * 7 * DAY_US))
    assert month.window == "30 days"
    assert month.at_us == pytest.approx(20 * DAY_US + 19.5 * DAY_US)


@pytest.mark.parametrize(
    ("points", "now_us"),
    [
        (steady(5, 0.1), 60 * DAY_US),
        ([Point(0, 1, 1.0)], DAY_US),
        ([Point(0, 1, 1.0), Point(DAY_US, 2, 0.5)], DAY_US + 1),
        ([Point(0, 1, 1.0), Point(DAY_US, 2, 0.0)], 2 * DAY_US),
    ],
    ids=["long idle", "never used", "only just begun", "used up"],
)
def test_without_a_pace_there_is_no_day(points: list[Point], now_us: int) -> None:
    assert figures.projection(points, now_us).at_us is None


def test_more_than_ten_years_is_no_day_but_a_pace() -> None:
    points = [Point(0, 1, 1.0), Point(DAY_US, 2, 1.0 - 1e-7)]

    assert figures.projection(points, 3 * DAY_US // 2) == figures.Projection(None, "24 hours")


@given(st.floats(0.0, 1.0))
def test_what_is_left_is_rounded_down(fraction: float) -> None:
    said = wording.left_percent(fraction)

    if said == "< 0.1 %":
        assert 0.0 < fraction < 0.001
    else:
        assert 0.0 <= fraction * 100.0 - float(said.removesuffix(" %")) < 0.1 + 1e-9


@given(st.floats(1e-12, 5.0))
def test_what_is_spent_is_rounded_up_to_three_digits(share: float) -> None:
    said = float(wording.share_percent(share).removesuffix(" %"))

    assert 100.0 * share * (1.0 - 1e-11) <= said <= 100.0 * share * 1.0101


@given(st.floats(-1e300, 1e300))
def test_amounts_are_rounded_to_the_safe_side(value: float) -> None:
    assert float(wording.rounded_down(value)) <= value <= float(wording.rounded_up(value))
    assert float(wording.rounded_up(value)) == pytest.approx(value, rel=1.1e-3)


@pytest.mark.parametrize(
    ("value", "said"), [(0.7, "0.7"), (0.1, "0.1"), (1e-6, "1e-6"), (np.float64(0.3), "0.3")]
)
def test_a_short_number_is_said_as_it_was_written(value: float, said: str) -> None:
    assert wording.rounded_down(value) == wording.rounded_up(value) == said


@pytest.mark.parametrize(
    ("share", "said"),
    [(0.0, "0 %"), (math.inf, "over 100 %"), (0.25, "25.0 %"), (1.0, "100 %"), (1e-5, "0.00100 %")],
)
def test_shares_in_words(share: float, said: str) -> None:
    assert wording.share_percent(share) == said


def test_a_step_in_words() -> None:
    releases = [
        {"mechanism": "gaussian", "sensitivity": 2.0, "noise_std": 3.0, "count": 4},
        {"mechanism": "laplace", "sensitivity": 1.0, "scale": 5.0},
        {"mechanism": "randomized-response", "epsilon": 1.0},
        {"mechanism": "zcdp", "rho": 0.1},
    ]

    said = wording.step_text(Step.from_fields(releases, {"scheme": "poisson", "rate": 0.25}, "add-remove"))

    assert "4 × gaussian σ/Δ = 1.5" in said
    assert "laplace b/Δ = 5" in said
    assert said.endswith("and 1 more · poisson q = 0.25")


@pytest.mark.parametrize(
    ("fields", "limit", "half"),
    [
        ({"accounting": "zcdp", "rho": 0.5}, "ρ = 0.5", "ρ = 0.2499"),
        ({"accounting": "gdp", "mu": 2.0}, "μ = 2", "μ = 1.414"),
        ({"accounting": "rdp", "epsilon": 1.0, "delta": 1e-6}, "ε = 1 at δ = 1e-6", "ε = 0.4999"),
        (
            {"accounting": "rdp-curve", "orders": [2.0, 3.0], "epsilons": [1.0, 1.5]},
            "a curve over 2 orders",
            "",
        ),
    ],
)
def test_limits_in_words(fields: dict[str, object], limit: str, half: str) -> None:
    budget = Budget.from_fields(fields, Adjacency.ADD_REMOVE)

    assert wording.limit_text(budget) == limit
    assert wording.remaining_text(budget, 0.5) == half
    assert wording.rule_text(budget)
