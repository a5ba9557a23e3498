"""Every number that a ledger may hold can be shown: pages and formats over the whole range of floats."""

import decimal
import html
import math
import re
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st

from dpledger.accounting.steps import Step
from dpledger.cli import output as showing
from dpledger.dashboard import charts as figures
from dpledger.dashboard import formatting as wording
from dpledger.dashboard import pages
from dpledger.dashboard.charts import Point
from dpledger.dashboard.views import Left
from dpledger.ledger.model.budget import Budget
from tests.api.service import Service
from tests.dashboard.visitor import Visitor

LARGEST, SMALLEST, TINY = 1.7976931348623157e308, 5e-324, 2.2250738585072014e-308
CORNERS = [0.0, SMALLEST, 1e-320, TINY, 1e-300, 1e-160, 1.0, 2.0**53 + 2, 1e160, 1e308, LARGEST]
amounts = st.one_of(st.sampled_from(CORNERS), st.floats(0.0, LARGEST))
positive = st.one_of(st.sampled_from(CORNERS[1:]), st.floats(SMALLEST, LARGEST))
fractions = st.one_of(st.sampled_from([0.0, SMALLEST, 1e-320, 1e-5, 1.0 - 2**-53, 1.0]), st.floats(0.0, 1.0))
# A digit's worth of rounding, and what the last bit of the smallest numbers is worth.
NEARLY = 1.0 - 1e-11


def percentage(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?(?:e[+-]\d+)?) %", text)
    assert found is not None, text
    return float(found[1])


@given(amounts)
def test_amounts_are_rounded_to_the_safe_side_and_read_as_numbers(value: float) -> None:
    for down, up in ((wording.rounded_down, wording.rounded_up), (showing.number_down, showing.number_up)):
        assert float(down(value)) <= value <= float(up(value))
        assert "inf" not in up(value)
        assert len(up(value)) <= 13
        assert len(down(value)) <= 13
    assert math.isclose(float(wording.number(value)), value, rel_tol=6e-4) or value > 1.797e308


@given(amounts)
def test_a_share_is_rounded_up_and_short_whatever_its_size(share: float) -> None:
    said = wording.share_percent(share)

    assert len(said) <= 14
    assert percentage(said) >= 100.0 * NEARLY * share or percentage(said) == math.inf
    assert percentage(said) <= 100.0 * share * 1.0101 + 1e-300


@given(amounts)
def test_a_spent_part_on_the_command_line_is_rounded_up_whatever_its_size(share: float) -> None:
    said = showing.percent_spent(share)

    assert said == "over 1000 %" if share > 10.0 else percentage(said) >= 100.0 * NEARLY * share


@given(fractions)
def test_what_is_left_is_rounded_down_whatever_its_size(fraction: float) -> None:
    shown = showing.percent_left(fraction)
    said = wording.left_percent(fraction)

    assert percentage(shown) <= 100.0 * fraction * (1.0 + 1e-15)
    assert said == "< 0.1 %" if 0.0 < fraction < 0.001 else said == shown


@given(amounts)
def test_any_other_number_beside_a_fraction_is_shown(value: float) -> None:
    """What a refusal says would fit is a part of a cost, which may be any number."""
    assert wording.left_percent(value).endswith("%")
    assert showing.percent_left(value).endswith("%")


@given(positive, positive)
def test_noise_over_sensitivity_is_a_number_or_left_out(noise: float, sensitivity: float) -> None:
    release = {"mechanism": "gaussian", "sensitivity": sensitivity, "noise_std": noise}
    step = Step.from_fields([release], None, "add-remove")

    found = wording.relative_noise(step.releases[0])

    assert found is None or math.isfinite(found)
    assert "inf" not in wording.step_text(step)


@example(used=[sys.float_info.max] * 3, limits=[1.0] * 3)
@example(used=[sys.float_info.max * (1.0 - 2.0**-51)] * 3, limits=[1.0] * 3)
@given(st.lists(amounts, min_size=3, max_size=3), st.lists(amounts, min_size=3, max_size=3))
def test_figures_of_any_amounts_against_any_limits(used: list[float], limits: list[float]) -> None:
    orders = np.array([2.0, 8.0, 32.0])
    for accounting in ("rdp", "rdp-curve"):
        budget = Budget(accounting, orders, np.array([*limits, 0.0]), {}, np.full(3, 1 / 3))
        committed = np.array([*used, 0.0])
        points = figures.curve(budget, committed)
        assert [point.binds for point in points].count(True) == 1
        fraction = budget.fraction_left(committed)
        assert 0.0 <= fraction <= 1.0
        for point in points:
            assert wording.share_percent(point.share).endswith("%")
            assert "nan" not in pages.share_bar(point.share)
            assert "nan" not in pages.left_bar(Left(fraction, min(point.share, 1.0 - fraction), "", "", ""))


@given(fractions, fractions, st.integers(0, 2**50), st.integers(0, 2**50))
def test_any_two_levels_have_a_projection_that_can_be_said(
    first: float, second: float, at_us: int, elapsed_us: int
) -> None:
    now_us = at_us + elapsed_us
    points = [Point(0, 1, 1.0), Point(at_us, 2, first), Point(at_us, 3, second)]

    found = figures.projection(points, now_us)

    assert found.at_us is None or now_us <= found.at_us
    assert found.at_us is None or wording.instant_text(found.at_us)


@given(fractions, fractions, st.integers(0, 2**50), st.integers(0, 2**50))
def test_any_levels_have_a_line(first: float, second: float, at_us: int, elapsed_us: int) -> None:
    points = [Point(0, 1, 1.0), Point(at_us, 2, first), Point(at_us + elapsed_us, 3, second)]

    drawn = pages.spark_line(points, "fine")

    assert re.search(r"nan|inf|e[+-]", drawn) is None
    numbers = [float(each) for each in re.findall(r"[MHV ](\d+\.\d)", drawn)]
    assert all(0.0 <= each <= 100.0 for each in numbers)


@given(
    st.integers(0, 2**53),
    st.lists(st.tuples(st.integers(0, 2**51), st.integers(0, 10**7)), max_size=4),
    st.integers(0, 2**51),
)
def test_any_rate_has_an_end_that_can_be_said_or_none(
    steps: int, spent: list[tuple[int, int]], later_us: int
) -> None:
    latest_first = sorted(spent, reverse=True)
    now_us = (latest_first[0][0] if spent else 0) + later_us

    found = figures.plan_end(("sgd",), steps, latest_first, now_us)

    assert found.at_us is None or (now_us <= found.at_us and wording.instant_text(found.at_us))
    assert found.per_hour is None or math.isfinite(found.per_hour)


@given(st.floats(SMALLEST, 1.0), st.one_of(st.none(), st.integers(1, 10 * 366 * 86_400)))
def test_any_quota_is_said(fraction: float, window: int | None) -> None:
    said = wording.part_percent(fraction)

    shown, written = (decimal.Decimal(text) for text in (said.removesuffix(" %"), repr(fraction)))
    assert 0 < shown <= 100 * written
    assert shown >= decimal.Decimal("99.9") * written or fraction < 1e-300
    assert wording.window_text(window)


@given(st.sampled_from(["zcdp", "gdp", "rdp"]), positive)
def test_any_limit_is_said(accounting: str, limit: float) -> None:
    names = {"zcdp": "rho", "gdp": "mu", "rdp": "epsilon"}
    budget = Budget(accounting, np.empty(0), np.array([limit, 0.0]), {names[accounting]: limit})

    for fraction in (0.0, SMALLEST, 0.5, 1.0):
        assert "inf" not in wording.limit_text(budget)
        assert "nan" not in wording.remaining_text(budget, fraction)
        assert showing.amount_text(budget.remaining_at(fraction))


@given(st.lists(amounts, min_size=3, max_size=3), st.lists(amounts, min_size=3, max_size=3))
def test_items_of_any_amounts_against_any_limits(used: list[float], limits: list[float]) -> None:
    used[0], limits[0] = (float(int(min(each, 1e9))) for each in (used[0], limits[0]))
    budget, committed = _three_items(limits), np.array([*used, 0.0])
    share = budget.filter.share(budget, committed, budget.filter.binding(budget, committed))
    points = figures.item_points(budget, committed, committed / 3.0)

    assert 0.0 <= share <= 1.0 + 1e-12
    assert 0.0 <= budget.fraction_left(committed) <= 1.0 - share + 1e-9
    assert math.isfinite(budget.filter.magnitude(budget, committed * 1e-300))
    for point, limit in zip(points, limits, strict=True):
        assert 0.0 <= point.held_share <= point.share <= 1.0
        assert point.is_used_up == (point.share >= (1.0 - 1e-4 if point.symbol else 1.0))
        assert float(point.limit.replace(" ", "")) <= limit
        shown = (point.used, point.held, point.limit, pages.share_bar(point.share, point.held_share))
        assert not any(word in text for text in shown for word in ("inf", "nan"))
    assert points[0].used.replace(" ", "").isdigit()
    said = wording.items_left_text(budget, committed)
    assert said.endswith(" and 1 more")
    assert not any(word in said for word in ("inf", "nan"))


def _three_items(limits: list[float]) -> Budget:
    """A plan of a step and two caps, with any limits in force."""
    items = [
        {"name": "step", "releases": [{"mechanism": "gdp", "mu": 0.1}], "times": 1000},
        {"name": "gaussians", "gdp": {"mu": 1.0}},
        {"name": "others", "zcdp": {"rho": 1.0}},
    ]
    details = {"items": items, "adjacency": "add-remove"}
    return Budget(
        "plan", np.empty(0), np.array([*limits, 0.0]), {}, np.array([0.5, 0.3, 0.2]), details=details
    )


def _pages_of(service: Service, dataset: str, has_run: bool = True) -> None:
    """Every page of a dataset is there, and none says a number that is none."""
    visitor = Visitor(service)
    visitor.log_in(service.token)
    here = f"/datasets/{dataset}"
    entries = [f"{here}/entries/{each + 1}" for each in range(service.sequence(dataset))]
    runs = [f"{here}/run?name=run-1", f"{here}/runs"] if has_run else []
    ranges = [here, f"{here}?range=24h"]
    for path in ("/", f"/?search={dataset}", *ranges, f"{here}/budget", *runs, *entries):
        text = html.unescape(visitor.page(path))
        assert re.findall(r">\s*-?(?:inf|nan)\b|value=\"-?(?:inf|nan)\"", text) == [], path


_opened = iter(range(10**9))
real = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@real
@given(
    st.sampled_from(["zcdp", "gdp", "rdp", "rdp-order", "rdp-curve", "plan"]),
    positive,
    positive,
    positive,
    st.integers(2, 2**53),
)
@example("zcdp", 0.5, 1e160, 1.0, 3)
@example("rdp", 1.0, 1e160, 1.0, 3)
@example("rdp", 1e308, 1e-150, 1e-300, 3)
@example("zcdp", 1e-320, 1e165, 1.0, 3)
@example("zcdp", 1e300, 1e-150, 1.0, 2**53)
@example("gdp", 1e-150, 1e160, 1.0, 3)
@example("gdp", 1.0, 1e308, 1e-10, 3)
@example("plan", 1.0, 3.0, 1.0, 3)
@example("plan", 1e-3, 1e160, 1.0, 3)
@example("plan", 1e-150, 1e308, 1e-10, 3)
@example("plan", 500.0, 0.5, 1.0, 2**53)
def test_whatever_the_service_grants_every_page_shows(
    shared: Service, accounting: str, limit: float, noise: float, sensitivity: float, times: int
) -> None:
    name = f"extreme-{next(_opened)}"
    if shared.post("/v1/datasets", {"name": name, "budget": _budget(accounting, limit)}).status_code != 201:
        return
    gaussian = {"mechanism": "gaussian", "sensitivity": sensitivity, "noise_std": noise}
    laplace = {"mechanism": "laplace", "sensitivity": sensitivity, "scale": noise}
    asked = [
        shared.authorize(gaussian, dataset=name),
        shared.reserve(min(times, 10**6), dataset=name, releases=[gaussian]),
        *[shared.authorize({**laplace, "count": count}, dataset=name) for count in (1, 1000)],
        *[shared.authorize(each, dataset=name) for each in (_declared("rho", limit), _declared("mu", limit))],
    ]

    granted = [answer.status_code == 201 for answer in asked]
    event(f"{sum(granted)} granted")
    _pages_of(shared, name, any(granted))


def _declared(name: str, value: float) -> dict[str, Any]:
    return {"mechanism": {"rho": "zcdp", "mu": "gdp"}[name], name: value}


def _budget(accounting: str, limit: float) -> dict[str, Any]:
    if accounting == "rdp-curve":
        return {"accounting": accounting, "orders": [2.0, 8.0], "epsilons": [limit, limit / 2]}
    if accounting in ("zcdp", "gdp"):
        return {"accounting": accounting, {"zcdp": "rho", "gdp": "mu"}[accounting]: limit}
    if accounting == "plan":
        caps = [
            {"name": "first", "gdp": {"mu": limit / 100}},
            {"name": "second", "zcdp": {"rho": limit / 100}},
        ]
        return {"accounting": accounting, "epsilon": limit, "delta": 1e-6, "items": caps}
    return {"accounting": accounting, "epsilon": limit, "delta": 1e-6}


@pytest.mark.parametrize("noise", [1e155, 1e160, 1e162, 1e200, 1e308])
def test_a_step_that_costs_next_to_nothing_leaves_its_dataset_a_page(shared: Service, noise: float) -> None:
    name = f"quiet-{noise:g}".replace("+", "")
    shared.open(name)
    shared.authorize({"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": noise}, dataset=name)

    assert shared.sequence(name) == 2
    _pages_of(shared, name)
