"""Costs of steps, raw and amplified by sampling."""

from dpledger.accounting.amplification.approximate import amplified_approximate
from dpledger.accounting.composition.registry import TIGHT
from dpledger.accounting.cost import Cost
from dpledger.accounting.errors import InvalidInput
from dpledger.accounting.orders import DEFAULT_ORDERS
from dpledger.accounting.sampling import Scheme
from dpledger.accounting.stepcost import AMPLIFICATION_METHODS, cost_of, laplace_shift
from dpledger.accounting.steps import Step, releases_from_fields
from dpledger.accounting.validation import check_choice, check_orders
from dpledger.queries.requests import AmplificationQuery, CostQuery, Fields, sample_from
from dpledger.queries.theorems import AMPLIFICATION, FULL_LOOK, SIMPLE, Theorem, least_of

__all__ = ["answer_amplification", "answer_cost", "cost_fields", "cost_of_query"]


def cost_of_query(query: CostQuery) -> Cost:
    """What the step costs, at the orders asked for or at the default ones."""
    return cost_of(query.step(), DEFAULT_ORDERS if query.orders is None else check_orders(query.orders))


def answer_cost(query: CostQuery) -> Fields:
    """What the step costs in every notion that applies."""
    return cost_fields(cost_of_query(query))


def cost_fields(cost: Cost) -> Fields:
    """Every number of ``cost``, none rounded; a notion that does not apply is null."""
    return {
        "cost": {
            "rho": _float(cost.rho),
            "mu": _float(cost.mu),
            "pure_epsilon": _float(cost.pure_epsilon),
            "delta": float(cost.delta),
            "orders": cost.orders.tolist(),
            "epsilons": cost.epsilons.tolist(),
        }
    }


def _float(value: float | None) -> float | None:
    return None if value is None else float(value)


def answer_amplification(query: AmplificationQuery) -> Fields:
    """What releases, or an (ε, δ), cost on a sample, with the theorem that proves it."""
    if query.releases is None:
        return _amplified_pair(query)
    if query.epsilon is not None or query.delta is not None:
        raise InvalidInput("epsilon", "absent beside releases", query.epsilon)
    step = Step(releases_from_fields(query.releases), sample_from(query.sample), query.adjacency)
    orders = DEFAULT_ORDERS if query.orders is None else check_orders(query.orders)
    named = None if query.method == TIGHT else _known_method(step.sample.scheme, query.method)
    cost = cost_of(step, orders, method=named)
    theorem = _amplified_by(step, cost) if named is None else AMPLIFICATION[named]
    return {**cost_fields(cost), **theorem.fields()}


def _known_method(scheme: Scheme, method: str) -> str:
    return check_choice("method", method, (TIGHT, *AMPLIFICATION_METHODS[scheme]))


def _amplified_pair(query: AmplificationQuery) -> Fields:
    if query.epsilon is None or query.orders is not None:
        raise InvalidInput("releases", "given, or epsilon without orders", query.epsilon)
    check_choice("method", query.method, (TIGHT, SIMPLE.method))
    delta = 0.0 if query.delta is None else query.delta
    sample = sample_from(query.sample)
    epsilon, delta = amplified_approximate(sample, query.adjacency, query.epsilon, delta)
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
    if laplace_shift(step) is not None:
        pair = AMPLIFICATION["subsampled-laplace" if poisson else "dominating-pair"]
        return least_of(pair, general, SIMPLE)
    return general if cost.pure_epsilon is None else least_of(general, SIMPLE)
