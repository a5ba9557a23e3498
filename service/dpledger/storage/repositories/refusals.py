"""Refusals."""

from collections.abc import Sequence
from dataclasses import astuple

from dpledger.ledger.model.state import LedgerState
from dpledger.ledger.ports import Refusal
from dpledger.storage.engine.session import Session
from dpledger.storage.repositories.surrogate_ids import next_number
from dpledger.storage.tables import refusals

__all__ = ["note_refusals"]


def note_refusals(session: Session, state: LedgerState, refused: Sequence[Refusal]) -> None:
    """Keep refusals in the order in which they were decided."""
    first = next_number(session, refusals, state.dataset_id)
    rows = [(state.dataset_id, first + index, *astuple(each)) for index, each in enumerate(refused)]
    session.insert(refusals, rows)
