"""Outcomes of queries: an answer's JSON text, or the failure that stands in its place.

An outcome crosses the pipe between the worker process and the service as one line.
"""

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dpledger.accounting.errors import AdjacencyMismatch, InvalidInput, Unproven, Unreachable
from dpledger.logs import log_failure

__all__ = ["Answer", "Failure", "FailureKind", "Outcome", "failure_of", "from_line", "is_lasting", "to_line"]


class FailureKind(enum.Enum):
    """Why there is no answer."""

    INVALID_INPUT = "invalid-input"
    ADJACENCY_MISMATCH = "adjacency-mismatch"
    UNPROVEN = "unproven"
    UNREACHABLE = "unreachable"
    TOO_HARD = "too-hard"
    BUSY = "busy"
    INTERNAL = "internal"


@dataclass(frozen=True)
class Answer:
    """An answer as JSON, whose floats round-trip exactly; formulas stay readable, unescaped."""

    text: str

    @classmethod
    def of(cls, fields: dict[str, Any]) -> "Answer":
        """The answer that is written with these fields."""
        return cls(json.dumps(fields, ensure_ascii=False, separators=(",", ":"), allow_nan=False))


@dataclass(frozen=True)
class Failure:
    """Why there is no answer, in words, and the error's own attributes."""

    kind: FailureKind
    detail: str
    members: Mapping[str, Any] = field(default_factory=dict)


Outcome = Answer | Failure

_ERRORS: dict[type[Exception], tuple[FailureKind, tuple[str, ...]]] = {
    InvalidInput: (FailureKind.INVALID_INPUT, ("field",)),
    AdjacencyMismatch: (FailureKind.ADJACENCY_MISMATCH, ("theorem", "needs", "found")),
    Unproven: (FailureKind.UNPROVEN, ()),
    Unreachable: (FailureKind.UNREACHABLE, ()),
}
_UNEXPECTED = "The failure is in the service's log. Ask again with the same key."


def failure_of(error: Exception) -> Failure:
    """The failure that an error is; one that nobody foresaw is logged."""
    for ancestor in type(error).__mro__:
        if ancestor in _ERRORS:
            kind, names = _ERRORS[ancestor]
            return Failure(kind, str(error), {name: getattr(error, name) for name in names})
    log_failure(error)
    return Failure(FailureKind.INTERNAL, _UNEXPECTED)


def is_lasting(outcome: Outcome) -> bool:
    """Whether the same query has the same outcome at any time."""
    return isinstance(outcome, Answer) or outcome.kind not in (FailureKind.BUSY, FailureKind.INTERNAL)


def to_line(outcome: Outcome) -> bytes:
    """One line of ASCII: a detail may quote what UTF-8 cannot carry."""
    if isinstance(outcome, Answer):
        return json.dumps({"answer": outcome.text}).encode() + b"\n"
    failure = {"kind": outcome.kind.value, "detail": outcome.detail, "members": dict(outcome.members)}
    return json.dumps({"failure": failure}).encode() + b"\n"


def from_line(line: bytes) -> Outcome:
    """The outcome that a line stands for; refuses with ``ValueError`` what is none."""
    content = json.loads(line)
    if "answer" in content:
        return Answer(content["answer"])
    failure = content["failure"]
    return Failure(FailureKind(failure["kind"]), failure["detail"], failure["members"])
