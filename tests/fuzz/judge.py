"""Holds every answer to the API's own description: status, media type, kind of problem, and shape."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jsonschema_rs

from dpledger.api.http import problems

__all__ = ["Answer", "Judge"]

_PROBLEM_FIELDS = ("type", "title", "status", "detail")
_ANYWHERE = frozenset(
    {
        problems.NOT_FOUND.type,
        problems.METHOD_NOT_ALLOWED.type,
        problems.REQUEST_TIMEOUT.type,
        problems.TOO_MANY_CONNECTIONS.type,
    }
)
"""Problems of an address or a connection and not of a route: no route lists them."""


@dataclass(frozen=True)
class Answer:
    """An answer as it came."""

    status: int
    media_type: str
    content: bytes
    replayed: bool = False


@dataclass(frozen=True)
class _Operation:
    pattern: "re.Pattern[str]"
    responses: Mapping[str, Any]


@dataclass
class Judge:
    """Knows every route's answers from the description; schemas are compiled once each."""

    description: dict[str, Any]
    _operations: dict[str, list[_Operation]] = field(default_factory=dict)
    _validators: dict[str, jsonschema_rs.Validator] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for template, operations in self.description["paths"].items():
            pattern = re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(template)))
            for method, operation in operations.items():
                found = _Operation(pattern, operation["responses"])
                self._operations.setdefault(method.upper(), []).append(found)

    def fault(self, method: str, path: str, answer: Answer) -> str | None:
        """What is wrong with an answer to a request; None for an answer as described."""
        if answer.status == 500:
            return f"500: {answer.content[:200]!r}"
        operation = self._operation(method, path)
        if answer.status >= 400:
            return self._problem_fault(operation, answer)
        if operation is None:
            return f"{answer.status} for an address that is not described"
        listed = operation.responses.get(str(answer.status))
        if listed is None:
            return f"{answer.status} is not described"
        return self._content_fault(f"{method} {operation.pattern.pattern} {answer.status}", listed, answer)

    def _operation(self, method: str, path: str) -> _Operation | None:
        return next((each for each in self._operations.get(method, ()) if each.pattern.fullmatch(path)), None)

    def _problem_fault(self, operation: _Operation | None, answer: Answer) -> str | None:
        if answer.media_type != problems.MEDIA_TYPE:
            return f"{answer.status} as {answer.media_type or 'nothing'}: {answer.content[:200]!r}"
        try:
            content = json.loads(answer.content)
        except ValueError:
            return f"a problem that is not JSON: {answer.content[:200]!r}"
        if any(name not in content for name in _PROBLEM_FIELDS) or content["status"] != answer.status:
            return f"a problem without its members: {answer.content[:200]!r}"
        if content["type"] in _ANYWHERE:
            return None
        listed = {} if operation is None else operation.responses.get(str(answer.status), {})
        schema = listed.get("content", {}).get(problems.MEDIA_TYPE, {}).get("schema")
        if schema is None or content["type"] not in schema["properties"]["type"]["enum"]:
            return f"{answer.status} {content['type']} is not described"
        return None

    def _content_fault(self, name: str, listed: Mapping[str, Any], answer: Answer) -> str | None:
        described = listed.get("content")
        if not described:
            return f"{name}: an answer where none is described" if answer.content else None
        schema = described.get(answer.media_type, {}).get("schema")
        if schema is None and answer.media_type not in described:
            return f"{name}: {answer.media_type} is not described"
        if answer.media_type != "application/json":
            return _lines_fault(answer)
        try:
            content = json.loads(answer.content, parse_constant=_refuse)
        except ValueError as error:
            return f"{name}: {error}"
        found = next(iter(self._validator(name, schema).iter_errors(content)), None)
        return None if found is None else f"{name}: {found.message} at {found.instance_path}"

    def _validator(self, name: str, schema: dict[str, Any]) -> jsonschema_rs.Validator:
        if name not in self._validators:
            whole = {**schema, "components": self.description["components"]}
            self._validators[name] = jsonschema_rs.validator_for(whole)
        return self._validators[name]


def _lines_fault(answer: Answer) -> str | None:
    """An export has one object per line; metrics are text."""
    if "ndjson" not in answer.media_type:
        return None
    for line in answer.content.splitlines():
        if not isinstance(json.loads(line, parse_constant=_refuse), dict):
            return f"a line that is no object: {line[:100]!r}"
    return None


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
