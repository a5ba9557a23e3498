"""Opens and returns allocations of shared budgets."""

from typing import Any

from dpledger.accounting.errors import Unproven
from dpledger.accounting.sampling import Adjacency
from dpledger.ledger.charges import charge_for
from dpledger.ledger.decide import Refused
from dpledger.ledger.errors import AllocationInUse, AllocationOfAnother, AllocationReturned
from dpledger.ledger.idempotency import IdempotentExecutor
from dpledger.ledger.model.allocation import Allocation, inner_budget
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.commands import Allocate
from dpledger.ledger.model.requests import NewAllocation
from dpledger.ledger.planning import plan_of, plan_warnings
from dpledger.ledger.ports import IdempotentRequest, Transaction
from dpledger.ledger.results import AllocationOpening, AllocationRefusal, AllocationReturn, StoredResult
from dpledger.ledger.unit_of_work import UnitOfWork

__all__ = ["allocate", "check_allocates", "compose_allocation", "return_allocation"]


def compose_allocation(executor: IdempotentExecutor, name: str, asked: NewAllocation) -> None:
    """Make the budget of an allocation ahead of its request: a plan is composed once, and then known."""
    shared, adjacency = executor.charger.rule(name)
    check_allocates(name, shared)
    inner_budget(asked.budget, asked.epsilon, asked.delta, adjacency)


def allocate(
    executor: IdempotentExecutor, name: str, asked: NewAllocation, call: IdempotentRequest
) -> AllocationOpening | AllocationRefusal | StoredResult:
    """Open an allocation; its budget is made before the lock, since a plan takes long to compose."""
    shared, adjacency = executor.charger.rule(name)
    check_allocates(name, shared)
    budget = inner_budget(asked.budget, asked.epsilon, asked.delta, adjacency)
    warnings = _plan_warnings(asked.budget, budget, adjacency)

    def work(_transaction: Transaction, unit: UnitOfWork) -> AllocationOpening | AllocationRefusal:
        own = budget
        check_allocates(name, unit.state.budget)
        if unit.state.adjacency is not adjacency:
            own = inner_budget(asked.budget, asked.epsilon, asked.delta, unit.state.adjacency)
        outcome = unit.allocate(
            Allocate(asked.name, call.actor, asked.epsilon, asked.delta, own, asked.reason), call.actor
        )
        if isinstance(outcome, Refused):
            return AllocationRefusal(name, asked.name, asked.epsilon, asked.delta, outcome)
        opened = unit.allocation(asked.name)
        return AllocationOpening(name, opened, unit.state.remaining(None), tuple(warnings))

    return executor.answer_once(name, call, work)


def return_allocation(
    executor: IdempotentExecutor,
    name: str,
    allocation: str,
    reason: str,
    by_admin: bool,
    call: IdempotentRequest,
) -> AllocationReturn | StoredResult:
    """Give back an allocation from which nothing was released; for its owner or an admin."""

    def work(_transaction: Transaction, unit: UnitOfWork) -> AllocationReturn:
        found = unit.allocation(allocation)
        if not (by_admin or found.owner == call.actor):
            raise AllocationOfAnother(allocation)
        _check_returnable(found)
        taken = unit.record(unit.returning(found, reason), call.actor)
        after = unit.allocation(allocation)
        return AllocationReturn(name, taken.entry.sequence, after, unit.state.remaining(None))

    return executor.answer_once(name, call, work)


def check_allocates(name: str, budget: Budget) -> None:
    """Refuse a dataset whose budget is spent itself."""
    if not budget.filter.allocates:
        raise Unproven(
            f"the budget of {name} is not shared, and only a shared one hands out allocations: it is opened "
            'as {"accounting": "shared", "epsilon": …, "delta": …}'
        )


def _plan_warnings(fields: dict[str, Any], budget: Budget, adjacency: Adjacency) -> list[str]:
    """What to say where an allocation does not cover the plan that it is meant for."""
    plan = plan_of(fields, adjacency)
    if plan is None:
        return []
    each = charge_for(budget, plan.step, "", allocated=True).amounts
    return plan_warnings(plan, each, budget.admits)


def _check_returnable(allocation: Allocation) -> None:
    """Refuse to give back what something may have been released from.

    Statement: where every reservation of a part was settled with none used, and nothing was authorized or
    expired, the part has released nothing, so leaving it out changes no output: the filter's sums without it
    bound what was released, and they were no larger at any earlier decision than the sums with it.
    """
    if allocation.returned:
        raise AllocationReturned(allocation.name)
    if allocation.totals.open_reservations:
        raise AllocationInUse(allocation.name, "a reservation of it is open")
    if allocation.releases:
        raise AllocationInUse(allocation.name, "something was authorized, settled as used or expired")
