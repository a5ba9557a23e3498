"""Samples on the wire."""

import math
from typing import Any

import pytest

from dpledger.accounting.errors import InvalidInput
from dpledger.accounting.sampling import Sample, Scheme


@pytest.mark.parametrize(
    "wire",
    [
        {"scheme": "full"},
        {"scheme": "poisson", "rate": 0.1},
        {"scheme": "poisson", "rate": 1.0},
        {"scheme": "without-replacement", "rate": 0.0},
    ],
)
def test_wire_form_round_trips(wire: dict[str, Any]) -> None:
    assert Sample.from_fields(wire).fields() == wire


def test_a_full_look_may_say_that_its_rate_is_one() -> None:
    assert Sample(Scheme.FULL, 1.0) == Sample() == Sample.from_fields({"scheme": "full", "rate": 1})


def test_whole_numbers_become_floats() -> None:
    assert Sample(Scheme.POISSON, 1) == Sample(Scheme.POISSON, 1.0)
    assert type(Sample(Scheme.POISSON, 1).rate) is float


@pytest.mark.parametrize("rate", [None, -0.1, 1.1, math.nan, "0.1", True])
@pytest.mark.parametrize("scheme", [Scheme.POISSON, Scheme.WITHOUT_REPLACEMENT])
def test_a_drawn_sample_needs_a_rate(scheme: Scheme, rate: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^sample.rate must be a number in \[0, 1\]"):
        Sample(scheme, rate)


def test_a_full_look_has_no_rate() -> None:
    with pytest.raises(InvalidInput, match=r"^sample.rate must be absent for a full look, found 0.5"):
        Sample(Scheme.FULL, 0.5)


@pytest.mark.parametrize("wire", [{}, {"scheme": "bernoulli"}, {"scheme": None, "rate": 0.1}])
def test_unknown_schemes_are_refused(wire: dict[str, Any]) -> None:
    with pytest.raises(
        InvalidInput, match=r"^sample.scheme must be one of full, poisson, without-replacement"
    ):
        Sample.from_fields(wire)


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(InvalidInput, match="an object with scheme and rate, found"):
        Sample.from_fields({"scheme": "poisson", "rate": 0.1, "size": 3})
