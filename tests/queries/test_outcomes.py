"""Outcomes survive the pipe, and every failure is a problem with its own status."""

import json

import pytest

from dpledger.accounting.errors import AccountingError, AdjacencyMismatch, InvalidInput, Unproven, Unreachable
from dpledger.api.http.problems import problem_of
from dpledger.api.query_problems import problem_of_failure, to_raw_response
from dpledger.queries.outcomes import (
    Answer,
    Failure,
    FailureKind,
    Outcome,
    failure_of,
    from_line,
    is_lasting,
    to_line,
)

ERRORS: list[Exception] = [
    InvalidInput("to.delta", "below 1", 2.0),
    InvalidInput("method", "known", "\ud800"),
    AdjacencyMismatch("a theorem", "replace-one", "add-remove"),
    Unproven("nothing covers it"),
    Unreachable("nothing meets it"),
]
OUTCOMES: list[Outcome] = [Answer('{"epsilon":1.0,"theorem":"ε ≤ ½"}'), *map(failure_of, ERRORS)]


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_an_outcome_is_one_line_and_the_same_after_it(outcome: Outcome) -> None:
    line = to_line(outcome)

    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert from_line(line) == outcome


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_of_the_worker_is_the_problem_that_it_is_elsewhere(error: Exception) -> None:
    assert problem_of_failure(failure_of(error)).body == problem_of(error).body


def test_every_error_of_the_accounting_package_has_a_failure_of_its_own() -> None:
    kinds = {type(error): failure_of(error).kind for error in ERRORS}

    assert set(kinds) == _below(AccountingError)
    assert len(set(kinds.values())) == len(kinds)


def _below(error: type[AccountingError]) -> set[type[Exception]]:
    own = [each for each in error.__subclasses__() if each.__module__ == AccountingError.__module__]
    return {*own, *(deeper for each in own for deeper in _below(each))}


def test_what_nobody_foresaw_is_logged_and_not_repeated_to_the_caller(
    caplog: pytest.LogCaptureFixture,
) -> None:
    error = RuntimeError("internals")
    failure = failure_of(error)

    assert "internals" in caplog.text
    assert problem_of_failure(failure).body == problem_of(error).body
    assert "internals" not in failure.detail


@pytest.mark.parametrize("kind", FailureKind)
def test_every_failure_is_a_problem_and_only_a_busy_one_says_when_to_come_back(kind: FailureKind) -> None:
    failure = Failure(kind, "why")
    sent = to_raw_response(failure, 7)

    assert json.loads(sent.body)["detail"] == "why"
    assert sent.status == json.loads(sent.body)["status"] >= 400
    assert ((b"retry-after", b"7") in sent.headers) is (kind is FailureKind.BUSY)
    assert is_lasting(failure) is (sent.status < 500)
