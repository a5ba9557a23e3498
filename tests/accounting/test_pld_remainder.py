"""Adaptive parts beside a plan: against exact references, and attacked by exact enumeration."""

import functools
import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy import special

from dpledger.accounting.conversion.zcdp import zcdp_epsilon
from dpledger.accounting.errors import InvalidInput
from dpledger.accounting.gaussian_profile import gaussian_epsilon
from dpledger.accounting.mechanisms import Gaussian, Laplace, Pure, RandomizedResponse
from dpledger.accounting.mechanisms.base import Mechanism
from dpledger.accounting.pld.concentrated import ConcentratedPair
from dpledger.accounting.pld.plan import PlanLoss
from dpledger.accounting.sampling import Sample, Scheme
from dpledger.accounting.steps import Release, Step
from tests.accounting import pld_references as exact
from tests.accounting.pld_references import mp


def step(mechanism: Mechanism, rate: float | None = None) -> Step:
    return Step((Release(mechanism),), Sample() if rate is None else Sample(Scheme.POISSON, rate))


@pytest.mark.parametrize("rho", [1e-6, 0.01, 0.5, 5.0, 60.0])
def test_no_order_gives_less_than_the_reference(rho: float) -> None:
    """The reference itself: no α on a fine grid does better, and one of them nearly as well."""
    for t in (-1.0, 0.1, 2.0, 9.0):
        found = exact.by_orders(rho)(mp.mpf(t))
        orders = 1.0 + np.geomspace(1e-9, 1e7, 20_001)
        scale = (orders - 1.0) * np.log(orders - 1.0) - orders * np.log(orders)
        least = float((scale + (orders - 1.0) * (orders * rho - t)).min())
        assert float(mp.log(found)) >= least - 1e-4 * (1.0 + abs(least))
        assert float(mp.log(found)) <= least + 1e-9 * (1.0 + abs(least))


@pytest.mark.parametrize("rho", [1e-6, 0.01, 0.5, 5.0, 60.0])
def test_the_closed_form_is_the_least_over_all_orders(rho: float) -> None:
    """P and Q tails of the pair give back the bound by orders, its mirror image and the chord between."""
    pair, truth = ConcentratedPair(rho), exact.concentrated(rho)
    high = pair.span(1e-18)[1]
    for share in (-0.9, -0.3, -1e-3, 0.0, 1e-3, 0.2, 0.6, 0.95):
        at = share * high
        cells = pair.cells(np.array([at - 1.0, at, high]))
        found = cells.excess[1] + cells.high[0] - math.exp(at) * cells.high[1]
        error = cells.excess_error[1] + 1e-12 * (cells.high[0] + cells.edge_error)
        assert abs(mp.mpf(found) - truth(mp.mpf(at))) <= error + 1e-13 * found


@pytest.mark.parametrize("rho", [1e-20, 1e-9, 1e-3, 0.1, 0.7, 3.0, 30.0, 128.0])
def test_the_measures_have_a_total_just_above_one_and_are_their_own_mirror(rho: float) -> None:
    pair = ConcentratedPair(rho)
    root = mp.mpf(pair._least)
    total = mp.exp(-mp.mpf(rho) * root**2) + mp.exp(-mp.mpf(rho) * (1 + root) ** 2)
    assert 0 <= total - 1 < 1e-13
    low, high = pair.span(1e-30)
    assert pair.anchor > 0.0
    assert pair.reversed_span(1e-30) == (-high, -low)
    edges = np.linspace(-high, high, 41)
    cells = pair.cells(edges)
    assert cells.p == pytest.approx(cells.q[::-1], rel=1e-9, abs=1e-200)
    assert float(cells.p.sum()) + cells.low[0] + cells.high[0] == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("rho", [1e-4, 0.02, 0.5, 4.0])
@pytest.mark.parametrize("delta", [0.05, 1e-5, 1e-12])
def test_a_remainder_alone_is_the_exact_conversion(rho: float, delta: float) -> None:
    found = PlanLoss([], rho=rho).epsilon_bounds(delta)
    truth = zcdp_epsilon(rho, delta)
    assert found.lower <= truth <= found.upper * (1.0 + 1e-12)
    assert found.upper <= truth * (1.0 + 1e-3)
    if found.upper > 0.0:
        assert exact.by_orders(rho)(mp.mpf(found.upper)) <= mp.mpf(delta)


@pytest.mark.parametrize("mu", [0.01, 0.3, 1.0, 3.0])
@pytest.mark.parametrize("delta", [1e-2, 1e-6, 1e-12])
def test_one_gaussian_that_spends_it_all_is_never_above(mu: float, delta: float) -> None:
    assert gaussian_epsilon(mu, delta) <= PlanLoss([], rho=mu * mu / 2.0).epsilon(delta)
    base = [(step(RandomizedResponse(0.4)), 2)]
    both = PlanLoss(base, rho=mu * mu / 2.0).epsilon(delta)
    assert PlanLoss(base, mu=mu).epsilon_bounds(delta).lower <= both


@pytest.mark.parametrize(
    ("mu", "rho", "delta"), [(0.5, 0.02, 1e-5), (1.5, 0.3, 1e-3), (0.1, 0.5, 1e-9), (2.0, 1e-4, 1e-6)]
)
def test_gaussians_and_a_remainder_by_quadrature(mu: float, rho: float, delta: float) -> None:
    """Never below, and within 0.1 % above; the Gaussians fixed, or a cap."""
    truth = exact.with_gaussian(exact.concentrated(rho), mu)
    for plan in (PlanLoss([(step(Gaussian(mu / 2.0, 1.0)), 4)], rho=rho), PlanLoss([], mu=mu, rho=rho)):
        found = plan.epsilon_bounds(delta)
        assert truth(mp.mpf(found.upper)) <= mp.mpf(delta)
        assert truth(mp.mpf(found.lower)) >= mp.mpf(delta)
        assert plan.epsilon(delta) - found.lower <= 1e-3 * found.lower


def test_responses_and_laplace_beside_a_remainder_by_enumeration() -> None:
    truth = exact.with_responses(exact.concentrated(0.05), [(0.5, 1e-9)] * 2 + [(0.2, 0.0)])
    parts = [(step(RandomizedResponse(0.2)), 1)]
    parts += [(step(Pure(0.5)), 2)]
    found = PlanLoss(parts, rho=0.05).epsilon_bounds(1e-4)
    plain = exact.with_responses(exact.concentrated(0.05), [(0.5, 0.0)] * 2 + [(0.2, 0.0)])
    assert plain(mp.mpf(found.upper)) <= mp.mpf(1e-4) <= plain(mp.mpf(found.lower))
    assert truth(mp.mpf(found.upper)) > plain(mp.mpf(found.upper))
    beside = exact.with_laplace(exact.concentrated(0.05), 0.4)
    found = PlanLoss([(step(Laplace(1.0, 2.5)), 1)], rho=0.05).epsilon_bounds(1e-4)
    assert beside(mp.mpf(found.upper)) <= mp.mpf(1e-4) <= beside(mp.mpf(found.lower))
    assert found.upper - found.lower <= 1e-3 * found.upper


def test_a_cap_adds_to_the_gaussians_of_the_plan() -> None:
    fixed = PlanLoss([(step(Gaussian(0.3, 1.0)), 1)], mu=0.4)
    assert fixed.epsilon(1e-6) == pytest.approx(PlanLoss([], mu=0.5).epsilon(1e-6), rel=1e-9)
    assert len(fixed.directions) == 1
    sampled = [(step(Gaussian(1.0, 1.1), 0.01), 3097)]
    assert PlanLoss(sampled, mu=0.293).epsilon(1e-5) == pytest.approx(3.0, abs=2e-3)


Outcomes = tuple[tuple[float, float], ...]


def rho_of(outcomes: Outcomes) -> float:
    """sup over α of D_α/α in both directions, over a grid of orders and the ends, rounded up."""
    p, q = (np.array([each[side] for each in outcomes]) for side in (0, 1))
    orders = 1.0 + np.geomspace(1e-6, 1e4, 4000)
    worst = float(np.abs(np.log(p / q)).max()) / orders[-1]
    for first, second in ((p, q), (q, p)):
        logs = orders[:, None] * np.log(first) + (1.0 - orders[:, None]) * np.log(second)
        top = logs.max(axis=1)
        moments = np.log(np.exp(logs - top[:, None]).sum(axis=1)) + top
        worst = max(worst, float((moments / (orders * (orders - 1.0))).max()))
        worst = max(worst, float(first @ np.log(first / second)))
    return float(worst) * (1.0 + 2e-5)


def binary(p: float, q: float) -> Outcomes:
    return ((p, q), (1.0 - p, 1.0 - q))


ACTIONS = [
    binary(0.6, 0.4),
    binary(0.55, 0.5),
    binary(0.5, 0.45),
    binary(0.02, 0.005),
    binary(0.995, 0.98),
    binary(0.2, 0.05),
    ((0.5, 0.45), (0.3, 0.3), (0.2, 0.25)),
]


@pytest.mark.parametrize("rho", [0.02, 0.1, 0.4])
@pytest.mark.parametrize("epsilon", [0.0, 0.7, 1.5, 2.5])
def test_no_adaptive_strategy_exceeds_delta(rho: float, epsilon: float) -> None:
    """The best of all strategies of up to three rounds, with the plan's steps taken whenever it suits.

    Σ(P − γQ)₊ over leaves is maximised branch by branch: each round takes a step of the plan, a mechanism
    whose exact ρ still fits, or spends all that is left on one Gaussian and stops.
    """
    priced = [(each, rho_of(each)) for each in ACTIONS]
    response = binary(1.0 / (1.0 + math.exp(-0.8)), 1.0 / (1.0 + math.exp(0.8)))
    gamma = math.exp(epsilon)

    @functools.cache
    def best(loss: float, left: float, steps: int, rounds: int) -> float:
        """The most (P − γQ)₊ per unit of P at a node with this loss so far."""
        found = max(1.0 - gamma * math.exp(-loss), 0.0)
        if left > 0.0:
            found = max(found, _gaussian(epsilon - loss, math.sqrt(2.0 * left)))
        if rounds:
            moves = [(each, price, 0) for each, price in priced if price <= left]
            moves += [(response, 0.0, 1)] if steps else []
            for outcomes, price, used in moves:
                values = [
                    p * best(round(loss + math.log(p / q), 12), left - price, steps - used, rounds - 1)
                    for p, q in outcomes
                ]
                found = max(found, math.fsum(values))
        return found

    strongest = best(0.0, rho, 2, 4)
    bound = PlanLoss([(step(RandomizedResponse(0.8)), 2)], rho=rho).delta(epsilon)
    assert strongest <= bound
    assert strongest > 0.3 * bound or bound < 1e-4


def _gaussian(threshold: float, mu: float) -> float:
    """H of a Gaussian at any threshold, in floats, rounded down a little."""
    near, far = (float(special.ndtr(side * mu / 2.0 - threshold / mu)) for side in (1.0, -1.0))
    return (near - math.exp(threshold) * far) * (1.0 - 1e-9)


def test_adaptive_gaussians_within_a_cap_never_exceed_delta() -> None:
    """Two Gaussians, the second sized by whether the first was large: simulated by exact quadrature."""
    mu, epsilon = 1.0, mp.mpf(1)
    bound = PlanLoss([(step(RandomizedResponse(0.5)), 1)], mu=mu).delta(float(epsilon))

    def after(loss: Any, left: Any) -> Any:
        """The response is asked if it helps, the rest of the cap is spent or not."""
        options = [max(1 - mp.exp(epsilon - loss), mp.mpf(0))]
        if left > 0:
            options.append(exact.with_responses(exact.gaussian(left), [(0.5, 0.0)])(epsilon - loss))
        return max(options)

    for share, cut in itertools.product((0.3, 0.6, 0.9), (-0.5, 0.5)):
        m = mp.mpf(share)
        rest = mp.sqrt(1 - m * m)

        def value(z: Any, m: Any = m, rest: Any = rest, cut: float = cut) -> Any:
            spend = rest if z > cut else rest / 2
            return mp.npdf(z) * after(m * z + m * m / 2, spend)

        attack = mp.quad(value, [-10, cut, 10], maxdegree=5)
        assert 0.5 * bound < attack <= bound


@pytest.mark.parametrize("bad", [math.nan, -1e-9, math.inf, -math.inf, 1e300, 1e4, True, "1"])
def test_caps_that_no_grid_holds_are_refused(bad: Any) -> None:
    parts = [(step(Gaussian(0.1, 1.0)), 1)]
    with pytest.raises(InvalidInput, match="mu"):
        PlanLoss(parts, mu=bad)
    with pytest.raises(InvalidInput, match="rho"):
        PlanLoss([], rho=bad)


def test_no_parts_and_no_caps_are_refused() -> None:
    for caps in ({}, {"mu": 0.0}, {"rho": 0.0, "mu": -0.0}):
        with pytest.raises(InvalidInput, match="at least one or a cap"):
            PlanLoss([], **caps)
    assert PlanLoss([(step(Pure(0.0)), 1)], rho=0.0).epsilon(1e-6) == 0.0


@pytest.mark.parametrize(
    ("mu", "rho"), [(1e-200, 0.0), (0.0, 1e-200), (0.0, 1e-20), (16.0, 0.0), (0.0, 128.0)]
)
def test_the_extremes_of_what_is_allowed(mu: float, rho: float) -> None:
    plan = PlanLoss([], mu=mu, rho=rho)
    found = plan.epsilon(1e-6)
    assert math.isfinite(found)
    assert found >= (gaussian_epsilon(mu, 1e-6) if mu else zcdp_epsilon(rho, 1e-6)) * (1.0 - 1e-12)
    assert plan.delta(found) <= 1.01e-6


@pytest.mark.parametrize("caps", [{}, {"mu": 0.2}, {"rho": 0.02}, {"mu": 0.1, "rho": 0.01}])
def test_a_profile_is_the_deltas_at_its_points(caps: dict[str, float]) -> None:
    plan = PlanLoss([(step(Gaussian(1.0, 1.1), 0.01), 800), (step(Laplace(1.0, 8.0)), 3)], **caps)
    epsilons = np.linspace(0.0, 4.0, 41)
    found = plan.profile(epsilons)
    assert (np.diff(found) <= 0.0).all()
    for at, value in zip(epsilons.tolist()[::5], found.tolist()[::5], strict=True):
        bounds = plan.delta_bounds(at)
        assert bounds.lower <= value <= bounds.upper * 1.01


def test_a_profile_of_one_gaussian_is_exact() -> None:
    epsilons = np.array([3.0, 0.0, 1.0, 6.0])
    found = PlanLoss([], mu=1.0).profile(epsilons)
    for at, value in zip(epsilons.tolist(), found.tolist(), strict=True):
        truth = exact.gaussian(1.0)(mp.mpf(at))
        assert truth <= mp.mpf(value) <= truth * 1.01
    assert PlanLoss([(step(Pure(0.0)), 1)]).profile([0.0, 1.0]).tolist() == [0.0, 0.0]
    assert PlanLoss([(step(RandomizedResponse(0.5)), 1)]).profile([2.0, 3.0]).max() <= 1e-280
    for bad in ([-1.0, 0.0], [math.nan], [math.inf], []):
        with pytest.raises(InvalidInput, match="epsilons"):
            PlanLoss([], mu=1.0).profile(bad)
