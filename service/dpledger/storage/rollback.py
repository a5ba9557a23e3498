"""Comparing a ledger with its high-water mark, inside the transaction that is about to use it."""

import json
from collections.abc import Callable, Iterable
from typing import NamedTuple

from sqlalchemy import BigInteger, bindparam, select

from dpledger.ledger.errors import RolledBack
from dpledger.ledger.marks import HighWaterMarks, Mark, mark_of
from dpledger.ledger.model.entries import EntryKind
from dpledger.ledger.model.state import LedgerState
from dpledger.ledger.ports import EntryFilter
from dpledger.storage.engine.session import Session, of_dataset
from dpledger.storage.repositories.entries import entries_page
from dpledger.storage.tables import entries

__all__ = ["RollbackGuard", "holds", "refuse_unless_accepted"]

_HASH = select(entries.c.hash).where(
    of_dataset(entries.c.dataset_id), entries.c.sequence == bindparam("sequence", type_=BigInteger)
)
_PAGE = 100


def holds(session: Session, state: LedgerState, mark: Mark) -> bool:
    """Whether the ledger has this very entry."""
    if mark.sequence >= state.sequence:
        return mark == mark_of(state)
    row = session.row(_HASH, {"dataset_id": state.dataset_id, "sequence": mark.sequence})
    return row is not None and bytes(row[0]) == mark.head


class RollbackGuard(NamedTuple):
    """Refuses ledgers that lost an entry, unless an administrator has accepted that very loss.

    ``forget`` drops what this process remembers of the database's contents.
    """

    marks: HighWaterMarks
    forget: Callable[[], None]

    def check(self, session: Session, states: Iterable[LedgerState]) -> None:
        """Raise RolledBack for the first locked ledger that no longer holds the entry of its mark."""
        for state in states:
            mark = self.marks.get(state.name)
            if mark is None:
                continue
            if mark.sequence < state.sequence:
                # Another process has written: one with the same file may know more than this one.
                mark = self.marks.reread(state.name) or mark
            if not holds(session, state, mark):
                self.forget()
                refuse_unless_accepted(session, state, mark)
                self.marks.replace(state.name, mark, mark_of(state))

    def check_missing(self, name: str) -> None:
        """Raise RolledBack for a dataset that is not there, and was."""
        mark = self.marks.get(name)
        if mark is not None:
            self.forget()
            raise RolledBack(name, mark.sequence, mark.head.hex(), 0)


def refuse_unless_accepted(session: Session, state: LedgerState, mark: Mark) -> None:
    """Raise RolledBack for a ledger without the entry of its mark, unless it gives that up itself."""
    if not (holds(session, state, mark) or _accepted(session, state, mark)):
        raise RolledBack(state.name, mark.sequence, mark.head.hex(), state.sequence)


def _accepted(session: Session, state: LedgerState, mark: Mark) -> bool:
    """Whether an entry of the ledger gives up exactly this mark: its hash occurs in no other history."""
    lost = {"sequence": mark.sequence, "entry": mark.head.hex()}
    after = 0
    while True:
        chosen = EntryFilter(after=after, limit=_PAGE, kind=EntryKind.ROLLBACK_ACCEPTED.value)
        page = entries_page(session, state.dataset_id, chosen)
        if any(json.loads(each.entry.detail or "{}").get("lost") == lost for each in page):
            return True
        if len(page) < _PAGE:
            return False
        after = page[-1].entry.sequence
