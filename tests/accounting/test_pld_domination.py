"""Rules of domination: true only where the item's exact profile is above at every ε, both directions."""

import random

import pytest

from dpledger.accounting.mechanisms import (
    GDP,
    ZCDP,
    Approximate,
    Exponential,
    Gaussian,
    Laplace,
    NoisyMax,
    NoisyVotes,
    Pure,
    RandomizedResponse,
)
from dpledger.accounting.mechanisms.base import Mechanism
from dpledger.accounting.pld.domination import dominates
from dpledger.accounting.sampling import Adjacency, Sample, Scheme
from dpledger.accounting.steps import Release, Step
from tests.accounting import pld_references as exact
from tests.accounting.pld_references import mp


def step(*mechanisms: Mechanism, rate: float | None = None, count: int = 1) -> Step:
    sample = Sample() if rate is None else Sample(Scheme.POISSON, rate)
    return Step(tuple(Release(mechanism, count) for mechanism in mechanisms), sample)


@pytest.mark.parametrize(
    ("item", "other"),
    [
        (step(Gaussian(1.0, 1.0), rate=0.1), step(Gaussian(1.0, 1.2), rate=0.05)),
        (step(Gaussian(1.0, 1.0), rate=0.1), step(Gaussian(1.0, 1.0), rate=0.1)),
        (step(Gaussian(1.0, 1.0)), step(Gaussian(0.6, 1.0), Gaussian(0.7, 1.0))),
        (step(GDP(1.0)), step(Gaussian(0.6, 1.0), NoisyVotes("gaussian", noise_std=2.0))),
        (step(Laplace(1.0, 1.0)), step(Laplace(0.5, 1.0))),
        (step(Laplace(1.0, 1.0)), step(Laplace(2.0, 3.0))),
        (step(Pure(1.0)), step(RandomizedResponse(0.9))),
        (step(Approximate(1.0, 1e-6)), step(Pure(1.0))),
        (step(Exponential(1.0)), step(Exponential(0.5))),
        (step(NoisyMax("laplace", 1.0, 1.0)), step(NoisyMax("laplace", 0.5, 2.0))),
        (step(NoisyVotes("laplace", scale=1.0)), step(NoisyVotes("laplace", scale=2.0))),
        (step(Gaussian(1.0, 1.0), Laplace(1.0, 1.0)), step(Laplace(1.0, 2.0))),
        (step(Pure(1.0), Pure(0.5), rate=0.2), step(Pure(0.9), Pure(0.4), rate=0.1)),
        (step(Pure(1.0), count=3), step(Pure(1.0), count=2)),
        (step(Gaussian(1.0, 1.0), rate=1.0), step(Gaussian(1.0, 1.0))),
        (step(ZCDP(0.1)), step(ZCDP(0.1))),
    ],
)
def test_what_is_dominated(item: Step, other: Step) -> None:
    assert dominates(item, other)


@pytest.mark.parametrize(
    ("item", "other"),
    [
        (step(Gaussian(1.0, 1.0), rate=0.1), step(Gaussian(1.0, 1.2), rate=0.11)),
        (step(Gaussian(1.0, 1.0), rate=0.1), step(Gaussian(1.0, 0.9), rate=0.05)),
        (step(Gaussian(1.0, 1.0)), step(Gaussian(1.0, 2.0), rate=0.1)),
        (step(Gaussian(1.0, 1.0), rate=0.1), step(Gaussian(1e-6, 1.0))),
        (step(Gaussian(1.0, 1.0)), step(Gaussian(0.8, 1.0), Gaussian(0.7, 1.0))),
        (step(Laplace(1.0, 1.0)), step(Laplace(1.0, 0.9))),
        (step(Pure(1.0)), step(Approximate(0.1, 1e-9))),
        (step(Pure(1.0)), step(Laplace(0.1, 1.0))),
        (step(Exponential(1.0)), step(Pure(0.1))),
        (step(Pure(1.0), count=2), step(Pure(1.0), count=3)),
        (step(Pure(1.0), Pure(0.5)), step(Pure(0.9), Pure(0.6))),
        (step(Pure(1.0)), step(Pure(0.1), Pure(0.1))),
        (step(NoisyMax("laplace", 1.0, 1.0)), step(NoisyMax("exponential", 0.5, 2.0))),
        (step(NoisyVotes("laplace", scale=2.0)), step(NoisyVotes("laplace", scale=1.0))),
        (step(ZCDP(0.2)), step(ZCDP(0.1))),
    ],
)
def test_what_no_rule_covers_is_not_dominated(item: Step, other: Step) -> None:
    assert not dominates(item, other)


def test_the_other_adjacency_is_never_dominated() -> None:
    plain = step(Gaussian(1.0, 1.0))
    assert not dominates(plain, Step(plain.releases, plain.sample, Adjacency.REPLACE_ONE))
    monotonic = Release(Exponential(1.0, monotonic=True))
    less = Release(Exponential(0.5, monotonic=True))
    assert dominates(Step((monotonic,)), Step((less,)))
    replaced = [Step((each,), Sample(), Adjacency.REPLACE_ONE) for each in (monotonic, less)]
    assert not dominates(*replaced)


def test_the_rules_agree_with_exact_profiles() -> None:
    """Poisson Gaussians and Laplace pairs drawn at random, at ε from −3 to 3, both directions."""
    random_ = random.Random(5)
    agreed = 0
    for _ in range(60):
        q, q2 = (random_.uniform(0.01, 0.9) for _ in range(2))
        m, m2 = (random_.uniform(0.2, 3.0) for _ in range(2))
        pairs = [
            (Gaussian(m, 1.0), Gaussian(m2, 1.0), exact.gaussian(m), exact.gaussian(m2)),
            (Laplace(m, 1.0), Laplace(m2, 1.0), exact.laplace(m), exact.laplace(m2)),
            (Exponential(m), Exponential(m2), exact.bounded_range(m), exact.bounded_range(m2)),
        ]
        for item, other, above, below in pairs:
            if dominates(step(item, rate=q), step(other, rate=q2)):
                agreed += 1
                profiles = exact.poisson(above, q), exact.poisson(below, q2)
                for first, second in (profiles, tuple(exact.reverse(each) for each in profiles)):
                    for s in range(-6, 7):
                        at = mp.mpf(s) / 2
                        assert second(at) <= first(at) * (1 + mp.mpf(10) ** -30)
    assert agreed > 20
