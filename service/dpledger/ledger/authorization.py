"""Single authorizations, decided in groups: one transaction for all that arrived together."""

import functools
import itertools
from collections.abc import Sequence
from dataclasses import replace

from dpledger.accounting.errors import AccountingError, InvalidInput
from dpledger.ledger.charges import check_equal_sizes, fitting
from dpledger.ledger.decide import Refused
from dpledger.ledger.errors import KeyReused, LedgerError, NotFound, TokenEnded
from dpledger.ledger.idempotency import IdempotentExecutor, stored_result
from dpledger.ledger.model.commands import Authorize
from dpledger.ledger.model.entries import Charge, EntryKind
from dpledger.ledger.model.requests import Authorization, Spend
from dpledger.ledger.model.state import LedgerState
from dpledger.ledger.ports import IdempotentRequest, StoredAnswer, StoredEntry, Transaction
from dpledger.ledger.results import Decided, Failure, Grant, SpendRefusal, StoredResult
from dpledger.ledger.unit_of_work import Recorded, UnitOfWork

__all__ = ["BatchDecider", "spend_in", "stored_grant", "try_charge"]


class BatchDecider:
    """Decides requests for one dataset one after another in one transaction."""

    def __init__(self, executor: IdempotentExecutor) -> None:
        self._executor = executor

    def decide(self, name: str, group: Sequence[Authorization]) -> list[Decided]:
        """Decide a group and commit; each request gets its own result or error."""
        executor = self._executor
        charges = [request.charge or try_charge(executor, request.spend) for request in group]
        return executor.run(functools.partial(self._decide_locked, name, group, charges))

    def _decide_locked(
        self,
        name: str,
        group: Sequence[Authorization],
        charges: Sequence[Charge | Failure],
        transaction: Transaction,
    ) -> list[Decided]:
        state = transaction.lock([name])[name]
        batch = _Batch(self._executor, transaction, state, [request.call for request in group])
        decided: list[Decided] = []
        pairs = zip(group, charges, strict=True)
        # Neighbours that ask for the same are decided together.
        for _, found in itertools.groupby(pairs, key=lambda pair: (id(pair[0].spend), id(pair[1]))):
            alike = list(found)
            decided += batch.serve_alike([request for request, _ in alike], alike[0][1])
        batch.unit.write()
        if batch.refusals:
            transaction.keep_answers(state.dataset_id, batch.refusals)
        return decided


class _Batch:
    """One group in its transaction: earlier answers are looked up once for all of it."""

    def __init__(
        self,
        executor: IdempotentExecutor,
        transaction: Transaction,
        state: LedgerState,
        calls: Sequence[IdempotentRequest],
    ) -> None:
        now_us = executor.clock.now_us()
        self._executor = executor
        self._transaction = transaction
        self._state = state
        self._ended, teams, self._entries, self._answers = transaction.known(state.dataset_id, calls, now_us)
        self._served: dict[tuple[str, bytes], tuple[bytes, Grant | SpendRefusal]] = {}
        self.unit = UnitOfWork(transaction, state, now_us, teams)
        self.refusals: list[tuple[IdempotentRequest, StoredAnswer]] = []

    def serve_alike(self, requests: Sequence[Authorization], charge: Charge | Failure) -> list[Decided]:
        """Decide requests for the same spend one after another."""
        spend, calls = requests[0].spend, [request.call for request in requests]
        allocation = None
        try:
            if isinstance(charge, Charge):
                if spend.allocation is not None or self._state.budget.filter.allocates:
                    allocation = self.unit.allocation_to_spend(spend.allocation)
                    charge = self.unit.fitting(charge, allocation)
                elif not charge.is_for(self._state.budget, self._state.adjacency):
                    charge = fitting(self._state, charge)
        except (LedgerError, AccountingError) as error:
            charge = error
        of_the_whole = spend.partition is None and spend.seen_sample is None
        if not (isinstance(charge, Charge) and of_the_whole and self._all_new(calls)):
            return [self._serve(request, charge) for request in requests]
        outcomes = self.unit.spend_each(Authorize(charge, spend.run, allocation=allocation), calls)
        return [self._record(spend, call, charge, each) for call, each in zip(calls, outcomes, strict=True)]

    def _all_new(self, calls: Sequence[IdempotentRequest]) -> bool:
        """Whether none of these was answered before, nor is there twice."""
        if self._ended or self._entries or self._answers:
            return False
        keys = {(call.actor, call.key) for call in calls}
        return len(keys) == len(calls) and keys.isdisjoint(self._served)

    def _serve(self, request: Authorization, charge: Charge | Failure) -> Decided:
        """Decide one request; an error concerns it alone."""
        call, spend = request.call, request.spend
        try:
            if call.actor in self._ended:
                raise TokenEnded
            repeated = self._find_repeated(call)
            if repeated is not None:
                return repeated
            if not isinstance(charge, Charge):
                raise charge
            outcome = spend_in(self._transaction, self.unit, spend, charge, call.actor, call)
            return self._record(spend, call, charge, outcome)
        except (LedgerError, AccountingError) as error:
            return error

    def _find_repeated(self, call: IdempotentRequest) -> Grant | SpendRefusal | StoredResult | None:
        request, served = self._served.get((call.actor, call.key), (call.request, None))
        if request != call.request:
            raise KeyReused
        if served is not None:
            return replace(served, replayed=True)
        stored = self._entries.get(call)
        if stored is None:
            return stored_result(self._answers.get(call), call)
        if stored.request != call.request:
            raise KeyReused
        return stored_grant(self._transaction, self._state, stored)

    def _record(
        self, spend: Spend, call: IdempotentRequest, charge: Charge, outcome: Recorded | Refused
    ) -> Grant | SpendRefusal:
        decided: Grant | SpendRefusal
        if isinstance(outcome, Refused):
            decided = SpendRefusal(spend.dataset, spend.run, charge, 1, outcome, allocation=spend.allocation)
            self.refusals.append((call, self._executor.stored(call, decided)))
        else:
            decided = Grant(
                spend.dataset, outcome.entry, charge, *outcome[1:], spend.partition, spend.allocation
            )
        self._served[call.actor, call.key] = (call.request, decided)
        return decided


def try_charge(executor: IdempotentExecutor, spend: Spend) -> Charge | Failure:
    """The charge for a spend, or why there is none."""
    try:
        return executor.charger.charge(spend)
    except (LedgerError, AccountingError) as error:
        return error


def spend_in(
    transaction: Transaction,
    unit: UnitOfWork,
    spend: Spend,
    charge: Charge,
    actor: str,
    call: IdempotentRequest | None,
) -> Recorded | Refused:
    """Decide one spend in an open unit of work."""
    if spend.seen_sample is not None:
        _check_sample(transaction, unit.state, spend)
    allocation = unit.allocation_to_spend(spend.allocation)
    partition = unit.partition(spend.partition)
    command = Authorize(charge, spend.run, partition, spend.seen_sample, allocation)
    return unit.spend(command, actor, call)


def stored_grant(transaction: Transaction, state: LedgerState, stored: StoredEntry) -> Grant:
    """A grant that was given before, from its entry."""
    if stored.charge is None or stored.fraction is None:
        raise NotFound("charge of entry", str(stored.entry.sequence))
    entry, fraction, name, allocation = (
        stored.entry,
        stored.fraction,
        stored.partition_name,
        stored.allocation_name,
    )
    if allocation is not None:
        budget = transaction.allocations(state.dataset_id, [allocation])[allocation].budget
    else:
        budget = transaction.budget_at(state.dataset_id, entry.sequence)
    if name is not None:
        budget = budget.narrow(transaction.partitions(state.dataset_id, [name])[name].budget)
    return Grant(state.name, entry, stored.charge, budget, fraction, name, allocation, replayed=True)


def _check_sample(transaction: Transaction, state: LedgerState, spend: Spend) -> None:
    """A sample that is looked at again must have been drawn here, from the same partition or allocation.

    Allocations compose because their coins are their own, and a sample is made of the coins of the one that
    drew it.
    """
    stored = transaction.entry(state.dataset_id, spend.seen_sample or 0)
    drawn_from = stored.partition_name, stored.allocation_name
    if stored.entry.kind is not EntryKind.AUTHORIZED or drawn_from != (spend.partition, spend.allocation):
        raise InvalidInput(
            "sample.id", "the id of a sample drawn by an authorization here", spend.seen_sample
        )
    if stored.charge is not None:
        check_equal_sizes(state, stored.charge.step, spend.partition)
