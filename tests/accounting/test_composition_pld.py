"""Privacy loss distributions by dp-accounting, for the events that it gets right."""

import sys

import pytest

from dpledger.accounting.composition import Plan, compose
from dpledger.accounting.composition.pld import LEAST_DELTA
from dpledger.accounting.errors import AdjacencyMismatch, InvalidInput, Unproven
from dpledger.accounting.gaussian_profile import gaussian_epsilon
from dpledger.accounting.mechanisms import Gaussian, Laplace, RandomizedResponse
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


def test_full_gaussians_are_never_below_the_exact_profile_and_below_their_curve() -> None:
    for adjacency in ("add-remove", "replace-one"):
        plan = Plan(((step(Gaussian(1.0, 5.0), adjacency=adjacency), 4),), 1e-5)
        exact = gaussian_epsilon(0.4, 1e-5)
        assert exact <= compose(plan, "pld").epsilon <= exact * 1.005
        assert compose(plan, "pld").epsilon < compose(plan, "rdp").epsilon


def test_a_mixed_plan_composes() -> None:
    laplace = step(Laplace(1.0, 10.0))
    plan = Plan(((laplace, 20), (step(Gaussian(0.5, 1.0), Gaussian(0.5, 1.0), sample=POISSON), 10)), 1e-5)
    alone = compose(Plan(((laplace, 20),), 1e-5), "pld").epsilon
    assert alone < compose(plan, "pld").epsilon < compose(plan, "rdp").epsilon
    assert alone < compose(plan, "basic").epsilon


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (step(RandomizedResponse(1.0)), "Gaussian releases"),
        (step(Laplace(1.0, 1.0), Laplace(1.0, 1.0)), "Gaussian releases"),
        (Step((Release(Laplace(1.0, 1.0), 2),)), "Gaussian releases"),
        (step(Laplace(1.0, 1.0), sample=POISSON), "full looks only"),
        (
            step(
                Gaussian(1.0, 1.0),
                sample=Sample(Scheme.WITHOUT_REPLACEMENT, 0.1),
                adjacency="replace-one",
            ),
            "Poisson samples",
        ),
    ],
)
def test_events_that_the_library_gets_wrong_or_that_are_unproven_are_refused(bad: Step, reason: str) -> None:
    with pytest.raises(Unproven, match=reason):
        compose(Plan(((bad, 1),), 1e-5), "pld")


def test_a_poisson_sample_needs_add_remove() -> None:
    bad = step(Gaussian(1.0, 1.0), sample=POISSON, adjacency="replace-one")
    with pytest.raises(AdjacencyMismatch, match="add-remove"):
        compose(Plan(((bad, 1),), 1e-5), "pld")


def test_a_delta_below_the_library_s_rounding_is_refused() -> None:
    with pytest.raises(InvalidInput, match="pld"):
        compose(Plan(((step(Gaussian(1.0, 1.0)), 1),), LEAST_DELTA / 2.0), "pld")


def test_without_the_library_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting.pld.privacy_loss_distribution", None)
    with pytest.raises(ImportError, match=r"dpledger\[pld\]"):
        compose(Plan(((step(Gaussian(1.0, 1.0)), 1),), 1e-5), "pld")


@pytest.mark.parametrize(
    "free", [step(Gaussian(0.0, 1.0)), step(Laplace(0.0, 1.0)), step(Gaussian(1.0, 1.0), sample=NEVER)]
)
def test_a_step_that_costs_nothing_adds_nothing(free: Step) -> None:
    assert compose(Plan(((free, 3),), 1e-5), "pld").epsilon == 0.0
    other = step(Gaussian(1.0, 5.0))
    alone = compose(Plan(((other, 4),), 1e-5), "pld")
    assert compose(Plan(((free, 3), (other, 4)), 1e-5), "pld").epsilon == alone.epsilon
