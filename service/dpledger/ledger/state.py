"""The state of one dataset's ledger, as it stands after an entry.

All vectors have the budget's coordinates. ``spent`` and ``reserved`` only ever pass through the
functions here, so that replaying the entries gives the stored totals bit for bit.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpledger.accounting.rounding import Direction, scale
from dpledger.accounting.sampling import Adjacency
from dpledger.accounting.validation import Floats
from dpledger.ledger.budget import Budget

__all__ = ["Book", "Crowd", "Partition", "PartitionKey", "Totals"]

PartitionKey = str
"""``fixed``: neighbours keep the partition; ``private``: a change may touch two partitions."""


def raised(first: Floats, second: Floats) -> Floats:
    """The sum with one rounding up; adding an exact zero changes nothing.

    The same bits as ``rounding.add(…, Direction.UP)`` in a third of its time: every decision adds
    several short vectors.
    """
    total: Floats = first + second
    np.nextafter(total, np.inf, out=total, where=np.logical_and(first, second))
    return total


def raised_each(first: Floats, second: Floats, times: int) -> Floats:
    """``raised(first, second)``, that and ``second`` again, and so on: a row for each of ``times`` sums.

    The same bits as one after another. After the first sum no coordinate that ``second`` adds to is
    zero, so that which ones are rounded need not be found out anew. No coordinate is negative.
    """
    rows: Floats = np.empty((times, first.size))
    rows[0] = before = raised(first, second)
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
        return raised(self.spent, self.reserved)

    def charged(self, amounts: Floats) -> "Totals":
        """After spending ``amounts``."""
        return Totals(raised(self.spent, amounts), self.reserved, self.open_reservations)

    def held(self, amounts: Floats) -> "Totals":
        """After reserving ``amounts``."""
        return Totals(self.spent, raised(self.reserved, amounts), self.open_reservations + 1)

    def settled(self, each: Floats, times: int, used: int) -> "Totals":
        """After closing a reservation of ``times`` repetitions, ``used`` of which ran.

        What is left on hold is rounded up, and is exactly zero when no reservation is open.
        """
        still_open = self.open_reservations - 1
        held = scale(each, times, Direction.UP)
        left = np.maximum(0.0, np.nextafter(self.reserved - held, np.inf))
        # A coordinate that the reservation did not touch must not creep up: an additive δ of 0 stays 0.
        reserved = np.where(held == 0.0, self.reserved, left)
        spent = raised(self.spent, scale(each, used, Direction.UP)) if used else self.spent
        return Totals(spent, reserved if still_open else np.zeros_like(reserved), still_open)


@dataclass(frozen=True, eq=False)
class Partition:
    """One disjoint part with a ledger of its own; ``budget`` is None where the dataset's applies."""

    number: int
    name: str
    budget: Budget | None
    totals: Totals

    def limits(self, dataset: Budget) -> Floats:
        """Its own limits and the dataset's, whichever is smaller at each coordinate."""
        return dataset.limits if self.budget is None else np.minimum(dataset.limits, self.budget.limits)


@dataclass(frozen=True, eq=False)
class Crowd:
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
    def empty(cls, budget: Budget) -> "Crowd":
        """No partitions: the whole may use all of the budget."""
        nothing = np.zeros(budget.size)
        nobody = np.full(budget.size, -1, dtype=np.int64)
        return cls(budget.limits, budget.limits, nothing, nothing, nobody)

    def including(self, partition: Partition, budget: Budget) -> "Crowd":
        """After ``partition`` was opened or its committed amounts grew."""
        committed, limits = partition.totals.committed, partition.limits(budget)
        room = np.nextafter(limits - committed, -np.inf)
        room = np.where(committed == 0.0, limits, room)
        own = self.holder == partition.number
        overtakes = ~own & (committed > self.first)
        second = np.where(
            own, self.second, np.where(overtakes, self.first, np.maximum(self.second, committed))
        )
        return Crowd(
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
class Book:
    """One dataset's ledger after its entry number ``sequence``; ``head`` is that entry's hash.

    ``guarantee`` has the largest limits that were ever in force, ``guaranteed_since`` is the entry that
    brought the last of them; see :mod:`dpledger.ledger.guarantee`.
    """

    dataset_id: int
    name: str
    adjacency: Adjacency
    partition_key: PartitionKey
    budget: Budget
    whole: Totals
    crowd: Crowd
    partitions: int
    sequence: int
    head: bytes
    guarantee: Budget
    guaranteed_since: int

    def charged(self, spent: Floats, sequence: int, head: bytes) -> "Book":
        """With ``spent`` on the whole after the entry with this number and hash, nothing being reserved."""
        return Book(
            self.dataset_id,
            self.name,
            self.adjacency,
            self.partition_key,
            self.budget,
            Totals(spent, self.whole.reserved),
            self.crowd,
            self.partitions,
            sequence,
            head,
            self.guarantee,
            self.guaranteed_since,
        )

    def committed_for(self, partition: Partition | None) -> Floats:
        """What a record may have borne so far: the whole, and its partition (two under a private key)."""
        whole = self.whole.committed
        if not self.partitions:
            return whole
        if partition is not None:
            own = raised(whole, partition.totals.committed)
            if self.partition_key == "fixed":
                return own
            return raised(own, self.crowd.largest_other(partition.number))
        worst = self.crowd.first
        if self.partition_key == "private":
            worst = raised(worst, self.crowd.second)
        return raised(whole, worst)

    def fraction_left(self, partition: Partition | None) -> float:
        """The part that is left of the limits that apply, a partition's own included."""
        committed = self.committed_for(partition)
        if partition is None or partition.budget is None:
            return self.budget.fraction_left(committed)
        return replace(self.budget, limits=partition.limits(self.budget)).fraction_left(committed)

    def told_in(self, partition: Partition | None) -> Budget:
        """The budget in whose terms what is left is told."""
        return self.budget.narrowed(None if partition is None else partition.budget)

    def remaining(self, partition: Partition | None) -> dict[str, Any]:
        """What is left in the budget's own terms, rounded down."""
        return self.told_in(partition).remaining_at(self.fraction_left(partition))

    def fits(self, amounts: Floats, partition: Partition | None) -> bool:
        """Whether the filter still holds, for every record, after adding ``amounts``."""
        # A sum that overflows is infinite, and no limit is: it does not fit.
        with np.errstate(over="ignore"):
            return self._fits(amounts, partition)

    def _fits(self, amounts: Floats, partition: Partition | None) -> bool:
        committed, limits = self._bounded(partition)
        return self.budget.holds(raised(committed, amounts), limits)

    def room(self, partition: Partition | None) -> Floats:
        """How much more fits at each coordinate, for every record that a spend would concern."""
        committed, limits = self._bounded(partition)
        return limits - committed

    def _bounded(self, partition: Partition | None) -> tuple[Floats, Floats]:
        """What is committed where a spend would be added, and the limits that it is held against."""
        if self.partition_key != "fixed":
            return self.committed_for(partition), self.crowd.least_limit
        if partition is None:
            return self.whole.committed, self.crowd.headroom
        return self.committed_for(partition), partition.limits(self.budget)
