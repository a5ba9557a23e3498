"""One door to the conversions: every pair that a theorem allows, and none that it does not."""

import math
from itertools import product
from typing import Any

import numpy as np
import pytest

from dpledger.accounting.conversion import (
    Approximate,
    Gdp,
    Guarantee,
    Notion,
    Pure,
    Rdp,
    Target,
    Zcdp,
    convert,
    epsilon_at,
    guarantee_from_fields,
    invert,
    methods_between,
)
from dpledger.accounting.conversion.budgets import BUDGETS
from dpledger.accounting.conversion.implications import IMPLICATIONS
from dpledger.accounting.cost import Cost
from dpledger.accounting.errors import InvalidInput, Unproven
from dpledger.accounting.gaussian_profile import gaussian_epsilon

ORDERS = np.array([1.5, 2.0, 4.0, 8.0, 16.0, 64.0])
EXAMPLES: dict[Notion, Guarantee] = {
    Notion.PURE: Pure(0.5),
    Notion.APPROXIMATE: Approximate(0.5, 1e-7),
    Notion.ZCDP: Zcdp(0.05),
    Notion.RDP: Rdp(ORDERS, ORDERS * 0.05),
    Notion.GDP: Gdp(0.3),
}
IMPOSSIBLE = {
    (Notion.APPROXIMATE, Notion.PURE),
    (Notion.APPROXIMATE, Notion.ZCDP),
    (Notion.APPROXIMATE, Notion.GDP),
    (Notion.ZCDP, Notion.PURE),
    (Notion.ZCDP, Notion.GDP),
    (Notion.RDP, Notion.PURE),
    (Notion.RDP, Notion.ZCDP),
    (Notion.RDP, Notion.GDP),
    (Notion.GDP, Notion.PURE),
}


def target_of(notion: Notion, **more: Any) -> Target:
    if notion is Notion.RDP:
        return Target(notion, orders=ORDERS)
    return Target(notion, **({"delta": 1e-5} | more if notion is Notion.APPROXIMATE else {}))


def size(guarantee: Guarantee) -> float:
    """One number that grows with what may be lost."""
    if isinstance(guarantee, (Pure, Approximate)):
        return guarantee.epsilon
    if isinstance(guarantee, Rdp):
        return float(guarantee.epsilons.sum())
    return guarantee.rho if isinstance(guarantee, Zcdp) else guarantee.mu


@pytest.mark.parametrize(("source", "target"), list(product(Notion, Notion)))
def test_a_pair_has_a_theorem_or_is_refused(source: Notion, target: Notion) -> None:
    if (source, target) in IMPOSSIBLE:
        with pytest.raises(Unproven, match=f"{source.value} implies {target.value}"):
            convert(EXAMPLES[source], target_of(target))
    elif (source, target) == (Notion.APPROXIMATE, Notion.RDP):
        with pytest.raises(Unproven, match="delta-approximate"):
            convert(EXAMPLES[source], target_of(target))
    else:
        found = convert(EXAMPLES[source], target_of(target))
        assert found.guarantee.notion is target
        assert found.theorem
        assert found.conditions
        assert found.source


@pytest.mark.parametrize("pair", sorted(IMPLICATIONS, key=str))
def test_tight_is_the_tightest_of_its_pair(pair: tuple[Notion, Notion]) -> None:
    source, target = pair
    rules = IMPLICATIONS[pair]
    sizes = [size(convert(EXAMPLES[source], target_of(target), rule.method).guarantee) for rule in rules]
    assert sizes == sorted(sizes)
    assert methods_between(source, target) == tuple(rule.method for rule in rules)


@pytest.mark.parametrize("pair", sorted(IMPLICATIONS, key=str))
def test_other_names_lead_to_the_same_theorem(pair: tuple[Notion, Notion]) -> None:
    for rule in IMPLICATIONS[pair]:
        for name in rule.also:
            by_name = convert(EXAMPLES[pair[0]], target_of(pair[1]), name)
            assert by_name.method == rule.method


def test_an_approximate_guarantee_gives_a_curve_only_beside_its_delta() -> None:
    found = convert(Approximate(0.5, 1e-7), target_of(Notion.RDP), "delta-approximate").guarantee
    assert isinstance(found, Rdp)
    assert found.delta == 1e-7
    assert found.fields()["delta"] == 1e-7
    again = convert(found, Target(Notion.APPROXIMATE, delta=1e-5)).guarantee
    assert isinstance(again, Approximate)
    assert again.epsilon > 0.5


def test_an_approximate_guarantee_without_delta_is_pure() -> None:
    found = convert(Approximate(0.5, 0.0), Target(Notion.ZCDP)).guarantee
    assert found == convert(Pure(0.5), Target(Notion.ZCDP)).guarantee


@pytest.mark.parametrize("source", [n for n in Notion if (n, Notion.APPROXIMATE) in IMPLICATIONS])
@pytest.mark.parametrize("index", [0, 1])
def test_delta_at_the_epsilon_found_is_the_delta_asked(source: Notion, index: int) -> None:
    rules = IMPLICATIONS[source, Notion.APPROXIMATE]
    method = rules[min(index, len(rules) - 1)].method
    first = convert(EXAMPLES[source], Target(Notion.APPROXIMATE, delta=1e-5), method)
    assert isinstance(first.guarantee, Approximate)
    second = convert(EXAMPLES[source], Target(Notion.APPROXIMATE, epsilon=first.guarantee.epsilon), method)
    assert isinstance(second.guarantee, Approximate)
    assert second.guarantee.delta == pytest.approx(1e-5, rel=1e-6)
    assert first.order == second.order


def test_an_epsilon_at_which_nothing_is_known_is_refused() -> None:
    with pytest.raises(Unproven, match="no delta below 1"):
        convert(Zcdp(5.0), Target(Notion.APPROXIMATE, epsilon=0.0), "bun-steinke")


def test_a_curve_s_additive_delta_is_added_and_taken() -> None:
    curve = Rdp(ORDERS, ORDERS * 0.05, 1e-6)
    found = convert(curve, Target(Notion.APPROXIMATE, delta=1e-5))
    assert isinstance(found.guarantee, Approximate)
    expected = epsilon_at(Cost(ORDERS, ORDERS * 0.05, delta=1e-6), 1e-5)
    assert (found.guarantee.epsilon, found.order) == expected
    delta = convert(curve, Target(Notion.APPROXIMATE, epsilon=2.0)).guarantee
    plain = convert(EXAMPLES[Notion.RDP], Target(Notion.APPROXIMATE, epsilon=2.0)).guarantee
    assert isinstance(delta, Approximate)
    assert isinstance(plain, Approximate)
    assert delta.delta == pytest.approx(plain.delta + 1e-6, rel=1e-12)
    with pytest.raises(InvalidInput, match="additive"):
        convert(curve, Target(Notion.APPROXIMATE, delta=1e-6))


@pytest.mark.parametrize("pair", sorted(BUDGETS, key=str))
def test_a_budget_converts_back_within_its_goal(pair: tuple[Notion, Notion]) -> None:
    goal = EXAMPLES[pair[0]]
    for rule in BUDGETS[pair]:
        budget = invert(goal, target_of(pair[1]), rule.method)
        assert budget.method == rule.method
        assert _reaches(budget.guarantee, goal)


def _reaches(budget: Guarantee, goal: Guarantee) -> bool:
    if isinstance(goal, Rdp):
        curve = convert(budget, Target(Notion.RDP, orders=goal.orders)).guarantee
        assert isinstance(curve, Rdp)
        return bool((curve.epsilons <= goal.epsilons).all())
    if isinstance(budget, Rdp) and isinstance(goal, Approximate):
        pairs = zip(budget.orders, budget.epsilons, strict=True)
        each = [_epsilon(Rdp(np.array([a]), np.array([e])), goal) for a, e in pairs]
        return max(each) <= goal.epsilon * (1.0 + 1e-12)
    if isinstance(goal, Approximate):
        return _epsilon(budget, goal) <= goal.epsilon * (1.0 + 1e-12)
    return size(convert(budget, target_of(goal.notion)).guarantee) <= size(goal)


def _epsilon(source: Guarantee, goal: Approximate) -> float:
    found = convert(source, Target(Notion.APPROXIMATE, delta=goal.delta)).guarantee
    assert isinstance(found, Approximate)
    return found.epsilon


@pytest.mark.parametrize("pair", sorted(BUDGETS, key=str))
def test_the_first_budget_of_a_pair_is_the_largest(pair: tuple[Notion, Notion]) -> None:
    sizes = [
        size(invert(EXAMPLES[pair[0]], target_of(pair[1]), rule.method).guarantee) for rule in BUDGETS[pair]
    ]
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize(
    ("goal", "target"), [(Pure(1.0), Notion.ZCDP), (Gdp(1.0), Notion.ZCDP), (Zcdp(1.0), Notion.RDP)]
)
def test_a_goal_that_no_budget_reaches_is_refused(goal: Guarantee, target: Notion) -> None:
    with pytest.raises(Unproven, match="no theorem"):
        invert(goal, target_of(target))


def test_a_goal_without_delta_cannot_be_reached_by_curves() -> None:
    for notion in (Notion.RDP, Notion.ZCDP, Notion.GDP, Notion.PURE):
        with pytest.raises(InvalidInput, match="delta"):
            invert(Approximate(1.0, 0.0), target_of(notion))


def test_orders_that_allow_nothing_are_left_out_of_a_budget() -> None:
    found = invert(Approximate(0.5, 1e-7), Target(Notion.RDP, orders=ORDERS)).guarantee
    assert isinstance(found, Rdp)
    assert found.orders.tolist() == [64.0]
    with pytest.raises(Unproven, match="no given order"):
        invert(Approximate(0.5, 1e-7), Target(Notion.RDP, orders=ORDERS[:2]))


def test_named_values_of_the_papers() -> None:
    closed = convert(Zcdp(0.5), Target(Notion.APPROXIMATE, delta=1e-6), "bun-steinke").guarantee
    assert isinstance(closed, Approximate)
    assert closed.epsilon == pytest.approx(0.5 + 2.0 * math.sqrt(0.5 * math.log(1e6)), rel=1e-12)
    assert convert(Pure(1.0), Target(Notion.ZCDP), "bun-steinke").guarantee == Zcdp(0.5000000000000003)
    exact = convert(Gdp(1.0), Target(Notion.APPROXIMATE, delta=1e-5)).guarantee
    assert exact == Approximate(gaussian_epsilon(1.0, 1e-5), 1e-5)


def test_unknown_methods_are_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match="tight, canonne-kamath-steinke"):
        convert(Zcdp(1.0), Target(Notion.APPROXIMATE, delta=1e-5), "guess")
    with pytest.raises(InvalidInput, match="method"):
        invert(Approximate(1.0, 1e-5), Target(Notion.ZCDP), "guess")


@pytest.mark.parametrize("notion", list(Notion))
def test_guarantees_read_back_from_their_wire_form(notion: Notion) -> None:
    wire = EXAMPLES[notion].fields()
    assert guarantee_from_fields(wire).fields() == wire


def test_conversions_and_targets_have_a_wire_form() -> None:
    target = Target.from_fields({"notion": "approximate", "delta": 1e-5})
    assert target.fields() == {"notion": "approximate", "delta": 1e-5}
    assert Target.from_fields({"notion": "rdp", "orders": [2, 3]}).fields()["orders"] == [2.0, 3.0]
    wire = convert(EXAMPLES[Notion.RDP], target).fields()
    assert wire["guarantee"]["notion"] == "approximate"
    assert wire["order"] in ORDERS
    assert "order" not in convert(Zcdp(0.1), target).fields()


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"notion": "zcdp"},
        {"notion": "zcdp", "rho": 1.0, "mu": 1.0},
        {"notion": "magic", "rho": 1.0},
        {"notion": "pure", "epsilon": math.nan},
        {"notion": "approximate", "epsilon": 1.0, "delta": 1.0},
        {"notion": "gdp", "mu": -1.0},
        {"notion": "rdp", "orders": [2.0, 3.0], "epsilons": [0.1]},
        {"notion": "rdp", "orders": [2.0, 3.0], "epsilons": [0.1, -0.1]},
        {"notion": "rdp", "orders": [1.0, 3.0], "epsilons": [0.1, 0.1]},
        {"notion": "rdp", "orders": [2.0], "epsilons": [0.1], "delta": 1.0},
    ],
)
def test_malformed_guarantees_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        guarantee_from_fields(fields)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"notion": "zcdp", "delta": 1e-5},
        {"notion": "gdp", "orders": [2.0]},
        {"notion": "approximate", "delta": 0.0},
        {"notion": "approximate", "epsilon": -1.0},
        {"notion": "rdp", "orders": [3.0, 2.0]},
        {"notion": "pure", "colour": "red"},
    ],
)
def test_malformed_targets_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Target.from_fields(fields)


@pytest.mark.parametrize("more", [{}, {"delta": 1e-5, "epsilon": 1.0}])
def test_an_approximate_target_says_exactly_one_of_epsilon_and_delta(more: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="exactly one"):
        convert(Zcdp(1.0), Target(Notion.APPROXIMATE, **more))


def test_a_curve_target_says_its_orders() -> None:
    with pytest.raises(InvalidInput, match="orders"):
        convert(Zcdp(1.0), Target(Notion.RDP))
