"""Runs and purposes with what they have spent and hold."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpledger.dashboard.views.left import coordinate_text
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.state import LedgerState
from dpledger.ledger.ports import DatasetRow, Held, RunRow
from dpledger.storage.read_models.dashboard import DashboardReader

__all__ = [
    "MOST_SPENDERS",
    "RunsPage",
    "RunsPart",
    "Spender",
    "compute_spender",
    "largest_purposes",
    "largest_runs",
    "runs_page",
    "runs_since",
]

MOST_RUNS = 50
"""How many of all runs a page shows."""
MOST_SPENDERS = 12
"""How many runs, and how many purposes, are shown."""


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
    team: str | None = None


@dataclass(frozen=True)
class RunsPart:
    """The runs that spent most in a range of time; ``sampled`` of its ``entries`` were read, if not all."""

    items: list[Spender]
    entries: int
    sampled: int | None


@dataclass(frozen=True)
class RunsPage:
    """All runs of a dataset by name."""

    row: DatasetRow
    items: list[Spender]
    coordinate: str
    next: str | None


def runs_since(
    reader: DashboardReader, state: LedgerState, at: int, holds: Sequence[Held], since_us: int | None
) -> RunsPart:
    """The runs that have spent or hold most: of all times, or of what was spent since a time."""
    if since_us is None:
        return RunsPart(largest_runs(reader, state, at, holds), state.sequence, None)
    found, by_run = reader.spending(state, since_us), _by(holds, lambda each: each.run)
    known = {row.name for row in found.rows}
    others = _largest_holders(state, by_run, found.rows, at)
    # One that only holds has spent nothing in the range, whatever it spent before.
    idle = [reader.run(state.dataset_id, name, state.budget.size)[1] for name in others if name not in known]
    rows = [*found.rows, *[replace(row, amounts=np.zeros(state.budget.size), entries=0) for row in idle]]
    return RunsPart(_spenders(state, rows, by_run, at), found.entries, found.sampled)


def runs_page(reader: DashboardReader, name: str, after: str) -> RunsPage:
    """All runs of a dataset, by name."""
    row = reader.dataset(name)
    state, budget = row.state, row.state.budget
    at = budget.filter.binding(budget, state.committed_for(None))
    found = reader.runs(state.dataset_id, after, MOST_RUNS + 1, budget.size)
    by_run = _by(reader.held(state.dataset_id), lambda each: each.run)
    items = [compute_spender(state, each, by_run.get(each.name, ()), at) for each in found[:MOST_RUNS]]
    following = items[-1].name if len(found) > MOST_RUNS else None
    return RunsPage(row, items, coordinate_text(budget, at), following)


Holds = Mapping[str, Sequence[Held]]


def _by(holds: Iterable[Held], key: Callable[[Held], str]) -> Holds:
    found: defaultdict[str, list[Held]] = defaultdict(list)
    for each in holds:
        found[key(each)].append(each)
    return found


def largest_runs(
    reader: DashboardReader, state: LedgerState, at: int, holds: Iterable[Held]
) -> list[Spender]:
    """The runs that have spent most, or hold most."""
    by_run, size = _by(holds, lambda each: each.run), state.budget.size
    rows = reader.largest_runs(state.dataset_id, MOST_SPENDERS, size)
    others = _largest_holders(state, by_run, rows, at)
    rows += [reader.run(state.dataset_id, name, size)[1] for name in others]
    return _spenders(state, rows, by_run, at)


def largest_purposes(
    reader: DashboardReader, state: LedgerState, at: int, holds: Iterable[Held]
) -> list[Spender]:
    """The purposes on which most was spent, or for which most is held."""
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
    found = [compute_spender(state, row, holds.get(row.name, ()), at) for row in rows]
    found.sort(key=lambda each: (-each.share, -summed[each.name], each.name))
    return found[:MOST_SPENDERS]


def compute_spender(state: LedgerState, row: RunRow, holds: Iterable[Held], at: int) -> Spender:
    """A run or a purpose with what it has spent and what its open reservations hold."""
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
        row.team,
    )
