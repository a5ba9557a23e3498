"""Runs and purposes with what they have spent and hold."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.state import LedgerState
from dpledger.ledger.ports import Held, RunRow
from dpledger.storage.read_models.dashboard import DashboardReader

__all__ = [
    "MOST_SPENDERS",
    "Spender",
    "compute_spender",
    "largest_purposes",
    "largest_runs",
]

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
    )
