"""The judge finds what it is there to find."""

import json

import pytest

from dpledger.api.app import create_app
from dpledger.settings import Settings
from tests.fuzz.judge import Answer, Judge
from tests.fuzz.mutation import Raw, Repeated, to_text

JSON, PROBLEM = "application/json", "application/problem+json"


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge(create_app(Settings()).openapi())


def problem(status: int, slug: str) -> Answer:
    content = {"type": f"/problems/{slug}", "title": "t", "status": status, "detail": "d"}
    return Answer(status, PROBLEM, json.dumps(content).encode())


@pytest.mark.parametrize(
    ("method", "path", "answer", "found"),
    [
        ("GET", "/healthz", Answer(500, PROBLEM, b"{}"), "500"),
        ("GET", "/v1/datasets", Answer(404, "text/plain", b"none"), "text/plain"),
        ("GET", "/v1/datasets", Answer(404, PROBLEM, b"<"), "not JSON"),
        ("GET", "/v1/datasets", Answer(400, PROBLEM, problem(404, "not-found").content), "members"),
        ("GET", "/v1/datasets", problem(409, "budget-exhausted"), "not described"),
        ("GET", "/v1/datasets", problem(418, "teapot"), "not described"),
        ("GET", "/v1/datasets", Answer(200, JSON, b'{"items": 1, "next": null}'), "array"),
        ("GET", "/v1/datasets", Answer(200, JSON, b'{"items": [], "next": NaN}'), "NaN"),
        ("GET", "/v1/datasets", Answer(200, "text/html", b"<html>"), "text/html"),
        ("GET", "/v1/datasets", Answer(206, JSON, b"{}"), "206"),
        ("GET", "/v1/nowhere", Answer(200, JSON, b"{}"), "not described"),
    ],
)
def test_a_wrong_answer_is_found(judge: Judge, method: str, path: str, answer: Answer, found: str) -> None:
    fault = judge.fault(method, path, answer)
    assert fault is not None
    assert found in fault


@pytest.mark.parametrize(
    ("method", "path", "answer"),
    [
        ("GET", "/v1/datasets", Answer(200, JSON, b'{"items": [], "next": null}')),
        ("GET", "/v1/datasets/a~b/entries", problem(404, "not-found")),
        ("PUT", "/v1/datasets", problem(405, "method-not-allowed")),
        ("POST", "/v1/datasets/adult/authorizations", problem(409, "budget-exhausted")),
        ("DELETE", "/v1/tokens/abc", Answer(204, "", b"")),
    ],
)
def test_a_right_answer_passes(judge: Judge, method: str, path: str, answer: Answer) -> None:
    assert judge.fault(method, path, answer) is None


def test_raw_tokens_and_repeated_keys_are_written_as_they_are() -> None:
    value = {"a": [Raw("NaN"), "\ud800"], "b": Repeated([("c", 1), ("c", {})])}
    assert to_text(value) == '{"a":[NaN,"\\ud800"],"b":{"c":1,"c":{}}}'
