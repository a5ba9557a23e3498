"""The page of one dataset."""

import json
from dataclasses import dataclass
from typing import Any

from dpledger.accounting.steps import Step
from dpledger.dashboard import charts as figures
from dpledger.dashboard import formatting as wording
from dpledger.dashboard.charts import CurvePoint, ItemPoint, Point, Projection
from dpledger.dashboard.views.entries import EntriesPage, EntryQuery, entries_page
from dpledger.dashboard.views.left import Left, compute_left, coordinate_text
from dpledger.dashboard.views.spenders import RunsPart, Spender, largest_purposes, runs_since
from dpledger.dashboard.views.teams import TeamsPart, teams_part
from dpledger.ledger.model.allocation import Allocation
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.commands import Reservation
from dpledger.ledger.model.entries import EntryKind
from dpledger.ledger.model.filter import Meter
from dpledger.ledger.model.state import LedgerState, Partition
from dpledger.ledger.ports import DatasetRow, EntryFilter, Refusal, StoredEntry
from dpledger.storage.read_models.dashboard import DashboardReader, Refusing

__all__ = ["RANGES", "DatasetPage", "Places", "Range", "dataset_page"]

_FEW = 20
_LATEST = 8


@dataclass(frozen=True)
class Range:
    """A range of time up to now; all of it without ``seconds``."""

    name: str
    words: str
    seconds: int | None = None

    def since_us(self, now_us: int) -> int | None:
        """When it begins."""
        return None if self.seconds is None else now_us - self.seconds * 1_000_000


RANGES = {
    each.name: each
    for each in (
        Range("24h", "24 hours", 86_400),
        Range("7d", "7 days", 7 * 86_400),
        Range("30d", "30 days", 30 * 86_400),
        Range("all", "all times"),
    )
}


@dataclass(frozen=True)
class PartitionItem:
    """A partition with what it has left."""

    name: str
    fraction: float
    has_own_budget: bool


@dataclass(frozen=True)
class PartitionsPart:
    """Partitions together: how many, by what key, the one with least left, and a few of them."""

    count: int
    key: str
    worst: PartitionItem | None
    items: list[PartitionItem]
    next: int | None


@dataclass(frozen=True)
class AllocationItem:
    """An allocation: its part of the shared budget, whose it is, and what is left to spend from it."""

    sequence: int
    name: str
    owner: str
    returned: bool
    part: str
    accounting: str
    left: Left
    entries: int
    open_reservations: int


@dataclass(frozen=True)
class AllocationsPart:
    """What a shared budget has handed out: how many are open and returned, the sums, and a few of them."""

    open: int
    returned: int
    meters: list[Meter]
    items: list[AllocationItem]
    next: int | None


@dataclass(frozen=True, eq=False)
class DatasetPage:
    """Everything on the page of one dataset."""

    row: DatasetRow
    left: Left
    rule: str
    points: list[Point]
    projection: Projection
    refusing: Refusing | None
    budget_changes: list[StoredEntry]
    curve: list[CurvePoint]
    items: list[ItemPoint]
    assessment: dict[str, Any] | None
    first_step: str
    coordinate: str
    range: Range
    runs: RunsPart
    purposes: list[Spender]
    refusals: list[Refusal]
    reservations: list[Reservation]
    reservations_next: int | None
    teams: TeamsPart | None
    partitions: PartitionsPart
    allocations: AllocationsPart | None
    entries: EntriesPage

    @property
    def state(self) -> LedgerState:
        """The ledger as it stands."""
        return self.row.state

    @property
    def guarantee(self) -> str:
        """What is proven of all outputs together."""
        return wording.guarantee_text(self.state)


@dataclass(frozen=True)
class Places:
    """Where each list of a dataset's page begins, and the range of time that is looked at."""

    partitions: int = -1
    allocations: int = 0
    reservations: int = 0
    quotas: int = 0
    range: Range = RANGES["all"]


def dataset_page(
    reader: DashboardReader, name: str, query: EntryQuery, places: Places, now_us: int
) -> DatasetPage:
    """One dataset."""
    row = reader.dataset(name)
    state, budget = row.state, row.state.budget
    committed, since_us = state.committed_for(None), places.range.since_us(now_us)
    at, refusing = budget.filter.binding(budget, committed), reader.refusing(state.dataset_id)
    last = Point(row.changed_at_us, state.sequence, budget.fraction_left(committed))
    levels = reader.levels(state.dataset_id, since_us)
    holds = reader.held(state.dataset_id)
    held = reader.reservations(state.dataset_id, places.reservations, _LATEST + 1, budget.size)
    return DatasetPage(
        row=row,
        left=compute_left(state),
        rule=wording.rule_text(budget),
        points=figures.burn_down(levels, row.opened_at_us, last, now_us, since_us),
        # A pace at which nothing is granted leads to no day.
        projection=_projection(reader, row, last, now_us) if refusing is None else Projection(None, ""),
        refusing=refusing,
        budget_changes=_budget_changes(reader, state, since_us),
        curve=figures.curve(budget, state.shown_for(None)) if budget.filter.picture == "curve" else [],
        items=_items(state),
        assessment=budget.filter.assessment(budget),
        first_step=_first_step(budget),
        coordinate=coordinate_text(budget, at),
        range=places.range,
        runs=runs_since(reader, state, at, holds, since_us),
        purposes=largest_purposes(reader, state, at, holds),
        refusals=reader.refusals(state.dataset_id, _LATEST),
        reservations=held[:_LATEST],
        reservations_next=held[_LATEST - 1].sequence if len(held) > _LATEST else None,
        teams=teams_part(reader, state, places.quotas, now_us),
        partitions=_partitions(reader, state, at, places.partitions),
        allocations=_allocations(reader, state, places.allocations),
        entries=entries_page(reader, state, query, at),
    )


def _budget_changes(reader: DashboardReader, state: LedgerState, since_us: int | None) -> list[StoredEntry]:
    changed = EntryFilter(limit=_FEW, kind=EntryKind.BUDGET_CHANGED.value)
    found = reader.entries(state.dataset_id, changed).entries
    return [each for each in found if since_us is None or each.entry.at_us >= since_us]


def _projection(reader: DashboardReader, row: DatasetRow, last: Point, now_us: int) -> Projection:
    """When the budget runs out, from the same points as in the list."""
    anchors = reader.anchors([row.state.dataset_id], figures.window_starts(now_us))
    points = figures.pace_points(anchors.get(row.state.dataset_id), row.opened_at_us, last, now_us)
    return figures.projection(points, now_us)


def _items(state: LedgerState) -> list[ItemPoint]:
    """Each item of a budget that is drawn as its items."""
    if state.budget.filter.picture != "items":
        return []
    return figures.item_points(state.budget, state.shown_for(None), state.whole.shown_reserved)


_ANY_STEP: dict[str, Any] = {
    "releases": [{"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": 100.0, "purpose": "mean"}]
}


def _first_step(budget: Budget) -> str:
    """A body that asks for one step: the first that the budget counts, if it counts steps."""
    meters = budget.filter.meters(budget, budget.limits)
    step = next((meter.step for meter in meters if meter.step is not None), None)
    fields = _ANY_STEP if step is None else _step_fields(step)
    return json.dumps({"run": "first-run", **fields}, ensure_ascii=False)


def _step_fields(step: Step) -> dict[str, Any]:
    return {
        "sample": step.sample.fields(),
        "releases": [release.fields() for release in step.releases],
    }


def _partitions(reader: DashboardReader, state: LedgerState, at: int, after: int) -> PartitionsPart:
    if not state.partitions:
        return PartitionsPart(0, state.partition_key, None, [], None)
    size = state.budget.size
    found = reader.partitions(state.dataset_id, after, _FEW + 1, size)
    shown = found[:_FEW]
    holder = reader.partition(state.dataset_id, int(state.extremes.holder[at]), size)
    return PartitionsPart(
        state.partitions,
        state.partition_key,
        None if holder is None else _partition(state, holder),
        [_partition(state, each) for each in shown],
        shown[-1].number if len(found) > _FEW else None,
    )


def _partition(state: LedgerState, partition: Partition) -> PartitionItem:
    return PartitionItem(partition.name, state.fraction_left(partition), partition.budget is not None)


def _allocations(reader: DashboardReader, state: LedgerState, after: int) -> AllocationsPart | None:
    if not state.budget.filter.allocates:
        return None
    found = reader.allocations(state.dataset_id, after, _FEW + 1)
    shown = found[:_FEW]
    return AllocationsPart(
        *reader.count_allocations(state.dataset_id),
        state.budget.filter.meters(state.budget, state.shown_for(None)),
        [_allocation(each) for each in shown],
        shown[-1].sequence if len(found) > _FEW else None,
    )


def _allocation(allocation: Allocation) -> AllocationItem:
    budget, totals = allocation.budget, allocation.totals
    fraction = allocation.remaining()["fraction"]
    at = budget.filter.binding(budget, totals.committed)
    reserved = min(budget.filter.share(budget, totals.reserved, at), 1.0 - fraction)
    amount = wording.remaining_text(budget, fraction)
    if budget.filter.picture == "items":
        amount = wording.items_left_text(budget, totals.committed)
    return AllocationItem(
        allocation.sequence,
        allocation.name,
        allocation.owner,
        allocation.returned,
        wording.part_text({"epsilon": allocation.epsilon, "delta": allocation.delta}),
        budget.accounting,
        Left(fraction, reserved, wording.left_percent(fraction), amount, wording.limit_text(budget)),
        allocation.entries,
        totals.open_reservations,
    )
