"""What every kind of request needs: a transaction, the key looked up, the answer kept."""

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from dpledger.ledger.answers import Desk
from dpledger.ledger.charging import Charger
from dpledger.ledger.clock import Clock
from dpledger.ledger.errors import KeyReused, TokenEnded
from dpledger.ledger.ports import Intent, Storage, StoredAnswer, Transaction
from dpledger.ledger.receipts import Signer
from dpledger.ledger.requests import Answer
from dpledger.ledger.retrying import run_in_transaction
from dpledger.ledger.sitting import Sitting
from dpledger.ledger.state import Book

__all__ = ["NO_DATASET", "Teller", "as_answer"]

NO_DATASET = 0
"""Where answers are kept that belong to no single dataset."""
T = TypeVar("T")


class Teller:
    """Runs a piece of work in one transaction and keeps its answer under its key."""

    def __init__(self, storage: Storage, clock: Clock, signer: Signer) -> None:
        self.storage = storage
        self.clock = clock
        self.desk = Desk(signer)
        self.charger = Charger(storage)

    def run(self, work: Callable[[Transaction], T]) -> T:
        """Run ``work`` in one transaction and commit it; again, a bounded number of times, if it lost."""
        # A sum that overflows is infinite and does not fit: nothing to warn of.
        with np.errstate(over="ignore"):
            return run_in_transaction(self.storage, work)

    def answer_once(
        self,
        name: str,
        intent: Intent,
        work: Callable[[Transaction, Sitting], Answer],
        *,
        rolled_back: bool = False,
    ) -> Answer:
        """Lock a dataset, answer a known key from memory, else do ``work`` and keep its answer."""

        def locked(transaction: Transaction) -> Answer:
            book = transaction.lock([name], rolled_back=rolled_back)[name]
            self.refuse_ended(transaction, intent)
            known = self.known(transaction, book.dataset_id, intent)
            if known is not None:
                return known
            sitting = self.sit(transaction, book)
            answer = work(transaction, sitting)
            sitting.write()
            return self.keep(transaction, book.dataset_id, intent, answer)

        return self.run(locked)

    def sit(self, transaction: Transaction, book: Book) -> Sitting:
        """Hold a locked book open."""
        return Sitting(transaction, book, self.clock.now_us())

    def refuse_ended(self, transaction: Transaction, intent: Intent) -> None:
        """Refuse a token that was revoked or expired meanwhile."""
        if transaction.revoked([intent.actor], self.clock.now_us()):
            raise TokenEnded

    def known(self, transaction: Transaction, dataset_id: int, intent: Intent) -> Answer | None:
        """The answer that this key got before."""
        return as_answer(transaction.answers(dataset_id, [intent]).get(intent), intent)

    def keep(self, transaction: Transaction, dataset_id: int, intent: Intent, answer: Answer) -> Answer:
        """Store an answer in the transaction that it answers for."""
        stored = StoredAnswer(intent.request, answer.outcome, answer.body)
        transaction.keep_answers(dataset_id, [(intent, stored)])
        return answer


def as_answer(stored: StoredAnswer | None, intent: Intent) -> Answer | None:
    """A stored answer as it is given again; another request under the same key is refused."""
    if stored is None:
        return None
    if stored.request != intent.request:
        raise KeyReused
    return Answer(stored.outcome, stored.body, replayed=True)
