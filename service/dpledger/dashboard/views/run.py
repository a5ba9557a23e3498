"""The page of one run."""

from dataclasses import dataclass

from dpledger.dashboard import charts as figures
from dpledger.dashboard.charts import NoisePoint, StepPoint
from dpledger.dashboard.views.entries import EntriesPage, EntryQuery, entries_page
from dpledger.dashboard.views.left import Left, compute_left, coordinate_text
from dpledger.dashboard.views.spenders import Spender, compute_spender
from dpledger.ledger.ports import DatasetRow
from dpledger.storage.read_models.dashboard import POINTS, DashboardReader

__all__ = [
    "RunPage",
    "run_page",
]


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
        run=compute_spender(
            state, spent, [each for each in reader.held(state.dataset_id) if each.run == run], at
        ),
        left=compute_left(state),
        coordinate=coordinate_text(budget, at),
        steps=points,
        noise=figures.noise_points(steps),
        is_complete=spent.entries <= POINTS,
        entries=entries_page(reader, state, EntryQuery(run=run, before=before), at),
    )
