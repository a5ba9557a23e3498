"""Privacy-loss distributions against exact references: never on the wrong side, and within 0.1 %."""

import itertools
import math
import random
import sys
import tracemalloc
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import special

from dpledger.accounting.errors import AdjacencyMismatch, InvalidInput, Unproven
from dpledger.accounting.mechanisms import (
    GDP,
    RDP,
    ZCDP,
    AboveThreshold,
    Approximate,
    DiscreteGaussian,
    Exponential,
    Gaussian,
    Laplace,
    NoisyMax,
    NoisyVotes,
    OutputMixture,
    ProposeTestRelease,
    Pure,
    RandomizedResponse,
)
from dpledger.accounting.mechanisms.base import Mechanism
from dpledger.accounting.pld.cells import ROUNDING
from dpledger.accounting.pld.discretization import infinite_mass
from dpledger.accounting.pld.distribution import (
    PrivacyLossDistribution,
    _Band,
    _Grid,
    _log_tail,
    _Tail,
    _Test,
)
from dpledger.accounting.pld.moments import Cumulants, Shape
from dpledger.accounting.pld.pairs import GaussianPair, ReversedPair, randomized_response_pair
from dpledger.accounting.pld.plan import PlanLoss
from dpledger.accounting.pld.sampled import PoissonPair, SymmetricPair
from dpledger.accounting.pld.transform import Factor, tilt_factor, tilted_spectrum, tilted_sum
from dpledger.accounting.sampling import Adjacency, Sample, Scheme
from dpledger.accounting.steps import Release, Step
from tests.accounting import pld_references as exact
from tests.accounting.pld_references import mp

REPLACE = Adjacency.REPLACE_ONE
GAP = 1e-3
CUMULANTS = Cumulants([(GaussianPair(1.0), 1)], 1e-9)
Parts = list[tuple[Step, int]]


def step(*mechanisms: Mechanism, rate: float | None = None, replace: bool = False, count: int = 1) -> Step:
    scheme = Scheme.WITHOUT_REPLACEMENT if replace else Scheme.POISSON
    sample = Sample() if rate is None else Sample(scheme, rate)
    releases = tuple(Release(mechanism, count) for mechanism in mechanisms)
    return Step(releases, sample, REPLACE if replace else Adjacency.ADD_REMOVE)


def assert_bounds(parts: Parts, profiles: list[exact.Profile], delta: float, *, gap: float = GAP) -> None:
    """ε(δ) from both sides, and δ at that ε; the plan's truth is the larger of the directions'."""

    def truth(epsilon: float) -> Any:
        return max(profile(mp.mpf(epsilon)) for profile in profiles)

    plan = PlanLoss(parts)
    found = plan.epsilon_bounds(delta)
    assert truth(found.upper) <= mp.mpf(delta)
    assert found.lower == 0.0 or truth(found.lower) >= mp.mpf(delta)
    assert found.upper - found.lower <= gap * found.upper
    alone = plan.epsilon(delta)
    assert truth(alone) <= mp.mpf(delta)
    assert alone - found.lower <= gap * alone
    for epsilon in (found.upper, 0.5 * found.upper):
        bounds = plan.delta_bounds(epsilon)
        assert bounds.lower <= truth(epsilon) <= bounds.upper
        assert plan.delta(epsilon) >= truth(epsilon)


@pytest.mark.parametrize("delta", [0.1, 1e-5, 1e-12, 1e-15])
@pytest.mark.parametrize(("mu", "times"), [(0.3, 1), (0.01, 400), (4.0, 3), (1e-3, 10**6)])
def test_gaussians_are_their_closed_form(mu: float, times: int, delta: float) -> None:
    parts = [(step(Gaussian(mu, 1.0)), times)]
    assert_bounds(parts, [exact.gaussian(mu * math.sqrt(times))], delta)


@pytest.mark.parametrize("delta", [0.05, 1e-5, 1e-12, 1e-15])
@pytest.mark.parametrize(("epsilon", "times"), [(1.0, 1), (0.5, 30), (0.05, 400), (3.0, 5)])
def test_randomized_responses_are_the_binomial_sum(epsilon: float, times: int, delta: float) -> None:
    parts = [(step(RandomizedResponse(epsilon)), times)]
    assert_bounds(parts, [exact.binomial_responses(epsilon, times)], delta)


@pytest.mark.parametrize("delta", [1e-2, 1e-6, 1e-12])
def test_laplace_once_and_twice(delta: float) -> None:
    assert_bounds([(step(Laplace(1.0, 2.0)), 1)], [exact.laplace(0.5)], delta)
    twice = exact.with_laplace(exact.laplace(0.5), 0.5)
    assert_bounds([(step(Laplace(1.0, 2.0)), 2)], [twice], delta)
    assert_bounds([(step(NoisyVotes("laplace", scale=2.0)), 1)], [twice], delta)


@pytest.mark.parametrize("delta", [1e-2, 1e-6, 1e-12])
@pytest.mark.parametrize(("rate", "mu"), [(0.01, 1.0), (0.3, 2.0), (0.9, 0.5), (1e-4, 5.0)])
def test_one_poisson_gaussian_in_both_directions(rate: float, mu: float, delta: float) -> None:
    sampled = exact.poisson(exact.gaussian(mu), rate)
    assert_bounds([(step(Gaussian(mu, 1.0), rate=rate), 1)], [sampled, exact.reverse(sampled)], delta)


@pytest.mark.parametrize("delta", [1e-2, 1e-6, 1e-12])
@pytest.mark.parametrize(("rate", "mu"), [(0.01, 1.0), (0.3, 2.0), (0.9, 0.5)])
def test_one_gaussian_without_replacement(rate: float, mu: float, delta: float) -> None:
    sampled = exact.symmetric(exact.poisson(exact.gaussian(mu), rate))
    assert_bounds([(step(Gaussian(mu, 1.0), rate=rate, replace=True), 1)], [sampled], delta)


CONTINUOUS = ("gaussian", "laplace", "bounded-range", "poisson", "poisson-laplace", "without-replacement")


def drawn_plan(random_: random.Random) -> tuple[Parts, list[exact.Profile]]:
    """One continuous item, responses, and sometimes a Laplace release or a selection beside it."""
    kind = random_.choice(CONTINUOUS)
    size = math.exp(random_.uniform(-2.5, 1.0))
    rate = math.exp(random_.uniform(-5.0, -0.1))
    replace = kind == "without-replacement"
    base: dict[str, tuple[Step, exact.Profile]] = {
        "gaussian": (step(Gaussian(size, 1.0)), exact.gaussian(size)),
        "laplace": (step(Laplace(size, 1.0)), exact.laplace(size)),
        "bounded-range": (step(Exponential(size)), exact.bounded_range(size)),
        "poisson": (step(Gaussian(size, 1.0), rate=rate), exact.poisson(exact.gaussian(size), rate)),
        "poisson-laplace": (step(Laplace(size, 1.0), rate=rate), exact.poisson(exact.laplace(size), rate)),
        "without-replacement": (
            step(Gaussian(size, 1.0), rate=rate, replace=True),
            exact.symmetric(exact.poisson(exact.gaussian(size), rate)),
        ),
    }
    first, profile = base[kind]
    profiles = [profile, exact.reverse(profile)] if kind.startswith("poisson") else [profile]
    parts: Parts = [(first, 1)]
    responses: list[tuple[float, float]] = []
    for _ in range(random_.randrange(3)):
        epsilon, times = math.exp(random_.uniform(-3.0, 0.5)), random_.randrange(1, 4)
        delta = random_.choice([0.0, 0.0, 1e-15, 1e-9])
        parts.append((_moved(step(Approximate(epsilon, delta)), replace), times))
        responses += [(epsilon, delta)] * times
    if random_.random() < 0.3:
        size = math.exp(random_.uniform(-2.0, 0.0))
        extra = random_.choice(["laplace", "bounded-range"])
        beside = Laplace(size, 1.0) if extra == "laplace" else Exponential(size)
        parts.append((_moved(step(beside), replace), 1))
        wrap = exact.with_laplace if extra == "laplace" else exact.with_bounded_range
        profiles = [wrap(each, size) for each in profiles]
    return parts, [exact.with_responses(each, responses) for each in profiles]


def _moved(plain: Step, replace: bool) -> Step:
    return Step(plain.releases, plain.sample, REPLACE) if replace else plain


@dataclass(frozen=True)
class Drawn:
    """What was seen of a drawn plan: whether each bound is on its side, and how far apart they are."""

    on_its_side: bool
    excess: float
    near_zero: bool


def look_at_drawn(seed: int) -> Drawn:
    """Both bounds on ε, and ε alone, which has a grid of its own."""
    random_ = random.Random(seed)
    parts, profiles = drawn_plan(random_)
    delta = math.exp(random_.uniform(math.log(1e-12), math.log(0.2)))

    def truth(epsilon: float) -> Any:
        return max(profile(mp.mpf(epsilon)) for profile in profiles)

    plan = PlanLoss(parts)
    found, alone = plan.epsilon_bounds(delta), plan.epsilon(delta)
    if math.isinf(found.upper) or math.isinf(alone):
        return Drawn(found.upper == alone and delta <= float(truth(700)) * (1.0 + 1e-5), 0.0, False)
    below = found.lower == 0.0 or truth(found.lower) >= mp.mpf(delta)
    above = truth(found.upper) <= mp.mpf(delta) and truth(alone) <= mp.mpf(delta)
    largest = max(alone, found.upper)
    excess = (largest - found.lower) / largest if largest > 0.0 else 0.0
    # Where δ(0) is within 0.1 % of δ a relative gap in ε says nothing.
    near_zero = largest < 0.01 and bool(truth(0.0) <= mp.mpf(delta) * (1 + GAP))
    return Drawn(bool(below and above), excess, near_zero)


def check_drawn(seed: int) -> None:
    found = look_at_drawn(seed)
    assert found.on_its_side
    assert found.excess <= GAP or found.near_zero


@pytest.mark.parametrize("seed", [136, 596, 1096, 5477, 3548, 549, 2370, 2590, 2955, 3584, 6788])
def test_plans_that_were_once_loose(seed: int) -> None:
    """1096: an edge of the rough moments lay next to 0, and the search began at a senseless tilt.

    136: the largest possible sum was the window's end, and at a small tilt what lay below folded onto it.
    596, 5477: two or three losses, whose saddle point lay above the answer, and so did the floor.
    3548: ε lay near 0, and its grid was as wide as itself.
    From 549 on: the rounding of the transform decided, since few losses are hardly damped by a tilt.
    """
    check_drawn(seed)


@pytest.mark.parametrize("block", range(10))
def test_drawn_plans_are_between_the_bounds_and_within_a_thousandth(block: int) -> None:
    for seed in range(15 * block, 15 * (block + 1)):
        check_drawn(seed)


@pytest.mark.parametrize(("times", "delta", "published"), [(1000, 1e-5, 1.5154), (10_000, 1e-5, 5.1926)])
def test_published_epsilon_of_dp_sgd(times: int, delta: float, published: float) -> None:
    found = PlanLoss([(step(Gaussian(1.0, 1.1), rate=0.01), times)]).epsilon_bounds(delta)
    assert found.upper <= published * (1.0 + 1e-4)
    assert found.upper - found.lower <= GAP * found.upper


def test_a_finer_tolerance_is_at_most_the_published_figure() -> None:
    plan = PlanLoss([(step(Gaussian(1.0, 1.1), rate=0.01), 1000)])
    assert plan.epsilon(1e-5, tolerance=1e-5) <= 1.5154


def test_the_directions_differ_and_the_larger_counts() -> None:
    plan = PlanLoss([(step(Gaussian(1.0, 1.1), rate=0.01), 1000)])
    remove, add = plan.directions
    assert add.epsilon(1e-5) < 0.9 * remove.epsilon(1e-5)
    assert plan.epsilon(1e-5) == remove.epsilon(1e-5)


def test_several_releases_on_one_sample_are_one_item() -> None:
    """Gaussians add their μ²; of other kinds the product is sampled, here against quadrature."""
    together = step(Gaussian(1.0, 1.0), Gaussian(2.0, 1.0), rate=0.1)
    root = step(Gaussian(math.sqrt(5.0), 1.0), rate=0.1)
    assert PlanLoss([(together, 10)]).epsilon(1e-6) == pytest.approx(PlanLoss([(root, 10)]).epsilon(1e-6))
    both = exact.poisson(exact.with_laplace(exact.gaussian(1.0), 0.5), 0.1)
    mixed = step(Gaussian(1.0, 1.0), Laplace(1.0, 2.0), rate=0.1)
    assert_bounds([(mixed, 1)], [both, exact.reverse(both)], 1e-6)
    responses = exact.with_responses(exact.nothing, [(0.5, 1e-9)] * 3)
    sampled = exact.poisson(responses, 0.1)
    repeated = step(Approximate(0.5, 1e-9), rate=0.1, count=3)
    assert_bounds([(repeated, 1)], [sampled, exact.reverse(sampled)], 1e-6)


def test_one_sample_twice_is_not_two_samples() -> None:
    """soundness: q = 0.01, μ = 5: δ(0) is 0.0100 for one sample, 0.0196 for two."""
    one = step(Gaussian(1.0, math.sqrt(2.0) / 5.0), rate=0.01, count=2)
    two = step(Gaussian(1.0, 1.0 / 5.0), rate=0.01)
    assert PlanLoss([(one, 1)]).delta(0.0) == pytest.approx(0.0099, abs=2e-4)
    assert PlanLoss([(two, 2)]).delta(0.0) == pytest.approx(0.0196, abs=2e-4)


def test_output_mixture_is_its_mixture_of_gaussians() -> None:
    mechanism = OutputMixture(1.0, (1.0, 0.5, 0.0), (0.2, 0.3, 0.5))
    profile = exact.mixed([(0.2, exact.gaussian(1.0)), (0.3, exact.gaussian(0.5)), (0.5, exact.nothing)])
    plain = Step((Release(mechanism),), Sample(), REPLACE)
    assert_bounds([(plain, 1)], [profile], 1e-5)
    with pytest.raises(AdjacencyMismatch, match="replace-one"):
        PlanLoss([(Step((Release(mechanism),)), 1)])


@pytest.mark.parametrize("noise_std", [0.3, 1.0, 7.5])
@pytest.mark.parametrize("moved", [1, 2, 3])
def test_discrete_gaussian_by_enumeration(noise_std: float, moved: int) -> None:
    variance = mp.mpf(noise_std) ** 2
    reach = math.ceil(40 * noise_std) + 3
    weights = {x: mp.exp(-(mp.mpf(x) ** 2) / (2 * variance)) for x in range(-reach, reach + 1)}
    total = mp.fsum(weights.values())
    sums: dict[int, Any] = {0: mp.mpf(1)}
    for _ in range(moved):
        grown: dict[int, Any] = {}
        for (at, mass), (x, weight) in itertools.product(sums.items(), weights.items()):
            if mass * weight > 1e-40:
                grown[at + x] = grown.get(at + x, 0) + mass * weight / total
        sums = grown

    def truth(s: Any) -> Any:
        # Under the moved law x + 1 has x's weight; each loss is (x + 1/2)/σ².
        losses = [((at + mp.mpf(moved) / 2) / variance, mass) for at, mass in sums.items()]
        return mp.fsum(mass * (1 - mp.exp(s - loss)) for loss, mass in losses if loss > s)

    parts = [(step(DiscreteGaussian(math.sqrt(moved), noise_std)), 1)]
    assert_bounds(parts, [truth], 1e-6)


@pytest.mark.parametrize("own", [0.4, 0.6, 0.9])
def test_a_step_that_mostly_shows_everything_is_charged_for_all_of_it(own: float) -> None:
    for times in (1, 2):
        plan = PlanLoss([(step(Approximate(0.5, own)), times)])
        everything = 1.0 - (1.0 - own) ** times
        assert plan.epsilon(0.99 * everything) == math.inf
        bounds = plan.delta_bounds(2.0)
        assert bounds.lower <= everything * (1.0 + 1e-15)
        assert everything <= bounds.upper <= everything + 1e-9
        assert plan.profile([2.0])[0] >= everything


@pytest.mark.parametrize(("mu", "times"), [(1.0, 1), (0.1, 1), (0.5, 4)])
def test_a_profile_far_out_is_not_below_the_truth_near_zero(mu: float, times: int) -> None:
    """Tilted for the largest ε, most of the mass is too small for a float: it is not to be forgotten."""
    whole = mu * math.sqrt(times)
    truth = exact.gaussian(whole)
    for largest in (18.0, 26.0, 30.0):
        epsilons = whole * np.array([0.0, 0.3, 1.0, 3.0, largest])
        found = PrivacyLossDistribution([(GaussianPair(mu), times)]).profile(epsilons)
        for epsilon, bound in zip(epsilons.tolist(), found.tolist(), strict=True):
            assert bound >= truth(mp.mpf(epsilon))
            assert epsilon == epsilons[-1] or bound <= truth(mp.mpf(epsilon)) * 3


@pytest.mark.parametrize("rate", [0.999, 1.0 - 1e-6])
def test_a_record_added_to_nearly_every_sample_is_charged_for_the_rounding_of_its_loss(rate: float) -> None:
    """Near its largest loss, −log(1 − q), e^loss is that of a difference: it moves by 1e-16/(1 − q)."""
    for epsilon in (20.0, 600.0):
        pair = PrivacyLossDistribution(
            [(ReversedPair(PoissonPair(randomized_response_pair(epsilon), rate)), 1)]
        )
        with mp.workdps(600):
            truth = exact.reverse(exact.poisson(exact.binomial_responses(epsilon, 1), rate))
            q, base = mp.mpf(rate), mp.mpf(epsilon)
            largest = base - mp.log(q + (1 - q) * mp.exp(base))
            for share in ("0.99", "0.9999", "0.999999"):
                at = float(largest * mp.mpf(share))
                assert pair.delta(at) >= truth(mp.mpf(at))
                assert pair.epsilon(float(truth(mp.mpf(at)))) >= at * (1.0 - 1e-14)


@pytest.mark.parametrize("replace", [False, True])
def test_a_sample_of_nearly_everything_costs_a_full_look(replace: bool) -> None:
    full = PlanLoss([(step(Laplace(1.0, 1.0)), 2)]).epsilon(1e-5)
    sampled = PlanLoss([(step(Laplace(1.0, 1.0), rate=1.0 - 1e-12, replace=replace), 2)])
    assert sampled.epsilon(1e-5) == full


def test_lower_bounds_where_no_quotient_or_product_is_a_float() -> None:
    none = _Test(np.array([1e-300]), np.array([1e300]), 0.0)
    assert none.epsilon(1e-310) == 0.0
    assert none.delta(500.0) == 0.0


def test_an_approximate_step_beyond_delta_has_no_epsilon() -> None:
    plan = PlanLoss([(step(Approximate(0.5, 1e-6)), 3)])
    assert plan.epsilon(2e-6) == math.inf
    assert plan.epsilon(3.1e-6) < math.inf
    assert plan.delta(100.0) == pytest.approx(3e-6, rel=1e-5)


@pytest.mark.parametrize(
    ("mechanism", "same"),
    [
        (Pure(0.5), RandomizedResponse(0.5)),
        (NoisyMax("laplace", 1.0, 4.0), RandomizedResponse(0.5)),
        (NoisyMax("gumbel", 1.0, 4.0), Exponential(0.5)),
        (NoisyMax("gumbel", 1.0, 2.0, monotonic=True), Exponential(0.5)),
        (GDP(0.7), Gaussian(0.7, 1.0)),
        (NoisyVotes("gaussian", noise_std=2.0), Gaussian(math.sqrt(2.0), 2.0)),
        (ProposeTestRelease(0.5, 1e-9), Approximate(0.5, 1e-9)),
    ],
)
def test_mechanisms_that_share_a_pair(mechanism: Mechanism, same: Mechanism) -> None:
    for rate in (None, 0.1):
        first, second = (PlanLoss([(step(each, rate=rate), 3)]).epsilon(1e-6) for each in (mechanism, same))
        assert first == pytest.approx(second, rel=1e-9)


@pytest.mark.parametrize(
    "mechanism",
    [
        ZCDP(0.1),
        RDP((2.0, 4.0), (0.1, 0.2)),
        DiscreteGaussian(2.0, 1.0),
        DiscreteGaussian(1.0, 1e6),
        AboveThreshold(noise="gaussian", sensitivity=1.0, rho=0.1, max_queries=3),
    ],
)
def test_what_has_no_dominating_pair_is_refused(mechanism: Mechanism) -> None:
    with pytest.raises(Unproven):
        PlanLoss([(step(mechanism), 1)])


def test_pairings_of_sample_and_adjacency_that_are_unproven_are_refused() -> None:
    sampled = Step((Release(Gaussian(1.0, 1.0)),), Sample(Scheme.POISSON, 0.1), REPLACE)
    with pytest.raises(AdjacencyMismatch, match="add-remove"):
        PlanLoss([(sampled, 1)])
    with pytest.raises(InvalidInput, match="one adjacency"):
        PlanLoss([(step(GDP(1.0)), 1), (Step((Release(GDP(1.0)),), Sample(), REPLACE), 1)])
    with pytest.raises(InvalidInput, match="one adjacency"):
        PlanLoss([])


@pytest.mark.parametrize("bad", [0.0, 1.0, -1e-5, math.nan, math.inf])
def test_a_delta_outside_the_unit_interval_is_refused(bad: float) -> None:
    plan = PlanLoss([(step(GDP(1.0)), 1)])
    with pytest.raises(InvalidInput, match="delta"):
        plan.epsilon(bad)
    with pytest.raises(InvalidInput, match="delta"):
        plan.epsilon_bounds(bad)


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
def test_an_epsilon_that_is_no_number_is_refused(bad: float) -> None:
    with pytest.raises(InvalidInput, match="epsilon"):
        PlanLoss([(step(GDP(1.0)), 1)]).delta(bad)


def test_losses_that_no_grid_holds_are_refused() -> None:
    for mechanism in (Gaussian(1.0, 1e-5), Laplace(1.0, 1e-7), DiscreteGaussian(1.0, 1e-4)):
        with pytest.raises(InvalidInput):
            PlanLoss([(step(mechanism), 1)])


def test_steps_that_lose_nothing_cost_nothing() -> None:
    free = [Gaussian(0.0, 1.0), Laplace(0.0, 1.0), Pure(0.0), DiscreteGaussian(0.5, 1.0), GDP(0.0)]
    plan = PlanLoss([(step(mechanism), 10**9) for mechanism in free] + [(step(GDP(1.0), rate=0.0), 5)])
    assert plan.epsilon(1e-5) == 0.0
    assert plan.delta(0.0) == 0.0
    assert plan.epsilon_bounds(1e-5).lower == 0.0


@pytest.mark.parametrize("delta", [1e-15, 1e-5, 0.3])
@pytest.mark.parametrize("rate", [1e-6, 0.01, 0.999999, 1.0])
@pytest.mark.parametrize("noise_std", [0.1, 1.0, 1e3, 1e6])
@pytest.mark.parametrize("times", [1, 1000, 10**6])
def test_extremes_are_between_sure_bounds(noise_std: float, rate: float, times: int, delta: float) -> None:
    """At least one step's exact ε, at most that of full samples; refused where no grid holds the losses."""
    parts = [(step(Gaussian(1.0, noise_std), rate=rate), times)]
    if times / noise_std**2 > 256.0 and rate == 1.0:
        with pytest.raises(InvalidInput):
            PlanLoss(parts)
        return
    found = PlanLoss(parts).epsilon(delta, tolerance=1e-2)
    if found == math.inf:
        assert rate * rate * times * math.expm1(min(noise_std**-2, 700.0)) > 1e6
        return
    sampled = exact.poisson(exact.gaussian(1.0 / noise_std), rate)
    assert sampled(mp.mpf(found)) <= mp.mpf(delta)
    full = exact.gaussian(math.sqrt(times) / noise_std)
    if found > 0.0:
        assert full(mp.mpf(0.95 * found)) >= mp.mpf(delta) * (1 - 1e-2) or found < 1e-9


@pytest.mark.parametrize(("rate", "times"), [(1e-6, 10**7), (1e-6, 10**8), (1e-5, 10**8), (1e-6, 10**9)])
def test_very_many_tiny_losses_have_a_bound_near_the_central_limit(rate: float, times: int) -> None:
    """So many are nearly a Gaussian of μ = q·√(n(e^(1/σ²) − 1)); a window once ended below their losses."""
    found = PlanLoss([(step(Gaussian(1.0, 1.0), rate=rate), times)]).epsilon(1e-5)
    limit = exact.gaussian(rate * math.sqrt(times * math.expm1(1.0)))
    assert limit(mp.mpf(found)) <= mp.mpf(1e-5)
    assert limit(mp.mpf(0.97 * found)) >= mp.mpf(1e-5)


def test_a_tail_bound_is_not_lost_where_moments_are_no_floats() -> None:
    """Tilted by 1,000 from the largest index, which has no mass, nothing of the moment would be left."""
    masses = np.zeros(11)
    masses[0], masses[1] = 0.5, 0.5
    assert _log_tail([Factor(masses, 2)], 100.0, 2.0) >= math.log(0.25)


def test_a_mixture_and_large_noise_without_replacement() -> None:
    """Sampled mixtures, and a pair whose losses under Q hardly ever exceed 0."""
    mechanism = OutputMixture(1.0, (1.0, 0.5), (0.4, 0.6))
    inner = exact.mixed([(0.4, exact.gaussian(1.0)), (0.6, exact.gaussian(0.5))])
    sampled = Step((Release(mechanism),), Sample(Scheme.WITHOUT_REPLACEMENT, 0.2), REPLACE)
    assert_bounds([(sampled, 1)], [exact.symmetric(exact.poisson(inner, 0.2))], 1e-5)
    strong = exact.symmetric(exact.poisson(exact.gaussian(15.0), 0.01))
    assert_bounds([(step(Gaussian(15.0, 1.0), rate=0.01, replace=True), 1)], [strong], 1e-3)


def test_normal_tails_are_as_accurate_as_the_masses_assume() -> None:
    """Relative error of a tail at most (16 + 4x²) roundings, as ``pairs._normal_error`` has it."""
    for x in np.linspace(0.0, 32.0, 641):
        truth = mp.ncdf(-mp.mpf(float(x)))
        assert abs(mp.mpf(float(special.ndtr(-x))) / truth - 1) <= (16 + 4 * x * x) * ROUNDING


@pytest.mark.parametrize(("mu", "width"), [(1e-3, 1e-7), (0.9, 1e-4), (0.9, 0.05), (5.0, 0.01), (12.0, 2.0)])
def test_masses_of_gaussian_cells_are_within_their_stated_errors(mu: float, width: float) -> None:
    centre = mu * mu / 2.0
    for start in (centre - 6.0 * mu, centre - mu, centre, centre + 5.0 * mu):
        edges = np.array([start + width * i for i in range(6)])
        cells = GaussianPair(mu).cells(edges)
        exact_edges = [mp.mpf(float(edge)) / mp.mpf(mu) + mp.mpf(mu) / 2 for edge in edges]
        for i in range(5):
            low, high = exact_edges[i], exact_edges[i + 1]
            q = mp.ncdf(-low) - mp.ncdf(-high)
            p = mp.ncdf(mp.mpf(mu) - low) - mp.ncdf(mp.mpf(mu) - high)
            assert abs(mp.mpf(float(cells.q[i])) / q - 1) <= cells.mass_error
            assert abs(mp.mpf(float(cells.p[i])) / p - 1) <= cells.mass_error
            excess = p - mp.exp(mp.mpf(float(edges[i]))) * q
            assert abs(mp.mpf(float(cells.excess[i])) - excess) <= mp.mpf(float(cells.excess_error[i]))


@pytest.mark.parametrize(
    ("times", "other", "tilt"), [(2, 1, 0.0), (7, 3, 0.3), (40, 25, -0.1), (90, 0, 0.05)]
)
def test_transformed_sums_are_within_their_stated_error(times: int, other: int, tilt: float) -> None:
    """Against exact convolution of the tilted weights in 40 digits."""
    random_ = np.random.default_rng(times)
    factors = [Factor(random_.random(9) ** 6, times)]
    factors += [Factor(random_.random(5), other)] if other else []
    found = tilted_sum(factors, tilt, 0, 1 << 12)
    exact_sum = [mp.mpf(1)]
    for factor in factors:
        weights = [mp.mpf(float(m)) * mp.exp(mp.mpf(tilt) * j) for j, m in enumerate(factor.masses)]
        total = mp.fsum(weights)
        for _ in range(factor.times):
            grown = [mp.mpf(0)] * (len(exact_sum) + len(weights) - 1)
            for (i, a), (j, b) in itertools.product(enumerate(exact_sum), enumerate(weights)):
                grown[i + j] += a * b / total
            exact_sum = grown
    assert found.length == len(exact_sum) == found.values.size
    for value, true in zip(found.values, exact_sum, strict=True):
        assert abs(mp.mpf(float(value)) - true) <= found.error + true * found.log_error
    assert 0.0 < found.error < 1e-9


@pytest.mark.parametrize(("times", "other", "size"), [(60, 0, 2048), (30, 40, 4096)])
def test_few_frequencies_give_the_tails_within_their_stated_error(times: int, other: int, size: int) -> None:
    """Sums over one period of a law on uneven indices, against exact convolution in 40 digits."""
    tilt, step_ = 0.02, 0.01
    index = np.array([0, 1, 2, 3, 4, 6, 8, 12, 20])
    masses = np.array([0.1, 0.2, 0.25, 0.2, 0.1, 0.08, 0.04, 0.02, 0.01])
    factors = [Factor(masses, times, index)]
    factors += [Factor(np.array([0.5, 0.3, 0.2]), other)] if other else []
    found = tilted_spectrum([tilt_factor(each, tilt) for each in factors], tilt, size, step_)
    assert found is not None
    assert found.frequencies.size < size // 4
    law = {0: mp.mpf(1)}
    for factor in factors:
        at = [
            (int(j), mp.mpf(float(m)) * mp.exp(mp.mpf(tilt) * int(j)))
            for j, m in zip(factor.positions, factor.masses, strict=True)
        ]
        total = mp.fsum(weight for _, weight in at)
        for _ in range(factor.times):
            grown: dict[int, Any] = {}
            for (i, a), (j, b) in itertools.product(law.items(), at):
                grown[i + j] = grown.get(i + j, 0) + a * b / total
            law = grown
    for start in (150, 220, 300):
        p, q, rounding = found.tails(start)
        truth = [
            mp.fsum(m * mp.exp(-rate * ((j - start) % size)) for j, m in law.items())
            for rate in (mp.mpf(tilt), mp.mpf(tilt) + mp.mpf(step_))
        ]
        spare = [2 * found.error / -math.expm1(-rate) for rate in (tilt, tilt + step_)]
        assert truth[0] * (1 - found.log_error) <= p + rounding
        assert p - rounding <= truth[0] * (1 + found.log_error) + spare[0]
        assert truth[1] * (1 - found.log_error) <= q + rounding
        assert q - rounding <= truth[1] * (1 + found.log_error) + spare[1]
        assert rounding + spare[0] < 1e-9


def test_few_frequencies_and_the_whole_transform_agree() -> None:
    for times in (200, 1000):
        found = PlanLoss([(step(Gaussian(1.0, 1.1), rate=0.01), times)]).directions[0]
        grid = found._grid_for_delta(1e-5, 2e-5)
        band, tail = found._upper(grid, 0.5), found._tail(grid, 0.5)
        assert isinstance(band, _Band)
        assert band.epsilon(1e-5) == pytest.approx(tail.epsilon(1e-5), rel=1e-7)
        for epsilon in (0.6, 1.0, 1.5):
            assert band.delta(epsilon) == pytest.approx(tail.delta(epsilon), rel=1e-6)
        assert band.delta(1e-3) == 1.0


@pytest.mark.parametrize(
    "parts",
    [
        [(step(Laplace(1.0, 1e-2 * (i + 2))), 1) for i in range(40)],
        [(step(Pure(1e-6 * (i + 1)), Laplace(500.0, 1.0), rate=0.3), 7) for i in range(3)],
        [(step(DiscreteGaussian(1.0, 5_000.0)), 1000), (step(Laplace(600.0, 1.0)), 3)],
    ],
)
def test_extreme_items_need_less_than_two_gigabytes(parts: Parts) -> None:
    tracemalloc.start()
    try:
        plan = PlanLoss(parts)
        assert plan.epsilon(1e-9, tolerance=1e-5) > 0.0
        plan.epsilon_bounds(1e-9, tolerance=1e-5)
        assert tracemalloc.get_traced_memory()[1] < 2**31
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("delta", [1e-5, 1e-12])
@pytest.mark.parametrize("rate", [1e-20, 1e-100, 2.3e-308])
def test_losses_within_rounding_of_nothing_add_nothing(rate: float, delta: float) -> None:
    """A cell must end above them: else all of their mass would count as infinite, and the plan as certain."""
    found = PlanLoss([(step(Gaussian(1.0, 1.1), rate=rate), 3)], mu=0.1).epsilon_bounds(delta)
    alone = PlanLoss([(step(Gaussian(0.1, 1.0)), 1)]).epsilon_bounds(delta)
    assert alone.lower <= found.upper <= (1.0 + GAP) * alone.upper


def test_limits_of_what_is_offered() -> None:
    sizes = tuple(1.0 + 1e-3 * i for i in range(300))
    many = Step((Release(OutputMixture(1.0, sizes, (1.0 / 300,) * 300)),), Sample(), REPLACE)
    with pytest.raises(Unproven, match="sensitivities"):
        PlanLoss([(many, 1)])
    with pytest.raises(Unproven, match="on one sample"):
        PlanLoss([(step(Pure(0.1), rate=0.1, count=20_000), 1)])
    with pytest.raises(InvalidInput, match="items"):
        PrivacyLossDistribution([])


def test_spans_are_mirrored_by_the_reverse() -> None:
    sampled = PoissonPair(GaussianPair(1.0), 0.1)
    for pair in (sampled, SymmetricPair(sampled)):
        low, high = pair.span(1e-9)
        assert ReversedPair(pair).reversed_span(1e-9) == (-high, -low)
    low, high = SymmetricPair(sampled).span(1e-9)
    assert SymmetricPair(sampled).reversed_span(1e-9) == (-high, -low)


def test_a_tilt_towards_losses_without_mass_is_measured_from_the_heaviest() -> None:
    masses = np.zeros(401)
    masses[:2] = 0.5
    found = tilted_sum([Factor(masses, 1)], 5.0, 0, 512)
    assert found.values[:2] == pytest.approx([1.0 / (1.0 + math.exp(5.0)), 1.0 / (1.0 + math.exp(-5.0))])
    assert math.exp(found.log_scale) == pytest.approx(0.5 + 0.5 * math.exp(5.0))


def test_no_claim_is_made_below_the_losses_that_a_float_holds() -> None:
    """At a tilt of 5 per index the mass 300 below the heaviest is no float: ε there is not claimed."""
    masses = np.zeros(401)
    masses[100], masses[400] = 1.0 - 1e-12, 1e-12
    law = tilted_sum([Factor(masses, 1)], 5.0, 0, 512)
    grid = _Grid(0.1, Shape(50.0, 40.0, 1.0, 0.0), Shape(50.0, 40.0, 1.0, 0.0), 1e-9, CUMULANTS)
    tail = _Tail.of(law, grid, 0.0, 0.0, 0.0, 0.0)
    assert tail.floor > 10.0
    assert tail.delta(9.0) == 1.0
    assert tail.epsilon(0.5) >= tail.floor


def test_no_claim_is_made_below_a_window_that_folds() -> None:
    """Tilted masses below the window fold onto losses where they weigh too little."""
    masses = np.full(201, 1.0 / 201.0)
    law = tilted_sum([Factor(masses, 4)], 0.05, 300, 512)
    assert law.first == 300
    grid = _Grid(0.01, Shape(5.0, 4.0, 1.0, 0.0), Shape(5.0, 4.0, 1.0, 0.0), 1e-9, CUMULANTS)
    tail = _Tail.of(law, grid, 0.0, 0.0, 0.0, 0.0)
    assert tail.floor >= 3.0
    assert tail.delta(2.0) == 1.0
    assert tail.epsilon(0.9) >= 3.0
    assert tail.deltas(np.array([2.0, 3.5]))[0] == 1.0


def report(seeds: range) -> bool:
    """Print what was seen of so many drawn plans; whether all hold."""
    seen = [(look_at_drawn(seed), seed) for seed in seeds]
    wrong = [seed for each, seed in seen if not each.on_its_side]
    loose = [seed for each, seed in seen if each.excess > GAP and not each.near_zero]
    largest = max((each.excess, seed) for each, seed in seen if not each.near_zero)
    print(f"plans={len(seen)} near_zero={sum(each.near_zero for each, _ in seen)} ", end="")
    print(f"wrong_side={wrong} above={loose} largest_excess={largest[0]:.3e} seed={largest[1]}")
    return not wrong and not loose


def test_a_step_that_shows_everything_leaves_nothing() -> None:
    certain, rare = (SimpleNamespace(infinite=mass) for mass in (1.0, 0.25))
    assert infinite_mass([(rare, 1), (certain, 2)]) == 1.0  # type: ignore[list-item]
    assert infinite_mass([(rare, 2)]) == pytest.approx(1.0 - 0.75**2)  # type: ignore[list-item]


if __name__ == "__main__":
    sys.exit(not report(range(*map(int, sys.argv[1:]))))
