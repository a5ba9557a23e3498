"""Budgets, kept once per dataset however many partitions share one, and when each came into force."""

import functools
import hashlib

from sqlalchemy import and_, bindparam, func, select

from dpledger.ledger.errors import NotFound
from dpledger.ledger.model.budget import Budget
from dpledger.storage.engine.session import Session, of_dataset
from dpledger.storage.repositories.surrogate_ids import next_number
from dpledger.storage.tables import budget_changes, budgets

__all__ = [
    "budget_at",
    "budget_fingerprint",
    "budget_from_document",
    "budget_number",
    "changed_since",
    "find_budget",
    "put_in_force",
]

_DOCUMENT = select(budgets.c.document).where(
    of_dataset(budgets.c.dataset_id), budgets.c.number == bindparam("number")
)
_NUMBER = select(budgets.c.number).where(
    of_dataset(budgets.c.dataset_id), budgets.c.fingerprint == bindparam("fingerprint")
)
_SAME_BUDGET = and_(
    budget_changes.c.dataset_id == budgets.c.dataset_id, budget_changes.c.budget == budgets.c.number
)
_AT = (
    select(budgets.c.document)
    .join(budget_changes, _SAME_BUDGET)
    .where(of_dataset(budget_changes.c.dataset_id), budget_changes.c.from_sequence <= bindparam("sequence"))
    .order_by(budget_changes.c.from_sequence.desc())
    .limit(1)
)

_LAST_CHANGE = select(func.max(budget_changes.c.from_sequence)).where(of_dataset(budget_changes.c.dataset_id))


@functools.lru_cache(maxsize=1024)
def budget_from_document(document: str) -> Budget:
    """The budget that a document describes; equal documents give the same object."""
    return Budget.from_document(document)


def find_budget(session: Session, dataset_id: int, number: int) -> Budget:
    """A budget by its number."""
    key = ("budget", dataset_id, number)
    known: Budget | None = session.recall(key)
    if known is None:
        found = session.row(_DOCUMENT, {"dataset_id": dataset_id, "number": number})
        if found is None:
            raise NotFound("budget", str(number))
        known = budget_from_document(found[0])
        session.found[key] = known
    return known


def budget_fingerprint(budget: Budget) -> bytes:
    """What tells one stored budget from another."""
    return hashlib.sha256(budget.document.encode()).digest()


def budget_number(session: Session, dataset_id: int, budget: Budget) -> int:
    """The number of a budget, which is stored if it is new."""
    fingerprint = budget_fingerprint(budget)
    key = ("budget number", dataset_id, fingerprint)
    known: int | None = session.recall(key)
    if known is None:
        found = session.row(_NUMBER, {"dataset_id": dataset_id, "fingerprint": fingerprint})
        known = _store(session, dataset_id, fingerprint, budget) if found is None else int(found[0])
        session.found[key] = known
    return known


def _store(session: Session, dataset_id: int, fingerprint: bytes, budget: Budget) -> int:
    number = next_number(session, budgets, dataset_id)
    session.insert(budgets, [(dataset_id, number, fingerprint, budget.document)])
    return number


def put_in_force(session: Session, dataset_id: int, sequence: int, budget: Budget) -> int:
    """Record that a budget applies from an entry on; returns its number."""
    number = budget_number(session, dataset_id, budget)
    session.insert(budget_changes, [(dataset_id, sequence, number)])
    return number


def budget_at(session: Session, dataset_id: int, sequence: int) -> Budget:
    """The budget in force at an entry."""
    found = session.row(_AT, {"dataset_id": dataset_id, "sequence": sequence})
    if found is None:
        raise NotFound("budget at entry", str(sequence))
    return budget_from_document(found[0])


def changed_since(session: Session, dataset_id: int, sequence: int) -> bool:
    """Whether an entry behind this one changed the budget."""
    (last,) = session.rows(_LAST_CHANGE, {"dataset_id": dataset_id})[0]
    return last is not None and last > sequence
