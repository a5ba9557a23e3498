"""The API's description has a schema for every mechanism, sample and budget, chosen by its kind."""

import dataclasses
from typing import Any

import pytest

from dpledger.accounting.errors import InvalidInput
from dpledger.accounting.mechanisms import MECHANISMS
from dpledger.accounting.sampling import Scheme
from dpledger.accounting.steps import mechanism_from_fields
from dpledger.api.app import create_app
from dpledger.ledger.filters import filter_named, filter_names
from dpledger.settings import Settings

SCHEMAS: dict[str, Any] = create_app(Settings()).openapi()["components"]["schemas"]
UNIONS = [
    ("ReleaseBody", "mechanism", set(MECHANISMS)),
    ("OpenReleaseBody", "mechanism", set(MECHANISMS)),
    ("SampleBody", "scheme", {scheme.value for scheme in Scheme}),
    ("OpenSampleBody", "scheme", {scheme.value for scheme in Scheme}),
    ("BudgetBody", "accounting", set(filter_names())),
]


def schema_of(union: str, kind: str) -> dict[str, Any]:
    reference: str = SCHEMAS[union]["discriminator"]["mapping"][kind]
    found: dict[str, Any] = SCHEMAS[reference.removeprefix("#/components/schemas/")]
    return found


@pytest.mark.parametrize(("union", "key", "kinds"), UNIONS)
def test_a_kind_tells_which_schema_holds(union: str, key: str, kinds: set[str]) -> None:
    described = SCHEMAS[union]

    assert described["discriminator"]["propertyName"] == key
    assert set(described["discriminator"]["mapping"]) == kinds
    references = [each["$ref"] for each in described["oneOf"]]
    assert references == list(described["discriminator"]["mapping"].values())
    for kind in kinds:
        schema = schema_of(union, kind)
        assert schema["properties"][key]["const"] == kind
        assert key in schema["required"]
        assert schema["additionalProperties"] is False
        assert "properties" in schema


@pytest.mark.parametrize("kind", MECHANISMS)
def test_a_release_has_the_fields_of_its_mechanism(kind: str) -> None:
    schema, mechanism = schema_of("ReleaseBody", kind), MECHANISMS[kind]
    own = dataclasses.fields(mechanism)  # type: ignore[arg-type]

    assert set(schema["properties"]) == {"mechanism", "count", "purpose", *(field.name for field in own)}
    assert set(schema["required"]) == {
        "mechanism",
        *(field.name for field in own if field.default is dataclasses.MISSING),
    }


@pytest.mark.parametrize(
    "kind", [kind for kind, each in MECHANISMS.items() if "noise" in each.__annotations__]
)
def test_a_noise_that_is_described_is_accepted_and_no_other(kind: str) -> None:
    schema = schema_of("ReleaseBody", kind)["properties"]["noise"]
    assert schema["enum"] == list(MECHANISMS[kind].choices["noise"])
    tried = {"gumbel", "laplace", "exponential", "gaussian", "uniform"}

    assert {noise for noise in tried if _is_accepted(kind, noise)} == set(MECHANISMS[kind].choices["noise"])


def _is_accepted(kind: str, noise: str) -> bool:
    size = {"gaussian": "noise_std"}.get(noise, "scale") if kind == "noisy-votes" else "scale"
    fields = {"noisy-votes": {size: 1.0}, "noisy-max": {"sensitivity": 1.0, "scale": 1.0}}
    rest: dict[str, Any] = fields.get(
        kind, {"sensitivity": 1.0, "threshold_scale": 1.0, "query_scale": 1.0, "max_queries": 1}
    )
    try:
        mechanism_from_fields({"mechanism": kind, "noise": noise, **rest})
    except InvalidInput as error:
        return error.field != "noise"
    return True


@pytest.mark.parametrize("name", filter_names())
def test_a_budget_has_the_fields_that_its_rule_takes(name: str) -> None:
    assert set(schema_of("BudgetBody", name)["properties"]) == {"accounting", *filter_named(name).fields}


def test_a_calibration_may_leave_open_what_it_solves_for() -> None:
    assert "noise_std" in schema_of("ReleaseBody", "gaussian")["required"]
    assert "noise_std" not in schema_of("OpenReleaseBody", "gaussian")["required"]
    assert "rate" in schema_of("SampleBody", "poisson")["required"]
    assert "rate" not in schema_of("OpenSampleBody", "poisson")["required"]
    assert SCHEMAS["CalibrationBody"]["properties"]["releases"]["items"] == {
        "$ref": "#/components/schemas/OpenReleaseBody"
    }


def test_every_reference_leads_somewhere() -> None:
    described = create_app(Settings()).openapi()
    known = {f"#/components/schemas/{name}" for name in described["components"]["schemas"]}

    assert set(_references(described)) <= known


def _references(content: Any) -> list[str]:
    if isinstance(content, dict):
        own = [content["$ref"]] if isinstance(content.get("$ref"), str) else []
        return own + [each for value in content.values() for each in _references(value)]
    return [each for value in content for each in _references(value)] if isinstance(content, list) else []
