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

from dpledger.accounting.rounding import Direction, scale
from dpledger.accounting.validation import Floats
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.entries import Entry, EntryKind
from dpledger.ledger.model.state import LedgerState, add_up
from dpledger.storage.engine.codec import CLOSED_AS, vector_from_bytes, vector_to_bytes
from dpledger.storage.engine.session import Session, in_list, of_dataset, select_in_list
from dpledger.storage.repositories.charges import ChargeKey, NumberedCharge, charge_number
from dpledger.storage.repositories.entries import References
from dpledger.storage.repositories.surrogate_ids import purpose_number
from dpledger.storage.tables import charges, entries, purposes, runs

__all__ = ["added_to_sums", "magnitude"]

_STEPS_PER_DOUBLING = 16
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
    """What entries add up to: how many they are, and how often they spend which charges.

    Entries of one run that spend one charge have one, as have all that one sum is raised by.
    """

    entries: int = 0
    last_at_us: int = 0
    repetitions: defaultdict[bytes, int] = field(default_factory=lambda: defaultdict(int))

    def add(self, other: "_Tally") -> None:
        self.entries += other.entries
        self.last_at_us = max(self.last_at_us, other.last_at_us)
        for fingerprint, times in other.repetitions.items():
            self.repetitions[fingerprint] += times


class _Sum(NamedTuple):
    """A stored sum."""

    entries: int
    amounts: Floats
    last_at_us: int


SumKey = tuple[Table, int]
"""Where a sum is stored: its table and its number."""
Sums = dict[SumKey, _Sum]


class _Written(NamedTuple):
    """The sums that a group of entries wrote; they are what is stored until another entry follows."""

    sequence: int
    sums: Sums


def magnitude(budget: Budget, amounts: Floats) -> int:
    """Where amounts stand among others, in sixteenths of a doubling; 0 for nothing at all.

    It is coarse on purpose: it orders an index, which is touched only when this changes. It depends on
    no limit, so that sums stay comparable when the budget changes.
    """
    amount = budget.filter.magnitude(budget, amounts)
    if amount <= 0.0:
        return int(np.any(amounts > 0.0))
    exponent = min(max(math.log2(amount), _SMALLEST), _LARGEST) if math.isfinite(amount) else _LARGEST
    return min(2**15 - 1, 1 + round(_STEPS_PER_DOUBLING * (exponent - _SMALLEST)))


def _magnitude_of_count(entries: int) -> int:
    """Where a sum stands among others by its entries, where amounts do not add up over allocations."""
    return min(2**15 - 1, 1 + int(_STEPS_PER_DOUBLING * math.log2(1 + entries)))


Change = tuple[Executable, dict[str, Any]]


def added_to_sums(
    session: Session, state: LedgerState, appended: Sequence[Entry], refer: References
) -> list[Change]:
    """What adds the spends of entries, which are written already: authorized or used, never reserved."""
    dataset_id = state.dataset_id
    in_runs: defaultdict[SumKey, _Tally] = defaultdict(_Tally)
    in_purposes: defaultdict[SumKey, _Tally] = defaultdict(_Tally)
    for (run, fingerprint), tally in _alike(session, dataset_id, appended, refer).items():
        if run is not None:
            in_runs[runs, run].add(tally)
        if fingerprint is not None:
            number = session.recall(("purpose", dataset_id, fingerprint))
            if number is None:
                number = _purpose_of(session, dataset_id, fingerprint, tally.last_at_us)
            in_purposes[purposes, number].add(tally)
    sums = _add(session, state, {**in_runs, **in_purposes}, appended[0].sequence - 1)
    session.found["sums", dataset_id] = _Written(state.sequence, sums)
    return [
        (
            _save(table),
            {
                "dataset_id": dataset_id,
                "number": number,
                "new_entries": after.entries,
                "new_amounts": vector_to_bytes(after.amounts),
                "new_last_at_us": after.last_at_us,
                "new_magnitude": _magnitude_of_count(after.entries)
                if state.budget.filter.allocates
                else magnitude(state.budget, after.amounts),
            },
        )
        for (table, number), after in sums.items()
    ]


def _alike(
    session: Session, dataset_id: int, appended: Sequence[Entry], refer: References
) -> dict[tuple[int | None, bytes | None], _Tally]:
    """Entries by the number of their run and what they spend: most of a group do the same."""
    closed = [entry.reservation for entry in appended if entry.reservation is not None]
    reserved: dict[int, bytes] = (
        dict(select_in_list(session, _charges_of, closed, dataset_id=dataset_id)) if closed else {}
    )
    found: defaultdict[tuple[int | None, bytes | None], _Tally] = defaultdict(_Tally)
    for entry in appended:
        fingerprint, times = None, 0
        if entry.kind is EntryKind.AUTHORIZED:
            fingerprint, times = entry.charge, 1
        elif entry.kind in CLOSED_AS and entry.reservation is not None and entry.used:
            fingerprint, times = reserved[entry.reservation], entry.used
        tally = found[refer[entry.actor, entry.run, entry.charge].run, fingerprint]
        tally.entries += 1
        tally.last_at_us = max(tally.last_at_us, entry.at_us)
        if fingerprint is not None:
            tally.repetitions[fingerprint] += times
    return found


def _purpose_of(session: Session, dataset_id: int, fingerprint: bytes, at_us: int) -> int:
    """The number of the purpose that a charge is spent for."""
    purpose = charge_number(session, dataset_id, fingerprint).purpose
    number = purpose_number(session, dataset_id, purpose, at_us)
    session.found["purpose", dataset_id, fingerprint] = number
    return number


def _add(session: Session, state: LedgerState, tallies: Mapping[SumKey, _Tally], sequence: int) -> Sums:
    """The sums after adding to them; ``sequence`` is the last entry that is in them."""
    dataset_id = state.dataset_id
    written: _Written | None = session.recall(("sums", dataset_id))
    # This process wrote these last, if no entry of another process came after them.
    known = written.sums if written is not None and written.sequence == sequence else {}
    missing = [place for place in tallies if place not in known]
    stored = _read_sums(session, state, missing) if missing else {}
    after: Sums = {}
    for place, tally in tallies.items():
        count, amounts, last_at_us = known.get(place) or stored[place]
        # The amounts of different allocations are of different things: only entries are counted there.
        spent = {} if state.budget.filter.allocates else tally.repetitions
        for fingerprint, times in spent.items():
            charge: NumberedCharge | None = session.recall(ChargeKey(dataset_id, fingerprint))
            each = (charge or charge_number(session, dataset_id, fingerprint)).amounts
            amounts = add_up(amounts, each if times == 1 else scale(each, times, Direction.UP))
        after[place] = _Sum(count + tally.entries, amounts, max(last_at_us, tally.last_at_us))
    return after


def _read_sums(session: Session, state: LedgerState, places: Sequence[SumKey]) -> Sums:
    found: Sums = {}
    for table in (runs, purposes):
        numbers = [number for each, number in places if each is table]
        query = functools.partial(_by_number, table)
        for number, count, raw, last_at_us in select_in_list(
            session, query, numbers, dataset_id=state.dataset_id
        ):
            found[table, number] = _Sum(count, vector_from_bytes(raw, state.budget.size), last_at_us)
    return found
