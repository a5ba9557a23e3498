"""The ledger service: every change of every ledger goes through here, and only here are transactions opened.

Each call locks the datasets it needs in sorted order, reads their state, decides, appends, stores
the answer under its key, commits, and only then answers.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from dpledger.accounting.errors import InvalidInput
from dpledger.accounting.validation import check_count, check_positive
from dpledger.ledger.answers import identifier, text
from dpledger.ledger.authorizing import Decided, authorize_group, reply_to
from dpledger.ledger.budget import Plan
from dpledger.ledger.bulk import authorize_all, no_pause
from dpledger.ledger.charging import fitting
from dpledger.ledger.clock import Clock
from dpledger.ledger.commands import (
    AcceptRollback,
    ChangeBudget,
    OpenPartitions,
    Reservation,
    Reserve,
    Settle,
)
from dpledger.ledger.decide import Refused
from dpledger.ledger.entries import Charge, Entry, EntryKind, moment
from dpledger.ledger.errors import AlreadyExists, PreconditionFailed, ReservedByAnother
from dpledger.ledger.guarantee import guarantee_fields, limit_warnings
from dpledger.ledger.marks import Mark
from dpledger.ledger.planning import plan_warnings, unspent_plan_warnings
from dpledger.ledger.ports import Intent, NewDataset, NewEntry, Storage, Transaction
from dpledger.ledger.receipts import Signer
from dpledger.ledger.requests import Answer, Authorization, Reply, Settlement, Spend
from dpledger.ledger.sitting import Sitting
from dpledger.ledger.teller import NO_DATASET, Teller

__all__ = ["MAX_PARTITIONS_A_CALL", "MAX_RESERVATION_SECONDS", "MAX_RESERVED_TIMES", "LedgerService"]

MAX_RESERVED_TIMES = 10**7
MAX_RESERVATION_SECONDS = 30 * 86_400.0
MAX_PARTITIONS_A_CALL = 10_000


class LedgerService:
    """Opens, authorizes, reserves, settles and changes; reading is elsewhere."""

    def __init__(self, storage: Storage, clock: Clock, signer: Signer) -> None:
        self._teller = Teller(storage, clock, signer)

    def charge(self, spend: Spend) -> Charge:
        """What a spend would be charged: it never changes, so it may be computed before the decision."""
        return self._teller.charger.charge(spend)

    def authorize(self, name: str, group: Sequence[Authorization]) -> list[Reply]:
        """Decide requests for one dataset that arrived together, in one transaction."""
        return [self.reply(decided) for decided in self.decide(name, group)]

    def decide(self, name: str, group: Sequence[Authorization]) -> list[Decided]:
        """The same without the answers: the next group need not wait until this one's are written."""
        return authorize_group(self._teller, name, group)

    def reply(self, decided: Decided) -> Reply:
        """The answer to what :meth:`decide` has committed."""
        return reply_to(self._teller, decided)

    def authorize_all(
        self, spends: Sequence[Spend], mode: str, intent: Intent, pause: Callable[[], None] = no_pause
    ) -> Answer:
        """Decide spends across datasets and partitions under one key; ``pause`` is called between them."""
        return authorize_all(self._teller, spends, mode, intent, pause)

    def open_dataset(self, dataset: NewDataset, intent: Intent) -> Answer:
        """Open a dataset: its first entry fixes the budget's rule, orders and weights."""
        teller = self._teller
        warnings = unspent_plan_warnings(dataset.plan, dataset.budget)

        def work(transaction: Transaction) -> Answer:
            teller.refuse_ended(transaction, intent)
            known = teller.known(transaction, NO_DATASET, intent)
            if known is not None:
                return known
            stamped = replace(dataset, at_us=teller.clock.now_us())
            book = transaction.open_dataset(stamped)
            entry = Entry(
                1, EntryKind.OPENED, stamped.at_us, intent.actor, book.head, detail=_opening(dataset)
            )
            transaction.append(book, replace(book, sequence=1, head=entry.hash), [NewEntry(entry)])
            return teller.keep(transaction, NO_DATASET, intent, Answer("granted", _opened(stamped, warnings)))

        try:
            return teller.run(work)
        except AlreadyExists:
            # Perhaps by this very request, sent to two replicas at once: then its answer is known now.
            return teller.run(work)

    def change_budget(
        self, name: str, fields: dict[str, Any], reason: str, if_match: int, intent: Intent
    ) -> Answer:
        """Another limit, as an entry like any other. Below what is spent, it closes the dataset.

        Orders and weights stay; a plan among the fields is what the answer's warnings are counted for.
        """
        planned = self._planned(name, fields)

        def work(_transaction: Transaction, sitting: Sitting) -> Answer:
            if sitting.found_at != if_match:
                raise PreconditionFailed(str(if_match), str(sitting.found_at))
            budget = sitting.book.budget.relimited(fields, sitting.book.adjacency)
            taken = sitting.record(ChangeBudget(budget, reason), intent.actor)
            remaining = budget.remaining_at(taken.fraction)
            body = {"name": name, "sequence": taken.entry.sequence, "remaining": remaining}
            book = sitting.book
            warnings = limit_warnings(book)
            if planned is not None:
                plan, charge = planned
                amounts = fitting(book, charge).amounts
                warnings += plan_warnings(plan, amounts, lambda asked: book.fits(asked, None))
            told = {"guarantee": guarantee_fields(book), "warnings": warnings}
            return Answer("granted", text({**body, **told}))

        return self._teller.answer_once(name, intent, work)

    def _planned(self, name: str, fields: dict[str, Any]) -> tuple[Plan, Charge] | None:
        """The plan of a changed budget and what one step of it costs, computed before any lock."""
        if "plan" not in fields:
            return None
        budget, adjacency = self._teller.charger.rule(name)
        budget.relimited(fields, adjacency)  # which refuses what this accounting does not take
        plan = Plan.from_fields(fields["plan"], adjacency)
        return plan, self.charge(Spend(name, "", plan.step.releases, plan.step.sample))

    def accept_rollback(self, name: str, lost: Mark, reason: str, intent: Intent) -> Answer:
        """Give up entries that the ledger has lost, as an entry, so that whoever waits for them goes on."""

        def work(transaction: Transaction, sitting: Sitting) -> Answer:
            if transaction.holds(sitting.book, lost):
                raise InvalidInput("entry", "one that the ledger has lost; it holds this one", lost.sequence)
            taken = sitting.record(AcceptRollback(lost.sequence, lost.head.hex(), reason), intent.actor)
            remaining = taken.budget.remaining_at(taken.fraction)
            body = {"name": name, "sequence": taken.entry.sequence, "remaining": remaining}
            return Answer("granted", text(body))

        return self._teller.answer_once(name, intent, work, rolled_back=True)

    def open_partitions(
        self, name: str, wanted: Sequence[str] | int, budget_fields: dict[str, Any] | None, intent: Intent
    ) -> Answer:
        """Open many partitions at once, by name or so many by number; with a budget of their own or not."""
        _check_partitions(wanted)
        planned = self._planned(name, budget_fields or {})

        def work(_transaction: Transaction, sitting: Sitting) -> Answer:
            book = sitting.book
            names = _numbered(book.partitions, wanted) if isinstance(wanted, int) else tuple(wanted)
            own = None
            if budget_fields is not None:
                own = book.budget.relimited(budget_fields, book.adjacency).usable()
            taken = sitting.record(OpenPartitions(names, own), intent.actor)
            body = {"dataset": name, "sequence": taken.entry.sequence, "opened": len(names)}
            warnings: list[str] = []
            if own is not None and planned is not None:
                warnings = plan_warnings(planned[0], fitting(book, planned[1]).amounts, own.admits)
            ends = {"first": names[0], "last": names[-1]}
            return Answer("granted", text({**body, **ends, "warnings": warnings}))

        return self._teller.answer_once(name, intent, work)

    def reserve(self, spend: Spend, times: int, expires_in_seconds: float, intent: Intent) -> Answer:
        """Hold up to ``times`` repetitions until they are settled; silence charges all of them."""
        times = check_count("times", times, most=MAX_RESERVED_TIMES)
        seconds = check_positive("expires_in_seconds", expires_in_seconds)
        if seconds > MAX_RESERVATION_SECONDS:
            raise InvalidInput("expires_in_seconds", f"at most {MAX_RESERVATION_SECONDS:.0f}", seconds)
        if spend.seen_sample is not None:
            raise InvalidInput("sample.id", "absent: each repetition draws a fresh sample", spend.seen_sample)
        asked = self.charge(spend)
        desk = self._teller.desk

        def work(_transaction: Transaction, sitting: Sitting) -> Answer:
            charge = fitting(sitting.book, asked)
            expires = sitting.stamp(intent.actor).at_us + int(seconds * 1e6)
            command = Reserve(charge, spend.run, times, expires, sitting.partition(spend.partition))
            outcome = sitting.spend(command, intent.actor)
            if isinstance(outcome, Refused):
                return Answer("refused", desk.refusal(spend.dataset, spend.run, charge, times, outcome))
            body = desk.reservation(
                spend.dataset, outcome.entry, charge, outcome.budget, outcome.fraction, spend.partition
            )
            return Answer("granted", body)

        return self._teller.answer_once(spend.dataset, intent, work)

    def settle(self, settlement: Settlement, intent: Intent) -> Answer:
        """Close a reservation with the number of repetitions that ran; the rest is given back."""
        dataset, used = settlement.dataset, settlement.used

        def work(_transaction: Transaction, sitting: Sitting) -> Answer:
            held = sitting.reservation(settlement.sequence)
            _check_settler(held, settlement, intent.actor)
            check_count("used", used, most=held.times, least=0)
            taken = sitting.record(Settle(held, used, settlement.statement), intent.actor)
            body = self._teller.desk.settlement(dataset, taken.entry, held, taken.budget, taken.fraction)
            return Answer("granted", body)

        return self._teller.answer_once(dataset, intent, work)

    def expire_due(self, limit: int = 100) -> int:
        """Charge what nobody settled in time; returns how many datasets had something due.

        One that fails keeps no other from its turn; what it failed of is raised in the end.
        """
        teller = self._teller
        due = teller.storage.datasets_due(teller.clock.now_us(), limit)
        failures: list[Exception] = []
        for name in due:
            try:
                teller.run(functools.partial(self._expire_in, name))
            except Exception as error:
                failures.append(error)
        if failures:
            raise failures[0]
        return len(due)

    def _expire_in(self, name: str, transaction: Transaction) -> None:
        self._teller.sit(transaction, transaction.lock([name])[name]).write()


def _check_settler(held: Reservation, settlement: Settlement, actor: str) -> None:
    """Refuse a statement of how much was used from whoever cannot know it.

    Repetitions that are given back are privacy that somebody else will spend, so the number must come from
    the job that released. Whoever holds its token speaks for it: they could as well reserve again and release
    without asking. Any other token of the dataset cannot know, and a run's name is free text that
    anybody may give, so it does not stand in for the token. An admin may close a reservation whose job is
    gone: in full, which is right whatever the job did, or with less if they state on record why nothing more
    was or will be released. Without that the reservation expires, which charges it in full.
    """
    if held.actor == actor:
        return
    if not settlement.by_admin:
        raise ReservedByAnother(identifier(settlement.dataset, held.sequence))
    if settlement.used < held.times and settlement.statement is None:
        raise InvalidInput(
            "statement", "given: why a reservation of another token released no more, and will not", None
        )


def _check_partitions(wanted: Sequence[str] | int) -> None:
    many = wanted if isinstance(wanted, int) else len(wanted)
    check_count("partitions", many, most=MAX_PARTITIONS_A_CALL)
    repeated = 0 if isinstance(wanted, int) else many - len(set(wanted))
    if repeated:
        raise InvalidInput("partitions", "names that are all different", repeated)


def _numbered(first: int, many: int) -> tuple[str, ...]:
    return tuple(str(first + index) for index in range(many))


def _opened(dataset: NewDataset, warnings: list[str]) -> str:
    budget = dataset.budget
    return text(
        {
            "name": dataset.name,
            "sequence": 1,
            "adjacency": dataset.adjacency,
            "unit": dataset.unit,
            "partition_key": dataset.partition_key,
            "budget": {"accounting": budget.accounting.value, **budget.target},
            "orders": budget.orders.tolist(),
            "weights": None if budget.weights is None else budget.weights.tolist(),
            "opened_at": moment(dataset.at_us),
            "warnings": warnings,
        }
    )


def _opening(dataset: NewDataset) -> str:
    return text(
        {
            "name": dataset.name,
            "adjacency": dataset.adjacency,
            "unit": dataset.unit,
            "partition_key": dataset.partition_key,
            "budget": dataset.budget.document,
        }
    )
