"""Single authorizations, decided in groups: one transaction for all that arrived together."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from dpledger.accounting.errors import AccountingError, InvalidInput
from dpledger.ledger.budget import Budget
from dpledger.ledger.charging import check_equal_sizes, fitting
from dpledger.ledger.commands import Authorize
from dpledger.ledger.decide import Refused
from dpledger.ledger.entries import Charge, Entry, EntryKind
from dpledger.ledger.errors import KeyReused, LedgerError, NotFound, TokenEnded
from dpledger.ledger.ports import Intent, StoredAnswer, StoredEntry, Transaction
from dpledger.ledger.requests import Answer, Authorization, Reply, Spend
from dpledger.ledger.sitting import Sitting, Taken
from dpledger.ledger.state import Book
from dpledger.ledger.teller import Teller, as_answer

__all__ = [
    "Decided",
    "Yes",
    "authorize_group",
    "charged",
    "reply_to",
    "spend_in",
    "stored_yes",
    "yes_body",
]


class Yes(NamedTuple):
    """A granted spend, kept until its transaction has committed and it may be told."""

    dataset: str
    entry: Entry
    charge: Charge
    budget: Budget
    fraction: float
    partition: str | None
    replayed: bool = False


Failure = LedgerError | AccountingError
Decided = Yes | Answer | Failure


def authorize_group(teller: Teller, name: str, group: Sequence[Authorization]) -> list[Decided]:
    """Decide a group of requests for one dataset one after another, and commit."""
    charges = [request.charge or charged(teller, request.spend) for request in group]
    return teller.run(lambda transaction: _decide(teller, transaction, name, group, charges))


def charged(teller: Teller, spend: Spend) -> Charge | Failure:
    """The charge for a spend, or why there is none."""
    try:
        return teller.charger.charge(spend)
    except (LedgerError, AccountingError) as error:
        return error


def spend_in(
    transaction: Transaction,
    sitting: Sitting,
    spend: Spend,
    charge: Charge,
    actor: str,
    intent: Intent | None,
) -> Taken | Refused:
    """Decide one spend in an open sitting."""
    if spend.seen_sample is not None:
        _check_sample(transaction, sitting.book, spend)
    command = Authorize(charge, spend.run, sitting.partition(spend.partition), spend.seen_sample)
    return sitting.spend(command, actor, intent)


def stored_yes(transaction: Transaction, book: Book, stored: StoredEntry) -> Yes:
    """A yes that was given before, from its entry."""
    if stored.charge is None or stored.fraction is None:
        raise NotFound("charge of entry", str(stored.entry.sequence))
    budget, name = transaction.budget_at(book.dataset_id, stored.entry.sequence), stored.partition_name
    if name is not None:
        budget = budget.narrowed(transaction.partitions(book.dataset_id, [name])[name].budget)
    return Yes(book.name, stored.entry, stored.charge, budget, stored.fraction, name, replayed=True)


def _decide(
    teller: Teller,
    transaction: Transaction,
    name: str,
    group: Sequence[Authorization],
    charges: Sequence[Charge | Failure],
) -> list[Decided]:
    book = transaction.lock([name])[name]
    desk = _Counter(teller, transaction, book, group)
    fit = [_fitting(book, charge) for charge in charges]
    decided = [each for alike in _in_a_row(group, fit) for each in desk.serve_alike(*alike)]
    desk.sitting.write()
    transaction.keep_answers(book.dataset_id, desk.refusals)
    return decided


def _fitting(book: Book, charge: Charge | Failure) -> Charge | Failure:
    try:
        return fitting(book, charge) if isinstance(charge, Charge) else charge
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


class _Counter:
    """Serves one group: what was answered before is looked up once for all of it."""

    def __init__(
        self, teller: Teller, transaction: Transaction, book: Book, group: Sequence[Authorization]
    ) -> None:
        intents = [request.intent for request in group]
        self._teller = teller
        self._transaction = transaction
        self._book = book
        now_us = teller.clock.now_us()
        self._ended, self._entries, self._answers = transaction.known(book.dataset_id, intents, now_us)
        self.sitting = teller.sit(transaction, book)
        self.refusals: list[tuple[Intent, StoredAnswer]] = []
        self._served: dict[tuple[str, bytes], tuple[bytes, Yes | Answer]] = {}

    def serve_alike(self, requests: Sequence[Authorization], charge: Charge | Failure) -> list[Decided]:
        """Decide requests for the same spend one after another."""
        spend, intents = requests[0].spend, [request.intent for request in requests]
        plain = spend.partition is None and spend.seen_sample is None and isinstance(charge, Charge)
        if not (plain and len(requests) > 1 and self._all_new(intents)):
            return [self.serve(request, charge) for request in requests]
        assert isinstance(charge, Charge)
        outcomes = self.sitting.spend_each(Authorize(charge, spend.run), intents)
        return [
            self._told(spend, intent, charge, outcome)
            for intent, outcome in zip(intents, outcomes, strict=True)
        ]

    def _all_new(self, intents: Sequence[Intent]) -> bool:
        """Whether none of these was answered before, nor is there twice."""
        if self._ended or self._entries or self._answers:
            return False
        marks = {(intent.actor, intent.key) for intent in intents}
        return len(marks) == len(intents) and marks.isdisjoint(self._served)

    def serve(self, request: Authorization, charge: Charge | Failure) -> Decided:
        """Decide one request; an error concerns it alone."""
        intent = request.intent
        try:
            if intent.actor in self._ended:
                raise TokenEnded
            return self._repeated(intent) or self._fresh(request.spend, intent, charge)
        except (LedgerError, AccountingError) as error:
            return error

    def _repeated(self, intent: Intent) -> Yes | Answer | None:
        request, served = self._served.get((intent.actor, intent.key), (intent.request, None))
        if request != intent.request:
            raise KeyReused
        if served is not None:
            return _again(served)
        stored = self._entries.get(intent)
        if stored is None:
            return as_answer(self._answers.get(intent), intent)
        if stored.request != intent.request:
            raise KeyReused
        return stored_yes(self._transaction, self._book, stored)

    def _fresh(self, spend: Spend, intent: Intent, charge: Charge | Failure) -> Yes | Answer:
        if not isinstance(charge, Charge):
            raise charge
        outcome = spend_in(self._transaction, self.sitting, spend, charge, intent.actor, intent)
        return self._told(spend, intent, charge, outcome)

    def _told(self, spend: Spend, intent: Intent, charge: Charge, outcome: Taken | Refused) -> Yes | Answer:
        decided: Yes | Answer
        if isinstance(outcome, Refused):
            decided = self._refused(spend, intent, charge, outcome)
        else:
            entry, budget, fraction = outcome
            decided = Yes(spend.dataset, entry, charge, budget, fraction, spend.partition)
        self._served[intent.actor, intent.key] = (intent.request, decided)
        return decided

    def _refused(self, spend: Spend, intent: Intent, charge: Charge, refused: Refused) -> Answer:
        body = self._teller.desk.refusal(spend.dataset, spend.run, charge, 1, refused)
        self.refusals.append((intent, StoredAnswer(intent.request, "refused", body)))
        return Answer("refused", body)


def _again(served: Yes | Answer) -> Yes | Answer:
    return served._replace(replayed=True) if isinstance(served, Yes) else replace(served, replayed=True)


def reply_to(teller: Teller, decided: Decided) -> Reply:
    """What the caller is told; a yes is signed here, after its commit."""
    if not isinstance(decided, Yes):
        return decided
    return Answer("granted", yes_body(teller, decided), decided.replayed)


def yes_body(teller: Teller, yes: Yes) -> str:
    """The body of a yes."""
    return teller.desk.authorization(
        yes.dataset, yes.entry, yes.charge, yes.budget, yes.fraction, yes.partition
    )


def _check_sample(transaction: Transaction, book: Book, spend: Spend) -> None:
    """A sample that is looked at again must have been drawn here, from the same partition."""
    stored = transaction.entry(book.dataset_id, spend.seen_sample or 0)
    if stored.entry.kind is not EntryKind.AUTHORIZED or stored.partition_name != spend.partition:
        raise InvalidInput(
            "sample.id", "the id of a sample drawn by an authorization here", spend.seen_sample
        )
    if stored.charge is not None:
        check_equal_sizes(book, stored.charge.step, spend.partition)
