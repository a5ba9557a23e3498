"""Rényi filters: the budget at each order, and the orders to keep.

A filter decides adaptively: each step is chosen from the outputs of earlier ones. "Continue while some
order α has spent(α) ≤ B(α)", with the whole δ given to every order, is not valid then: two-round
strategies exceed δ (the tests rebuild them). The repair shares δ among the orders.

Statement
    Let w_α be positive with Σ w_α ≤ 1 and B(α) = ε − log(1 − 1/α) + log(w_α δ α)/(α − 1). Any adaptive
    sequence of steps that ends while some order of the grid has spent(α) ≤ B(α) is (ε, δ)-DP.
Conditions
    Every step's curve bounds its divergence conditionally on the past; orders and weights are fixed
    before the first step; either adjacency.
Proof
    E_Q[(P/Q)^α e^(−(α−1)·spent(α))] ≤ 1 for adaptive steps (Feldman and Zrnic 2021, Lemma 3.1 for one
    order). With L = log P/Q the hockey-stick obeys (1 − e^(ε−L))₊ ≤ s_α e^((α−1)(L−ε)),
    s_α = (1/α)(1 − 1/α)^(α−1) (Balle et al. 2020). On the branches that end within order α's budget
    this is at most w_α·δ·e^((α−1)(L − spent(α))), whose P-expectation over those branches is at most
    w_α·δ; the sum over orders is at most δ.
"""

import math

import numpy as np

from dpledger.accounting.conversion.renyi import renyi_budget
from dpledger.accounting.conversion.zcdp import zcdp_order_within
from dpledger.accounting.errors import InvalidInput, Unreachable
from dpledger.accounting.orders import DEFAULT_ORDERS
from dpledger.accounting.solving import orders_around
from dpledger.accounting.stepcost import cost_of
from dpledger.accounting.steps import Step
from dpledger.accounting.validation import (
    MAX_ORDER,
    Floats,
    check_count,
    check_open_unit,
    check_orders,
    check_positive,
    check_vector,
)

__all__ = [
    "FILTER_GRID",
    "PLANNED_WEIGHT",
    "USUAL_WEIGHT",
    "attainable_share",
    "best_order_for_gaussian",
    "best_order_for_plan",
    "default_weights",
    "order_budgets",
]

PLANNED_WEIGHT = 0.98
"""The planned order's share of δ where a plan is given.

Measured at q = 0.01, σ = 1.1, δ = 1e-5: shares of 0.9, 0.95 and 0.98 grant 130, 136 and 139 planned steps at
ε = 1 (3,097, 3,115, 3,125 at ε = 3), and 1,049, 1,005 and 946 steps of σ = 2, which were not planned.
"""

USUAL_WEIGHT = 0.9
"""The share of the order that suits Gaussians best, where no plan is given: others may turn out better."""

FILTER_GRID: Floats = np.array(
    [1.25, 1.5, 1.75, 2, 2.5, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128, 256, 512, 1024],
    dtype=np.float64,
)
"""Orders kept beside the planned one.

The best order for a Gaussian that uses up (ε, δ) is about 1 + 2·log(1/δ)/ε: from 2 at ε = 20 to some
thousands at ε = 0.01, and subsampling moves it down, to 1.25 for large noise-free rates and to 10 for
ε = 1. Steps of a third to a half in α − 1 lose a few per cent of ε to the next neighbour, which is less
than a finer grid would cost each order in weight. 1024 serves small ε: there B is already within a
factor of two of the best, and a budget that small is opened with its planned order.
"""
FILTER_GRID.flags.writeable = False

_ZOOMS = 3
_ZOOM_POINTS = 25
_LEAST_ORDER = 1.0 + 1e-6


def order_budgets(epsilon: float, delta: float, orders: Floats, weights: Floats) -> Floats:
    """B(α) for each order with its share of δ, rounded down; negative where an order allows nothing.

    Statement, conditions and proof: the module's text.
    """
    epsilon, delta = check_positive("epsilon", epsilon), check_open_unit("delta", delta)
    orders, weights = check_orders(orders), _check_weights(weights)
    if weights.shape != orders.shape:
        raise InvalidInput("weights", f"{orders.size} numbers, one per order", weights.size)
    return renyi_budget(orders, epsilon, np.log(weights) + math.log(delta))


def _check_weights(weights: Floats) -> Floats:
    vector = check_vector("weights", weights)
    if not (vector > 0.0).all() or math.fsum(vector.tolist()) > 1.0:
        raise InvalidInput("weights", "above 0 with a sum of at most 1", vector.tolist())
    return vector


def attainable_share(orders: Floats) -> Floats:
    """s_α = (1/α)(1 − 1/α)^(α−1): the share of δ at which B(α) is Mironov's ε − log(1/δ)/(α−1)."""
    excess = check_orders(orders) - 1.0
    shares: Floats = np.exp(-np.log1p(excess) - excess * np.log1p(1.0 / excess))
    return shares


def default_weights(orders: Floats, planned_index: int, planned_weight: float = PLANNED_WEIGHT) -> Floats:
    """Weights with ``planned_weight`` on one order and the rest shared in proportion to s_α.

    The sum is at most 1 after rounding. A single order gets all.
    """
    orders = check_orders(orders)
    check_count("planned_index", planned_index, least=0, most=orders.size - 1)
    planned_weight = check_open_unit("planned_weight", planned_weight)
    if orders.size == 1:
        return np.ones(1)
    shares = attainable_share(orders)
    shares[planned_index] = 0.0
    weights = (1.0 - planned_weight) * (1.0 - 2.0**-40) * shares / shares.sum()
    weights[planned_index] = planned_weight
    return _check_weights(weights)


def best_order_for_gaussian(epsilon: float, delta: float, planned_weight: float = USUAL_WEIGHT) -> float:
    """The real order whose budget allows the most of a Gaussian, or of zCDP: the largest B(α)/α."""
    epsilon, delta = check_positive("epsilon", epsilon), check_open_unit("delta", delta)
    share = delta if planned_weight == 1.0 else delta * check_open_unit("planned_weight", planned_weight)
    return min(max(zcdp_order_within(epsilon, share), _LEAST_ORDER), MAX_ORDER)


def best_order_for_plan(
    step: Step,
    times: int | None,
    epsilon: float,
    delta: float,
    planned_weight: float = PLANNED_WEIGHT,
) -> float:
    """The real order whose budget grants the most repetitions of a step: the largest B(α)/ε(α).

    Parameters
    ----------
    step, times
        The planned step and how often; ``times`` only matters where the step carries an additive δ,
        which is set aside before δ is shared.
    epsilon, delta
        The budget.
    planned_weight
        The order's share of δ; 1 for an order that is kept alone.

    Raises
    ------
    Unreachable
        Where no order grants even a fraction of a step.

    Notes
    -----
    Any order is sound; a coarse vectorised pass over the default grid is refined around its best.
    """
    repetitions = 1 if times is None else check_count("times", times)
    epsilon, delta = check_positive("epsilon", epsilon), check_open_unit("delta", delta)
    weight = planned_weight if planned_weight == 1.0 else check_open_unit("planned_weight", planned_weight)
    orders, best, most = DEFAULT_ORDERS, 0.0, 0.0
    for _ in range(_ZOOMS):
        granted = _steps_granted(step, repetitions, epsilon, delta, weight, orders)
        index = int(granted.argmax())
        if granted[index] > most:
            best, most = float(orders[index]), float(granted[index])
        orders = orders_around(orders, index, points=_ZOOM_POINTS)
    if most <= 0.0:
        raise Unreachable(f"no order leaves a budget within epsilon {epsilon!r} and delta {delta!r}")
    return best


def _steps_granted(
    step: Step, times: int, epsilon: float, delta: float, weight: float, orders: Floats
) -> Floats:
    """Repetitions that each order's budget grants, as a real number."""
    cost = cost_of(step, orders)
    rest = delta - times * cost.delta
    if rest <= 0.0:
        raise Unreachable(f"{times} steps need an additive delta of {times * cost.delta!r}, not {delta!r}")
    budget = renyi_budget(orders, epsilon, math.log(weight) + math.log(rest))
    with np.errstate(over="ignore"):  # what costs next to nothing is granted without end
        granted: Floats = budget / np.maximum(cost.epsilons, np.finfo(np.float64).tiny)
    return granted
