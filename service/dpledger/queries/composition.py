"""Compositions of plans that are fixed in advance, and of the best of several runs of one."""

from dpledger.accounting.composition import Composition, Plan, compose
from dpledger.accounting.composition.registry import TIGHT
from dpledger.accounting.conversion.renyi import epsilon_at
from dpledger.accounting.errors import Unproven, within
from dpledger.accounting.steps import Step, releases_from_fields
from dpledger.accounting.tuning import trials_from_fields, tuned_cost
from dpledger.accounting.validation import Floats, check_choice, check_orders
from dpledger.queries.amplification import cost_fields
from dpledger.queries.requests import CompositionQuery, Fields, sample_from
from dpledger.queries.theorems import TUNING

__all__ = ["answer_composition"]


def answer_composition(query: CompositionQuery) -> Fields:
    """The total of a plan; with ``orders`` its curve there too."""
    parts = tuple((_planned_step(index, part, query), part["times"]) for index, part in enumerate(query.plan))
    plan = Plan(parts, query.delta)
    orders = None if query.orders is None else check_orders(query.orders)
    if query.trials is not None:
        return _tune(plan, query.trials, query.method, orders)
    found = _compose(plan, query.method).fields()
    return found if orders is None else {**found, **cost_fields(plan.total_at(orders))}


def _planned_step(index: int, part: Fields, query: CompositionQuery) -> Step:
    sample = sample_from(part["sample"])
    return Step(releases_from_fields(part["releases"], f"plan[{index}]."), sample, query.adjacency)


def _compose(plan: Plan, method: str) -> Composition:
    try:
        return compose(plan, method)
    except ImportError as missing:
        raise Unproven(str(missing)) from missing


def _tune(plan: Plan, trials: Fields, method: str, orders: Floats | None) -> Fields:
    """The best of a random number of runs of the plan."""
    check_choice("method", method, (TIGHT, "rdp", TUNING.method))
    with within("trials"):
        law = trials_from_fields(trials)
    epsilon, order = epsilon_at(tuned_cost(plan.total, law), plan.delta)
    found = {"epsilon": epsilon, "delta": plan.delta, **TUNING.fields(), "order": order}
    return found if orders is None else {**found, **cost_fields(tuned_cost(plan.total_at(orders), law))}
