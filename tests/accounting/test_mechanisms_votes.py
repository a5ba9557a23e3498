"""Noisy votes: the cost of the noisy counts exactly, and never below what the winning label shows."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from mpmath import mp

from dpledger.accounting.errors import InvalidInput
from dpledger.accounting.mechanisms import Gaussian, Laplace, NoisyVotes
from dpledger.accounting.sampling import Adjacency
from tests.accounting.references import (
    SOME_ORDERS,
    Number,
    assert_bounds,
    digits,
    gaussian_density,
    laplace_density,
    log_uniform,
    moderately,
    renyi_both_ways,
    renyi_by_quadrature_both_ways,
)


def laplace_cdf(x: Number) -> Number:
    return mp.exp(x) / 2 if x < 0 else 1 - mp.exp(-x) / 2


def winners(noise: str, counts: list[float], size: float) -> list[Number]:
    """P(each label wins), by quadrature over its noisy count in units of the noise."""
    places = [mp.mpf(count) / size for count in counts]
    density = laplace_density(0, 1) if noise == "laplace" else gaussian_density(0, 1)
    distribution = laplace_cdf if noise == "laplace" else mp.ncdf
    ends = [min(places) - 40, *sorted(set(places)), max(places) + 40]

    def wins(own: int) -> Number:
        others = [place for index, place in enumerate(places) if index != own]
        return mp.quad(
            lambda x: density(x - places[own]) * mp.fprod(distribution(x - other) for other in others), ends
        )

    return [wins(own) for own in range(len(counts))]


def votes(noise: str, size: float) -> NoisyVotes:
    return NoisyVotes(noise, **{"scale" if noise == "laplace" else "noise_std": size})


@pytest.mark.parametrize("scale", [0.5, 20.0, 1e6])
def test_laplace_votes_cost_two_shifted_counts(scale: float) -> None:
    """The counts are independent, so the divergence of the pair is the sum: exact."""
    cost = votes("laplace", scale).cost(SOME_ORDERS, Adjacency.REPLACE_ONE)
    with digits(60):
        d = 1 / mp.mpf(scale)
        for order, found in zip(SOME_ORDERS, cost.epsilons, strict=True):
            a = mp.mpf(order)
            one = mp.log((a * mp.exp((a - 1) * d) + (a - 1) * mp.exp(-a * d)) / (2 * a - 1)) / (a - 1)
            assert_bounds(found, 2 * one, within=1e-13)
        assert_bounds(cost.pure_epsilon or 0.0, 2 * d, within=1e-14)
        assert_bounds(cost.rho or 0.0, 2 * (d + mp.expm1(-d)), within=1e-13)


def test_two_counts_are_a_product_by_quadrature() -> None:
    order, scale = 3.0, 2.0
    with digits(20):
        one = renyi_by_quadrature_both_ways(
            laplace_density(0, scale), laplace_density(1, scale), order, [-mp.inf, 0, 1, mp.inf], dps=20
        )
    cost = votes("laplace", scale).cost(np.array([order]), Adjacency.ADD_REMOVE)
    assert float(2 * one) == pytest.approx(cost.epsilons[0], rel=1e-9)


@moderately
@given(log_uniform(1e-3, 1e6))
def test_gaussian_votes_cost_a_gaussian_of_sensitivity_root_two(noise_std: float) -> None:
    cost = votes("gaussian", noise_std).cost(SOME_ORDERS, Adjacency.ADD_REMOVE)
    with digits(50):
        rho = 1 / mp.mpf(noise_std) ** 2
        assert_bounds(cost.rho or 0.0, rho, within=1e-14)
        assert_bounds(cost.mu or 0.0, mp.sqrt(2 * rho), within=1e-14)
        for order, found in zip(SOME_ORDERS, cost.epsilons, strict=True):
            assert_bounds(found, mp.mpf(order) * rho, within=1e-14)
    assert cost.pure_epsilon is None


def test_gaussian_votes_are_amplified_as_a_gaussian_and_laplace_votes_are_not() -> None:
    mechanism = votes("gaussian", 40.0)
    assert mechanism.gaussian_mu == mechanism.cost(SOME_ORDERS, Adjacency.ADD_REMOVE).mu
    assert mechanism.gaussian_mu == pytest.approx(Gaussian(math.sqrt(2.0), 40.0).gaussian_mu, rel=1e-14)
    assert votes("laplace", 40.0).gaussian_mu is None


@pytest.mark.parametrize(
    ("noise", "size"), [("laplace", 2.0), ("laplace", 20.0), ("gaussian", 1.0), ("gaussian", 9.0)]
)
@pytest.mark.parametrize("counts", [([5.0, 5.0], [6.0, 4.0]), ([9.0, 3.0, 3.0], [8.0, 4.0, 3.0])])
def test_the_winner_shows_no_more_than_is_charged(
    noise: str, size: float, counts: tuple[list[float], list[float]]
) -> None:
    orders = np.array([1.5, 2.0, 16.0])
    p, q = (winners(noise, side, size) for side in counts)
    cost = votes(noise, size).cost(orders, Adjacency.ADD_REMOVE)
    for order, found in zip(orders, cost.epsilons, strict=True):
        assert mp.mpf(float(found)) >= renyi_both_ways(p, q, order)


def test_charging_a_single_count_would_be_below_the_truth() -> None:
    """Lap(b) votes are 2/b-DP, not 1/b-DP: the loss of a hopeless label nears 2/b."""
    p, q = winners("laplace", [0.0, 6.0], 1.0), winners("laplace", [1.0, 5.0], 1.0)
    loss = abs(mp.log(p[0] / q[0]))
    single = Laplace(1.0, 1.0).cost(SOME_ORDERS, Adjacency.ADD_REMOVE).pure_epsilon or 0.0
    charged = votes("laplace", 1.0).cost(SOME_ORDERS, Adjacency.ADD_REMOVE).pure_epsilon or 0.0
    assert single < loss <= charged


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("noise", {"noise": "gumbel", "scale": 1.0}),
        ("scale", {"noise": "laplace"}),
        ("scale", {"noise": "laplace", "scale": 0.0}),
        ("scale", {"noise": "gaussian", "scale": 1.0, "noise_std": 1.0}),
        ("noise_std", {"noise": "gaussian"}),
        ("noise_std", {"noise": "gaussian", "noise_std": math.nan}),
        ("noise_std", {"noise": "laplace", "scale": 1.0, "noise_std": 1.0}),
    ],
)
def test_takes_exactly_the_size_that_its_noise_needs(field: str, values: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as refusal:
        NoisyVotes(**values)
    assert refusal.value.field == field


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_refuses_a_ratio_that_overflows(noise: str) -> None:
    with pytest.raises(InvalidInput):
        votes(noise, 1e-310).cost(SOME_ORDERS, Adjacency.ADD_REMOVE)


def test_wire_form_names_only_the_size_in_use() -> None:
    assert votes("gaussian", 3).fields() == {
        "mechanism": "noisy-votes",
        "noise": "gaussian",
        "noise_std": 3.0,
    }
