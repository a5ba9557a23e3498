"""Privacy-loss distributions as a composition theorem, beside the library dp-accounting."""

import pytest
from dp_accounting.pld import privacy_loss_distribution as library

from dpledger.accounting.composition import Plan, compose
from dpledger.accounting.errors import AdjacencyMismatch, InvalidInput, Unproven
from dpledger.accounting.gaussian_profile import gaussian_epsilon
from dpledger.accounting.mechanisms import ZCDP, Approximate, Gaussian, Laplace
from dpledger.accounting.mechanisms.base import Mechanism
from dpledger.accounting.sampling import Adjacency, Sample, Scheme
from dpledger.accounting.steps import Release, Step

POISSON = Sample(Scheme.POISSON, 0.01)
NEVER = Sample(Scheme.POISSON, 0.0)


def step(*mechanisms: Mechanism, sample: Sample | None = None, adjacency: str = "add-remove") -> Step:
    releases = tuple(Release(mechanism) for mechanism in mechanisms)
    return Step(releases, Sample() if sample is None else sample, Adjacency(adjacency))


@pytest.mark.parametrize(("times", "published"), [(1000, 1.5154), (10_000, 5.1926)])
def test_published_epsilon_of_dp_sgd(times: int, published: float) -> None:
    plan = Plan(((step(Gaussian(1.0, 1.1), sample=POISSON), times),), 1e-5)
    assert compose(plan, "pld").epsilon == pytest.approx(published, abs=5e-4)
    assert compose(plan).method == "pld"


def test_the_library_agrees() -> None:
    """20 Laplace releases and 10 subsampled Gaussians, composed by dp-accounting at a fine interval."""
    plan = Plan(((step(Laplace(1.0, 10.0)), 20), (step(Gaussian(1.0, 1.0), sample=POISSON), 10)), 1e-5)
    laplace = library.from_laplace_mechanism(10.0, value_discretization_interval=1e-3).self_compose(20)
    gaussian = library.from_gaussian_mechanism(
        1.0, sampling_prob=0.01, value_discretization_interval=1e-3
    ).self_compose(10)
    reference = laplace.compose(gaussian).get_epsilon_for_delta(1e-5)
    assert compose(plan, "pld").epsilon == pytest.approx(reference, rel=2e-3)


def test_full_gaussians_are_never_below_the_exact_profile_and_below_their_curve() -> None:
    for adjacency in ("add-remove", "replace-one"):
        plan = Plan(((step(Gaussian(1.0, 5.0), adjacency=adjacency), 4),), 1e-5)
        exact = gaussian_epsilon(0.4, 1e-5)
        assert exact <= compose(plan, "pld").epsilon <= exact * 1.001
        assert compose(plan, "pld").epsilon < compose(plan, "rdp").epsilon


def test_what_has_no_dominating_pair_is_left_to_other_methods() -> None:
    plan = Plan(((step(ZCDP(0.1)), 1),), 1e-5)
    with pytest.raises(Unproven, match="dominating pair"):
        compose(plan, "pld")
    assert compose(plan).method == "zcdp"


def test_a_poisson_sample_needs_add_remove() -> None:
    bad = step(Gaussian(1.0, 1.0), sample=POISSON, adjacency="replace-one")
    with pytest.raises(AdjacencyMismatch, match="add-remove"):
        compose(Plan(((bad, 1),), 1e-5), "pld")


def test_a_delta_below_the_steps_own_is_refused() -> None:
    plan = Plan(((step(Approximate(0.1, 1e-6)), 3),), 2e-6)
    with pytest.raises(InvalidInput, match="additive"):
        compose(plan, "pld")


@pytest.mark.parametrize(
    "free", [step(Gaussian(0.0, 1.0)), step(Laplace(0.0, 1.0)), step(Gaussian(1.0, 1.0), sample=NEVER)]
)
def test_a_step_that_costs_nothing_adds_nothing(free: Step) -> None:
    assert compose(Plan(((free, 3),), 1e-5), "pld").epsilon == 0.0
    other = step(Gaussian(1.0, 5.0))
    alone = compose(Plan(((other, 4),), 1e-5), "pld")
    assert compose(Plan(((free, 3), (other, 4)), 1e-5), "pld").epsilon == alone.epsilon
