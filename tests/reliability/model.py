"""A plain model of the ledger, written from the guarantee alone: whole numbers, dictionaries, loops.

One unit is ``UNIT`` of zCDP's ρ. Costs are whole units and every limit lies half a unit above a whole
number, so a decision is the same whichever way the service's sums are rounded, and the model needs no
rounding of its own.
"""

from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations
from typing import Any

UNIT = 2.0**-10


def limit_rho(units: int) -> float:
    """The ρ of a budget for ``units`` units and no more."""
    return (units + 0.5) * UNIT


def lowered_plan(units: int) -> dict[str, Any]:
    """A plan whose zCDP item has room for ``units`` units and no more."""
    return {"accounting": "plan", "items": [{"name": "cap", "zcdp": {"rho": limit_rho(units)}}]}


def budget_fields(units: int, planned: bool) -> dict[str, Any]:
    """A budget for ``units`` units and no more: a zCDP one, or a plan with a zCDP item."""
    if not planned:
        return {"accounting": "zcdp", "rho": limit_rho(units)}
    return {**lowered_plan(units), "epsilon": 8.0, "delta": 1e-4}


def rho_of(amounts: dict[str, Any]) -> float:
    """The ρ among amounts of either kind."""
    found = amounts["items"][0]["rho"] if "items" in amounts else amounts["rho"]
    return float(found)


@dataclass
class Hold:
    """An open reservation."""

    dataset: str
    part: str | None
    each: int
    times: int
    expires_at: float
    quota_number: int = 0


@dataclass
class Requested:
    """An open request for budget; ``amounts`` are a limit, tenths and millionths, or a quota."""

    dataset: str
    kind: str
    amounts: tuple[int, ...] | Fraction
    part: str = ""
    budget_number: int = 0


@dataclass
class Ledger:
    """One dataset: what is committed (spent or held) on the whole and on each partition.

    ``quota`` is the part that the team may use of it and ``quota_use`` what it has used, of the quota with
    this ``quota_number``.
    """

    limit: int
    private: bool = False
    planned: bool = False
    whole: int = 0
    parts: dict[str, int] = field(default_factory=dict)
    own_limits: dict[str, int] = field(default_factory=dict)
    kinds: dict[str, int] = field(default_factory=lambda: {"opened": 1})
    runs: dict[str, int] = field(default_factory=dict)
    returned: list[str] = field(default_factory=list)
    quota: Fraction | None = None
    quota_use: int = 0
    quota_number: int = 0
    budget_number: int = 0
    shared = False

    def step_fields(self, run: str, units: int, part: str | None) -> dict[str, Any]:
        """A step that costs so many units, of the whole or of a partition."""
        body = {"run": run, "releases": [{"mechanism": "zcdp", "rho": units * UNIT}]}
        return body if part is None else {**body, "partition": part}

    def release(self, part: str | None) -> None:
        """Something may have been released from ``part``."""

    def committed(self, part: str | None) -> int:
        return self.whole if part is None else self.parts[part]

    def limit_of(self, part: str) -> int:
        return min(self.limit, self.own_limits.get(part, self.limit))

    def burdens(self, touched: str | None) -> list[tuple[int, int]]:
        """For each change of one record that sees ``touched``: what it bears, and its limit."""
        if not self.private:
            seen = [part for part in self.parts if touched in (None, part)]
            alone = [(self.whole + self.parts[part], self.limit_of(part)) for part in seen]
            return alone or [(self.whole, self.limit)]
        pairs = [pair for pair in combinations(self.parts, 2) if touched is None or touched in pair]
        if not pairs:
            return [(self.whole + sum(self.parts.values()), self.limit)]
        return [(self.whole + self.parts[one] + self.parts[two], self.limit) for one, two in pairs]

    def fits(self, units: int, part: str | None) -> bool:
        """Whether every record's burden stays within its limit after ``units`` more."""
        return all(burden + units <= limit for burden, limit in self.burdens(part))

    def refusal(self, units: int, part: str | None) -> str | None:
        """Why ``units`` more are refused: the budget is looked at first; None where they are granted."""
        if not self.fits(units, part):
            return "budget-exhausted"
        return "quota-exceeded" if self.quota is not None and self.quota_left() < units else None

    def quota_left(self) -> Fraction:
        """What the team may still use, in units; half a unit of the limit is for rounding."""
        assert self.quota is not None
        return self.quota * Fraction(2 * self.limit + 1, 2) - self.quota_use

    def limit_use(self, quota: Fraction | None) -> None:
        """Another quota, or none; one that is there goes on counting."""
        if self.quota is None:
            self.quota_use, self.quota_number = 0, self.quota_number + 1
        self.quota = quota

    def change_limit(self, limit: int) -> None:
        """Another limit; what was asked of the one before is outdated."""
        self.limit = limit
        self.budget_number += 1
        self.note("budget-changed")

    def remaining(self) -> Fraction:
        """What a record with the heaviest burden has left of the dataset's budget, in units."""
        heaviest = max(burden for burden, _ in self.burdens(None))
        return max(Fraction(0), Fraction(2 * self.limit + 1, 2) - heaviest)

    def commit(self, units: int, part: str | None) -> None:
        if part is None:
            self.whole += units
        else:
            self.parts[part] += units

    def spend(self, units: int, part: str | None, run: str) -> None:
        """Commit an authorized step and count it for its run."""
        self.commit(units, part)
        self.quota_use += units
        self.note("authorized")
        self.runs[run] = self.runs.get(run, 0) + units

    def note(self, kind: str, times: int = 1) -> None:
        """Count an entry of this kind."""
        self.kinds[kind] = self.kinds.get(kind, 0) + times


@dataclass
class Part:
    """An allocation: so many tenths of ε and millionths of δ, with room for ``ROOM`` units of its own."""

    tenths: int
    millionths: int
    unit: float
    committed: int = 0
    released: bool = False


ROOM = 20


@dataclass
class SharedLedger(Ledger):
    """A dataset with a shared budget; ``limit`` and ``limit_millionths`` are what it may hand out.

    Whole tenths and millionths are decimals, which the service adds up exactly. Costs are whole units of the
    allocation's own ρ, whose limit lies half a unit above a whole number.
    """

    limit_millionths: int = 0
    allocations: dict[str, Part] = field(default_factory=dict)
    shared = True

    def allocated(self) -> tuple[int, int]:
        found = self.allocations.values()
        return sum(each.tenths for each in found), sum(each.millionths for each in found)

    def allocates(self, tenths: int, millionths: int) -> bool:
        """Whether so much more may be handed out."""
        taken = self.allocated()
        return taken[0] + tenths <= self.limit and taken[1] + millionths <= self.limit_millionths

    def step_fields(self, run: str, units: int, part: str | None) -> dict[str, Any]:
        assert part is not None
        rho = units * self.allocations[part].unit
        return {"run": run, "releases": [{"mechanism": "zcdp", "rho": rho}], "allocation": part}

    def fits(self, units: int, part: str | None) -> bool:
        assert part is not None
        return self.allocations[part].committed + units <= ROOM

    def commit(self, units: int, part: str | None) -> None:
        assert part is not None
        self.allocations[part].committed += units

    def spend(self, units: int, part: str | None, run: str) -> None:
        super().spend(units, part, run)
        self.release(part)

    def release(self, part: str | None) -> None:
        assert part is not None
        self.allocations[part].released = True
