"""Builds each page's content from one read of the database."""

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dpledger.accounting.steps import Step
from dpledger.dashboard import charts as figures
from dpledger.dashboard import formatting as wording
from dpledger.dashboard.charts import CurvePoint, ItemPoint, NoisePoint, Point, Projection, StepPoint
from dpledger.ledger.model.allocation import Allocation
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.commands import Reservation
from dpledger.ledger.model.entries import EntryKind
from dpledger.ledger.model.filter import Meter
from dpledger.ledger.model.state import LedgerState, Partition
from dpledger.ledger.ports import DatasetRow, EntryFilter, Held, Refusal, RunRow, StoredEntry
from dpledger.storage.read_models.dashboard import POINTS, Cursor, DashboardReader, DatasetSummary, Refusing
from dpledger.storage.read_models.fractions import basis_points

__all__ = [
    "MOST_SPENDERS",
    "DatasetPage",
    "DatasetsPage",
    "EntriesPage",
    "EntryQuery",
    "RunPage",
    "dataset_page",
    "datasets_page",
    "run_page",
]

ROWS = 20
"""How many datasets, and how many entries, a page shows."""
MOST_SPENDERS = 12
"""How many runs, and how many purposes, are shown."""
_FEW = 20
_LATEST = 8
_MOST_COUNTED = 100
LOW_BASIS_POINTS = 1000
"""Below a tenth a budget is called low."""
OUT_BASIS_POINTS = 1
"""Below a ten-thousandth it is called used up, in the list, on its page and among those counted."""


_BELOW = (LOW_BASIS_POINTS, OUT_BASIS_POINTS)


@dataclass(frozen=True)
class Left:
    """What is left of a budget, as a bar and in words."""

    fraction: float
    reserved: float
    percent: str
    amount: str
    limit: str
    phrase: str = ""
    """The amount and the limit as one phrase."""

    @property
    def level(self) -> str:
        """``out``, ``low`` or ``fine``."""
        left = basis_points(self.fraction)
        if left < OUT_BASIS_POINTS:
            return "out"
        return "low" if left < LOW_BASIS_POINTS else "fine"


@dataclass(frozen=True)
class DatasetItem:
    """One row of the list of datasets."""

    name: str
    description: str
    left: Left
    accounting: str
    open_reservations: int
    partitions: int
    entries: int
    changed_at_us: int


@dataclass(frozen=True)
class DatasetsPage:
    """The list of datasets by urgency."""

    items: list[DatasetItem]
    next: str | None
    exhausted: int
    low: int
    most_counted: int = _MOST_COUNTED


@dataclass(frozen=True)
class Spender:
    """A run or a purpose: the part of the budget that it has spent, that it holds, and both together.

    On a partitioned dataset sums run over disjoint records. There the shares are bounds: no record bears
    more of a run than of everything.
    """

    name: str
    entries: int
    share: float
    spent: float
    held: float
    reservations: int
    is_bound: bool
    first_at_us: int
    last_at_us: int


@dataclass(frozen=True)
class EntryItem:
    """One row of the list of entries."""

    sequence: int
    kind: str
    at_us: int
    actor: str
    team: str | None
    run: str | None
    partition: str | None
    allocation: str | None
    what: str
    purpose: str
    cost: float | None
    fraction: float | None


@dataclass(frozen=True)
class EntryQuery:
    """Which entries are wanted; ``before`` is the sequence number to start below."""

    kind: str | None = None
    run: str | None = None
    partition: str | None = None
    before: int = 0
    allocation: str | None = None

    @property
    def has_filter(self) -> bool:
        """Whether anything but the place in the list was asked for."""
        return bool(self.kind or self.run or self.partition or self.allocation)


@dataclass(frozen=True)
class EntriesPage:
    """Entries, the latest first; ``next`` is where to go on, ``looked_to`` where a long search stopped."""

    items: list[EntryItem]
    next: int | None
    looked_to: int | None


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


@dataclass(frozen=True, eq=False)
class RunPage:
    """Everything on the page of one run."""

    row: DatasetRow
    run: Spender
    left: Left
    coordinate: str
    steps: list[StepPoint]
    noise: list[NoisePoint]
    is_complete: bool
    entries: EntriesPage


def datasets_page(
    reader: DashboardReader, names: Collection[str] | None, after: Cursor | None, search: str | None
) -> DatasetsPage:
    """Datasets that a token reaches, the most urgent first; ``names`` is None where it reaches all."""
    if names is None:
        found = reader.urgent(after, ROWS + 1, search)
        low, exhausted = [reader.count_below(below, _MOST_COUNTED) for below in _BELOW]
    else:
        found = reader.urgent_among(names, after, ROWS + 1, search)
        places = [each.place.left_basis_points for each in reader.urgent_among(names, None, len(names))]
        low, exhausted = [sum(left < below for left in places) for below in _BELOW]
    shown = found[:ROWS]
    following = _cursor(shown[-1].place) if len(found) > ROWS else None
    return DatasetsPage([_dataset_item(each) for each in shown], following, exhausted, low - exhausted)


def _cursor(place: Cursor) -> str:
    return f"{place.left_basis_points}~{place.name}"


def _dataset_item(summary: DatasetSummary) -> DatasetItem:
    state = summary.row.state
    return DatasetItem(
        state.name,
        summary.row.description,
        _compute_left(state),
        state.budget.accounting,
        state.whole.open_reservations,
        state.partitions,
        state.sequence,
        summary.row.changed_at_us,
    )


def _compute_left(state: LedgerState) -> Left:
    """What is left, from the ledger itself: the list, the pages and the API say the same."""
    budget, committed = state.budget, state.committed_for(None)
    fraction = budget.fraction_left(committed)
    reserved = budget.filter.share(budget, state.whole.reserved, budget.filter.binding(budget, committed))
    limit = wording.limit_text(budget)
    if budget.filter.allocates:
        amount = wording.part_text(state.remaining(None))
        phrase = f"{amount} of {limit} to allocate"
    elif budget.filter.picture == "items":
        amount = wording.items_left_text(budget, state.shown_for(None))
        phrase = f"{amount}, within {limit}"
    else:
        amount = wording.remaining_text(budget, fraction)
        phrase = f"{amount} of {limit}" if amount else f"of {limit}"
    return Left(
        fraction, min(reserved, 1.0 - fraction), wording.left_percent(fraction), amount, limit, phrase
    )


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
        left=_compute_left(state),
        rule=wording.rule_text(budget),
        points=points,
        # A pace at which nothing is granted leads to no day.
        projection=figures.projection(points, now_us) if refusing is None else Projection(None, ""),
        refusing=refusing,
        budget_changes=reader.entries(state.dataset_id, changed).entries,
        curve=figures.curve(budget, state.shown_for(None)) if budget.filter.picture == "curve" else [],
        items=_items(state),
        assessment=budget.filter.assessment(budget),
        first_step=_first_step(budget),
        coordinate=_coordinate(budget, at),
        runs=_runs(reader, state, at, holds),
        purposes=_purposes(reader, state, at, holds),
        refusals=reader.refusals(state.dataset_id, _LATEST),
        reservations=reader.reservations(state.dataset_id, 0, _LATEST, budget.size),
        partitions=_partitions(reader, state, at, partitions_after),
        allocations=_allocations(reader, state, allocations_after),
        entries=_entries(reader, state, query, at),
    )


def _coordinate(budget: Budget, at: int) -> str:
    """Where shares of the budget are taken: the order that binds, or the one number there is."""
    return f"order α = {wording.number(float(budget.orders[at]))}" if budget.orders.size else ""


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


Holds = Mapping[str, Sequence[Held]]


def _by(holds: Iterable[Held], key: Callable[[Held], str]) -> Holds:
    found: defaultdict[str, list[Held]] = defaultdict(list)
    for each in holds:
        found[key(each)].append(each)
    return found


def _runs(reader: DashboardReader, state: LedgerState, at: int, holds: Iterable[Held]) -> list[Spender]:
    by_run, size = _by(holds, lambda each: each.run), state.budget.size
    rows = reader.largest_runs(state.dataset_id, MOST_SPENDERS, size)
    others = _largest_holders(state, by_run, rows, at)
    rows += [reader.run(state.dataset_id, name, size)[1] for name in others]
    return _spenders(state, rows, by_run, at)


def _purposes(reader: DashboardReader, state: LedgerState, at: int, holds: Iterable[Held]) -> list[Spender]:
    by_purpose, size = _by(holds, lambda each: each.charge.purpose), state.budget.size
    rows = reader.largest_purposes(state.dataset_id, MOST_SPENDERS, size)
    others = _largest_holders(state, by_purpose, rows, at)
    rows += [reader.purpose(state.dataset_id, name, size) for name in others]
    # A reservation counts among a purpose's entries only once something of it is spent.
    rows = [replace(row, entries=row.entries + _count(by_purpose.get(row.name, ()))) for row in rows]
    return _spenders(state, rows, by_purpose, at)


def _count(holds: Iterable[Held]) -> int:
    return sum(each.reservations for each in holds)


def _largest_holders(state: LedgerState, holds: Holds, rows: Sequence[RunRow], at: int) -> list[str]:
    """Who holds most among those that are not shown for what they have spent."""
    others = set(holds) - {row.name for row in rows}
    return sorted(others, key=lambda name: (-_sum_held(state.budget, holds[name], at), name))[:MOST_SPENDERS]


def _sum_held(budget: Budget, holds: Iterable[Held], at: int) -> float:
    if budget.filter.allocates:  # of different allocations, whose amounts do not add up
        return 0.0
    return sum(budget.filter.share(budget, each.amounts, at) for each in holds)


def _spenders(state: LedgerState, rows: Iterable[RunRow], holds: Holds, at: int) -> list[Spender]:
    """The largest first; those that come later in an order of sums come later here too."""
    summed = {row.name: state.budget.filter.share(state.budget, row.amounts, at) for row in rows}
    found = [_spender(state, row, holds.get(row.name, ()), at) for row in rows]
    found.sort(key=lambda each: (-each.share, -summed[each.name], each.name))
    return found[:MOST_SPENDERS]


def _spender(state: LedgerState, row: RunRow, holds: Iterable[Held], at: int) -> Spender:
    budget, holds = state.budget, list(holds)
    spent, held = budget.filter.share(budget, row.amounts, at), _sum_held(budget, holds, at)
    share = spent + held
    if state.partitions:
        most = budget.filter.share(budget, state.committed_for(None), at)
        share, spent, held = (min(each, most) for each in (share, spent, held))
    return Spender(
        row.name,
        row.entries,
        share,
        spent,
        held,
        _count(holds),
        bool(state.partitions),
        row.first_at_us,
        row.last_at_us,
    )


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


def _entries(reader: DashboardReader, state: LedgerState, query: EntryQuery, at: int) -> EntriesPage:
    named = query.kind, query.run, query.partition
    chosen = EntryFilter(query.before, ROWS + 1, *named, allocation=query.allocation)
    found = reader.entries(state.dataset_id, chosen)
    opened_at = {each.entry.allocation for each in found.entries if each.entry.allocation is not None}
    within = reader.allocations_at(state.dataset_id, opened_at)
    items = [_entry(state.budget, stored, at, within) for stored in found.entries[:ROWS]]
    if len(found.entries) > ROWS:
        return EntriesPage(items, items[-1].sequence, None)
    return EntriesPage(items, found.looked_to, found.looked_to)


def _entry(budget: Budget, stored: StoredEntry, at: int, within: Mapping[int, Allocation]) -> EntryItem:
    """A row; the cost of a spend from an allocation is a share of what that has."""
    entry, charge = stored.entry, stored.charge
    allocation = None if entry.allocation is None else within.get(entry.allocation)
    if allocation is not None:
        budget = allocation.budget
        at = budget.filter.binding(budget, allocation.totals.committed)
    cost = None if charge is None else budget.filter.share(budget, charge.amounts, at) * (entry.times or 1)
    return EntryItem(
        entry.sequence,
        entry.kind.value,
        entry.at_us,
        entry.actor,
        entry.team,
        entry.run,
        stored.partition_name,
        _allocation_name(stored),
        _what(stored),
        "" if charge is None else charge.purpose,
        cost,
        stored.fraction,
    )


def _allocation_name(stored: StoredEntry) -> str | None:
    """The allocation that an entry is about: one that it opens is named in its detail."""
    entry = stored.entry
    if entry.kind is not EntryKind.ALLOCATED or entry.detail is None:
        return stored.allocation_name
    return str(json.loads(entry.detail)["name"])


def _what(stored: StoredEntry) -> str:
    entry, charge = stored.entry, stored.charge
    if charge is not None:
        repeated = f"up to {wording.count(entry.times)} × " if entry.times is not None else ""
        return repeated + wording.step_text(charge.step)
    if entry.reservation is not None:
        return f"{wording.count(entry.used or 0)} used of reservation {entry.reservation}"
    return _WHAT[entry.kind]


_WHAT = {
    EntryKind.OPENED: "the ledger's first entry",
    EntryKind.BUDGET_CHANGED: "another limit",
    EntryKind.ROLLBACK_ACCEPTED: "lost entries given up",
    EntryKind.PARTITIONS_OPENED: "disjoint parts with ledgers of their own",
    EntryKind.ALLOCATED: "a part of the shared budget",
    EntryKind.ALLOCATION_RETURNED: "given back, nothing was released",
    EntryKind.QUOTA_CHANGED: "how much a team may use",
}


def run_page(reader: DashboardReader, name: str, run: str, before: int) -> RunPage:
    """One run of a dataset."""
    row = reader.dataset(name)
    state, budget = row.state, row.state.budget
    committed = state.committed_for(None)
    at = budget.filter.binding(budget, committed)
    number, spent = reader.run(state.dataset_id, run, budget.size)
    steps = reader.steps(state.dataset_id, number, spent.entries)
    if budget.filter.allocates:
        opened_at = {step.allocation for step in steps if step.allocation is not None}
        within = reader.allocations_at(state.dataset_id, opened_at)
        points = figures.allocated_points(steps, within)
    else:
        points = figures.step_points(steps, budget, at, 2 if state.partition_key == "private" else 1)
    return RunPage(
        row=row,
        run=_spender(state, spent, [each for each in reader.held(state.dataset_id) if each.run == run], at),
        left=_compute_left(state),
        coordinate=_coordinate(budget, at),
        steps=points,
        noise=figures.noise_points(steps),
        is_complete=spent.entries <= POINTS,
        entries=_entries(reader, state, EntryQuery(run=run, before=before), at),
    )
