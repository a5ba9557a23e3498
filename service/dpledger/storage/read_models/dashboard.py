"""Read model of the dashboard, read in one transaction and in bounded time.

Nothing here reads a ledger from end to end. Lists come from indexes, sums were added up when entries
were appended, and long histories are sampled at evenly spaced keys: a page costs the same for a hundred
entries and for a million.
"""

import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import (
    BigInteger,
    Integer,
    Select,
    SmallInteger,
    Table,
    and_,
    bindparam,
    func,
    literal_column,
    select,
)
from sqlalchemy.sql.elements import ColumnElement

from dpledger.ledger.errors import NotFound
from dpledger.ledger.model.allocation import Allocation
from dpledger.ledger.model.commands import Reservation
from dpledger.ledger.model.entries import Charge, EntryKind
from dpledger.ledger.model.quota import Quota
from dpledger.ledger.model.state import LedgerState, Partition
from dpledger.ledger.ports import DatasetRow, EntryFilter, Held, Refusal, RunRow, StoredEntry
from dpledger.storage.engine.codec import KIND_CODES, vector_from_bytes
from dpledger.storage.engine.session import (
    Database,
    Query,
    Row,
    Session,
    in_list,
    of_dataset,
    queries_in_list,
    select_in_list,
)
from dpledger.storage.read_models.listing import (
    Anchors,
    Cursor,
    DatasetSummary,
    Listing,
    find_anchors,
    list_datasets,
)
from dpledger.storage.read_models.spending import Spending, spending_since
from dpledger.storage.repositories.allocations import (
    allocations_page,
    count_allocations,
    find_allocations_by_sequence,
)
from dpledger.storage.repositories.charges import find_charges
from dpledger.storage.repositories.datasets import find_dataset
from dpledger.storage.repositories.entries import entries_page, find_entries
from dpledger.storage.repositories.partitions import find_partitions_by_number, partitions_page
from dpledger.storage.repositories.quotas import quotas_page
from dpledger.storage.repositories.reservations import held_by_runs, open_reservations_page
from dpledger.storage.repositories.runs import runs_page
from dpledger.storage.tables import (
    HAS_SPENT,
    allocations,
    datasets,
    entries,
    levels,
    partitions,
    purposes,
    refusals,
    runs,
    teams,
)

__all__ = [
    "POINTS",
    "WINDOW",
    "DashboardReader",
    "Found",
    "Level",
    "Position",
    "Refused",
    "Refusing",
    "Step",
    "reader",
]

POINTS = 250
"""How many points of a history are read at most."""
WINDOW = 20_000
"""How many entries one page looks through at most for a combination that no index answers."""
_COMBED_AT_ONCE = 2_000


@dataclass(frozen=True)
class Level:
    """The fraction that was left of the whole dataset after an entry."""

    sequence: int
    at_us: int
    fraction: float


@dataclass(frozen=True, eq=False)
class Step:
    """One entry of a run that says what was released: its charge, and how often at most."""

    sequence: int
    at_us: int
    charge: Charge
    times: int
    partition: int | None
    allocation: int | None = None


class Refused(NamedTuple):
    """When a request was refused, after which entry, and how many of its repetitions would have fitted."""

    number: int
    sequence: int
    at_us: int
    fits_times: int


@dataclass(frozen=True)
class Refusing:
    """Since when everything that was asked for was refused, and how many requests that were."""

    since_us: int
    requests: int


@dataclass(frozen=True, eq=False)
class Found:
    """Entries that were asked for; ``looked_to`` is where the search stopped before the ledger's start."""

    entries: list[StoredEntry]
    looked_to: int | None


@dataclass(frozen=True)
class Position:
    """What tells whether anything of a dataset changed: its last entry and its last refusal."""

    dataset_id: int
    sequence: int
    head: bytes
    refusals: int


_LIMIT = bindparam("limit", type_=Integer)
_FEW = (
    select(datasets.c.id)
    .where(datasets.c.left_basis_points < bindparam("below", type_=SmallInteger))
    .limit(_LIMIT)
    .subquery()
)
_COUNT = select(func.count()).select_from(_FEW)
_LAST_REFUSAL = (
    select(func.coalesce(func.max(refusals.c.number), 0))
    .where(refusals.c.dataset_id == datasets.c.id)
    .scalar_subquery()
)
_POSITION = select(datasets.c.id, datasets.c.sequence, datasets.c.head, _LAST_REFUSAL).where(
    datasets.c.name == bindparam("name")
)
_LEVELS = select(func.coalesce(func.max(levels.c.number), 0)).where(of_dataset(levels.c.dataset_id))
_LEVEL_BEFORE = select(func.max(levels.c.number)).where(
    of_dataset(levels.c.dataset_id), levels.c.at_us <= bindparam("since_us", type_=BigInteger)
)
_TEAMS = select(teams.c.name).where(of_dataset(teams.c.dataset_id)).order_by(teams.c.name).limit(_LIMIT)
_REFUSED = tuple(column for column in refusals.c if column.name not in ("dataset_id", "number"))
_REFUSALS = (
    select(*_REFUSED)
    .where(of_dataset(refusals.c.dataset_id))
    .order_by(refusals.c.number.desc())
    .limit(_LIMIT)
)
_LATELY_REFUSED = (
    select(refusals.c.number, refusals.c.sequence, refusals.c.at_us, refusals.c.fits_times)
    .where(of_dataset(refusals.c.dataset_id))
    .order_by(refusals.c.number.desc())
    .limit(_LIMIT)
)
_REFUSED_FROM = (
    select(refusals.c.number, refusals.c.sequence, refusals.c.at_us, refusals.c.fits_times)
    .where(of_dataset(refusals.c.dataset_id), refusals.c.number >= bindparam("number", type_=BigInteger))
    .order_by(refusals.c.number)
    .limit(1)
)
_LAST_REFUSED = select(func.coalesce(func.max(refusals.c.number), 0)).where(of_dataset(refusals.c.dataset_id))
_LATEST_KINDS = (
    select(entries.c.sequence, entries.c.kind)
    .where(of_dataset(entries.c.dataset_id))
    .order_by(entries.c.sequence.desc())
    .limit(_LIMIT)
)
_EXPIRED = KIND_CODES[EntryKind.EXPIRED]
_EXPIRIES_PASSED_OVER = 50
_KINDS_WITH_CHARGE = tuple(KIND_CODES[kind] for kind in (EntryKind.AUTHORIZED, EntryKind.RESERVED))


@functools.cache
def _levels_by_number(size: int) -> Select[Any]:
    return select(levels.c.sequence, levels.c.at_us, levels.c.fraction).where(
        of_dataset(levels.c.dataset_id), in_list(levels.c.number, size)
    )


@functools.cache
def _spender_named(table: Table) -> Select[Any]:
    columns = table.c.name, table.c.entries, table.c.amounts, table.c.first_at_us, table.c.last_at_us
    named = of_dataset(table.c.dataset_id), table.c.name == bindparam("name")
    if table is not runs:
        return select(table.c.number, *columns).where(*named)
    found = select(table.c.number, *columns, teams.c.name)
    return found.select_from(runs.outerjoin(teams, _ITS_TEAM)).where(*named)


def _largest(table: Table, *more: ColumnElement[Any]) -> Select[Any]:
    columns = table.c.name, table.c.entries, table.c.amounts, table.c.first_at_us, table.c.last_at_us
    # Word for word the index's own condition: neither database would infer it.
    has_spent: ColumnElement[bool] = literal_column(f"{table.name}.{HAS_SPENT}")
    found = select(*columns, *more).where(of_dataset(table.c.dataset_id), has_spent)
    return found.order_by(table.c.magnitude.desc(), table.c.number.desc()).limit(_LIMIT)


_ITS_TEAM = and_(teams.c.dataset_id == runs.c.dataset_id, teams.c.number == runs.c.team)
_LARGEST_RUNS = _largest(runs, teams.c.name).select_from(runs.outerjoin(teams, _ITS_TEAM))
_LARGEST_PURPOSES = _largest(purposes)


def _of_run(which: Any) -> Select[Any]:
    """The first or last entry of a run; the index on runs answers it."""
    return select(which(entries.c.sequence)).where(
        of_dataset(entries.c.dataset_id),
        entries.c.run == bindparam("run", type_=Integer),
        literal_column("entries.run IS NOT NULL"),
    )


_FIRST_OF_RUN, _LAST_OF_RUN = _of_run(func.min), _of_run(func.max)


def _at_even_steps() -> Select[Any]:
    """Sequence numbers of a run's entries, each at least ``stride`` behind the one before."""
    found = _FIRST_OF_RUN.cte("found", recursive=True)
    at = found.c[0]
    following = _FIRST_OF_RUN.where(entries.c.sequence >= at + bindparam("stride", type_=BigInteger))
    found = found.union_all(select(following.scalar_subquery()).where(at.is_not(None)))
    return select(found.c[0]).where(found.c[0].is_not(None))


_EVENLY_SPACED = _at_even_steps()


@functools.cache
def _steps(size: int) -> Select[Any]:
    columns = (
        entries.c.sequence,
        entries.c.at_us,
        entries.c.charge,
        entries.c.times,
        entries.c.partition,
        entries.c.allocation,
    )
    return select(*columns).where(
        of_dataset(entries.c.dataset_id),
        in_list(entries.c.sequence, size),
        literal_column(f"entries.kind IN {_KINDS_WITH_CHARGE}"),
    )


@functools.cache
def _number(table: Table) -> Select[Any]:
    number = table.c.sequence if table is allocations else table.c.number
    return select(number).where(of_dataset(table.c.dataset_id), table.c.name == bindparam("name"))


@functools.cache
def _candidates(leading: str) -> Select[Any]:
    """Entries by the index of one condition, the latest first, with what the other conditions look at."""
    compared = entries.c.run, entries.c.partition, entries.c.allocation, entries.c.kind
    found = select(entries.c.sequence, *compared).where(
        of_dataset(entries.c.dataset_id), entries.c.sequence < bindparam("below", type_=BigInteger)
    )
    if leading != "kind":
        found = found.where(
            entries.c[leading] == bindparam(leading, type_=entries.c[leading].type),
            literal_column(f"entries.{leading} IS NOT NULL"),
        )
    return found.order_by(entries.c.sequence.desc()).limit(_LIMIT)


def _agrees(row: Row, numbers: Mapping[str, int | None]) -> bool:
    _, run, partition, allocation, kind = row
    found = {"run": run, "partition": partition, "allocation": allocation, "kind": kind}
    return all(found[name] == number for name, number in numbers.items())


@contextmanager
def reader(database: Database) -> Iterator["DashboardReader"]:
    """One consistent look at what is committed."""
    with database.read() as session:
        yield DashboardReader(session)


class DashboardReader:
    """Reads for people, all of them at one moment of the database."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def listed(
        self,
        listing: Listing,
        after: Cursor | None,
        limit: int,
        names: Collection[str] | None = None,
    ) -> list[DatasetSummary]:
        """Datasets in an order, behind a place; among ``names`` alone where they are given."""
        return list_datasets(self._session, listing, after, limit, names)

    def anchors(self, ids: Sequence[int], times_us: Sequence[int]) -> dict[int, Anchors]:
        """What was left of datasets at these times."""
        return find_anchors(self._session, ids, times_us)

    def samples(self, counts: Mapping[int, int], most: int) -> dict[int, list[Level]]:
        """At most so many levels of each of several datasets, by how many are kept of it."""
        asked = [
            queries_in_list(_levels_by_number, evenly_spaced_numbers(last, most), dataset_id=id_)
            for id_, last in counts.items()
        ]
        found = self._session.rows_of_each(asked)
        return {
            id_: sorted((Level(*row) for row in rows), key=lambda level: level.sequence)
            for id_, rows in zip(counts, found, strict=True)
        }

    def latest_refusals(self, ids: Sequence[int], most: int) -> dict[int, list[Refused]]:
        """The latest refusals of each of several datasets, the latest first."""
        asked = [[Query(_LATELY_REFUSED, {"dataset_id": id_, "limit": most})] for id_ in ids]
        found = self._session.rows_of_each(asked)
        return {id_: [Refused(*row) for row in rows] for id_, rows in zip(ids, found, strict=True)}

    def top_runs(self, sizes: Mapping[int, int]) -> dict[int, RunRow]:
        """The run that has spent most of each of several datasets, by the sizes of their amounts."""
        asked = [[Query(_LARGEST_RUNS, {"dataset_id": id_, "limit": 1})] for id_ in sizes]
        found = self._session.rows_of_each(asked)
        pairs = zip(sizes.items(), found, strict=True)
        return {id_: _spender(rows[0], size) for (id_, size), rows in pairs if rows}

    def last_grant(self, dataset_id: int) -> int:
        """The last entry that is not an expiry, which gives nothing."""
        return self._last_but_expiries(dataset_id)

    def count_below(self, left_basis_points: int, most: int) -> int:
        """How many datasets have less left than that, counted up to ``most``."""
        return int(self._session.rows(_COUNT, {"below": left_basis_points, "limit": most})[0][0])

    def position(self, name: str) -> Position:
        """Where a dataset stands; raises NotFound."""
        row = self._session.row(_POSITION, {"name": name})
        if row is None:
            raise NotFound("dataset", name)
        return Position(*row)

    def dataset(self, name: str) -> DatasetRow:
        """One dataset; raises NotFound."""
        return find_dataset(self._session, name)

    def levels(self, dataset_id: int, since_us: int | None = None) -> list[Level]:
        """What was left over time, in the order of entries; every one of few, a sample of many.

        ``since_us`` leaves out what was before it, but for the last.
        """
        last = int(self._session.rows(_LEVELS, {"dataset_id": dataset_id})[0][0])
        first = 1
        if since_us is not None:
            values = {"dataset_id": dataset_id, "since_us": since_us}
            first = int(self._session.rows(_LEVEL_BEFORE, values)[0][0] or 1)
        numbers = [first - 1 + each for each in evenly_spaced_numbers(last - first + 1, POINTS)]
        rows = select_in_list(self._session, _levels_by_number, numbers, dataset_id=dataset_id)
        return sorted((Level(*row) for row in rows), key=lambda level: level.sequence)

    def spending(self, state: LedgerState, since_us: int) -> Spending:
        """What each run has spent since a time; an estimate where that is in many entries."""
        found = state.dataset_id, since_us, state.sequence, state.budget.size
        return spending_since(self._session, *found)

    def runs(self, dataset_id: int, after: str, limit: int, size: int) -> list[RunRow]:
        """Runs by name, behind one."""
        return runs_page(self._session, dataset_id, after, limit, size)

    def quotas(self, dataset_id: int, after: int, limit: int) -> list[Quota]:
        """Quotas in force by the entries that set them."""
        return quotas_page(self._session, dataset_id, after, limit)

    def teams(self, dataset_id: int, limit: int) -> list[str]:
        """Teams that have entries, by name."""
        rows = self._session.rows(_TEAMS, {"dataset_id": dataset_id, "limit": limit})
        return [name for (name,) in rows]

    def largest_runs(self, dataset_id: int, limit: int, size: int) -> list[RunRow]:
        """The runs that have spent most."""
        rows = self._session.rows(_LARGEST_RUNS, {"dataset_id": dataset_id, "limit": limit})
        return [_spender(row, size) for row in rows]

    def largest_purposes(self, dataset_id: int, limit: int, size: int) -> list[RunRow]:
        """The purposes on which most was spent."""
        rows = self._session.rows(_LARGEST_PURPOSES, {"dataset_id": dataset_id, "limit": limit})
        return [_spender(row, size) for row in rows]

    def refusals(self, dataset_id: int, limit: int) -> list[Refusal]:
        """What was refused, the latest first."""
        rows = self._session.rows(_REFUSALS, {"dataset_id": dataset_id, "limit": limit})
        return [Refusal(*row) for row in rows]

    def refusing(self, dataset_id: int) -> Refusing | None:
        """Since when everything was refused: after the last entry that is not an expiry, which gives nothing.

        A request of which some repetitions would have fitted was too large, not refused whatever it
        asked for. Refusals are numbered in the order of the entries they were decided after: the first
        one is found by halving.
        """
        granted = self._last_but_expiries(dataset_id)
        last = int(self._session.rows(_LAST_REFUSED, {"dataset_id": dataset_id})[0][0])
        if not last or self._refused_from(dataset_id, last)[3]:
            return None
        low, high, since = 1, last + 1, None
        while low < high:
            middle = (low + high) // 2
            number, sequence, at_us, _ = self._refused_from(dataset_id, middle)
            if sequence >= granted:
                high, since = middle, at_us
            else:
                low = number + 1
        return None if since is None else Refusing(since, last + 1 - low)

    def _refused_from(self, dataset_id: int, number: int) -> Row:
        """The first refusal from a number on that there is."""
        values = {"dataset_id": dataset_id, "number": number}
        return self._session.rows(_REFUSED_FROM, values)[0]

    def _last_but_expiries(self, dataset_id: int) -> int:
        values = {"dataset_id": dataset_id, "limit": _EXPIRIES_PASSED_OVER}
        latest = self._session.rows(_LATEST_KINDS, values)
        others = [int(sequence) for sequence, kind in latest if kind != _EXPIRED]
        return others[0] if others else int(latest[-1][0])

    def held(self, dataset_id: int) -> list[Held]:
        """What open reservations hold, by run and charge."""
        return held_by_runs(self._session, dataset_id)

    def reservations(self, dataset_id: int, after: int, limit: int, size: int) -> list[Reservation]:
        """Open reservations by sequence number."""
        return open_reservations_page(self._session, dataset_id, after, limit, size)

    def partitions(self, dataset_id: int, after: int, limit: int, size: int) -> list[Partition]:
        """Partitions by number."""
        return partitions_page(self._session, dataset_id, after, limit, size)

    def partition(self, dataset_id: int, number: int, size: int) -> Partition | None:
        """One partition."""
        return find_partitions_by_number(self._session, dataset_id, [number], size).get(number)

    def allocations(self, dataset_id: int, after: int, limit: int) -> list[Allocation]:
        """Allocations in the order in which they were opened."""
        return allocations_page(self._session, dataset_id, after, limit)

    def allocations_at(self, dataset_id: int, sequences: Collection[int]) -> dict[int, Allocation]:
        """Allocations by the numbers of the entries that opened them."""
        return find_allocations_by_sequence(self._session, dataset_id, sequences) if sequences else {}

    def count_allocations(self, dataset_id: int) -> tuple[int, int]:
        """How many allocations are open, and how many were returned."""
        return count_allocations(self._session, dataset_id)

    def entries(self, dataset_id: int, chosen: EntryFilter) -> Found:
        """Entries, the latest first, below the sequence number ``chosen.after`` unless that is 0.

        One condition is answered by its index. Several are not: then what the first of them finds is
        looked through, up to ``WINDOW`` entries.
        """
        names = ("run", "partition", "allocation", "kind")
        asked = [name for name in names if getattr(chosen, name) is not None]
        if len(asked) < 2 and chosen.kind != EntryKind.AUTHORIZED.value:
            found = entries_page(self._session, dataset_id, replace(chosen, newest_first=True))
            return Found(found, None)
        return self._search_entries(dataset_id, chosen)

    def _search_entries(self, dataset_id: int, chosen: EntryFilter) -> Found:
        numbers = self._numbers(dataset_id, chosen)
        if None in numbers.values():
            return Found([], None)
        values = {"dataset_id": dataset_id, "limit": _COMBED_AT_ONCE, **numbers}
        below, looked = chosen.after or 2**63 - 1, 0
        matching: list[int] = []
        candidates = _candidates(next(iter(numbers)))
        while len(matching) < chosen.limit and looked < WINDOW:
            rows = self._session.rows(candidates, {**values, "below": below})
            matching += [row[0] for row in rows if _agrees(row, numbers)]
            looked += len(rows)
            if len(rows) < _COMBED_AT_ONCE:
                return Found(self._by_numbers(dataset_id, matching[: chosen.limit]), None)
            below = rows[-1][0]
        return Found(self._by_numbers(dataset_id, matching[: chosen.limit]), below)

    def _by_numbers(self, dataset_id: int, sequences: Sequence[int]) -> list[StoredEntry]:
        return find_entries(self._session, dataset_id, sequences)

    def _numbers(self, dataset_id: int, chosen: EntryFilter) -> dict[str, int | None]:
        """What is asked for by its numbers, the one that leads first; None for what there is not."""
        numbers: dict[str, int | None] = {}
        for name, table in (("run", runs), ("partition", partitions), ("allocation", allocations)):
            asked = getattr(chosen, name)
            if asked is not None:
                row = self._session.row(_number(table), {"dataset_id": dataset_id, "name": asked})
                numbers[name] = None if row is None else row[0]
        if chosen.kind is not None:
            numbers["kind"] = KIND_CODES[EntryKind(chosen.kind)]
        return numbers

    def run(self, dataset_id: int, name: str, size: int) -> tuple[int, RunRow]:
        """A run's number and what it has spent; raises NotFound."""
        row = self._session.row(_spender_named(runs), {"dataset_id": dataset_id, "name": name})
        if row is None:
            raise NotFound("run", name)
        number, *rest = row
        return number, _spender(rest, size)

    def purpose(self, dataset_id: int, name: str, size: int) -> RunRow:
        """What was spent on a purpose, which may be nothing."""
        row = self._session.row(_spender_named(purposes), {"dataset_id": dataset_id, "name": name})
        return RunRow(name, 0, np.zeros(size), 0, 0) if row is None else _spender(row[1:], size)

    def steps(self, dataset_id: int, run: int, count: int) -> list[Step]:
        """A run's steps in order: all of its ``count`` entries, or of many a sample spread evenly."""
        values: dict[str, Any] = {"dataset_id": dataset_id, "run": run}
        first = self._session.rows(_FIRST_OF_RUN, values)[0][0]
        last = self._session.rows(_LAST_OF_RUN, values)[0][0]
        if first is None:
            return []
        values["stride"] = 1 if count <= POINTS else -(-(last - first + 1) // POINTS)
        chosen = [row[0] for row in self._session.rows(_EVENLY_SPACED, values)]
        found = select_in_list(self._session, _steps, chosen, dataset_id=dataset_id)
        rows = sorted(found, key=lambda row: row[0])
        known = find_charges(self._session, dataset_id, [row[2] for row in rows])
        return [
            Step(sequence, at_us, known[charge], times or 1, partition, allocation)
            for sequence, at_us, charge, times, partition, allocation in rows
            if charge in known
        ]


def evenly_spaced_numbers(last: int, most: int) -> Sequence[int]:
    """At most ``most`` numbers between 1 and ``last``, evenly spaced, both ends among them."""
    if last <= most:
        return range(1, last + 1)
    return sorted({1 + index * (last - 1) // (most - 1) for index in range(most)})


def _spender(row: Sequence[Any], size: int) -> RunRow:
    name, count, raw, *rest = row
    return RunRow(name, count, vector_from_bytes(raw, size), *rest)
