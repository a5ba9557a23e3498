"""A whole tuning as one mechanism: priced from its candidates, checked by enumeration of small ones."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp

from dpledger.accounting.conversion.renyi import epsilon_at
from dpledger.accounting.errors import InvalidInput, Unproven
from dpledger.accounting.mechanisms.gaussian import gaussian_cost
from dpledger.accounting.mechanisms.tuned import MAX_CANDIDATES, MAX_EXPENSIVE, MAX_TRIAL_STEPS, Tuned
from dpledger.accounting.orders import DEFAULT_ORDERS
from dpledger.accounting.sampling import Adjacency
from dpledger.accounting.stepcost import cost_of
from dpledger.accounting.steps import Step, mechanism_from_fields, releases_from_fields
from dpledger.accounting.tuning import trials_from_fields, tuned_cost
from tests.accounting.references import Number, digits, log_uniform, moderately, renyi_both_ways
from tests.accounting.test_tuning import best_of

ORDERS = np.array([1.5, 2.0, 4.0, 16.0])
GEOMETRIC = {"law": "truncated-negative-binomial", "eta": 1.0, "gamma": 0.1}
LOGARITHMIC = {"law": "truncated-negative-binomial", "eta": 0.0, "gamma": 0.03}
POISSON = {"law": "poisson", "mean": 10.0}
GAUSSIAN = {"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": 20.0}
SEARCH = {
    "mechanism": "above-threshold",
    "noise": "gaussian",
    "sensitivity": 1.0,
    "rho": 1e-3,
    "max_queries": 9,
}
DELTAS = (1e-2, 1e-4, 1e-6)


def coin(epsilon: float) -> dict[str, Any]:
    """Randomized response: one truthful bit, turned with probability 1/(1 + e^ε)."""
    return {"mechanism": "randomized-response", "epsilon": epsilon}


def tuned(law: dict[str, Any], *candidates: Sequence[dict[str, Any]]) -> Tuned:
    wire = {"mechanism": "tuned", **law, "candidates": [list(steps) for steps in candidates]}
    found = mechanism_from_fields(wire)
    assert isinstance(found, Tuned)
    return found


def step(*releases: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"releases": list(releases), **more}


def outcomes(epsilons: Sequence[float], truth: int, looks: int) -> list[Number]:
    """One trial's law: a candidate drawn uniformly, then ``looks`` bits; from worst to best.

    Worst to best is by the number of ones, then by the candidate: a total order of outputs.
    """
    found = {}
    for number, epsilon in enumerate(epsilons):
        lie = 1 / (1 + mp.exp(mp.mpf(epsilon)))
        one = lie if truth == 0 else 1 - lie
        for ones in range(looks + 1):
            chance = math.comb(looks, ones) * one**ones * (1 - one) ** (looks - ones)
            found[ones, number] = chance / len(epsilons)
    return [found[key] for key in sorted(found)]


def hockey_stick(p: Sequence[Number], q: Sequence[Number], epsilon: Number) -> Number:
    return mp.fsum(max(a - mp.exp(epsilon) * b, mp.mpf(0)) for a, b in zip(p, q, strict=True))


def fixed(law: Sequence[Number], many: int) -> list[Number]:
    """The best of a number of trials that is not random."""
    below, found = mp.mpf(0), []
    for chance in law:
        found.append((below + chance) ** many - below**many)
        below += chance
    return found


@given(
    st.lists(log_uniform(1e-3, 1.0), min_size=1, max_size=3),
    st.integers(1, 3),
    st.sampled_from([GEOMETRIC, LOGARITHMIC, POISSON, {"law": "poisson", "mean": 0.5}]),
)
@moderately
def test_the_charge_is_never_below_the_enumerated_tuning(
    epsilons: list[float], looks: int, law: dict[str, Any]
) -> None:
    mechanism = tuned(law, *([step(coin(epsilon), times=looks)] for epsilon in epsilons))
    cost = mechanism.cost(ORDERS, Adjacency.ADD_REMOVE)
    full = mechanism.cost(DEFAULT_ORDERS, Adjacency.ADD_REMOVE)
    trials = trials_from_fields(law)
    with digits(40):
        p, q = (best_of(outcomes(epsilons, truth, looks), trials) for truth in (0, 1))
        for order, bound in zip(ORDERS, cost.epsilons, strict=True):
            assert renyi_both_ways(p, q, float(order), dps=40) <= mp.mpf(float(bound)) + mp.mpf(10) ** -25
        for delta in DELTAS:
            epsilon = mp.mpf(epsilon_at(full, delta)[0])
            assert max(hockey_stick(p, q, epsilon), hockey_stick(q, p, epsilon)) <= delta


@pytest.mark.parametrize("law", [GEOMETRIC, LOGARITHMIC, POISSON])
def test_a_number_of_trials_that_is_not_random_would_exceed_the_charge(law: dict[str, Any]) -> None:
    """The mean number of trials each time, with the same candidate: above the charge, in ε and in curve."""
    mechanism = tuned(law, [step(coin(0.5))])
    trials = trials_from_fields(law)
    cost = mechanism.cost(DEFAULT_ORDERS, Adjacency.ADD_REMOVE)
    with digits(40):
        p, q = (fixed(outcomes([0.5], truth, 1), round(trials.mean)) for truth in (0, 1))
        exact = renyi_both_ways(p, q, 16.0, dps=40)
        at = int(np.flatnonzero(DEFAULT_ORDERS == 16.0)[0])
        assert exact > mp.mpf(float(cost.epsilons[at]))
        epsilon = mp.mpf(epsilon_at(cost, 1e-6)[0])
        assert max(hockey_stick(p, q, epsilon), hockey_stick(q, p, epsilon)) > 1e-6


def test_it_costs_the_tuning_of_its_dearest_candidate_at_each_order() -> None:
    cheap, dear = [step(GAUSSIAN, times=4)], [step({**GAUSSIAN, "noise_std": 5.0}), step(GAUSSIAN)]
    found = tuned(GEOMETRIC, cheap, dear).cost(DEFAULT_ORDERS, Adjacency.ADD_REMOVE)
    base = gaussian_cost(0.2, DEFAULT_ORDERS) + gaussian_cost(0.05, DEFAULT_ORDERS)
    expected = tuned_cost(base, trials_from_fields(GEOMETRIC))
    np.testing.assert_allclose(found.epsilons, expected.epsilons, rtol=1e-12)
    assert (found.rho, found.mu, found.pure_epsilon) == (None, None, None)


def test_steps_are_amplified_as_they_are_outside() -> None:
    sample = {"scheme": "poisson", "rate": 0.01}
    found = tuned(GEOMETRIC, [step(GAUSSIAN, sample=sample, times=7)])
    once = cost_of(Step.from_fields([GAUSSIAN], sample, "add-remove"), DEFAULT_ORDERS)
    expected = tuned_cost(once.repeated(7), trials_from_fields(GEOMETRIC))
    np.testing.assert_allclose(
        found.cost(DEFAULT_ORDERS, Adjacency.ADD_REMOVE).epsilons, expected.epsilons, rtol=1e-12
    )
    with pytest.raises(Unproven, match="add-remove"):
        found.cost(DEFAULT_ORDERS, Adjacency.REPLACE_ONE)


@pytest.mark.parametrize("law", [GEOMETRIC, POISSON])
def test_one_order_alone_costs_what_it_costs_among_all(law: dict[str, Any]) -> None:
    mechanism = tuned(law, [step(GAUSSIAN, times=10)])
    full = mechanism.cost(DEFAULT_ORDERS, Adjacency.ADD_REMOVE)
    alone = mechanism.cost(DEFAULT_ORDERS[[70]], Adjacency.ADD_REMOVE)
    assert alone.epsilons[0] == full.epsilons[70]


def test_a_pure_base_stays_pure_under_the_negative_binomial_law() -> None:
    pair = [step(coin(0.1))], [step(coin(0.3))]
    assert tuned(GEOMETRIC, *pair).cost(ORDERS, Adjacency.ADD_REMOVE).pure_epsilon == pytest.approx(0.9)
    assert tuned(POISSON, *pair).cost(ORDERS, Adjacency.ADD_REMOVE).pure_epsilon is None
    mixed = tuned(GEOMETRIC, *pair, [step(GAUSSIAN)])
    assert mixed.cost(ORDERS, Adjacency.ADD_REMOVE).pure_epsilon is None
    with pytest.raises(Unproven, match="dominating pair"):
        mixed.dominating_pairs(Adjacency.ADD_REMOVE)


def test_it_needs_equal_sizes_where_a_step_of_a_trial_does() -> None:
    fixed_size = {"scheme": "without-replacement", "rate": 0.1}
    mixture = {
        "mechanism": "output-mixture",
        "noise_std": 6.0,
        "sensitivities": [1.0],
        "probabilities": [1.0],
    }
    assert not tuned(GEOMETRIC, [step(GAUSSIAN)]).needs_equal_sizes
    assert tuned(GEOMETRIC, [step(GAUSSIAN)], [step(GAUSSIAN, sample=fixed_size)]).needs_equal_sizes
    assert tuned(GEOMETRIC, [step(GAUSSIAN), step(mixture)]).needs_equal_sizes


def test_an_additive_delta_is_refused() -> None:
    release = {"mechanism": "propose-test-release", "epsilon": 0.1, "delta": 1e-9}
    with pytest.raises(Unproven, match="additive"):
        tuned(GEOMETRIC, [step(release)]).cost(ORDERS, Adjacency.ADD_REMOVE)


def test_it_is_stored_and_read_back() -> None:
    wire = {
        "mechanism": "tuned",
        **LOGARITHMIC,
        "candidates": [[{"sample": {"scheme": "poisson", "rate": 0.5}, "releases": [GAUSSIAN], "times": 3}]],
    }
    stored = Step.from_fields([wire], None, "add-remove")
    assert stored.releases[0].fields() == wire
    assert Step.from_canonical(stored.canonical) == stored
    assert stored.digest == "1ce714858081befeffff10cb687a62b51200ccb9a164973dad5e4c7d6c0dbc88"


@pytest.mark.parametrize(
    ("law", "candidates", "field"),
    [
        ({"law": "fixed"}, [[step(GAUSSIAN)]], "law"),
        ({"law": "poisson"}, [[step(GAUSSIAN)]], "mean"),
        ({**POISSON, "eta": 1.0}, [[step(GAUSSIAN)]], "eta"),
        ({**GEOMETRIC, "mean": 1.0}, [[step(GAUSSIAN)]], "mean"),
        ({**GEOMETRIC, "gamma": math.nan}, [[step(GAUSSIAN)]], "gamma"),
        (GEOMETRIC, [], "candidates"),
        (GEOMETRIC, "none", "candidates"),
        (GEOMETRIC, [[step(GAUSSIAN)]] * (MAX_CANDIDATES + 1), "candidates"),
        (
            GEOMETRIC,
            [[step({**GAUSSIAN, "noise_std": 1.0 + n})] for n in range(MAX_TRIAL_STEPS + 1)],
            "candidates",
        ),
        (
            GEOMETRIC,
            [[step(*[SEARCH] * 40)], [step(*[SEARCH] * (MAX_EXPENSIVE - 39))]],
            "candidates",
        ),
        (GEOMETRIC, [[]], "candidates[0]"),
        (GEOMETRIC, [[step(GAUSSIAN)], 3], "candidates[1]"),
        (GEOMETRIC, [[[GAUSSIAN]]], "candidates[0][0].step"),
        (GEOMETRIC, [[{**step(GAUSSIAN), "rate": 0.1}]], "candidates[0][0].step"),
        (GEOMETRIC, [[step()]], "candidates[0][0].releases"),
        (GEOMETRIC, [[{"releases": [1]}]], "candidates[0][0].releases"),
        (GEOMETRIC, [[{"times": 1}]], "candidates[0][0].releases"),
        (GEOMETRIC, [[step(GAUSSIAN, times=0)]], "candidates[0][0].times"),
        (GEOMETRIC, [[step(GAUSSIAN, times=True)]], "candidates[0][0].times"),
        (GEOMETRIC, [[step(GAUSSIAN, sample="full")]], "candidates[0][0].sample"),
        (
            GEOMETRIC,
            [[step({**GAUSSIAN, "noise_std": -1.0})]],
            "candidates[0][0].releases[0].noise_std",
        ),
        (
            GEOMETRIC,
            [[step({"mechanism": "zcdp", "rho": 0.1})]],
            "candidates[0][0].releases[0].mechanism",
        ),
        (
            GEOMETRIC,
            [[step({"mechanism": "tuned", **POISSON, "candidates": [[step(GAUSSIAN)]]})]],
            "candidates[0][0].releases[0].mechanism",
        ),
    ],
)
def test_what_is_no_tuning_is_refused_by_the_name_of_its_field(
    law: dict[str, Any], candidates: Any, field: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        mechanism_from_fields({"mechanism": "tuned", **law, "candidates": candidates})
    assert refused.value.field == field


def test_tunings_inside_each_other_are_refused_however_deep() -> None:
    wire: Any = {"mechanism": "tuned", **POISSON, "candidates": [[step(GAUSSIAN)]]}
    for _ in range(5_000):
        wire = {"mechanism": "tuned", **POISSON, "candidates": [[{"releases": [wire]}]]}
    with pytest.raises(InvalidInput, match="nor tuned"):
        mechanism_from_fields(wire)


def test_candidates_may_be_values_already() -> None:
    first = tuned({"law": "poisson", "mean": 3.0}, [step(coin(0.5))])
    assert Tuned("poisson", first.candidates, mean=3.0) == first


def test_as_many_releases_that_take_long_as_one_step_may_have_are_read() -> None:
    found = tuned(GEOMETRIC, *[[step(*[SEARCH] * 40)], [step(*[SEARCH] * (MAX_EXPENSIVE - 40))]] * 2)

    assert len(found.candidates) == 4


def test_several_tunings_in_a_step_take_no_longer_than_one() -> None:
    """A step of 13 tunings would be priced for the better part of an hour, while everybody else waits."""
    wires = [tuned(GEOMETRIC, [step(*[SEARCH] * many)]).fields() for many in (MAX_EXPENSIVE - 1, 1, 2)]
    assert len(releases_from_fields(wires[:2])) == 2
    for found in (wires[::2], [*wires[:2], SEARCH], [*wires[:2], tuned(POISSON, [step(GAUSSIAN)]).fields()]):
        with pytest.raises(InvalidInput, match="at most 64 that take long to price") as refused:
            releases_from_fields(found)
        assert refused.value.field == "releases"


def test_what_was_stored_with_more_tunings_is_still_read() -> None:
    wire = tuned(GEOMETRIC, [step(*[SEARCH] * MAX_EXPENSIVE)]).fields()
    assert len(Step.from_canonical(Step.from_fields([wire] * 2, None, "add-remove").canonical).releases) == 2
