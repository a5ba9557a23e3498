"""Typed descriptions of releases, samples and budgets for the API's description.

The service reads these by their kind: ``mechanism``, ``scheme``, ``accounting``. It checks the fields where
the numbers are used, so its own models are open; here each kind is a schema of its own with exactly its
fields, joined in a union that the kind discriminates, and generated clients are typed.
"""

import dataclasses
import inspect
import types
import typing
from collections.abc import Mapping
from typing import Any

from dpledger.accounting.mechanisms import MECHANISMS, Mechanism
from dpledger.accounting.mechanisms.tuned import TrialStep, Tuned
from dpledger.accounting.sampling import Scheme
from dpledger.ledger.filters import Filter, filter_named, filter_names

__all__ = ["describe_kinds"]

Schema = dict[str, Any]
_NUMBER: Schema = {"type": "number"}
_TYPES: dict[Any, Schema] = {
    float: _NUMBER,
    int: {"type": "integer"},
    bool: {"type": "boolean"},
    str: {"type": "string"},
    tuple[float, ...]: {"type": "array", "items": _NUMBER},
}


def describe_kinds(schemas: dict[str, Schema]) -> None:
    """Replace the open schemas among ``schemas`` by unions of typed ones, in place."""
    common = schemas["ReleaseBody"]["properties"]
    found = {kind: _release(mechanism, common) for kind, mechanism in MECHANISMS.items()}
    _join(schemas, "ReleaseBody", "mechanism", found, "Release")
    opened = {kind: _without_noise(MECHANISMS[kind], schema) for kind, schema in found.items()}
    _join(schemas, "OpenReleaseBody", "mechanism", opened, "Release", "Open")
    samples = {scheme.value: _sample(scheme) for scheme in Scheme}
    again = schemas["SeenSampleBody"]
    _join(schemas, "SampleBody", "scheme", samples, "Sample")
    opened = {scheme: _without_required(schema, ["rate"]) for scheme, schema in samples.items()}
    _join(schemas, "OpenSampleBody", "scheme", opened, "Sample", "Open")
    properties = {**again["properties"], "id": {"type": "string"}}
    schemas["SeenSample"] = {**again, "title": "SeenSample", "properties": properties, "required": ["id"]}
    schemas["SeenSampleBody"] = {
        "title": "SeenSampleBody",
        "description": again["description"],
        "anyOf": [_reference("SampleBody"), _reference("SeenSample")],
    }
    budget = schemas["BudgetBody"]
    budgets = {name: _budget(filter_named(name), budget) for name in filter_names()}
    _join(schemas, "BudgetBody", "accounting", budgets, "Budget")
    _leave_open(schemas["CalibrationBody"]["properties"])


def _leave_open(calibration: Schema) -> None:
    """A calibration solves for what one of these lacks."""
    calibration["releases"]["items"] = _reference("OpenReleaseBody")
    calibration["sample"] = {
        **calibration["sample"],
        "anyOf": [_reference("OpenSampleBody"), {"type": "null"}],
    }


def _join(
    schemas: dict[str, Schema],
    union: str,
    key: str,
    kinds: Mapping[str, Schema],
    suffix: str,
    prefix: str = "",
) -> None:
    """Put the schema of each kind, and their union under the name that others refer to."""
    mapping: dict[str, str] = {}
    for kind, schema in kinds.items():
        name = prefix + _title(kind, suffix)
        # A kind that leaves nothing open is the same in both unions.
        shared = name.removeprefix(prefix)
        if prefix and schemas.get(shared, {}).get("required") == schema["required"]:
            name = shared
        schemas.setdefault(name, {"title": name, **schema})
        mapping[kind] = _reference(name)["$ref"]
    description = schemas.get(union, schemas.get(union.removeprefix(prefix), {})).get("description", "")
    schemas[union] = {
        "title": union,
        "description": description,
        "oneOf": [{"$ref": each} for each in mapping.values()],
        "discriminator": {"propertyName": key, "mapping": mapping},
    }


def _reference(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _kind(key: str, kind: str) -> Schema:
    return {key: {"type": "string", "const": kind}}


def _closed(properties: Schema, required: list[str], description: str) -> Schema:
    return {
        "type": "object",
        "description": description,
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _release(mechanism: type[Mechanism], common: Mapping[str, Schema]) -> Schema:
    """A release by one mechanism: the mechanism's own fields beside those of every release."""
    hints = typing.get_type_hints(mechanism)
    own = dataclasses.fields(mechanism)  # type: ignore[arg-type]
    typed = {field.name: _typed(mechanism, field.name, hints) for field in own}
    properties = _kind("mechanism", mechanism.kind) | typed
    properties |= {name: common[name] for name in ("count", "purpose")}
    required = ["mechanism", *(field.name for field in own if field.default is dataclasses.MISSING)]
    return _closed(properties, required, (inspect.getdoc(mechanism) or "").partition("\n")[0])


def _without_noise(mechanism: type[Mechanism], schema: Schema) -> Schema:
    """A release that leaves its noise to a calibration."""
    noise = mechanism.noise_field
    return schema if noise is None else _without_required(schema, [noise.name])


def _typed(mechanism: type[Mechanism], name: str, hints: Mapping[str, Any]) -> Schema:
    hint = hints[name]
    if hint == tuple[tuple[TrialStep, ...], ...]:
        return {"type": "array", "items": {"type": "array", "items": _trial_step()}}
    if name in mechanism.choices:
        return {"type": "string", "enum": list(mechanism.choices[name])}
    if isinstance(hint, types.UnionType):
        inner = next(each for each in typing.get_args(hint) if each is not type(None))
        return {"anyOf": [_TYPES[inner], {"type": "null"}]}
    return _TYPES[hint]


def _trial_step() -> Schema:
    """A step of a trial; its releases are neither declared nor tuned, so that it does not hold itself."""
    kinds = [kind for kind, each in MECHANISMS.items() if not each.declared and each is not Tuned]
    releases = {"type": "array", "items": {"oneOf": [_reference(_title(kind, "Release")) for kind in kinds]}}
    properties = {"sample": _reference("SampleBody"), "releases": releases, "times": {"type": "integer"}}
    return _closed(properties, ["releases"], "A step of a trial, up to so many times, on fresh samples.")


def _title(kind: str, suffix: str) -> str:
    return "".join(word.capitalize() for word in kind.split("-")) + suffix


def _sample(scheme: Scheme) -> Schema:
    kind = _kind("scheme", scheme.value)
    if scheme is Scheme.FULL:
        return _closed({**kind, "rate": {"type": "null"}}, ["scheme"], "All of the dataset.")
    rate = {"rate": {"type": "number", "minimum": 0, "maximum": 1}}
    return _closed(kind | rate, ["scheme", "rate"], f"A sample drawn {scheme.value}, at this rate.")


def _budget(rule: Filter, all_fields: Schema) -> Schema:
    properties = {name: schema for name, schema in all_fields["properties"].items() if name in rule.fields}
    return _closed(_kind("accounting", rule.name) | properties, ["accounting"], f"The rule {rule.name}.")


def _without_required(schema: Schema, names: typing.Iterable[str]) -> Schema:
    return {**schema, "required": [name for name in schema["required"] if name not in names]}
