"""Filters over Rényi orders: weighted orders, one order, and a whole curve."""

import functools
from dataclasses import replace
from fractions import Fraction
from typing import Any, ClassVar, Literal

import numpy as np

from dpledger.accounting import filters
from dpledger.accounting.conversion.renyi import epsilon_at
from dpledger.accounting.cost import Cost
from dpledger.accounting.errors import AccountingError, InvalidInput
from dpledger.accounting.exact import Exact, as_given
from dpledger.accounting.exact_cost import agreed, exact_delta, exact_epsilon
from dpledger.accounting.pld.calibration import largest_count_beside
from dpledger.accounting.sampling import Adjacency
from dpledger.accounting.stepcost import cost_of
from dpledger.accounting.steps import Release, Step
from dpledger.accounting.theorem import Theorem
from dpledger.accounting.validation import (
    MAX_COUNT,
    Floats,
    check_non_negative,
    check_orders,
    check_vector,
)
from dpledger.ledger.model.budget import Budget, Plan
from dpledger.ledger.model.filter import (
    ADAPTIVE,
    Filter,
    Meter,
    check_additive,
    read_epsilon_delta,
    read_target,
)

__all__ = ["RenyiCurveFilter", "RenyiFilter", "RenyiOrderFilter", "WeightedOrdersFilter"]

_FELDMAN = "Feldman and Zrnic 2021; Rogers, Roth, Ullman, Vadhan 2016"


class RenyiFilter(Filter):
    """The Rényi cost at each frozen order adds up."""

    picture: ClassVar[Literal["sum", "curve", "items"]] = "curve"

    def amounts(self, budget: Budget, step: Step, cost: Cost, item: str | None) -> Floats:
        return np.append(cost.epsilons, cost.delta)

    def exact_amounts(self, budget: Budget, step: Step, amounts: Floats) -> Exact:
        known = [exact_epsilon(step, *order) for order in self._read_orders(budget)]
        values = zip([*known, exact_delta(step)], amounts.tolist(), strict=True)
        return Exact.of([agreed(value, bound) for value, bound in values])

    def _read_orders(self, budget: Budget) -> list[tuple[float, Fraction]]:
        """The orders, and how each is read: a curve's as given, others as the doubles that limits are for."""
        read = as_given if gives_its_curve(budget) else Fraction
        return [(order, read(order)) for order in budget.orders.tolist()]

    def basis(self, budget: Budget) -> object:
        return budget.orders.tobytes(), gives_its_curve(budget)

    def coordinates(self, budget: Budget, amounts: Floats) -> dict[str, Any]:
        return {"orders": budget.orders.tolist(), "epsilons": amounts[:-1].tolist()}

    def meters(self, budget: Budget, amounts: Floats) -> list[Meter]:
        rows = zip(budget.orders.tolist(), amounts[:-1].tolist(), budget.limits[:-1].tolist(), strict=True)
        return [Meter(repr(order), used, limit) for order, used, limit in rows]

    def indicative_epsilon(self, budget: Budget, amounts: Floats, delta: float) -> float | None:
        return epsilon_at(Cost(budget.orders, amounts[:-1].copy()), delta)[0]

    def explain_refusal(self, budget: Budget, step: Step, amounts: Floats, room: Floats) -> dict[str, Any]:
        """The order that refuses, how much noise would fit, and that a plan loses nothing to orders."""
        at = self._refusing_order(amounts, room)
        order, left = float(budget.orders[at]), max(0.0, float(room[at]))
        said = [f"order α = {order:.4g} binds: {left:.4g} is left there, and a step costs {amounts[at]:.4g}"]
        for factor in _FACTORS:
            costs = _costs_with_more_noise(step, factor, budget.orders.tobytes())
            fits = 0 if costs is None else self._steps_within(costs, room)
            if fits:
                said.append(f"with {factor:g} times its noise {_steps(fits)} would fit")
                break
        said.append(_PLAN_ADVICE)
        return {"order": order, "advice": said}

    def plan_grants(self, budget: Budget, step: Step, most: int = MAX_COUNT) -> int | None:
        if gives_its_curve(budget):
            return None
        target = budget.target
        try:
            return largest_count_beside([], step, target["epsilon"], target["delta"], most=most)
        except AccountingError:
            return None

    def _refusing_order(self, amounts: Floats, room: Floats) -> int:
        """Where one order is enough, the one that is nearest to granting; else the one farthest from it."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            fits = np.where(amounts[:-1] > 0.0, room[:-1] / amounts[:-1], np.inf)
        return int(np.argmax(fits) if self.one_suffices else np.argmin(fits))

    def _steps_within(self, costs: Floats, room: Floats) -> int:
        """How many steps of these costs fit into what is left, up to a million."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            fits = np.where(costs > 0.0, np.maximum(room[:-1], 0.0) / costs, np.inf)
        return int(min(_MANY, fits.max() if self.one_suffices else fits.min()))


_PLAN_ADVICE = "a plan budget, opened for steps that are fixed in advance, composes them exactly"
"""How many it grants, a forecast says: that takes some 30 ms, and a refusal is written under the lock."""
_FACTORS = (1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0)
"""How much more noise a refusal tries, for its advice."""
_MOST_SCALED = 4
"""Releases of other noise than Gaussian that a refusal scales: it is written while its ledger is locked, and
64 of them take 0.3 seconds."""
_MANY = 1e6


def _steps(number: int) -> str:
    return f"{number} steps" if number != 1 else "a step"


def _with_more_noise(step: Step, factor: float) -> Step | None:
    """The step with so many times its noise; None where a release has none that can be scaled quickly."""
    if sum(each.mechanism.gaussian_mu is None for each in step.releases) > _MOST_SCALED:
        return None
    scaled: list[Release] = []
    for release in step.releases:
        mechanism: Any = release.mechanism
        if mechanism.noise_field is None or mechanism.expensive:
            return None
        name = mechanism.noise_field.name
        louder = replace(mechanism, **{name: factor * getattr(mechanism, name)})
        scaled.append(replace(release, mechanism=louder))
    return replace(step, releases=tuple(scaled))


@functools.lru_cache(maxsize=512)
def _costs_with_more_noise(step: Step, factor: float, orders: bytes) -> Floats | None:
    """The curve of a step with more noise, remembered: many refusals of one job are for the same step."""
    try:
        louder = _with_more_noise(step, factor)
        return None if louder is None else cost_of(louder, np.frombuffer(orders)).epsilons
    except AccountingError:  # so much noise is no number any more, and no advice either
        return None


def gives_its_curve(budget: Budget) -> bool:
    """Whether the limits are a curve as given rather than what follows from (ε, δ)."""
    return "epsilon" not in budget.target


class WeightedOrdersFilter(RenyiFilter):
    """Some order still has spent(α) ≤ B(α), where B uses δ·w_α and Σw_α = 1."""

    name = "rdp"
    fields = frozenset({"epsilon", "delta", "additive_delta", "plan"})
    theorem = Theorem(
        "rdp",
        "spent(α) ≤ ε − log(1 − 1/α) + log(w_α·δ·α)/(α − 1) at some order, Σw_α ≤ 1",
        ADAPTIVE,
        "Feldman and Zrnic 2021, Lemma 3.1; Balle et al. 2020; δ shared among the orders",
    )
    summary = "Rényi DP: some order of the grid stays within its share of the budget"
    one_suffices = True

    def open(self, fields: dict[str, Any], adjacency: Adjacency) -> Budget:
        epsilon, delta, _ = read_epsilon_delta(fields)
        weight = filters.PLANNED_WEIGHT if "plan" in fields else filters.USUAL_WEIGHT
        planned = _planned_order(fields, adjacency, epsilon, delta, weight)
        orders = np.union1d(filters.FILTER_GRID, [planned])
        weights = filters.default_weights(orders, int(np.searchsorted(orders, planned)), weight)
        return self._with_weights(fields, orders, weights)

    def change(self, budget: Budget, fields: dict[str, Any], adjacency: Adjacency) -> Budget:
        if budget.weights is None:
            raise InvalidInput("weights", "stored with an rdp budget", budget.weights)
        return self._with_weights(fields, budget.orders, budget.weights)

    def _with_weights(self, fields: dict[str, Any], orders: Floats, weights: Floats) -> Budget:
        epsilon, delta, additive = read_epsilon_delta(fields)
        limits = filters.order_budgets(epsilon, delta, orders, weights)
        target = read_target(fields, "epsilon", "delta")
        return Budget(self.name, orders, np.append(limits, additive), target, weights)

    def check_usable(self, budget: Budget) -> None:
        if not (budget.limits[:-1] > 0.0).any():
            raise InvalidInput(
                "budget", "large enough for some order of the grid to be usable", budget.target
            )

    def magnitude(self, budget: Budget, amounts: Floats) -> float:
        """The cost at the planned order, which most of δ is for."""
        at = 0 if budget.weights is None else int(budget.weights.argmax())
        return float(amounts[at])


class RenyiOrderFilter(RenyiFilter):
    """spent(α*) ≤ B(α*) at one order fixed in advance."""

    name = "rdp-order"
    fields = frozenset({"epsilon", "delta", "additive_delta", "order", "plan"})
    theorem = Theorem("rdp-order", "spent(α*) ≤ B(α*) at one fixed order", ADAPTIVE, _FELDMAN)
    summary = "Rényi DP at one order, fixed in advance"

    def open(self, fields: dict[str, Any], adjacency: Adjacency) -> Budget:
        epsilon, delta, additive = read_epsilon_delta(fields)
        if "order" in fields:
            orders = check_orders([fields["order"]], field="budget.order")
        else:
            orders = np.array([_planned_order(fields, adjacency, epsilon, delta, 1.0)])
        limit = filters.order_budgets(epsilon, delta, orders, np.ones(1))
        target = read_target(fields, "epsilon", "delta")
        return Budget(self.name, orders, np.append(limit, additive), target)

    def change(self, budget: Budget, fields: dict[str, Any], adjacency: Adjacency) -> Budget:
        return self.open({"order": float(budget.orders[0]), **fields}, adjacency)

    def check_usable(self, budget: Budget) -> None:
        if budget.limits[0] <= 0.0:
            requirement = "an order with a positive budget for epsilon and delta"
            raise InvalidInput("budget.order", requirement, budget.orders[0])


class RenyiCurveFilter(RenyiFilter):
    """spent(α) ≤ B(α) at every order of a curve: as given, or that of one step repeated."""

    name = "rdp-curve"
    fields = frozenset({"orders", "epsilons", "epsilon", "delta", "additive_delta", "plan"})
    theorem = Theorem("rdp-curve", "spent(α) ≤ B(α) at every order", ADAPTIVE, _FELDMAN)
    summary = "Rényi DP: every order stays within the given curve"

    def open(self, fields: dict[str, Any], adjacency: Adjacency) -> Budget:
        if "orders" in fields or "epsilons" in fields:
            return self._open_given(fields)
        if "plan" not in fields:
            raise InvalidInput(
                "budget", "orders with epsilons, or epsilon and delta with a plan", sorted(fields)
            )
        epsilon, delta, additive = read_epsilon_delta(fields)
        plan = Plan.from_fields(fields["plan"], adjacency)
        best = np.array([filters.best_order_for_plan(plan.step, None, epsilon, delta, 1.0)])
        limit = filters.order_budgets(epsilon, delta, best, np.ones(1))
        orders = np.union1d(filters.FILTER_GRID, best)
        each = cost_of(plan.step, orders).epsilons
        curve = _room_for_repetitions(each, float(limit[0]), int(np.searchsorted(orders, best[0])))
        target = read_target(fields, "epsilon", "delta")
        return Budget(self.name, orders, np.append(curve, additive), target)

    def _open_given(self, fields: dict[str, Any]) -> Budget:
        if {"epsilon", "delta", "plan"} & set(fields):
            raise InvalidInput("budget", "orders with epsilons alone", sorted(fields))
        orders = check_orders(fields.get("orders"), field="budget.orders")
        epsilons = check_vector("budget.epsilons", fields.get("epsilons"))
        if epsilons.size != orders.size:
            raise InvalidInput("budget.epsilons", f"{orders.size} numbers, one per order", epsilons.size)
        for value in epsilons:
            check_non_negative("budget.epsilons", value)
        return Budget(self.name, orders, np.append(epsilons, check_additive(fields)), read_target(fields))

    def change(self, budget: Budget, fields: dict[str, Any], adjacency: Adjacency) -> Budget:
        return self.open(fields, adjacency)

    def cover(self, first: Budget, second: Budget, limits: Floats, delta: float) -> dict[str, Any]:
        """ε converted from the larger curve, since two curves may rest on two different orders."""
        return {"epsilon": epsilon_at(Cost(first.orders, limits[:-1].copy()), delta)[0]}


def _planned_order(
    fields: dict[str, Any], adjacency: Adjacency, epsilon: float, delta: float, weight: float
) -> float:
    if "plan" not in fields:
        return filters.best_order_for_gaussian(epsilon, delta, weight)
    plan = Plan.from_fields(fields["plan"], adjacency)
    # The additive share was set aside from delta before: no steps are passed, lest it be taken twice.
    return filters.best_order_for_plan(plan.step, None, epsilon, delta, weight)


_MOST_REPETITIONS = 2.0**50
"""Above this a product with it no longer tells a number from the next one."""


def _room_for_repetitions(each: Floats, limit: float, binding: int) -> Floats:
    """The curve of as many repetitions as fit, with room for rounding up once per repetition."""
    once = float(each[binding])
    if once <= 0.0:
        raise InvalidInput("budget.plan", "a step that costs something", each.tolist())
    if limit / once > _MOST_REPETITIONS:
        raise InvalidInput("budget.plan", f"a step that fits at most {_MOST_REPETITIONS:g} times", once)
    times = int(limit / once)
    slack = 1.0 + (times + 4) * float(np.finfo(np.float64).eps)
    # The quotient may be off by one either way.
    times = min(times, int(limit / (once * slack)) + 1)
    while times and times * once * slack > limit:
        times -= 1
    if times < 1:
        raise InvalidInput("budget.plan", "a step that fits at least once", each.tolist())
    with np.errstate(over="ignore"):
        return times * each * slack
