"""The list of datasets."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dpledger.dashboard import charts as figures
from dpledger.dashboard import formatting as wording
from dpledger.dashboard.charts import Point, Projection
from dpledger.dashboard.views.entries import ROWS
from dpledger.dashboard.views.left import LOW_BASIS_POINTS, OUT_BASIS_POINTS, Left, compute_left
from dpledger.dashboard.views.spenders import compute_spender
from dpledger.ledger.guarantee import guarantee_fields
from dpledger.ledger.model.state import LedgerState
from dpledger.ledger.ports import RunRow
from dpledger.storage.read_models.dashboard import DashboardReader, Refused, Refusing
from dpledger.storage.read_models.listing import Anchors, Cursor, DatasetSummary, Listing

__all__ = [
    "MOST_REFUSALS",
    "DatasetItem",
    "DatasetsPage",
    "Situation",
    "Top",
    "datasets_page",
    "situation_of",
]

_MOST_COUNTED = 100
_BELOW = (LOW_BASIS_POINTS, OUT_BASIS_POINTS)
MOST_REFUSALS = 100
"""How many of a dataset's latest refusals are looked at for the list."""
_SPARKS = 24
_DAY_US = 86_400_000_000


@dataclass(frozen=True)
class Situation:
    """What becomes of a budget: a word, and since when, or when it runs out at the recent pace."""

    kind: str
    words: str
    at_us: int | None = None


class Top(NamedTuple):
    """The run that has spent most, of which team it is, and its share; None in a shared budget."""

    run: str
    team: str | None
    share: float | None
    is_bound: bool


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
    situation: Situation
    sparks: list[Point]
    refusals: int
    top: Top | None


@dataclass(frozen=True)
class DatasetsPage:
    """The list of datasets; ``next`` is the place behind its last."""

    items: list[DatasetItem]
    next: str | None
    exhausted: int
    low: int
    most_counted: int = _MOST_COUNTED
    most_refusals: int = MOST_REFUSALS

    @property
    def marks(self) -> tuple[object, ...]:
        """What tells two pages apart, if they are of one hour."""
        rows = [(each.name, each.entries, each.changed_at_us, each.refusals) for each in self.items]
        situations = [(each.situation.kind, each.description) for each in self.items]
        return rows, situations, self.next, self.exhausted, self.low


class _Lately(NamedTuple):
    """What datasets of a page have done lately, by their ids."""

    anchors: Mapping[int, Anchors]
    samples: Mapping[int, Sequence[Point]]
    refusals: Mapping[int, Sequence[Refused]]
    tops: Mapping[int, RunRow]


def datasets_page(
    reader: DashboardReader,
    names: Collection[str] | None,
    listing: Listing,
    after: Cursor | None,
    now_us: int,
    rows: int = ROWS,
) -> DatasetsPage:
    """Datasets that a token reaches, in an order; ``names`` is None where it reaches all."""
    found = reader.listed(listing, after, rows + 1, names)
    low, exhausted = _count_below(reader, names)
    shown = found[:rows]
    following = f"{shown[-1].place.value}~{shown[-1].place.name}" if len(found) > rows else None
    lately = _look_at(reader, shown, now_us)
    items = [_item(reader, each, lately, now_us) for each in shown]
    return DatasetsPage(items, following, exhausted, low - exhausted)


def _count_below(reader: DashboardReader, names: Collection[str] | None) -> list[int]:
    if names is None:
        return [reader.count_below(below, _MOST_COUNTED) for below in _BELOW]
    places = [each.left_basis_points for each in reader.listed(Listing(), None, len(names), names)]
    return [sum(left < below for left in places) for below in _BELOW]


def _look_at(reader: DashboardReader, shown: Sequence[DatasetSummary], now_us: int) -> _Lately:
    sizes = {each.row.state.dataset_id: each.row.state.budget.size for each in shown}
    ids = list(sizes)
    anchors = reader.anchors(ids, figures.window_starts(now_us))
    counts = {id_: each.levels for id_, each in anchors.items() if each.levels}
    samples = {
        id_: [Point(level.at_us, level.sequence, level.fraction) for level in levels]
        for id_, levels in reader.samples(counts, _SPARKS).items()
    }
    return _Lately(anchors, samples, reader.latest_refusals(ids, MOST_REFUSALS), reader.top_runs(sizes))


def _item(reader: DashboardReader, summary: DatasetSummary, lately: _Lately, now_us: int) -> DatasetItem:
    row, state = summary.row, summary.row.state
    id_, left = state.dataset_id, compute_left(state)
    refused = lately.refusals.get(id_, ())
    last = Point(row.changed_at_us, state.sequence, left.fraction)
    points = figures.pace_points(lately.anchors.get(id_), row.opened_at_us, last, now_us)
    refusing = _refusing(reader, state, refused)
    sparks = [Point(row.opened_at_us, 1, 1.0), *lately.samples.get(id_, ()), last]
    return DatasetItem(
        state.name,
        row.description,
        left,
        state.budget.accounting,
        state.whole.open_reservations,
        state.partitions,
        state.sequence,
        row.changed_at_us,
        situation_of(state, left, refusing, figures.projection(points, now_us)),
        [*sparks, Point(max(now_us, last.at_us), state.sequence, left.fraction)],
        sum(each.at_us > now_us - _DAY_US for each in refused),
        _top(state, lately.tops.get(id_)),
    )


def _refusing(reader: DashboardReader, state: LedgerState, refused: Sequence[Refused]) -> Refusing | None:
    """Since when everything was refused; asked in full only where it is more than what was read."""
    if not refused or refused[0].fits_times:
        return None
    granted = reader.last_grant(state.dataset_id)
    since = [each for each in refused if each.sequence >= granted]
    if len(since) == len(refused) == MOST_REFUSALS:
        return reader.refusing(state.dataset_id)
    return Refusing(since[-1].at_us, len(since)) if since else None


def _top(state: LedgerState, row: RunRow | None) -> Top | None:
    if row is None:
        return None
    if state.budget.filter.allocates:  # of different allocations, whose amounts do not add up
        return Top(row.name, row.team, None, False)
    at = state.budget.filter.binding(state.budget, state.committed_for(None))
    found = compute_spender(state, row, (), at)
    return Top(row.name, row.team, found.spent, found.is_bound)


def situation_of(
    state: LedgerState, left: Left, refusing: Refusing | None, projection: Projection
) -> Situation:
    """What becomes of a budget, in words; a projection only where something is still granted."""
    if left.fraction <= 0.0 and guarantee_fields(state)["lowered"]:
        return Situation("closed", "closed: the limit was lowered to what is spent, or below")
    if left.level == "out":
        return Situation("used-up", "all allocated" if state.budget.filter.allocates else "used up")
    if refusing is not None:
        since = wording.minute_text(refusing.since_us)
        return Situation("refusing", f"refusing since {since}", refusing.since_us)
    if projection.at_us is not None:
        return Situation("running", wording.minute_text(projection.at_us), projection.at_us)
    if state.sequence <= 1:
        return Situation("unused", "nothing spent yet")
    return Situation("idle", "over ten years" if projection.window else "no recent pace")
