"""The state of one dataset's ledger, as it stands after an entry.

All vectors have the budget's coordinates. ``spent`` and ``reserved`` only ever pass through the
functions here, so that replaying the entries gives the stored totals bit for bit.

Totals are exact rational numbers (:class:`ExactTotals`), and so is what decides, for the whole of a dataset
as for one of its partitions; the floats beside them are rounded up, for showing. What is kept of all
partitions together (:class:`PartitionExtremes`) is floats rounded outward: a spend on the whole beside
partitions, or under a private key, is decided exactly against bounds that may be a few units in the
last place narrow.
Ledgers opened before totals were exact (:class:`Totals`) go on in floats, rounding each sum up.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from dpledger.accounting.exact import Exact
from dpledger.accounting.rounding import Direction, scale
from dpledger.accounting.sampling import Adjacency
from dpledger.accounting.validation import Floats
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.entries import Charge

__all__ = [
    "Amounts",
    "AnyTotals",
    "ExactTotals",
    "LedgerState",
    "Partition",
    "PartitionExtremes",
    "PartitionKey",
    "Totals",
    "nothing_spent",
]

Amounts = Floats | Exact
"""What a step adds: exact numbers, or floats in a ledger that rounds."""

PartitionKey = str
"""``fixed``: neighbours keep the partition; ``private``: a change may touch two partitions."""


def add_up(first: Floats, second: Floats) -> Floats:
    """The sum with one rounding up; adding an exact zero changes nothing.

    The same bits as ``rounding.add(…, Direction.UP)`` in a third of its time: every decision adds
    several short vectors.
    """
    total: Floats = first + second
    np.nextafter(total, np.inf, out=total, where=np.logical_and(first, second))
    return total


def add_up_each(first: Floats, second: Floats, times: int) -> Floats:
    """``add_up(first, second)``, that and ``second`` again, and so on: a row for each of ``times`` sums.

    The same bits as one after another. After the first sum no coordinate that ``second`` adds to is
    zero, so that which ones are rounded need not be found out anew. No coordinate is negative.
    """
    rows: Floats = np.empty((times, first.size))
    rows[0] = before = add_up(first, second)
    touched = second != 0.0
    for row in rows[1:]:
        np.add(before, second, out=row)
        np.nextafter(row, np.inf, out=row, where=touched)
        before = row
    return rows


@dataclass(frozen=True, eq=False)
class Totals:
    """What is spent for good, and what is held by open reservations."""

    spent: Floats
    reserved: Floats
    open_reservations: int = 0

    @classmethod
    def zero(cls, size: int) -> "Totals":
        """Nothing spent, nothing held."""
        return cls(np.zeros(size), np.zeros(size))

    @property
    def committed(self) -> Floats:
        """Spent and reserved together, rounded up: what every decision looks at."""
        if not self.open_reservations:
            return self.spent
        return add_up(self.spent, self.reserved)

    @property
    def shown_reserved(self) -> Floats:
        """What is held, to be read."""
        return self.reserved

    def charged(self, amounts: Floats) -> "Totals":
        """After spending ``amounts``."""
        return Totals(add_up(self.spent, amounts), self.reserved, self.open_reservations)

    def held(self, amounts: Floats) -> "Totals":
        """After reserving ``amounts``."""
        return Totals(self.spent, add_up(self.reserved, amounts), self.open_reservations + 1)

    def settled(self, each: Floats, times: int, used: int) -> "Totals":
        """After closing a reservation of ``times`` repetitions, ``used`` of which ran.

        What is left on hold is rounded up, and is exactly zero when no reservation is open.
        """
        still_open = self.open_reservations - 1
        held = scale(each, times, Direction.UP)
        left = np.maximum(0.0, np.nextafter(self.reserved - held, np.inf))
        # A coordinate that the reservation did not touch must not creep up: an additive δ of 0 stays 0.
        reserved = np.where(held == 0.0, self.reserved, left)
        spent = add_up(self.spent, scale(each, used, Direction.UP)) if used else self.spent
        return Totals(spent, reserved if still_open else np.zeros_like(reserved), still_open)


@dataclass(frozen=True, eq=False)
class ExactTotals:
    """What is spent for good, and what is held by open reservations, as exact numbers."""

    exact_spent: Exact
    exact_reserved: Exact
    open_reservations: int = 0

    @classmethod
    def zero(cls, size: int) -> "ExactTotals":
        """Nothing spent, nothing held."""
        return cls(Exact.zero(size), Exact.zero(size))

    @cached_property
    def spent(self) -> Floats:
        """What is spent, in floats rounded up."""
        return self.exact_spent.above()

    @cached_property
    def reserved(self) -> Floats:
        """What is held, in floats rounded up."""
        return self.exact_reserved.above() if self.open_reservations else np.zeros(self.size)

    @property
    def size(self) -> int:
        """How many coordinates there are."""
        return len(self.exact_spent.numerators)

    @property
    def exact_committed(self) -> Exact:
        """Spent and reserved together: what every decision looks at."""
        if not self.open_reservations:
            return self.exact_spent
        return self.exact_spent.plus(self.exact_reserved)

    @property
    def committed(self) -> Floats:
        """The same in floats, rounded up."""
        return self.exact_committed.above() if self.open_reservations else self.spent

    @property
    def shown_reserved(self) -> Floats:
        """What is held, to be read: the numbers as they are written on paper."""
        return self.exact_reserved.shown()

    def charged(self, amounts: Exact) -> "ExactTotals":
        """After spending ``amounts``."""
        return replace(self, exact_spent=self.exact_spent.plus(amounts))

    def held(self, each: Exact, times: int) -> "ExactTotals":
        """After reserving ``times`` of ``each``."""
        held = self.exact_reserved.plus(each, times)
        return ExactTotals(self.exact_spent, held, self.open_reservations + 1)

    def settled(self, each: Exact, times: int, used: int) -> "ExactTotals":
        """After closing a reservation of ``times`` repetitions, ``used`` of which ran."""
        still_open = self.open_reservations - 1
        left = self.exact_reserved.minus(each, times) if still_open else Exact.zero(self.size)
        spent = self.exact_spent.plus(each, used) if used else self.exact_spent
        return ExactTotals(spent, left, still_open)


AnyTotals = Totals | ExactTotals


def nothing_spent(budget: Budget) -> AnyTotals:
    """The totals of a ledger that opens with this budget, which says how it adds up."""
    return Totals.zero(budget.size) if budget.exact is None else ExactTotals.zero(budget.size)


@dataclass(frozen=True, eq=False)
class Partition:
    """One disjoint part with a ledger of its own; ``budget`` is None where the dataset's applies."""

    number: int
    name: str
    budget: Budget | None
    totals: AnyTotals

    def limits(self, dataset: Budget) -> Floats:
        """Its own limits and the dataset's, whichever is smaller at each coordinate."""
        return dataset.limits if self.budget is None else np.minimum(dataset.limits, self.budget.limits)

    def limits_below(self, dataset: Budget) -> Floats:
        """The same in floats that are nowhere above the exact limits."""
        own = self.budget
        return dataset.limits_below if own is None else np.minimum(dataset.limits_below, own.limits_below)

    def exact_limits(self, dataset: Budget) -> tuple[Fraction, ...]:
        """The same exactly."""
        if self.budget is None:
            return dataset.exact_limits
        return tuple(map(min, dataset.exact_limits, self.budget.exact_limits))


@dataclass(frozen=True, eq=False)
class PartitionExtremes:
    """What a decision needs to know of all partitions together, whatever their number.

    ``headroom`` is the least over partitions of (limit − committed), so what is spent on the whole
    must stay within it. ``first`` and ``second`` are the two largest committed amounts at each
    coordinate and ``holder`` the partition that has the first: under a private key a change touches
    two partitions and the two largest add up.
    """

    headroom: Floats
    least_limit: Floats
    first: Floats
    second: Floats
    holder: np.ndarray[tuple[int], np.dtype[np.int64]]

    @classmethod
    def empty(cls, budget: Budget) -> "PartitionExtremes":
        """No partitions: the whole may use all of the budget."""
        nothing = np.zeros(budget.size)
        nobody = np.full(budget.size, -1, dtype=np.int64)
        return cls(budget.limits_below, budget.limits_below, nothing, nothing, nobody)

    def including(self, partition: Partition, budget: Budget) -> "PartitionExtremes":
        """After ``partition`` was opened or its committed amounts grew."""
        committed, limits = partition.totals.committed, partition.limits_below(budget)
        room = np.nextafter(limits - committed, -np.inf)
        room = np.where(committed == 0.0, limits, room)
        own = self.holder == partition.number
        overtakes = ~own & (committed > self.first)
        second = np.where(
            own, self.second, np.where(overtakes, self.first, np.maximum(self.second, committed))
        )
        return PartitionExtremes(
            np.minimum(self.headroom, room),
            np.minimum(self.least_limit, limits),
            np.where(own | overtakes, committed, self.first),
            second,
            np.where(overtakes, partition.number, self.holder),
        )

    def largest_other(self, number: int) -> Floats:
        """The largest committed amount among the partitions other than ``number``."""
        return np.where(self.holder == number, self.second, self.first)


@dataclass(frozen=True, eq=False)
class LedgerState:
    """One dataset's ledger after its entry number ``sequence``; ``head`` is that entry's hash.

    ``guarantee`` has the largest limits that were ever in force, ``guaranteed_since`` is the entry that
    brought the last of them; see :mod:`dpledger.ledger.guarantee`. ``has_quotas`` tells whether there is or
    was a quota, ``governed`` whether there is or was a request for
    budget or a policy of renewal.
    """

    dataset_id: int
    name: str
    adjacency: Adjacency
    partition_key: PartitionKey
    budget: Budget
    whole: AnyTotals
    extremes: PartitionExtremes
    partitions: int
    sequence: int
    head: bytes
    guarantee: Budget
    guaranteed_since: int
    has_quotas: bool = False
    governed: bool = False

    def charged(self, whole: AnyTotals, sequence: int, head: bytes) -> "LedgerState":
        """With what is spent on the whole after the entry with this number and hash."""
        return LedgerState(
            self.dataset_id,
            self.name,
            self.adjacency,
            self.partition_key,
            self.budget,
            whole,
            self.extremes,
            self.partitions,
            sequence,
            head,
            self.guarantee,
            self.guaranteed_since,
            self.has_quotas,
            self.governed,
        )

    def committed_for(self, partition: Partition | None) -> Floats:
        """What a record may have borne so far: the whole, and its partition (two under a private key)."""
        whole = self.whole.committed
        if not self.partitions:
            return whole
        if partition is not None:
            own = add_up(whole, partition.totals.committed)
            if self.partition_key == "fixed":
                return own
            return add_up(own, self.extremes.largest_other(partition.number))
        worst = self.extremes.first
        if self.partition_key == "private":
            worst = add_up(worst, self.extremes.second)
        return add_up(whole, worst)

    def fraction_left(self, partition: Partition | None) -> float:
        """The part that is left of the limits that apply, a partition's own included."""
        committed = self.committed_for(partition)
        if partition is None or partition.budget is None:
            return self.budget.fraction_left(committed)
        return replace(self.budget, limits=partition.limits(self.budget)).fraction_left(committed)

    def display_budget(self, partition: Partition | None) -> Budget:
        """The budget in whose terms what is left is reported."""
        return self.budget.narrow(None if partition is None else partition.budget)

    def remaining(self, partition: Partition | None) -> dict[str, Any]:
        """What is left in the budget's own terms, rounded down."""
        left = self.display_budget(partition).remaining_at(self.fraction_left(partition))
        if self.budget.filter.allocates and isinstance(self.whole, ExactTotals):
            left |= self.budget.filter.terms_left(self.budget, self.whole.exact_committed)
        return left

    def amounts_of(self, charge: Charge) -> Amounts:
        """What one such step adds."""
        return charge.exactly(self.budget) if isinstance(self.whole, ExactTotals) else charge.amounts

    def shown_for(self, partition: Partition | None) -> Floats:
        """:meth:`committed_for`, to be read: numbers as they are written on paper, where they are known."""
        alone = not self.partitions or (partition is not None and self.partition_key == "fixed")
        if isinstance(self.whole, ExactTotals) and alone:
            return self._exactly_bounded(partition)[0].shown()
        return self.committed_for(partition)

    def fits(self, each: Amounts, partition: Partition | None, times: int = 1) -> bool:
        """Whether the filter still holds, for every record, after adding ``each`` so many times."""
        if not isinstance(self.whole, ExactTotals):
            assert isinstance(each, np.ndarray), "this ledger adds floats"
            # A sum that overflows is infinite, and no limit is: it does not fit.
            with np.errstate(over="ignore"):
                return self._fits(scale(each, times, Direction.UP), partition)
        if isinstance(each, np.ndarray):
            if not np.isfinite(each).all():
                return False
            each = Exact.of_floats(each)
        committed, limits = self._exactly_bounded(partition)
        return self.budget.holds_exactly(committed.plus(each, times), limits)

    def _fits(self, amounts: Floats, partition: Partition | None) -> bool:
        committed, limits = self._bounds(partition)
        return self.budget.holds(add_up(committed, amounts), limits)

    def room(self, partition: Partition | None) -> Floats:
        """How much more fits at each coordinate, for every record that a spend would concern."""
        committed, limits = self._bounds(partition)
        return limits - committed

    def _bounds(self, partition: Partition | None) -> tuple[Floats, Floats]:
        """What is committed where a spend would be added, and the limits that it is held against."""
        if self.partition_key != "fixed":
            return self.committed_for(partition), self.extremes.least_limit
        if partition is None:
            return self.whole.committed, self.extremes.headroom
        return self.committed_for(partition), partition.limits_below(self.budget)

    def _exactly_bounded(self, partition: Partition | None) -> tuple[Exact, tuple[Fraction, ...] | None]:
        """The same exactly; None for the budget's own limits. What is known of others is rounded outward."""
        assert isinstance(self.whole, ExactTotals)
        committed = self.whole.exact_committed
        if partition is not None:
            assert isinstance(partition.totals, ExactTotals)
            committed = committed.plus(partition.totals.exact_committed)
        if not self.partitions:
            return committed, None
        if self.partition_key == "fixed":
            return committed, (
                self._recovered(self.extremes.headroom)
                if partition is None
                else partition.exact_limits(self.budget)
            )
        others = [self.extremes.first, self.extremes.second]
        if partition is not None:
            others = [self.extremes.largest_other(partition.number)]
        for each in others:
            committed = committed.plus(Exact.of(self._recovered(each)))
        return committed, self._recovered(self.extremes.least_limit)

    def _recovered(self, bounds: Floats) -> tuple[Fraction, ...]:
        return self.budget.filter.recover_bounds(self.budget, bounds)
