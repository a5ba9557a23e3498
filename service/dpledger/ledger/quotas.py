"""Sets, changes and removes quotas, and shows what they have left."""

from typing import Any

from dpledger.accounting.errors import InvalidInput, Unproven
from dpledger.ledger.errors import NotFound
from dpledger.ledger.idempotency import IdempotentExecutor
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.commands import ChangeQuota
from dpledger.ledger.model.entries import moment
from dpledger.ledger.model.quota import MAX_QUOTAS, Quota
from dpledger.ledger.model.requests import NewQuota
from dpledger.ledger.ports import IdempotentRequest, Transaction
from dpledger.ledger.results import QuotaChange, StoredResult
from dpledger.ledger.unit_of_work import UnitOfWork

__all__ = ["change_quota", "quota_fields"]


def change_quota(
    executor: IdempotentExecutor, name: str, asked: NewQuota, call: IdempotentRequest
) -> QuotaChange | StoredResult:
    """Set the quota of a team and window, change its fraction, or without one remove it; as an entry."""

    def work(_transaction: Transaction, unit: UnitOfWork) -> QuotaChange:
        if unit.state.partitions:
            raise Unproven(
                f"{name} has partitions: what a team uses of each would be counted apart, which quotas "
                "do not; limit its tokens to other datasets, or give partitions budgets of their own"
            )
        present = _present(unit, asked)
        taken = unit.record(
            ChangeQuota(asked.team, asked.fraction, asked.window_seconds, asked.reason, present), call.actor
        )
        left = None if asked.fraction is None else _in_force(unit, asked)
        return QuotaChange(name, taken.entry, asked.team, asked.window_seconds, left, unit.state.budget)

    return executor.answer_once(name, call, work)


def _in_force(unit: UnitOfWork, asked: NewQuota) -> Quota | None:
    found = unit.quotas(asked.team)
    return next((each for each in found if each.window_seconds == asked.window_seconds), None)


def _present(unit: UnitOfWork, asked: NewQuota) -> Quota | None:
    present = _in_force(unit, asked)
    if present is None and asked.fraction is None:
        raise NotFound("quota", asked.team)
    if present is None and unit.state.has_quotas and unit.count_quotas() >= MAX_QUOTAS:
        raise InvalidInput("team", f"of a dataset with fewer than {MAX_QUOTAS} quotas", asked.team)
    return present


def quota_fields(quota: Quota, budget: Budget, now_us: int) -> dict[str, Any]:
    """A quota as it is shown at a time: its limit, what is left, and when its window frees something."""
    now = quota.at(now_us)
    frees = now.frees_at_us
    return {
        "team": quota.team,
        "fraction": quota.fraction,
        "window_seconds": quota.window_seconds,
        "sequence": quota.sequence,
        "open_reservations": quota.open_reservations,
        "remaining": now.remaining(budget),
        "frees_at": None if frees is None else moment(frees),
    }
