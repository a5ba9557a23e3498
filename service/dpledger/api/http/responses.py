"""Renders decisions and errors as HTTP responses, first answers and replays alike."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.responses import Response

from dpledger.api.http.idempotency import REPLAYED_HEADER
from dpledger.api.http.problems import BUDGET_EXHAUSTED, MEDIA_TYPE, Problem, problem_of
from dpledger.ledger.model.requests import Answer, Reply

__all__ = ["RawResponse", "error_response", "to_response"]

JSON_TYPE = (b"content-type", b"application/json")
_PROBLEM_TYPE = (b"content-type", MEDIA_TYPE.encode())
_REPLAYED = (REPLAYED_HEADER.lower().encode(), b"true")


@dataclass(frozen=True)
class RawResponse:
    """Status, headers and body as they go out."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes

    def response(self) -> Response:
        """The same for a route of the framework."""
        response = Response(self.body, self.status)
        response.raw_headers = list(self.headers)
        return response


def to_response(reply: Reply | Exception) -> RawResponse:
    """The HTTP answer to a decision: 201, 409 for a refusal, or the problem that an error is."""
    if not isinstance(reply, Answer):
        return error_response(reply)
    if reply.outcome == "granted":
        return _to_response(201, JSON_TYPE, reply.body.encode(), reply.replayed)
    return _to_response(409, _PROBLEM_TYPE, _refusal(reply.body).body, reply.replayed)


def error_response(error: Exception) -> RawResponse:
    """The problem that an error is."""
    problem = problem_of(error)
    answer = _to_response(problem.kind.status, _PROBLEM_TYPE, problem.body, replayed=False)
    answer.headers.extend(_raw(problem.headers))
    return answer


def _to_response(status: int, media_type: tuple[bytes, bytes], body: bytes, replayed: bool) -> RawResponse:
    headers = [(b"content-length", b"%d" % len(body)), media_type]
    if replayed:
        headers.append(_REPLAYED)
    return RawResponse(status, headers, body)


def _raw(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]


def _refusal(body: str) -> Problem:
    """A refusal as a problem; its detail is made from its body, so that it is the same each time."""
    members = json.loads(body)
    return Problem(BUDGET_EXHAUSTED, _detail(members), members)


def _detail(members: Mapping[str, object]) -> str:
    if "results" in members:
        return "The budgets do not cover all items, so none was taken."
    return f"The budget of {members['dataset']} does not cover this; fits says what would still be granted."
