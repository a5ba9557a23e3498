"""Executes requests once: one transaction, the key looked up, the answer kept."""

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from dpledger.ledger.charges import Charger
from dpledger.ledger.clock import Clock
from dpledger.ledger.errors import KeyReused, TokenEnded
from dpledger.ledger.model.requests import Answer
from dpledger.ledger.model.state import LedgerState
from dpledger.ledger.ports import IdempotentRequest, Storage, StoredAnswer, Transaction
from dpledger.ledger.receipts import Signer
from dpledger.ledger.responses import ResponseBuilder
from dpledger.ledger.retry import run_in_transaction
from dpledger.ledger.unit_of_work import UnitOfWork

__all__ = ["NO_DATASET", "IdempotentExecutor", "as_answer"]

NO_DATASET = 0
"""Where answers are kept that belong to no single dataset."""
T = TypeVar("T")


class IdempotentExecutor:
    """Runs a piece of work in one transaction and keeps its answer under its key."""

    def __init__(self, storage: Storage, clock: Clock, signer: Signer) -> None:
        self.storage = storage
        self.clock = clock
        self.responses = ResponseBuilder(signer)
        self.charger = Charger(storage)

    def run(self, work: Callable[[Transaction], T]) -> T:
        """Run ``work`` in one transaction and commit it; again, a bounded number of times, if it lost."""
        # A sum that overflows is infinite and does not fit: nothing to warn of.
        with np.errstate(over="ignore"):
            return run_in_transaction(self.storage, work)

    def answer_once(
        self,
        name: str,
        call: IdempotentRequest,
        work: Callable[[Transaction, UnitOfWork], Answer],
        *,
        rolled_back: bool = False,
    ) -> Answer:
        """Lock a dataset, answer a known key from memory, else do ``work`` and keep its answer."""

        def run_locked(transaction: Transaction) -> Answer:
            state = transaction.lock([name], rolled_back=rolled_back)[name]
            self.refuse_revoked(transaction, call)
            known = self.known(transaction, state.dataset_id, call)
            if known is not None:
                return known
            unit = self.open_unit(transaction, state)
            answer = work(transaction, unit)
            unit.write()
            return self.keep(transaction, state.dataset_id, call, answer)

        return self.run(run_locked)

    def open_unit(self, transaction: Transaction, state: LedgerState) -> UnitOfWork:
        """Hold a locked state open."""
        return UnitOfWork(transaction, state, self.clock.now_us())

    def refuse_revoked(self, transaction: Transaction, call: IdempotentRequest) -> None:
        """Refuse a token that was revoked or expired meanwhile."""
        if transaction.revoked([call.actor], self.clock.now_us()):
            raise TokenEnded

    def known(self, transaction: Transaction, dataset_id: int, call: IdempotentRequest) -> Answer | None:
        """The answer that this key got before."""
        return as_answer(transaction.answers(dataset_id, [call]).get(call), call)

    def keep(
        self, transaction: Transaction, dataset_id: int, call: IdempotentRequest, answer: Answer
    ) -> Answer:
        """Store an answer in the transaction that it answers for."""
        stored = StoredAnswer(call.request, answer.outcome, answer.body)
        transaction.keep_answers(dataset_id, [(call, stored)])
        return answer


def as_answer(stored: StoredAnswer | None, call: IdempotentRequest) -> Answer | None:
    """A stored answer as it is given again; another request under the same key is refused."""
    if stored is None:
        return None
    if stored.request != call.request:
        raise KeyReused
    return Answer(stored.outcome, stored.body, replayed=True)
