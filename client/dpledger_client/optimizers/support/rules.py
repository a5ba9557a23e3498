"""The public rule: from an (ε, δ), or a share of what is left, to a method's parameters and an account.

The rule reads nothing but public numbers: ε, δ, the records, the adjacency, and what the ledger says of the
dataset's budget. The service does the conversions; ``docs/rule.md`` has the rule and where it comes from.
"""

import math
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from dpledger_client._checks import check_count, check_open_unit, check_positive
from dpledger_client.ledger import Account, Dataset, Ledger
from dpledger_client.mechanisms import Gaussian
from dpledger_client.objectives.base import gradient_sensitivity
from dpledger_client.optimizers.methods.noisy_gd import NoisyGradientDescent
from dpledger_client.optimizers.support.base import Method
from dpledger_client.optimizers.support.planning import Item

__all__ = ["RULES", "Request", "TrainingPlan", "make_plan"]

_ROOM = 1.0 + 5e-5
"""A plan is evaluated on a grid and rounded up, by less than this."""
_MOST_GROWTH = 8.0
"""How much more noise a filter with weighted orders may ask for than the (ε, δ) itself."""
_HALVINGS = 24
_FARTHEST = 2.0**40


@dataclass(frozen=True)
class Request:
    """What is to be spent: an (ε, δ), or the share ``spend`` of what the budget has left.

    Examples
    --------
    >>> Request(epsilon=1.0, delta=1e-6)
    Request(epsilon=1.0, delta=1e-06, spend=None)
    """

    epsilon: float | None = None
    delta: float | None = None
    spend: float | None = None

    def __post_init__(self) -> None:
        if self.spend is not None:
            if self.epsilon is not None or self.delta is not None:
                raise ValueError("give either epsilon and delta, or spend")
            if not 0.0 < self.spend <= 1.0:
                raise ValueError(f"spend must be above 0 and at most 1, found {self.spend!r}")
            return
        if self.epsilon is None or self.delta is None:
            raise ValueError("epsilon and delta must be given together")
        check_positive("epsilon", self.epsilon)
        check_open_unit("delta", self.delta)


@dataclass(frozen=True)
class TrainingPlan:
    """What a training will do and ask for, made by the rule before any data are read.

    Attributes
    ----------
    method
        With all its parameters.
    request
        What it is to spend.
    items
        What it will ask for, as the items of a plan.
    allocation
        The name of the allocation that was made for it, under a ``shared`` budget.
    """

    method: Method
    request: Request
    items: tuple[Item, ...]
    allocation: str | None = None


def make_plan(
    account: Account, method: str, request: Request, records: int, options: Mapping[str, Any]
) -> tuple[TrainingPlan, Account]:
    """Choose the parameters, and allocate where the budget is shared; gives the plan, and what to train with.

    ``options`` are parameters of the method that are to be other than the rule's.
    """
    rule = RULES.get(method)
    if rule is None:
        raise ValueError(
            f"{method} has no rule: give its parameters without epsilon, delta and spend, or choose one of "
            f"{', '.join(RULES)}"
        )
    dataset = account.dataset
    shared = dataset.facts()["accounting"] == "shared" and account.allocation is None
    if shared:
        request = _share_of(dataset, request)
    noise = _AllocatedNoise(dataset.ledger, request) if shared else _BudgetNoise(account, request)
    chosen = rule(str(dataset.facts()["adjacency"]), records, noise.multiplier, options)
    items = chosen.plan(dataset, records=records)
    planned = TrainingPlan(chosen, request, tuple(items))
    if not shared:
        return planned, account
    assert request.epsilon is not None
    assert request.delta is not None
    name = _allocation_name(account)
    spending = account.allocate(name, epsilon=request.epsilon, delta=request.delta, plan=items)
    return replace(planned, allocation=name), spending


def _share_of(dataset: Dataset, request: Request) -> Request:
    """An (ε, δ): the one asked for, or a share of what is left to allocate."""
    if request.spend is None:
        return request
    left = dataset.budget().remaining
    return Request(float(left["epsilon"]) * request.spend, float(left["delta"]) * request.spend)


def _allocation_name(account: Account) -> str:
    """The run's own name for a job with a journal, which repeats its requests; a fresh one for others."""
    kept = re.sub(r"[^A-Za-z0-9._-]", "-", account.name).lstrip("._-")[:80] or "run"
    return kept if account.journal is not None else f"{kept}-{secrets.token_hex(4)}"


def _gaussian_mu(ledger: Ledger, request: Request, accounting: str) -> float:
    """The μ of all Gaussian looks together that (ε, δ) has room for, by the conversion of that budget."""
    goal = {"notion": "approximate", "epsilon": request.epsilon, "delta": request.delta}
    if accounting == "zcdp":
        answer = ledger.ask("conversions", {"goal": goal, "to": {"notion": "zcdp"}})
        return math.sqrt(2.0 * float(answer["guarantee"]["rho"]))
    answer = ledger.ask("conversions", {"goal": goal, "to": {"notion": "gdp"}})
    return float(answer["guarantee"]["mu"])


@dataclass(frozen=True)
class _AllocatedNoise:
    """The noise of a plan that gets an allocation of its own: exact, by μ."""

    ledger: Ledger
    request: Request

    def multiplier(self, steps: int) -> float:
        """Of each of so many equal Gaussian looks at all records."""
        return math.sqrt(steps) / _gaussian_mu(self.ledger, self.request, "plan") * _ROOM


@dataclass(frozen=True)
class _BudgetNoise:
    """The noise under a budget of any kind, found by asking what that budget would still grant."""

    account: Account
    request: Request

    def multiplier(self, steps: int) -> float:
        """The least noise, to 0.01 %, for which so many looks are granted and stay within the request."""
        accounting = str(self.account.dataset.facts()["accounting"])
        if self.request.spend is not None:
            return self._least(steps, math.sqrt(steps) / _FARTHEST, math.sqrt(steps) * _FARTHEST)
        mu = _gaussian_mu(self.account.dataset.ledger, self.request, accounting)
        wanted = math.sqrt(steps) / mu * _ROOM
        if self._granted(wanted, steps):
            return wanted
        if not accounting.startswith("rdp"):
            raise ValueError(self._too_much())
        return self._least(steps, wanted, wanted * _MOST_GROWTH)

    def _least(self, steps: int, low: float, high: float) -> float:
        """By halving the interval of logarithms; ``high`` is tried first."""
        if not self._granted(high, steps):
            raise ValueError(self._too_much())
        for _ in range(_HALVINGS if high / low < _FARTHEST else 2 * _HALVINGS):
            if high / low < 1.0001:
                break
            middle = math.sqrt(low * high)
            low, high = (low, middle) if self._granted(middle, steps) else (middle, high)
        return high

    def _granted(self, multiplier: float, steps: int) -> bool:
        account = self.account
        answer = account.dataset.forecast(
            Gaussian(1.0, multiplier), partition=account.partition, allocation=account.allocation
        )
        return float(answer["fits"]) * (self.request.spend or 1.0) >= steps

    def _too_much(self) -> str:
        left = self.account.dataset.budget().remaining
        return (
            f"the budget of {self.account.dataset.name} does not cover {self.request}: {dict(left)} is left. "
            "Ask for less, or for a share of what is left by spend="
        )


Multiplier: TypeAlias = Callable[[int], float]
"""From the number of equal Gaussian looks to their noise multiplier."""
Rule: TypeAlias = Callable[[str, int, Multiplier, Mapping[str, Any]], Method]


def _noisy_gd(adjacency: str, records: int, multiplier: Multiplier, options: Mapping[str, Any]) -> Method:
    """Full gradients with momentum and a tail average.

    With s = Δ·m/√T the noise of the mean of T gradient sums, ηT = k·n/s is where noise moves a weight by k in
    a direction without curvature; k = √(n/500s) within [1, 3], as more exact data bear larger weights.
    """
    given = {"steps": 100, "clip": 1.0, "momentum": 0.9, "average": "tail", **options}
    steps, clip = check_count("steps", given["steps"]), check_positive("clip", given["clip"])
    given.setdefault("noise_multiplier", multiplier(steps))
    total_noise = gradient_sensitivity(clip, adjacency) * given["noise_multiplier"] / math.sqrt(steps)
    strength = records / total_noise
    reach = min(3.0, max(1.0, math.sqrt(strength / 500.0)))
    given.setdefault("step_size", reach * strength / steps * (1.0 - given["momentum"]))
    return NoisyGradientDescent(**given)


RULES: dict[str, Rule] = {"noisy-gd": _noisy_gd}
"""The methods whose parameters the rule chooses."""
