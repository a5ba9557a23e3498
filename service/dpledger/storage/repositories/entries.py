"""Entries: written once, read by sequence number, by key or by page."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Column, Integer, Select, Table, and_, bindparam, literal_column, select
from sqlalchemy.sql.elements import ColumnElement

from dpledger.ledger.errors import NotFound
from dpledger.ledger.model.entries import GENESIS, Charge, Entry, EntryKind, identifier
from dpledger.ledger.model.state import LedgerState
from dpledger.ledger.ports import EntryFilter, IdempotentRequest, NewEntry, StoredEntry
from dpledger.storage.engine.codec import KIND_CODES, KINDS, entry_key
from dpledger.storage.engine.session import Row, Session, in_list, of_dataset, select_in_list
from dpledger.storage.repositories.charges import NumberedCharge, charge_number, find_charges
from dpledger.storage.repositories.surrogate_ids import actor_number, run_number, team_number
from dpledger.storage.tables import (
    RARE_KIND,
    actors,
    allocations,
    charges,
    entries,
    partitions,
    runs,
    teams,
)

__all__ = [
    "References",
    "entries_answering",
    "entries_page",
    "find_entries",
    "find_entry",
    "insert_entries",
    "select_answering",
]

_before = entries.alias("before")


def _has_number(table: Table, number: ColumnElement[Any]) -> ColumnElement[bool]:
    return and_(table.c.dataset_id == entries.c.dataset_id, table.c.number == number)


_ENTRY = (
    select(
        entries.c.sequence,
        entries.c.kind,
        entries.c.at_us,
        actors.c.name,
        _before.c.hash,
        runs.c.name,
        entries.c.partition,
        charges.c.fingerprint,
        entries.c.times,
        entries.c.used,
        entries.c.sample,
        entries.c.reservation,
        entries.c.expires_at_us,
        entries.c.detail,
        entries.c.allocation,
        teams.c.name,
        entries.c.hash,
        entries.c.charge,
        partitions.c.name,
        entries.c.request,
        entries.c.fraction,
        entries.c.key,
    )
    .select_from(entries)
    .outerjoin(
        _before,
        and_(
            _before.c.dataset_id == entries.c.dataset_id,
            _before.c.sequence == entries.c.sequence - literal_column("1"),
        ),
    )
    .outerjoin(actors, _has_number(actors, entries.c.actor))
    .outerjoin(runs, _has_number(runs, entries.c.run))
    .outerjoin(charges, _has_number(charges, entries.c.charge))
    .outerjoin(partitions, _has_number(partitions, entries.c.partition))
    .outerjoin(teams, _has_number(teams, entries.c.team))
    .where(of_dataset(entries.c.dataset_id))
)
_ALLOCATION, _CHARGE, _KEY = 14, 17, -1
_BY_SEQUENCE = _ENTRY.where(entries.c.sequence == bindparam("sequence", type_=BigInteger))


@functools.cache
def _allocation_names(size: int) -> Select[Any]:
    return select(allocations.c.sequence, allocations.c.name).where(
        of_dataset(allocations.c.dataset_id), in_list(allocations.c.sequence, size)
    )


@functools.cache
def select_answering(size: int) -> Select[Any]:
    """The sequence numbers of the entries that answered keys.

    The dataset is in the key already; named here as well, it would tempt the planner to read all of it.
    """
    return select(entries.c.sequence).where(in_list(entries.c.key, size), entries.c.key.is_not(None))


@functools.cache
def _with_sequences(size: int) -> Select[Any]:
    return _ENTRY.where(in_list(entries.c.sequence, size))


@functools.cache
def _page(wanted: frozenset[str], newest_first: bool) -> Select[Any]:
    return _in_order(_ENTRY, wanted, newest_first)


@functools.cache
def _rare_sequences(newest_first: bool) -> Select[Any]:
    """Entries of a rare kind by their numbers, which the index holds: no planner has to read more."""
    numbers = select(entries.c.sequence).where(of_dataset(entries.c.dataset_id))
    # Word for word the index's own condition: neither database would infer it.
    rare: ColumnElement[bool] = literal_column(f"entries.{RARE_KIND}")
    return _in_order(numbers.where(rare), frozenset({"kind"}), newest_first)


def _in_order(chosen: Select[Any], wanted: frozenset[str], newest_first: bool) -> Select[Any]:
    after = bindparam("after", type_=BigInteger)
    page = chosen.where(entries.c.sequence < after if newest_first else entries.c.sequence > after)
    for name in sorted(wanted):
        page = page.where(entries.c[name] == bindparam(name, type_=entries.c[name].type))
    order = entries.c.sequence.desc() if newest_first else entries.c.sequence
    return page.order_by(order).limit(bindparam("limit", type_=Integer))


def _by_name(number: Column[Any]) -> Select[Any]:
    table = number.table
    return select(number).where(of_dataset(table.c.dataset_id), table.c.name == bindparam("name"))


_NUMBER_BY_NAME = {
    "run": _by_name(runs.c.number),
    "partition": _by_name(partitions.c.number),
    "allocation": _by_name(allocations.c.sequence),
}


class Reference(NamedTuple):
    """The numbers of what an entry names."""

    actor: int
    run: int | None
    charge: NumberedCharge | None
    team: int | None


References = dict[tuple[str, str | None, bytes | None], Reference]
"""By actor, run and charge, as entries name them; an actor is of one team for good."""


def insert_entries(session: Session, dataset_id: int, new: Sequence[NewEntry]) -> References:
    """Write entries, whose charges must have been kept before; returns the numbers of what they name."""
    refer: References = {}
    for each in new:
        entry = each.entry
        key = (entry.actor, entry.run, entry.charge)
        if key not in refer:
            refer[key] = session.recall(("reference", dataset_id, *key)) or _refer(session, dataset_id, entry)
    session.insert(entries, [_columns(dataset_id, each, refer) for each in new])
    return refer


def _refer(session: Session, dataset_id: int, entry: Entry) -> Reference:
    actor = actor_number(session, dataset_id, entry.actor)
    team = None if entry.team is None else team_number(session, dataset_id, entry.team)
    run = None if entry.run is None else run_number(session, dataset_id, entry.run, entry.at_us, team)
    charge = None if entry.charge is None else charge_number(session, dataset_id, entry.charge)
    refer = Reference(actor, run, charge, team)
    session.found["reference", dataset_id, entry.actor, entry.run, entry.charge] = refer
    return refer


def _columns(dataset_id: int, new: NewEntry, refer: References) -> Row:
    entry, call = new.entry, new.call
    actor, run, charge, team = refer[entry.actor, entry.run, entry.charge]
    return (
        dataset_id,
        entry.sequence,
        entry.at_us,
        new.fraction,
        entry.sample,
        entry.reservation,
        entry.expires_at_us,
        actor,
        run,
        None if charge is None else charge.number,
        entry.partition,
        entry.times,
        entry.used,
        KIND_CODES[entry.kind],
        entry.hash,
        None if call is None else entry_key(dataset_id, call),
        None if call is None else call.request,
        entry.detail,
        entry.allocation,
        team,
    )


def entries_answering(
    session: Session, dataset_id: int, calls: Sequence[IdempotentRequest], sequences: Sequence[Row]
) -> dict[IdempotentRequest, StoredEntry]:
    """The entries found by :func:`select_answering`, matched by actor and key."""
    rows = select_in_list(session, _with_sequences, [row[0] for row in sequences], dataset_id=dataset_id)
    stored = dict(zip([row[_KEY] for row in rows], _decode(session, dataset_id, rows), strict=True))
    keys = {call: entry_key(dataset_id, call) for call in calls}
    return {call: stored[key] for call, key in keys.items() if key in stored}


def find_entry(session: Session, state: LedgerState, sequence: int) -> StoredEntry:
    """One entry."""
    rows = session.rows(_BY_SEQUENCE, {"dataset_id": state.dataset_id, "sequence": sequence})
    if not rows:
        raise NotFound("entry", identifier(state.name, sequence))
    return _decode(session, state.dataset_id, rows)[0]


def find_entries(session: Session, dataset_id: int, sequences: Sequence[int]) -> list[StoredEntry]:
    """Entries by their sequence numbers, the latest first."""
    rows = select_in_list(session, _with_sequences, sequences, dataset_id=dataset_id)
    return _decode(session, dataset_id, sorted(rows, key=lambda row: row[0], reverse=True))


def entries_page(session: Session, dataset_id: int, chosen: EntryFilter) -> list[StoredEntry]:
    """A page of entries; a run, partition or kind that there is not has none."""
    values: dict[str, Any] = {"dataset_id": dataset_id, "after": chosen.after, "limit": chosen.limit}
    if chosen.newest_first and chosen.after == 0:
        values["after"] = 2**63 - 1
    wanted = _conditions(session, dataset_id, chosen)
    if None in wanted.values():
        return []
    rare = "kind" in wanted and wanted["kind"] != KIND_CODES[EntryKind.AUTHORIZED]
    if rare and len(wanted) == 1:
        found = session.rows(_rare_sequences(chosen.newest_first), {**values, **wanted})
        latest_first = find_entries(session, dataset_id, [row[0] for row in found])
        return latest_first if chosen.newest_first else latest_first[::-1]
    page = _page(frozenset(wanted), chosen.newest_first)
    return _decode(session, dataset_id, session.rows(page, {**values, **wanted}))


def _conditions(session: Session, dataset_id: int, chosen: EntryFilter) -> dict[str, int | None]:
    """The numbers that stand for what was asked for; None for what there is not."""
    wanted: dict[str, int | None] = {}
    if chosen.kind is not None:
        wanted["kind"] = next((code for code, kind in KINDS.items() if kind.value == chosen.kind), None)
    for name, query in _NUMBER_BY_NAME.items():
        asked = getattr(chosen, name)
        if asked is not None:
            found = session.row(query, {"dataset_id": dataset_id, "name": asked})
            wanted[name] = None if found is None else found[0]
    return wanted


def _decode(session: Session, dataset_id: int, rows: Sequence[Row]) -> list[StoredEntry]:
    numbers = [row[_CHARGE] for row in rows if row[_CHARGE] is not None]
    known = find_charges(session, dataset_id, numbers) if numbers else {}
    allocated = {row[_ALLOCATION] for row in rows if row[_ALLOCATION] is not None}
    names: dict[int, str] = {}
    if allocated:
        names = dict(select_in_list(session, _allocation_names, sorted(allocated), dataset_id=dataset_id))
    return [_stored_entry(row, known, names) for row in rows]


def _stored_entry(row: Row, known: dict[int, Charge], names: dict[int, str]) -> StoredEntry:
    sequence, kind, at_us, actor, previous, *rest = row
    *optional, hash_, charge, partition_name, request, fraction, _key = rest
    entry = Entry(sequence, KINDS[kind], at_us, actor, GENESIS if previous is None else previous, *optional)
    allocation = names.get(row[_ALLOCATION])
    return StoredEntry(entry, hash_, known.get(charge), partition_name, request, fraction, allocation)
