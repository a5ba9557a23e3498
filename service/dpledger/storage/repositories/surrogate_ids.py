"""Surrogate ids of actors, teams, runs and purposes, given out under the dataset's lock."""

from typing import Any

from sqlalchemy import Select, Table, bindparam, func, select

from dpledger.storage.engine.session import Row, Session, of_dataset
from dpledger.storage.tables import actors, budgets, charges, levels, purposes, refusals, runs, teams

__all__ = ["actor_number", "next_number", "purpose_number", "run_number", "team_number"]

_LONGEST_NAME = 200
_LAST = {
    table: select(func.coalesce(func.max(table.c.number), 0)).where(of_dataset(table.c.dataset_id))
    for table in (actors, budgets, charges, levels, purposes, refusals, runs, teams)
}


def _by_name(table: Table) -> Select[Any]:
    return select(table.c.number).where(of_dataset(table.c.dataset_id), table.c.name == bindparam("name"))


_BY_NAME = {table: _by_name(table) for table in (actors, purposes, runs, teams)}


def next_number(session: Session, table: Table, dataset_id: int) -> int:
    """The number after the largest in use; nobody else gives one out while the dataset is locked."""
    last = session.row(_LAST[table], {"dataset_id": dataset_id})
    return 1 if last is None else int(last[0]) + 1


def actor_number(session: Session, dataset_id: int, name: str) -> int:
    """The number of an actor, who is stored if new."""
    return _number(session, actors, dataset_id, name, ())


def team_number(session: Session, dataset_id: int, name: str) -> int:
    """The number of a team, which is stored if new."""
    return _number(session, teams, dataset_id, name, ())


def run_number(session: Session, dataset_id: int, name: str, at_us: int, team: int | None) -> int:
    """The number of a run, which is stored if new, with nothing spent, as begun by a token of this team."""
    return _number(session, runs, dataset_id, name, (0, b"", at_us, at_us, 0, team))


def purpose_number(session: Session, dataset_id: int, purpose: str, at_us: int) -> int:
    """The number of a purpose, which is stored if new, with nothing spent.

    One release may name a hundred characters and a step has many releases: more than an index holds.
    """
    name = purpose if len(purpose) <= _LONGEST_NAME else purpose[: _LONGEST_NAME - 1] + "…"
    return _number(session, purposes, dataset_id, name, (0, b"", at_us, at_us, 0))


def _number(session: Session, table: Table, dataset_id: int, name: str, rest: Row) -> int:
    key = (table.name, dataset_id, name)
    known: int | None = session.recall(key)
    if known is not None:
        return known
    found = session.row(_BY_NAME[table], {"dataset_id": dataset_id, "name": name})
    number = next_number(session, table, dataset_id) if found is None else int(found[0])
    if found is None:
        session.insert(table, [(dataset_id, number, name, *rest)])
    session.found[key] = number
    return number
