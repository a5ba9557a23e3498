"""Outcomes of queries as HTTP responses."""

from dpledger.api.http.problems import (
    ADJACENCY_MISMATCH,
    INTERNAL_ERROR,
    INVALID_INPUT,
    MEDIA_TYPE,
    UNPROVEN,
    UNREACHABLE,
    Problem,
    ProblemKind,
)
from dpledger.api.responses import RawResponse
from dpledger.queries.outcomes import Answer, Failure, FailureKind, Outcome
from dpledger.queries.worker_pool import RETRY_SECONDS

__all__ = ["BUSY", "TOO_HARD", "problem_of_failure", "to_raw_response"]

TOO_HARD = ProblemKind("question-too-hard", 422, "The query takes too much time or memory")
BUSY = ProblemKind("questions-busy", 503, "Too many queries are waiting")
_KINDS = {
    FailureKind.INVALID_INPUT: INVALID_INPUT,
    FailureKind.ADJACENCY_MISMATCH: ADJACENCY_MISMATCH,
    FailureKind.UNPROVEN: UNPROVEN,
    FailureKind.UNREACHABLE: UNREACHABLE,
    FailureKind.TOO_HARD: TOO_HARD,
    FailureKind.BUSY: BUSY,
    FailureKind.INTERNAL: INTERNAL_ERROR,
}


def problem_of_failure(failure: Failure) -> Problem:
    """The problem that a failure is."""
    return Problem(_KINDS[failure.kind], failure.detail, failure.members)


def to_raw_response(found: Outcome, retry_seconds: int = RETRY_SECONDS) -> RawResponse:
    """An outcome as it goes out; a busy one says when to ask again."""
    if isinstance(found, Answer):
        return _raw(200, b"application/json", found.text.encode())
    problem = problem_of_failure(found)
    response = _raw(problem.kind.status, MEDIA_TYPE.encode(), problem.body)
    if found.kind is FailureKind.BUSY:
        response.headers.append((b"retry-after", b"%d" % retry_seconds))
    return response


def _raw(status: int, media_type: bytes, body: bytes) -> RawResponse:
    return RawResponse(status, [(b"content-length", b"%d" % len(body)), (b"content-type", media_type)], body)
