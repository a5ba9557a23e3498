"""The page of one run."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpledger.dashboard import charts as figures
from dpledger.dashboard.charts import NoisePoint, PlanEnd, StepPoint
from dpledger.dashboard.views.entries import EntriesPage, EntryQuery, entries_page
from dpledger.dashboard.views.left import Left, compute_left, coordinate_text
from dpledger.dashboard.views.spenders import Spender, compute_spender
from dpledger.ledger.model.entries import EntryKind
from dpledger.ledger.model.state import LedgerState
from dpledger.ledger.ports import DatasetRow, EntryFilter, Held, RunRow
from dpledger.storage.read_models.dashboard import POINTS, DashboardReader, Step

__all__ = [
    "RunPage",
    "run_page",
]


_LATELY = 40
"""How many of a run's latest entries tell its rate."""
_SPENDS = frozenset({EntryKind.AUTHORIZED, EntryKind.SETTLED, EntryKind.EXPIRED})


@dataclass(frozen=True)
class NoiseRange:
    """The least and the most noise over sensitivity of a run's releases of one mechanism."""

    mechanism: str
    least: float
    most: float


@dataclass(frozen=True, eq=False)
class RunPage:
    """Everything on the page of one run."""

    row: DatasetRow
    run: Spender
    left: Left
    coordinate: str
    steps: list[StepPoint]
    noise: list[NoisePoint]
    noise_ranges: list[NoiseRange]
    plan: PlanEnd | None
    is_complete: bool
    entries: EntriesPage


def run_page(reader: DashboardReader, name: str, run: str, before: int, now_us: int) -> RunPage:
    """One run of a dataset."""
    row = reader.dataset(name)
    state, budget = row.state, row.state.budget
    at = budget.filter.binding(budget, state.committed_for(None))
    number, spent = reader.run(state.dataset_id, run, budget.size)
    holds = [each for each in reader.held(state.dataset_id) if each.run == run]
    steps = reader.steps(state.dataset_id, number, spent.entries)
    noise = figures.noise_points(steps)
    return RunPage(
        row=row,
        run=compute_spender(state, spent, holds, at),
        left=compute_left(state),
        coordinate=coordinate_text(budget, at),
        steps=_step_points(reader, state, steps, at),
        noise=noise,
        noise_ranges=_noise_ranges(noise),
        plan=_plan(reader, state, spent, holds, now_us),
        is_complete=spent.entries <= POINTS,
        entries=entries_page(reader, state, EntryQuery(run=run, before=before), at),
    )


def _step_points(
    reader: DashboardReader, state: LedgerState, steps: Sequence[Step], at: int
) -> list[StepPoint]:
    if not state.budget.filter.allocates:
        return figures.step_points(steps, state.budget, at, 2 if state.partition_key == "private" else 1)
    opened_at = {step.allocation for step in steps if step.allocation is not None}
    return figures.allocated_points(steps, reader.allocations_at(state.dataset_id, opened_at))


def _noise_ranges(points: Sequence[NoisePoint]) -> list[NoiseRange]:
    by_kind: defaultdict[str, list[float]] = defaultdict(list)
    for point in points:
        by_kind[point.mechanism].append(point.relative)
    return [NoiseRange(kind, min(found), max(found)) for kind, found in by_kind.items()]


def _plan(
    reader: DashboardReader, state: LedgerState, spent: RunRow, holds: Sequence[Held], now_us: int
) -> PlanEnd | None:
    """When the run has used up the items that it uses; None where none of them counts steps.

    Steps that others have spent or hold are not left to it; those that it holds itself are.
    """
    budget = state.budget
    if budget.filter.picture != "items" or state.partitions:
        return None
    held = sum((each.amounts for each in holds), np.zeros(budget.size))
    own = spent.amounts + held
    meters = budget.filter.meters(budget, state.shown_for(None))
    used = [index for index, meter in enumerate(meters) if meter.step is not None and own[index] > 0.0]
    if not used:
        return None
    left = sum(max(0.0, meters[index].limit - meters[index].used) + float(held[index]) for index in used)
    lately = reader.entries(state.dataset_id, EntryFilter(limit=_LATELY, run=spent.name)).entries
    done = [
        (each.entry.at_us, 1 if each.entry.used is None else each.entry.used)
        for each in lately
        if each.entry.kind in _SPENDS
    ]
    return figures.plan_end(tuple(meters[index].label for index in used), round(left), done, now_us)
