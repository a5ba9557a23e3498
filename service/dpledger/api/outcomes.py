"""From what the ledger says to an HTTP answer: one way, for first answers and repeated ones alike."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.responses import Response

from dpledger.api.idempotency import REPLAYED_HEADER
from dpledger.api.problems import BUDGET_EXHAUSTED, MEDIA_TYPE, Problem, problem_of
from dpledger.ledger.requests import Answer, Reply

__all__ = ["Told", "told", "told_error"]

JSON_TYPE = (b"content-type", b"application/json")
_PROBLEM_TYPE = (b"content-type", MEDIA_TYPE.encode())
_REPLAYED = (REPLAYED_HEADER.lower().encode(), b"true")


@dataclass(frozen=True)
class Told:
    """Status, headers and body as they go out."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes

    def response(self) -> Response:
        """The same for a route of the framework."""
        response = Response(self.body, self.status)
        response.raw_headers = list(self.headers)
        return response


def told(reply: Reply | Exception) -> Told:
    """The HTTP answer to a decision: 201, 409 for a refusal, or the problem that an error is."""
    if not isinstance(reply, Answer):
        return told_error(reply)
    if reply.outcome == "granted":
        return _told(201, JSON_TYPE, reply.body.encode(), reply.replayed)
    return _told(409, _PROBLEM_TYPE, _refusal(reply.body).body, reply.replayed)


def told_error(error: Exception) -> Told:
    """The problem that an error is."""
    problem = problem_of(error)
    answer = _told(problem.kind.status, _PROBLEM_TYPE, problem.body, replayed=False)
    answer.headers.extend(_raw(problem.headers))
    return answer


def _told(status: int, media_type: tuple[bytes, bytes], body: bytes, replayed: bool) -> Told:
    headers = [(b"content-length", b"%d" % len(body)), media_type]
    if replayed:
        headers.append(_REPLAYED)
    return Told(status, headers, body)


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
