"""Partitions of a dataset."""

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import BigInteger, Integer, Select, Text, and_, bindparam, select, update

from dpledger.ledger.errors import AlreadyExists, NotFound
from dpledger.ledger.model.state import Partition
from dpledger.storage.engine.codec import columns_of_totals, totals_from_columns
from dpledger.storage.engine.session import Row, Session, in_list, of_dataset, select_in_list
from dpledger.storage.repositories.budgets import budget_from_document, budget_number
from dpledger.storage.tables import budgets, partitions

__all__ = [
    "all_partitions",
    "find_partitions",
    "find_partitions_by_number",
    "partitions_page",
    "save_partitions",
]

_PAGE_ROWS = 1000
_OWN_BUDGET = and_(budgets.c.dataset_id == partitions.c.dataset_id, budgets.c.number == partitions.c.budget)
_PARTITION = (
    select(
        partitions.c.number,
        partitions.c.name,
        budgets.c.document,
        partitions.c.spent,
        partitions.c.reserved,
        partitions.c.open_reservations,
        partitions.c.exact,
    )
    .outerjoin(budgets, _OWN_BUDGET)
    .where(of_dataset(partitions.c.dataset_id))
)
_PAGE = (
    _PARTITION.where(partitions.c.number > bindparam("after", type_=BigInteger))
    .order_by(partitions.c.number)
    .limit(bindparam("limit", type_=Integer))
)
_SAVE = (
    update(partitions)
    .where(of_dataset(partitions.c.dataset_id), partitions.c.number == bindparam("number"))
    .values(
        spent=bindparam("new_spent"),
        reserved=bindparam("new_reserved"),
        open_reservations=bindparam("new_open"),
        budget=bindparam("new_budget", type_=Integer),
        exact=bindparam("new_exact", type_=Text),
    )
)


@functools.cache
def _by_name(size: int) -> Select[Any]:
    return _PARTITION.where(in_list(partitions.c.name, size))


@functools.cache
def _by_number(size: int) -> Select[Any]:
    return _PARTITION.where(in_list(partitions.c.number, size))


@functools.cache
def _numbers_of(size: int) -> Select[Any]:
    return select(partitions.c.number, partitions.c.name).where(
        of_dataset(partitions.c.dataset_id), in_list(partitions.c.name, size)
    )


def find_partitions(
    session: Session, dataset_id: int, names: Sequence[str], size: int
) -> dict[str, Partition]:
    """Partitions by name, with amounts of ``size`` coordinates."""
    rows = select_in_list(session, _by_name, sorted(set(names)), dataset_id=dataset_id)
    found = {row[1]: _partition(row, size) for row in rows}
    for name in names:
        if name not in found:
            raise NotFound("partition", name)
    return found


def find_partitions_by_number(
    session: Session, dataset_id: int, numbers: Iterable[int], size: int
) -> dict[int, Partition]:
    """Partitions by number."""
    rows = select_in_list(session, _by_number, sorted(set(numbers)), dataset_id=dataset_id)
    return {row[0]: _partition(row, size) for row in rows}


def partitions_page(session: Session, dataset_id: int, after: int, limit: int, size: int) -> list[Partition]:
    """Partitions by number, behind one."""
    rows = session.rows(_PAGE, {"dataset_id": dataset_id, "after": after, "limit": limit})
    return [_partition(row, size) for row in rows]


def all_partitions(session: Session, dataset_id: int, size: int) -> Iterator[Partition]:
    """Every partition in the order of its number, a page at a time."""
    after = -1
    while page := partitions_page(session, dataset_id, after, _PAGE_ROWS, size):
        yield from page
        after = page[-1].number


def _partition(row: Row, size: int) -> Partition:
    number, name, document, *totals = row
    own = None if document is None else budget_from_document(document)
    return Partition(number, name, own, totals_from_columns(*totals, size=size))


def save_partitions(session: Session, dataset_id: int, changed: Iterable[Partition]) -> None:
    """Insert the new ones and update the others; a name belongs to one number for good."""
    given = list(changed)
    stored = _stored_numbers(session, dataset_id, given)
    fresh = [each for each in given if each.name not in stored]
    session.insert(partitions, [_columns(session, dataset_id, each) for each in fresh])
    known = [_changes(session, dataset_id, each) for each in given if each.name in stored]
    if known:
        session.change_each(_SAVE, known)


def _stored_numbers(session: Session, dataset_id: int, given: Sequence[Partition]) -> dict[str, int]:
    names = [each.name for each in given]
    rows = select_in_list(session, _numbers_of, names, dataset_id=dataset_id)
    stored = {name: number for number, name in rows}
    seen: dict[str, int] = dict(stored)
    for each in given:
        if seen.setdefault(each.name, each.number) != each.number:
            raise AlreadyExists("partition", each.name)
    return stored


def _columns(session: Session, dataset_id: int, partition: Partition) -> Row:
    budget = _budget(session, dataset_id, partition)
    return (dataset_id, partition.number, partition.name, budget, *columns_of_totals(partition.totals))


def _changes(session: Session, dataset_id: int, partition: Partition) -> dict[str, Any]:
    spent, reserved, open_reservations, exact = columns_of_totals(partition.totals)
    return {
        "dataset_id": dataset_id,
        "number": partition.number,
        "new_spent": spent,
        "new_reserved": reserved,
        "new_open": open_reservations,
        "new_exact": exact,
        "new_budget": _budget(session, dataset_id, partition),
    }


def _budget(session: Session, dataset_id: int, partition: Partition) -> int | None:
    own = partition.budget
    return None if own is None else budget_number(session, dataset_id, own)
