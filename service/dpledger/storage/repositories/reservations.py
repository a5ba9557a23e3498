"""Reservations: which are open, until when, and how the others were closed."""

from collections import Counter
from collections.abc import Sequence

from sqlalchemy import (
    BigInteger,
    Integer,
    SmallInteger,
    and_,
    bindparam,
    func,
    literal_column,
    select,
    update,
)
from sqlalchemy.sql.elements import ColumnElement

from dpledger.ledger.errors import NotFound, ReservationClosed
from dpledger.ledger.model.commands import Reservation
from dpledger.ledger.model.entries import Entry, EntryKind, identifier
from dpledger.ledger.model.state import LedgerState
from dpledger.ledger.ports import Held, ReservationRow
from dpledger.storage.engine.codec import CLOSED_AS, OPEN, STATE_NAMES, Damaged
from dpledger.storage.engine.session import Row, Session, of_dataset
from dpledger.storage.repositories.allocations import find_allocations_by_sequence
from dpledger.storage.repositories.charges import find_charges
from dpledger.storage.repositories.partitions import find_partitions_by_number
from dpledger.storage.tables import IS_OPEN, actors, datasets, entries, reservations, runs, teams

__all__ = [
    "RECORDED_KINDS",
    "datasets_due",
    "due_reservations",
    "held_by_runs",
    "open_reservation",
    "open_reservations_page",
    "record_reservations",
    "reservation_row",
]

RECORDED_KINDS = frozenset({EntryKind.RESERVED, *CLOSED_AS})
"""The kinds of entries that open or close a reservation."""
_IS_OPEN: ColumnElement[bool] = literal_column(f"reservations.{IS_OPEN}")
_EXPIRED = reservations.c.expires_at_us <= bindparam("now_us", type_=BigInteger)
_LIMIT = bindparam("limit", type_=Integer)
_WITH_ENTRIES = reservations.join(
    entries,
    and_(
        entries.c.dataset_id == reservations.c.dataset_id,
        entries.c.sequence == reservations.c.sequence,
    ),
).join(runs, and_(runs.c.dataset_id == entries.c.dataset_id, runs.c.number == entries.c.run))
_HELD = (
    select(
        entries.c.sequence,
        entries.c.charge,
        runs.c.name,
        entries.c.times,
        reservations.c.expires_at_us,
        entries.c.partition,
        actors.c.name,
        entries.c.allocation,
        teams.c.name,
    )
    .select_from(_WITH_ENTRIES)
    .join(actors, and_(actors.c.dataset_id == entries.c.dataset_id, actors.c.number == entries.c.actor))
    .outerjoin(teams, and_(teams.c.dataset_id == entries.c.dataset_id, teams.c.number == entries.c.team))
    .where(of_dataset(reservations.c.dataset_id))
)
_HELD_BY_RUNS = (
    select(runs.c.name, entries.c.charge, entries.c.times)
    .select_from(_WITH_ENTRIES)
    .where(of_dataset(reservations.c.dataset_id), _IS_OPEN)
)
_THIS = _HELD.add_columns(reservations.c.state).where(
    reservations.c.sequence == bindparam("sequence", type_=BigInteger)
)
_DUE = _HELD.where(_IS_OPEN, _EXPIRED).order_by(reservations.c.expires_at_us, reservations.c.sequence)
_PAGE = (
    _HELD.where(_IS_OPEN, reservations.c.sequence > bindparam("after", type_=BigInteger))
    .order_by(reservations.c.sequence)
    .limit(_LIMIT)
)
_DATASETS_DUE = (
    select(datasets.c.name)
    .join(reservations, reservations.c.dataset_id == datasets.c.id)
    .where(_IS_OPEN, _EXPIRED)
    .group_by(datasets.c.name)
    .order_by(func.min(reservations.c.expires_at_us))
    .limit(_LIMIT)
)


_CLOSE = (
    update(reservations)
    .where(of_dataset(reservations.c.dataset_id), _IS_OPEN)
    .where(reservations.c.sequence == bindparam("reservation", type_=BigInteger))
    .values(state=bindparam("new_state", type_=SmallInteger))
)


def record_reservations(session: Session, state: LedgerState, appended: Sequence[Entry]) -> None:
    """Open what entries reserve and close what they settle or let expire."""
    made = [entry for entry in appended if entry.kind is EntryKind.RESERVED]
    session.insert(reservations, [(state.dataset_id, e.sequence, OPEN, e.expires_at_us) for e in made])
    for entry in appended:
        if entry.kind in CLOSED_AS:
            _close(session, state, entry)


def _close(session: Session, state: LedgerState, entry: Entry) -> None:
    values = {
        "dataset_id": state.dataset_id,
        "reservation": entry.reservation,
        "new_state": CLOSED_AS[entry.kind],
    }
    if session.change(_CLOSE, values) != 1:
        raise ReservationClosed(identifier(state.name, entry.reservation or 0), "not open")


def open_reservation(session: Session, state: LedgerState, sequence: int) -> Reservation:
    """An open reservation; raises NotFound or ReservationClosed."""
    name = identifier(state.name, sequence)
    row = session.row(_THIS, {"dataset_id": state.dataset_id, "sequence": sequence})
    if row is None:
        raise NotFound("reservation", name)
    *held, status = row
    if status != OPEN:
        raise ReservationClosed(name, STATE_NAMES[status])
    return _decode(session, state.dataset_id, [tuple(held)], state.budget.size)[0]


def reservation_row(session: Session, dataset_id: int, sequence: int) -> ReservationRow | None:
    """A reservation and how it stands, or None."""
    row = session.row(_THIS, {"dataset_id": dataset_id, "sequence": sequence})
    if row is None:
        return None
    _sequence, _charge, run, times, expires_at_us, *_, state = row
    return ReservationRow(STATE_NAMES.get(state, "open"), run, times, expires_at_us)


def due_reservations(session: Session, dataset_id: int, now_us: int, size: int) -> list[Reservation]:
    """Open reservations whose time is over, oldest first."""
    rows = session.rows(_DUE, {"dataset_id": dataset_id, "now_us": now_us})
    return _decode(session, dataset_id, rows, size)


def open_reservations_page(
    session: Session, dataset_id: int, after: int, limit: int, size: int
) -> list[Reservation]:
    """Open reservations by sequence number, behind one."""
    rows = session.rows(_PAGE, {"dataset_id": dataset_id, "after": after, "limit": limit})
    return _decode(session, dataset_id, rows, size)


def held_by_runs(session: Session, dataset_id: int) -> list[Held]:
    """What open reservations hold, by run and charge."""
    times: Counter[tuple[str, int]] = Counter()
    count: Counter[tuple[str, int]] = Counter()
    for run, charge, each in session.rows(_HELD_BY_RUNS, {"dataset_id": dataset_id}):
        times[run, charge] += each
        count[run, charge] += 1
    known = find_charges(session, dataset_id, [charge for _, charge in times])
    return [Held(run, known[charge], times[run, charge], count[run, charge]) for run, charge in times]


def datasets_due(session: Session, now_us: int, limit: int) -> list[str]:
    """Names of datasets with a reservation whose time is over, longest overdue first."""
    return [name for (name,) in session.rows(_DATASETS_DUE, {"now_us": now_us, "limit": limit})]


def _decode(session: Session, dataset_id: int, rows: Sequence[Row], size: int) -> list[Reservation]:
    known = find_charges(session, dataset_id, [row[1] for row in rows])
    numbers = [row[5] for row in rows if row[5] is not None]
    parts = find_partitions_by_number(session, dataset_id, numbers, size)
    allocated = find_allocations_by_sequence(session, dataset_id, [row[7] for row in rows if row[7]])
    found = []
    for sequence, charge, run, times, expires_at_us, partition, actor, allocation, team in rows:
        if charge not in known:
            raise Damaged(f"the charge of reservation {sequence} cannot be read")
        within = parts.get(partition), actor, allocated.get(allocation), team
        found.append(Reservation(sequence, known[charge], run, times, expires_at_us, *within))
    return found
