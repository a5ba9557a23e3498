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
from dpledger.dashboard.views.spenders import Spender, largest_purposes, largest_runs
from dpledger.ledger.model.allocation import Allocation
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.commands import Reservation
from dpledger.ledger.model.entries import EntryKind
from dpledger.ledger.model.filter import Meter
from dpledger.ledger.model.state import LedgerState, Partition
from dpledger.ledger.ports import DatasetRow, EntryFilter, Refusal, StoredEntry
from dpledger.storage.read_models.dashboard import DashboardReader, Refusing

__all__ = [
    "DatasetPage",
    "dataset_page",
]

_FEW = 20
_LATEST = 8


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
    runs: list[Spender]
    purposes: list[Spender]
    refusals: list[Refusal]
    reservations: list[Reservation]
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


def dataset_page(
    reader: DashboardReader,
    name: str,
    query: EntryQuery,
    partitions_after: int,
    now_us: int,
    allocations_after: int = 0,
) -> DatasetPage:
    """One dataset."""
    row = reader.dataset(name)
    state, budget = row.state, row.state.budget
    committed = state.committed_for(None)
    at, refusing = budget.filter.binding(budget, committed), reader.refusing(state.dataset_id)
    last = Point(row.changed_at_us, state.sequence, budget.fraction_left(committed))
    points = figures.burn_down(reader.levels(state.dataset_id), row.opened_at_us, last, now_us)
    changed = EntryFilter(limit=_FEW, kind=EntryKind.BUDGET_CHANGED.value)
    holds = reader.held(state.dataset_id)
    return DatasetPage(
        row=row,
        left=compute_left(state),
        rule=wording.rule_text(budget),
        points=points,
        # A pace at which nothing is granted leads to no day.
        projection=_projection(reader, row, last, now_us) if refusing is None else Projection(None, ""),
        refusing=refusing,
        budget_changes=reader.entries(state.dataset_id, changed).entries,
        curve=figures.curve(budget, state.shown_for(None)) if budget.filter.picture == "curve" else [],
        items=_items(state),
        assessment=budget.filter.assessment(budget),
        first_step=_first_step(budget),
        coordinate=coordinate_text(budget, at),
        runs=largest_runs(reader, state, at, holds),
        purposes=largest_purposes(reader, state, at, holds),
        refusals=reader.refusals(state.dataset_id, _LATEST),
        reservations=reader.reservations(state.dataset_id, 0, _LATEST, budget.size),
        partitions=_partitions(reader, state, at, partitions_after),
        allocations=_allocations(reader, state, allocations_after),
        entries=entries_page(reader, state, query, at),
    )


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
