"""Questions and their answers as pure functions: nothing here knows a ledger's state.

``reply`` is what the worker process runs. The same question always has the same reply, refusals
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
from dpledger.api.answers import CostAnswer
from dpledger.api.calibrating import calibrated
from dpledger.api.problems import Problem, problem_of
from dpledger.api.query_bodies import (
    AmplificationBody,
    CalibrationBody,
    CompositionBody,
    ConversionBody,
    GuaranteeBody,
    PlannedStep,
    TrialsBody,
)
from dpledger.api.schemas import Body, CostRequest, to_releases
from dpledger.api.theorems import AMPLIFICATION, FULL_LOOK, SIMPLE, TUNING, Theorem, least_of
from dpledger.ledger.budget import Budget
from dpledger.ledger.charging import charge_for

__all__ = ["ChargeQuestion", "canonical", "reply"]

Fields = dict[str, Any]
Reply = tuple[int, str]
"""An HTTP status and a JSON text."""


class ChargeQuestion(Body):
    """What a step costs a dataset with this budget, both as their canonical texts."""

    budget: str
    step: str


def canonical(question: BaseModel) -> str:
    """One line that is the same for the same question."""
    # Not in the mode "json": it stumbles over half a character, which may be the key of what nobody takes.
    content = {"kind": type(question).__name__, "body": question.model_dump(by_alias=True)}
    return json.dumps(content, sort_keys=True, allow_nan=False, default=lambda choice: choice.value)


def reply(question: str) -> Reply:
    """The answer to a canonical question, or the problem that it is."""
    content = json.loads(question)
    shape, answer = _KINDS[content["kind"]]
    try:
        return 200, _text(answer(shape.model_validate(content["body"])))
    except MemoryError:  # no failure of the service: whoever set the limit says so
        raise
    except Exception as error:
        return told(problem_of(error))


def _text(fields: Fields) -> str:
    """JSON whose floats round-trip exactly; formulas stay readable, unescaped."""
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def told(problem: Problem) -> Reply:
    """A problem as a reply."""
    return problem.kind.status, problem.body.decode("ascii")


def within(where: str, work: Callable[..., Any], *arguments: Any) -> Any:
    """Run ``work``; an invalid input is named by where in the body it stands."""
    try:
        return work(*arguments)
    except InvalidInput as error:
        raise InvalidInput(f"{where}.{error.field}", error.requirement, error.found) from error


def _cost(asked: CostRequest) -> Fields:
    return _shown(asked.cost())


def _conversion(asked: ConversionBody) -> Fields:
    target = within("to", Target.from_fields, asked.to.given())
    known = asked.holds if asked.goal is None else asked.goal
    if known is None or (asked.holds is not None and asked.goal is not None):
        raise InvalidInput("from", "given, or goal, but not both", None)
    name, rule = ("from", convert) if asked.goal is None else ("goal", invert)
    return rule(_guarantee(name, known), target, asked.method).fields()


def _guarantee(name: str, body: GuaranteeBody) -> Any:
    return within(name, guarantee_from_fields, body.given())


def _amplification(asked: AmplificationBody) -> Fields:
    if asked.releases is None:
        return _amplified_pair(asked)
    if asked.epsilon is not None or asked.delta is not None:
        raise InvalidInput("epsilon", "absent beside releases", asked.epsilon)
    step = Step(to_releases(asked.releases), asked.sample.to_domain(), asked.adjacency)
    orders = DEFAULT_ORDERS if asked.orders is None else check_orders(asked.orders)
    named = None if asked.method == TIGHT else _known_method(step.sample.scheme, asked.method)
    cost = cost_of(step, orders, method=named)
    theorem = _amplified_by(step, cost) if named is None else AMPLIFICATION[named]
    return {**_shown(cost), **theorem.fields()}


def _known_method(scheme: Scheme, method: str) -> str:
    return check_choice("method", method, (TIGHT, *AMPLIFICATION_METHODS[scheme]))


def _amplified_pair(asked: AmplificationBody) -> Fields:
    if asked.epsilon is None or asked.orders is not None:
        raise InvalidInput("releases", "given, or epsilon without orders", asked.epsilon)
    check_choice("method", asked.method, (TIGHT, SIMPLE.method))
    delta = 0.0 if asked.delta is None else asked.delta
    epsilon, delta = amplified_approximate(asked.sample.to_domain(), asked.adjacency, asked.epsilon, delta)
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


def _composition(asked: CompositionBody) -> Fields:
    parts = tuple((_planned(index, part, asked), part.times) for index, part in enumerate(asked.plan))
    plan = Plan(parts, asked.delta)
    orders = None if asked.orders is None else check_orders(asked.orders)
    if asked.trials is not None:
        return _tuned(plan, asked.trials, asked.method, orders)
    found = _composed(plan, asked.method).fields()
    return found if orders is None else {**found, **_shown(plan.total_at(orders))}


def _planned(index: int, part: PlannedStep, asked: CompositionBody) -> Step:
    sample = Sample() if part.sample is None else part.sample.to_domain()
    return Step(to_releases(part.releases, f"plan[{index}]."), sample, asked.adjacency)


def _composed(plan: Plan, method: str) -> Any:
    try:
        return compose(plan, method)
    except ImportError as missing:
        raise Unproven(str(missing)) from missing


def _tuned(plan: Plan, trials: TrialsBody, method: str, orders: Floats | None) -> Fields:
    """The best of a random number of runs of the plan."""
    check_choice("method", method, (TIGHT, "rdp", TUNING.method))
    law = within("trials", _law, trials)
    epsilon, order = epsilon_at(tuned_cost(plan.total, law), plan.delta)
    found = {"epsilon": epsilon, "delta": plan.delta, **TUNING.fields(), "order": order}
    return found if orders is None else {**found, **_shown(tuned_cost(plan.total_at(orders), law))}


def _law(trials: TrialsBody) -> Trials:
    if trials.law == "poisson":
        _only(trials, "mean")
        return PoissonTrials(_wanted("mean", trials.mean))
    _only(trials, "eta", "gamma")
    return TruncatedNegativeBinomial(_wanted("eta", trials.eta), _wanted("gamma", trials.gamma))


def _only(trials: TrialsBody, *names: str) -> None:
    for name in {"eta", "gamma", "mean"} - set(names):
        if getattr(trials, name) is not None:
            raise InvalidInput(name, f"absent for {trials.law}", getattr(trials, name))


def _wanted(name: str, value: float | None) -> float:
    if value is None:
        raise InvalidInput(name, "given", None)
    return value


def _calibration(asked: CalibrationBody) -> Fields:
    try:
        return calibrated(asked)
    except ImportError as missing:
        raise Unproven(str(missing)) from missing


def _charge(asked: ChargeQuestion) -> Fields:
    budget = Budget.from_document(asked.budget)
    charge = charge_for(budget, Step.from_canonical(asked.step), "")
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
    "ChargeQuestion": (ChargeQuestion, _charge),
}
"""Every kind of question: its shape, and what answers it."""
