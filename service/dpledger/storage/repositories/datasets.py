"""Datasets and their states: lock, open, update, list; and the burn-down history of each.

An entry keeps what was left for whom it was charged, which may be a partition; the burn-down history keeps
what was left for the dataset as a whole, where it changed by a visible step. A budget that only shrinks
leaves at most ``STEPS`` points, however many entries spend it.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Integer, Select, and_, bindparam, select, text, update

from dpledger.accounting.sampling import Adjacency
from dpledger.ledger.errors import AlreadyExists, NotFound
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.entries import GENESIS
from dpledger.ledger.model.state import LedgerState, nothing_spent
from dpledger.ledger.ports import DatasetRow, NewDataset, NewEntry
from dpledger.storage.engine.codec import (
    columns_of_totals,
    extremes_from_bytes,
    extremes_to_bytes,
    totals_from_columns,
)
from dpledger.storage.engine.failures import Busy
from dpledger.storage.engine.search import mentioning, pattern_of
from dpledger.storage.engine.session import Row, Session, in_list, queries_in_list
from dpledger.storage.read_models.fractions import WHOLE
from dpledger.storage.repositories.budgets import budget_from_document, find_budget, put_in_force
from dpledger.storage.repositories.surrogate_ids import next_number
from dpledger.storage.tables import budgets, datasets, levels

__all__ = [
    "DATASETS",
    "STEPS",
    "budget_of",
    "dataset_of",
    "datasets_page",
    "find_dataset",
    "lock_datasets",
    "open_dataset",
    "update_dataset",
]

STEPS = 200
"""How many steps of a budget are distinguished in its burn-down history."""
_BOOK = (
    datasets.c.id,
    datasets.c.name,
    datasets.c.adjacency,
    datasets.c.partition_key,
    datasets.c.spent,
    datasets.c.reserved,
    datasets.c.open_reservations,
    datasets.c.exact,
    datasets.c.crowd,
    datasets.c.partitions,
    datasets.c.sequence,
    datasets.c.head,
    datasets.c.guaranteed_since,
    datasets.c.quotas_at,
    datasets.c.governed_at,
)
_TOTALS, _CROWD, _SINCE = 6, 10, -3
"""Where totals begin and others stand in a locked row: numbers of budget and guarantee, then ``_BOOK``."""
_ITS_BUDGET = and_(budgets.c.dataset_id == datasets.c.id, budgets.c.number == datasets.c.budget)
_guarantees = budgets.alias()
_ITS_GUARANTEE = and_(_guarantees.c.dataset_id == datasets.c.id, _guarantees.c.number == datasets.c.guarantee)
DATASETS = (
    select(
        budgets.c.document,
        _guarantees.c.document,
        datasets.c.description,
        datasets.c.unit,
        datasets.c.records,
        datasets.c.opened_at_us,
        datasets.c.changed_at_us,
        *_BOOK,
    )
    .join(budgets, _ITS_BUDGET)
    .join(_guarantees, _ITS_GUARANTEE)
)
_NAMED = DATASETS.where(datasets.c.name == bindparam("name"))
_BUDGET_OF = select(budgets.c.document).join(datasets, _ITS_BUDGET).where(datasets.c.id == bindparam("id"))
# Both databases read this; Core has no word for it that the two dialects share.
_OPEN = text(
    "INSERT INTO datasets (name, description, adjacency, unit, records, partition_key, opened_at_us,"
    " changed_at_us, sequence, head, budget, spent, reserved, open_reservations, crowd, partitions,"
    " left_basis_points, exact)"
    " VALUES (:name, :description, :adjacency, :unit, :records, :partition_key, :at_us, :at_us, 0, :head,"
    " 1, :nothing, :nothing, 0, :nothing, 0, 10000, :exact) ON CONFLICT (name) DO NOTHING RETURNING id"
)
_MOVED = (
    "sequence",
    "head",
    "spent",
    "reserved",
    "open_reservations",
    "exact",
    "partitions",
    "changed_at_us",
    "left_basis_points",
    "quotas_at",
    "governed_at",
)


class _Stored(NamedTuple):
    """A row as this process last read or wrote it under the lock, its state, and what that has left."""

    row: Row
    state: LedgerState
    left: float | None = None


@functools.cache
def _move(budget: bool, extremes: bool) -> Any:
    """Update what every entry changes, and a new budget or a changed extremes where there is one."""
    changed = ["budget", "guarantee", "guaranteed_since"]
    names = [*_MOVED, *changed * budget, *["crowd"] * extremes]
    as_locked = and_(datasets.c.id == bindparam("id"), datasets.c.sequence == bindparam("locked_at"))
    values = {name: bindparam(f"new_{name}", type_=datasets.c[name].type) for name in names}
    return update(datasets).where(as_locked).values(values)


@functools.cache
def _lock(size: int) -> Select[Any]:
    """Lock rows in the order of their names.

    The budget is not joined: after waiting for a lock PostgreSQL reads the locked row anew, but joins
    it with rows of the snapshot from before it waited.
    """
    chosen = select(datasets.c.budget, datasets.c.guarantee, *_BOOK).where(in_list(datasets.c.name, size))
    return chosen.order_by(datasets.c.name).with_for_update()


@functools.cache
def _page(searching: bool) -> Select[Any]:
    page = DATASETS.where(datasets.c.name > bindparam("after")).order_by(datasets.c.name)
    if searching:
        page = page.where(mentioning())
    return page.limit(bindparam("limit", type_=Integer))


def lock_datasets(session: Session, names: Sequence[str]) -> dict[str, LedgerState]:
    """Lock datasets in the order of their names and read their states."""
    states: dict[str, LedgerState] = {}
    [found] = session.rows_of_each([queries_in_list(_lock, sorted(set(names)))])
    for row in found:
        stored: _Stored | None = session.recall(("state", row[2]))
        # Every column is compared: a row that somebody else has touched is read anew.
        states[row[3]] = stored.state if stored is not None and stored.row == row else _read(session, row)
    for name in names:
        if name not in states:
            raise NotFound("dataset", name)
    return states


def _read(session: Session, row: Row) -> LedgerState:
    number, largest, *book = row
    budget = find_budget(session, book[0], number)
    state = _state(book, budget, find_budget(session, book[0], largest))
    session.found["state", state.dataset_id] = _Stored(row, state)
    return state


def open_dataset(session: Session, dataset: NewDataset) -> LedgerState:
    """Insert a dataset with an empty ledger, which locks it."""
    values = {
        "name": dataset.name,
        "description": dataset.description,
        "adjacency": dataset.adjacency,
        "unit": dataset.unit,
        "records": dataset.records,
        "partition_key": dataset.partition_key,
        "at_us": dataset.at_us,
        "head": GENESIS,
        "nothing": b"",
        "exact": columns_of_totals(nothing_spent(dataset.budget))[3],
    }
    opened = session.row(_OPEN, values)
    if opened is None:
        raise AlreadyExists("dataset", dataset.name)
    put_in_force(session, opened[0], 0, dataset.budget)
    return lock_datasets(session, [dataset.name])[dataset.name]


def update_dataset(
    session: Session,
    before: LedgerState,
    after: LedgerState,
    entries: Sequence[NewEntry],
    changed: tuple[int, int] | None,
    others: Sequence[tuple[Any, dict[str, Any]]],
) -> None:
    """Store the state after its entries, together with ``others``, and what is left if it visibly changed.

    ``changed`` are the numbers of a new budget and of the guarantee with it. Raises Busy where the state does
    not stand where it was locked.
    """
    spent, reserved, open_reservations, exact = columns_of_totals(after.whole)
    stored: _Stored | None = session.recall(("state", before.dataset_id))
    changed_at_us, left = max([each.entry.at_us for each in entries]), entries[-1].fraction
    # Without partitions and allocations, what is left after the last entry is what is left of the whole.
    if left is None or after.partitions or after.budget.filter.allocates:
        left = after.fraction_left(None)
    values: dict[str, Any] = {
        "id": before.dataset_id,
        "locked_at": before.sequence,
        "new_sequence": after.sequence,
        "new_head": after.head,
        "new_spent": spent,
        "new_reserved": reserved,
        "new_open_reservations": open_reservations,
        "new_exact": exact,
        "new_partitions": after.partitions,
        "new_changed_at_us": changed_at_us,
        "new_left_basis_points": int(WHOLE * left),
        "new_quotas_at": after.sequence if after.has_quotas else None,
        "new_governed_at": after.sequence if after.governed else None,
    }
    if changed is not None:
        values["new_budget"], values["new_guarantee"] = changed
        values["new_guaranteed_since"] = after.guaranteed_since
    # What is stored for an empty extremes depends on the budget.
    if changed is not None or after.extremes is not before.extremes:
        values["new_crowd"] = extremes_to_bytes(after.extremes, after.budget)
    elif stored is not None and stored.state is before:
        totals = (spent, reserved, open_reservations, exact, stored.row[_CROWD])
        looked_at = values["new_quotas_at"], values["new_governed_at"]
        ends = after.sequence, after.head, stored.row[_SINCE], *looked_at
        row = (*stored.row[:_TOTALS], *totals, after.partitions, *ends)
        session.found["state", after.dataset_id] = _Stored(row, after, left)
    *_, moved = session.change_all([*others, (_move("new_budget" in values, "new_crowd" in values), values)])
    if moved != 1:  # somebody wrote without the lock
        raise Busy(f"dataset {after.name} has moved on from entry {before.sequence}")
    left_before = stored.left if stored is not None and stored.state is before else None
    if left_before is None:
        left_before = before.fraction_left(None)
    if int(STEPS * left) != int(STEPS * left_before):
        number = next_number(session, levels, after.dataset_id)
        session.insert(levels, [(after.dataset_id, number, after.sequence, changed_at_us, left)])


def find_dataset(session: Session, name: str) -> DatasetRow:
    """One dataset."""
    row = session.row(_NAMED, {"name": name})
    if row is None:
        raise NotFound("dataset", name)
    return dataset_of(row)


def datasets_page(session: Session, after: str, limit: int, search: str | None) -> list[DatasetRow]:
    """Datasets by name, behind one; ``search`` is part of a name or description, in any case."""
    values: dict[str, Any] = {"after": after, "limit": limit}
    if search is not None:
        values["pattern"] = pattern_of(search)
    return [dataset_of(row) for row in session.rows(_page(search is not None), values)]


def budget_of(session: Session, dataset_id: int) -> Budget:
    """The budget of a dataset now."""
    row = session.row(_BUDGET_OF, {"id": dataset_id})
    if row is None:
        raise NotFound("dataset", str(dataset_id))
    return budget_from_document(row[0])


def dataset_of(row: Row) -> DatasetRow:
    """What ``DATASETS`` selects, read."""
    document, largest, description, unit, records, opened_at_us, changed_at_us, *state = row
    kept = _state(state, budget_from_document(document), budget_from_document(largest))
    return DatasetRow(kept, description, unit, records, opened_at_us, changed_at_us)


def _state(row: Sequence[Any], budget: Budget, guarantee: Budget) -> LedgerState:
    id_, name, adjacency, key, *totals, extremes, partitions, sequence, head, since = row[:-2]
    quotas_at, governed_at = row[-2:]
    return LedgerState(
        dataset_id=id_,
        name=name,
        adjacency=Adjacency(adjacency),
        partition_key=key,
        budget=budget,
        whole=totals_from_columns(*totals, size=budget.size),
        extremes=extremes_from_bytes(extremes, budget),
        partitions=partitions,
        sequence=sequence,
        head=head,
        guarantee=guarantee,
        guaranteed_since=since,
        has_quotas=quotas_at is not None,
        governed=governed_at is not None,
    )
