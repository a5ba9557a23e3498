"""The list of datasets: in an order, by conditions, and with what each has done lately.

In the order of what is left and of names a page costs the same whatever the number of datasets: an index
answers it. In the other orders, and by conditions that few datasets meet, one statement looks at every
dataset's row, and at no entry. How many statements a page asks depends on its rows alone.
"""

import functools
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import (
    BigInteger,
    Integer,
    Select,
    Text,
    bindparam,
    exists,
    func,
    literal_column,
    select,
    tuple_,
)
from sqlalchemy.sql.elements import ColumnElement

from dpledger.ledger.model.entries import EntryKind
from dpledger.ledger.ports import DatasetRow
from dpledger.storage.engine.codec import KIND_CODES
from dpledger.storage.engine.search import mentioning, pattern_of
from dpledger.storage.engine.session import Session, in_list, select_in_list
from dpledger.storage.repositories.datasets import DATASETS, dataset_of
from dpledger.storage.tables import budgets, datasets, entries, levels, refusals, teams

__all__ = [
    "ORDERS",
    "STATES",
    "Anchors",
    "Cursor",
    "DatasetSummary",
    "Listing",
    "find_anchors",
    "list_datasets",
]

ORDERS = ("left", "name", "entries", "changed")
"""Columns by which datasets are listed."""
_KEYS = {
    "left": datasets.c.left_basis_points,
    "entries": datasets.c.sequence,
    "changed": datasets.c.changed_at_us,
}
_INDEXED = frozenset({"left", "name"})
_BEYOND_ALL = {"left": 2**15 - 1, "name": 0, "entries": 2**62, "changed": 2**62}
_LAST_NAME = "\x7f"
_STATES = {"used-up": (0, 1), "low": (1, 1000), "fine": (1000, 10_001)}
STATES = ("refusing", *_STATES)
_LIMIT = bindparam("limit", type_=Integer)


@dataclass(frozen=True)
class Cursor:
    """Where a dataset stands in the list: what it is ordered by, then its name.

    In the order of urgency that is what is left in basis points.
    """

    value: int
    name: str


@dataclass(frozen=True, eq=False)
class DatasetSummary:
    """A dataset as it is listed, with its place in the list."""

    place: Cursor
    left_basis_points: int
    row: DatasetRow


@dataclass(frozen=True)
class Listing:
    """Which datasets are listed, and in which order.

    ``state`` is ``refusing``, ``used-up``, ``low`` or ``fine``; ``accounting`` a kind of budget; ``team`` one
    that has entries; ``search`` a part of a name or description.
    """

    order: str = "left"
    descending: bool = False
    state: str | None = None
    accounting: str | None = None
    team: str | None = None
    search: str | None = None

    @property
    def shape(self) -> "Listing":
        """The same with nothing of what was asked for but that it was: what a statement depends on."""
        asked: dict[str, Any] = {
            name: "*" for name in ("accounting", "team", "search") if getattr(self, name) is not None
        }
        return replace(self, **asked)

    @property
    def values(self) -> dict[str, Any]:
        """What was asked for, as parameters."""
        found: dict[str, Any] = {}
        if self.accounting is not None:
            found["document"] = f'{{"accounting":"{self.accounting}",%'
        if self.team is not None:
            found["team"] = self.team
        if self.search is not None:
            found["pattern"] = pattern_of(self.search)
        return found


_EXPIRED = KIND_CODES[EntryKind.EXPIRED]
_LAST_GRANT = (
    select(entries.c.sequence)
    .where(entries.c.dataset_id == datasets.c.id, literal_column(f"entries.kind <> {_EXPIRED}"))
    .order_by(entries.c.sequence.desc())
    .limit(1)
    .correlate(datasets)
    .scalar_subquery()
)
_latest = refusals.alias("latest")
_LAST_REFUSAL = (
    select(func.max(_latest.c.number))
    .where(_latest.c.dataset_id == datasets.c.id)
    .correlate(datasets)
    .scalar_subquery()
)
_IS_REFUSING = exists().where(
    refusals.c.dataset_id == datasets.c.id,
    refusals.c.number == _LAST_REFUSAL,
    literal_column("refusals.fits_times = 0"),
    refusals.c.sequence >= _LAST_GRANT,
)
"""The last request was refused, none of its repetitions would have fitted, and nothing was granted since."""


def _conditions(shape: Listing) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    if shape.state == "refusing":
        found.append(_IS_REFUSING)
    elif shape.state is not None:
        least, below = _STATES[shape.state]
        left = "datasets.left_basis_points"
        found += [literal_column(f"{left} >= {least}"), literal_column(f"{left} < {below}")]
    if shape.accounting is not None:
        its_budget = budgets.c.dataset_id == datasets.c.id, budgets.c.number == datasets.c.budget
        alike = budgets.c.document.like(bindparam("document", type_=Text))
        found.append(exists().where(*its_budget, alike).correlate(datasets))
    if shape.team is not None:
        named = teams.c.name == bindparam("team", type_=Text)
        found.append(exists().where(teams.c.dataset_id == datasets.c.id, named))
    return [*found, mentioning()] if shape.search is not None else found


def _behind(shape: Listing) -> ColumnElement[bool]:
    name = bindparam("name", type_=Text)
    if shape.order == "name":
        return datasets.c.name < name if shape.descending else datasets.c.name > name
    key = _KEYS[shape.order]
    place = tuple_(bindparam("value", type_=key.type), name)
    here = tuple_(key, datasets.c.name)
    return here < place if shape.descending else here > place


def _ordered(page: Select[Any], shape: Listing) -> Select[Any]:
    columns = [datasets.c.name] if shape.order == "name" else [_KEYS[shape.order], datasets.c.name]
    return page.order_by(*[each.desc() if shape.descending else each for each in columns])


@functools.cache
def _page(shape: Listing, size: int) -> Select[Any]:
    """A page of the list; ``size`` is that of the list of names that it is limited to, if not 0."""
    wanted = [_behind(shape), *_conditions(shape)]
    if size:
        wanted.append(in_list(datasets.c.name, size))
    whole = DATASETS.add_columns(datasets.c.left_basis_points)
    if shape.order in _INDEXED:
        return _ordered(whole.where(*wanted), shape).limit(_LIMIT)
    # Only numbers and names are sorted; then the few rows are read.
    chosen = _ordered(select(datasets.c.id).where(*wanted), shape).limit(_LIMIT)
    return _ordered(whole.where(datasets.c.id.in_(chosen.correlate(None))), shape)


def list_datasets(
    session: Session, listing: Listing, after: Cursor | None, limit: int, names: Collection[str] | None
) -> list[DatasetSummary]:
    """Datasets behind a place, among all or among some; names that there are not are left out."""
    first = _BEYOND_ALL[listing.order] if listing.descending else -1
    start = Cursor(first, _LAST_NAME if listing.descending else "") if after is None else after
    values = {"value": start.value, "name": start.name, "limit": limit, **listing.values}
    shape = listing.shape
    if names is None:
        rows = session.rows(_page(shape, 0), values)
    else:
        rows = select_in_list(session, functools.partial(_page, shape), sorted(names), **values)
    found = [_summary(row, listing) for row in rows]
    if names is not None:  # which may be asked for in several pieces
        found.sort(key=lambda each: (each.place.value, each.place.name), reverse=listing.descending)
    return found[:limit]


def _summary(row: tuple[Any, ...], listing: Listing) -> DatasetSummary:
    found = dataset_of(row[:-1])
    keys = {
        "left": int(row[-1]),
        "name": 0,
        "entries": found.state.sequence,
        "changed": found.changed_at_us,
    }
    return DatasetSummary(Cursor(keys[listing.order], found.state.name), int(row[-1]), found)


@dataclass(frozen=True)
class Anchors:
    """What was left of a dataset at some times, and when it first was less than the whole.

    None stands for a time until which nothing was spent; ``levels`` is how many levels are kept.
    """

    at: tuple[float | None, ...]
    first_us: int | None
    first_fraction: float | None
    levels: int


def _left_at(parameter: str) -> Any:
    until = levels.c.at_us <= bindparam(parameter, type_=BigInteger)
    return (
        select(levels.c.fraction)
        .where(levels.c.dataset_id == datasets.c.id, until)
        .order_by(levels.c.number.desc())
        .limit(1)
        .scalar_subquery()
    )


def _first(column: Any) -> Any:
    return (
        select(column)
        .where(levels.c.dataset_id == datasets.c.id, literal_column("levels.fraction < 1"))
        .order_by(levels.c.number)
        .limit(1)
        .scalar_subquery()
    )


_COUNTED = select(func.max(levels.c.number)).where(levels.c.dataset_id == datasets.c.id).scalar_subquery()


@functools.cache
def _anchors(times: int, size: int) -> Select[Any]:
    asked = [_left_at(f"time_{index}") for index in range(times)]
    columns = [_first(levels.c.at_us), _first(levels.c.fraction), func.coalesce(_COUNTED, 0), *asked]
    return select(datasets.c.id, *columns).where(in_list(datasets.c.id, size))


def find_anchors(session: Session, ids: Sequence[int], times_us: Sequence[int]) -> dict[int, Anchors]:
    """What was left of each dataset at these times."""
    query = functools.partial(_anchors, len(times_us))
    values = {f"time_{index}": at_us for index, at_us in enumerate(times_us)}
    rows = select_in_list(session, query, ids, **values) if ids else []
    return {id_: Anchors(tuple(at), us, fraction, last) for id_, us, fraction, last, *at in rows}
