"""Composition of fixed plans: each theorem against enumeration, exact Gaussians, or its printed form."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp

from dpledger.accounting.composition import (
    METHODS,
    Plan,
    basic_composition,
    compose,
    dwork_rothblum_vadhan_epsilon,
    kov_optimal_delta,
    lecture_gaussian_epsilon,
    lecture_gaussian_noise_std,
    lecture_strong_epsilon,
    lecture_strong_step,
)
from dpledger.accounting.composition.plan import (
    MOST_PARTS,
    amplified_part,
    combined_gaussian_mu,
    shared_parts,
)
from dpledger.accounting.conversion.zcdp import zcdp_epsilon
from dpledger.accounting.errors import AdjacencyMismatch, InvalidInput, Unproven
from dpledger.accounting.gaussian_profile import gaussian_delta, gaussian_epsilon
from dpledger.accounting.mechanisms import Approximate, Gaussian, Laplace, Pure
from dpledger.accounting.mechanisms.base import Mechanism
from dpledger.accounting.sampling import Adjacency, Sample, Scheme
from dpledger.accounting.steps import Release, Step
from tests.accounting.references import assert_bounds, log_uniform, moderately


def step(*mechanisms: Mechanism, sample: Sample | None = None, adjacency: str = "add-remove") -> Step:
    releases = tuple(Release(mechanism) for mechanism in mechanisms)
    return Step(releases, Sample() if sample is None else sample, Adjacency(adjacency))


def gaussians(mu: float, times: int, delta: float = 1e-6) -> Plan:
    return Plan(((step(Gaussian(mu, 1.0)), times),), delta)


PURE_PLAN = Plan(((step(Pure(0.1)), 50),), 1e-6)
MIXED_PLAN = Plan(((step(Pure(0.1)), 20), (step(Gaussian(0.05, 1.0)), 30)), 1e-6)
LEAKY_PLAN = Plan(((step(Approximate(0.05, 1e-9)), 100),), 1e-6)


@given(
    st.lists(st.tuples(log_uniform(1e-6, 5.0), log_uniform(1e-15, 1e-4), st.integers(1, 1000)), max_size=5)
)
@moderately
def test_basic_is_the_sum(parts: list[tuple[float, float, int]]) -> None:
    epsilon, delta = basic_composition(parts)
    if not parts:
        assert (epsilon, delta) == (0.0, 0.0)
        return
    assert_bounds(epsilon, mp.fsum(mp.mpf(e) * n for e, _, n in parts), within=1e-14)
    assert_bounds(delta, mp.fsum(mp.mpf(d) * n for _, d, n in parts), within=1e-14)


def test_basic_refuses_a_delta_that_reaches_one() -> None:
    with pytest.raises(InvalidInput, match="sum of delta"):
        basic_composition([(0.1, 0.5, 2)])


@given(log_uniform(1e-4, 1.0), st.integers(1, 2000), log_uniform(1e-12, 0.1))
@moderately
def test_the_advanced_forms_are_never_below_the_optimal_one(epsilon: float, times: int, slack: float) -> None:
    total = dwork_rothblum_vadhan_epsilon(epsilon, times, slack)
    assert kov_optimal_delta(epsilon, 0.0, times, total) <= slack
    printed = mp.mpf(epsilon) * mp.sqrt(2 * times * -mp.log(slack)) + times * mp.mpf(epsilon) * mp.expm1(
        epsilon
    )
    assert_bounds(total, printed, within=1e-13)


@given(log_uniform(1e-4, 0.99), st.integers(1, 2000), log_uniform(1e-12, 0.999))
@moderately
def test_the_short_form_of_the_lecture_holds_within_its_condition(
    total: float, times: int, delta: float
) -> None:
    """Lemma 15.2: its steps compose to the total, and already at half of its slack."""
    each, share = lecture_strong_step(total, delta, times)
    assert times * share <= delta / 2.0
    again = lecture_strong_epsilon(each, times, delta)
    assert again == pytest.approx(total, rel=1e-12)
    assert kov_optimal_delta(each, 0.0, times, total) <= delta / 2.0


def test_the_short_form_is_refused_beyond_one() -> None:
    with pytest.raises(Unproven, match=r"15\.2"):
        lecture_strong_epsilon(0.1, 100, 1e-5)


@given(log_uniform(1e-3, 1.386), log_uniform(1e-300, 0.9), st.integers(1, 5000))
@moderately
def test_the_lecture_s_gaussian_noise_is_private_by_the_exact_profile(
    epsilon: float, delta: float, times: int
) -> None:
    """Lemma 1.1 for T Gaussians of sensitivity 2G/n."""
    if epsilon > 4.0 * -math.log(delta):
        with pytest.raises(Unproven, match=r"1\.1"):
            lecture_gaussian_noise_std(epsilon, delta, sensitivity=0.02, times=times)
        return
    noise = lecture_gaussian_noise_std(epsilon, delta, sensitivity=0.02, times=times)
    printed = mp.mpf(0.02) * mp.sqrt(2 * times * -mp.log(delta)) / epsilon
    assert_bounds(noise, printed, within=1e-13)
    assert gaussian_delta(epsilon, 0.02 / noise * math.sqrt(times) * (1.0 - 1e-14)) <= delta


def test_the_lecture_s_gaussian_form_is_false_without_its_condition() -> None:
    """ε = 40, δ = 1e-5: the printed noise gives a δ above the claim."""
    mu = 40.0 / math.sqrt(2.0 * math.log(1e5))
    assert gaussian_delta(40.0, mu) > 1e-5
    with pytest.raises(Unproven, match=r"1\.1"):
        lecture_gaussian_epsilon(mu, 1e-5)
    with pytest.raises(InvalidInput, match="epsilon"):
        lecture_gaussian_noise_std(0.0, 1e-5, sensitivity=1.0, times=1)


@given(log_uniform(1e-3, 1.0), st.integers(1, 500), log_uniform(1e-10, 1e-2))
@moderately
def test_gaussians_compose_exactly_and_every_other_method_is_above(
    mu: float, times: int, delta: float
) -> None:
    plan = gaussians(mu, times, delta)
    exact = gaussian_epsilon(mu * math.sqrt(times) * (1.0 - 1e-14), delta)
    tight = compose(plan)
    assert tight.method == "gdp"
    assert exact <= tight.epsilon <= exact * (1.0 + 1e-9) + 1e-15
    for method in ("rdp", "zcdp", "basic", "advanced", "kairouz-oh-viswanath", "kairouz-oh-viswanath-closed"):
        assert compose(plan, method).epsilon >= exact


def test_the_renyi_method_refines_the_order_of_the_grid() -> None:
    """At a real order it meets the tight zCDP conversion, which has no grid."""
    for times in (1, 10, 1000):
        found = compose(gaussians(0.05, times), "rdp")
        assert found.epsilon == pytest.approx(compose(gaussians(0.05, times), "zcdp").epsilon, rel=1e-6)
        assert found.order is not None


def test_published_epsilon_of_dp_sgd_by_renyi() -> None:
    sample = Sample(Scheme.POISSON, 0.01)
    for times, published in ((1000, 1.7118), (10_000, 5.6320)):
        plan = Plan(((step(Gaussian(1.0, 1.1), sample=sample), times),), 1e-5)
        assert published - 1e-3 <= compose(plan, "rdp").epsilon <= published + 5e-5


def test_every_method_names_its_theorem_and_its_source() -> None:
    for method in METHODS:
        assert method.theorem
        assert "plan fixed in advance" in method.conditions
        assert method.source
    wire = compose(gaussians(0.1, 10), "rdp").fields()
    assert set(wire) == {"epsilon", "delta", "method", "theorem", "conditions", "source", "order"}
    assert "order" not in compose(gaussians(0.1, 10), "gdp").fields()


@pytest.mark.parametrize("plan", [PURE_PLAN, MIXED_PLAN, LEAKY_PLAN])
def test_tight_is_the_least_of_what_applies(plan: Plan) -> None:
    tight = compose(plan)
    for method in ("rdp", "basic", "advanced", "kairouz-oh-viswanath", "kairouz-oh-viswanath-closed"):
        assert tight.epsilon <= compose(plan, method).epsilon
    assert tight.delta == plan.delta


@pytest.mark.parametrize("plan", [PURE_PLAN, LEAKY_PLAN])
def test_equal_releases_compose_to_the_optimum(plan: Plan) -> None:
    (one, times), *_ = plan.parts
    mechanism = one.releases[0].mechanism
    assert isinstance(mechanism, (Pure, Approximate))
    own = mechanism.delta if isinstance(mechanism, Approximate) else 0.0
    found = compose(plan, "kairouz-oh-viswanath").epsilon
    assert kov_optimal_delta(mechanism.epsilon, own, times, found) <= plan.delta
    assert kov_optimal_delta(mechanism.epsilon, own, times, found * (1 - 1e-9)) > plan.delta * (1 - 1e-6)


def test_other_names_lead_to_the_same_theorem() -> None:
    short = Plan(((step(Pure(0.001)), 50),), 1e-6)
    for name, method in (("dwork-rothblum-vadhan", "advanced"), ("wang", "lemma-15.2")):
        assert compose(short, name) == compose(short, method)
    assert compose(gaussians(0.01, 10), "wu") == compose(gaussians(0.01, 10), "lemma-1.1")
    assert compose(gaussians(0.01, 10), "wu").epsilon >= compose(gaussians(0.01, 10), "gdp").epsilon


def test_basic_of_pure_releases_needs_no_delta() -> None:
    found = compose(Plan(((step(Pure(0.1)), 5), (step(Laplace(1.0, 4.0)), 2)), 0.0), "basic")
    assert found.epsilon == pytest.approx(1.0, rel=1e-12)
    assert found.delta == 0.0
    with pytest.raises(InvalidInput, match="delta"):
        compose(Plan(((step(Gaussian(1.0, 1.0)), 1),), 0.0), "basic")


def test_the_survey_of_exercise_1_3() -> None:
    """0.5-DP on a secret sample of 0.001 % of a country: ε' = ln(1 + 1e-5·(e^0.5 − 1))."""
    sample = Sample(Scheme.WITHOUT_REPLACEMENT, 1e-5)
    plan = Plan(((step(Pure(0.5), sample=sample, adjacency="replace-one"), 1),), 0.0)
    assert compose(plan, "basic").epsilon == pytest.approx(6.4872e-6, rel=1e-4)


def test_additive_deltas_are_taken_from_the_plan_s() -> None:
    assert LEAKY_PLAN.spare_delta == pytest.approx(9e-7)
    with pytest.raises(InvalidInput, match="additive"):
        compose(Plan(LEAKY_PLAN.parts, 5e-8), "basic")
    with pytest.raises(InvalidInput, match="additive"):
        compose(Plan(LEAKY_PLAN.parts, 5e-8))


@pytest.mark.parametrize("method", ["zcdp", "gdp"])
def test_a_step_without_the_notion_is_refused(method: str) -> None:
    sampled = step(Gaussian(1.0, 1.0), sample=Sample(Scheme.POISSON, 0.1))
    with pytest.raises(Unproven, match="no"):
        compose(Plan(((sampled, 2),), 1e-5), method)


def test_the_lecture_s_lemma_covers_full_gaussians_only() -> None:
    for other in (step(Pure(0.01)), step(Gaussian(0.01, 1.0), sample=Sample(Scheme.POISSON, 0.1))):
        with pytest.raises(Unproven, match=r"1\.1"):
            compose(Plan(((other, 1),), 1e-5), "lemma-1.1")


def test_too_many_releases_for_the_exact_sum_are_refused_but_not_by_tight() -> None:
    plan = Plan(((step(Pure(1e-4)), 200_000),), 1e-6)
    with pytest.raises(Unproven, match="exact sum"):
        compose(plan, "kairouz-oh-viswanath")
    assert compose(plan).epsilon <= zcdp_epsilon(200_000 * 1e-8 / 2.0 * (1 + 1e-9), 1e-6)


def test_gaussians_of_one_step_are_combined() -> None:
    assert combined_gaussian_mu(step(Gaussian(3.0, 1.0), Gaussian(4.0, 1.0))) == pytest.approx(5.0)
    assert combined_gaussian_mu(step(Gaussian(3.0, 1.0), Pure(1.0))) is None


def test_plans_are_checked() -> None:
    one = step(Pure(0.1))
    with pytest.raises(InvalidInput, match="steps"):
        Plan((), 1e-5)
    with pytest.raises(InvalidInput, match="steps"):
        Plan(((one, 1),) * (MOST_PARTS + 1), 1e-5)
    with pytest.raises(InvalidInput, match="times"):
        Plan(((one, 0),), 1e-5)
    with pytest.raises(InvalidInput, match="adjacency"):
        Plan(((one, 1), (step(Pure(0.1), adjacency="replace-one"), 1)), 1e-5)
    with pytest.raises(InvalidInput, match="method"):
        compose(PURE_PLAN, "magic")


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1e-9, 1.0, "x", None])
def test_bad_deltas_are_refused(bad: float) -> None:
    with pytest.raises(InvalidInput, match="delta"):
        Plan(((step(Pure(0.1)), 1),), bad)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0, "x"])
def test_bad_numbers_are_refused(bad: float) -> None:
    for call in (dwork_rothblum_vadhan_epsilon, lecture_strong_epsilon):
        with pytest.raises(InvalidInput):
            call(bad, 10, 1e-5)
        with pytest.raises(InvalidInput):
            call(0.1, 10, bad)
    with pytest.raises(InvalidInput):
        lecture_gaussian_epsilon(bad, 1e-5)
    with pytest.raises(InvalidInput):
        lecture_strong_step(bad, 1e-5, 10)


def test_an_epsilon_whose_exponential_overflows_is_refused() -> None:
    with pytest.raises(InvalidInput):
        dwork_rothblum_vadhan_epsilon(800.0, 10, 1e-5)


def test_zero_costs_compose_to_zero() -> None:
    assert dwork_rothblum_vadhan_epsilon(0.0, 10, 1e-5) == 0.0
    assert lecture_gaussian_epsilon(0.0, 1e-5) == 0.0
    assert compose(Plan(((step(Pure(0.0)), 3),), 1e-5)).epsilon == 0.0


def test_the_sampling_theorem_is_offered_for_replace_one_only() -> None:
    sample = Sample(Scheme.POISSON, 0.01)
    with pytest.raises(AdjacencyMismatch, match="replace-one"):
        compose(Plan(((step(Gaussian(1.0, 1.0), sample=sample), 10),), 1e-5), "sampling")


def test_sums_that_overflow_are_refused() -> None:
    with pytest.raises(InvalidInput):
        basic_composition([(1e308, 0.0, 1), (1e308, 0.0, 1)])
    with pytest.raises(InvalidInput):
        combined_gaussian_mu(step(*[Gaussian(1e308, 1.0)] * 4))


@pytest.mark.parametrize("mu", [1e-300, 1e-200, 1e-163, 1e-100, 1.0, 1e100, 1e153])
def test_gaussians_of_any_size_combine_to_the_root_of_their_squares(mu: float) -> None:
    found = combined_gaussian_mu(Step((Release(Gaussian(mu, 1.0), 10**9), Release(Gaussian(mu / 3.0, 1.0)))))
    assert found is not None
    assert_bounds(found, mp.mpf(mu) * mp.sqrt(10**9 + mp.mpf(1) / 9), within=4e-15)


@pytest.mark.parametrize(("deltas", "total"), [((0.1, 0.2), 0.3), ((0.1, 0.7), 0.8), ((0.3,) * 3, 0.9)])
def test_deltas_that_add_up_to_the_target_are_within_it(deltas: tuple[float, ...], total: float) -> None:
    plan = Plan(tuple((step(Approximate(0.1, delta)), 1) for delta in deltas), total)

    found = compose(plan, "basic")

    assert (found.epsilon, found.delta) == (round(0.1 * len(deltas), 1), total)
    with pytest.raises(InvalidInput, match="additive"):
        compose(Plan((*plan.parts, (step(Approximate(0.0, 1e-300)), 1)), total), "basic")


@pytest.mark.parametrize(("mu", "times"), [(0.1, 1), (0.02, 100), (0.01, 777)])
def test_basic_gives_a_gaussian_plan_all_of_its_delta_and_no_more(mu: float, times: int) -> None:
    found = compose(gaussians(mu, times, 1e-5), "basic")

    assert found.delta == 1e-5
    with mp.workdps(40):
        share = mp.mpf("1e-5") / times
        assert gaussian_profile(mp.mpf(found.epsilon) / times, mp.mpf(mu)) <= share
        assert gaussian_profile(mp.mpf(found.epsilon) / times * (1 - mp.mpf("1e-9")), mp.mpf(mu)) > share


def gaussian_profile(epsilon: Any, mu: Any) -> Any:
    """The exact δ(ε) of a Gaussian."""
    return mp.ncdf(mu / 2 - epsilon / mu) - mp.exp(epsilon) * mp.ncdf(-mu / 2 - epsilon / mu)


def gaussian_inverse(delta: Any, mu: Any) -> Any:
    """The exact ε(δ) of a Gaussian, 0 where δ(0) is below it."""
    if gaussian_profile(mp.mpf(0), mu) <= delta:
        return mp.mpf(0)
    low, high = mp.mpf(0), mp.mpf(10)
    for _ in range(120):
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_profile(middle, mu) > delta else (low, middle)
    return high


@pytest.mark.parametrize(
    ("scheme", "adjacency"), [("poisson", "add-remove"), ("without-replacement", "replace-one")]
)
@pytest.mark.parametrize(
    ("rate", "noise", "times"), [(0.001, 3.0, 10_000), (0.01, 8.66, 1000), (0.05, 20.0, 100)]
)
def test_a_sampled_gaussian_composes_as_lemma_15_4_amplifies_it(
    scheme: str, adjacency: str, rate: float, noise: float, times: int
) -> None:
    """(ε₀, δ₀) of the Gaussian, exactly; amplified; then Theorem 3.20 with half of δ as its slack."""
    sampled = step(Gaussian(1.0, noise), sample=Sample(Scheme(scheme), rate), adjacency=adjacency)

    found = compose(Plan(((sampled, times),), 1e-5), "advanced")

    with mp.workdps(40):
        q, slack = mp.mpf(str(rate)), mp.mpf("1e-5") / 2
        first = gaussian_inverse(slack / times / q, 1 / mp.mpf(str(noise)))
        each = mp.log1p(q * mp.expm1(first))
        total = each * mp.sqrt(2 * times * mp.log(1 / slack)) + times * each * mp.expm1(each)
        assert total <= found.epsilon <= total * (1 + mp.mpf("1e-9"))


def test_with_enough_noise_the_amplified_epsilon_has_no_floor() -> None:
    def total(noise: float) -> float:
        sampled = step(Gaussian(1.0, noise), sample=Sample(Scheme.POISSON, 0.01))
        return compose(Plan(((sampled, 1000),), 1e-5), "advanced").epsilon

    assert total(1e3) < 5e-3
    assert total(1e6) == 0.0


def test_amplifying_is_never_looser_than_converting_the_curve() -> None:
    sampled = step(Gaussian(1.0, 1.1), sample=Sample(Scheme.POISSON, 0.5))

    assert amplified_part(step(Gaussian(1.0, 1.1)), 1e-6) == math.inf
    assert amplified_part(sampled, 0.5) == 0.0
    ((epsilon, share),) = shared_parts(Plan(((sampled, 1),), 1e-5), 1e-5)
    assert epsilon <= amplified_part(sampled, share)
