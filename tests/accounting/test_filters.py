"""The weighted filter: its budgets, its orders, and the strategies that break the unweighted rule."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp

from dpledger.accounting.errors import InvalidInput, Unreachable
from dpledger.accounting.filters import (
    FILTER_GRID,
    PLANNED_WEIGHT,
    USUAL_WEIGHT,
    attainable_share,
    best_order_for_gaussian,
    best_order_for_plan,
    default_weights,
    order_budgets,
)
from dpledger.accounting.mechanisms import Approximate, Gaussian, Pure
from dpledger.accounting.sampling import Sample, Scheme
from dpledger.accounting.stepcost import cost_of
from dpledger.accounting.steps import Release, Step
from dpledger.accounting.validation import Floats
from tests.accounting.references import log_uniform, moderately

DP_SGD = Step((Release(Gaussian(1.0, 1.1)),), Sample(Scheme.POISSON, 0.01))


def renyi(p: Floats, q: Floats, order: float) -> float:
    """The larger direction of two discrete distributions' divergence."""
    loss = np.log(p / q)
    both = (np.sum(p * np.exp((order - 1.0) * loss)), np.sum(q * np.exp((1.0 - order) * loss)))
    return float(np.log(max(both)) / (order - 1.0))


class TwoRounds:
    """An adaptive strategy: a first release, then in each branch one that just fits some order's budget.

    The first release has outcomes of log-likelihood ``losses`` and, on the neighbour, log-probability
    ``masses``, and one more outcome for the rest. The second is an event whose size suits the first
    outcome: it lifts the total loss to ε + log(α/(α−1)), where the order's tail bound is attained. All
    divergences are charged exactly, the larger direction of both.
    """

    def __init__(self, losses: Sequence[float], masses: Sequence[float]) -> None:
        q = np.exp(np.array(masses))
        p = q * np.exp(np.array(losses))
        self.p, self.q = np.append(p, 1.0 - p.sum()), np.append(q, 1.0 - q.sum())

    def delta(self, epsilon: float, orders: Floats, budgets: Floats) -> float:
        """The exact δ at ε of both rounds together, by enumeration of all outcomes."""
        left = budgets - np.array([renyi(self.p, self.q, order) for order in orders])
        assert (left >= 0.0).any(), "the first release alone must be granted"
        outcomes = []
        for p, q in zip(self.p, self.q, strict=True):
            branches = [
                self._branch(p, q, epsilon, order, budget)
                for order, budget in zip(orders, left, strict=True)
                if budget > 0.0
            ]
            outcomes.append(max(branches))
        return math.fsum(outcomes)

    @staticmethod
    def _branch(p: float, q: float, epsilon: float, order: float, budget: float) -> float:
        jump = epsilon - math.log(p / q) + math.log(order / (order - 1.0))
        rare = likeliest_event(jump, order, budget) if jump > 0.0 else 0.0
        common = rare * math.exp(jump)
        factor = math.exp(epsilon) * q
        return max(p * common - factor * rare, 0.0) + max(p * (1.0 - common) - factor * (1.0 - rare), 0.0)


def likeliest_event(jump: float, order: float, budget: float) -> float:
    """The largest probability of an event that is e^jump times likelier on the other side, within budget."""
    low, high = -60.0, -jump
    for _ in range(45):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if two_point(middle, jump, order) <= budget else (low, middle)
    return math.exp(low)


def two_point(log_rare: float, jump: float, order: float) -> float:
    """Divergence, the larger direction, of two laws of one event."""
    rare, common = math.exp(log_rare), math.exp(log_rare + jump)
    if common >= 1.0:
        return math.inf
    rest = math.log1p(-common) - math.log1p(-rare)
    grow = (order - 1.0) * max(jump, -rest)
    power = order - 1.0
    there = common * math.exp(power * jump - grow) + (1.0 - common) * math.exp(power * rest - grow)
    back = rare * math.exp(-power * jump - grow) + (1.0 - rare) * math.exp(-power * rest - grow)
    return (math.log(max(there, back)) + grow) / power


CASES = [
    (1.0, [16.0, 64.0], TwoRounds([0.1975], [-7.19]), 1.98),
    (8.0, [2.6, 4.0, 8.0, 20.0], TwoRounds([2.007, 1.697, 1.047], [-10.594, -6.985, -3.752]), 2.71),
]


def unweighted_budgets(epsilon: float, delta: float, orders: Floats) -> Floats:
    """What the popular rule gives every order: the whole δ."""
    budgets: Floats = epsilon - np.log1p(-1.0 / orders) + np.log(delta * orders) / (orders - 1.0)
    return budgets


@pytest.mark.parametrize(("epsilon", "orders", "strategy", "excess"), CASES)
def test_some_order_within_the_whole_delta_is_unsound(
    epsilon: float, orders: list[float], strategy: TwoRounds, excess: float
) -> None:
    grid = np.array(orders)
    found = strategy.delta(epsilon, grid, unweighted_budgets(epsilon, 1e-5, grid))
    assert found / 1e-5 == pytest.approx(excess, abs=0.01)


@pytest.mark.parametrize(("epsilon", "orders", "strategy", "_"), CASES)
def test_the_weighted_rule_withstands_the_same_strategies(
    epsilon: float, orders: list[float], strategy: TwoRounds, _: float
) -> None:
    grid = np.array(orders)
    for index in range(grid.size):
        for weights in (default_weights(grid, index), default_weights(grid, index, 0.5)):
            assert strategy.delta(epsilon, grid, order_budgets(epsilon, 1e-5, grid, weights)) <= 1e-5
    even = np.full(grid.size, 1.0 / grid.size)
    assert strategy.delta(epsilon, grid, order_budgets(epsilon, 1e-5, grid, even)) <= 1e-5


@given(
    st.lists(st.floats(0.0, 2.5), min_size=2, max_size=3),
    st.lists(st.floats(-25.0, -2.0), min_size=3, max_size=3),
    st.sampled_from([1.0, 3.0, 8.0]),
)
@moderately
def test_the_weighted_rule_withstands_strategies_found_at_random(
    losses: list[float], masses: list[float], epsilon: float
) -> None:
    strategy = TwoRounds(losses, [min(m, -loss - 1.5) for m, loss in zip(masses, losses, strict=False)])
    grid = np.array([2.6, 4.0, 8.0, 16.0, 20.0, 64.0])
    budgets = order_budgets(epsilon, 1e-5, grid, np.full(grid.size, 1.0 / grid.size))
    if max(b - renyi(strategy.p, strategy.q, a) for a, b in zip(grid, budgets, strict=True)) > 0.0:
        assert strategy.delta(epsilon, grid, budgets) <= 1e-5


@given(log_uniform(0.01, 20.0), log_uniform(1e-12, 0.1))
@moderately
def test_budgets_are_never_above_their_formula(epsilon: float, delta: float) -> None:
    weights = default_weights(FILTER_GRID, 9)
    for order, weight, found in zip(
        FILTER_GRID, weights, order_budgets(epsilon, delta, FILTER_GRID, weights), strict=True
    ):
        a = mp.mpf(order)
        exact = mp.mpf(epsilon) - mp.log(1 - 1 / a) + mp.log(mp.mpf(weight) * mp.mpf(delta) * a) / (a - 1)
        assert mp.mpf(float(found)) <= exact
        assert found == pytest.approx(float(exact), abs=1e-12 * (1.0 + abs(math.log(delta)) / (order - 1.0)))


def test_the_attainable_share_is_its_formula() -> None:
    shares = attainable_share(FILTER_GRID)
    np.testing.assert_allclose(
        shares, (1.0 / FILTER_GRID) * (1.0 - 1.0 / FILTER_GRID) ** (FILTER_GRID - 1.0), rtol=1e-12
    )


@pytest.mark.parametrize("index", range(FILTER_GRID.size))
def test_default_weights_favour_the_planned_order_and_sum_to_at_most_one(index: int) -> None:
    weights = default_weights(FILTER_GRID, index)
    assert weights[index] == PLANNED_WEIGHT
    assert math.fsum(weights.tolist()) <= 1.0
    assert math.fsum(weights.tolist()) == pytest.approx(1.0, abs=1e-9)
    others = np.delete(weights, index) / np.delete(attainable_share(FILTER_GRID), index)
    assert others == pytest.approx(others[0], rel=1e-12)


def test_a_single_order_gets_all_of_delta() -> None:
    assert default_weights(np.array([8.0]), 0).tolist() == [1.0]
    assert order_budgets(1.0, 1e-5, np.array([8.0]), np.array([1.0])).size == 1


def granted(order: float, epsilon: float, weight: float) -> int:
    """Steps of DP-SGD that the planned order's budget pays for, with the grid's beside it."""
    orders = np.unique(np.append(FILTER_GRID, order))
    weights = default_weights(orders, int(np.searchsorted(orders, order)), weight)
    budgets = order_budgets(epsilon, 1e-5, orders, weights)
    return int(np.floor(budgets / cost_of(DP_SGD, orders).epsilons).max())


@pytest.mark.parametrize(
    ("epsilon", "weight", "steps"),
    [
        (3.0, PLANNED_WEIGHT, 3125),
        (1.0, PLANNED_WEIGHT, 139),
        (3.0, USUAL_WEIGHT, 3096),
        (1.0, USUAL_WEIGHT, 130),
        (3.0, 0.5, 2900),
        (1.0, 0.5, 71),
    ],
)
def test_steps_granted_to_planned_dp_sgd(epsilon: float, weight: float, steps: int) -> None:
    """q = 0.01, σ = 1.1, δ = 1e-5: what is given to the planned order decides."""
    order = best_order_for_plan(DP_SGD, 1000, epsilon, 1e-5, weight)
    assert granted(order, epsilon, weight) >= steps
    assert granted(order, epsilon, weight) <= steps * 1.09


def test_the_unsound_rule_would_grant_only_a_little_more() -> None:
    for epsilon, steps in ((3.0, 3132), (1.0, 141)):
        order = best_order_for_plan(DP_SGD, None, epsilon, 1e-5, 1.0)
        cost = cost_of(DP_SGD, np.array([order])).epsilons[0]
        budget = order_budgets(epsilon, 1e-5, np.array([order]), np.array([1.0]))[0]
        assert int(budget / cost) == steps


def test_the_best_order_is_a_real_number_and_the_nearest_integer_loses_steps() -> None:
    order = best_order_for_plan(DP_SGD, 100, 1.0, 1e-5)
    assert order == pytest.approx(10.6, abs=0.05)
    assert granted(11.0, 1.0, 0.9) < 0.9 * granted(order, 1.0, 0.9)


def test_for_full_gaussians_plan_and_closed_form_agree() -> None:
    step = Step((Release(Gaussian(1.0, 40.0)),))
    for epsilon in (0.1, 1.0, 10.0):
        planned = best_order_for_plan(step, 10, epsilon, 1e-6)
        assert planned == pytest.approx(best_order_for_gaussian(epsilon, 1e-6), rel=0.01)


def test_the_best_order_for_a_gaussian_has_the_largest_budget_for_its_cost() -> None:
    best = best_order_for_gaussian(2.0, 1e-6, 0.3)
    orders = np.array([0.98 * best, best, 1.02 * best])
    budgets = order_budgets(2.0, 1e-6, orders, np.full(3, 0.3)) / orders
    assert budgets.argmax() == 1
    assert best_order_for_gaussian(2.0, 1e-6, 1.0) < best_order_for_gaussian(2.0, 1e-6) < best


@given(log_uniform(1e-9, 1e6), log_uniform(1e-300, 0.99))
@moderately
def test_the_best_order_for_a_gaussian_is_always_an_order(epsilon: float, delta: float) -> None:
    assert 1.0 < best_order_for_gaussian(epsilon, delta) <= 1e6


def test_an_additive_delta_is_set_aside_before_delta_is_shared() -> None:
    leaky = Step((Release(Approximate(0.01, 1e-8)),))
    plain = Step((Release(Pure(0.01)),))
    assert best_order_for_plan(leaky, 50, 1.0, 1e-6) == pytest.approx(
        best_order_for_plan(plain, 50, 1.0, 5e-7), rel=1e-3
    )
    with pytest.raises(Unreachable, match="additive"):
        best_order_for_plan(leaky, 100, 1.0, 1e-6)


def test_a_budget_that_no_order_serves_is_unreachable() -> None:
    with pytest.raises(Unreachable, match="no order"):
        best_order_for_plan(DP_SGD, None, 1e-6, 1e-12)


def test_a_step_that_costs_next_to_nothing_still_has_a_best_order() -> None:
    hardly = Step((Release(Gaussian(1e-160, 300.0)),))
    assert best_order_for_plan(hardly, None, 1e100, 0.05) > 1.0


def test_the_grid_is_frozen() -> None:
    assert not FILTER_GRID.flags.writeable
    assert FILTER_GRID[0] == 1.25
    assert FILTER_GRID[-1] == 1024.0
    assert FILTER_GRID.size <= 24


@pytest.mark.parametrize(
    "weights", [[0.5, 0.5, 0.5], [0.0, 0.5, 0.5], [-0.1, 0.5, 0.5], [0.5, 0.5], [math.nan, 0.1, 0.1], []]
)
def test_bad_weights_are_refused(weights: list[float]) -> None:
    with pytest.raises(InvalidInput, match="weights"):
        order_budgets(1.0, 1e-5, np.array([2.0, 4.0, 8.0]), weights)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0, 0.0, "x", None])
def test_bad_numbers_are_refused(bad: float) -> None:
    orders, weights = np.array([2.0]), np.array([1.0])
    for call in (
        lambda: order_budgets(bad, 1e-5, orders, weights),
        lambda: order_budgets(1.0, bad, orders, weights),
        lambda: best_order_for_gaussian(bad, 1e-5),
        lambda: best_order_for_gaussian(1.0, 1e-5, bad),
        lambda: best_order_for_plan(DP_SGD, 1, bad, 1e-5),
        lambda: best_order_for_plan(DP_SGD, 1, 1.0, 1e-5, bad),
        lambda: default_weights(FILTER_GRID, 0, bad),
    ):
        with pytest.raises(InvalidInput):
            call()


@pytest.mark.parametrize("index", [-1, 23, 1.5])
def test_an_index_outside_the_orders_is_refused(index: int) -> None:
    with pytest.raises(InvalidInput, match="planned_index"):
        default_weights(FILTER_GRID, index)
