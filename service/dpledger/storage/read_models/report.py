"""Reads what a dataset's report is made of, all of it at one moment of the database."""

from collections.abc import Callable, Iterable

from dpledger.ledger.model.allocation import Allocation
from dpledger.ledger.model.entries import EntryKind
from dpledger.ledger.ports import EntryFilter, ReportRows, RunRow, StoredEntry
from dpledger.storage.engine.session import Session
from dpledger.storage.read_models.dashboard import DashboardReader
from dpledger.storage.repositories.charges import first_charges

__all__ = ["report_rows"]

_CHANGES = (EntryKind.BUDGET_CHANGED, EntryKind.ROLLBACK_ACCEPTED)


def report_rows(session: Session, name: str, most: int) -> ReportRows:
    """At most ``most`` rows of each kind, the runs and purposes with most spent; raises NotFound."""
    reading = DashboardReader(session)
    row = reading.dataset(name)
    dataset_id, size = row.state.dataset_id, row.state.budget.size
    held = reading.held(dataset_id)
    runs = _with_holders(
        reading.largest_runs(dataset_id, most, size),
        (each.run for each in held),
        lambda run: reading.run(dataset_id, run, size)[1],
    )
    purposes = _with_holders(
        reading.largest_purposes(dataset_id, most, size),
        (each.charge.purpose for each in held),
        lambda purpose: reading.purpose(dataset_id, purpose, size),
    )
    return ReportRows(
        row=row,
        runs=runs[:most],
        purposes=purposes[:most],
        held=held,
        changes=_changes(reading, dataset_id, most),
        charges=first_charges(session, dataset_id, most),
        allocations=_allocations(reading, row.state.budget.filter.allocates, dataset_id, most),
        allocation_counts=reading.count_allocations(dataset_id),
        refusals=reading.position(name).refusals,
    )


def _with_holders(rows: list[RunRow], holders: Iterable[str], find: Callable[[str], RunRow]) -> list[RunRow]:
    """Rows with spending, and behind them those that only hold something so far."""
    return rows + [find(name) for name in sorted(set(holders) - {row.name for row in rows})]


def _changes(reading: DashboardReader, dataset_id: int, most: int) -> list[StoredEntry]:
    """Budget changes and accepted rollbacks, the oldest first; of many the latest."""
    found = [
        stored
        for kind in _CHANGES
        for stored in reading.entries(dataset_id, EntryFilter(limit=most, kind=kind.value)).entries
    ]
    return sorted(found, key=lambda stored: stored.entry.sequence)[-most:]


def _allocations(reading: DashboardReader, allocates: bool, dataset_id: int, most: int) -> list[Allocation]:
    return reading.allocations(dataset_id, 0, most) if allocates else []
