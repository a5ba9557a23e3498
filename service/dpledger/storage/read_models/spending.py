"""Spend by run within a range of time.

An entry's place in its ledger tells its time, so a range is found by halving. Up to ``COUNTED`` entries are
added up by the database. Of more a sample is read, one entry at random from each of ``SAMPLED`` equal
stretches, and what it adds up to is scaled: an estimate, which is named as such. So a page costs the same
whatever a range holds.
"""

import functools
import itertools
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sqlalchemy import BigInteger, Select, and_, bindparam, case, func, literal_column, select
from sqlalchemy.sql.elements import ColumnElement

from dpledger.accounting.validation import Floats
from dpledger.ledger.model.entries import EntryKind
from dpledger.ledger.ports import RunRow
from dpledger.storage.engine.codec import CLOSED_AS, KIND_CODES, vector_from_bytes
from dpledger.storage.engine.session import Row, Session, in_list, of_dataset, select_in_list
from dpledger.storage.tables import charges, entries, runs, teams

__all__ = ["COUNTED", "SAMPLED", "Spending", "spending_since"]

COUNTED = 5_000
"""Up to how many entries are all added up."""
SAMPLED = 2_048
"""How many entries of a longer range are read."""
_AUTHORIZED = KIND_CODES[EntryKind.AUTHORIZED]
_SPENDING = (_AUTHORIZED, *(KIND_CODES[kind] for kind in CLOSED_AS))
_AT = select(entries.c.at_us).where(
    of_dataset(entries.c.dataset_id), entries.c.sequence == bindparam("sequence", type_=BigInteger)
)
_held = entries.alias("held")
_ITS_RESERVATION = and_(_held.c.dataset_id == entries.c.dataset_id, _held.c.sequence == entries.c.reservation)
_TIMES = case((literal_column(f"entries.kind = {_AUTHORIZED}"), 1), else_=entries.c.used)
_CHARGE = func.coalesce(entries.c.charge, _held.c.charge)


def _added() -> Select[Any]:
    found = select(
        entries.c.run,
        _CHARGE,
        func.sum(_TIMES),
        func.count(),
        func.min(entries.c.at_us),
        func.max(entries.c.at_us),
    )
    spends: list[ColumnElement[bool]] = [
        literal_column(f"entries.kind IN {_SPENDING}"),
        literal_column("entries.run IS NOT NULL"),
    ]
    found = found.select_from(entries.outerjoin(_held, _ITS_RESERVATION))
    return found.where(of_dataset(entries.c.dataset_id), *spends).group_by(entries.c.run, _CHARGE)


_SINCE = _added().where(entries.c.sequence >= bindparam("first", type_=BigInteger))


@functools.cache
def _among(size: int) -> Select[Any]:
    return _added().where(in_list(entries.c.sequence, size))


@functools.cache
def _amounts(size: int) -> Select[Any]:
    return select(charges.c.number, charges.c.amounts).where(
        of_dataset(charges.c.dataset_id), in_list(charges.c.number, size)
    )


@functools.cache
def _names(size: int) -> Select[Any]:
    its_team = and_(teams.c.dataset_id == runs.c.dataset_id, teams.c.number == runs.c.team)
    found = select(runs.c.number, runs.c.name, teams.c.name).outerjoin(teams, its_team)
    return found.where(of_dataset(runs.c.dataset_id), in_list(runs.c.number, size))


@dataclass(frozen=True, eq=False)
class Spending:
    """What runs spent in a range of so many entries; ``sampled`` is how many were read, if not all."""

    rows: list[RunRow]
    entries: int
    sampled: int | None = None


@dataclass
class _Sum:
    amounts: Floats
    entries: int = 0
    first_at_us: int = 2**63 - 1
    last_at_us: int = 0
    charges: dict[int, int] = field(default_factory=lambda: defaultdict(int))


def spending_since(session: Session, dataset_id: int, since_us: int, last: int, size: int) -> Spending:
    """What each run spent since a time, up to the ledger's last entry; in no order."""
    first = _first_since(session, dataset_id, since_us, last)
    count = last - first + 1
    if count <= COUNTED:
        found = session.rows(_SINCE, {"dataset_id": dataset_id, "first": first})
        return Spending(_rows(session, dataset_id, found, size, 1.0), count)
    chosen = _one_of_each_stretch(first, count)
    found = select_in_list(session, _among, chosen, dataset_id=dataset_id)
    rows = _rows(session, dataset_id, found, size, count / len(chosen))
    return Spending(rows, count, len(chosen))


def _first_since(session: Session, dataset_id: int, since_us: int, last: int) -> int:
    """The first entry that is not before a time; one behind the last where all are."""
    low, high = 1, last + 1
    while low < high:
        middle = (low + high) // 2
        ((at_us,),) = session.rows(_AT, {"dataset_id": dataset_id, "sequence": middle})
        if at_us >= since_us:
            high = middle
        else:
            low = middle + 1
    return low


def _one_of_each_stretch(first: int, count: int) -> Sequence[int]:
    """The same for the same range, so that a page that did not change is the same page."""
    drawn = random.Random(f"{first} {count}")  # spreads a sample  # nosec B311
    bounds = [first + index * count // SAMPLED for index in range(SAMPLED + 1)]
    return [drawn.randrange(low, high) for low, high in itertools.pairwise(bounds)]


def _rows(session: Session, dataset_id: int, found: Iterable[Row], size: int, weight: float) -> list[RunRow]:
    sums: defaultdict[int, _Sum] = defaultdict(lambda: _Sum(np.zeros(size)))
    for run, charge, times, count, first_at_us, last_at_us in found:
        each = sums[run]
        each.entries += count
        each.first_at_us = min(each.first_at_us, first_at_us)
        each.last_at_us = max(each.last_at_us, last_at_us)
        if charge is not None:
            each.charges[charge] += int(times)
    numbers = sorted({charge for each in sums.values() for charge in each.charges})
    known = select_in_list(session, _amounts, numbers, dataset_id=dataset_id) if numbers else []
    amounts = {number: vector_from_bytes(raw, size) for number, raw in known if len(raw) == 8 * size}
    names = select_in_list(session, _names, sorted(sums), dataset_id=dataset_id) if sums else []
    return [
        RunRow(
            name,
            round(weight * sums[run].entries),
            _added_up(sums[run], amounts, weight),
            sums[run].first_at_us,
            sums[run].last_at_us,
            team,
        )
        for run, name, team in {row[0]: row for row in names}.values()
    ]


def _added_up(each: _Sum, amounts: dict[int, Floats], weight: float) -> Floats:
    total = each.amounts
    with np.errstate(over="ignore"):
        for charge, times in each.charges.items():
            if charge in amounts:
                total = total + times * weight * amounts[charge]
    return total
