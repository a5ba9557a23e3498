"""Step descriptions: canonical text, stable digests, and what is refused."""

import hashlib
import itertools
import json
from typing import Any

import pytest

from dpledger.accounting.errors import InvalidInput
from dpledger.accounting.mechanisms import MECHANISMS, Gaussian, Laplace
from dpledger.accounting.sampling import Adjacency, Sample, Scheme
from dpledger.accounting.steps import MAX_RELEASES, STEP_VERSION, Release, Step, mechanism_from_fields

GAUSSIAN = {"mechanism": "gaussian", "sensitivity": 3.0, "noise_std": 300.0}
LAPLACE = {"mechanism": "laplace", "sensitivity": 1.0, "scale": 50.0}
VOTES = {"mechanism": "noisy-votes", "noise": "gaussian", "noise_std": 40.0}
POISSON = {"scheme": "poisson", "rate": 0.1}

EXAMPLES: dict[str, dict[str, Any]] = {
    "approximate": {"epsilon": 1.0, "delta": 1e-6},
    "discrete-gaussian": {"sensitivity": 1.0, "noise_std": 4.0},
    "exponential": {"epsilon": 0.5, "monotonic": True},
    "gaussian": {"sensitivity": 3.0, "noise_std": 300.0},
    "gdp": {"mu": 0.7},
    "laplace": {"sensitivity": 1.0, "scale": 50.0},
    "noisy-max": {"noise": "gumbel", "sensitivity": 1.0, "scale": 20.0, "monotonic": False},
    "noisy-votes": {"noise": "gaussian", "noise_std": 40.0},
    "propose-test-release": {"epsilon": 0.5, "delta": 1e-7},
    "pure": {"epsilon": 0.3},
    "randomized-response": {"epsilon": 1.1},
    "rdp": {"orders": [2.0, 64.0], "epsilons": [0.1, 0.4]},
    "zcdp": {"rho": 0.01},
}


def step(
    *releases: dict[str, Any], sample: dict[str, Any] | None = None, adjacency: str = "add-remove"
) -> Step:
    return Step.from_fields(list(releases), sample, adjacency)


@pytest.mark.parametrize(
    ("description", "text"),
    [
        (
            step(GAUSSIAN),
            '{"adjacency":"add-remove","releases":[{"mechanism":"gaussian","noise_std":300.0,'
            '"sensitivity":3.0}],"sample":{"scheme":"full"},"version":1}',
        ),
        (
            step(LAPLACE, GAUSSIAN | {"count": 2}, sample=POISSON, adjacency="replace-one"),
            '{"adjacency":"replace-one","releases":[{"count":2,"mechanism":"gaussian","noise_std":300.0,'
            '"sensitivity":3.0},{"mechanism":"laplace","scale":50.0,"sensitivity":1.0}],'
            '"sample":{"rate":0.1,"scheme":"poisson"},"version":1}',
        ),
    ],
)
def test_canonical_text_is_literally_this(description: Step, text: str) -> None:
    assert description.canonical == text
    assert description.digest == hashlib.sha256(text.encode()).hexdigest()


DIGESTS = {
    "approximate": "66f606be852e5577ac9db03e490cd15ab6f98950ae928dcc7fc0ca3a64885687",
    "discrete-gaussian": "edd04149c6530a3662d425c7aacbe859a88699b1cda16a6c5b0b2beef265936c",
    "exponential": "fbd9a9f77339e0fc8f47150938ba36adbdb6154d92e425d28a478abf1bfb6b03",
    "gaussian": "0b56a802bd3b0fde9a30f705be3c4ece73b52a237aa299349743773390c6dcf9",
    "gdp": "5a04e1c1159cae25074e18bc13213f29e542274b8389aff38589c99006a594b6",
    "laplace": "8f4e5a60b0adc4d70db475da2c23fe03aee751ed49e521fdea7bd1dd88bf6414",
    "noisy-max": "08987b03894ae737ca4c2f484f589e82d4f988a3ea70549b2c8a0e7a9f96582d",
    "noisy-votes": "501129cf162761a704ed31b152634dea16edd114b62857966dff908cdd848b79",
    "propose-test-release": "ce7956833ae8ed3ebcd09116d9d410d6e9ba3bb4e243779f66fc2ada1e3ec6f3",
    "pure": "15f9a0dccc5b28a0e0c7c86e88b42d5bb4736641fc601457375f81fbc7b97211",
    "randomized-response": "362858fd831abf4f57fc727490da5ca18f935aee002f42ec380b808e58343bb4",
    "rdp": "1c5663229eb8140174bf8ce5696f0eb4e4f69250f6295448010898e6c6b4e58d",
    "zcdp": "1c73ce5cb6a3dcb2dbc4342947d0968bad683f32630321fc0b3af0a58034dd1f",
}


@pytest.mark.parametrize("kind", sorted(EXAMPLES))
def test_digests_never_change(kind: str) -> None:
    """A change here alters what stored entries say: raise STEP_VERSION and keep reading the old one."""
    assert step({"mechanism": kind, **EXAMPLES[kind]}).digest == DIGESTS[kind]


@pytest.mark.parametrize("kind", sorted(EXAMPLES))
def test_every_kind_round_trips_through_its_stored_text(kind: str) -> None:
    wire = {"mechanism": kind, **EXAMPLES[kind]}
    stored = step(wire, sample=POISSON)
    read = Step.from_canonical(stored.canonical)
    assert read == stored
    assert read.digest == stored.digest
    assert stored.releases[0].fields() == wire
    assert isinstance(stored.releases[0].mechanism, MECHANISMS[kind])


def test_the_order_of_releases_does_not_matter() -> None:
    digests = {step(*order).digest for order in itertools.permutations([GAUSSIAN, LAPLACE, VOTES])}
    assert len(digests) == 1


def test_whole_numbers_and_floats_are_the_same() -> None:
    whole = {"mechanism": "gaussian", "sensitivity": 3, "noise_std": 300}
    assert step(whole).digest == step(GAUSSIAN).digest
    assert step({"mechanism": "rdp", "orders": [2, 64], "epsilons": [0, 1]}) == step(
        {"mechanism": "rdp", "orders": [2.0, 64.0], "epsilons": [0.0, 1.0]}
    )


def test_purpose_is_not_part_of_what_happened() -> None:
    assert step(GAUSSIAN | {"purpose": "gradient"}) == step(GAUSSIAN)


def test_a_count_of_one_is_the_same_as_none() -> None:
    assert step(GAUSSIAN | {"count": 1}).digest == step(GAUSSIAN).digest
    assert step(GAUSSIAN | {"count": 2}).digest != step(GAUSSIAN).digest


@pytest.mark.parametrize(
    "other",
    [
        step(GAUSSIAN | {"noise_std": 301.0}),
        step(GAUSSIAN | {"mechanism": "discrete-gaussian"}),
        step(GAUSSIAN, GAUSSIAN),
        step(GAUSSIAN, sample=POISSON),
        step(GAUSSIAN, adjacency="replace-one"),
    ],
)
def test_whatever_changes_the_meaning_changes_the_digest(other: Step) -> None:
    assert other.digest != step(GAUSSIAN).digest


def test_values_and_wire_form_agree() -> None:
    built = Step((Release(Gaussian(3, 300)), Release(Laplace(1, 50), 4)), Sample(Scheme.POISSON, 0.1))
    assert built == step(LAPLACE | {"count": 4}, GAUSSIAN, sample=POISSON)
    assert built.adjacency is Adjacency.ADD_REMOVE


def test_a_version_that_is_not_known_is_refused() -> None:
    stored = json.loads(step(GAUSSIAN).canonical)
    stored["version"] = STEP_VERSION + 1
    with pytest.raises(InvalidInput, match="version must be 1, found 2"):
        Step.from_canonical(json.dumps(stored))


@pytest.mark.parametrize("count", [0, MAX_RELEASES + 1])
def test_a_step_has_some_releases_and_not_too_many(count: int) -> None:
    with pytest.raises(InvalidInput, match=rf"^releases must be 1 to {MAX_RELEASES} of them, found {count}"):
        step(*[GAUSSIAN] * count)


@pytest.mark.parametrize("count", [0, -1, 1.0, True, None])
def test_counts_are_whole_numbers(count: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^count must be a whole number"):
        step(GAUSSIAN | {"count": count})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "^mechanism must be one of above-threshold, approximate, "),
        ({"mechanism": "magic"}, "^mechanism must be one of .* found 'magic'"),
        ({"mechanism": 3}, "^mechanism must be one of .* found 3"),
        (
            GAUSSIAN | {"scale": 1.0},
            "^scale must be absent: gaussian takes sensitivity, noise_std, found 1.0",
        ),
        (GAUSSIAN | {"kind": "pure"}, "^kind must be absent: gaussian takes sensitivity, noise_std"),
        (GAUSSIAN | {"declared": True}, "^declared must be absent: gaussian takes sensitivity, noise_std"),
        ({"mechanism": "gaussian", "sensitivity": 1.0}, "^noise_std must be given for gaussian, found None"),
        ({"mechanism": "laplace", "scale": 1.0}, "^sensitivity must be given for laplace, found None"),
        (GAUSSIAN | {"noise_std": "large"}, "^noise_std must be a finite number above 0, found 'large'"),
    ],
)
def test_unknown_missing_and_bad_fields_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        mechanism_from_fields(fields)


def test_optional_fields_may_be_left_out() -> None:
    wire = {"mechanism": "noisy-max", "noise": "laplace", "sensitivity": 1.0, "scale": 2.0}
    assert mechanism_from_fields(wire).fields() == wire | {"monotonic": False}


def test_reading_does_not_change_the_request() -> None:
    wire = GAUSSIAN | {"count": 2, "purpose": "gradient"}
    before = dict(wire)
    Release.from_fields(wire)
    assert wire == before


@pytest.mark.parametrize("adjacency", ["", "add_remove", None])
def test_unknown_adjacencies_are_refused(adjacency: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^adjacency must be one of add-remove, replace-one"):
        step(GAUSSIAN, adjacency=adjacency)


def test_every_name_on_the_wire_belongs_to_one_class() -> None:
    assert set(EXAMPLES) <= set(MECHANISMS)
    assert all(mechanism.kind == kind for kind, mechanism in MECHANISMS.items())
    assert len(set(MECHANISMS.values())) == len(MECHANISMS)
