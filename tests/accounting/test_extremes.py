"""At the ends of the accepted ranges: an answer or a refusal, never a zero cost, a NaN or another error."""

import itertools
import math

import numpy as np
import pytest

from dpledger.accounting.amplification.mixture import mixture_curve
from dpledger.accounting.composition import Plan, compose
from dpledger.accounting.conversion import (
    Approximate,
    Gdp,
    Guarantee,
    Notion,
    Pure,
    Rdp,
    Target,
    Zcdp,
    convert,
    invert,
)
from dpledger.accounting.errors import AccountingError
from dpledger.accounting.gaussian_profile import gaussian_delta, gaussian_mu_within
from dpledger.accounting.mechanisms import (
    GDP,
    RDP,
    DiscreteGaussian,
    Exponential,
    Gaussian,
    Laplace,
    Mechanism,
    NoisyMax,
    NoisyVotes,
    OutputMixture,
    RandomizedResponse,
)
from dpledger.accounting.sampling import Adjacency, Sample, Scheme
from dpledger.accounting.stepcost import cost_of
from dpledger.accounting.steps import Release, Step
from dpledger.accounting.validation import Floats

SIZES = (5e-324, 1e-300, 1e-160, 1e-12, 1.0, 1e3, 1e9, 1e50, 1e154, 1e200, 1.7e308)
ORDERS: Floats = np.array([1.0 + 2.0**-52, 1.0 + 1e-9, 1.01, 2.0, 64.0, 65.5, 1e4, 1e6])
SAMPLES = (
    (Sample(), Adjacency.REPLACE_ONE),
    *((Sample(Scheme.POISSON, rate), Adjacency.ADD_REMOVE) for rate in (5e-324, 1e-12, 0.5, 1.0 - 2.0**-53)),
    *(
        (Sample(Scheme.WITHOUT_REPLACEMENT, rate), Adjacency.REPLACE_ONE)
        for rate in (5e-324, 1e-12, 0.5, 1.0 - 2.0**-53)
    ),
)
GOALS = (
    Target(Notion.PURE),
    Target(Notion.ZCDP),
    Target(Notion.GDP),
    Target(Notion.RDP, orders=ORDERS),
    *(Target(Notion.APPROXIMATE, delta=delta) for delta in (5e-324, 1e-300, 1e-5, 1.0 - 2.0**-53)),
    *(Target(Notion.APPROXIMATE, epsilon=size) for size in SIZES),
)


def of_size(size: float) -> list[Mechanism]:
    return [
        Gaussian(size, 1.0),
        DiscreteGaussian(size, 1.0),
        Laplace(size, 1.0),
        RandomizedResponse(size),
        Exponential(size),
        NoisyMax("gumbel", size, 1.0),
        NoisyVotes("gaussian", noise_std=size),
        NoisyVotes("laplace", scale=size),
        GDP(size),
        RDP((2.0, 1e6), (size, size)),
        OutputMixture(1.0, (size, size / 3.0), (0.5, 0.5)),
    ]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("count", [1, 10**9])
def test_a_cost_is_positive_or_refused(size: float, count: int) -> None:
    for mechanism, (sample, adjacency) in itertools.product(of_size(size), SAMPLES):
        try:
            cost = cost_of(Step((Release(mechanism, count),), sample, adjacency), ORDERS)
        except AccountingError:
            continue
        assert (cost.epsilons > 0.0).all(), (mechanism, sample)
        assert all(value is None or value > 0.0 for value in (cost.rho, cost.mu, cost.pure_epsilon))


@pytest.mark.parametrize("size", SIZES)
def test_a_total_is_finite_or_refused(size: float) -> None:
    for mechanism, delta in itertools.product(of_size(size), (1e-300, 1e-5, 0.5)):
        try:
            total = compose(Plan(((Step((Release(mechanism),)), 5), (Step((Release(mechanism),)), 1)), delta))
        except AccountingError:
            continue
        assert 0.0 <= total.epsilon < math.inf


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("target", GOALS, ids=lambda target: str(target.fields())[:60])
def test_a_conversion_is_answered_or_refused(size: float, target: Target) -> None:
    curve = Rdp(ORDERS, np.geomspace(max(size * 1e-9, 5e-324), size, ORDERS.size), 1e-7)
    sources: list[Guarantee] = [Pure(size), Approximate(size, 1e-7), Zcdp(size), Gdp(size), curve]
    for source, ask in itertools.product(sources, (convert, invert)):
        try:
            found = ask(source, target).guarantee
        except AccountingError:
            continue
        if ask is convert and isinstance(found, Approximate) and target.epsilon is not None:
            assert found.delta > 0.0 or isinstance(source, Pure)


@pytest.mark.parametrize("epsilon", [0.0, 5e-324, 1e-310, 1e-300, 1.0, 1e300])
@pytest.mark.parametrize("delta", [5e-324, 1e-310, 1e-300, 0.5])
def test_the_mu_within_a_budget_keeps_it_or_is_refused(epsilon: float, delta: float) -> None:
    try:
        mu = gaussian_mu_within(epsilon, delta)
    except AccountingError:
        assert max(epsilon, delta) < 1e-300
        return
    assert gaussian_delta(epsilon, mu) <= delta


def test_a_mixture_of_curves_too_large_to_exponentiate_is_bounded_by_the_largest() -> None:
    large = np.full(ORDERS.size, 1e305)
    np.testing.assert_array_equal(mixture_curve([large, large / 2.0], [0.5, 0.5], ORDERS), large)
