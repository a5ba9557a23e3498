"""A ledger without storage: decides, remembers every entry, and keeps an exact account beside it."""

from collections import defaultdict
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from dpledger.accounting.exact import Exact
from dpledger.ledger.decide import Granted, Refused, Stamp, decide, partition_extremes
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.commands import (
    Authorize,
    ChangeBudget,
    Command,
    Expire,
    OpenPartitions,
    Reservation,
    Reserve,
    Settle,
)
from dpledger.ledger.model.entries import Charge
from dpledger.ledger.model.state import LedgerState, Partition
from dpledger.ledger.ports import StoredEntry
from tests.ledger.builders import opened

WHOLE = -1


def exact(amounts: Any) -> list[Fraction]:
    if isinstance(amounts, Exact):
        return amounts.fractions()
    return [Fraction(float(value)) for value in amounts]


@dataclass
class Driver:
    """Plays the part of service and storage; ``account`` holds exact sums a partition (whole: -1)."""

    state: LedgerState
    stored: list[StoredEntry]
    partitions: dict[int, Partition] = field(default_factory=dict)
    held: dict[int, Reservation] = field(default_factory=dict)
    account: dict[int, list[Fraction]] = field(default_factory=dict)

    @classmethod
    def of(cls, budget: Budget, partition_key: str = "fixed") -> "Driver":
        state, first = opened(budget, partition_key)
        return cls(state, [first], account=defaultdict(lambda: [Fraction(0)] * budget.size))

    def run(self, command: Command, charge: Charge | None = None) -> Granted | Refused:
        outcome = decide(self.state, command, Stamp(self.state.sequence + 1, "ann"))
        if isinstance(outcome, Granted):
            self._take(outcome, charge)
        return outcome

    def authorize(self, charge: Charge, number: int | None = None) -> Granted | Refused:
        outcome = self.run(Authorize(charge, "run", self._partition(number)), charge)
        if isinstance(outcome, Granted):
            self._add(number, charge, 1)
        return outcome

    def reserve(self, charge: Charge, times: int, number: int | None = None) -> Granted | Refused:
        outcome = self.run(Reserve(charge, "run", times, 10**9, self._partition(number)), charge)
        if isinstance(outcome, Granted):
            self._add(number, charge, times)
            sequence = outcome.entry.sequence
            self.held[sequence] = Reservation(sequence, charge, "run", times, 10**9, self._partition(number))
        return outcome

    def close(self, sequence: int, used: int | None) -> None:
        """Settle with ``used``, or expire where it is None."""
        held = self.held.pop(sequence)
        number = None if held.partition is None else held.partition.number
        held = replace(held, partition=self._partition(number))
        self.run(Expire(held) if used is None else Settle(held, used))
        self._add(number, held.charge, 0 if used is None else used - held.times)

    def open(self, *names: str, budget: Budget | None = None) -> None:
        self.run(OpenPartitions(names, budget))

    def change(self, budget: Budget) -> None:
        self.run(ChangeBudget(budget, "reason"))

    def _partition(self, number: int | None) -> Partition | None:
        return None if number is None else self.partitions[number]

    def _add(self, number: int | None, charge: Charge, times: int) -> None:
        key = WHOLE if number is None else number
        added = [times * amount for amount in exact(self.state.amounts_of(charge))]
        self.account[key] = [a + b for a, b in zip(self.account[key], added, strict=True)]

    def _take(self, granted: Granted, charge: Charge | None) -> None:
        state = granted.state
        for partition in granted.partitions:
            self.partitions[partition.number] = partition
        if granted.recount:
            state = replace(state, extremes=partition_extremes(state, self.partitions.values()))
        self.state = state
        self.stored.append(StoredEntry(granted.entry, granted.entry.hash, charge))

    def borne(self) -> list[tuple[list[Fraction], list[Fraction]]]:
        """For every record that may exist: what it has borne exactly, and the limits that apply to it."""
        whole, limits = self.account[WHOLE], list(self.state.budget.exact_limits)
        if not self.partitions:
            return [(whole, limits)]
        return [
            (_sum(whole, *(self.account[number] for number in touched)), self._limits(touched))
            for touched in self._touched()
        ]

    def _touched(self) -> list[tuple[int, ...]]:
        numbers = sorted(self.partitions)
        if self.state.partition_key == "fixed" or len(numbers) == 1:
            return [(number,) for number in numbers]
        return [(a, b) for a in numbers for b in numbers if a < b]

    def _limits(self, touched: tuple[int, ...]) -> list[Fraction]:
        each = [self.partitions[number].exact_limits(self.state.budget) for number in touched]
        return [min(column) for column in zip(*each, strict=True)]


def _sum(*vectors: list[Fraction]) -> list[Fraction]:
    return [sum(column, Fraction(0)) for column in zip(*vectors, strict=True)]


def holds_exactly(budget: Budget, borne: list[Fraction], limits: list[Fraction]) -> bool:
    """The rule of the filter in exact arithmetic, written apart from the code that decides."""
    within = [amount <= limit for amount, limit in zip(borne, limits, strict=True)]
    if budget.accounting == "rdp":
        return within[-1] and any(within[:-1])
    return all(within)
