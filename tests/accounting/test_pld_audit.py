"""What auditors ask of a profile: rates of attacks, advantage and a Gaussian to compare with."""

import math

import numpy as np
import pytest
from scipy import special

from dpledger.accounting.errors import InvalidInput
from dpledger.accounting.gaussian_profile import gaussian_delta
from dpledger.accounting.mechanisms import Approximate, Gaussian, RandomizedResponse
from dpledger.accounting.pld.audit import advantage, equivalent_mu, profile_grid, true_positive_rates
from dpledger.accounting.pld.plan import PlanLoss
from dpledger.accounting.sampling import Sample, Scheme
from dpledger.accounting.steps import Release, Step
from tests.accounting import pld_references as exact
from tests.accounting.pld_references import mp

RATES = [0.0, 1e-6, 1e-3, 0.01, 0.2, 0.5, 0.9, 1.0]


@pytest.mark.parametrize("mu", [0.05, 0.5, 1.0, 3.0])
def test_rates_of_a_gaussian_are_its_trade_off_curve(mu: float) -> None:
    """The best test at a false-positive rate x has Φ(Φ⁻¹(x) + μ): never below, at most 1 % above."""
    found = true_positive_rates(PlanLoss([], mu=mu), RATES)
    best = special.ndtr(special.ndtri(np.array(RATES)) + mu)
    assert (found >= best * (1.0 - 1e-12)).all()
    assert (found <= best * 1.01 + 1e-12).all()


def test_rates_of_randomized_response_are_its_two_tests() -> None:
    plan = PlanLoss([(Step((Release(RandomizedResponse(1.0)),)), 1)])
    rates = [0.0, 0.1, 1.0 / (1.0 + math.e), 0.6]
    true = [0.0, 0.1 * math.e, math.e / (1.0 + math.e), 1.0 - 0.4 / math.e]
    found = true_positive_rates(plan, rates)
    assert found == pytest.approx(true, rel=1e-3, abs=1e-12)
    assert (found >= np.array(true) * (1.0 - 1e-12)).all()


def test_no_attack_on_a_sample_exceeds_the_rates() -> None:
    """Threshold tests of the likelihood ratio, both neighbours in turn."""
    plan = PlanLoss([(Step((Release(Gaussian(1.0, 1.0)),), Sample(Scheme.POISSON, 0.2)), 1)])
    for at in np.linspace(-2.0, 4.0, 13):
        beyond = [float(special.ndtr(-(at - shift))) for shift in (0.0, 1.0)]
        mixture = 0.8 * beyond[0] + 0.2 * beyond[1]
        assert mixture <= true_positive_rates(plan, [beyond[0]])[0]
        assert 1.0 - beyond[0] <= true_positive_rates(plan, [1.0 - mixture])[0]


def test_advantage_is_the_total_variation() -> None:
    found = advantage(PlanLoss([], mu=0.7))
    truth = exact.gaussian(0.7)(mp.mpf(0))
    assert truth <= mp.mpf(found) <= truth * 1.001


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-5), (0.0, 0.3), (8.0, 1e-12), (0.01, 1e-300)])
def test_the_equivalent_gaussian_passes_through_the_point(epsilon: float, delta: float) -> None:
    found = equivalent_mu(epsilon, delta)
    assert exact.gaussian(found)(mp.mpf(epsilon)) >= mp.mpf(delta)
    assert gaussian_delta(epsilon, found * (1.0 - 1e-7)) < delta


def test_an_equivalent_gaussian_gives_back_its_own_mu() -> None:
    assert equivalent_mu(2.0, gaussian_delta(2.0, 0.8)) == pytest.approx(0.8, rel=1e-8)


def test_the_grid_ends_where_delta_is_small_or_falls_no_further() -> None:
    grid = profile_grid(PlanLoss([], mu=1.0), least_delta=1e-9, points=33)
    assert grid[0] == 0.0
    assert grid.size == 33
    assert PlanLoss([], mu=1.0).delta(float(grid[-1])) <= 1e-9
    approximate = PlanLoss([(Step((Release(Approximate(0.5, 1e-6)),)), 3)])
    assert 1.4 < profile_grid(approximate)[-1] <= 1.51
    assert profile_grid(PlanLoss([(Step((Release(Gaussian(0.0, 1.0)),)), 1)]))[-1] == 1.0


@pytest.mark.parametrize("bad", [[-0.1], [1.1], [math.nan], []])
def test_rates_outside_the_unit_interval_are_refused(bad: list[float]) -> None:
    with pytest.raises(InvalidInput, match="false_positive_rates"):
        true_positive_rates(PlanLoss([], mu=1.0), bad)
