"""Warns of plans that a budget does not cover.

A plan fixes the orders and weights of a budget when the dataset is opened. They are frozen then, so the
plan in a later change moves nothing; there it says what the new limit is for, and is counted alone.
"""

from collections.abc import Callable
from typing import Any

from dpledger.accounting.rounding import Direction, scale
from dpledger.accounting.sampling import Adjacency
from dpledger.accounting.validation import Floats
from dpledger.ledger.charges import charge_for
from dpledger.ledger.model.budget import Budget, Plan

__all__ = ["plan_of", "plan_warnings", "unspent_plan_warnings"]


def plan_of(fields: dict[str, Any], adjacency: Adjacency) -> Plan | None:
    """The plan in a budget's wire form, if it has one."""
    return Plan.from_fields(fields["plan"], adjacency) if "plan" in fields else None


def plan_warnings(plan: Plan, amounts: Floats, fits: Callable[[Floats], bool]) -> list[str]:
    """What to say where fewer steps fit than the plan names, or not even one where it names no number.

    ``amounts`` are those of one step; ``fits`` says whether a multiple of them would be granted.
    """
    named = plan.steps or 1
    if fits(scale(amounts, named, Direction.UP)):
        return []
    low, high = 0, named
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(scale(amounts, middle, Direction.UP)) else (low, middle)
    return [
        f"the plan names {_steps(named)}, and the budget grants {low}: add noise, plan fewer steps or allow "
        "more (POST /v1/calibrations finds the noise or the steps)"
    ]


def unspent_plan_warnings(plan: Plan | None, budget: Budget) -> list[str]:
    """The same for a budget from which nothing was spent, and how many steps a plan budget would grant."""
    if plan is None:
        return []
    found = plan_warnings(plan, charge_for(budget, plan.step, "").amounts, budget.admits)
    return [warning + _granted_by_a_plan_budget(plan, budget) for warning in found]


def _granted_by_a_plan_budget(plan: Plan, budget: Budget) -> str:
    """What exact composition of the same step would grant within the same (ε, δ), if that is known."""
    most = budget.filter.plan_grants(budget, plan.step)
    return (
        f"; opened with accounting plan, the dataset would grant {_steps(most)} of this kind" if most else ""
    )


def _steps(number: int) -> str:
    return f"{number} steps" if number != 1 else "a step"
