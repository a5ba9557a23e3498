"""Single authorizations, decided in groups: one transaction for all that arrived together."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from dpledger.accounting.errors import AccountingError, InvalidInput
from dpledger.ledger.charges import check_equal_sizes, fitting
from dpledger.ledger.decide import Refused
from dpledger.ledger.errors import KeyReused, LedgerError, NotFound, TokenEnded
from dpledger.ledger.idempotency import IdempotentExecutor, as_answer
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.commands import Authorize
from dpledger.ledger.model.entries import Charge, Entry, EntryKind
from dpledger.ledger.model.requests import Answer, Authorization, Reply, Spend
from dpledger.ledger.model.state import LedgerState
from dpledger.ledger.ports import IdempotentRequest, StoredAnswer, StoredEntry, Transaction
from dpledger.ledger.unit_of_work import Recorded, UnitOfWork

__all__ = [
    "Decided",
    "Yes",
    "authorize_group",
    "reply_to",
    "spend_in",
    "stored_yes",
    "try_charge",
    "yes_body",
]


class Yes(NamedTuple):
    """A granted spend, kept until its transaction has committed and it may be sent."""

    dataset: str
    entry: Entry
    charge: Charge
    budget: Budget
    fraction: float
    partition: str | None
    replayed: bool = False


Failure = LedgerError | AccountingError
Decided = Yes | Answer | Failure


def authorize_group(executor: IdempotentExecutor, name: str, group: Sequence[Authorization]) -> list[Decided]:
    """Decide a group of requests for one dataset one after another, and commit."""
    charges = [request.charge or try_charge(executor, request.spend) for request in group]
    return executor.run(lambda transaction: _decide(executor, transaction, name, group, charges))


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
    command = Authorize(charge, spend.run, unit.partition(spend.partition), spend.seen_sample)
    return unit.spend(command, actor, call)


def stored_yes(transaction: Transaction, state: LedgerState, stored: StoredEntry) -> Yes:
    """A yes that was given before, from its entry."""
    if stored.charge is None or stored.fraction is None:
        raise NotFound("charge of entry", str(stored.entry.sequence))
    budget, name = transaction.budget_at(state.dataset_id, stored.entry.sequence), stored.partition_name
    if name is not None:
        budget = budget.narrow(transaction.partitions(state.dataset_id, [name])[name].budget)
    return Yes(state.name, stored.entry, stored.charge, budget, stored.fraction, name, replayed=True)


def _decide(
    executor: IdempotentExecutor,
    transaction: Transaction,
    name: str,
    group: Sequence[Authorization],
    charges: Sequence[Charge | Failure],
) -> list[Decided]:
    state = transaction.lock([name])[name]
    responses = BatchDecider(executor, transaction, state, group)
    fit = [_fitting(state, charge) for charge in charges]
    decided = [each for alike in _in_a_row(group, fit) for each in responses.serve_alike(*alike)]
    responses.unit.write()
    transaction.keep_answers(state.dataset_id, responses.refusals)
    return decided


def _fitting(state: LedgerState, charge: Charge | Failure) -> Charge | Failure:
    try:
        return fitting(state, charge) if isinstance(charge, Charge) else charge
    except AccountingError as error:
        return error


def _in_a_row(
    group: Sequence[Authorization], charges: Sequence[Charge | Failure]
) -> Iterator[tuple[list[Authorization], Charge | Failure]]:
    """Neighbours that ask for the same, together."""
    pairs = zip(group, charges, strict=True)
    for _, found in itertools.groupby(pairs, key=lambda pair: (id(pair[0].spend), id(pair[1]))):
        alike = list(found)
        yield [request for request, _ in alike], alike[0][1]


class BatchDecider:
    """Serves one group: what was answered before is looked up once for all of it."""

    def __init__(
        self,
        executor: IdempotentExecutor,
        transaction: Transaction,
        state: LedgerState,
        group: Sequence[Authorization],
    ) -> None:
        calls = [request.call for request in group]
        self._executor = executor
        self._transaction = transaction
        self._state = state
        now_us = executor.clock.now_us()
        self._ended, self._entries, self._answers = transaction.known(state.dataset_id, calls, now_us)
        self.unit = executor.open_unit(transaction, state)
        self.refusals: list[tuple[IdempotentRequest, StoredAnswer]] = []
        self._served: dict[tuple[str, bytes], tuple[bytes, Yes | Answer]] = {}

    def serve_alike(self, requests: Sequence[Authorization], charge: Charge | Failure) -> list[Decided]:
        """Decide requests for the same spend one after another."""
        spend, calls = requests[0].spend, [request.call for request in requests]
        plain = spend.partition is None and spend.seen_sample is None and isinstance(charge, Charge)
        if not (plain and len(requests) > 1 and self._all_new(calls)):
            return [self.serve(request, charge) for request in requests]
        assert isinstance(charge, Charge)
        outcomes = self.unit.spend_each(Authorize(charge, spend.run), calls)
        return [
            self._record(spend, call, charge, outcome) for call, outcome in zip(calls, outcomes, strict=True)
        ]

    def _all_new(self, calls: Sequence[IdempotentRequest]) -> bool:
        """Whether none of these was answered before, nor is there twice."""
        if self._ended or self._entries or self._answers:
            return False
        marks = {(call.actor, call.key) for call in calls}
        return len(marks) == len(calls) and marks.isdisjoint(self._served)

    def serve(self, request: Authorization, charge: Charge | Failure) -> Decided:
        """Decide one request; an error concerns it alone."""
        call = request.call
        try:
            if call.actor in self._ended:
                raise TokenEnded
            return self._find_repeated(call) or self._fresh(request.spend, call, charge)
        except (LedgerError, AccountingError) as error:
            return error

    def _find_repeated(self, call: IdempotentRequest) -> Yes | Answer | None:
        request, served = self._served.get((call.actor, call.key), (call.request, None))
        if request != call.request:
            raise KeyReused
        if served is not None:
            return _again(served)
        stored = self._entries.get(call)
        if stored is None:
            return as_answer(self._answers.get(call), call)
        if stored.request != call.request:
            raise KeyReused
        return stored_yes(self._transaction, self._state, stored)

    def _fresh(self, spend: Spend, call: IdempotentRequest, charge: Charge | Failure) -> Yes | Answer:
        if not isinstance(charge, Charge):
            raise charge
        outcome = spend_in(self._transaction, self.unit, spend, charge, call.actor, call)
        return self._record(spend, call, charge, outcome)

    def _record(
        self, spend: Spend, call: IdempotentRequest, charge: Charge, outcome: Recorded | Refused
    ) -> Yes | Answer:
        decided: Yes | Answer
        if isinstance(outcome, Refused):
            decided = self._refuse(spend, call, charge, outcome)
        else:
            entry, budget, fraction = outcome
            decided = Yes(spend.dataset, entry, charge, budget, fraction, spend.partition)
        self._served[call.actor, call.key] = (call.request, decided)
        return decided

    def _refuse(self, spend: Spend, call: IdempotentRequest, charge: Charge, refused: Refused) -> Answer:
        body = self._executor.responses.refusal(spend.dataset, spend.run, charge, 1, refused)
        self.refusals.append((call, StoredAnswer(call.request, "refused", body)))
        return Answer("refused", body)


def _again(served: Yes | Answer) -> Yes | Answer:
    return served._replace(replayed=True) if isinstance(served, Yes) else replace(served, replayed=True)


def reply_to(executor: IdempotentExecutor, decided: Decided) -> Reply:
    """The answer to the caller; a yes is signed here, after its commit."""
    if not isinstance(decided, Yes):
        return decided
    return Answer("granted", yes_body(executor, decided), decided.replayed)


def yes_body(executor: IdempotentExecutor, yes: Yes) -> str:
    """The body of a yes."""
    return executor.responses.authorization(
        yes.dataset, yes.entry, yes.charge, yes.budget, yes.fraction, yes.partition
    )


def _check_sample(transaction: Transaction, state: LedgerState, spend: Spend) -> None:
    """A sample that is looked at again must have been drawn here, from the same partition."""
    stored = transaction.entry(state.dataset_id, spend.seen_sample or 0)
    if stored.entry.kind is not EntryKind.AUTHORIZED or stored.partition_name != spend.partition:
        raise InvalidInput(
            "sample.id", "the id of a sample drawn by an authorization here", spend.seen_sample
        )
    if stored.charge is not None:
        check_equal_sizes(state, stored.charge.step, spend.partition)
