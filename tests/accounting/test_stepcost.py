"""The cost of a step: several releases on one sample, adjacency, δ, and the published mistakes."""

import math
from typing import Any

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp

from dpledger.accounting.amplification.approximate import amplified_epsilon
from dpledger.accounting.amplification.poisson import poisson_curve
from dpledger.accounting.amplification.poisson_gaussian import poisson_gaussian_curve
from dpledger.accounting.amplification.sampled_laplace import poisson_laplace_curve
from dpledger.accounting.amplification.without_replacement import (
    dominating_pair_curve,
    wang_balle_kasiviswanathan_curve,
)
from dpledger.accounting.conversion.renyi import epsilon_at
from dpledger.accounting.cost import Cost
from dpledger.accounting.errors import AdjacencyMismatch, InvalidInput, Unproven
from dpledger.accounting.mechanisms import (
    ZCDP,
    Approximate,
    Gaussian,
    Laplace,
    Mechanism,
    Pure,
    RandomizedResponse,
)
from dpledger.accounting.mechanisms.pure import pure_cost, pure_curve
from dpledger.accounting.orders import DEFAULT_ORDERS
from dpledger.accounting.sampling import Adjacency, Sample, Scheme
from dpledger.accounting.stepcost import AMPLIFICATION_METHODS, cost_of
from dpledger.accounting.steps import Release, Step
from dpledger.accounting.validation import Floats
from tests.accounting.references import log_uniform, moderately

ADD, REPLACE = Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE
FEW: Floats = np.array([1.5, 2.0, 3.0, 8.0, 30.0])
DENSE: Floats = np.round(np.arange(1.1, 64.0, 0.1), 10)


def poisson(rate: float, *mechanisms: Mechanism) -> Step:
    return Step(tuple(map(Release, mechanisms)), Sample(Scheme.POISSON, rate), ADD)


def without_replacement(rate: float, *mechanisms: Mechanism) -> Step:
    return Step(tuple(map(Release, mechanisms)), Sample(Scheme.WITHOUT_REPLACEMENT, rate), REPLACE)


def full(*mechanisms: Mechanism, adjacency: Adjacency = ADD) -> Step:
    return Step(tuple(map(Release, mechanisms)), Sample(), adjacency)


def noise(std: float) -> Gaussian:
    return Gaussian(sensitivity=1.0, noise_std=std)


# A full look


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_a_full_look_adds_up_costs_and_combines_gaussians_exactly(adjacency: Adjacency) -> None:
    cost = cost_of(full(noise(3.0), noise(4.0), Laplace(1.0, 5.0), adjacency=adjacency), FEW)
    squared = 1.0 / 9.0 + 1.0 / 16.0
    expected = FEW * squared / 2.0 + Laplace(1.0, 5.0).cost(FEW, adjacency).epsilons
    assert (cost.epsilons >= expected * (1.0 - 1e-15)).all()
    np.testing.assert_allclose(cost.epsilons, expected, rtol=1e-13)
    assert cost.mu is not None
    assert cost_of(full(noise(3.0), noise(4.0)), FEW).mu == pytest.approx(math.sqrt(squared))


@pytest.mark.parametrize("mechanism", [noise(2.0), Laplace(1.0, 3.0), Approximate(0.5, 1e-7), ZCDP(0.3)])
def test_a_count_is_that_many_releases(mechanism: Mechanism) -> None:
    counted = cost_of(Step((Release(mechanism, 5),)), FEW)
    listed = cost_of(full(*[mechanism] * 5), FEW)
    np.testing.assert_allclose(counted.epsilons, listed.epsilons, rtol=1e-14)
    assert counted.delta == pytest.approx(listed.delta)


def test_orders_are_checked() -> None:
    for orders in ([1.0], [3.0, 2.0], [math.nan]):
        with pytest.raises(InvalidInput):
            cost_of(full(noise(1.0)), np.array(orders))


# Several looks at one sample


def test_two_gaussians_on_one_sample_are_one_with_their_squares_added() -> None:
    cost = cost_of(poisson(0.01, noise(1.0), noise(1.0)), DEFAULT_ORDERS)
    exact = poisson_gaussian_curve(0.01, math.sqrt(2.0), DEFAULT_ORDERS)
    np.testing.assert_allclose(cost.epsilons, exact, rtol=1e-7)
    assert (cost.rho, cost.mu, cost.pure_epsilon, cost.delta) == (None, None, None, 0.0)


@pytest.mark.parametrize(("order", "ratio"), [(2.0, 1.86), (8.0, 1530.0)])
def test_amplifying_them_separately_is_far_below_the_truth(order: float, ratio: float) -> None:
    """Two looks at one sample are truly one subsampled Gaussian, checked elsewhere by quadrature."""
    together = cost_of(poisson(0.01, noise(1.0), noise(1.0)), np.array([order])).epsilons[0]
    separately = 2.0 * cost_of(poisson(0.01, noise(1.0)), np.array([order])).epsilons[0]
    assert together / separately == pytest.approx(ratio, rel=2e-3)


@pytest.mark.parametrize(
    ("rate", "std", "once", "truth"),
    [(0.01, 1.0, 2.584, 4.481), (0.01, 2.0, 0.900, 1.000), (0.1, 2.0, 12.56, 13.78)],
)
def test_separate_amplification_under_reports_a_thousand_steps(
    rate: float, std: float, once: float, truth: float
) -> None:
    def exact(noise_std: float, steps: int) -> float:
        loss = privacy_loss_distribution.from_gaussian_mechanism(
            noise_std, sampling_prob=rate, value_discretization_interval=4e-4
        )
        return float(loss.self_compose(steps).get_epsilon_for_delta(1e-5))

    true = exact(std / math.sqrt(2.0), 1000)
    assert exact(std, 2000) == pytest.approx(once, rel=5e-3)
    assert true == pytest.approx(truth, rel=5e-3)
    separately = epsilon_at(cost_of(poisson(rate, noise(std)), DENSE).repeated(2000), 1e-5)[0]
    together = epsilon_at(cost_of(poisson(rate, noise(std), noise(std)), DENSE).repeated(1000), 1e-5)[0]
    assert separately < true < together


def test_charging_the_difference_for_a_repeat_decided_from_the_batch_is_unsound() -> None:
    """A filter needs E_Q[(P/Q)^α e^(−(α−1)·charged)] ≤ 1; look again only when the first output is large."""
    rate, order = 0.1, 4.0
    first = cost_of(poisson(rate, noise(1.0)), np.array([order])).epsilons[0]
    both = cost_of(poisson(rate, noise(1.0), noise(1.0)), np.array([order])).epsilons[0]
    u = np.arange(-10.0, 16.0, 0.02)
    density = np.exp(-u * u / 2.0) * 0.02 / math.sqrt(2.0 * math.pi)
    tilt = np.exp(u - 0.5)
    once = density * (1.0 - rate + rate * tilt) ** order * math.exp(-(order - 1.0) * first)
    pairs = (1.0 - rate + rate * tilt[:, None] * tilt) ** order
    twice = density * (pairs @ density) * math.exp(-(order - 1.0) * both)
    totals = np.cumsum(once) + twice.sum() - np.cumsum(twice)
    assert totals.max() == pytest.approx(1.734, abs=2e-3)
    raw = density * (pairs @ density) * math.exp(-(order - 1.0) * (first + order / 2.0))
    assert (np.cumsum(once) + raw.sum() - np.cumsum(raw)).max() <= 1.0 + 1e-9  # the repeat charged raw


def test_other_releases_are_added_to_the_gaussians_before_the_general_bound() -> None:
    step = poisson(0.05, noise(2.0), noise(2.0), Laplace(1.0, 4.0))

    def total(orders: Floats) -> Floats:
        return orders * 0.25 + Laplace(1.0, 4.0).cost(orders, ADD).epsilons

    found = cost_of(step, DEFAULT_ORDERS).epsilons
    np.testing.assert_allclose(found, poisson_curve(0.05, total, DEFAULT_ORDERS), rtol=1e-9)
    separately = poisson_gaussian_curve(0.05, 0.5 * math.sqrt(2.0), DEFAULT_ORDERS)
    assert (found > separately).all()


@moderately
@given(rate=log_uniform(1e-4, 1.0), scale=log_uniform(0.3, 30.0), std=log_uniform(0.5, 30.0))
def test_one_more_release_never_costs_less(rate: float, scale: float, std: float) -> None:
    alone = cost_of(poisson(rate, Laplace(1.0, scale)), FEW).epsilons
    more = cost_of(poisson(rate, Laplace(1.0, scale), noise(std)), FEW).epsilons
    assert (more >= alone * (1.0 - 1e-12)).all()


# Pure and approximate releases


@pytest.mark.parametrize("build", [poisson, without_replacement])
def test_pure_releases_stay_pure(build: Any) -> None:
    rate = 0.1
    cost = cost_of(build(rate, Pure(0.3), RandomizedResponse(0.4)), DEFAULT_ORDERS)
    epsilon = math.log1p(rate * math.expm1(0.7))
    assert cost.pure_epsilon == pytest.approx(epsilon)
    assert cost.pure_epsilon is not None
    assert cost.pure_epsilon >= epsilon
    pure = pure_cost(cost.pure_epsilon, DEFAULT_ORDERS)
    assert (cost.rho, cost.mu) == (pure.rho, pure.mu)
    assert (cost.epsilons <= pure.epsilons).all()
    if build is poisson:
        assert (cost.epsilons[:60] < pure.epsilons[:60]).any()  # the general bound helps at some orders


def test_pure_curve_is_never_below_the_sampled_randomized_response() -> None:
    """Exact: the mixture of randomized response with its other answer, against it."""
    rate, epsilon = 0.2, 1.0
    cost = cost_of(poisson(rate, RandomizedResponse(epsilon)), FEW)
    yes = 1.0 / (1.0 + math.exp(-epsilon))
    p, q = np.array([yes, 1.0 - yes]), np.array([1.0 - yes, yes])
    mixture = (1.0 - rate) * q + rate * p
    for first, second in ((mixture, q), (q, mixture)):
        logs = FEW[:, None] * np.log(first) + (1.0 - FEW[:, None]) * np.log(second)
        assert (cost.epsilons >= np.log(np.exp(logs).sum(axis=1)) / (FEW - 1.0)).all()


def test_delta_under_poisson_sampling_is_scaled_and_the_rest_amplified() -> None:
    cost = cost_of(poisson(0.1, Approximate(0.5, 1e-6), noise(3.0)), FEW)
    assert cost.delta == pytest.approx(1e-7)
    assert cost.delta >= 1e-7

    def total(orders: Floats) -> Floats:
        return orders / 18.0 + pure_curve(0.5, orders)

    np.testing.assert_allclose(cost.epsilons, poisson_curve(0.1, total, FEW), rtol=1e-9)


def test_delta_without_replacement_is_amplified_as_a_pair() -> None:
    cost = cost_of(without_replacement(0.1, Approximate(0.5, 1e-6), Pure(0.2)), FEW)
    assert cost.pure_epsilon == amplified_epsilon(
        0.1, cost_of(full(Pure(0.2), Approximate(0.5, 0.0)), FEW).pure_epsilon or 0.0
    )
    assert cost.delta == pytest.approx(1e-7)
    np.testing.assert_array_equal(cost.epsilons, pure_cost(cost.pure_epsilon or 0.0, FEW).epsilons)


def test_delta_without_replacement_beside_a_curve_is_unproven() -> None:
    with pytest.raises(Unproven, match="pure or"):
        cost_of(without_replacement(0.1, Approximate(0.5, 1e-6), noise(3.0)), FEW)
    with pytest.raises(Unproven, match="pure or"):
        cost_of(without_replacement(0.1, Approximate(0.5, 1e-6)), FEW, method="wang-balle-kasiviswanathan")


# Adjacency


@pytest.mark.parametrize(
    ("scheme", "adjacency", "theorem"),
    [(Scheme.POISSON, REPLACE, "Poisson"), (Scheme.WITHOUT_REPLACEMENT, ADD, "without replacement")],
)
@pytest.mark.parametrize("rate", [0.0, 0.1, 1.0])
def test_the_other_adjacency_is_refused_by_name(
    scheme: Scheme, adjacency: Adjacency, theorem: str, rate: float
) -> None:
    step = Step((Release(noise(1.0)),), Sample(scheme, rate), adjacency)
    with pytest.raises(AdjacencyMismatch, match=theorem):
        cost_of(step, FEW)


def test_poisson_with_replace_one_charged_at_the_clipping_norm_is_unsound() -> None:
    """A sum of values clipped to C with noise 2C, a record C replaced by −C: q = 0.1, α = 8."""
    rate, order, std = mp.mpf("0.1"), 8, 2

    def mixture(place: int) -> Any:
        return lambda u: (1 - rate) * mp.npdf(u, 0, std) + rate * mp.npdf(u, place, std)

    first, second = mixture(1), mixture(-1)
    total = mp.quad(lambda u: first(u) ** order * second(u) ** (1 - order), list(range(-40, 81, 4)))
    true = float(mp.log(total) / (order - 1))
    orders = np.array([8.0])
    claimed = cost_of(poisson(0.1, noise(2.0)), orders, method="zhu-wang").epsilons[0]
    assert true == pytest.approx(0.0411, abs=5e-5)
    assert claimed == pytest.approx(0.0368, abs=5e-5)
    assert poisson_gaussian_curve(0.1, 0.5, orders)[0] < claimed < true
    doubled = cost_of(poisson(0.1, Gaussian(sensitivity=2.0, noise_std=2.0)), orders).epsilons[0]
    assert doubled == pytest.approx(1.378, abs=5e-4)


# Rates and methods


@pytest.mark.parametrize("build", [poisson, without_replacement])
@pytest.mark.parametrize("mechanism", [noise(2.0), Laplace(1.0, 3.0), ZCDP(0.2), Approximate(0.3, 1e-6)])
def test_ends_of_the_rate(build: Any, mechanism: Mechanism) -> None:
    assert not cost_of(build(0.0, mechanism), FEW).epsilons.any()
    sampled, plain = cost_of(build(1.0, mechanism), FEW), cost_of(full(mechanism), FEW)
    np.testing.assert_array_equal(sampled.epsilons, plain.epsilons)
    assert (sampled.rho, sampled.mu, sampled.delta) == (plain.rho, plain.mu, plain.delta)


def test_without_replacement_gaussians_by_the_dominating_pair_others_by_the_general_bound() -> None:
    found = cost_of(without_replacement(0.05, noise(2.0), noise(2.0)), FEW).epsilons
    np.testing.assert_allclose(found, dominating_pair_curve(0.05, math.sqrt(0.5), FEW), rtol=1e-9)
    mixed = cost_of(without_replacement(0.05, noise(2.0), ZCDP(0.01)), FEW).epsilons
    general = wang_balle_kasiviswanathan_curve(0.05, lambda orders: orders * (0.125 + 0.01), FEW)
    np.testing.assert_allclose(mixed, general, rtol=1e-9)


@pytest.mark.parametrize("scheme", [Scheme.POISSON, Scheme.WITHOUT_REPLACEMENT])
def test_every_named_method_is_at_least_the_default(scheme: Scheme) -> None:
    build = poisson if scheme is Scheme.POISSON else without_replacement
    orders = np.array([2.0, 3.0, 8.0])
    for method in AMPLIFICATION_METHODS[scheme]:
        mechanism = Laplace(1.0, 6.0) if method == "subsampled-laplace" else noise(6.0)
        default = cost_of(build(0.01, mechanism), orders).epsilons
        named = cost_of(build(0.01, mechanism), orders, method=method)
        assert (named.epsilons >= default * (1.0 - 2e-8)).all()
        assert (named.rho, named.mu, named.pure_epsilon) == (None, None, None)


def test_a_named_method_for_pure_releases_gives_its_curve_alone() -> None:
    named = cost_of(poisson(0.1, Laplace(1.0, 2.0)), FEW, method="steinke")
    np.testing.assert_allclose(
        named.epsilons,
        poisson_curve(0.1, lambda at: Laplace(1.0, 2.0).cost(at, ADD).epsilons, FEW),
        rtol=1e-12,
    )
    assert named.pure_epsilon is None


@pytest.mark.parametrize("method", ["subsampled-gaussian", "moments-accountant"])
def test_methods_for_gaussians_refuse_others(method: str) -> None:
    with pytest.raises(Unproven, match="Gaussian noise alone"):
        cost_of(poisson(0.1, Laplace(1.0, 2.0)), FEW, method=method)


def test_methods_for_laplace_refuse_others() -> None:
    for mechanisms in ((noise(1.0),), (noise(1.0), Laplace(1.0, 2.0)), (Pure(0.1),)):
        with pytest.raises(Unproven, match="Laplace noise alone"):
            cost_of(poisson(0.1, *mechanisms), FEW, method="subsampled-laplace")
    with pytest.raises(Unproven, match="Gaussian or Laplace noise alone"):
        cost_of(without_replacement(0.1, Pure(0.1)), FEW, method="dominating-pair")


@pytest.mark.parametrize("rate", [0.001, 0.1, 0.7])
@pytest.mark.parametrize("shift", [0.02, 1.0, 3.0])
def test_sampled_laplace_costs_the_least_of_its_pair_and_the_general_bound(rate: float, shift: float) -> None:
    mechanism, orders = Laplace(shift, 1.0), DEFAULT_ORDERS
    for step, pair, general in (
        (poisson(rate, mechanism), "subsampled-laplace", "steinke"),
        (without_replacement(rate, mechanism), "dominating-pair", "wang-balle-kasiviswanathan"),
    ):
        found = cost_of(step, orders)
        named = [cost_of(step, orders, method=method).epsilons for method in (pair, general)]
        assert found.pure_epsilon == amplified_epsilon(rate, mechanism.laplace_shift)
        assert (found.epsilons <= np.minimum(*named)).all()
        low = orders < 2.0
        assert (named[1][low] > 1.005 * found.epsilons[low]).all()


def test_several_laplace_releases_on_one_sample_are_covered_by_the_sum_of_shifts() -> None:
    step = Step((Release(Laplace(1.0, 4.0), 2), Release(Laplace(1.0, 2.0))), Sample(Scheme.POISSON, 0.1), ADD)
    named = cost_of(step, FEW, method="subsampled-laplace")
    np.testing.assert_allclose(named.epsilons, poisson_laplace_curve(0.1, 1.0, FEW), rtol=1e-12)
    assert (cost_of(step, FEW).epsilons <= named.epsilons).all()
    assert cost_of(poisson(0.1, Laplace(0.0, 1.0)), FEW, method="subsampled-laplace").epsilons.max() == 0.0


@pytest.mark.parametrize(
    "step", [poisson(0.1, noise(1.0)), without_replacement(0.1, noise(1.0)), full(noise(1.0))]
)
def test_unknown_methods_are_refused(step: Step) -> None:
    with pytest.raises(InvalidInput, match="method"):
        cost_of(step, FEW, method="wishful")


# Reference values


@pytest.mark.parametrize(("steps", "epsilon"), [(1000, 1.7118), (10_000, 5.6320)])
def test_reference_epsilons_on_which_libraries_agree(steps: int, epsilon: float) -> None:
    total = cost_of(poisson(0.01, noise(1.1)), DENSE).repeated(steps)
    assert epsilon_at(total, 1e-5)[0] == pytest.approx(epsilon, abs=5e-5)


# What is remembered


@given(rate=st.floats(0.0, 1.0), std=log_uniform(0.1, 100.0))
@moderately
def test_costs_are_finite_and_rise_with_the_order(rate: float, std: float) -> None:
    for build in (poisson, without_replacement):
        cost: Cost = cost_of(build(rate, noise(std), ZCDP(0.001)), DEFAULT_ORDERS[::9])
        assert np.isfinite(cost.epsilons).all()
        assert (np.diff(cost.epsilons) >= 0.0).all()


@pytest.mark.parametrize("mu", [1e-300, 1e-200, 1e-163])
@pytest.mark.parametrize("scheme", [poisson, without_replacement])
def test_a_gaussian_whose_square_underflows_is_not_free(mu: float, scheme: Any) -> None:
    mechanism = Gaussian(mu, 1.0)
    assert (cost_of(scheme(0.1, mechanism), FEW).epsilons > 0.0).all()
    cost = cost_of(full(mechanism, mechanism), FEW)
    assert (cost.epsilons > 0.0).all()
    assert cost.mu == pytest.approx(math.sqrt(2.0) * mu)


@pytest.mark.parametrize("noise_std", [1e-154, 1e-200, 5e-324])
def test_a_gaussian_whose_square_overflows_is_refused(noise_std: float) -> None:
    with pytest.raises(InvalidInput):
        cost_of(full(noise(noise_std), noise(noise_std)), FEW)
