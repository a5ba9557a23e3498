"""Budgets and the filter each one fixes when a dataset is opened.

Every filter is a rule on one vector of **amounts** with one coordinate per thing that adds up: ρ for
``zcdp``, μ² for ``gdp``, the Rényi cost at each frozen order for the ``rdp`` family. The last
coordinate is always the additive δ of approximate mechanisms. Amounts add, limits are
rounded down, and the rule is

- ``any``: some coordinate before the last is within its limit, and so is the last (``rdp``), or
- ``all``: every coordinate is within its limit (all others; one coordinate for the scalar ones).

Statement: if the rule holds after every adaptively chosen step, all outputs together satisfy the
budget's (ε, δ), ρ, μ or curve.
Conditions: the additive δ's share is set aside when the budget is made, because a share that moves
with the path taken has no proof.
Exactness: amounts and limits are rational numbers beside the floats that are shown (``exact``). Where a cost
is a rational function of the numbers as given it is that; elsewhere it is the float that bounds it. A limit
given as ρ, μ, a curve or an additive δ is the decimal as given; one that follows from (ε, δ) is the
float that bounds it from below. So the rule grants what it would grant on paper, and nothing that
it would refuse. At an order that a given curve names, costs hold for the lesser of the decimal and the double
that stands for it (a Rényi divergence does not fall with its order), which is the order of the guarantee.
Budgets made before this was so have no ``exact``: their ledgers go on as they were, rounding each sum up.
Sources: ``zcdp`` and single orders: Feldman and Zrnic 2021, Rogers et al. 2016; ``gdp``: Smith and
Thakurta 2022; ``rdp`` with weights: the statement in :mod:`dpledger.accounting.filters`.
"""

import enum
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpledger.accounting import filters
from dpledger.accounting.conversion.zcdp import zcdp_rho_within
from dpledger.accounting.cost import Cost
from dpledger.accounting.errors import InvalidInput, Unproven
from dpledger.accounting.exact import Exact, as_given, float_below
from dpledger.accounting.exact_cost import agreed, exact_delta, exact_epsilon, exact_mu_squared, exact_rho
from dpledger.accounting.gaussian_profile import gaussian_mu_within
from dpledger.accounting.rounding import Direction, widen
from dpledger.accounting.sampling import Adjacency
from dpledger.accounting.stepcost import cost_of
from dpledger.accounting.steps import Step
from dpledger.accounting.validation import (
    Floats,
    check_choice,
    check_count,
    check_delta,
    check_non_negative,
    check_open_unit,
    check_orders,
    check_positive,
    check_vector,
)

__all__ = ["Accounting", "Budget", "Plan", "fields_of"]


class Accounting(enum.Enum):
    """The filters that are proven for adaptively chosen steps."""

    ZCDP = "zcdp"
    GDP = "gdp"
    RDP = "rdp"
    RDP_ORDER = "rdp-order"
    RDP_CURVE = "rdp-curve"


@dataclass(frozen=True)
class Plan:
    """A step description that the budget is mostly meant for, and how often, if known."""

    step: Step
    steps: int | None = None

    @classmethod
    def from_fields(cls, fields: Any, adjacency: Adjacency) -> "Plan":
        """Read ``{"sample": …, "releases": […], "steps": n}``."""
        if not isinstance(fields, dict) or set(fields) - {"sample", "releases", "steps"}:
            raise InvalidInput("budget.plan", "an object with sample, releases and steps", fields)
        releases = fields.get("releases")
        if not isinstance(releases, list):
            raise InvalidInput("budget.plan.releases", "a list of releases", releases)
        step = Step.from_fields(releases, fields.get("sample"), adjacency.value)
        steps = fields.get("steps")
        return cls(step, None if steps is None else check_count("budget.plan.steps", steps))


@dataclass(frozen=True, eq=False)
class Budget:
    """A limit for every coordinate, and the rule that combines them.

    ``target`` is what was asked for (ε and δ, ρ, μ or a curve) and what is shown as the guarantee.
    ``exact`` are the limits as rational numbers; None in ledgers that round each sum up instead.
    """

    accounting: Accounting
    orders: Floats
    limits: Floats
    target: dict[str, Any]
    weights: Floats | None = None
    exact: tuple[Fraction, ...] | None = None

    @classmethod
    def from_fields(cls, fields: Any, adjacency: Adjacency) -> "Budget":
        """Make a budget from its wire form; orders and weights are frozen here."""
        accounting, rest = _read(fields)
        return _exactly(_finite(_MAKERS[accounting](rest, adjacency)).usable())

    @classmethod
    def from_document(cls, text: str) -> "Budget":
        """Read what :attr:`document` wrote, bit for bit."""
        stored = json.loads(text)
        weights = stored["weights"]
        return cls(
            Accounting(stored["accounting"]),
            np.array(stored["orders"], dtype=np.float64),
            np.array(stored["limits"], dtype=np.float64),
            stored["target"],
            None if weights is None else np.array(weights, dtype=np.float64),
            _exact_from_texts(stored["exact"], stored["limits"]) if "exact" in stored else None,
        )

    @cached_property
    def document(self) -> str:
        """The canonical text kept in the ledger; floats round-trip exactly."""
        content = {
            "accounting": self.accounting.value,
            "orders": self.orders.tolist(),
            "limits": self.limits.tolist(),
            "target": self.target,
            "weights": None if self.weights is None else self.weights.tolist(),
        }
        if self.exact is not None:
            content["exact"] = _exact_as_texts(self.exact, self.limits)
        return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)

    @cached_property
    def basis(self) -> tuple[Accounting, bytes, bool]:
        """What amounts depend on, whatever the limits are: what adds up, and at which orders, read how."""
        return self.accounting, self.orders.tobytes(), self._gives_its_curve

    @property
    def size(self) -> int:
        """How many coordinates an amount has, the additive δ included."""
        return int(self.limits.size)

    @property
    def additive_delta(self) -> float:
        """The share of δ set aside for approximate mechanisms."""
        return float(self.limits[-1])

    def usable(self) -> "Budget":
        """The same; refused if it leaves nothing at any order, as nothing is opened with such a budget."""
        if self.accounting is Accounting.RDP and not (self.limits[:-1] > 0.0).any():
            raise InvalidInput("budget", "large enough for some order of the grid to be usable", self.target)
        if self.accounting is Accounting.RDP_ORDER and self.limits[0] <= 0.0:
            requirement = "an order with a positive budget for epsilon and delta"
            raise InvalidInput("budget.order", requirement, self.orders[0])
        return self

    def with_limit(self, fields: dict[str, Any], adjacency: Adjacency) -> "Budget":
        """The budget with another limit, which may leave nothing, but the same rule, orders and weights."""
        accounting, rest = _read(fields)
        if accounting is not self.accounting:
            raise InvalidInput("budget.accounting", f"{self.accounting.value}, fixed at opening", fields)
        if accounting is Accounting.RDP:
            changed = _finite(_with_weights(rest, self.orders, _present(self.weights)))
        else:
            changed = _finite(_MAKERS[accounting]({**self._frozen(), **rest}, adjacency))
        if not np.array_equal(changed.orders, self.orders):
            raise InvalidInput("budget.orders", "those fixed at opening", changed.orders.tolist())
        return changed if self.exact is None else _exactly(changed)

    def _frozen(self) -> dict[str, Any]:
        return {"order": float(self.orders[0])} if self.accounting is Accounting.RDP_ORDER else {}

    def amounts(self, cost: Cost) -> Floats:
        """What a cost adds to each coordinate; refuses what has no bound in this accounting."""
        if self.accounting is Accounting.ZCDP:
            main = np.array([_require(cost.rho, "zCDP", "rho")])
        elif self.accounting is Accounting.GDP:
            mu = _require(cost.mu, "Gaussian DP", "mu")
            main = np.array([widen(mu * mu, Direction.UP, ulps=1) if mu else 0.0])
        else:
            main = cost.epsilons
        return np.append(main, cost.delta)

    def exact_amounts(self, step: Step, amounts: Floats) -> Exact:
        """What a step adds to each coordinate exactly: a rational function of its numbers, or its float."""
        *main, delta = amounts.tolist()
        if self.accounting is Accounting.ZCDP:
            known = [exact_rho(step)]
        elif self.accounting is Accounting.GDP:
            known = [exact_mu_squared(step)]
        else:
            known = [exact_epsilon(step, *order) for order in self._read_orders]
        values = zip([*known, exact_delta(step)], [*main, delta], strict=True)
        return Exact.of([agreed(value, bound) for value, bound in values])

    @cached_property
    def _read_orders(self) -> list[tuple[float, Fraction]]:
        """The orders, and how each is read: a curve's as given, others as the doubles that limits are for."""
        read = as_given if self._gives_its_curve else Fraction
        return [(order, read(order)) for order in self.orders.tolist()]

    @property
    def _gives_its_curve(self) -> bool:
        return self.accounting is Accounting.RDP_CURVE and "epsilon" not in self.target

    @cached_property
    def exact_limits(self) -> tuple[Fraction, ...]:
        """The limits as rational numbers."""
        return tuple(map(Fraction, self.limits.tolist())) if self.exact is None else self.exact

    @cached_property
    def limits_below(self) -> Floats:
        """The limits as doubles that are nowhere above the exact ones."""
        if self.exact is None:
            return self.limits
        return np.array([float_below(limit) for limit in self.exact])

    def holds_exactly(self, amounts: Exact, limits: tuple[Fraction, ...] | None = None) -> bool:
        """The rule in exact arithmetic, against this budget's limits or others of the same shape."""
        most = self._floors(amounts) if limits is None else amounts.floors(limits)
        *main, delta = amounts.within(most)
        return delta and (any(main) if self.accounting is Accounting.RDP else all(main))

    def fits_in_a_row(self, spent: Exact, each: Exact, times: int) -> int:
        """How often, up to ``times``, the rule holds when ``each`` is added to ``spent`` again and again.

        Both have one denominator.
        """
        left = zip(self._floors(spent), spent.numerators, each.numerators, strict=True)
        *main, delta = (_repetitions(most - used, more, times) for most, used, more in left)
        return min(delta, max(main) if self.accounting is Accounting.RDP else min(main))

    def _floors(self, amounts: Exact) -> tuple[int, ...]:
        """The largest numerators within the limits; the last denominators asked for are remembered."""
        known = self._known_floors.get(amounts.denominator)
        if known is None:
            if len(self._known_floors) >= _FLOORS:
                self._known_floors.clear()
            known = self._known_floors[amounts.denominator] = amounts.floors(self.exact_limits)
        return known

    @cached_property
    def _known_floors(self) -> dict[int, tuple[int, ...]]:
        return {}

    def admits(self, amounts: Floats) -> bool:
        """Whether the rule holds with these totals."""
        return self.holds(amounts, self.limits)

    def holds(self, amounts: Floats, limits: Floats) -> bool:
        """The rule against other limits of the same shape (a partition's, or what others left)."""
        return bool(self.holds_each(amounts, limits))

    def holds_each(self, amounts: Floats, limits: Floats) -> NDArray[np.bool_]:
        """The same for every row of amounts."""
        within = amounts <= limits
        main = within[..., :-1]
        held = main.any(axis=-1) if self.accounting is Accounting.RDP else main.all(axis=-1)
        return np.logical_and(held, within[..., -1])

    def fraction_left(self, amounts: Floats) -> float:
        """The part of the budget that is left, in [0, 1], rounded down; additive δ apart."""
        return _left_of(float(self._used_fraction(amounts)))

    def fractions_left(self, rows: Floats) -> list[float]:
        """The same for every row of amounts."""
        return [_left_of(used) for used in self._used_fraction(rows).tolist()]

    def _used_fraction(self, amounts: Floats) -> Floats:
        """The part that is used, for each row of amounts."""
        usable, limits = self._usable
        # Far beyond the smallest limits a share is infinite, which leaves nothing.
        with np.errstate(over="ignore"):
            shares = amounts.take(usable, axis=-1) / limits
        if self.accounting is Accounting.RDP:
            least: Floats = shares.min(axis=-1, initial=1.0)
            return least
        return np.where(self._passes_a_zero_limit(amounts), np.inf, shares.max(axis=-1, initial=0.0))

    @cached_property
    def _usable(self) -> tuple[NDArray[np.intp], Floats]:
        """Which coordinates have a positive limit, the additive δ apart, and these limits."""
        chosen = np.flatnonzero(self.limits[:-1] > 0.0)
        return chosen, self.limits[chosen]

    def _passes_a_zero_limit(self, amounts: Floats) -> NDArray[np.bool_]:
        limits = self.limits[:-1]
        return np.asarray(((amounts[..., :-1] > limits) & (limits <= 0.0)).any(axis=-1))

    def narrow(self, own: "Budget | None") -> "Budget":
        """In whose terms a partition with a budget of its own reports what is left: the lesser of both.

        It is for telling alone: what decides are both budgets' limits. A term that one of them lacks
        would tell of the other alone, which may leave more.
        """
        if own is None:
            return self
        shared = own.target.keys() & self.target.keys()
        return replace(own, target={name: min(own.target[name], self.target[name]) for name in shared})

    def remaining(self, amounts: Floats) -> dict[str, Any]:
        """What is left in the budget's own terms: the fraction, and that fraction of the target."""
        return self.remaining_at(self.fraction_left(amounts))

    def remaining_at(self, fraction: float) -> dict[str, Any]:
        """The same for a fraction computed before."""
        left: dict[str, Any] = {"fraction": fraction}
        for name in ("epsilon", "rho", "mu"):
            if name in self.target:
                share = fraction if name != "mu" else math.sqrt(fraction)
                left[name] = _scaled_down(self.target[name], share)
        if "delta" in self.target:
            left["delta"] = self.target["delta"]
        return left


_FLOORS = 8
_ROUNDED = 1.0 + 2.0**-51


def _repetitions(left: int, more: int, times: int) -> int:
    """How often ``more`` fits into ``left``, up to ``times``."""
    if left < 0:
        return 0
    return min(times, left // more) if more else times


def _exactly(budget: Budget) -> Budget:
    """The budget with exact limits: decimals where a limit is given as such, elsewhere the doubles."""
    *main, additive = budget.limits.tolist()
    read = Fraction if "epsilon" in budget.target else as_given
    limits = [read(limit) for limit in main]
    if budget.accounting is Accounting.GDP:
        limits = [read(budget.target["mu"]) ** 2]
    return replace(budget, exact=(*limits, as_given(additive)))


def _exact_as_texts(exact: tuple[Fraction, ...], limits: Floats) -> list[str | None]:
    """Each as ``n/d``; null where it is the double itself."""
    pairs = zip(exact, limits.tolist(), strict=True)
    return [None if value == Fraction(limit) else str(value) for value, limit in pairs]


def _exact_from_texts(texts: list[str | None], limits: list[float]) -> tuple[Fraction, ...]:
    pairs = zip(texts, limits, strict=True)
    return tuple(Fraction(limit) if text is None else Fraction(text) for text, limit in pairs)


def _left_of(used: float) -> float:
    """What is left where so much is used, rounded down: the quotient and its limit are each rounded."""
    return 1.0 if used == 0.0 else max(0.0, _round_down(1.0 - used * _ROUNDED))


def _scaled_down(value: float, share: float) -> float:
    return value if share == 1.0 else max(0.0, _round_down(value * share))


def _round_down(value: float) -> float:
    """``widen(value, Direction.DOWN, ulps=4)`` for a plain float, which every answer shows some of."""
    return math.nextafter(value - 4.0 * math.ulp(value), -math.inf)


def _require(value: float | None, notion: str, accounting: str) -> float:
    if value is None:
        raise Unproven(
            f"this step has no proven {notion} parameter ({accounting}), which the dataset's accounting "
            "adds up; sampled and mixed work needs a budget with accounting rdp"
        )
    return value


def _present(weights: Floats | None) -> Floats:
    if weights is None:
        raise InvalidInput("weights", "stored with an rdp budget", weights)
    return weights


_FIELDS: dict[Accounting, set[str]] = {
    Accounting.ZCDP: {"rho", "epsilon", "delta", "additive_delta"},
    Accounting.GDP: {"mu", "epsilon", "delta", "additive_delta"},
    Accounting.RDP: {"epsilon", "delta", "additive_delta", "plan"},
    Accounting.RDP_ORDER: {"epsilon", "delta", "additive_delta", "order", "plan"},
    Accounting.RDP_CURVE: {"orders", "epsilons", "epsilon", "delta", "additive_delta", "plan"},
}


def fields_of(accounting: Accounting) -> set[str]:
    """What the wire form of a budget of this kind may hold beside ``accounting``."""
    return set(_FIELDS[accounting])


def _read(fields: Any) -> tuple[Accounting, dict[str, Any]]:
    """The accounting of a wire form, and its other fields."""
    if not isinstance(fields, dict):
        raise InvalidInput("budget", "an object with accounting and a limit", fields)
    rest = dict(fields)
    kinds = [a.value for a in Accounting]
    accounting = Accounting(check_choice("budget.accounting", rest.pop("accounting", None), kinds))
    _refuse_unknown(rest, accounting)
    return accounting, rest


def _finite(budget: Budget) -> Budget:
    if not np.isfinite(budget.limits).all():
        raise InvalidInput("budget", "a limit that fits a double-precision number", budget.target)
    return budget


def _refuse_unknown(fields: dict[str, Any], accounting: Accounting) -> None:
    unknown = sorted(set(fields) - _FIELDS[accounting])
    if unknown:
        known = ", ".join(sorted(_FIELDS[accounting]))
        raise InvalidInput(
            f"budget.{unknown[0]}", f"absent: {accounting.value} takes {known}", fields[unknown[0]]
        )


def _additive(fields: dict[str, Any], below: float = 1.0) -> float:
    share = check_delta("budget.additive_delta", fields.get("additive_delta", 0.0))
    if not share < below:
        raise InvalidInput("budget.additive_delta", f"below delta, {below!r}", share)
    return share


def _epsilon_delta(fields: dict[str, Any]) -> tuple[float, float, float]:
    """ε, the δ left for the filter, and the additive share."""
    epsilon = check_positive("budget.epsilon", fields.get("epsilon"))
    delta = check_open_unit("budget.delta", fields.get("delta"))
    additive = _additive(fields, below=delta)
    if not additive:
        return epsilon, delta, additive
    rest = min(
        widen(delta - additive, Direction.DOWN, ulps=1), float_below(as_given(delta) - as_given(additive))
    )
    return epsilon, rest, additive


def _target(fields: dict[str, Any], *names: str) -> dict[str, Any]:
    kept = {name: float(fields[name]) for name in names if name in fields}
    additive = float(fields.get("additive_delta", 0.0))
    return {**kept, "additive_delta": additive} if additive else kept


def _scalar(name: str, accounting: Accounting, solve: Callable[[float, float], float]) -> Any:
    def make(fields: dict[str, Any], _adjacency: Adjacency) -> Budget:
        if name in fields:
            if "epsilon" in fields or "delta" in fields:
                raise InvalidInput("budget", f"either {name} or epsilon with delta", sorted(fields))
            value, additive = check_positive(f"budget.{name}", fields[name]), _additive(fields)
            target = _target(fields, name)
        else:
            epsilon, delta, additive = _epsilon_delta(fields)
            value = solve(epsilon, delta)
            target = {**_target(fields, "epsilon", "delta"), name: value}
        main = value if accounting is Accounting.ZCDP else widen(value * value, Direction.DOWN, ulps=1)
        return Budget(accounting, np.empty(0), np.array([main, additive]), target)

    return make


def _with_weights(fields: dict[str, Any], orders: Floats, weights: Floats) -> Budget:
    epsilon, delta, additive = _epsilon_delta(fields)
    limits = filters.order_budgets(epsilon, delta, orders, weights)
    target = _target(fields, "epsilon", "delta")
    return Budget(Accounting.RDP, orders, np.append(limits, additive), target, weights)


def _make_rdp(fields: dict[str, Any], adjacency: Adjacency) -> Budget:
    epsilon, delta, _ = _epsilon_delta(fields)
    planned = _planned_order(fields, adjacency, epsilon, delta, filters.PLANNED_WEIGHT)
    orders = np.union1d(filters.FILTER_GRID, [planned])
    weights = filters.default_weights(orders, int(np.searchsorted(orders, planned)))
    return _with_weights(fields, orders, weights)


def _planned_order(
    fields: dict[str, Any], adjacency: Adjacency, epsilon: float, delta: float, weight: float
) -> float:
    if "plan" not in fields:
        return filters.best_order_for_gaussian(epsilon, delta, weight)
    plan = Plan.from_fields(fields["plan"], adjacency)
    # The additive share was set aside from delta before: no steps are passed, lest it be taken twice.
    return filters.best_order_for_plan(plan.step, None, epsilon, delta, weight)


def _make_rdp_order(fields: dict[str, Any], adjacency: Adjacency) -> Budget:
    epsilon, delta, additive = _epsilon_delta(fields)
    if "order" in fields:
        orders = check_orders([fields["order"]], field="budget.order")
    else:
        orders = np.array([_planned_order(fields, adjacency, epsilon, delta, 1.0)])
    limit = filters.order_budgets(epsilon, delta, orders, np.ones(1))
    target = _target(fields, "epsilon", "delta")
    return Budget(Accounting.RDP_ORDER, orders, np.append(limit, additive), target)


def _make_rdp_curve(fields: dict[str, Any], adjacency: Adjacency) -> Budget:
    if "orders" in fields or "epsilons" in fields:
        return _given_curve(fields)
    if "plan" not in fields:
        raise InvalidInput("budget", "orders with epsilons, or epsilon and delta with a plan", sorted(fields))
    epsilon, delta, additive = _epsilon_delta(fields)
    plan = Plan.from_fields(fields["plan"], adjacency)
    best = np.array([filters.best_order_for_plan(plan.step, None, epsilon, delta, 1.0)])
    limit = filters.order_budgets(epsilon, delta, best, np.ones(1))
    orders = np.union1d(filters.FILTER_GRID, best)
    each = cost_of(plan.step, orders).epsilons
    curve = _room_for_repetitions(each, float(limit[0]), int(np.searchsorted(orders, best[0])))
    target = _target(fields, "epsilon", "delta")
    return Budget(Accounting.RDP_CURVE, orders, np.append(curve, additive), target)


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


def _given_curve(fields: dict[str, Any]) -> Budget:
    if {"epsilon", "delta", "plan"} & set(fields):
        raise InvalidInput("budget", "orders with epsilons alone", sorted(fields))
    orders = check_orders(fields.get("orders"), field="budget.orders")
    epsilons = check_vector("budget.epsilons", fields.get("epsilons"))
    if epsilons.size != orders.size:
        raise InvalidInput("budget.epsilons", f"{orders.size} numbers, one per order", epsilons.size)
    for value in epsilons:
        check_non_negative("budget.epsilons", value)
    return Budget(Accounting.RDP_CURVE, orders, np.append(epsilons, _additive(fields)), _target(fields))


_MAKERS: dict[Accounting, Callable[[dict[str, Any], Adjacency], Budget]] = {
    Accounting.ZCDP: _scalar("rho", Accounting.ZCDP, zcdp_rho_within),
    Accounting.GDP: _scalar("mu", Accounting.GDP, gaussian_mu_within),
    Accounting.RDP: _make_rdp,
    Accounting.RDP_ORDER: _make_rdp_order,
    Accounting.RDP_CURVE: _make_rdp_curve,
}
