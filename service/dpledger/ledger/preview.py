"""Previews of a change: it is decided as it would be now, and nothing is recorded."""

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from dpledger.ledger.idempotency import IdempotentExecutor
from dpledger.ledger.ports import IdempotentRequest, Transaction
from dpledger.ledger.results import Result, StoredResult
from dpledger.ledger.unit_of_work import UnitOfWork

__all__ = ["PreviewExecutor"]

T = TypeVar("T")
ResultT = TypeVar("ResultT", bound=Result)


class PreviewExecutor(IdempotentExecutor):
    """Decides on a snapshot by the same code as a request would be, and never writes.

    What it answers is true at the sequence number of the snapshot alone: whoever confirms a change sends that
    number along, where the change depends on it.
    """

    def answer_once(
        self,
        name: str,
        call: IdempotentRequest,
        work: Callable[[Transaction, UnitOfWork], ResultT],
        *,
        rolled_back: bool = False,
    ) -> ResultT | StoredResult:
        """Do ``work`` on a dataset as last committed; its key is not looked up, and its result not kept."""
        with self.storage.snapshot() as snapshot, np.errstate(over="ignore"):
            state = snapshot.lock([name], rolled_back=rolled_back)[name]
            team = self.valid_team(snapshot, call)
            return work(snapshot, self.open_unit(snapshot, state, {call.actor: team}))

    def run(self, work: Callable[[Transaction], T]) -> T:
        """Refuse: this is how work is written."""
        raise TypeError("a preview writes nothing")
