"""The client's descriptions say to the service exactly what they say to their author."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpledger_client
from dpledger.accounting.errors import InvalidInput
from dpledger.accounting.mechanisms import MECHANISMS as SERVICE_MECHANISMS
from dpledger.accounting.sampling import Sample
from dpledger.accounting.steps import Release as ServiceRelease
from dpledger_client import (
    GDP,
    RDP,
    ZCDP,
    AboveThreshold,
    Approximate,
    DiscreteGaussian,
    DiscreteLaplace,
    Exponential,
    Full,
    Gaussian,
    Laplace,
    Mechanism,
    NegativeBinomialTrials,
    NoisyMax,
    NoisyVotes,
    OutputMixture,
    Poisson,
    PoissonTrials,
    ProposeTestRelease,
    Pure,
    RandomizedResponse,
    Release,
    Tuned,
    WithoutReplacement,
)
from dpledger_client.optimizers.support.trial_accounts import trial_step

non_negative = st.floats(min_value=0.0, allow_infinity=False, allow_nan=False)
positive = st.floats(min_value=0.0, exclude_min=True, allow_infinity=False, allow_nan=False)
TWO_NUMBERS: list[Callable[[Any, Any], Mechanism]] = [Gaussian, Laplace, DiscreteGaussian]
SAMPLES: list[Callable[[Any], Poisson | WithoutReplacement]] = [Poisson, WithoutReplacement]
EXAMPLES: list[Mechanism] = [
    Gaussian(3.0, 300.0),
    Laplace(1.0, 2.0),
    DiscreteGaussian(1.0, 3.0),
    DiscreteLaplace(2.0, 7),
    NoisyMax("gumbel", 1.0, 2.0, monotonic=True),
    NoisyMax("laplace", 1.0, 2.0),
    NoisyMax("exponential", 1.0, 2.0),
    Exponential(0.1, sensitivity=2.0),
    NoisyVotes("laplace", scale=20.0),
    NoisyVotes("gaussian", noise_std=40.0),
    RandomizedResponse(1.0),
    ProposeTestRelease(0.5, 1e-6),
    AboveThreshold.from_epsilon(0.02, sensitivity=1.0, max_queries=20),
    AboveThreshold.from_rho(0.001, sensitivity=1.0, max_queries=20),
    AboveThreshold("laplace", 1.0, 0.0, 40.0, 50),
    OutputMixture(2.0, (0.5, 1.0), (0.25, 0.75)),
    Pure(0.1),
    Approximate(0.1, 1e-6),
    ZCDP(0.01),
    GDP(0.1),
    RDP((2.0, 4.0), (0.1, 0.2)),
    Tuned(NegativeBinomialTrials(0.0, 0.1), ((trial_step(Gaussian(1.0, 5.0), Poisson(0.5), 3),),)),
    Tuned(PoissonTrials(10.0), ((trial_step(Gaussian(1.0, 5.0)), trial_step(RandomizedResponse(0.5))),)),
]


def test_every_mechanism_of_the_service_can_be_described() -> None:
    assert set(SERVICE_MECHANISMS) == {example.kind for example in EXAMPLES}


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_service_reads_every_mechanism_back_unchanged(example: Mechanism) -> None:
    release = Release(example, count=3, purpose="p")

    assert {**ServiceRelease.from_fields(release.fields()).fields(), "purpose": "p"} == release.fields()
    assert ServiceRelease.from_fields(example.fields()).fields() == example.fields()


@pytest.mark.parametrize("mechanism", TWO_NUMBERS)
@given(sensitivity=non_negative, width=positive)
def test_the_service_reads_numbers_back_unchanged(
    mechanism: Callable[[Any, Any], Mechanism], sensitivity: float, width: float
) -> None:
    fields = mechanism(sensitivity, width).fields()

    assert ServiceRelease.from_fields(dict(fields)).fields() == fields


@pytest.mark.parametrize("sample", SAMPLES)
@given(rate=st.floats(min_value=0.0, max_value=1.0))
def test_the_service_reads_a_sample_back_unchanged(
    sample: Callable[[Any], Poisson | WithoutReplacement], rate: float
) -> None:
    fields = sample(rate).fields()

    assert Sample.from_fields(dict(fields)).fields() == fields


def test_the_service_reads_a_full_look_back_unchanged() -> None:
    assert Sample.from_fields(dict(Full().fields())) == Sample()


@pytest.mark.parametrize("mechanism", TWO_NUMBERS)
@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf, -math.inf, 10**400, True, "wide", None])
@pytest.mark.parametrize("position", [0, 1])
def test_what_the_service_refuses_in_a_mechanism_the_client_refuses_first(
    mechanism: Callable[[Any, Any], Mechanism], value: Any, position: int
) -> None:
    numbers: list[Any] = [1.0, 1.0]
    accepted = mechanism(*numbers).fields()
    numbers[position] = value
    name = [field for field in accepted if field != "mechanism"][position]

    with pytest.raises((ValueError, TypeError)):
        mechanism(*numbers)
    with pytest.raises(InvalidInput, match=name):
        ServiceRelease.from_fields({**accepted, name: value})


@pytest.mark.parametrize("mechanism", TWO_NUMBERS)
def test_no_noise_is_refused(mechanism: Callable[[Any, Any], Mechanism]) -> None:
    with pytest.raises(ValueError, match="above 0"):
        mechanism(1.0, 0.0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: DiscreteLaplace(1.0, 0),
        lambda: DiscreteLaplace(1.0, 1.5),  # type: ignore[arg-type]
        lambda: NoisyMax("cauchy", 1.0, 1.0),
        lambda: NoisyMax("gumbel", 1.0, 1.0, monotonic=1),  # type: ignore[arg-type]
        lambda: Exponential(0.0, sensitivity=1.0),
        lambda: NoisyVotes("laplace", noise_std=1.0),
        lambda: NoisyVotes("gaussian", scale=1.0),
        lambda: NoisyVotes("laplace"),
        lambda: AboveThreshold("gumbel", 1.0, 1.0, 1.0),
        lambda: AboveThreshold("laplace", 1.0, 1.0, 0.0),
        lambda: AboveThreshold("laplace", 1.0, 1.0, 1.0, 0),
        lambda: ProposeTestRelease(1.0, 0.0),
        lambda: OutputMixture(1.0, (1.0,), (0.5, 0.5)),
        lambda: OutputMixture(1.0, (), ()),
        lambda: RDP((2.0,), (0.1, 0.2)),
        lambda: RandomizedResponse(-1.0),
        lambda: Approximate(1.0, 2.0),
        lambda: Release(Pure(1.0), count=0),
    ],
)
def test_descriptions_that_mean_nothing_are_refused(make: Callable[[], Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        make()


def test_a_search_is_described_by_its_scales() -> None:
    laplace = AboveThreshold.from_epsilon(0.5, sensitivity=2.0, max_queries=9)
    gaussian = AboveThreshold.from_rho(0.03, sensitivity=2.0, max_queries=9)

    assert (laplace.threshold_scale, laplace.query_scale) == (8.0, 16.0)
    assert gaussian.query_scale == pytest.approx(20.0)
    assert gaussian.threshold_scale == pytest.approx(20.0 / math.sqrt(2.0))
    assert laplace.fields()["max_queries"] == 9
    assert "max_queries" not in AboveThreshold("laplace", 1.0, 1.0, 1.0).fields()


def test_discrete_laplace_is_declared_by_its_epsilon_rounded_up() -> None:
    fields = DiscreteLaplace(1.0, 3).fields()

    assert fields["mechanism"] == "pure"
    assert 1.0 / 3.0 <= fields["epsilon"] <= 1.0 / 3.0 * (1.0 + 1e-15)
    assert DiscreteLaplace(0.0, 3).fields()["epsilon"] == 0.0


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("rate", [-0.1, 1.0 + 1e-15, math.nan, math.inf, 10**400, True, "half", None])
def test_what_the_service_refuses_in_a_sample_the_client_refuses_first(
    sample: Callable[[Any], Poisson | WithoutReplacement], rate: Any
) -> None:
    with pytest.raises((ValueError, TypeError)):
        sample(rate)
    with pytest.raises(InvalidInput, match=r"sample\.rate"):
        Sample.from_fields({**sample(0.5).fields(), "rate": rate})


def test_the_public_names_are_pinned() -> None:
    public = [name for name in vars(dpledger_client) if name[0].isupper() or name in _FUNCTIONS]

    assert sorted(public) == sorted(dpledger_client.__all__)
    assert len(dpledger_client.__all__) == 84


_FUNCTIONS = {"insecure_testing_noise", "no_noise_for_testing", "step_digest", "verify_receipt"}
