"""Plans: steps with counts, frozen in advance, each used up by a step that equals it or that it dominates.

Statement
    Fix neighbours and a direction. Items with dominating pairs (A_i, B_i) and counts n_i are frozen before
    the first release. Each step, given the past, is dominated by the pair of an unused item at every
    threshold and uses it up. Then all outputs together, in any adaptive order and with early stopping, are
    dominated by ⊗A_i^(n_i) against ⊗B_i^(n_i), whose (ε, δ) is evaluated when the dataset is opened.
Conditions
    Both directions are composed separately and the larger δ counts. One step uses one item, and has a
    sample of its own. Unused items are never exchanged for others; counts may be lowered, never raised.
    Domination is decided by rules on parameters (:mod:`dpledger.accounting.pld.domination`), never by
    comparing numbers that were computed.
Adaptive items
    ``gdp``: steps with Σμ_j² ≤ μ², each μ_j-GDP given the past, interleaved freely. One draw from N(μ, 1) is
    the endpoint of a drifted Brownian motion, whose bridge does not depend on the drift and so supplies the
    increments. ``zcdp``: steps with Σρ_j ≤ ρ. Reveal all draws of the other items first; what remains is a
    zCDP filter, whose hockey-stick at every threshold is integrated over the loss of the others.
Proof
    By Blackwell, a kernel that depends on the past takes the item's pair to the step's. Draw all items
    beforehand and apply the kernels: everything else is post-processing.
Sources
    Zhu, Dong, Wang 2022 (dominating pairs); Vadhan, Zhang 2023 (interactive parts); Smith, Thakurta 2022
    (Gaussian caps); :class:`dpledger.accounting.pld.PlanLoss`.
"""

import functools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from dpledger.accounting.cost import Cost
from dpledger.accounting.errors import InvalidInput, Unproven
from dpledger.accounting.exact import Exact, as_given
from dpledger.accounting.exact_cost import agreed, exact_mu_squared, exact_rho
from dpledger.accounting.numerics import root_of_squares
from dpledger.accounting.pld.audit import advantage, equivalent_mu, true_positive_rates
from dpledger.accounting.pld.calibration import largest_count_beside
from dpledger.accounting.pld.distribution import BOUNDS_TOLERANCE, TOLERANCE
from dpledger.accounting.pld.domination import dominates
from dpledger.accounting.pld.plan import PlanLoss
from dpledger.accounting.pld.transform import forget_transforms
from dpledger.accounting.rounding import Direction, widen
from dpledger.accounting.sampling import Adjacency
from dpledger.accounting.stepcost import cost_of
from dpledger.accounting.steps import Step
from dpledger.accounting.theorem import Theorem
from dpledger.accounting.validation import (
    MAX_COUNT,
    Floats,
    check_count,
    check_non_negative,
    check_open_unit,
    check_positive,
)
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.filter import Filter, Meter

__all__ = ["MAX_ITEMS", "MOST", "PlanFilter", "PlanItem"]

MAX_ITEMS = 256
MOST = "most"
"""In place of a count: as many as fit beside the other items, up to :data:`MOST_STEPS`."""
MOST_STEPS = 10**6
"""Larger counts are found for seconds where losses are tiny; whoever needs them names the count."""
_ROUNDING = 2.0**-48
"""Far above the error of a difference of two doubles, relative to the larger."""
_ONE_ORDER: Floats = np.array([2.0])
_POINTS = 41
_FEW_ITEMS = 3
_LOOSE = 1e-3
"""Relative tolerance of what is shown and decides nothing, for more items: grids as fine as for a few take
minutes, and whoever may open an allocation may ask for them."""
_LARGEST_EPSILON = 1e100
"""Squares and multiples of it are doubles."""
_FALSE_POSITIVE_RATES = (0.001, 0.01, 0.1)
_PARAMETERS = {"gdp": "mu", "zcdp": "rho"}
"""The kinds of adaptive items, and how their cap is given."""
_SYMBOLS = {"step": "", "gdp": "μ²", "zcdp": "ρ"}
"""What adds up in each kind of item; nothing to name where steps are counted."""


@dataclass(frozen=True)
class PlanItem:
    """One line of a plan: a step with its count, or a cap within which steps are chosen adaptively.

    ``kind`` is ``step``, ``gdp`` or ``zcdp``; ``size`` is the count, μ or ρ. ``size`` is None for a count
    that is still to be found.
    """

    name: str
    kind: Literal["step", "gdp", "zcdp"]
    size: float | None
    step: Step | None = None

    @classmethod
    def from_fields(cls, fields: Any, adjacency: Adjacency) -> "PlanItem":
        """Read one item of the wire form."""
        if not isinstance(fields, dict) or not isinstance(fields.get("name"), str) or not fields["name"]:
            raise InvalidInput("budget.items", "objects with a name each", fields)
        kinds = [kind for kind in ("releases", *_PARAMETERS) if kind in fields]
        if len(kinds) != 1:
            raise InvalidInput(
                _field(fields["name"]), "releases with times, or gdp with mu, or zcdp with rho", kinds
            )
        return _read_step(fields, adjacency) if kinds == ["releases"] else _read_cap(fields, kinds[0])

    @property
    def limit(self) -> float:
        """The limit of its coordinate: the count, μ² or ρ, rounded down."""
        assert self.size is not None, "counts are found when a plan is opened"
        return widen(self.size * self.size, Direction.DOWN, ulps=1) if self.kind == "gdp" else self.size

    @property
    def exact_limit(self) -> Fraction:
        """The same as given."""
        assert self.size is not None, "counts are found when a plan is opened"
        return as_given(self.size) ** 2 if self.kind == "gdp" else as_given(self.size)

    @cached_property
    def weight(self) -> float:
        """What it adds to the Rényi cost of the plan at order 2, by which parts of a plan are compared."""
        assert self.size is not None, "counts are found when a plan is opened"
        if self.step is None:
            return self.size * self.size if self.kind == "gdp" else 2.0 * self.size
        return self.size * float(cost_of(self.step, _ONE_ORDER).epsilons[0])

    def caps(self, cost: Cost) -> bool:
        """Whether a cap takes a step of this cost: it has the notion that adds up here, and no additive δ."""
        return not cost.delta and (cost.mu if self.kind == "gdp" else cost.rho) is not None

    def fields(self) -> dict[str, Any]:
        """The wire form."""
        if self.step is None:
            return {"name": self.name, self.kind: {_PARAMETERS[self.kind]: self.size}}
        releases = [release.fields() for release in self.step.releases]
        times = MOST if self.size is None else int(self.size)
        return {"name": self.name, "sample": self.step.sample.fields(), "releases": releases, "times": times}


def _field(name: str) -> str:
    return f"budget.items.{name}"


def _read_step(fields: dict[str, Any], adjacency: Adjacency) -> PlanItem:
    name = fields["name"]
    _refuse_unknown(fields, {"name", "sample", "releases", "times"})
    if not isinstance(fields["releases"], list):
        raise InvalidInput(f"{_field(name)}.releases", "a list of releases", fields["releases"])
    step = Step.from_fields(fields["releases"], fields.get("sample"), adjacency.value)
    times = fields.get("times")
    if times == MOST:
        return PlanItem(name, "step", None, step)
    return PlanItem(name, "step", float(check_count(f"{_field(name)}.times", times, most=MAX_COUNT)), step)


def _read_cap(fields: dict[str, Any], kind: str) -> PlanItem:
    name, cap, parameter = fields["name"], fields[kind], _PARAMETERS[kind]
    _refuse_unknown(fields, {"name", kind})
    if not isinstance(cap, dict) or set(cap) != {parameter}:
        raise InvalidInput(f"{_field(name)}.{kind}", f"an object with {parameter}", cap)
    size = check_positive(f"{_field(name)}.{kind}.{parameter}", cap[parameter])
    return PlanItem(name, "gdp" if kind == "gdp" else "zcdp", size)


def _refuse_unknown(fields: dict[str, Any], known: set[str]) -> None:
    unknown = sorted(set(fields) - known)
    if unknown:
        field = f"{_field(fields['name'])}.{unknown[0]}"
        raise InvalidInput(field, f"absent: this item takes {', '.join(sorted(known))}", fields[unknown[0]])


class PlanFilter(Filter):
    """Items with counts, frozen; each step uses up one that equals or provably dominates it."""

    name = "plan"
    fields = frozenset({"epsilon", "delta", "items"})
    theorem = Theorem(
        "plan",
        "steps that each use up an item that dominates them are dominated by the product of all items' pairs",
        "items and counts fixed beforehand, one sample per step; order and stopping may be adaptive",
        "Zhu, Dong, Wang 2022; Vadhan, Zhang 2023; Smith, Thakurta 2022",
    )
    summary = "Plan: each step uses up an item that was fixed in advance"
    picture: ClassVar[Literal["sum", "curve", "items"]] = "items"
    weighing = "each item by its Rényi cost at order 2"
    allows_second_looks = False
    divisible = ()

    def open(self, fields: dict[str, Any], adjacency: Adjacency) -> Budget:
        epsilon = _check_epsilon(fields.get("epsilon"))
        delta = check_open_unit("budget.delta", fields.get("delta"))
        items, analysis = _composed(_text(fields.get("items")), adjacency, epsilon, delta)
        target = {"epsilon": epsilon, "delta": delta}
        details = {"items": [item.fields() for item in items], "plan": analysis}
        details["adjacency"] = adjacency.value
        weights = np.array([item.weight for item in items])
        return Budget(
            self.name,
            np.empty(0),
            np.array([*(item.limit for item in items), 0.0]),
            target,
            weights / weights.sum() if weights.sum() > 0.0 else np.full(len(items), 1.0 / len(items)),
            details=details,
        )

    def change(self, budget: Budget, fields: dict[str, Any], adjacency: Adjacency) -> Budget:
        """Lower counts: of each item named, to so many; an item's step and the (ε, δ) stay as they are."""
        for name in ("epsilon", "delta"):
            if fields.get(name, budget.target[name]) != budget.target[name]:
                requirement = f"{budget.target[name]!r}, for which the plan was opened"
                raise InvalidInput(f"budget.{name}", requirement, fields[name])
        items = _items(budget)
        lowered = dict(_read_lowered(fields.get("items"), items))
        limits = budget.limits.copy()
        for at, item in enumerate(items):
            if item.name in lowered:
                limits[at] = replace(item, size=lowered[item.name]).limit
                if limits[at] > budget.limits[at]:
                    raise InvalidInput(
                        f"{_field(item.name)}.times",
                        "at most what it is: what was planned for may be lowered, and never raised",
                        lowered[item.name],
                    )
        return replace(budget, limits=limits, exact=None)

    def read_limits(self, budget: Budget) -> list[Fraction]:
        """The counts and caps as given; a cap that was lowered, as the double that bounds it."""
        pairs = zip(_items(budget), budget.limits.tolist(), strict=False)
        return [item.exact_limit if item.limit == limit else Fraction(limit) for item, limit in pairs]

    def recover_bounds(self, budget: Budget, bounds: Floats) -> tuple[Fraction, ...]:
        """Counts as the whole numbers that they are; caps as bounded, except that a room of 0 is 0.

        Statement: a count or a room for counts is a whole number below 2⁵⁰ and is kept with an error of a few
        units in the last place, so the nearest whole number is the count. A cap's room that is negative by
        such an error leaves room for nothing, and must not refuse a step that takes another item.
        """
        pairs = zip(_items(budget), bounds.tolist(), strict=False)
        return (*(_recovered(item, bound) for item, bound in pairs), Fraction(float(bounds[-1])))

    def cost(self, budget: Budget, step: Step) -> Cost:
        return cost_of(step, _ONE_ORDER)

    def basis(self, budget: Budget) -> object:
        return budget.details["adjacency"], repr(budget.details["items"])

    def amounts(self, budget: Budget, step: Step, cost: Cost, item: str | None) -> Floats:
        items = _items(budget)
        at = _item_for(items, step, cost) if item is None else _item_named(items, item, step, cost)
        amounts = np.zeros(len(items) + 1)
        amounts[at] = _amount(items[at], cost)
        return amounts

    def explains(self, budget: Budget, step: Step, cost: Cost, amounts: Floats) -> bool:
        items, used = _items(budget), np.flatnonzero(amounts)
        if used.size != 1 or used[0] >= len(items):
            return bool(used.size == 0 and not self.amounts(budget, step, cost, None).any())
        named = self.amounts(budget, step, cost, items[used[0]].name)
        return named.tobytes() == amounts.tobytes()

    def exact_amounts(self, budget: Budget, step: Step, amounts: Floats) -> Exact:
        pairs = zip(_items(budget), amounts.tolist(), strict=False)
        return Exact.of([*(_exact_amount(item, step, amount) for item, amount in pairs), Fraction(0)])

    def used_fraction(self, budget: Budget, amounts: Floats) -> Floats:
        """Each item's share that is used, by what the items add to the Rényi cost of the plan at order 2."""
        assert budget.weights is not None, "a plan keeps the weights of its items"
        shares = np.minimum(_shares(amounts[..., :-1], budget.limits[:-1], 1.0), 1.0)
        # Not a matrix product, whose last places depend on how many rows there are.
        used: Floats = (shares * budget.weights).sum(axis=-1)
        return np.where((shares >= 1.0).all(axis=-1), 1.0, used)

    def share(self, budget: Budget, amounts: Floats, at: int) -> float:
        """The same of some amounts alone, over all items; an item that they leave alone adds nothing.

        Such shares add up, except that an item used beyond a lowered limit is all of that item.
        """
        assert budget.weights is not None, "a plan keeps the weights of its items"
        shares = _shares(amounts[:-1], budget.limits[:-1], np.sign(amounts[:-1]))
        return float(np.minimum(shares, 1.0) @ budget.weights)

    def magnitude(self, budget: Budget, amounts: Floats) -> float:
        assert budget.weights is not None, "a plan keeps the weights of its items"
        sizes = np.array([item.limit for item in _items(budget)])
        return float(_shares(amounts[:-1], sizes, np.sign(amounts[:-1])) @ budget.weights)

    def coordinates(self, budget: Budget, amounts: Floats) -> dict[str, Any]:
        pairs = zip(_items(budget), amounts[:-1].tolist(), strict=True)
        return {"items": [_coordinate(item, amount) for item, amount in pairs]}

    def meters(self, budget: Budget, amounts: Floats) -> list[Meter]:
        limits = map(float, budget.exact_limits[:-1])
        rows = zip(_items(budget), amounts[:-1].tolist(), limits, strict=True)
        return [Meter(item.name, used, limit, _SYMBOLS[item.kind], item.step) for item, used, limit in rows]

    def indicative_epsilon(self, budget: Budget, amounts: Floats, delta: float) -> float | None:
        """None: the ε of what ran so far is a composition of its own, too slow for every look at a budget."""
        return None

    def describe(self, budget: Budget) -> dict[str, Any]:
        pairs = zip(_items(budget), budget.limits[:-1].tolist(), strict=True)
        return {"items": [_as_limited(item, limit).fields() for item, limit in pairs]}

    def analysis(self, budget: Budget) -> dict[str, Any]:
        return {"plan": budget.details["plan"]}

    def assessment(self, budget: Budget) -> dict[str, Any] | None:
        """What was computed when the plan was opened; counts that were lowered since can only improve it."""
        found: dict[str, Any] = budget.details["plan"]
        return found

    def explain_refusal(self, budget: Budget, step: Step, amounts: Floats, room: Floats) -> dict[str, Any]:
        taken = np.flatnonzero(amounts[:-1])
        if not taken.size:
            return {}
        at = int(taken[0])
        item, limit = _items(budget)[at], float(budget.limits[at])
        return {"item": item.name, "advice": [_advice(item, max(0.0, float(room[at])), limit)]}


def _advice(item: PlanItem, left: float, limit: float) -> str:
    if item.kind == "step":
        return (
            f"item {item.name} of the plan has {left:.0f} of {limit:.0f} steps left. Counts are frozen and "
            "cannot be exchanged between items; more steps need a budget of their own"
        )
    left_of = f"{_SYMBOLS[item.kind]} = {left:.6g} of {limit:.6g} left"
    return f"item {item.name} of the plan has {left_of}; more noise costs less of it"


def _shares(amounts: Floats, limits: Floats, without_limit: Floats | float) -> Floats:
    """Each amount as a share of its limit; where the limit is zero, what ``without_limit`` says."""
    # Far beyond the smallest limits a share is infinite, which is more than the whole.
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        found: Floats = np.where(limits > 0.0, amounts / limits, without_limit)
    return found


def _text(items: Any) -> str:
    """Items as one text, by which what was composed is found again."""
    try:
        return json.dumps(items, sort_keys=True)
    except (TypeError, ValueError):
        raise InvalidInput("budget.items", f"a list of 1 to {MAX_ITEMS} items", items) from None


@functools.lru_cache(maxsize=64)
def _composed(
    text: str, adjacency: Adjacency, epsilon: float, delta: float
) -> tuple[list[PlanItem], dict[str, Any]]:
    """The items with their counts, and what is known of the plan; remembered, since it takes long."""
    try:
        items = _complete(_read_items(json.loads(text), adjacency), epsilon, delta)
        return items, _analyse(items, epsilon, delta)
    finally:
        forget_transforms()


def _read_items(fields: Any, adjacency: Adjacency) -> list[PlanItem]:
    if not isinstance(fields, list) or not 1 <= len(fields) <= MAX_ITEMS:
        raise InvalidInput("budget.items", f"a list of 1 to {MAX_ITEMS} items", fields)
    items = [PlanItem.from_fields(each, adjacency) for each in fields]
    names = [item.name for item in items]
    if len(set(names)) < len(names):
        raise InvalidInput("budget.items", "items whose names are all different", names)
    if sum(item.size is None for item in items) > 1:
        raise InvalidInput("budget.items", f"times {MOST!r} of one item at most", names)
    return items


def _check_epsilon(value: Any) -> float:
    epsilon = check_positive("budget.epsilon", value)
    if epsilon > _LARGEST_EPSILON:
        raise InvalidInput("budget.epsilon", f"at most {_LARGEST_EPSILON:g}", value)
    return epsilon


def _caps(items: Sequence[PlanItem]) -> dict[str, float]:
    """μ and ρ of the adaptive items together, rounded up."""
    mus = [(item.size, 1) for item in items if item.kind == "gdp" and item.size is not None]
    rhos = [item.size for item in items if item.kind == "zcdp" and item.size is not None]
    mu = mus[0][0] if len(mus) == 1 else _raised(root_of_squares(mus)) if mus else 0.0
    return {"mu": mu, "rho": rhos[0] if len(rhos) == 1 else _raised(math.fsum(rhos))}


def _raised(value: float) -> float:
    return widen(value, Direction.UP, ulps=4) if value else 0.0


def _parts(items: Sequence[PlanItem]) -> list[tuple[Step, int]]:
    return [(item.step, int(item.size)) for item in items if item.step is not None and item.size is not None]


def _complete(items: list[PlanItem], epsilon: float, delta: float) -> list[PlanItem]:
    """The items with the open count, if there is one, as large as fits."""
    at = next((index for index, item in enumerate(items) if item.size is None), None)
    if at is None:
        return items
    step = items[at].step
    assert step is not None, "only steps have counts"
    most = largest_count_beside(_parts(items), step, epsilon, delta, **_caps(items), most=MOST_STEPS)
    if not most:
        raise InvalidInput(
            _field(items[at].name),
            f"a step of which one fits within epsilon {epsilon:.6g}, delta {delta:.6g}",
            MOST,
        )
    return [*items[:at], replace(items[at], size=float(most)), *items[at + 1 :]]


def _analyse(items: Sequence[PlanItem], epsilon: float, delta: float) -> dict[str, Any]:
    """ε(δ) of the plan between its bounds, what is unused, δ(ε) and attacks; refuses a plan beyond (ε, δ)."""
    loss = PlanLoss(_parts(items), **_caps(items))
    found, few = loss.epsilon(delta), len(items) <= _FEW_ITEMS
    if not found <= epsilon:
        raise InvalidInput(
            "budget.items",
            f"a plan within epsilon {epsilon:.6g} at delta {delta:.6g}; this one needs {found:.6g}. Plan "
            f"fewer times or more noise, or let one item have times {MOST!r}",
            [item.name for item in items],
        )
    grid = np.linspace(0.0, 2.0 * epsilon, _POINTS)
    return {
        "epsilon": found,
        "epsilon_lower_bound": _lower_bound(loss, delta, BOUNDS_TOLERANCE if few else _LOOSE),
        "unused_epsilon": max(0.0, epsilon - found),
        "profile": {"epsilons": grid.tolist(), "deltas": loss.profile(grid).tolist()},
        "audit": _audit(loss, found, delta, TOLERANCE if few else _LOOSE),
    }


def _lower_bound(loss: PlanLoss, delta: float, tolerance: float) -> float:
    return loss.epsilon_bounds(delta, tolerance=tolerance).lower


def _audit(loss: PlanLoss, epsilon: float, delta: float, tolerance: float) -> dict[str, Any]:
    """Bounds on attacks, and the Gaussian with the plan's ε at δ, computed once: pages show them often."""
    return {
        "equivalent_mu": equivalent_mu(epsilon, delta),
        "advantage": advantage(loss, tolerance=tolerance),
        "false_positive_rates": list(_FALSE_POSITIVE_RATES),
        "true_positive_rates": true_positive_rates(loss, _FALSE_POSITIVE_RATES).tolist(),
    }


def _read_lowered(fields: Any, items: Sequence[PlanItem]) -> list[tuple[str, float]]:
    """The new size of each item that a change names."""
    if not isinstance(fields, list) or not fields:
        raise InvalidInput("budget.items", "a list of items to lower, each with its name and times", fields)
    known = {item.name: item for item in items}
    return [_read_size(each, known) for each in fields]


def _read_size(fields: Any, known: dict[str, PlanItem]) -> tuple[str, float]:
    name = fields.get("name") if isinstance(fields, dict) else None
    item = known.get(name) if isinstance(name, str) else None
    if item is None or not isinstance(name, str):
        requirement = f"items of this plan, {', '.join(known)}: none is added to a plan after its opening"
        raise InvalidInput("budget.items", requirement, name)
    if item.kind == "step":
        _refuse_another_step(fields, item)
        return name, float(check_count(f"{_field(name)}.times", fields.get("times"), least=0, most=MAX_COUNT))
    return name, _read_lowered_cap(fields, item)


def _read_lowered_cap(fields: dict[str, Any], item: PlanItem) -> float:
    cap, parameter = fields.get(item.kind), _PARAMETERS[item.kind]
    _refuse_unknown(fields, {"name", item.kind})
    if not isinstance(cap, dict) or set(cap) != {parameter}:
        raise InvalidInput(f"{_field(item.name)}.{item.kind}", f"an object with {parameter}", cap)
    return check_non_negative(f"{_field(item.name)}.{item.kind}.{parameter}", cap[parameter])


def _refuse_another_step(fields: dict[str, Any], item: PlanItem) -> None:
    assert item.step is not None, "a step item has a step"
    if "releases" not in fields and "sample" not in fields:
        _refuse_unknown(fields, {"name", "times"})
        return
    adjacency = item.step.adjacency
    if PlanItem.from_fields({**fields, "times": 1}, adjacency).step != item.step:
        raise InvalidInput(_field(item.name), "the step that was planned; items are never exchanged", fields)


def _items(budget: Budget) -> tuple[PlanItem, ...]:
    """The items as opened, read once per budget."""
    known: tuple[PlanItem, ...] | None = budget.__dict__.get("_items")
    if known is None:
        adjacency = Adjacency(budget.details["adjacency"])
        known = tuple(PlanItem.from_fields(each, adjacency) for each in budget.details["items"])
        budget.__dict__["_items"] = known
    return known


def _item_for(items: Sequence[PlanItem], step: Step, cost: Cost) -> int:
    """The item that equals the step, else the first that dominates it, else the first cap that takes it.

    It depends on the step alone and not on what is used, so that what a step is charged never changes.
    """
    found = (
        [at for at, item in enumerate(items) if item.step == step]
        or [at for at, item in enumerate(items) if item.step is not None and dominates(item.step, step)]
        or [at for at, item in enumerate(items) if item.step is None and item.caps(cost)]
    )
    if not found:
        raise Unproven(
            "this step equals no item of the plan, none provably dominates it, and no gdp or zcdp item takes "
            f"it. The plan has {_listed(items)}. A step takes an item of the same mechanisms and sampling "
            "scheme if it has at most its rate and at least its noise"
        )
    return found[0]


def _item_named(items: Sequence[PlanItem], name: str, step: Step, cost: Cost) -> int:
    at = next((index for index, item in enumerate(items) if item.name == name), None)
    if at is None:
        raise InvalidInput("item", f"one of the plan: {_listed(items)}", name)
    item = items[at]
    if not (item.caps(cost) if item.step is None else dominates(item.step, step)):
        raise Unproven(f"item {name} of the plan neither equals this step nor provably dominates it")
    return at


def _listed(items: Sequence[PlanItem]) -> str:
    names = [item.name for item in items[:8]]
    return ", ".join(names) + (f" and {len(items) - 8} more" if len(items) > 8 else "")


def _amount(item: PlanItem, cost: Cost) -> float:
    if item.kind == "step":
        return 1.0
    if item.kind == "zcdp":
        return cost.rho or 0.0
    return widen(cost.mu * cost.mu, Direction.UP, ulps=1) if cost.mu else 0.0


def _exact_amount(item: PlanItem, step: Step, amount: float) -> Fraction:
    if item.kind == "step" or not amount:
        return Fraction(amount)
    return agreed(exact_mu_squared(step) if item.kind == "gdp" else exact_rho(step), amount)


def _recovered(item: PlanItem, bound: float) -> Fraction:
    if item.kind == "step":
        return Fraction(round(bound))
    return Fraction(0 if -_ROUNDING * item.limit <= bound < 0.0 else bound)


def _coordinate(item: PlanItem, amount: float) -> dict[str, Any]:
    named = {"step": "times", "gdp": "mu_squared", "zcdp": "rho"}[item.kind]
    # What is left is a difference that was rounded down, by far less than one step.
    return {"name": item.name, named: round(amount) if item.kind == "step" else amount}


def _as_limited(item: PlanItem, limit: float) -> PlanItem:
    """The item with the size that is in force now."""
    if item.limit == limit:
        return item
    return replace(item, size=math.sqrt(limit) if item.kind == "gdp" else limit)
