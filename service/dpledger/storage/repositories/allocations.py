"""Allocations of a dataset with a shared budget."""

import functools
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import BigInteger, Integer, Select, SmallInteger, Text, and_, bindparam, func, select, update

from dpledger.ledger.errors import AlreadyExists, NotFound
from dpledger.ledger.model.allocation import Allocation
from dpledger.storage.engine.codec import columns_of_totals, totals_from_columns
from dpledger.storage.engine.session import Row, Session, in_list, of_dataset, select_in_list
from dpledger.storage.repositories.budgets import budget_from_document, budget_number
from dpledger.storage.tables import allocations, budgets

__all__ = [
    "allocations_page",
    "count_allocations",
    "find_allocations",
    "find_allocations_by_sequence",
    "save_allocations",
]

_ALLOCATION = (
    select(
        allocations.c.sequence,
        allocations.c.name,
        allocations.c.owner,
        allocations.c.epsilon,
        allocations.c.delta,
        budgets.c.document,
        allocations.c.entries,
        allocations.c.releases,
        allocations.c.returned,
        allocations.c.spent,
        allocations.c.reserved,
        allocations.c.open_reservations,
        allocations.c.exact,
    )
    .join(
        budgets,
        and_(budgets.c.dataset_id == allocations.c.dataset_id, budgets.c.number == allocations.c.budget),
    )
    .where(of_dataset(allocations.c.dataset_id))
)
_PAGE = (
    _ALLOCATION.where(allocations.c.sequence > bindparam("after", type_=BigInteger))
    .order_by(allocations.c.sequence)
    .limit(bindparam("limit", type_=Integer))
)
_COUNTS = (
    select(allocations.c.returned, func.count())
    .where(of_dataset(allocations.c.dataset_id))
    .group_by(allocations.c.returned)
)
_SAVE = (
    update(allocations)
    .where(of_dataset(allocations.c.dataset_id), allocations.c.sequence == bindparam("opened_at"))
    .values(
        spent=bindparam("new_spent"),
        reserved=bindparam("new_reserved"),
        open_reservations=bindparam("new_open"),
        exact=bindparam("new_exact", type_=Text),
        entries=bindparam("new_entries", type_=BigInteger),
        releases=bindparam("new_releases", type_=BigInteger),
        returned=bindparam("new_returned", type_=SmallInteger),
    )
)


@functools.cache
def _by_name(size: int) -> Select[Any]:
    return _ALLOCATION.where(in_list(allocations.c.name, size))


@functools.cache
def _by_sequence(size: int) -> Select[Any]:
    return _ALLOCATION.where(in_list(allocations.c.sequence, size))


@functools.cache
def _sequences_of(size: int) -> Select[Any]:
    return select(allocations.c.name, allocations.c.sequence).where(
        of_dataset(allocations.c.dataset_id), in_list(allocations.c.name, size)
    )


def find_allocations(session: Session, dataset_id: int, names: Sequence[str]) -> dict[str, Allocation]:
    """Allocations by name; raises NotFound for a name that is not there."""
    # PostgreSQL takes no text with this character, not even to look for it.
    wanted = sorted({name for name in names if "\0" not in name})
    rows = select_in_list(session, _by_name, wanted, dataset_id=dataset_id) if wanted else []
    found = {row[1]: _decode(row) for row in rows}
    for name in names:
        if name not in found:
            raise NotFound("allocation", name)
    return found


def find_allocations_by_sequence(
    session: Session, dataset_id: int, sequences: Iterable[int]
) -> dict[int, Allocation]:
    """Allocations by the numbers of the entries that opened them."""
    rows = select_in_list(session, _by_sequence, sorted(set(sequences)), dataset_id=dataset_id)
    return {row[0]: _decode(row) for row in rows}


def allocations_page(session: Session, dataset_id: int, after: int, limit: int) -> list[Allocation]:
    """Allocations in the order in which they were opened, behind an entry."""
    rows = session.rows(_PAGE, {"dataset_id": dataset_id, "after": after, "limit": limit})
    return [_decode(row) for row in rows]


def count_allocations(session: Session, dataset_id: int) -> tuple[int, int]:
    """How many allocations are open, and how many were returned."""
    counts: dict[int, int] = dict(session.rows(_COUNTS, {"dataset_id": dataset_id}))
    return counts.get(0, 0), counts.get(1, 0)


def _decode(row: Row) -> Allocation:
    sequence, name, owner, epsilon, delta, document, entries, releases, returned, *totals = row
    budget = budget_from_document(document)
    kept = totals_from_columns(*totals, size=budget.size)
    return Allocation(sequence, name, owner, epsilon, delta, budget, kept, entries, releases, bool(returned))


def save_allocations(session: Session, dataset_id: int, changed: Iterable[Allocation]) -> None:
    """Insert the new ones and update the others; a name belongs to one allocation for good."""
    given = list(changed)
    names = [each.name for each in given]
    stored: dict[str, int] = dict(select_in_list(session, _sequences_of, names, dataset_id=dataset_id))
    for each in given:
        if stored.get(each.name, each.sequence) != each.sequence:
            raise AlreadyExists("allocation", each.name)
    fresh = [each for each in given if each.name not in stored]
    session.insert(allocations, [_columns(session, dataset_id, each) for each in fresh])
    known = [_changes(dataset_id, each) for each in given if each.name in stored]
    if known:
        session.change_each(_SAVE, known)


def _columns(session: Session, dataset_id: int, allocation: Allocation) -> Row:
    return (
        dataset_id,
        allocation.sequence,
        allocation.name,
        allocation.owner,
        allocation.epsilon,
        allocation.delta,
        budget_number(session, dataset_id, allocation.budget),
        *columns_of_totals(allocation.totals),
        allocation.entries,
        allocation.releases,
        int(allocation.returned),
    )


def _changes(dataset_id: int, allocation: Allocation) -> dict[str, Any]:
    spent, reserved, open_reservations, exact = columns_of_totals(allocation.totals)
    return {
        "dataset_id": dataset_id,
        "opened_at": allocation.sequence,
        "new_spent": spent,
        "new_reserved": reserved,
        "new_open": open_reservations,
        "new_exact": exact,
        "new_entries": allocation.entries,
        "new_releases": allocation.releases,
        "new_returned": int(allocation.returned),
    }
