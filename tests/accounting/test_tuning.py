"""Papernot and Steinke's selection against exact enumeration of discrete base mechanisms."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp

from dpledger.accounting.cost import Cost
from dpledger.accounting.errors import InvalidInput, Unproven
from dpledger.accounting.mechanisms.gaussian import gaussian_cost
from dpledger.accounting.mechanisms.pure import pure_cost
from dpledger.accounting.orders import DEFAULT_ORDERS
from dpledger.accounting.tuning import (
    PoissonTrials,
    Trials,
    TruncatedNegativeBinomial,
    tuned_cost,
)
from dpledger.accounting.validation import Floats
from tests.accounting.references import Number, digits, log_uniform, moderately, renyi_both_ways

ORDERS = np.array([1.2, 1.5, 2.0, 3.0, 5.0, 8.0, 16.0, 48.0])


def geometric(gamma: float) -> TruncatedNegativeBinomial:
    """K geometric with mean 1/γ."""
    return TruncatedNegativeBinomial(1.0, gamma)


def logarithmic(gamma: float) -> TruncatedNegativeBinomial:
    """K logarithmic with mean (1/γ − 1)/log(1/γ)."""
    return TruncatedNegativeBinomial(0.0, gamma)


def generating(trials: Trials) -> Callable[[Number], Number]:
    """The probability generating function E[x^K], from its textbook form."""
    if isinstance(trials, PoissonTrials):
        return lambda x: mp.exp(mp.mpf(trials.rate) * (x - 1))
    assert isinstance(trials, TruncatedNegativeBinomial)
    gamma, eta = mp.mpf(trials.gamma), mp.mpf(trials.eta)
    if eta == 0:
        return lambda x: mp.log(1 - (1 - gamma) * x) / mp.log(gamma)
    return lambda x: ((1 - (1 - gamma) * x) ** -eta - 1) / (gamma**-eta - 1)


def best_of(outcomes: Sequence[Number], trials: Trials) -> list[Number]:
    """Law of the best of K runs; outcomes are listed from worst to best, "nothing ran" comes last."""
    function = generating(trials)
    below, found, previous = mp.mpf(0), [], function(mp.mpf(0))
    nothing = previous
    for probability in outcomes:
        below += probability
        value = function(below)
        found.append(value - previous)
        previous = value
    return [*found, nothing] if nothing > 0 else found


def normalised(weights: Sequence[float]) -> list[Number]:
    total = mp.fsum(mp.mpf(w) for w in weights)
    return [mp.mpf(w) / total for w in weights]


def exact_curve(p: Sequence[Number], q: Sequence[Number]) -> list[Number]:
    return [renyi_both_ways(p, q, float(order), dps=40) for order in ORDERS]


def up(values: Sequence[Number]) -> Floats:
    return np.array([float(v) * (1.0 + 1e-12) + 1e-15 for v in values])


weights = st.lists(log_uniform(1e-3, 1.0), min_size=2, max_size=4)
tilts = st.lists(st.floats(-1.0, 1.0), min_size=4, max_size=4)
negative_binomials = st.builds(
    TruncatedNegativeBinomial, st.sampled_from([-0.5, 0.0, 0.5, 1.0, 3.0]), log_uniform(1e-3, 0.95)
)
poissons = st.builds(PoissonTrials, log_uniform(0.01, 100.0))


@given(weights, tilts, st.one_of(negative_binomials, poissons))
@moderately
def test_the_selection_is_never_above_its_bound(base: list[float], tilt: list[float], trials: Trials) -> None:
    with digits(40):
        p = normalised(base)
        q = normalised([w * math.exp(t) for w, t in zip(base, tilt, strict=False)])
        cost = Cost(ORDERS, up(exact_curve(p, q)))
        exact = exact_curve(best_of(p, trials), best_of(q, trials))
    bound = tuned_cost(cost, trials).epsilons
    for found, truth in zip(bound, exact, strict=True):
        assert mp.mpf(float(found)) >= truth - mp.mpf(10) ** -25


@given(weights, tilts, log_uniform(1.0, 100.0))
@moderately
def test_the_poisson_bound_is_never_above_theorem_6(
    base: list[float], tilt: list[float], rate: float
) -> None:
    with digits(40):
        p = normalised(base)
        q = normalised([w * math.exp(t) for w, t in zip(base, tilt, strict=False)])
        cost = Cost(ORDERS, up(exact_curve(p, q)))
    ours = tuned_cost(cost, PoissonTrials(rate)).epsilons
    theirs = theorem_6(cost, rate)
    assert (ours <= theirs * (1.0 + 1e-9)).all()


def theorem_6(base: Cost, rate: float) -> Floats:
    """As printed, with δ̂ from the curve."""
    excess = base.orders - 1.0
    at = np.log1p(1.0 / excess)
    gaps = excess[None, :] * (base.epsilons[None, :] - at[:, None])
    shares = np.log(base.orders) + excess * np.log1p(1.0 / excess)
    deltas = np.minimum(1.0, np.exp(np.minimum(gaps - shares[None, :], 0.0)).min(axis=1))
    found: Floats = base.epsilons + rate * deltas + np.log(rate) / excess
    return found


def test_the_poisson_bound_is_nearly_attained() -> None:
    """A rare best outcome, few runs: the bound is within one per cent of the truth."""
    with digits(40):
        p, q = [mp.mpf("0.999"), mp.mpf("0.001")], [mp.mpf("0.9985"), mp.mpf("0.0015")]
        trials = PoissonTrials(3.0)
        cost = Cost(ORDERS, up(exact_curve(p, q)))
        exact = exact_curve(best_of(p, trials), best_of(q, trials))
    bound = tuned_cost(cost, trials).epsilons
    assert float(bound[2]) <= float(exact[2]) * 1.01


def test_the_negative_binomial_bound_is_its_formula() -> None:
    """Theorem 2 as printed, minimised over the orders by hand."""
    base, trials = gaussian_cost(0.2, DEFAULT_ORDERS), TruncatedNegativeBinomial(1.0, 0.1)
    hats = (1.0 - 1.0 / DEFAULT_ORDERS) * base.epsilons + math.log(10.0) / DEFAULT_ORDERS
    plain = base.epsilons + 2.0 * hats.min() + math.log(10.0) / (DEFAULT_ORDERS - 1.0)
    least = np.minimum.accumulate(plain[::-1])[::-1]
    found = tuned_cost(base, trials).epsilons
    assert (found >= least).all()
    np.testing.assert_allclose(found, least, rtol=1e-12)


def test_when_the_base_tells_a_lot_the_trivial_auxiliary_order_is_best() -> None:
    base, trials = gaussian_cost(50.0, DEFAULT_ORDERS), logarithmic(0.5)
    expected = base.epsilons + math.log(2.0) + math.log(trials.mean) / (DEFAULT_ORDERS - 1.0)
    np.testing.assert_allclose(
        tuned_cost(base, trials).epsilons, np.minimum.accumulate(expected[::-1])[::-1], rtol=1e-12
    )


@pytest.mark.parametrize("eta", [-0.9, -0.5, -1e-9, 0.0, 1e-9, 0.5, 1.0, 4.0])
@pytest.mark.parametrize("gamma", [0.01, 0.5, 0.99])
def test_the_mean_is_the_slope_of_the_generating_function(eta: float, gamma: float) -> None:
    trials = TruncatedNegativeBinomial(eta, gamma)
    with digits(60):
        slope = mp.diff(generating(trials), mp.mpf(1))
    assert trials.mean == pytest.approx(float(slope), rel=1e-6 if 0.0 < abs(eta) < 1e-6 else 1e-12)


def test_named_laws() -> None:
    assert geometric(0.1).mean == pytest.approx(10.0)
    assert logarithmic(0.1).mean == pytest.approx(9.0 / math.log(10.0))
    assert PoissonTrials(7.0).mean == 7.0


def test_a_pure_base_stays_pure_with_a_random_number_of_runs() -> None:
    base = pure_cost(0.1, DEFAULT_ORDERS)
    tuned = tuned_cost(base, geometric(0.01))
    assert tuned.pure_epsilon == pytest.approx(0.3, rel=1e-12)
    assert tuned.pure_epsilon is not None
    assert (tuned.epsilons <= tuned.pure_epsilon).all()
    assert tuned_cost(base, PoissonTrials(10.0)).pure_epsilon is None
    assert tuned.rho is None
    assert tuned.mu is None
    assert tuned_cost(Cost.zero(DEFAULT_ORDERS), geometric(0.5)).pure_epsilon == 0.0


def test_nothing_told_by_the_base_is_nothing_told_by_poisson_selection() -> None:
    found = tuned_cost(Cost.zero(DEFAULT_ORDERS), PoissonTrials(10.0))
    assert found.epsilons.tolist() == [0.0] * DEFAULT_ORDERS.size


def test_more_runs_cost_more_and_stay_far_below_composition() -> None:
    base = gaussian_cost(0.1, DEFAULT_ORDERS)
    few, many = (tuned_cost(base, geometric(g)).epsilons for g in (0.1, 0.001))
    assert (few < many).all()
    assert many[40] < base.repeated(1000).epsilons[40]


def test_large_curves_do_not_overflow() -> None:
    found = tuned_cost(gaussian_cost(30.0, DEFAULT_ORDERS), PoissonTrials(100.0))
    assert (found.epsilons > gaussian_cost(30.0, DEFAULT_ORDERS).epsilons * (1.0 - 1e-12)).all()


def test_so_many_runs_that_nothing_is_proven_are_refused() -> None:
    with pytest.raises(InvalidInput, match="epsilons"):
        tuned_cost(gaussian_cost(30.0, DEFAULT_ORDERS), PoissonTrials(1e306))


def test_a_base_with_an_additive_delta_is_refused() -> None:
    with pytest.raises(Unproven, match="additive"):
        tuned_cost(Cost(DEFAULT_ORDERS, DEFAULT_ORDERS * 0.1, delta=1e-9), geometric(0.1))


@pytest.mark.parametrize("eta", [-1.0, -2.0, math.nan, math.inf, "x", None, True])
def test_bad_shapes_are_refused(eta: float) -> None:
    with pytest.raises(InvalidInput, match="eta"):
        TruncatedNegativeBinomial(eta, 0.5)


@pytest.mark.parametrize("gamma", [0.0, 1.0, -0.5, math.nan, "x"])
def test_bad_gammas_are_refused(gamma: float) -> None:
    with pytest.raises(InvalidInput, match="gamma"):
        geometric(gamma)


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan, math.inf])
def test_bad_rates_are_refused(rate: float) -> None:
    with pytest.raises(InvalidInput, match="rate"):
        PoissonTrials(rate)


@pytest.mark.parametrize("size", [1e-12, 1e-40, 1e-100, 1e-250, 1e-300])
def test_tiny_curves_lose_nothing_to_the_size_of_their_logarithm(size: float) -> None:
    orders = np.array([1.0 + 1e-9, 1.5, 2.0, 3.0])
    curve = size * np.array([1.0, 1.1, 1.2, 1.3])
    for rate in np.geomspace(0.1, 10.0, 40).tolist():
        found = PoissonTrials(rate).selection_curve(Cost(orders, curve))
        with digits():
            for order, base, bound in zip(orders.tolist(), curve.tolist(), found, strict=True):
                assert mp.mpf(float(bound)) >= mp.mpf(rate) * mp.mpf(base) * (1 - mp.mpf(10) ** -30), order


@pytest.mark.parametrize("gamma", [0.5, 1e-6, 1e-100, 2.0950625201902442e-276])
@pytest.mark.parametrize("eta", [-1.0 + 4.3e-15, -0.9, -0.5, 1e-9, 1.0])
def test_the_mean_s_own_rounding_is_covered_where_it_is_divided_by_little(eta: float, gamma: float) -> None:
    excess = 2.0**-40
    base = Cost(np.array([1.0 + excess]), np.array([1e-30]))
    found = TruncatedNegativeBinomial(eta, gamma).selection_curve(base)
    with digits(400):
        power, shape = mp.mpf(gamma), mp.mpf(eta)
        mean = shape * (1 - power) / (power * (1 - power**shape))
        assert mp.mpf(float(found[0])) >= mp.log(mean) / excess


@pytest.mark.parametrize("eta", [-1.0 + 1e-15, -0.9999, 0.0])
def test_a_mean_that_is_no_float_is_refused(eta: float) -> None:
    with pytest.raises(InvalidInput, match="gamma"):
        TruncatedNegativeBinomial(eta, 1e-310)


@pytest.mark.parametrize("rate", [1e-307, 3e-310, 1e-322])
def test_a_mean_that_is_hardly_a_float_is_not_undercut(rate: float) -> None:
    orders = np.array([1.0 + 1e-9, 1.0 + 1e-6, 2.0])
    found = PoissonTrials(rate).selection_curve(gaussian_cost(1.0, orders))
    with digits():
        for order, bound in zip(orders.tolist(), found.tolist(), strict=True):
            excess = mp.mpf(order) - 1
            assert mp.mpf(bound) >= mp.mpf(rate) * mp.expm1(excess * mp.mpf(order) / 2) / excess
