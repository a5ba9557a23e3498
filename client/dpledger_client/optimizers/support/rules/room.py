"""The noise that a request needs under the dataset's own kind of budget.

The service composes, converts and forecasts; here a number is searched for by asking it. Nothing is recorded
and nothing rests on the answer: the ledger decides each step of the training by itself.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias
from urllib.parse import quote

from dpledger_client._checks import check_count, check_positive
from dpledger_client.errors import Unproven
from dpledger_client.ledger import Account
from dpledger_client.mechanisms import Gaussian
from dpledger_client.optimizers.support.planning import Item, look_up, step_item
from dpledger_client.optimizers.support.rules.facts import Request
from dpledger_client.releases import Release
from dpledger_client.samples import FreshSample, Full

__all__ = ["ItemsAt", "Room"]

ItemsAt: TypeAlias = Callable[[float], Sequence[Item]]
"""What a training asks for, as a function of its noise: the larger the number, the less it costs."""

_ROOM = 1.0 + 5e-5
"""A plan is evaluated on a grid and rounded up, by less than this."""
_CLOSE = 1.0002
_MOST_DOUBLINGS = 40
_MOST_GROWTH = 8.0
_MOST_GROWTH_OF_PLANS = 1.1
_SCALARS = {"zcdp": ("rho", 1), "gdp": ("mu", 2)}
"""Budgets that add up one number: which, and to what power."""


@dataclass(frozen=True)
class Room:
    """What a request leaves room for.

    Attributes
    ----------
    account, request
        Who spends, and how much: an (ε, δ), or a share of what is left.
    accounting
        What adds up the steps: the kind of the dataset's or the allocation's budget.
    allocates
        Whether the training gets an allocation of its own, of a budget that is ``shared``.
    beside
        What else is to be paid of the same request.
    """

    account: Account
    request: Request
    accounting: str
    allocates: bool
    beside: tuple[Item, ...] = ()
    reasons: list[Unproven] = field(default_factory=list, compare=False, repr=False)
    known: dict[str, dict[str, float]] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, account: Account, request: Request, *, beside: tuple[Item, ...] = ()) -> "Room":
        """By what the ledger says of the dataset; a share of a ``shared`` budget becomes an (ε, δ)."""
        dataset = account.dataset
        accounting = str(dataset.facts()["accounting"])
        allocates = accounting == "shared" and account.allocation is None
        if allocates and request.spend is not None:
            left = look_up(account, ["budget", dataset.name], lambda: dict(dataset.budget().remaining))
            request = Request(float(left["epsilon"]) * request.spend, float(left["delta"]) * request.spend)
        if accounting == "shared" and account.allocation is not None:
            accounting = _accounting_inside(account)
        return cls(account, request, "plan" if allocates else accounting, allocates, beside)

    def inside(self, accounting: str) -> "Room":
        """The same where an allocation is to have another kind of budget inside."""
        return replace(self, accounting=accounting) if self.allocates else self

    @property
    def adjacency(self) -> str:
        """The dataset's."""
        return str(self.account.dataset.facts()["adjacency"])

    @cached_property
    def mu(self) -> float:
        """The most that Gaussian looks at all records may have together: √Σμᵢ²."""
        return 1.0 / self.multiplier(1)

    @cached_property
    def rho(self) -> float:
        """The same as ρ = μ²/2, which under ``zcdp`` is the most of anything."""
        return 0.5 * self.mu**2

    def multiplier(self, steps: int, sample: FreshSample | None = None) -> float:
        """The least noise multiplier for so many equal Gaussian looks, at all records or at fresh samples."""
        times = check_count("steps", steps)

        def looks(noise: float) -> list[Item]:
            return [step_item("looks", Release(Gaussian(1.0, noise)), sample, times)]

        return self.least(looks, self._guess(times, sample))

    def least(self, items_at: ItemsAt, start: float = 1.0) -> float:
        """The least number, to 0.02 %, at which all that is asked for is within the request and granted.

        A filter over weighted orders grants less than the (ε, δ) of its budget, so that noise may grow by up
        to eight times for it, and a little for counts of a plan, which are whole numbers. Any other budget
        that does not grant what is within (ε, δ) has less left.
        """
        within = start if self.request.epsilon is None else self._search(items_at, start, self._is_within)
        if self.allocates:
            return within
        if self.request.epsilon is None:
            return self._search(items_at, start, self._is_granted)
        if self._is_granted(items_at(within)):
            return within
        if self.accounting in _SCALARS:
            raise ValueError(self._too_much())
        most = _MOST_GROWTH if self.accounting.startswith("rdp") else _MOST_GROWTH_OF_PLANS
        return self._search(items_at, within, self._is_granted, most=most)

    def _search(
        self,
        items_at: ItemsAt,
        start: float,
        holds: Callable[[Sequence[Item]], bool],
        most: float = math.inf,
    ) -> float:
        """The least number from which on something holds, near ``start`` or at most so many times that."""
        high, factor = check_positive("start", start), _CLOSE
        if holds(items_at(high)):
            low = high / factor
            for _ in range(_MOST_DOUBLINGS):
                if not holds(items_at(low)):
                    break
                factor = min(16.0, factor**4)
                high, low = low, low / factor
        else:
            low = high
            for _ in range(_MOST_DOUBLINGS):
                high = min(low * factor, start * most)
                if holds(items_at(high)):
                    break
                if high >= start * most:
                    raise ValueError(self._too_much())
                low, factor = high, min(16.0, factor**4)
        while high / low > _CLOSE:
            middle = math.sqrt(low * high)
            low, high = (low, middle) if holds(items_at(middle)) else (middle, high)
        if not holds(items_at(high)):
            raise ValueError(self._too_much())
        return high

    def _is_within(self, items: Sequence[Item]) -> bool:
        """Whether items, with what is paid beside them, are within (ε, δ)."""
        return self._within(self._steps(items))

    def _is_granted(self, items: Sequence[Item]) -> bool:
        """Whether the budget would grant them now; what has no proof there is not."""
        try:
            return self._granted(self._steps(items))
        except Unproven as reason:
            self.reasons.append(reason)
            return False

    def _steps(self, items: Sequence[Item]) -> list[dict[str, Any]]:
        return [_as_step(item) for item in (*self.beside, *items)]

    def allocate(self, name: str, items: Sequence[Item]) -> Account:
        """An allocation of the request, for these items."""
        asked = {"epsilon": self.request.epsilon, "delta": self.request.delta}
        everything = [*self.beside, *items]
        if self.accounting == "plan":
            return self.account.allocate(name, plan=everything, **asked)  # type: ignore[arg-type]
        budget: dict[str, Any] = {"accounting": self.accounting}
        if self.accounting == "rdp-order":
            budget["order"] = self._compose(self._steps(items))["order"]
        return self.account.allocate(name, budget=budget, **asked)  # type: ignore[arg-type]

    def _within(self, steps: Sequence[dict[str, Any]]) -> bool:
        """Whether steps that are fixed in advance are within (ε, δ); a share is what is granted."""
        if self.request.epsilon is None:
            return True
        if self.accounting in _SCALARS:
            notion, power = _SCALARS[self.accounting]
            total = math.fsum(step["times"] * self._cost(step, notion) ** power for step in steps)
            return total * _ROOM <= self._goal(self.accounting)[notion] ** power
        if self._only_gaussians(steps):
            squares = math.fsum(step["times"] * self._cost(step, "mu") ** 2 for step in steps)
            return math.sqrt(squares) * _ROOM <= self._goal("gdp")["mu"]
        return float(self._compose(steps)["epsilon"]) * _ROOM <= self.request.epsilon

    def _only_gaussians(self, steps: Sequence[dict[str, Any]]) -> bool:
        """Whether μ is exact: Gaussian looks at all records, of a budget that does not add up curves."""
        return not self.accounting.startswith("rdp") and all(
            step["sample"] == Full().fields()
            and all(release["mechanism"] == "gaussian" for release in step["releases"])
            for step in steps
        )

    def _compose(self, steps: Sequence[dict[str, Any]]) -> dict[str, Any]:
        how = {"plan": "pld", "rdp-order": "rdp"} if self.allocates else {}
        query = {"plan": list(steps), "adjacency": self.adjacency, "delta": self.request.delta}
        chosen = {"method": how[self.accounting]} if self.accounting in how else {}
        return self.account.dataset.ledger.ask("compositions", {**query, **chosen})

    def _cost(self, step: dict[str, Any], notion: str) -> float:
        query = {"releases": step["releases"], "sample": step["sample"], "adjacency": self.adjacency}
        found = self.account.dataset.ledger.ask("costs", query)["cost"][notion]
        if found is None:
            names = ", ".join(str(release["mechanism"]) for release in step["releases"])
            raise ValueError(
                f"{self.account.dataset.name} has a budget of {self.accounting}, which adds up {notion}, and "
                f"none is known of {names} on {step['sample']}: take another method, or a dataset whose "
                "budget is shared or rdp"
            )
        return float(found)

    def _goal(self, notion: str) -> dict[str, float]:
        """The most of a notion that (ε, δ) allows, asked for once."""
        if notion not in self.known:
            goal = {"notion": "approximate", "epsilon": self.request.epsilon, "delta": self.request.delta}
            query = {"goal": goal, "to": {"notion": notion}}
            self.known[notion] = self.account.dataset.ledger.ask("conversions", query)["guarantee"]
        return self.known[notion]

    def _granted(self, steps: Sequence[dict[str, Any]]) -> bool:
        """Whether the budget would grant all of them, of the share that is asked for."""
        share = self.request.spend or 1.0
        if self.accounting in _SCALARS and len(steps) > 1:
            notion, power = _SCALARS[self.accounting]
            used = math.fsum(step["times"] * self._cost(step, notion) ** power for step in steps)
            return used * _ROOM <= share * float(self._forecast(steps[0])["remaining"][notion]) ** power
        full = all(step["sample"] == Full().fields() for step in steps)
        if full and len(steps) > 1 and self.accounting != "plan":
            joint = [_repeated(each, step["times"] / share) for step in steps for each in step["releases"]]
            return int(self._forecast({"releases": joint, "sample": Full().fields()})["fits"]) >= 1
        fits = [int(self._forecast(step)["fits"]) for step in steps]
        if len(steps) == 1:
            return bool(fits[0] * share >= steps[0]["times"])
        shares = [step["times"] / each if each else math.inf for step, each in zip(steps, fits, strict=True)]
        return math.fsum(shares) <= share

    def _forecast(self, step: dict[str, Any]) -> dict[str, Any]:
        account = self.account
        where = {"partition": account.partition, "allocation": account.allocation}
        query = {
            "releases": step["releases"],
            "sample": step["sample"],
            **{name: value for name, value in where.items() if value is not None},
        }
        path = f"datasets/{quote(account.dataset.name, safe='')}/forecast"
        found: dict[str, Any] = look_up(
            account, [path, query], lambda: account.dataset.ledger.ask(path, query)
        )
        return found

    def _guess(self, steps: int, sample: FreshSample | None) -> float:
        """Near the answer, where there is a short way to it."""
        if self.request.epsilon is None:
            return math.sqrt(steps)
        if sample is None or isinstance(sample, Full):
            notion = "zcdp" if self.accounting == "zcdp" else "gdp"
            found = self._goal(notion)
            mu = math.sqrt(2.0 * found["rho"]) if notion == "zcdp" else found["mu"]
            return math.sqrt(steps) / mu * _ROOM
        query = {
            "solve_for": "noise_std",
            "target": {"epsilon": self.request.epsilon, "delta": self.request.delta},
            "steps": steps,
            "sample": sample.fields(),
            "adjacency": self.adjacency,
            "releases": [{"mechanism": "gaussian", "sensitivity": 1.0}],
        }
        return float(self.account.dataset.ledger.ask("calibrations", query)["value"]) * _ROOM

    def _too_much(self) -> str:
        if self.reasons:
            return f"{self.account.dataset.name} has a budget of {self.accounting}: {self.reasons[-1]}"
        left = self.account.dataset.budget().remaining
        return (
            f"the budget of {self.account.dataset.name} does not cover {self.request}: {dict(left)} is left. "
            "Ask for less, or for a share of what is left by spend="
        )


def _as_step(item: Item) -> dict[str, Any]:
    """An item as a step with how often it is taken; a cap is one Gaussian, or one claim of its ρ."""
    if "gdp" in item:
        capped = {"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": 1.0 / item["gdp"]["mu"]}
        return {"sample": Full().fields(), "releases": [capped], "times": 1}
    if "zcdp" in item:
        capped = {"mechanism": "zcdp", "rho": item["zcdp"]["rho"]}
        return {"sample": Full().fields(), "releases": [capped], "times": 1}
    return {"sample": item["sample"], "releases": item["releases"], "times": item["times"]}


def _repeated(release: dict[str, Any], times: float) -> dict[str, Any]:
    """A release that is made so often on one sample, rounded up."""
    return {**release, "count": math.ceil(int(release.get("count", 1)) * times)}


def _accounting_inside(account: Account) -> str:
    """The kind of budget that an allocation has inside."""
    for found in account.dataset.allocations():
        if found["name"] == account.allocation:
            return str(found["budget"]["accounting"])
    raise ValueError(f"{account.dataset.name} has no allocation {account.allocation}")
