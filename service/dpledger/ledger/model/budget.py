"""Budgets: limits for the amounts of a filter, frozen when a dataset is opened.

Every filter (:mod:`dpledger.ledger.filters`) is a rule on one vector of **amounts** with one coordinate per
thing that adds up: ρ for ``zcdp``, μ² for ``gdp``, the Rényi cost at each frozen order for the ``rdp``
family, counts of items for ``plan``. The last coordinate is always the additive δ of approximate mechanisms.
Amounts add, limits are rounded down, and either every coordinate must be within its limit or one of them.

Statement: if the rule holds after every adaptively chosen step, all outputs together satisfy the
budget's (ε, δ), ρ, μ or curve; each filter's ``theorem`` says why.
Conditions: the additive δ's share is set aside when the budget is made, because a share that moves
with the path taken has no proof.
Exactness: amounts and limits are rational numbers beside the floats that are shown (``exact``). Where a cost
is a rational function of the numbers as given it is that; elsewhere it is the float that bounds it. A limit
given as ρ, μ, a curve or an additive δ is the decimal as given; one that follows from (ε, δ) is the
float that bounds it from below. So the rule grants what it would grant on paper, and nothing that
it would refuse. At an order that a given curve names, costs hold for the lesser of the decimal and the double
that stands for it (a Rényi divergence does not fall with its order), which is the order of the guarantee.
Budgets made before this was so have no ``exact``: their ledgers go on as they were, rounding each sum up.
"""

import json
import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpledger.accounting.cost import Cost
from dpledger.accounting.errors import InvalidInput
from dpledger.accounting.exact import Exact, as_given, float_below
from dpledger.accounting.sampling import Adjacency
from dpledger.accounting.steps import Step
from dpledger.accounting.validation import Floats, check_count
from dpledger.ledger.model.filter import Filter, filter_named

__all__ = ["Budget", "Plan"]


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
    """A limit for every coordinate of the filter that ``accounting`` names.

    ``target`` is what was asked for (ε and δ, ρ, μ or a curve) and what is shown as the guarantee.
    ``exact`` are the limits as rational numbers; None in ledgers that round each sum up instead.
    ``details`` are what else the filter froze when the dataset was opened, as JSON values.
    """

    accounting: str
    orders: Floats
    limits: Floats
    target: dict[str, Any]
    weights: Floats | None = None
    exact: tuple[Fraction, ...] | None = None
    details: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_fields(cls, fields: Any, adjacency: Adjacency) -> "Budget":
        """Make a budget from its wire form; orders and weights are frozen here."""
        chosen, rest = _read(fields)
        return _exactly(_finite(chosen.open(rest, adjacency)).usable())

    @classmethod
    def from_document(cls, text: str) -> "Budget":
        """Read what :attr:`document` wrote, bit for bit."""
        stored = json.loads(text)
        weights = stored["weights"]
        return cls(
            filter_named(stored["accounting"]).name,
            np.array(stored["orders"], dtype=np.float64),
            np.array(stored["limits"], dtype=np.float64),
            stored["target"],
            None if weights is None else np.array(weights, dtype=np.float64),
            _exact_from_texts(stored["exact"], stored["limits"]) if "exact" in stored else None,
            stored.get("details", {}),
        )

    @cached_property
    def document(self) -> str:
        """The canonical text kept in the ledger; floats round-trip exactly."""
        content = {
            "accounting": self.accounting,
            "orders": self.orders.tolist(),
            "limits": self.limits.tolist(),
            "target": self.target,
            "weights": None if self.weights is None else self.weights.tolist(),
        }
        if self.exact is not None:
            content["exact"] = _exact_as_texts(self.exact, self.limits)
        if self.details:
            content["details"] = self.details
        return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)

    @cached_property
    def filter(self) -> Filter:
        """The rule that decides."""
        return filter_named(self.accounting)

    @cached_property
    def basis(self) -> tuple[str, object]:
        """What amounts depend on, whatever the limits are: what adds up, and at which orders, read how."""
        return self.accounting, self.filter.basis(self)

    @property
    def shown(self) -> dict[str, Any]:
        """The wire form of the budget as it stands."""
        return {"accounting": self.accounting, **self.target, **self.filter.describe(self)}

    @property
    def size(self) -> int:
        """How many coordinates an amount has, the additive δ included."""
        return int(self.limits.size)

    @property
    def additive_delta(self) -> float:
        """The share of δ set aside for approximate mechanisms."""
        return float(self.limits[-1])

    def usable(self) -> "Budget":
        """The same; refused if it leaves nothing, as nothing is opened with such a budget."""
        self.filter.check_usable(self)
        return self

    def with_limit(self, fields: dict[str, Any], adjacency: Adjacency) -> "Budget":
        """The budget with another limit, which may leave nothing, but the same rule, orders and weights."""
        chosen, rest = _read(fields)
        if chosen.name != self.accounting:
            raise InvalidInput("budget.accounting", f"{self.accounting}, fixed at opening", fields)
        changed = _finite(chosen.change(self, rest, adjacency))
        if not np.array_equal(changed.orders, self.orders):
            raise InvalidInput("budget.orders", "those fixed at opening", changed.orders.tolist())
        return changed if self.exact is None else _exactly(changed)

    def cost(self, step: Step) -> Cost:
        """The cost of a step at the orders that the filter looks at."""
        return self.filter.cost(self, step)

    def amounts(self, step: Step, cost: Cost, item: str | None = None) -> Floats:
        """What a step adds to each coordinate; refuses what has no bound in this accounting."""
        return self.filter.amounts(self, step, cost, item)

    def explains(self, step: Step, cost: Cost, amounts: Floats) -> bool:
        """Whether stored amounts are what this budget charges for a step of this cost."""
        return self.filter.explains(self, step, cost, amounts)

    def exact_amounts(self, step: Step, amounts: Floats) -> Exact:
        """What a step adds to each coordinate exactly: a rational function of its numbers, or its float."""
        return self.filter.exact_amounts(self, step, amounts)

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
        return delta and (any(main) if self.filter.one_suffices else all(main))

    def fits_in_a_row(self, spent: Exact, each: Exact, times: int) -> int:
        """How often, up to ``times``, the rule holds when ``each`` is added to ``spent`` again and again.

        Both have one denominator.
        """
        rows = zip(self._floors(spent), spent.numerators, each.numerators, strict=True)
        *main, delta = (
            times if not more and most >= used else max(0, min(times, (most - used) // max(more, 1)))
            for most, used, more in rows
        )
        return min(delta, max(main) if self.filter.one_suffices else min(main))

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
        return np.logical_and(self.filter.combine(within[..., :-1]), within[..., -1])

    def fraction_left(self, amounts: Floats) -> float:
        """The part of the budget that is left, in [0, 1], rounded down; additive δ apart."""
        return self.fractions_left(amounts[np.newaxis])[0]

    def fractions_left(self, rows: Floats) -> list[float]:
        """The same for every row of amounts."""
        used = self.filter.used_fraction(self, rows)
        # The quotient and its limit are each rounded. An infinite share leaves nothing.
        with np.errstate(invalid="ignore", over="ignore"):
            rest = 1.0 - used * _ROUNDED
            left = np.nextafter(rest - 4.0 * np.spacing(np.abs(rest)), -np.inf)
        found: list[float] = np.where(used == 0.0, 1.0, np.fmax(0.0, left)).tolist()
        return found

    @cached_property
    def usable_limits(self) -> tuple[NDArray[np.intp], Floats]:
        """Which coordinates have a positive limit, the additive δ apart, and these limits."""
        chosen = np.flatnonzero(self.limits[:-1] > 0.0)
        return chosen, self.limits[chosen]

    def narrow(self, own: "Budget | None") -> "Budget":
        """In whose terms a partition with a budget of its own reports what is left: the lesser of both.

        It is for telling alone: what decides are both budgets' limits. A term that one of them lacks
        would tell of the other alone, which may leave more.
        """
        if own is None:
            return self
        shared = [name for name in self.target if name in own.target]
        return replace(own, target={name: min(own.target[name], self.target[name]) for name in shared})

    def remaining(self, amounts: Floats) -> dict[str, Any]:
        """What is left in the budget's own terms: the fraction, and that fraction of the target."""
        return self.remaining_at(self.fraction_left(amounts))

    def remaining_at(self, fraction: float) -> dict[str, Any]:
        """The same for a fraction computed before."""
        left: dict[str, Any] = {"fraction": fraction}
        for name in self.filter.divisible:
            if name in self.target:
                share = fraction if name != "mu" else math.sqrt(fraction)
                part = self.target[name] * share
                rounded = part if share == 1.0 else math.nextafter(part - 4.0 * math.ulp(part), -math.inf)
                left[name] = max(0.0, rounded)
        if "delta" in self.target:
            left["delta"] = self.target["delta"]
        return left


_FLOORS = 8
_ROUNDED = 1.0 + 2.0**-51


def _exactly(budget: Budget) -> Budget:
    """The budget with exact limits: decimals where a limit is given as such, elsewhere the doubles."""
    return replace(budget, exact=(*budget.filter.read_limits(budget), as_given(float(budget.limits[-1]))))


def _exact_as_texts(exact: tuple[Fraction, ...], limits: Floats) -> list[str | None]:
    """Each as ``n/d``; null where it is the double itself."""
    pairs = zip(exact, limits.tolist(), strict=True)
    return [None if value == Fraction(limit) else str(value) for value, limit in pairs]


def _exact_from_texts(texts: list[str | None], limits: list[float]) -> tuple[Fraction, ...]:
    pairs = zip(texts, limits, strict=True)
    return tuple(Fraction(limit) if text is None else Fraction(text) for text, limit in pairs)


def _read(fields: Any) -> tuple[Filter, dict[str, Any]]:
    """The filter of a wire form, and its other fields."""
    if not isinstance(fields, dict):
        raise InvalidInput("budget", "an object with accounting and a limit", fields)
    rest = dict(fields)
    chosen = filter_named(rest.pop("accounting", None))
    unknown = sorted(set(rest) - chosen.fields)
    if unknown:
        known = ", ".join(sorted(chosen.fields))
        raise InvalidInput(f"budget.{unknown[0]}", f"absent: {chosen.name} takes {known}", rest[unknown[0]])
    return chosen, rest


def _finite(budget: Budget) -> Budget:
    if not np.isfinite(budget.limits).all():
        raise InvalidInput("budget", "a limit that fits a double-precision number", budget.target)
    return budget
