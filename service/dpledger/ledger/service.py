"""The ledger service: every change of every ledger goes through here, and only here are transactions opened.

Each call locks the datasets it needs in sorted order, reads their state, decides, appends, stores
the result under its key, commits, and only then returns it.
"""

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from dpledger.accounting.errors import InvalidInput, Unproven
from dpledger.accounting.validation import check_count, check_positive
from dpledger.ledger.allocations import allocate, compose_allocation, return_allocation
from dpledger.ledger.authorization import BatchDecider
from dpledger.ledger.bulk import authorize_all, no_pause
from dpledger.ledger.charges import fitting
from dpledger.ledger.clock import Clock
from dpledger.ledger.decide import Refused
from dpledger.ledger.errors import AlreadyExists, PreconditionFailed, ReservedByAnother
from dpledger.ledger.guarantee import guarantee_fields, limit_warnings
from dpledger.ledger.idempotency import NO_DATASET, IdempotentExecutor
from dpledger.ledger.marks import Mark
from dpledger.ledger.model.budget import Plan
from dpledger.ledger.model.commands import (
    AcceptRollback,
    ChangeBudget,
    OpenPartitions,
    Reservation,
    Reserve,
    Settle,
)
from dpledger.ledger.model.entries import Charge, Entry, EntryKind, identifier
from dpledger.ledger.model.requests import (
    NewAllocation,
    NewBudgetRequest,
    NewEpoch,
    NewQuota,
    NewRenewal,
    RequestDecision,
    Settlement,
    Spend,
)
from dpledger.ledger.model.state import LedgerState
from dpledger.ledger.planning import plan_warnings, unspent_plan_warnings
from dpledger.ledger.ports import IdempotentRequest, NewDataset, NewEntry, Renderer, Storage, Transaction
from dpledger.ledger.quotas import change_quota
from dpledger.ledger.renewals import change_renewal, open_epoch
from dpledger.ledger.requests import decide_budget_request, request_budget
from dpledger.ledger.results import (
    AllocationOpening,
    AllocationRefusal,
    AllocationReturn,
    BudgetChange,
    DatasetOpening,
    ListResult,
    PartitionOpening,
    QuotaChange,
    RenewalChange,
    RequestApproval,
    RequestRecord,
    ReservationGrant,
    RollbackAcceptance,
    SettlementRecord,
    SpendRefusal,
    StoredResult,
)
from dpledger.ledger.unit_of_work import UnitOfWork

__all__ = ["MAX_PARTITIONS_PER_CALL", "MAX_RESERVATION_SECONDS", "MAX_RESERVED_TIMES", "LedgerService"]

MAX_RESERVED_TIMES = 10**7
MAX_RESERVATION_SECONDS = 30 * 86_400.0
MAX_PARTITIONS_PER_CALL = 10_000


class LedgerService:
    """Opens, authorizes, reserves, settles and changes; reading is elsewhere.

    Parameters
    ----------
    storage
        Where ledgers are kept.
    clock
        What tells the time.
    renderer
        Writes the texts that are kept under idempotency keys.
    executor
        Runs what is decided; a :class:`~dpledger.ledger.preview.PreviewExecutor` records nothing.
    """

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        renderer: Renderer,
        executor: type[IdempotentExecutor] = IdempotentExecutor,
    ) -> None:
        self._executor = executor(storage, clock, renderer)
        self.batches = BatchDecider(self._executor)
        """Decides single authorizations in groups."""

    def charge(self, spend: Spend) -> Charge:
        """What a spend would be charged: it never changes, so it may be computed before the decision."""
        return self._executor.charger.charge(spend)

    def authorize_all(
        self,
        spends: Sequence[Spend],
        mode: str,
        call: IdempotentRequest,
        pause: Callable[[], None] = no_pause,
    ) -> ListResult:
        """Decide spends across datasets and partitions under one key; ``pause`` is called between them."""
        return authorize_all(self._executor, spends, mode, call, pause)

    def open_dataset(self, dataset: NewDataset, call: IdempotentRequest) -> DatasetOpening | StoredResult:
        """Open a dataset: its first entry fixes the budget's rule, orders and weights."""
        executor = self._executor
        warnings = unspent_plan_warnings(dataset.plan, dataset.budget)

        def work(transaction: Transaction) -> DatasetOpening | StoredResult:
            team = executor.valid_team(transaction, call)
            known = executor.known(transaction, NO_DATASET, call)
            if known is not None:
                return known
            stamped = replace(dataset, at_us=executor.clock.now_us())
            state = transaction.open_dataset(stamped)
            entry = Entry(
                1,
                EntryKind.OPENED,
                stamped.at_us,
                call.actor,
                state.head,
                detail=_opening(dataset),
                team=team,
            )
            transaction.append(state, replace(state, sequence=1, head=entry.hash), [NewEntry(entry)])
            return executor.keep(transaction, NO_DATASET, call, DatasetOpening(stamped, tuple(warnings)))

        try:
            return executor.run(work)
        except AlreadyExists:
            # Perhaps by this very request, sent to two replicas at once: then its answer is known now.
            return executor.run(work)

    def change_budget(
        self, name: str, fields: dict[str, Any], reason: str, if_match: int, call: IdempotentRequest
    ) -> BudgetChange | StoredResult:
        """Another limit, as an entry like any other. Below what is spent, it closes the dataset.

        Orders and weights stay; a plan among the fields is what the answer's warnings are counted for.
        """
        planned = self._planned(name, fields)

        def work(_transaction: Transaction, unit: UnitOfWork) -> BudgetChange:
            if unit.found_at != if_match:
                raise PreconditionFailed(str(if_match), str(unit.found_at))
            budget = unit.state.budget.with_limit(fields, unit.state.adjacency)
            taken = unit.record(ChangeBudget(budget, reason), call.actor)
            state = unit.state
            warnings = limit_warnings(state)
            if planned is not None:
                plan, charge = planned
                amounts = fitting(state, charge).amounts
                warnings += plan_warnings(plan, amounts, lambda asked: state.fits(asked, None))
            remaining, guarantee = state.remaining(None), guarantee_fields(state)
            return BudgetChange(name, taken.entry.sequence, remaining, guarantee, tuple(warnings))

        return self._executor.answer_once(name, call, work)

    def _planned(self, name: str, fields: dict[str, Any]) -> tuple[Plan, Charge] | None:
        """The plan of a changed budget and what one step of it costs, computed before any lock."""
        if "plan" not in fields:
            return None
        budget, adjacency = self._executor.charger.rule(name)
        budget.with_limit(fields, adjacency)  # which refuses what this accounting does not take
        plan = Plan.from_fields(fields["plan"], adjacency)
        return plan, self.charge(Spend(name, "", plan.step.releases, plan.step.sample))

    def accept_rollback(
        self, name: str, lost: Mark, reason: str, call: IdempotentRequest
    ) -> RollbackAcceptance | StoredResult:
        """Give up entries that the ledger has lost, as an entry, so that whoever waits for them goes on."""

        def work(transaction: Transaction, unit: UnitOfWork) -> RollbackAcceptance:
            if transaction.holds(unit.state, lost):
                raise InvalidInput("entry", "one that the ledger has lost; it holds this one", lost.sequence)
            taken = unit.record(AcceptRollback(lost.sequence, lost.head.hex(), reason), call.actor)
            return RollbackAcceptance(name, taken.entry.sequence, unit.state.remaining(None))

        return self._executor.answer_once(name, call, work, rolled_back=True)

    def open_partitions(
        self,
        name: str,
        wanted: Sequence[str] | int,
        budget_fields: dict[str, Any] | None,
        call: IdempotentRequest,
    ) -> PartitionOpening | StoredResult:
        """Open many partitions at once, by name or so many by number; with a budget of their own or not."""
        _check_partitions(wanted)
        planned = self._planned(name, budget_fields or {})

        def work(_transaction: Transaction, unit: UnitOfWork) -> PartitionOpening:
            state = unit.state
            _refuse_partitions(state)
            _refuse_beside_quotas(state)
            names = _numbered_names(state.partitions, wanted) if isinstance(wanted, int) else tuple(wanted)
            own = None
            if budget_fields is not None:
                own = state.budget.with_limit(budget_fields, state.adjacency).usable()
            taken = unit.record(OpenPartitions(names, own), call.actor)
            warnings: list[str] = []
            if own is not None and planned is not None:
                warnings = plan_warnings(planned[0], fitting(state, planned[1]).amounts, own.admits)
            return PartitionOpening(name, taken.entry.sequence, names, tuple(warnings))

        return self._executor.answer_once(name, call, work)

    def compose_allocation(self, name: str, asked: NewAllocation) -> None:
        """Make an allocation's budget ahead, outside the threads that write."""
        compose_allocation(self._executor, name, asked)

    def allocate(
        self, name: str, asked: NewAllocation, call: IdempotentRequest
    ) -> AllocationOpening | AllocationRefusal | StoredResult:
        """Open an allocation of a shared budget: a part of its ε and δ with a budget of its own inside."""
        return allocate(self._executor, name, asked, call)

    def return_allocation(
        self, name: str, allocation: str, reason: str, by_admin: bool, call: IdempotentRequest
    ) -> AllocationReturn | StoredResult:
        """Give back an allocation from which nothing was released; for its owner or an admin."""
        return return_allocation(self._executor, name, allocation, reason, by_admin, call)

    def change_quota(self, name: str, asked: NewQuota, call: IdempotentRequest) -> QuotaChange | StoredResult:
        """Set, change or remove how much of a dataset's budget a team may use, as an entry."""
        return change_quota(self._executor, name, asked, call)

    def request_budget(
        self, name: str, asked: NewBudgetRequest, call: IdempotentRequest
    ) -> RequestRecord | StoredResult:
        """Ask an admin for an allocation, a raised quota or another budget; as an entry."""
        return request_budget(self._executor, name, asked, call)

    def decide_budget_request(
        self, decision: RequestDecision, call: IdempotentRequest
    ) -> RequestRecord | RequestApproval | AllocationRefusal | StoredResult:
        """Approve a request, which carries it out, reject it or withdraw it; as entries."""
        return decide_budget_request(self._executor, decision, call)

    def change_renewal(
        self, name: str, asked: NewRenewal, call: IdempotentRequest
    ) -> RenewalChange | StoredResult:
        """Set, change or end the policy by which new epochs get budgets of their own, as an entry."""
        return change_renewal(self._executor, name, asked, call)

    def open_epoch(
        self, name: str, asked: NewEpoch, call: IdempotentRequest
    ) -> PartitionOpening | StoredResult:
        """Open the partition of the present or the next epoch for new records, as an entry."""
        return open_epoch(self._executor, name, asked, call)

    def reserve(
        self, spend: Spend, times: int, expires_in_seconds: float, call: IdempotentRequest
    ) -> ReservationGrant | SpendRefusal | StoredResult:
        """Hold up to ``times`` repetitions until they are settled; silence charges all of them."""
        times = check_count("times", times, most=MAX_RESERVED_TIMES)
        seconds = check_positive("expires_in_seconds", expires_in_seconds)
        if seconds > MAX_RESERVATION_SECONDS:
            raise InvalidInput("expires_in_seconds", f"at most {MAX_RESERVATION_SECONDS:.0f}", seconds)
        if spend.seen_sample is not None:
            raise InvalidInput("sample.id", "absent: each repetition draws a fresh sample", spend.seen_sample)
        asked = self.charge(spend)

        def work(_transaction: Transaction, unit: UnitOfWork) -> ReservationGrant | SpendRefusal:
            allocation = unit.allocation_to_spend(spend.allocation)
            charge = unit.fitting(asked, allocation)
            expires = unit.stamp(call.actor).at_us + int(seconds * 1e6)
            partition = unit.partition(spend.partition)
            command = Reserve(charge, spend.run, times, expires, partition, allocation)
            outcome = unit.spend(command, call.actor)
            if isinstance(outcome, Refused):
                return SpendRefusal(
                    spend.dataset, spend.run, charge, times, outcome, allocation=spend.allocation
                )
            named = spend.partition, spend.allocation
            return ReservationGrant(spend.dataset, outcome.entry, charge, *outcome[1:], *named)

        return self._executor.answer_once(spend.dataset, call, work)

    def settle(self, settlement: Settlement, call: IdempotentRequest) -> SettlementRecord | StoredResult:
        """Close a reservation with the number of repetitions that ran; the rest is given back."""
        dataset, used = settlement.dataset, settlement.used

        def work(_transaction: Transaction, unit: UnitOfWork) -> SettlementRecord:
            held = unit.reservation(settlement.sequence)
            _check_settler(held, settlement, call.actor)
            check_count("used", used, most=held.times, least=0)
            taken = unit.record(Settle(held, used, settlement.statement), call.actor)
            return SettlementRecord(dataset, taken.entry, held, taken.budget, taken.fraction)

        return self._executor.answer_once(dataset, call, work)

    def expire_due(self, limit: int = 100) -> int:
        """Charge what nobody settled in time; returns how many datasets had something due.

        One that fails keeps no other from its turn; what it failed of is raised in the end.
        """
        executor = self._executor
        due = executor.storage.datasets_due(executor.clock.now_us(), limit)
        failures: list[Exception] = []
        for name in due:
            try:
                executor.run(functools.partial(self._expire_in, name))
            except Exception as error:
                failures.append(error)
        if failures:
            raise failures[0]
        return len(due)

    def _expire_in(self, name: str, transaction: Transaction) -> None:
        self._executor.open_unit(transaction, transaction.lock([name])[name], {}).write()


def _refuse_partitions(state: LedgerState) -> None:
    """Refuse partitions of a shared budget.

    What is proven adds up the allocations' (ε_j, δ_j) over all records; that parts of the records bear only
    some of them is not.
    """
    if state.budget.filter.allocates:
        raise Unproven(
            f"the budget of {state.name} is shared: its allocations add up over all records, and partitions "
            "inside them are not covered. Open a dataset with another kind of budget for partitions"
        )


def _refuse_beside_quotas(state: LedgerState) -> None:
    if state.has_quotas:
        raise Unproven(
            f"{state.name} has or had quotas, which do not count what a team uses of each partition apart. "
            "Open a dataset without quotas for partitions"
        )


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
    check_count("partitions", many, most=MAX_PARTITIONS_PER_CALL)
    repeated = 0 if isinstance(wanted, int) else many - len(set(wanted))
    if repeated:
        raise InvalidInput("partitions", "names that are all different", repeated)


def _numbered_names(first: int, many: int) -> tuple[str, ...]:
    return tuple(str(first + index) for index in range(many))


def _opening(dataset: NewDataset) -> str:
    """The detail of a ledger's first entry, which its hash covers."""
    fields: dict[str, Any] = {
        "name": dataset.name,
        "adjacency": dataset.adjacency,
        "unit": dataset.unit,
        "partition_key": dataset.partition_key,
        "budget": dataset.budget.document,
    }
    # Without the statement an entry keeps the text, and so the hash, that it had.
    fields |= {"units_in_one_partition": True} if dataset.units_in_one_partition else {}
    return json.dumps(fields, separators=(",", ":"), allow_nan=False)
