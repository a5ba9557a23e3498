"""Adaptive attacks on plans by exact enumeration, and what each refused exchange would break.

An attacker chooses every step from the outputs so far, stops when it likes, and may ask for whatever the
ledger grants. Outputs are finite, so the largest δ over all strategies is found by backward induction.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from scipy.special import ndtr

from dpledger.accounting.exact import Exact
from dpledger.accounting.pld.plan import PlanLoss
from dpledger.accounting.sampling import Adjacency, Sample, Scheme
from dpledger.accounting.steps import Step
from dpledger.ledger.charges import charge_for
from dpledger.ledger.model.budget import Budget

ADD_REMOVE = Adjacency.ADD_REMOVE
Outcomes = tuple[tuple[float, float], ...]
"""The probability of each output on one dataset and on its neighbour."""


@dataclass(frozen=True)
class Move:
    """What an attacker may do: the step it declares, and the outputs of a mechanism that the step covers."""

    step: Step
    outcomes: Outcomes


def response(epsilon: float) -> Move:
    p = math.exp(epsilon) / (1.0 + math.exp(epsilon))
    release = {"mechanism": "randomized-response", "epsilon": epsilon}
    return Move(Step.from_fields([release], None, "add-remove"), ((p, 1.0 - p), (1.0 - p, p)))


def sampled_response(epsilon: float, rate: float) -> Move:
    p = math.exp(epsilon) / (1.0 + math.exp(epsilon))
    release = {"mechanism": "randomized-response", "epsilon": epsilon}
    step = Step.from_fields([release], {"scheme": "poisson", "rate": rate}, "add-remove")
    mixed = (1.0 - rate) * (1.0 - p) + rate * p
    return Move(step, ((mixed, 1.0 - p), (1.0 - mixed, p)))


def threshold(mu: float, at: float) -> Move:
    """Whether a Gaussian of shift μ exceeds a threshold: as private as the Gaussian, with two outputs."""
    p, q = float(ndtr(mu - at)), float(ndtr(-at))
    step = Step.from_fields([{"mechanism": "gdp", "mu": mu}], None, "add-remove")
    return Move(step, ((p, q), (1.0 - p, 1.0 - q)))


def concentrated(move: Move) -> Move:
    """The same outputs, declared by the ρ of the pure ε that they have."""
    epsilon = max(abs(math.log(p / q)) for p, q in move.outcomes)
    rho = epsilon * math.tanh(epsilon / 2.0) * (1.0 + 1e-12)
    return Move(Step.from_fields([{"mechanism": "zcdp", "rho": rho}], None, "add-remove"), move.outcomes)


def reverse(outcomes: Outcomes) -> Outcomes:
    return tuple((q, p) for p, q in outcomes)


def item(name: str, move: Move, times: Any) -> dict[str, Any]:
    releases = [release.fields() for release in move.step.releases]
    return {"name": name, "sample": move.step.sample.fields(), "releases": releases, "times": times}


def plan_of(epsilon: float, delta: float, *items: dict[str, Any]) -> Budget:
    fields = {"accounting": "plan", "epsilon": epsilon, "delta": delta, "items": list(items)}
    return Budget.from_fields(fields, ADD_REMOVE)


def worst_delta(budget: Budget, moves: Sequence[Move], epsilon: float, direction: int) -> float:
    """The largest δ at ε over every strategy that the budget grants, in one direction of neighbours."""
    amounts = [charge_for(budget, move.step, "").exactly(budget) for move in moves]
    outcomes = [move.outcomes if direction else reverse(move.outcomes) for move in moves]

    @functools.cache
    def value(spent: Exact, loss: float) -> float:
        """The hockey-stick that the best continuation reaches, for each unit of probability."""
        best = max(0.0, 1.0 - math.exp(epsilon - loss))
        for added, outputs in zip(amounts, outcomes, strict=True):
            after = spent.plus(added)
            if budget.holds_exactly(after):
                found = sum(p * value(after, round(loss + math.log(p / q), 12)) for p, q in outputs)
                best = max(best, found)
        return best

    return value(Exact.zero(budget.size), 0.0)


def claims(budget: Budget) -> Callable[[float], float]:
    """δ(ε) that the plan is opened with."""
    items = budget.shown["items"]
    parts = [
        (Step.from_fields(each["releases"], each["sample"], "add-remove"), each["times"])
        for each in items
        if "releases" in each
    ]
    mu = sum((each["gdp"]["mu"] for each in items if "gdp" in each), 0.0)
    rho = sum((each["zcdp"]["rho"] for each in items if "zcdp" in each), 0.0)
    return PlanLoss(parts, mu=mu, rho=rho).delta


def assert_never_above(budget: Budget, moves: Sequence[Move]) -> None:
    claim = claims(budget)
    for epsilon in (0.0, 0.2, 0.5, 1.0, 1.5, 2.5):
        stated = claim(epsilon)
        for direction in (0, 1):
            assert worst_delta(budget, moves, epsilon, direction) <= stated * (1.0 + 1e-9) + 1e-13


def test_any_order_and_any_stop() -> None:
    strong, weak, sampled = response(0.8), response(0.3), sampled_response(1.0, 0.2)
    budget = plan_of(4.0, 0.1, item("strong", strong, 2), item("weak", weak, 2), item("sampled", sampled, 2))
    moves = [strong, weak, sampled]
    assert_never_above(budget, moves)
    # Nothing is lost either: an attacker who takes every item meets the claim.
    claim = claims(budget)
    assert max(worst_delta(budget, moves, 0.5, each) for each in (0, 1)) == pytest.approx(
        claim(0.5), rel=1e-3
    )


def test_steps_that_an_item_dominates() -> None:
    budget = plan_of(
        4.0, 0.1, item("strong", response(0.8), 2), item("sampled", sampled_response(1.0, 0.2), 2)
    )
    moves = [
        response(0.8),
        response(0.5),
        response(0.1),
        sampled_response(1.0, 0.2),
        sampled_response(1.0, 0.05),
        sampled_response(0.5, 0.1),
    ]
    assert_never_above(budget, moves)


def test_a_gaussian_cap_whose_shifts_are_chosen_from_outputs() -> None:
    budget = plan_of(4.0, 0.2, item("strong", response(0.6), 1), {"name": "cap", "gdp": {"mu": 1.0}})
    moves = [response(0.6), *(threshold(mu, at) for mu in (0.5, 0.6, 0.8, 1.0) for at in (0.0, mu, 2.0 * mu))]
    assert_never_above(budget, moves)


def test_a_concentrated_remainder_beside_a_plan() -> None:
    budget = plan_of(4.0, 0.3, item("strong", response(0.6), 2), {"name": "rest", "zcdp": {"rho": 0.12}})
    small = [concentrated(response(epsilon)) for epsilon in (0.2, 0.3, 0.45)]
    lopsided = Move(response(0.4).step, ((0.06, 0.04), (0.94, 0.96)))
    assert_never_above(budget, [response(0.6), *small, concentrated(lopsided)])


def test_what_is_settled_back_goes_to_its_own_item_alone() -> None:
    """A reservation of two of which one ran leaves one of that item: the attack stays within the plan."""
    budget = plan_of(4.0, 0.1, item("strong", response(0.8), 3), item("weak", response(0.3), 1))
    used = charge_for(budget, response(0.8).step, "").exactly(budget)
    total = Exact.zero(budget.size).plus(used, 3).minus(used, 2)
    assert budget.holds_exactly(total.plus(used, 2))
    assert not budget.holds_exactly(total.plus(used, 3))
    weak = charge_for(budget, response(0.3).step, "").exactly(budget)
    assert not budget.holds_exactly(total.plus(weak, 2))


def delta_of(sequence: Sequence[Outcomes], epsilon: float) -> float:
    """δ at ε of mechanisms one after another."""
    if not sequence:
        return max(0.0, 1.0 - math.exp(epsilon))
    losses = [(1.0, 0.0)]
    for outcomes in sequence:
        losses = [(w * p, loss + math.log(p / q)) for w, loss in losses for p, q in outcomes]
    return sum(w * max(0.0, 1.0 - math.exp(epsilon - loss)) for w, loss in losses)


def test_items_exchanged_for_others_of_the_same_epsilon_break_the_claim() -> None:
    """Two kinds of the same (ε, δ): in place of one, the other is chosen where the output so far is bad.

    Either plan is within its claim; a ledger that let the rest of one be exchanged for the rest of the
    other after an output was seen would grant more.
    """
    epsilon, first = 0.6, response(0.3)
    long, short = [response(0.4).outcomes] * 5, [response(0.9154).outcomes]
    claim = max(delta_of([first.outcomes, *rest], epsilon) for rest in (long, short))
    exchanged = sum(
        p * max(delta_of(rest, epsilon - math.log(p / q)) for rest in (long, short))
        for p, q in first.outcomes
    )
    assert exchanged > 1.2 * claim

    budget = plan_of(4.0, 0.2, item("first", first, 1), item("long", response(0.4), 5))
    with pytest.raises(Exception, match="dominates"):
        charge_for(budget, response(0.9154).step, "")


def test_a_new_plan_made_from_outputs_breaks_the_claim() -> None:
    """The same exchange, seen as items added after the first output: lowering is the only change there is."""
    budget = plan_of(4.0, 0.2, item("first", response(0.5), 1))
    for more in ({"name": "first", "times": 2}, item("short", response(0.9154), 1)):
        with pytest.raises(ValueError, match=r"never raised|none is added"):
            budget.with_limit({"accounting": "plan", "items": [more]}, ADD_REMOVE)


def test_a_fresh_sample_in_place_of_a_second_look_breaks_the_claim() -> None:
    """q = 0.01, μ = 5: one sample looked at as often as one likes has δ(0) = .0100, two samples .0196."""
    rate = 0.01
    one = {"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": 0.2}
    sample = Sample(Scheme.POISSON, rate)
    both = Step.from_fields([{**one, "count": 2}], sample.fields(), "add-remove")
    single = Step.from_fields([one], sample.fields(), "add-remove")

    together = PlanLoss([(both, 1)]).delta_bounds(0.0)
    apart = PlanLoss([(single, 2)]).delta_bounds(0.0)
    assert together.upper < 0.0101
    assert apart.lower > 0.0195

    item_of_both = {
        "name": "looks",
        "sample": sample.fields(),
        "releases": [{**one, "count": 2}],
        "times": 1,
    }
    budget = plan_of(8.0, 0.02, item_of_both)
    charge = charge_for(budget, single, "")
    # One look takes the whole item, so the second sample finds nothing left.
    assert not budget.holds_exactly(charge.exactly(budget).times(2))


def test_domination_is_not_a_comparison_of_epsilon() -> None:
    """A step with a smaller ε at this δ than the item, which the item does not dominate, breaks the claim."""
    delta = 1e-3
    laplace = Step.from_fields(
        [{"mechanism": "laplace", "sensitivity": 1.0, "scale": 1.0}], None, "add-remove"
    )
    gaussian = Step.from_fields(
        [{"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": 3.5}], None, "add-remove"
    )
    assert PlanLoss([(gaussian, 1)]).epsilon(delta) < PlanLoss([(laplace, 1)]).epsilon(delta)
    few = {"name": "laplace", "releases": [laplace.releases[0].fields()], "times": 1}
    budget = plan_of(1.0, delta, few)
    assert PlanLoss([(gaussian, 1)]).delta_bounds(1.0).lower > PlanLoss([(laplace, 1)]).delta(1.0)
    with pytest.raises(Exception, match="dominates"):
        charge_for(budget, gaussian, "")
