"""The protocol of filters: everything that one kind of budget decides and shows.

A kind of budget is one subclass of :class:`Filter` and one call of :func:`register`. Budgets name their
filter by ``accounting``; the ledger, the API, the command line and the dashboard ask it and know no kinds.
"""

import abc
import importlib
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from dpledger.accounting.cost import Cost
from dpledger.accounting.errors import InvalidInput
from dpledger.accounting.exact import Exact, as_given, float_below
from dpledger.accounting.rounding import Direction, widen
from dpledger.accounting.sampling import Adjacency
from dpledger.accounting.stepcost import cost_of
from dpledger.accounting.steps import Step
from dpledger.accounting.theorem import Theorem
from dpledger.accounting.validation import (
    MAX_COUNT,
    Floats,
    check_choice,
    check_delta,
    check_open_unit,
    check_positive,
)

if TYPE_CHECKING:
    from dpledger.ledger.model.budget import Budget

__all__ = [
    "ADAPTIVE",
    "Filter",
    "Meter",
    "added_filters",
    "check_additive",
    "filter_named",
    "filter_names",
    "read_epsilon_delta",
    "read_target",
    "register",
    "register_added",
    "unregister",
]

ADAPTIVE = "steps may be chosen from earlier outputs; orders, weights and limits fixed beforehand"
"""The condition that every filter's theorem allows."""


@dataclass(frozen=True)
class Meter:
    """One coordinate as it is shown: what it is called, what is used of it, and its limit.

    ``symbol`` says what adds up where the label does not. A coordinate that counts steps has the ``step``
    that it counts instead, and its amounts are whole numbers.
    """

    label: str
    used: float
    limit: float
    symbol: str = ""
    step: Step | None = None


class Filter(abc.ABC):
    """The rule of one kind of budget.

    Amounts are vectors with one coordinate per thing that adds up; the last coordinate is always the
    additive δ of approximate mechanisms. A spend is granted if, after it, the additive δ is within its limit
    and so are all other coordinates, or one of them where ``one_suffices``.
    """

    name: ClassVar[str]
    """``accounting`` on the wire and in the ledger; its meaning never changes."""
    fields: ClassVar[frozenset[str]]
    """What the wire form of a budget may hold beside ``accounting``."""
    theorem: ClassVar[Theorem]
    """Why the rule is sound for adaptively chosen steps."""
    summary: ClassVar[str]
    """The rule in one line, for people."""
    picture: ClassVar[Literal["sum", "curve", "items"]]
    """What the dashboard draws of the coordinates."""
    weighing: ClassVar[str] = ""
    """How shares of the budget weigh its parts, where they are not taken at one coordinate."""
    one_suffices: ClassVar[bool] = False
    """Whether one coordinate within its limit is enough."""
    allows_second_looks: ClassVar[bool] = True
    """Whether a sample may be looked at again, charged raw."""
    allocates: ClassVar[bool] = False
    """Whether it hands out allocations, through which alone it is spent."""
    divisible: ClassVar[tuple[str, ...]] = ("epsilon", "rho", "mu")
    """Terms of the target of which the fraction that is left is shown as well."""

    @abc.abstractmethod
    def open(self, fields: dict[str, Any], adjacency: Adjacency) -> "Budget":
        """The budget of a wire form whose fields are known; freezes all that never changes again."""

    @abc.abstractmethod
    def change(self, budget: "Budget", fields: dict[str, Any], adjacency: Adjacency) -> "Budget":
        """The budget with another limit, which may leave nothing, but all else as it was frozen."""

    @abc.abstractmethod
    def amounts(self, budget: "Budget", step: Step, cost: Cost, item: str | None) -> Floats:
        """What a step adds to each coordinate, rounded up; refuses what has no bound here."""

    @abc.abstractmethod
    def exact_amounts(self, budget: "Budget", step: Step, amounts: Floats) -> Exact:
        """The same exactly: a rational function of the step's numbers, or the float that bounds it."""

    @abc.abstractmethod
    def coordinates(self, budget: "Budget", amounts: Floats) -> dict[str, Any]:
        """Amounts in the filter's own terms, the additive δ apart."""

    @abc.abstractmethod
    def meters(self, budget: "Budget", amounts: Floats) -> list[Meter]:
        """Every coordinate but the additive δ, for pictures and tables."""

    @abc.abstractmethod
    def indicative_epsilon(self, budget: "Budget", amounts: Floats, delta: float) -> float | None:
        """ε at δ of amounts as if they had been fixed in advance; None where there is none to tell."""

    def check_usable(self, budget: "Budget") -> None:
        """Refuse a budget that grants nothing from the start."""
        return

    def read_limits(self, budget: "Budget") -> list[Fraction]:
        """The limits before the additive δ exactly: the decimals as given, or the doubles that bound them."""
        read = Fraction if "epsilon" in budget.target else as_given
        return [read(limit) for limit in budget.limits[:-1].tolist()]

    def recover_bounds(self, budget: "Budget", bounds: Floats) -> tuple[Fraction, ...]:
        """Exact numbers for what is known of all partitions together, which is kept rounded outward."""
        return tuple(map(Fraction, bounds.tolist()))

    def cost(self, budget: "Budget", step: Step) -> Cost:
        """The cost of a step at the orders that this filter looks at."""
        return cost_of(step, budget.orders)

    def basis(self, budget: "Budget") -> object:
        """What amounts depend on beside the filter's name, whatever the limits are."""
        return budget.orders.tobytes()

    def explains(self, budget: "Budget", step: Step, cost: Cost, amounts: Floats) -> bool:
        """Whether stored amounts are what this filter charges for a step of this cost."""
        return self.amounts(budget, step, cost, None).tobytes() == amounts.tobytes()

    def combine(self, within: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Whether the rule holds for each row of what is within its limit, the additive δ apart."""
        return np.asarray(within.any(axis=-1) if self.one_suffices else within.all(axis=-1))

    def used_fraction(self, budget: "Budget", amounts: Floats) -> Floats:
        """The part of the budget that is used, for each row of amounts."""
        usable, limits = budget.usable_limits
        # Far beyond the smallest limits a share is infinite, which leaves nothing.
        with np.errstate(over="ignore"):
            shares = amounts.take(usable, axis=-1) / limits
        if self.one_suffices:
            least: Floats = shares.min(axis=-1, initial=1.0)
            return least
        zero = budget.limits[:-1] <= 0.0
        exceeded = ((amounts[..., :-1] > budget.limits[:-1]) & zero).any(axis=-1)
        return np.where(exceeded, np.inf, shares.max(axis=-1, initial=0.0))

    def binding(self, budget: "Budget", amounts: Floats) -> int:
        """The coordinate that decides how much is left.

        Where one coordinate within its limit is enough, it is the one with most left; where all must be
        within theirs, the one with least.
        """
        limits, used = budget.limits[:-1], amounts[:-1]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            left = np.where(limits > 0.0, 1.0 - used / limits, np.where(used > limits, -np.inf, np.nan))
        if np.isnan(left).all():
            return 0
        return int(np.nanargmax(left) if self.one_suffices else np.nanargmin(left))

    def share(self, budget: "Budget", amounts: Floats, at: int) -> float:
        """Amounts as a share of the whole budget, seen at one coordinate; such shares add up."""
        limit, amount = float(budget.limits[at]), float(amounts[at])
        if limit > 0.0:
            return amount / limit
        return float("inf") if amount > 0.0 else 0.0

    def magnitude(self, budget: "Budget", amounts: Floats) -> float:
        """One number that orders sums of amounts, whatever the limits are."""
        return float(amounts[(amounts.size - 1) // 2])

    def terms_left(self, budget: "Budget", committed: Exact) -> dict[str, Any]:
        """Terms of what is left of the whole that do not follow from the fraction, rounded down."""
        return {}

    def describe(self, budget: "Budget") -> dict[str, Any]:
        """What a budget shows beside its target."""
        return {}

    def analysis(self, budget: "Budget") -> dict[str, Any]:
        """What is known of the budget as a whole, computed when it was opened."""
        return {}

    def assessment(self, budget: "Budget") -> dict[str, Any] | None:
        """What an auditor asks of the budget as a whole, where it was computed: its profile and its rates.

        ``epsilon`` between ``epsilon_lower_bound`` and itself, ``unused_epsilon``, ``profile`` with
        ``epsilons`` and ``deltas``, and ``audit`` with ``equivalent_mu``, ``advantage``,
        ``false_positive_rates`` and ``true_positive_rates``.
        """
        return None

    def cover(self, first: "Budget", second: "Budget", limits: Floats, delta: float) -> dict[str, Any]:
        """What a target that covers two budgets computes anew; ``delta`` is the part that is not additive."""
        return {}

    def explain_refusal(self, budget: "Budget", step: Step, amounts: Floats, room: Floats) -> dict[str, Any]:
        """Which coordinate has no room for the amounts of a step, and, as ``advice``, what would help."""
        return {}

    def plan_grants(self, budget: "Budget", step: Step, most: int = MAX_COUNT) -> int | None:
        """How many such steps, up to ``most``, a ``plan`` budget for the same (ε, δ) grants; slow.

        None where that is no more than this rule grants, or not known.
        """
        return None


_FILTERS: dict[str, Filter] = {}


def register(filter_: Filter) -> None:
    """Make a kind of budget known to the ledger, the API, the command line and the dashboard."""
    if filter_.name in _FILTERS:
        raise ValueError(f"there is a filter {filter_.name} already")
    _FILTERS[filter_.name] = filter_


def unregister(name: str) -> None:
    """Forget a kind of budget; ledgers that were opened with it can no longer be read."""
    del _FILTERS[name]


def filter_named(name: object) -> Filter:
    """The filter of this name; refuses any other."""
    return _FILTERS[check_choice("budget.accounting", name, filter_names())]


def filter_names() -> list[str]:
    """Every kind of budget, in the order of registration."""
    return list(_FILTERS)


def added_filters() -> list[str]:
    """``module:class`` of each kind that was registered from outside, for a process that must know it too."""
    kinds = [type(each) for each in _FILTERS.values()]
    return [f"{kind.__module__}:{kind.__qualname__}" for kind in kinds if not _is_our_own(kind)]


def register_added(paths: Iterable[str]) -> None:
    """Register the kinds that another process names by :func:`added_filters`."""
    for path in paths:
        module, _, name = path.partition(":")
        register(getattr(importlib.import_module(module), name)())


def _is_our_own(kind: type[Filter]) -> bool:
    return kind.__module__.partition(".")[0] == __name__.partition(".")[0]


def check_additive(fields: dict[str, Any], below: float = 1.0) -> float:
    """The additive share of δ that a wire form sets aside."""
    share = check_delta("budget.additive_delta", fields.get("additive_delta", 0.0))
    if not share < below:
        raise InvalidInput("budget.additive_delta", f"below delta, {below!r}", share)
    return share


def read_epsilon_delta(fields: dict[str, Any]) -> tuple[float, float, float]:
    """ε, the δ left for the filter, and the additive share."""
    epsilon = check_positive("budget.epsilon", fields.get("epsilon"))
    delta = check_open_unit("budget.delta", fields.get("delta"))
    additive = check_additive(fields, below=delta)
    if not additive:
        return epsilon, delta, additive
    rest = min(
        widen(delta - additive, Direction.DOWN, ulps=1), float_below(as_given(delta) - as_given(additive))
    )
    return epsilon, rest, additive


def read_target(fields: dict[str, Any], *names: str) -> dict[str, Any]:
    """What was asked for: these numbers, and the additive share where there is one."""
    kept = {name: float(fields[name]) for name in names if name in fields}
    additive = float(fields.get("additive_delta", 0.0))
    return {**kept, "additive_delta": additive} if additive else kept
