"""Executes requests once: one transaction, repeated where the database rolled it back, one answer per key."""

import random
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

import numpy as np

from dpledger.ledger.charges import Charger
from dpledger.ledger.clock import Clock
from dpledger.ledger.errors import KeyReused, ReservationClosed, TokenEnded
from dpledger.ledger.model.state import LedgerState
from dpledger.ledger.ports import IdempotentRequest, Renderer, Storage, StoredAnswer, Transaction
from dpledger.ledger.results import Result, StoredResult
from dpledger.ledger.unit_of_work import UnitOfWork

__all__ = [
    "ATTEMPTS",
    "NO_DATASET",
    "IdempotentExecutor",
    "Transactional",
    "run_in_transaction",
    "stored_result",
]

ATTEMPTS = 8
NO_DATASET = 0
"""Where answers are kept that belong to no single dataset."""
_FIRST_PAUSE_SECONDS = 0.005
_LONGEST_PAUSE_SECONDS = 0.2
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
R = TypeVar("R")
ResultT = TypeVar("ResultT", bound=Result)


class Transactional(Protocol[T_co]):
    """Opens transactions and knows which of their errors are passing."""

    def begin(self) -> AbstractContextManager[T_co]:
        """A transaction: commits at the end of the block, rolls back on an exception."""
        ...

    def is_transient(self, error: BaseException) -> bool:
        """Whether the transaction was rolled back for a reason that may be gone."""
        ...


def _pause(longest_seconds: float) -> None:
    """Wait for a random time, so that those who lost against each other do not meet again."""
    time.sleep(random.uniform(0.0, longest_seconds))  # spreads retries  # nosec B311


def run_in_transaction(
    storage: Transactional[T],
    work: Callable[[T], R],
    attempts: int = ATTEMPTS,
    pause: Callable[[float], None] = _pause,
) -> R:
    """Run ``work`` in one transaction and commit it, at most ``attempts`` times.

    Only what the database says it has rolled back is run again, after a random pause that grows. An
    unknown outcome never is: a connection lost during COMMIT may have committed.
    """
    attempt = 1
    while True:
        try:
            with storage.begin() as transaction:
                return work(transaction)
        except Exception as error:
            if attempt >= attempts or not storage.is_transient(error):
                raise
        pause(min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2**attempt))
        attempt += 1


class IdempotentExecutor:
    """Runs a piece of work in one transaction and keeps its result under its key."""

    def __init__(self, storage: Storage, clock: Clock, renderer: Renderer) -> None:
        self.storage = storage
        self.clock = clock
        self.renderer = renderer
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
        work: Callable[[Transaction, UnitOfWork], ResultT],
        *,
        rolled_back: bool = False,
    ) -> ResultT | StoredResult:
        """Lock a dataset, answer a known key from what was kept, else do ``work`` and keep its result."""

        def run_locked(transaction: Transaction) -> ResultT | StoredResult | ReservationClosed:
            state = transaction.lock([name], rolled_back=rolled_back)[name]
            team = self.valid_team(transaction, call)
            known = self.known(transaction, state.dataset_id, call)
            if known is not None:
                return known
            unit = self.open_unit(transaction, state, {call.actor: team})
            try:
                result = work(transaction, unit)
            except ReservationClosed as closed:
                # A reservation that is said to have expired stays so, although the clock may go back.
                unit.write()
                return closed
            unit.write()
            return self.keep(transaction, state.dataset_id, call, result)

        done = self.run(run_locked)
        if isinstance(done, ReservationClosed):
            raise done
        return done

    def open_unit(
        self, transaction: Transaction, state: LedgerState, teams: Mapping[str, str | None]
    ) -> UnitOfWork:
        """Hold a locked state open for the tokens of these teams."""
        return UnitOfWork(transaction, state, self.clock.now_us(), teams)

    def valid_team(self, transaction: Transaction, call: IdempotentRequest) -> str | None:
        """The team of the caller's token; refuses one that was revoked or expired meanwhile."""
        valid = transaction.teams([call.actor], self.clock.now_us())
        if call.actor not in valid:
            raise TokenEnded
        return valid[call.actor]

    def known(
        self, transaction: Transaction, dataset_id: int, call: IdempotentRequest
    ) -> StoredResult | None:
        """The answer that this key got before."""
        return stored_result(transaction.answers(dataset_id, [call]).get(call), call)

    def keep(
        self, transaction: Transaction, dataset_id: int, call: IdempotentRequest, result: ResultT
    ) -> ResultT:
        """Store a result in the transaction that it answers for."""
        transaction.keep_answers(dataset_id, [(call, self.stored(call, result))])
        return result

    def stored(self, call: IdempotentRequest, result: Result) -> StoredAnswer:
        """A result as it is kept under the key of a request."""
        return StoredAnswer(call.request, result.outcome, self.renderer.render_kept(result))


def stored_result(stored: StoredAnswer | None, call: IdempotentRequest) -> StoredResult | None:
    """A stored answer as it is given again; another request under the same key is refused."""
    if stored is None:
        return None
    if stored.request != call.request:
        raise KeyReused
    return StoredResult(stored.outcome, stored.body)
