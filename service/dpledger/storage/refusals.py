"""What was refused."""

from collections.abc import Sequence
from dataclasses import astuple

from dpledger.ledger.ports import Refusal
from dpledger.ledger.state import Book
from dpledger.storage.numbers import next_number
from dpledger.storage.session import Session
from dpledger.storage.tables import refusals

__all__ = ["note_refusals"]


def note_refusals(session: Session, book: Book, refused: Sequence[Refusal]) -> None:
    """Keep refusals in the order in which they were decided."""
    first = next_number(session, refusals, book.dataset_id)
    rows = [(book.dataset_id, first + index, *astuple(each)) for index, each in enumerate(refused)]
    session.insert(refusals, rows)
