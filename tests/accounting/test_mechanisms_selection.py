"""Selection: the exponential mechanism and noisy max against their exact probabilities of choice."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mpmath import mp

from dpledger.accounting.errors import AdjacencyMismatch, InvalidInput
from dpledger.accounting.mechanisms import Exponential, Mechanism, NoisyMax
from dpledger.accounting.mechanisms.pure import pure_cost, pure_curve
from dpledger.accounting.mechanisms.selection import bounded_range_cost, bounded_range_curve
from dpledger.accounting.sampling import Adjacency
from tests.accounting.references import (
    SOME_ORDERS,
    Density,
    Number,
    assert_bounds,
    digits,
    kl,
    log_uniform,
    moderately,
    renyi,
    renyi_both_ways,
)

Scores = Sequence[float]


@digits()
def softmax(scores: Scores, scale: float) -> list[Number]:
    """The exponential mechanism's probabilities: Gumbel noise of that scale."""
    weights = [mp.exp(mp.mpf(score) / mp.mpf(scale)) for score in scores]
    return [weight / mp.fsum(weights) for weight in weights]


@digits()
def permute_and_flip(scores: Scores, scale: float) -> list[Number]:
    """Walk through a random permutation, stop at r with probability exp((score − best)/scale)."""
    accept = [mp.exp((mp.mpf(score) - mp.mpf(max(scores))) / mp.mpf(scale)) for score in scores]
    chosen = [mp.mpf(0)] * len(scores)
    for order in itertools.permutations(range(len(scores))):
        reached = mp.mpf(1) / math.factorial(len(scores))
        for candidate in order:
            chosen[candidate] += reached * accept[candidate]
            reached *= 1 - accept[candidate]
    return chosen


def laplace_cdf(x: Number) -> Number:
    return mp.exp(x) / 2 if x < 0 else 1 - mp.exp(-x) / 2


def exponential_cdf(x: Number) -> Number:
    return mp.mpf(0) if x < 0 else -mp.expm1(-x)


def gumbel_cdf(x: Number) -> Number:
    return mp.exp(-mp.exp(-x))


DENSITIES: dict[str, Density] = {
    "laplace": lambda x: mp.exp(-abs(x)) / 2,
    "exponential": lambda x: mp.mpf(0) if x < 0 else mp.exp(-x),
    "gumbel": lambda x: mp.exp(-x - mp.exp(-x)),
}
DISTRIBUTIONS: dict[str, Density] = {
    "laplace": laplace_cdf,
    "exponential": exponential_cdf,
    "gumbel": gumbel_cdf,
}


def noisy_max(noise: str, scores: Scores, scale: float) -> list[Number]:
    """P(each candidate has the largest noisy score), by quadrature over its own noisy score."""
    places = [mp.mpf(score) / mp.mpf(scale) for score in scores]
    density, distribution = DENSITIES[noise], DISTRIBUTIONS[noise]
    ends = [min(places) - 60, *sorted(set(places)), max(places) + 60]

    def wins(own: int) -> Number:
        others = [place for index, place in enumerate(places) if index != own]
        return mp.quad(
            lambda x: density(x - places[own]) * mp.fprod(distribution(x - other) for other in others), ends
        )

    return [wins(own) for own in range(len(scores))]


def bounded_range_pair(epsilon: Number, odds: Number) -> tuple[list[Number], list[Number]]:
    """Two candidates whose log-odds move by ε: losses span exactly ε."""
    with digits(60):
        first, second = mp.exp(odds), mp.exp(odds + epsilon)
        return [first / (1 + first), 1 / (1 + first)], [second / (1 + second), 1 / (1 + second)]


def worst_bounded_range(epsilon: float, order: float) -> Number:
    """The largest divergence over the log-odds, by golden section (it has one peak)."""

    def divergence(odds: Number) -> Number:
        return renyi_both_ways(*bounded_range_pair(mp.mpf(epsilon), odds), order, dps=60)

    # Swapping the candidates and the pair mirrors the odds at −ε/2: search one side.
    low, high = -mp.mpf(epsilon) / 2, 3 + mp.mpf(epsilon) + mp.log(order)
    shrink = (mp.sqrt(5) - 1) / 2
    for _ in range(60):
        left, right = high - shrink * (high - low), low + shrink * (high - low)
        low, high = (left, high) if divergence(left) < divergence(right) else (low, right)
    return divergence((low + high) / 2)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 3.0, 12.0])
@pytest.mark.parametrize("order", [1.03, 1.5, 2.0, 7.3, 33.0, 513.0, 8193.0])
def test_closed_form_is_the_brute_force_maximum_over_two_point_pairs(epsilon: float, order: float) -> None:
    found = bounded_range_cost(epsilon, np.array([order])).epsilons[0]
    assert_bounds(found, worst_bounded_range(epsilon, order), within=1e-9)


def closed_form(epsilon: float, order: float) -> Number:
    """The maximum over t of A·e^((α−1)t) − B·e^(αt), over C; checked by brute force above."""
    with digits(120):
        a, e = mp.mpf(order), mp.mpf(epsilon)
        upper, lower, whole = -mp.expm1(-a * e), mp.exp(-e) - mp.exp(-a * e), -mp.expm1(-e)
        t = mp.log(upper * (a - 1) / (lower * a))
        return mp.log((upper * mp.exp((a - 1) * t) - lower * mp.exp(a * t)) / whole) / (a - 1)


@moderately
@given(log_uniform(1e-10, 1e3), log_uniform(1e-6, 9e5))
@example(1e-3, 2**-5)
def test_curve_at_any_order(epsilon: float, excess: float) -> None:
    orders = np.array([1.0 + excess])
    found = bounded_range_cost(epsilon, orders).epsilons[0]
    assert_bounds(found, closed_form(epsilon, orders[0]), within=1e-7)


@moderately
@given(log_uniform(1e-8, 200.0), log_uniform(1e-6, 9e5), st.floats(-12.0, 12.0))
def test_no_two_candidates_of_the_exponential_mechanism_exceed_the_curve(
    epsilon: float, excess: float, odds: float
) -> None:
    order = 1.0 + excess
    found = bounded_range_cost(epsilon, np.array([order])).epsilons[0]
    pair = bounded_range_pair(mp.mpf(epsilon), mp.mpf(odds))
    assert mp.mpf(float(found)) >= renyi_both_ways(*pair, order, dps=60)


@moderately
@given(
    st.lists(st.tuples(st.floats(-3.0, 3.0), st.floats(-1.0, 1.0)), min_size=2, max_size=6),
    st.floats(0.05, 4.0),
    st.floats(1.05, 60.0),
)
def test_no_exponential_mechanism_exceeds_the_curve(
    moves: list[tuple[float, float]], epsilon: float, order: float
) -> None:
    """Scores move by at most 1 either way and are drawn with weight exp(ε·score/2)."""
    p = softmax([score for score, _ in moves], 2.0 / epsilon)
    q = softmax([score + move for score, move in moves], 2.0 / epsilon)
    cost = Exponential(epsilon).cost(np.array([order]), Adjacency.REPLACE_ONE)
    assert mp.mpf(float(cost.epsilons[0])) >= renyi_both_ways(p, q, order)


@moderately
@given(log_uniform(1e-9, 1e3), log_uniform(1e-6, 9e5))
def test_tight_curve_is_below_both_simple_bounds(epsilon: float, excess: float) -> None:
    """So the minimum of the three costs nothing, and covers the margin for cancellation."""
    orders = np.array([1.0 + excess])
    tight = bounded_range_curve(epsilon, orders)[0]
    simple = min(orders[0] * epsilon**2 / 8.0, pure_curve(epsilon, orders)[0])
    assert tight <= simple * (1 + 1e-8)
    assert bounded_range_cost(epsilon, orders).epsilons[0] <= simple * (1 + 1e-13)


@pytest.mark.parametrize("epsilon", [1e-200, 1e-155, 1e-6, 0.5, 2.0, 1e4, 1e100, 1e153])
@pytest.mark.parametrize("order", [math.nextafter(1.0, 2.0), 1.5, 1e6])
def test_extreme_costs_stay_finite_and_above_zero(epsilon: float, order: float) -> None:
    cost = bounded_range_cost(epsilon, np.array([order]))
    assert 0.0 < cost.epsilons[0] <= epsilon
    assert (cost.rho or 0.0) >= epsilon * epsilon / 8.0


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 4.0])
def test_rho_is_an_eighth_of_the_square_and_covers_the_worst_order(epsilon: float) -> None:
    cost = Exponential(epsilon).cost(SOME_ORDERS, Adjacency.REPLACE_ONE)
    rho = cost.rho or 0.0
    assert rho == pytest.approx(epsilon**2 / 8.0, rel=1e-14)
    assert mp.mpf(rho) >= mp.mpf(epsilon) ** 2 / 8
    worst = max(kl(*bounded_range_pair(mp.mpf(epsilon), mp.mpf(odds))) for odds in np.linspace(-9, 5, 57))
    assert worst <= rho
    assert (cost.epsilons <= SOME_ORDERS * rho * (1 + 1e-13)).all()


def test_pure_epsilon_and_mu_are_those_of_any_pure_release() -> None:
    cost, pure = bounded_range_cost(0.8, SOME_ORDERS), pure_cost(0.8, SOME_ORDERS)
    assert (cost.pure_epsilon, cost.mu) == (0.8, pure.mu)
    assert (cost.epsilons <= pure.epsilons).all()


@pytest.mark.parametrize("noise", ["gumbel", "exponential"])
def test_references_by_quadrature_and_by_enumeration_agree(noise: str) -> None:
    scores, scale = [0.0, 0.4, 1.5], 0.7
    enumerated = (softmax if noise == "gumbel" else permute_and_flip)(scores, scale)
    for found, expected in zip(noisy_max(noise, scores, scale), enumerated, strict=True):
        assert abs(found - expected) < 1e-10


NEIGHBOURS = [
    ([0.0, 0.0], [1.0, 0.0]),
    ([0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]),
    ([2.0, 0.0, 0.0], [2.0, 1.0, 0.5]),
    ([3.0, 2.5, 0.0], [4.0, 2.5, 1.0]),
]


@pytest.mark.parametrize("noise", ["gumbel", "laplace", "exponential"])
@pytest.mark.parametrize("scores", NEIGHBOURS)
@pytest.mark.parametrize("scale", [10.0, 2.0, 0.5])
def test_no_monotonic_selection_exceeds_its_cost(
    noise: str, scores: tuple[list[float], list[float]], scale: float
) -> None:
    orders = np.array([1.03, 2.0, 8.0, 64.0])
    p, q = (choices(noise, side, scale) for side in scores)
    cost = NoisyMax(noise, 1.0, scale, monotonic=True).cost(orders, Adjacency.ADD_REMOVE)
    assert_covers(cost.epsilons, orders, p, q, cost.rho or 0.0, cost.pure_epsilon or 0.0)


@pytest.mark.parametrize("noise", ["gumbel", "laplace", "exponential"])
@pytest.mark.parametrize("scores", [([0.0, 0.0], [1.0, -1.0]), ([0.0, 1.0, 0.0], [1.0, 0.0, 1.0])])
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_no_selection_with_scores_moving_both_ways_exceeds_its_cost(
    noise: str, scores: tuple[list[float], list[float]], adjacency: Adjacency
) -> None:
    orders, scale = np.array([1.03, 2.0, 8.0, 64.0]), 2.0
    p, q = (choices(noise, side, scale) for side in scores)
    cost = NoisyMax(noise, 1.0, scale).cost(orders, adjacency)
    assert_covers(cost.epsilons, orders, p, q, cost.rho or 0.0, cost.pure_epsilon or 0.0)


def choices(noise: str, scores: Scores, scale: float) -> list[Number]:
    if noise == "laplace":
        return noisy_max("laplace", scores, scale)
    return (softmax if noise == "gumbel" else permute_and_flip)(scores, scale)


def assert_covers(
    epsilons: Any, orders: Any, p: list[Number], q: list[Number], rho: float, pure: float
) -> None:
    for order, found in zip(orders, epsilons, strict=True):
        true = renyi_both_ways(p, q, order)
        assert mp.mpf(float(found)) >= true
        assert rho * order >= true
    losses = [abs(mp.log(a / b)) for a, b in zip(p, q, strict=True)]
    assert max(losses) <= pure * (1 + 1e-9)


@moderately
@given(
    st.lists(st.tuples(st.floats(-2.0, 2.0), st.floats(0.0, 1.0)), min_size=2, max_size=5),
    st.floats(0.3, 20.0),
    st.floats(1.05, 60.0),
)
def test_permute_and_flip_by_enumeration(
    moves: list[tuple[float, float]], scale: float, order: float
) -> None:
    p = permute_and_flip([score for score, _ in moves], scale)
    q = permute_and_flip([score + move for score, move in moves], scale)
    cost = NoisyMax("exponential", 1.0, scale, monotonic=True).cost(np.array([order]), Adjacency.ADD_REMOVE)
    assert mp.mpf(float(cost.epsilons[0])) >= renyi_both_ways(p, q, order)


def test_an_eighth_of_the_square_is_below_the_truth_for_exponential_noise() -> None:
    """Two equal candidates, one gains 1 at scale 20: the multiple of ε² is .476, not .125."""
    epsilon = 0.05
    p, q = permute_and_flip([0.0, 0.0], 20.0), permute_and_flip([1.0, 0.0], 20.0)
    multiple = float(max(kl(p, q), kl(q, p))) / epsilon**2
    assert multiple == pytest.approx(0.476, abs=0.001)
    cost = NoisyMax("exponential", 1.0, 20.0, monotonic=True).cost(SOME_ORDERS, Adjacency.ADD_REMOVE)
    assert (cost.rho or 0.0) >= multiple * epsilon**2
    assert cost.rho == pytest.approx(epsilon * math.tanh(epsilon / 2.0), rel=1e-12)


def test_an_eighth_of_the_square_is_below_the_truth_for_laplace_noise() -> None:
    """Four equal candidates, one gains 1 at scale 5, order 8: a multiple of .156 at least."""
    epsilon, order = 0.2, 8.0
    p, q = noisy_max("laplace", [0.0] * 4, 5.0), noisy_max("laplace", [1.0, 0.0, 0.0, 0.0], 5.0)
    multiple = renyi_both_ways(p, q, order) / order / epsilon**2
    assert multiple > 0.155
    cost = NoisyMax("laplace", 1.0, 5.0, monotonic=True).cost(SOME_ORDERS, Adjacency.ADD_REMOVE)
    assert (cost.rho or 0.0) >= multiple * epsilon**2
    assert cost.rho == pytest.approx(epsilon * math.tanh(epsilon / 2.0), rel=1e-12)


def test_gumbel_attains_an_eighth_of_the_square() -> None:
    epsilon = 0.05
    p, q = bounded_range_pair(mp.mpf(epsilon), -mp.mpf(epsilon) / 2)
    cost = NoisyMax("gumbel", 1.0, 20.0, monotonic=True).cost(SOME_ORDERS, Adjacency.ADD_REMOVE)
    assert_bounds(cost.rho or 0.0, kl(p, q), within=1e-3)
    assert cost.rho == pytest.approx(epsilon**2 / 8.0, rel=1e-12)


def test_laplace_noise_of_scale_c_over_epsilon_under_replace_one_is_not_epsilon_dp() -> None:
    """A score falls by C while the other rises by C: the loss nears 2ε."""
    epsilon = 1.0
    p, q = noisy_max("laplace", [0.0, 6.0], 1.0), noisy_max("laplace", [-1.0, 7.0], 1.0)
    loss = mp.log(p[0] / q[0])
    assert loss > 1.7 * epsilon
    cost = NoisyMax("laplace", 1.0, 1.0).cost(SOME_ORDERS, Adjacency.REPLACE_ONE)
    assert loss <= (cost.pure_epsilon or 0.0)
    assert renyi(p, q, 64.0) <= cost.epsilons[np.searchsorted(SOME_ORDERS, 64.0)]


@pytest.mark.parametrize("noise", ["gumbel", "laplace", "exponential"])
def test_scores_that_may_move_both_ways_cost_as_twice_the_ratio(noise: str) -> None:
    both = NoisyMax(noise, 1.0, 4.0).cost(SOME_ORDERS, Adjacency.ADD_REMOVE)
    one = NoisyMax(noise, 2.0, 4.0, monotonic=True).cost(SOME_ORDERS, Adjacency.ADD_REMOVE)
    assert np.array_equal(both.epsilons, one.epsilons)
    assert (both.rho, both.mu, both.pure_epsilon) == (one.rho, one.mu, one.pure_epsilon)


@pytest.mark.parametrize(
    "mechanism", [NoisyMax("gumbel", 1.0, 1.0, monotonic=True), Exponential(1.0, monotonic=True)]
)
def test_monotonic_scores_are_refused_under_replace_one(mechanism: Mechanism) -> None:
    with pytest.raises(AdjacencyMismatch, match="holds under add-remove adjacency"):
        mechanism.cost(SOME_ORDERS, Adjacency.REPLACE_ONE)


def test_monotonic_exponential_mechanism_has_the_same_epsilon() -> None:
    monotonic = Exponential(0.4, monotonic=True).cost(SOME_ORDERS, Adjacency.ADD_REMOVE)
    general = Exponential(0.4).cost(SOME_ORDERS, Adjacency.ADD_REMOVE)
    assert np.array_equal(monotonic.epsilons, general.epsilons)


@pytest.mark.parametrize(
    "mechanism",
    [
        Exponential(0.0),
        NoisyMax("gumbel", 0.0, 1.0),
        NoisyMax("laplace", 0, 1),
        NoisyMax("exponential", 0, 1),
    ],
)
def test_zero_sensitivity_costs_nothing(mechanism: Mechanism) -> None:
    cost = mechanism.cost(SOME_ORDERS, Adjacency.REPLACE_ONE)
    assert not cost.epsilons.any()
    assert (cost.rho, cost.mu, cost.pure_epsilon) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("noise", {"noise": "gaussian"}),
        ("noise", {"noise": None}),
        ("sensitivity", {"sensitivity": -1.0}),
        ("sensitivity", {"sensitivity": math.nan}),
        ("scale", {"scale": 0.0}),
        ("scale", {"scale": math.inf}),
        ("monotonic", {"monotonic": 1}),
        ("monotonic", {"monotonic": "true"}),
    ],
)
def test_noisy_max_refuses_bad_fields(field: str, values: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as refusal:
        NoisyMax(**{"noise": "gumbel", "sensitivity": 1.0, "scale": 1.0, **values})
    assert refusal.value.field == field


@pytest.mark.parametrize(
    ("field", "values"), [("epsilon", {"epsilon": -1.0}), ("monotonic", {"monotonic": None})]
)
def test_exponential_refuses_bad_fields(field: str, values: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as refusal:
        Exponential(**{"epsilon": 1.0, **values})
    assert refusal.value.field == field


@pytest.mark.parametrize("noise", ["gumbel", "laplace", "exponential"])
def test_refuses_a_ratio_that_overflows(noise: str) -> None:
    with pytest.raises(InvalidInput):
        NoisyMax(noise, 1e200, 1e-200).cost(SOME_ORDERS, Adjacency.REPLACE_ONE)
    with pytest.raises(InvalidInput):
        NoisyMax(noise, 1.7e308, 1.0).cost(SOME_ORDERS, Adjacency.REPLACE_ONE)


def test_refuses_a_square_that_overflows() -> None:
    with pytest.raises(InvalidInput, match="rho must be a finite number"):
        Exponential(1e160).cost(SOME_ORDERS, Adjacency.REPLACE_ONE)
