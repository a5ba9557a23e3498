"""Quotas: how much of a dataset's budget the tokens of one team may use, in all or within a window of time.

Statement: at every grant to the team, what it was granted since the quota was set and within the last
``window_seconds`` is within the budget's limits times ``fraction``, under the budget's own rule. What open
reservations hold counts whenever it was reserved, what they used from when they were settled.
Conditions: the dataset's budget is checked first and alone bounds what is released; a quota says nothing of
privacy. Use is what entries record after the one that set the quota, by their times, which for a quota never
go back. A window is kept in slices, and a slice counts until its last moment has left the window: what was
granted counts for up to a slice longer, never for less.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from dpledger.accounting.exact import Exact, as_given, float_below
from dpledger.accounting.validation import Floats
from dpledger.ledger.model.budget import Budget

__all__ = ["MAX_QUOTAS", "SLICES", "Quota"]

SLICES = 32
"""How many slices a window is kept in."""
MAX_QUOTAS = 1000
"""How many quotas a dataset may have in force."""


@dataclass(frozen=True, eq=False)
class Quota:
    """A limit to the use of one team, and what it has used of it.

    ``sequence`` is the entry that set it; one that is changed goes on counting. ``slices`` are what was
    spent, by the number of the slice of time, oldest first; without a window there is one. ``latest_us`` is
    the latest time that was seen.
    """

    sequence: int
    team: str
    fraction: float
    window_seconds: int | None
    slices: tuple[tuple[int, Exact], ...]
    held: Exact
    open_reservations: int = 0
    latest_us: int = 0
    removed: bool = False

    def counts(self, sequence: int) -> bool:
        """Whether what the entry with this number was granted is counted."""
        return sequence > self.sequence

    def at(self, at_us: int) -> "Quota":
        """The quota at a time, without what has left its window."""
        now_us = max(self.latest_us, at_us)
        if self.window_seconds is None:
            return replace(self, latest_us=now_us)
        kept = tuple(each for each in self.slices if self._leaves_at_us(each[0]) > now_us)
        return replace(self, slices=kept, latest_us=now_us)

    def with_fraction(self, fraction: float | None) -> "Quota":
        """With another fraction; removed without one."""
        return replace(self, removed=True) if fraction is None else replace(self, fraction=fraction)

    @property
    def used(self) -> Exact:
        """What counts: spent within the window, or held."""
        total = self.held
        for _, spent in self.slices:
            total = total.plus(spent)
        return total

    def admits(self, budget: Budget, each: Exact, times: int) -> bool:
        """Whether so many more are within the quota."""
        return budget.holds_exactly(self.used.plus(each, times), self.limits(budget))

    def limits(self, budget: Budget) -> tuple[Fraction, ...]:
        """The part of the budget's limits that may be used."""
        part = as_given(self.fraction)
        return tuple(part * limit for limit in budget.exact_limits)

    def room(self, budget: Budget) -> Floats:
        """How much more may be used at each coordinate, rounded down; negative where more was used before."""
        pairs = zip(self.limits(budget), self.used.fractions(), strict=True)
        return np.array([float_below(limit - used) for limit, used in pairs])

    def left(self, budget: Budget) -> float:
        """The part of the budget that may still be used, rounded down."""
        used = self.used
        if not any(used.numerators):
            return self.fraction
        share = 1 - Fraction(budget.fraction_left(used.above()))
        return max(0.0, float_below(as_given(self.fraction) - share))

    def remaining(self, budget: Budget) -> dict[str, Any]:
        """What may still be used in the budget's own terms, rounded down."""
        left = budget.remaining_at(self.left(budget))
        if budget.filter.allocates:
            room = [max(0.0, each) for each in self.room(budget).tolist()]
            left |= {"epsilon": room[0], "delta": room[1]}
        return left

    @property
    def frees_at_us(self) -> int | None:
        """When the window frees something, if nothing else happens; None where there is nothing in it."""
        if self.window_seconds is None or not self.slices:
            return None
        return self._leaves_at_us(self.slices[0][0])

    def charged(self, each: Exact, times: int = 1) -> "Quota":
        """After spending ``times`` of ``each`` at the latest time."""
        index = 0 if self.window_seconds is None else self.latest_us // self._slice_us
        earlier, newest = self.slices, Exact.zero(len(each.numerators))
        if earlier and earlier[-1][0] == index:
            earlier, newest = earlier[:-1], earlier[-1][1]
        return replace(self, slices=(*earlier, (index, newest.plus(each, times))))

    def reserved(self, each: Exact, times: int) -> "Quota":
        """After reserving ``times`` of ``each``."""
        return replace(self, held=self.held.plus(each, times), open_reservations=self.open_reservations + 1)

    def settled(self, each: Exact, times: int, used: int) -> "Quota":
        """After closing a reservation of ``times`` repetitions, ``used`` of which ran."""
        still_open = self.open_reservations - 1
        left = self.held.minus(each, times) if still_open else Exact.zero(len(each.numerators))
        closed = replace(self, held=left, open_reservations=still_open)
        return closed.charged(each, used) if used else closed

    def given_back(self, amounts: Exact) -> "Quota":
        """After an allocation was returned: without a window it no longer counts; within one it runs out."""
        if self.window_seconds is not None:
            return self
        return replace(self, slices=tuple((index, spent.minus(amounts, 1)) for index, spent in self.slices))

    @property
    def document(self) -> str:
        """All of it as a text, by which two are compared."""
        slices = ", ".join([f"{index}={spent.text}" for index, spent in self.slices])
        return (
            f"{self.fraction!r} for {self.team} in {self.window_seconds} s: spent {slices or 'nothing'}, "
            f"held {self.held.text} by {self.open_reservations}, seen at {self.latest_us} µs"
        )

    @property
    def _slice_us(self) -> int:
        assert self.window_seconds is not None, "a quota without a window has no slices"
        return -(-self.window_seconds * 1_000_000 // SLICES)

    def _leaves_at_us(self, index: int) -> int:
        """When the last moment of a slice has left the window."""
        assert self.window_seconds is not None, "a quota without a window frees nothing"
        return (index + 1) * self._slice_us + self.window_seconds * 1_000_000
