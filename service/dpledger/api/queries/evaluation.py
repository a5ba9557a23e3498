"""Evaluates queries as pure functions: nothing here knows a ledger's state.

``reply`` is what the worker process runs. The same query always has the same reply, refusals
included, so replies may be kept.
"""

import json
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel

from dpledger.accounting.amplification.approximate import amplified_approximate
from dpledger.accounting.composition import Plan, compose
from dpledger.accounting.composition.registry import TIGHT
from dpledger.accounting.conversion import Target, convert, guarantee_from_fields, invert
from dpledger.accounting.conversion.renyi import epsilon_at
from dpledger.accounting.cost import Cost
from dpledger.accounting.errors import InvalidInput, Unproven
from dpledger.accounting.orders import DEFAULT_ORDERS
from dpledger.accounting.sampling import Sample, Scheme
from dpledger.accounting.stepcost import AMPLIFICATION_METHODS, cost_of
from dpledger.accounting.steps import Step
from dpledger.accounting.tuning import PoissonTrials, Trials, TruncatedNegativeBinomial, tuned_cost
from dpledger.accounting.validation import Floats, check_choice, check_orders
from dpledger.api.http.problems import Problem, problem_of
from dpledger.api.queries.calibration import calibrate_by_theorem
from dpledger.api.queries.requests import (
    AmplificationBody,
    CalibrationBody,
    CompositionBody,
    ConversionBody,
    GuaranteeBody,
    PlannedStep,
    TrialsBody,
)
from dpledger.api.queries.theorems import AMPLIFICATION, FULL_LOOK, SIMPLE, TUNING, Theorem, least_of
from dpledger.api.schemas.requests import Body, CostRequest, to_releases
from dpledger.api.schemas.responses import CostAnswer
from dpledger.ledger.charges import charge_for
from dpledger.ledger.model.budget import Budget

__all__ = ["ChargeQuery", "canonical", "reply"]

Fields = dict[str, Any]
Reply = tuple[int, str]
"""An HTTP status and a JSON text."""


class ChargeQuery(Body):
    """What a step costs a dataset with this budget, both as their canonical texts."""

    budget: str
    step: str


def canonical(query: BaseModel) -> str:
    """One line that is the same for the same query."""
    # Not in the mode "json": it stumbles over half a character, which may be the key of what nobody takes.
    content = {"kind": type(query).__name__, "body": query.model_dump(by_alias=True)}
    return json.dumps(content, sort_keys=True, allow_nan=False, default=lambda choice: choice.value)


def reply(query: str) -> Reply:
    """The answer to a canonical query, or the problem that it is."""
    content = json.loads(query)
    shape, answer = _KINDS[content["kind"]]
    try:
        return 200, _text(answer(shape.model_validate(content["body"])))
    except MemoryError:  # no failure of the service: whoever set the limit says so
        raise
    except Exception as error:
        return to_reply(problem_of(error))


def _text(fields: Fields) -> str:
    """JSON whose floats round-trip exactly; formulas stay readable, unescaped."""
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def to_reply(problem: Problem) -> Reply:
    """A problem as a reply."""
    return problem.kind.status, problem.body.decode("ascii")


def within(where: str, work: Callable[..., Any], *arguments: Any) -> Any:
    """Run ``work``; an invalid input is named by where in the body it stands."""
    try:
        return work(*arguments)
    except InvalidInput as error:
        raise InvalidInput(f"{where}.{error.field}", error.requirement, error.found) from error


def _cost(query: CostRequest) -> Fields:
    return _shown(query.cost())


def _conversion(query: ConversionBody) -> Fields:
    target = within("to", Target.from_fields, query.to.given())
    known = query.holds if query.goal is None else query.goal
    if known is None or (query.holds is not None and query.goal is not None):
        raise InvalidInput("from", "given, or goal, but not both", None)
    name, rule = ("from", convert) if query.goal is None else ("goal", invert)
    return rule(_guarantee(name, known), target, query.method).fields()


def _guarantee(name: str, body: GuaranteeBody) -> Any:
    return within(name, guarantee_from_fields, body.given())


def _amplification(query: AmplificationBody) -> Fields:
    if query.releases is None:
        return _amplified_pair(query)
    if query.epsilon is not None or query.delta is not None:
        raise InvalidInput("epsilon", "absent beside releases", query.epsilon)
    step = Step(to_releases(query.releases), query.sample.to_domain(), query.adjacency)
    orders = DEFAULT_ORDERS if query.orders is None else check_orders(query.orders)
    named = None if query.method == TIGHT else _known_method(step.sample.scheme, query.method)
    cost = cost_of(step, orders, method=named)
    theorem = _amplified_by(step, cost) if named is None else AMPLIFICATION[named]
    return {**_shown(cost), **theorem.fields()}


def _known_method(scheme: Scheme, method: str) -> str:
    return check_choice("method", method, (TIGHT, *AMPLIFICATION_METHODS[scheme]))


def _amplified_pair(query: AmplificationBody) -> Fields:
    if query.epsilon is None or query.orders is not None:
        raise InvalidInput("releases", "given, or epsilon without orders", query.epsilon)
    check_choice("method", query.method, (TIGHT, SIMPLE.method))
    delta = 0.0 if query.delta is None else query.delta
    epsilon, delta = amplified_approximate(query.sample.to_domain(), query.adjacency, query.epsilon, delta)
    return {"epsilon": epsilon, "delta": delta, **SIMPLE.fields()}


def _amplified_by(step: Step, cost: Cost) -> Theorem:
    """Which theorems the tightest cost of a step rests on."""
    scheme = step.sample.scheme
    if scheme is Scheme.FULL or step.sample.rate in (0.0, 1.0):
        return FULL_LOOK
    poisson = scheme is Scheme.POISSON
    if all(release.mechanism.gaussian_mu is not None for release in step.releases):
        return AMPLIFICATION["subsampled-gaussian" if poisson else "dominating-pair"]
    if not poisson and cost.delta > 0.0:
        return SIMPLE
    general = AMPLIFICATION["steinke" if poisson else "wang-balle-kasiviswanathan"]
    return general if cost.pure_epsilon is None else least_of(general, SIMPLE)


def _composition(query: CompositionBody) -> Fields:
    parts = tuple((_planned_step(index, part, query), part.times) for index, part in enumerate(query.plan))
    plan = Plan(parts, query.delta)
    orders = None if query.orders is None else check_orders(query.orders)
    if query.trials is not None:
        return _tune(plan, query.trials, query.method, orders)
    found = _compose(plan, query.method).fields()
    return found if orders is None else {**found, **_shown(plan.total_at(orders))}


def _planned_step(index: int, part: PlannedStep, query: CompositionBody) -> Step:
    sample = Sample() if part.sample is None else part.sample.to_domain()
    return Step(to_releases(part.releases, f"plan[{index}]."), sample, query.adjacency)


def _compose(plan: Plan, method: str) -> Any:
    try:
        return compose(plan, method)
    except ImportError as missing:
        raise Unproven(str(missing)) from missing


def _tune(plan: Plan, trials: TrialsBody, method: str, orders: Floats | None) -> Fields:
    """The best of a random number of runs of the plan."""
    check_choice("method", method, (TIGHT, "rdp", TUNING.method))
    law = within("trials", _law, trials)
    epsilon, order = epsilon_at(tuned_cost(plan.total, law), plan.delta)
    found = {"epsilon": epsilon, "delta": plan.delta, **TUNING.fields(), "order": order}
    return found if orders is None else {**found, **_shown(tuned_cost(plan.total_at(orders), law))}


def _law(trials: TrialsBody) -> Trials:
    if trials.law == "poisson":
        _only(trials, "mean")
        return PoissonTrials(_require("mean", trials.mean))
    _only(trials, "eta", "gamma")
    return TruncatedNegativeBinomial(_require("eta", trials.eta), _require("gamma", trials.gamma))


def _only(trials: TrialsBody, *names: str) -> None:
    for name in {"eta", "gamma", "mean"} - set(names):
        if getattr(trials, name) is not None:
            raise InvalidInput(name, f"absent for {trials.law}", getattr(trials, name))


def _require(name: str, value: float | None) -> float:
    if value is None:
        raise InvalidInput(name, "given", None)
    return value


def _calibration(query: CalibrationBody) -> Fields:
    try:
        return calibrate_by_theorem(query)
    except ImportError as missing:
        raise Unproven(str(missing)) from missing


def _charge(query: ChargeQuery) -> Fields:
    budget = Budget.from_document(query.budget)
    charge = charge_for(budget, Step.from_canonical(query.step), "")
    exact = charge.exactly(budget).text
    return {"amounts": charge.amounts.tolist(), "exact": exact, **_shown(charge.cost)}


def _shown(cost: Cost) -> Fields:
    return CostAnswer.of(cost).model_dump()


_KINDS: dict[str, tuple[type[BaseModel], Callable[[Any], Fields]]] = {
    "CostRequest": (CostRequest, _cost),
    "ConversionBody": (ConversionBody, _conversion),
    "AmplificationBody": (AmplificationBody, _amplification),
    "CompositionBody": (CompositionBody, _composition),
    "CalibrationBody": (CalibrationBody, _calibration),
    "ChargeQuery": (ChargeQuery, _charge),
}
"""Every kind of query: its shape, and what answers it."""
