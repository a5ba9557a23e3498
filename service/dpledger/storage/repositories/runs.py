"""Lists runs with their totals; :mod:`dpledger.storage.repositories.run_totals` adds them up."""

from sqlalchemy import Integer, and_, bindparam, select

from dpledger.ledger.ports import RunRow
from dpledger.storage.engine.codec import vector_from_bytes
from dpledger.storage.engine.session import Row, Session, of_dataset
from dpledger.storage.tables import runs, teams

__all__ = ["runs_page"]

_PAGE = (
    select(runs.c.name, runs.c.entries, runs.c.amounts, runs.c.first_at_us, runs.c.last_at_us, teams.c.name)
    .outerjoin(teams, and_(teams.c.dataset_id == runs.c.dataset_id, teams.c.number == runs.c.team))
    .where(of_dataset(runs.c.dataset_id), runs.c.name > bindparam("after"))
    .order_by(runs.c.name)
    .limit(bindparam("limit", type_=Integer))
)


def runs_page(session: Session, dataset_id: int, after: str, limit: int, size: int) -> list[RunRow]:
    """Runs by name, behind one."""
    rows = session.rows(_PAGE, {"dataset_id": dataset_id, "after": after, "limit": limit})
    return [_run(row, size) for row in rows]


def _run(row: Row, size: int) -> RunRow:
    name, count, raw, *rest = row
    return RunRow(name, count, vector_from_bytes(raw, size), *rest)
