"""Evaluates queries as pure functions: nothing here knows a ledger's state.

``outcome_of`` is what the worker process runs. The same query always has the same outcome, refusals
included, so outcomes may be kept.
"""

from collections.abc import Callable
from typing import Any

from dpledger.accounting.errors import Unproven
from dpledger.accounting.steps import Step
from dpledger.ledger.charges import charge_for
from dpledger.ledger.model.budget import Budget
from dpledger.queries.amplification import answer_amplification, answer_cost, cost_fields
from dpledger.queries.calibration import calibrate_by_theorem
from dpledger.queries.composition import answer_composition
from dpledger.queries.conversion import answer_conversion
from dpledger.queries.outcomes import Answer, Outcome, failure_of
from dpledger.queries.requests import (
    LEAST_PLANNED_RATE,
    MOST_PLANNED,
    AmplificationQuery,
    CalibrationQuery,
    ChargeQuery,
    CompositionQuery,
    ConversionQuery,
    CostQuery,
    Fields,
    Query,
    from_canonical,
)

__all__ = ["evaluate", "outcome_of"]


def evaluate(query: Query) -> Answer:
    """The answer to a query; an error of the accounting package where there is none."""
    return Answer.of(_ANSWERS[type(query)](query))


def outcome_of(line: str) -> Outcome:
    """The answer to a canonical query, or the failure in its place."""
    try:
        return evaluate(from_canonical(line))
    except MemoryError:  # no failure of the service: whoever set the limit says so
        raise
    except Exception as error:
        return failure_of(error)


def _calibration(query: CalibrationQuery) -> Fields:
    try:
        return calibrate_by_theorem(query)
    except ImportError as missing:
        raise Unproven(str(missing)) from missing


def _charge(query: ChargeQuery) -> Fields:
    budget = Budget.from_document(query.budget)
    charge = charge_for(budget, Step.from_canonical(query.step), "")
    exact = charge.exactly(budget).text
    known = {"amounts": charge.amounts.tolist(), "exact": exact, **cost_fields(charge.cost)}
    return {**known, "plan_grants": _plan_grants(budget, charge.step)}


def _plan_grants(budget: Budget, step: Step) -> int | None:
    """What a plan budget would grant of steps whose distribution is composed in milliseconds."""
    gaussian = all(each.mechanism.gaussian_mu is not None for each in step.releases)
    often = step.sample.rate is None or step.sample.rate >= LEAST_PLANNED_RATE
    return budget.filter.plan_grants(budget, step, MOST_PLANNED) if gaussian and often else None


_ANSWERS: dict[type[Query], Callable[[Any], Fields]] = {
    CostQuery: answer_cost,
    ConversionQuery: answer_conversion,
    AmplificationQuery: answer_amplification,
    CompositionQuery: answer_composition,
    CalibrationQuery: _calibration,
    ChargeQuery: _charge,
}
"""Every kind of query, and what answers it."""
