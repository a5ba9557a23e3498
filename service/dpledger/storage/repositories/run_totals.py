"""Totals per run and per purpose, added up with every entry.

Amounts that one group of entries adds are scaled and added once, so the last places of a sum depend on
how its entries were grouped. Every rounding is upwards: the sum is never below the exact one. Under a shared
budget only entries are counted: the amounts of different allocations are of different things.
"""

import functools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Executable, Select, Table, and_, bindparam, select, update

from dpledger.accounting.rounding import Direction, add, scale
from dpledger.accounting.validation import Floats
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.entries import Entry, EntryKind
from dpledger.ledger.model.state import LedgerState
from dpledger.storage.engine.cache import TransactionCache
from dpledger.storage.engine.codec import vector_from_bytes, vector_to_bytes
from dpledger.storage.engine.in_clauses import in_list, of_dataset, select_in_list
from dpledger.storage.engine.session import Session
from dpledger.storage.repositories.charges import charge_number
from dpledger.storage.repositories.entries import References
from dpledger.storage.repositories.surrogate_ids import purpose_number
from dpledger.storage.tables import charges, entries, purposes, runs

__all__ = ["added_to_sums", "magnitude"]

_STEPS_A_DOUBLING = 16
_SMALLEST, _LARGEST = -1075, 1024
"""Powers of two between which every positive float64 lies."""
_ITS_CHARGE = and_(charges.c.dataset_id == entries.c.dataset_id, charges.c.number == entries.c.charge)


@functools.cache
def _by_number(table: Table, size: int) -> Select[Any]:
    return select(table.c.number, table.c.entries, table.c.amounts, table.c.last_at_us).where(
        of_dataset(table.c.dataset_id), in_list(table.c.number, size)
    )


@functools.cache
def _save(table: Table) -> Any:
    changed = ("entries", "amounts", "last_at_us", "magnitude")
    this = of_dataset(table.c.dataset_id), table.c.number == bindparam("number")
    return update(table).where(*this).values({name: bindparam(f"new_{name}") for name in changed})


@functools.cache
def _charges_of(size: int) -> Select[Any]:
    """The charges of entries, by the entries' sequence numbers."""
    return (
        select(entries.c.sequence, charges.c.fingerprint)
        .join(charges, _ITS_CHARGE)
        .where(of_dataset(entries.c.dataset_id), in_list(entries.c.sequence, size))
    )


@dataclass
class _Tally:
    """What a group of entries adds to one sum: how many they are, and which charges they spend how often."""

    entries: int = 0
    last_at_us: int = 0
    repetitions: dict[bytes, int] = field(default_factory=dict)

    def add(self, other: "_Alike", fingerprint: bytes | None) -> None:
        self.entries += other.entries
        self.last_at_us = max(self.last_at_us, other.last_at_us)
        if fingerprint is not None:
            self.repetitions[fingerprint] = self.repetitions.get(fingerprint, 0) + other.times


class _Sum(NamedTuple):
    """A stored sum."""

    entries: int
    amounts: Floats
    last_at_us: int


Sums = dict[tuple[str, int], _Sum]
"""By table and number."""


class _Written(NamedTuple):
    """The sums that a group of entries wrote; they are what is stored until another entry follows."""

    sequence: int
    sums: Sums


@dataclass
class _Alike:
    """Entries of one run that spend one charge."""

    entries: int = 0
    last_at_us: int = 0
    times: int = 0


def magnitude(budget: Budget, amounts: Floats) -> int:
    """Where amounts stand among others, in sixteenths of a doubling; 0 for nothing at all.

    It is coarse on purpose: it orders an index, which is touched only when this changes. It depends on
    no limit, so that sums stay comparable when the budget changes.
    """
    amount = budget.filter.magnitude(budget, amounts)
    if amount <= 0.0:
        return int(np.any(amounts > 0.0))
    exponent = min(max(math.log2(amount), _SMALLEST), _LARGEST) if math.isfinite(amount) else _LARGEST
    return min(2**15 - 1, 1 + round(_STEPS_A_DOUBLING * (exponent - _SMALLEST)))


def _place(budget: Budget, after: "_Sum") -> int:
    """Where a sum stands among others; by its entries where amounts do not add up over allocations."""
    if budget.filter.allocates:
        return min(2**15 - 1, 1 + int(_STEPS_A_DOUBLING * math.log2(1 + after.entries)))
    return magnitude(budget, after.amounts)


Change = tuple[Executable, dict[str, Any]]


def added_to_sums(
    session: Session,
    cache: TransactionCache,
    state: LedgerState,
    appended: Sequence[Entry],
    refer: References,
) -> list[Change]:
    """What adds the spends of entries, which are written already: authorized or used, never reserved."""
    by_run: defaultdict[int, _Tally] = defaultdict(_Tally)
    by_purpose: defaultdict[int, _Tally] = defaultdict(_Tally)
    reserved = _reserved_charges(session, state.dataset_id, appended)
    for (run, fingerprint), alike in _alike(appended, reserved).items():
        number = refer.runs[run]
        if number is not None:
            by_run[number].add(alike, fingerprint)
        if fingerprint is not None:
            purpose = charge_number(session, cache, state.dataset_id, fingerprint).purpose
            number = purpose_number(session, cache, state.dataset_id, purpose, alike.last_at_us)
            by_purpose[number].add(alike, fingerprint)
    known = _known_sums(cache, state.dataset_id, appended[0].sequence - 1)
    in_runs = _add(session, cache, state, runs, by_run, known)
    in_purposes = _add(session, cache, state, purposes, by_purpose, known)
    cache.note(("sums", state.dataset_id), _Written(state.sequence, in_runs | in_purposes))
    return [*_changes(state, runs, in_runs), *_changes(state, purposes, in_purposes)]


def _known_sums(cache: TransactionCache, dataset_id: int, sequence: int) -> Sums:
    """The sums that this process wrote last, if no entry of another process came after them."""
    written: _Written | None = cache.get(("sums", dataset_id))
    return written.sums if written is not None and written.sequence == sequence else {}


def _alike(
    appended: Sequence[Entry], reserved: Mapping[int, bytes]
) -> dict[tuple[str | None, bytes | None], _Alike]:
    """Entries by their run and what they spend: most of a group do the same."""
    found: defaultdict[tuple[str | None, bytes | None], _Alike] = defaultdict(_Alike)
    for entry in appended:
        fingerprint, times = _spent_by(entry, reserved)
        alike = found[entry.run, fingerprint if times else None]
        alike.entries += 1
        alike.times += times
        alike.last_at_us = max(alike.last_at_us, entry.at_us)
    return found


def _add(
    session: Session,
    cache: TransactionCache,
    state: LedgerState,
    table: Table,
    tallies: Mapping[int, _Tally],
    known: Sums,
) -> Sums:
    """The sums of one table after adding to them."""
    stored = _read_sums(session, state, table, [each for each in tallies if (table.name, each) not in known])
    after: Sums = {}
    for number, tally in tallies.items():
        place = (table.name, number)
        count, amounts, last_at_us = known.get(place) or stored[place]
        # The amounts of different allocations are of different things: only entries are counted there.
        spent = {} if state.budget.filter.allocates else tally.repetitions
        for fingerprint, times in spent.items():
            each = charge_number(session, cache, state.dataset_id, fingerprint).amounts
            amounts = add(amounts, scale(each, times, Direction.UP), Direction.UP)
        after[place] = _Sum(count + tally.entries, amounts, max(last_at_us, tally.last_at_us))
    return after


def _read_sums(session: Session, state: LedgerState, table: Table, numbers: Sequence[int]) -> Sums:
    rows = select_in_list(session, functools.partial(_by_number, table), numbers, dataset_id=state.dataset_id)
    return {
        (table.name, number): _Sum(count, vector_from_bytes(raw, state.budget.size), last_at_us)
        for number, count, raw, last_at_us in rows
    }


def _changes(state: LedgerState, table: Table, after: Sums) -> list[Change]:
    return [(_save(table), _new_values(state, number, each)) for (_, number), each in after.items()]


def _new_values(state: LedgerState, number: int, after: _Sum) -> dict[str, Any]:
    return {
        "dataset_id": state.dataset_id,
        "number": number,
        "new_entries": after.entries,
        "new_amounts": vector_to_bytes(after.amounts),
        "new_last_at_us": after.last_at_us,
        "new_magnitude": _place(state.budget, after),
    }


def _reserved_charges(session: Session, dataset_id: int, appended: Sequence[Entry]) -> dict[int, bytes]:
    """The charges of the reservations that entries close, by sequence number."""
    closed = [entry.reservation for entry in appended if entry.reservation is not None]
    rows = select_in_list(session, _charges_of, closed, dataset_id=dataset_id)
    return dict(rows)


def _spent_by(entry: Entry, reserved: Mapping[int, bytes]) -> tuple[bytes | None, int]:
    """Which charge an entry spends, and how often."""
    if entry.kind is EntryKind.AUTHORIZED:
        return entry.charge, 1
    if entry.kind in (EntryKind.SETTLED, EntryKind.EXPIRED) and entry.reservation is not None:
        return reserved[entry.reservation], entry.used or 0
    return None, 0
