"""The list of datasets."""

from collections.abc import Collection
from dataclasses import dataclass

from dpledger.dashboard.views.entries import ROWS
from dpledger.dashboard.views.left import LOW_BASIS_POINTS, OUT_BASIS_POINTS, Left, compute_left
from dpledger.storage.read_models.dashboard import Cursor, DashboardReader, DatasetSummary

__all__ = [
    "DatasetItem",
    "DatasetsPage",
    "datasets_page",
]

_MOST_COUNTED = 100
_BELOW = (LOW_BASIS_POINTS, OUT_BASIS_POINTS)


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
        compute_left(state),
        state.budget.accounting,
        state.whole.open_reservations,
        state.partitions,
        state.sequence,
        summary.row.changed_at_us,
    )
