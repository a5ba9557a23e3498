"""Budgets: what each wire form allows, in exact terms, and what is refused."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpledger.accounting.conversion.renyi import epsilon_at
from dpledger.accounting.cost import Cost
from dpledger.accounting.errors import InvalidInput, Unproven
from dpledger.accounting.filters import default_weights, order_budgets
from dpledger.accounting.rounding import Direction, add
from dpledger.ledger.filters import filter_names
from dpledger.ledger.model.budget import Budget
from tests.ledger.builders import ADD_REMOVE, BUDGETS, GAUSSIAN, PLAN, POISSON, budget_of, charge_of, gaussian


@pytest.mark.parametrize(
    "fields", [*BUDGETS, {"accounting": "rdp", "epsilon": 1.0, "delta": 1e-6, "plan": PLAN}]
)
def test_a_budget_is_read_back_bit_for_bit(fields: dict[str, Any]) -> None:
    budget = Budget.from_fields(fields, ADD_REMOVE)

    again = Budget.from_document(budget.document)

    assert again.document == budget.document
    assert again.limits.tobytes() == budget.limits.tobytes()
    assert again.orders.tobytes() == budget.orders.tobytes()


def steps_that_fit(budget: Budget, noise_std: float, rate: float) -> int:
    charge = charge_of(
        budget, {**GAUSSIAN, "noise_std": noise_std}, sample={"scheme": "poisson", "rate": rate}
    )
    spent, steps = np.zeros(budget.size), 0
    while budget.admits(spent := add(spent, charge.amounts, Direction.UP)):
        steps += 1
    return steps


@pytest.mark.parametrize(("epsilon", "least"), [(3.0, 3125), (1.0, 139)])
def test_the_default_filter_grants_the_planned_steps(epsilon: float, least: int) -> None:
    budget = budget_of(accounting="rdp", epsilon=epsilon, delta=1e-5, plan=PLAN)

    assert steps_that_fit(budget, 1.1, 0.01) >= least


def test_a_curve_for_one_plan_loses_nothing_to_weights() -> None:
    plain = budget_of(accounting="rdp", epsilon=1.0, delta=1e-5, plan=PLAN)
    curve = budget_of(accounting="rdp-curve", epsilon=1.0, delta=1e-5, plan=PLAN)

    assert steps_that_fit(curve, 1.1, 0.01) > steps_that_fit(plain, 1.1, 0.01)


def test_weights_share_delta_and_most_of_it_goes_to_the_planned_order() -> None:
    budget = budget_of(accounting="rdp", epsilon=1.0, delta=1e-5, plan=PLAN)
    assert budget.weights is not None

    assert math.fsum(budget.weights.tolist()) <= 1.0
    planned = int(budget.weights.argmax())
    assert budget.weights[planned] == 0.98
    assert 10.4 < budget.orders[planned] < 10.8


def test_without_a_plan_more_of_delta_is_left_to_other_orders() -> None:
    budget = budget_of(accounting="rdp", epsilon=1.0, delta=1e-5)
    assert budget.weights is not None

    assert budget.weights.max() == 0.9


@pytest.mark.parametrize("weight", [0.5, 0.9])
def test_weights_of_an_opened_budget_stay_what_they_were(weight: float) -> None:
    """Budgets that were opened with other weights keep them, as stored and when they change."""
    opened = budget_of(accounting="rdp", epsilon=1.0, delta=1e-5, plan=PLAN)
    assert opened.weights is not None
    weights = default_weights(opened.orders, int(opened.weights.argmax()), weight)
    stored = replace(opened, weights=weights)
    read = Budget.from_document(stored.document)
    changed = read.filter.change(read, {"accounting": "rdp", "epsilon": 0.9, "delta": 1e-5}, ADD_REMOVE)

    for budget in (read, changed):
        assert budget.weights is not None
        assert budget.weights.tobytes() == weights.tobytes()


@pytest.mark.parametrize("accounting", ["rdp", "rdp-order"])
def test_every_order_alone_keeps_epsilon_within_its_share_of_delta(accounting: str) -> None:
    budget = budget_of(accounting=accounting, epsilon=1.0, delta=1e-5)
    weights = np.ones(1) if budget.weights is None else budget.weights
    for order, limit, weight in zip(budget.orders, budget.limits, weights, strict=False):
        if limit > 0.0:
            spent = Cost(np.array([order]), np.array([limit]))
            assert epsilon_at(spent, 1e-5 * weight)[0] <= 1.0 + 1e-9


@pytest.mark.parametrize(
    ("fields", "notion"), [({"accounting": "zcdp"}, "rho"), ({"accounting": "gdp"}, "mu")]
)
def test_a_scalar_target_is_shown_beside_what_it_was_asked_as(fields: dict[str, Any], notion: str) -> None:
    budget = budget_of(**fields, epsilon=1.0, delta=1e-6)

    assert set(budget.target) == {"epsilon", "delta", notion}
    assert budget.admits(np.array([budget.limits[0], 0.0]))
    assert not budget.admits(np.array([np.nextafter(budget.limits[0], np.inf), 0.0]))


def test_gdp_is_tighter_than_zcdp_for_gaussians() -> None:
    one, other = (budget_of(accounting=name, epsilon=1.0, delta=1e-6) for name in ("gdp", "zcdp"))
    gdp, zcdp = (float(b.limits[0] / gaussian(b, 50.0).amounts[0]) for b in (one, other))

    assert gdp > zcdp


def test_additive_delta_is_set_aside_and_counted() -> None:
    budget = budget_of(accounting="rdp", epsilon=1.0, delta=1e-5, additive_delta=4e-6)
    without = budget_of(accounting="rdp", epsilon=1.0, delta=1e-5)
    approximate = charge_of(budget, {"mechanism": "approximate", "epsilon": 0.001, "delta": 3e-6})

    assert budget.additive_delta == 4e-6
    assert (budget.limits[:-1] < without.limits[:-1]).all()
    assert budget.admits(approximate.amounts)
    assert not budget.admits(add(approximate.amounts, approximate.amounts, Direction.UP))
    assert not without.admits(approximate.amounts)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({}, "budget.accounting"),
        ({"accounting": "pld", "epsilon": 1.0, "delta": 1e-5}, "budget.accounting"),
        ({"accounting": "zcdp"}, "budget.epsilon"),
        ({"accounting": "zcdp", "rho": 0.0}, "budget.rho"),
        ({"accounting": "zcdp", "rho": -1.0}, "budget.rho"),
        ({"accounting": "zcdp", "rho": math.nan}, "budget.rho"),
        ({"accounting": "zcdp", "rho": math.inf}, "budget.rho"),
        ({"accounting": "zcdp", "rho": 1.0, "epsilon": 1.0}, "budget"),
        ({"accounting": "zcdp", "mu": 1.0}, "budget.mu"),
        ({"accounting": "gdp", "mu": True}, "budget.mu"),
        # Their squares round down to what is not above zero.
        ({"accounting": "gdp", "mu": 5e-324}, "budget.mu"),
        ({"accounting": "gdp", "mu": 2e-162}, "budget.mu"),
        ({"accounting": "rdp", "epsilon": 1.0}, "budget.delta"),
        ({"accounting": "rdp", "epsilon": 1.0, "delta": 0.0}, "budget.delta"),
        ({"accounting": "rdp", "epsilon": 1.0, "delta": 1.0}, "budget.delta"),
        (
            {"accounting": "rdp", "epsilon": 1.0, "delta": 1e-5, "additive_delta": 1e-5},
            "budget.additive_delta",
        ),
        ({"accounting": "rdp", "epsilon": 1.0, "delta": 1e-5, "order": 3.0}, "budget.order"),
        ({"accounting": "rdp", "epsilon": 1.0, "delta": 1e-5, "plan": 7}, "budget.plan"),
        ({"accounting": "rdp", "epsilon": 1.0, "delta": 1e-5, "plan": {}}, "budget.plan.releases"),
        ({"accounting": "rdp-order", "epsilon": 1.0, "delta": 1e-5, "order": 1.0}, "budget.order"),
        ({"accounting": "rdp-order", "epsilon": 0.1, "delta": 1e-9, "order": 2.0}, "budget.order"),
        ({"accounting": "rdp-curve"}, "budget"),
        ({"accounting": "rdp-curve", "orders": [2, 3], "epsilons": [1.0]}, "budget.epsilons"),
        ({"accounting": "rdp-curve", "orders": [2, 3], "epsilons": [1.0, -1.0]}, "budget.epsilons"),
        ({"accounting": "rdp-curve", "orders": [3, 2], "epsilons": [1.0, 1.0]}, "budget.orders"),
        ({"accounting": "rdp-curve", "orders": [2], "epsilons": [1.0], "epsilon": 1.0}, "budget"),
    ],
)
def test_what_is_no_budget_is_refused_by_name(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        Budget.from_fields(fields, ADD_REMOVE)

    assert refused.value.field == field


def test_a_limit_that_no_number_holds_is_refused() -> None:
    with pytest.raises(InvalidInput, match="budget"):
        budget_of(accounting="gdp", mu=1e200)
    with pytest.raises(InvalidInput, match="budget"):
        budget_of(accounting="gdp", mu=1.0).with_limit({"accounting": "gdp", "mu": 1e200}, ADD_REMOVE)


@pytest.mark.parametrize("noise_std", [1.0, 1e3, 1e5, 1e6, 5e6])
def test_a_curve_for_a_cheap_plan_is_found_at_once(noise_std: float) -> None:
    plan = {"releases": [{**GAUSSIAN, "noise_std": noise_std}]}
    curve = budget_of(accounting="rdp-curve", epsilon=9.0, delta=1e-5, plan=plan)
    each, limits = gaussian(curve, noise_std).amounts[:-1], curve.limits[:-1]

    assert epsilon_at(Cost(curve.orders, limits), 1e-5)[0] <= 9.0
    whole = np.array([order_budgets(9.0, 1e-5, np.array([o]), np.ones(1))[0] for o in curve.orders])
    left = whole - limits
    # One order is used up but for a step, and for what rounding up each of the steps may take.
    assert ((left >= 0.0) & (left <= np.maximum(1.01 * each, whole / 20.0))).any()


@pytest.mark.parametrize("noise_std", [1e9, 1e20, 1e140])
def test_a_curve_has_no_room_for_more_repetitions_than_can_be_reported_apart(noise_std: float) -> None:
    plan = {"releases": [{**GAUSSIAN, "noise_std": noise_std}]}
    with pytest.raises(InvalidInput, match="times"):
        budget_of(accounting="rdp-curve", epsilon=9.0, delta=1e-5, plan=plan)


def test_a_text_is_no_budget() -> None:
    with pytest.raises(InvalidInput, match="an object"):
        Budget.from_fields("1.0", ADD_REMOVE)


@pytest.mark.parametrize("accounting", ["zcdp", "gdp"])
def test_sampled_work_has_no_scalar_parameter(accounting: str) -> None:
    budget = budget_of(accounting=accounting, epsilon=1.0, delta=1e-6)

    with pytest.raises(Unproven, match="rdp"):
        charge_of(budget, GAUSSIAN, sample=POISSON)


@pytest.mark.parametrize("fields", BUDGETS)
@settings(max_examples=50)
@given(share=st.floats(0.0, 1.5))
def test_the_fraction_left_is_rounded_down_and_within_bounds(fields: dict[str, Any], share: float) -> None:
    budget = Budget.from_fields(fields, ADD_REMOVE)
    used = np.append(budget.limits[:-1] * share, 0.0)

    fraction = budget.fraction_left(used)

    assert 0.0 <= fraction <= 1.0
    assert fraction <= max(0.0, 1.0 - share) + 1e-12
    assert fraction >= 1.0 - share - 1e-12
    assert (fraction == 1.0) == (share == 0.0) or share < 1e-15


def test_what_is_left_is_the_fraction_of_each_target() -> None:
    budget = budget_of(accounting="gdp", epsilon=1.0, delta=1e-6)

    left = budget.remaining_at(0.25)

    assert left["fraction"] == 0.25
    assert 0.249 < left["epsilon"] <= 0.25
    assert 0.49 * budget.target["mu"] < left["mu"] <= 0.5 * budget.target["mu"]
    assert left["delta"] == 1e-6
    assert budget.remaining_at(1.0)["epsilon"] == 1.0
    assert budget.remaining_at(0.0)["epsilon"] == 0.0


@pytest.mark.parametrize(
    ("fields", "changed"),
    [
        ({"accounting": "zcdp", "rho": 0.5}, {"accounting": "zcdp", "rho": 0.25}),
        ({"accounting": "gdp", "mu": 1.0}, {"accounting": "gdp", "epsilon": 1.0, "delta": 1e-6}),
        (
            {"accounting": "rdp", "epsilon": 1.0, "delta": 1e-5, "plan": PLAN},
            {"accounting": "rdp", "epsilon": 2.0, "delta": 1e-6},
        ),
        (
            {"accounting": "rdp-order", "epsilon": 1.0, "delta": 1e-5, "order": 16},
            {"accounting": "rdp-order", "epsilon": 2.0, "delta": 1e-5},
        ),
        (
            {"accounting": "rdp-curve", "orders": [2, 3], "epsilons": [1.0, 1.0]},
            {"accounting": "rdp-curve", "orders": [2, 3], "epsilons": [0.5, 2.0]},
        ),
    ],
)
def test_a_changed_limit_keeps_orders_and_weights(fields: dict[str, Any], changed: dict[str, Any]) -> None:
    before = Budget.from_fields(fields, ADD_REMOVE)

    after = before.with_limit(changed, ADD_REMOVE)

    assert after.accounting is before.accounting
    assert after.orders.tobytes() == before.orders.tobytes()
    if before.weights is not None and after.weights is not None:
        assert after.weights.tobytes() == before.weights.tobytes()
    assert after.limits.tobytes() != before.limits.tobytes()


@pytest.mark.parametrize(
    ("fields", "lower"),
    [
        ({"accounting": "zcdp", "rho": 0.5}, {"rho": 1e-9}),
        ({"accounting": "gdp", "mu": 1.0}, {"mu": 1e-9}),
        ({"accounting": "rdp", "epsilon": 1.0, "delta": 1e-5}, {"epsilon": 1e-9, "delta": 1e-5}),
        (
            {"accounting": "rdp", "epsilon": 1.0, "delta": 1e-5, "plan": PLAN},
            {"epsilon": 1e-9, "delta": 1e-5, "plan": PLAN},
        ),
        (
            {"accounting": "rdp-order", "epsilon": 1.0, "delta": 1e-5, "order": 16},
            {"epsilon": 0.5, "delta": 1e-5},
        ),
        (
            {"accounting": "rdp-curve", "orders": [2, 3], "epsilons": [1.0, 1.0]},
            {"orders": [2, 3], "epsilons": [0.0, 0.0]},
        ),
    ],
)
def test_a_limit_can_be_lowered_until_nothing_fits(fields: dict[str, Any], lower: dict[str, Any]) -> None:
    before = Budget.from_fields(fields, ADD_REMOVE)
    step = gaussian(before, 100.0)

    after = before.with_limit({"accounting": fields["accounting"], **lower}, ADD_REMOVE)

    assert before.admits(step.amounts)
    assert not after.admits(step.amounts)
    assert after.with_limit(fields, ADD_REMOVE).document == before.document


@pytest.mark.parametrize(
    ("fields", "changed", "field"),
    [
        ({"accounting": "zcdp", "rho": 0.5}, {"accounting": "gdp", "mu": 1.0}, "budget.accounting"),
        (
            {"accounting": "rdp-order", "epsilon": 1.0, "delta": 1e-5, "order": 16},
            {"accounting": "rdp-order", "epsilon": 1.0, "delta": 1e-5, "order": 32},
            "budget.orders",
        ),
        (
            {"accounting": "rdp-curve", "orders": [2, 3], "epsilons": [1.0, 1.0]},
            {"accounting": "rdp-curve", "orders": [2, 4], "epsilons": [1.0, 1.0]},
            "budget.orders",
        ),
    ],
)
def test_the_rule_and_its_orders_are_fixed_at_opening(
    fields: dict[str, Any], changed: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        Budget.from_fields(fields, ADD_REMOVE).with_limit(changed, ADD_REMOVE)

    assert refused.value.field == field


def test_the_wire_names_are_those_of_the_contract() -> None:
    assert filter_names() == ["zcdp", "gdp", "rdp", "rdp-order", "rdp-curve", "plan", "shared"]
