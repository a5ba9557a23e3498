"""What every mechanism says of itself, and what is refused of a class that does not."""

from typing import Any

import pytest

from dpledger.accounting.errors import InvalidInput, within
from dpledger.accounting.mechanisms import (
    MECHANISMS,
    ZCDP,
    AboveThreshold,
    Gaussian,
    Laplace,
    NoisyVotes,
    OutputMixture,
    register,
)
from dpledger.accounting.mechanisms.base import STANDARD_DEVIATION, Mechanism, NoiseField, NoiseLevel
from dpledger.accounting.sampling import Adjacency, Sample, Scheme
from dpledger.accounting.steps import Release, Step, releases_from_fields
from dpledger.accounting.theorem import Theorem


@pytest.mark.parametrize(
    ("mechanism", "expected"),
    [
        (Gaussian(2.0, 3.0), NoiseLevel("σ", 1.5)),
        (Laplace(2.0, 3.0), NoiseLevel("b", 1.5)),
        (Gaussian(0.0, 3.0), None),
        (Laplace(1e-300, 1e300), None),
        (ZCDP(0.1), None),
        (NoisyVotes("laplace", scale=4.0), NoiseLevel("b", 4.0)),
        (NoisyVotes("gaussian", noise_std=4.0), NoiseLevel("σ", 4.0)),
        (OutputMixture(6.0, (1.0, 2.0), (0.5, 0.5)), NoiseLevel("σ", 3.0)),
        (AboveThreshold("laplace", 1.0, epsilon=0.5, max_queries=3), None),
        (
            AboveThreshold("laplace", 2.0, threshold_scale=4.0, query_scale=8.0, max_queries=3),
            NoiseLevel("b", 4.0),
        ),
    ],
    ids=str,
)
def test_the_noise_over_the_sensitivity(mechanism: Mechanism, expected: NoiseLevel | None) -> None:
    assert mechanism.noise_level == expected


def _members(**others: Any) -> dict[str, Any]:
    said = {"kind": "toy", "expensive": False, "noise_field": None, "cost": lambda *_: None}
    return {name: value for name, value in {**said, **others}.items() if value is not ...}


@pytest.mark.parametrize(
    ("members", "lacks"),
    [
        (_members(kind=...), "kind"),
        (_members(expensive=...), "expensive"),
        (_members(noise_field=...), "noise_field"),
        (_members(__annotations__={"noise": str}), "choices of noise"),
        (_members(noise_field=NoiseField("breadth", "w")), "field breadth"),
        (
            _members(noise_field=STANDARD_DEVIATION, __annotations__={"noise_std": float}),
            "field sensitivity, or a noise_level",
        ),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_class_that_forgets_something_is_refused(members: dict[str, Any], lacks: str) -> None:
    with pytest.raises(TypeError, match=lacks):
        type("Toy", (Mechanism,), members)


def test_a_kind_is_taken_once() -> None:
    register(Gaussian)
    toy = type("Toy", (Mechanism,), _members(kind="gaussian"))
    with pytest.raises(ValueError, match="gaussian already"):
        register(toy)
    assert MECHANISMS["gaussian"] is Gaussian


def test_mechanisms_of_other_kinds_do_not_dominate_each_other() -> None:
    assert not Laplace(1.0, 1.0).dominates(Gaussian(1.0, 10.0), Adjacency.ADD_REMOVE)
    assert not ZCDP(1.0).dominates(ZCDP(0.5), Adjacency.ADD_REMOVE)
    assert Gaussian(1.0, 1.0).dominates(Gaussian(1.0, 2.0), Adjacency.ADD_REMOVE)


def test_an_error_names_where_it_stands() -> None:
    with pytest.raises(InvalidInput) as refused:
        releases_from_fields(
            [
                {"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": 1.0},
                {"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": -1.0},
            ],
            "plan.",
        )
    assert refused.value.field == "plan.releases[1].noise_std"
    with pytest.raises(InvalidInput) as refused, within("budget"):
        raise InvalidInput("rho", "above 0", 0.0)
    assert refused.value.field == "budget.rho"


def test_what_needs_equally_many_records() -> None:
    plain = Release(Gaussian(1.0, 1.0))
    assert not Step((plain,)).needs_equal_sizes
    assert Step((plain,), Sample(Scheme.WITHOUT_REPLACEMENT, 0.1)).needs_equal_sizes
    assert Step((Release(OutputMixture(6.0, (1.0,), (1.0,))),)).needs_equal_sizes


def test_a_theorem_is_cited_with_its_conditions_and_source() -> None:
    cited = Theorem("name", "a ≤ b", "either adjacency", "definition").fields()
    assert list(cited) == ["method", "theorem", "conditions", "source"]
