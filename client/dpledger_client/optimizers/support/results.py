"""Results: the parameters, and every charge on the way to them."""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias, overload

import numpy as np

from dpledger_client._arrays import Floats
from dpledger_client._html import amounts_text, bar_text, table
from dpledger_client._models import Cost, Granted
from dpledger_client.errors import BudgetExhausted
from dpledger_client.releases import Release
from dpledger_client.samples import Sample

__all__ = [
    "Charge",
    "Charged",
    "History",
    "Iterate",
    "IterationLog",
    "Noted",
    "Record",
    "Result",
    "Run",
    "total_cost",
]


class Charge(NamedTuple):
    """One step that the ledger charged.

    Attributes
    ----------
    id, sequence
        The authorization or reservation, and its place in the ledger.
    dataset, partition
        Where it was charged.
    releases, sample
        What was asked, as it was described to the ledger.
    cost
        What this step cost.
    repetition
        Its number among the steps of a reservation, or None if it was authorized by itself.
    """

    id: str
    sequence: int
    dataset: str
    partition: str | None
    releases: tuple[Release, ...]
    sample: Sample
    cost: Cost
    repetition: int | None = None

    @classmethod
    def of(
        cls, granted: Granted, releases: tuple[Release, ...], sample: Sample, repetition: int | None
    ) -> "Charge":
        """What was granted, as a charge."""
        return cls(
            granted.id,
            granted.sequence,
            granted.dataset,
            granted.partition,
            releases,
            sample,
            granted.cost,
            repetition,
        )


class Record(NamedTuple):
    """One iteration: its charges, and what the method tells of it. Nothing here is secret."""

    iteration: int
    charges: tuple[Charge, ...]
    details: Mapping[str, Any]


_MOST_SUMMED = 10_000
Noted: TypeAlias = tuple[Granted, tuple[Release, ...], Sample, int | None]
"""What :meth:`Charge.of` takes."""


class Run:
    """Iterations in a row that were noted alike: of one reservation the next repetition each.

    A note must cost a training next to nothing, so that such iterations are counted, not kept.

    Attributes
    ----------
    place, iteration
        The first one's place among all notes, and its number.
    charges, details
        The first one's.
    count
        How many they are.
    """

    __slots__ = ("charges", "count", "details", "iteration", "place")

    def __init__(
        self, place: int, iteration: int, charges: Sequence[Noted], details: Mapping[str, Any]
    ) -> None:
        self.place = place
        self.iteration = iteration
        self.charges = charges
        self.details = details
        self.count = 1

    def record(self, number: int) -> Record:
        """One of them, by its number from 0."""
        charges = (
            Charge.of(granted, releases, sample, None if first is None else first + number)
            for granted, releases, sample, first in self.charges
        )
        return Record(self.iteration + number, tuple(charges), self.details)


class IterationLog:
    """What a training noted of its iterations."""

    def __init__(self) -> None:
        self._runs: list[Run] = []

    def __len__(self) -> int:
        return self._runs[-1].place + self._runs[-1].count if self._runs else 0

    def add(self, iteration: int, charges: Sequence[Noted], details: Mapping[str, Any]) -> Run:
        """Note an iteration; the next ones may be counted in the run that it begins."""
        run = Run(len(self), iteration, charges, details)
        self._runs.append(run)
        return run

    def record(self, place: int) -> Record:
        """The iteration that was noted as number ``place``, from 0."""
        run = self._runs[bisect_right(self._runs, place, key=lambda run: run.place) - 1]
        return run.record(place - run.place)


class History(Sequence[Record]):
    """One record per iteration, made of a training's notes when it is looked at."""

    def __init__(self, notes: IterationLog, places: range | None = None) -> None:
        self._notes = notes
        self._places = range(len(notes)) if places is None else places

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, place: int) -> Record: ...
    @overload
    def __getitem__(self, place: slice) -> "History": ...
    def __getitem__(self, place: int | slice) -> "Record | History":
        if isinstance(place, slice):
            return History(self._notes, self._places[place])
        return self._notes.record(self._places[place])


@dataclass(frozen=True)
class Iterate:
    """What a callback is shown after each iteration."""

    iteration: int
    w: Floats
    details: Mapping[str, Any]
    remaining: Mapping[str, Any]


class Charged:
    """What has a history of charges."""

    history: Sequence[Record]

    @property
    def charges(self) -> tuple[Charge, ...]:
        """Every charge, in order."""
        return tuple(charge for record in self.history for charge in record.charges)

    @property
    def charged(self) -> bool:
        """Whether anything was charged, without listing all charges."""
        return any(record.charges for record in self.history)

    @property
    def spent(self) -> Cost:
        """The sum of all charges, rounded up; the ledger's own totals are what counts."""
        return total_cost([charge.cost for charge in self.charges])

    @property
    def spent_by_partition(self) -> dict[tuple[str, str | None], Cost]:
        """The sum of the charges on each dataset or partition, for several participants."""
        costs: dict[tuple[str, str | None], list[Cost]] = {}
        for charge in self.charges:
            costs.setdefault((charge.dataset, charge.partition), []).append(charge.cost)
        return {charged: total_cost(several) for charged, several in costs.items()}


@dataclass(frozen=True)
class Result(Charged):
    """What :func:`~dpledger_client.optimizers.minimize` returns.

    Attributes
    ----------
    w
        The method's output: the last good iterate, or the average that the method asks for.
    stop_reason
        ``finished``, ``budget-exhausted``, ``callback``, ``diverged``, or a reason of the method's own.
    message
        The same for a person.
    iterations
        How many were completed.
    history
        One record an iteration. A charge whose iteration was not completed is in the last record.
    remaining
        What the ledger said is left after the last charge.
    refusal
        What the ledger refused, if that ended it: what was asked, what is left, what would fit.
    plan
        What was planned for an (ε, δ) or a share of what is left, where the rule chose the parameters.
    """

    w: Floats
    method: str
    stop_reason: str
    message: str
    iterations: int
    history: Sequence[Record] = field(repr=False)
    remaining: Mapping[str, Any] = field(repr=False)
    refusal: BudgetExhausted | None = field(default=None, repr=False)
    plan: Any = field(default=None, repr=False)

    def _repr_html_(self) -> str:
        """What came out and what it cost, as a table for notebooks."""
        left = self.remaining.get("fraction")
        return table(
            f"{self.method}: {self.stop_reason}",
            [
                ("message", self.message),
                ("iterations", self.iterations),
                ("parameters", np.size(self.w)),
                ("spent", self._spent_text()),
                ("remaining", amounts_text(self.remaining, up=False)),
                ("left", None if left is None else bar_text(left)),
            ],
        )

    def _spent_text(self) -> str | None:
        """The sum of all charges; None where they are too many to add up each time a cell is shown."""
        if len(self.history) > _MOST_SUMMED:
            return None
        cost = self.spent
        named = {name: getattr(cost, name) for name in ("pure_epsilon", "rho", "mu")}
        beside = {"orders": cost.orders, "additive_delta": cost.delta}
        return amounts_text({**named, **beside}, up=True) or "nothing"


def total_cost(costs: Sequence[Cost]) -> Cost:
    """The sum of costs on one grid of orders, each addition rounded up; a notion that one lacks is None."""
    if not costs:
        return Cost((), ())
    curves = [np.array(cost.epsilons) for cost in costs]
    total = curves[0]
    for curve in curves[1:]:
        total = np.nextafter(total + curve, np.inf)
    return Cost(
        costs[0].orders,
        tuple(float(value) for value in total),
        delta=_sum_up([cost.delta for cost in costs]) or 0.0,
        rho=_sum_up([cost.rho for cost in costs]),
        mu=_norm_up([cost.mu for cost in costs]),
        pure_epsilon=_sum_up([cost.pure_epsilon for cost in costs]),
    )


def _sum_up(values: Sequence[float | None]) -> float | None:
    """The exact sum, rounded up once; None if one is."""
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    total = math.fsum(known)
    return math.nextafter(total, math.inf) if len(known) > 1 and total > 0.0 else total


def _norm_up(values: Sequence[float | None]) -> float | None:
    """The root of the sum of squares, rounded up; None if one is."""
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    return known[0] if len(known) == 1 else math.hypot(*known) * (1.0 + 2.0**-50)
