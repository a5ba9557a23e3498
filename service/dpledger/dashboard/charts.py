"""The numbers that are drawn. Each figure's numbers stand in a table beside it, and are drawn from there."""

import heapq
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dpledger.accounting.validation import Floats
from dpledger.dashboard.formatting import amount_text, relative_noise, step_text
from dpledger.ledger.model.allocation import Allocation
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.filter import Meter
from dpledger.storage.read_models.dashboard import Level, Step
from dpledger.storage.read_models.listing import Anchors

__all__ = [
    "CurvePoint",
    "ItemPoint",
    "NoisePoint",
    "PlanEnd",
    "Point",
    "Projection",
    "StepPoint",
    "allocated_points",
    "burn_down",
    "curve",
    "item_points",
    "noise_points",
    "pace_points",
    "plan_end",
    "projection",
    "step_points",
    "window_starts",
]

_DAY_US = 86_400_000_000
_PACES = ((_DAY_US, "24 hours"), (7 * _DAY_US, "7 days"), (30 * _DAY_US, "30 days"))
_SHORTEST_PACE_US = 60_000_000
_CAP_USED_UP = 1.0 - 1e-4
_STILL_PAUSES = 10
_LEAST_STILL_US = 600_000_000
_LONGEST_PROJECTION_US = 3650 * _DAY_US


@dataclass(frozen=True)
class Point:
    """What was left at a time, after an entry."""

    at_us: int
    sequence: int
    fraction: float


@dataclass(frozen=True)
class Projection:
    """When the budget runs out at the pace of a past window; ``at_us`` is None where there is no pace."""

    at_us: int | None
    window: str


@dataclass(frozen=True)
class CurvePoint:
    """One order of the filter: what is spent there, what may be, and whether it is the one that binds."""

    order: float
    spent: float
    limit: float
    share: float
    binds: bool


@dataclass(frozen=True)
class ItemPoint:
    """One item of a budget: what it takes in words, and what is used and held of it, in its own terms.

    ``used`` is without what is held. ``share`` is both together as a part of the limit, ``held_share`` what
    is held alone. ``symbol`` is empty where whole steps are counted.
    """

    name: str
    what: str
    symbol: str
    used: str
    held: str
    limit: str
    share: float
    held_share: float

    @property
    def is_used_up(self) -> bool:
        """Whether no step of it is left, or less than a ten-thousandth of a cap."""
        return self.share >= (_CAP_USED_UP if self.symbol else 1.0)


@dataclass(frozen=True)
class NoisePoint:
    """One release of a step: its mechanism, and its noise over its sensitivity."""

    sequence: int
    at_us: int
    mechanism: str
    relative: float


@dataclass(frozen=True)
class StepPoint:
    """One step of a run: what it cost as a share of the budget, alone and with all steps before it."""

    sequence: int
    at_us: int
    times: int
    cost: float
    total: float
    purpose: str


def burn_down(
    levels: Sequence[Level], opened_at_us: int, last: Point, now_us: int, since_us: int | None = None
) -> list[Point]:
    """From the whole budget at the opening, over what was kept, to what is left now.

    With ``since_us`` it begins with what was left then.
    """
    points = [Point(opened_at_us, 1, 1.0)]
    points += [Point(level.at_us, level.sequence, level.fraction) for level in levels]
    if since_us is not None and since_us > opened_at_us:
        before = [point for point in points if point.at_us <= since_us]
        points = [Point(since_us, before[-1].sequence, before[-1].fraction), *points[len(before) :]]
    if last.sequence > points[-1].sequence and last.at_us >= points[0].at_us:
        points.append(last)
    if now_us > points[-1].at_us:
        points.append(Point(now_us, last.sequence, last.fraction))
    return points


def window_starts(now_us: int) -> list[int]:
    """Where the windows begin from which a pace is taken."""
    return [now_us - window_us for window_us, _ in _PACES]


def pace_points(anchors: Anchors | None, opened_at_us: int, last: Point, now_us: int) -> list[Point]:
    """As few points as give the projection of a whole burn-down: where windows begin, and the first spend."""
    points = [Point(opened_at_us, 1, 1.0)]
    if anchors is not None and anchors.first_us is not None and anchors.first_fraction is not None:
        points.append(Point(anchors.first_us, 1, anchors.first_fraction))
    if anchors is not None:
        times = [max(at_us, opened_at_us) for at_us in window_starts(now_us)]
        pairs = zip(times, anchors.at, strict=True)
        points += [Point(at_us, 1, 1.0 if left is None else left) for at_us, left in pairs]
    points.sort(key=lambda point: point.at_us)
    return [*points, last, Point(max(now_us, last.at_us), 1, last.fraction)]


def projection(points: Sequence[Point], now_us: int) -> Projection:
    """When nothing is left if it goes on as it did.

    The pace is that of the shortest window with spending in it: the last day, week or month. It
    starts with the first spend where that is later than the window does.
    """
    left = points[-1].fraction
    if left <= 0.0:
        return Projection(None, "")
    first_spend = next((point.at_us for point in points if point.fraction < 1.0), now_us)
    for window_us, words in _PACES:
        start_us = max(now_us - window_us, points[0].at_us)
        spent = _left_at(points, start_us) - left
        elapsed_us = now_us - max(start_us, min(first_spend, now_us))
        if spent > 0.0 and elapsed_us >= _SHORTEST_PACE_US:
            remaining_us = left / spent * elapsed_us
            at_us = now_us + int(remaining_us) if remaining_us < _LONGEST_PROJECTION_US else None
            return Projection(at_us, words)
    return Projection(None, "")


def _left_at(points: Sequence[Point], at_us: int) -> float:
    """What was left at a time: the last point until then."""
    before = [point.fraction for point in points if point.at_us <= at_us]
    return before[-1] if before else points[0].fraction


@dataclass(frozen=True)
class PlanEnd:
    """What is left to a run of the items that it uses, and when it has used them up at its own rate.

    ``at_us`` is None where there is no rate: the run has not spent for a while, or only once.
    """

    items: tuple[str, ...]
    steps: int
    per_hour: float | None
    at_us: int | None


def plan_end(items: tuple[str, ...], steps: int, spent: Sequence[tuple[int, int]], now_us: int) -> PlanEnd:
    """The end of a run's plan; ``spent`` are times and numbers of its latest steps, the latest first.

    A run that has been still for ten of its mean pauses, and for ten minutes at least, has no rate.
    """
    elapsed_us = spent[0][0] - spent[-1][0] if len(spent) > 1 else 0
    done = sum(times for _, times in spent[:-1])
    if elapsed_us <= 0 or done <= 0:
        return PlanEnd(items, steps, None, None)
    pause_us = max(_LEAST_STILL_US, _STILL_PAUSES * elapsed_us // (len(spent) - 1))
    if now_us - spent[0][0] > pause_us:
        return PlanEnd(items, steps, None, None)
    remaining_us = elapsed_us * steps / done
    at_us = spent[0][0] + int(remaining_us) if remaining_us < _LONGEST_PROJECTION_US else None
    return PlanEnd(items, steps, done * 3_600_000_000 / elapsed_us, at_us and max(at_us, now_us))


def curve(budget: Budget, committed: Floats) -> list[CurvePoint]:
    """Spent against limit at every order; empty where the accounting adds up one number only."""
    if not budget.orders.size:
        return []
    binds = budget.filter.binding(budget, committed)
    return [
        CurvePoint(
            float(order),
            float(committed[index]),
            float(budget.limits[index]),
            budget.filter.share(budget, committed, index),
            index == binds,
        )
        for index, order in enumerate(budget.orders)
    ]


def item_points(budget: Budget, committed: Floats, reserved: Floats) -> list[ItemPoint]:
    """Each item with what is committed and held of it."""
    meters = budget.filter.meters(budget, committed), budget.filter.meters(budget, reserved)
    return [_item_point(meter, min(held.used, meter.used)) for meter, held in zip(*meters, strict=True)]


def _item_point(meter: Meter, held: float) -> ItemPoint:
    used = max(0.0, meter.used - held)
    return ItemPoint(
        meter.label,
        f"steps chosen on the way: their {meter.symbol} adds up"
        if meter.step is None
        else step_text(meter.step),
        meter.symbol,
        amount_text(meter, used),
        amount_text(meter, held),
        amount_text(meter, meter.limit, is_limit=True),
        _share(meter.used, meter.limit),
        _share(held, meter.limit),
    )


def _share(amount: float, limit: float) -> float:
    """A part of a limit, of which there is nothing where the limit is zero."""
    return min(amount / limit, 1.0) if limit > 0.0 else 1.0


def step_points(steps: Sequence[Step], budget: Budget, at: int, worst: int = 1) -> list[StepPoint]:
    """What each step cost, and their running total for the record that bears most.

    That is what was granted on the whole and on the ``worst`` partitions with most: two under a private
    key, otherwise one.
    """
    points: list[StepPoint] = []
    by_partition: defaultdict[int | None, float] = defaultdict(float)
    for step in steps:
        cost = step.times * budget.filter.share(budget, step.charge.amounts, at)
        by_partition[step.partition] += cost
        parts = heapq.nlargest(worst, (sum_ for part, sum_ in by_partition.items() if part is not None))
        total = by_partition[None] + sum(parts)
        points.append(StepPoint(step.sequence, step.at_us, step.times, cost, total, step.charge.purpose))
    return points


def allocated_points(steps: Sequence[Step], within: Mapping[int, Allocation]) -> list[StepPoint]:
    """What each step cost as a share of its allocation's budget, and their running total there."""
    points: list[StepPoint] = []
    totals: defaultdict[int | None, float] = defaultdict(float)
    for step in steps:
        allocation = within[step.allocation or 0]
        budget = allocation.budget
        at = budget.filter.binding(budget, allocation.totals.committed)
        cost = step.times * budget.filter.share(budget, step.charge.amounts, at)
        totals[step.allocation] += cost
        total = totals[step.allocation]
        points.append(StepPoint(step.sequence, step.at_us, step.times, cost, total, step.charge.purpose))
    return points


def noise_points(steps: Sequence[Step]) -> list[NoisePoint]:
    """The noise of each release that has such a number; a declared cost has none."""
    return [
        NoisePoint(step.sequence, step.at_us, release.mechanism.kind, noise)
        for step in steps
        for release in step.charge.step.releases
        if (noise := relative_noise(release)) is not None
    ]
