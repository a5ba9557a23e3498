"""Every refusal is a problem (RFC 9457) that says what was wrong."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from dpledger.accounting.errors import AdjacencyMismatch, InvalidInput, Unproven, Unreachable
from dpledger.api.http import body
from dpledger.api.http.body import LISTS, MAX_KEYS, ORDINARY, parse_json
from dpledger.api.schemas.requests import CostRequest
from dpledger.queries import amplification
from dpledger.server import create_server
from dpledger.settings import Settings
from tests.api.service import Service, problem

GAUSSIAN = {"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": 2.0}
BODY: dict[str, Any] = {"releases": [GAUSSIAN], "adjacency": "add-remove"}
JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"adjacency": "substitute"}, "adjacency"),
        ({"adjacency": None}, "adjacency"),
        ({"releases": []}, "releases"),
        ({"releases": [GAUSSIAN] * 65}, "releases"),
        ({"releases": {}}, "releases"),
        ({"releases": [GAUSSIAN, 7]}, "releases[1]"),
        ({"releases": [{}]}, "releases[0].mechanism"),
        ({"releases": [{"mechanism": "magic"}]}, "releases[0].mechanism"),
        ({"releases": [GAUSSIAN, {**GAUSSIAN, "noise_std": 0.0}]}, "releases[1].noise_std"),
        ({"releases": [{**GAUSSIAN, "noise_std": -1}]}, "releases[0].noise_std"),
        ({"releases": [{**GAUSSIAN, "noise_std": "2"}]}, "releases[0].noise_std"),
        ({"releases": [{**GAUSSIAN, "noise_std": True}]}, "releases[0].noise_std"),
        ({"releases": [{**GAUSSIAN, "noise_std": 10**400}]}, "releases[0].noise_std"),
        ({"releases": [{**GAUSSIAN, "colour": "\ud800"}]}, "releases[0].colour"),
        ({"releases": [{**GAUSSIAN, "count": 0}]}, "releases[0].count"),
        ({"releases": [{**GAUSSIAN, "count": 1.5}]}, "releases[0].count"),
        ({"releases": [{**GAUSSIAN, "count": "3"}]}, "releases[0].count"),
        ({"releases": [{**GAUSSIAN, "purpose": 7}]}, "releases[0].purpose"),
        ({"releases": [{**GAUSSIAN, "purpose": "x" * 101}]}, "releases[0].purpose"),
        ({"sample": {"scheme": "poisson", "rate": 1.5}}, "sample.rate"),
        ({"sample": {"scheme": "poisson"}}, "sample.rate"),
        ({"sample": {"scheme": "poisson", "rate": "0.1"}}, "sample.rate"),
        ({"sample": {"scheme": "first-come"}}, "sample.scheme"),
        ({"sample": {"scheme": "full", "id": "7"}}, "sample.id"),
        ({"orders": []}, "orders"),
        ({"orders": [1.0]}, "orders"),
        ({"orders": [3.0, 2.0]}, "orders"),
        ({"orders": [2.0, True]}, "orders[1]"),
        ({"orders": [10**400]}, "orders[0]"),
        ({"orders": [2.0 + k for k in range(513)]}, "orders"),
        ({"order": 2.0}, "order"),
    ],
)
def test_an_invalid_input_names_its_field(client: TestClient, changes: dict[str, Any], field: str) -> None:
    content = json.dumps({**BODY, **changes})

    found = problem(client.post("/v1/costs", content=content, headers=JSON), 422, "invalid-input")

    assert found["field"] == field
    assert found["detail"]


def test_every_invalid_field_is_listed(client: TestClient) -> None:
    found = problem(client.post("/v1/costs", json={"sample": {"scheme": 1}}), 422, "invalid-input")

    assert {error["field"] for error in found["errors"]} == {"releases", "adjacency", "sample.scheme"}


def test_a_long_detail_is_cut(client: TestClient) -> None:
    release = {**GAUSSIAN, "noise_std": [0.5] * 1000}

    found = problem(client.post("/v1/costs", json={**BODY, "releases": [release]}), 422, "invalid-input")

    assert len(found["detail"]) == 500


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"[1,]",
        b"{} {}",
        b"\xff",
        b'{"adjacency": "add-remove", "adjacency": "replace-one"}',
        b'{"orders": [' + b"9" * 5000 + b"]}",
        b"[" * 9_000,
    ],
)
def test_what_is_not_json_is_refused(client: TestClient, content: bytes) -> None:
    problem(client.post("/v1/costs", content=content, headers=JSON), 400, "malformed-json")


@pytest.mark.parametrize("name", ["NaN", "Infinity", "-Infinity"])
def test_what_is_no_number_is_named(client: TestClient, name: str) -> None:
    content = json.dumps({**BODY, "orders": [2.0, float(name)]})

    found = problem(client.post("/v1/costs", content=content, headers=JSON), 422, "invalid-input")

    assert found["detail"] == f"{name} is not JSON: every number must be finite."


@pytest.mark.parametrize("number", ["1e400", "-1e400", "1e-400", "-0.01E-330"])
def test_a_number_that_fits_no_double_is_refused(client: TestClient, number: str) -> None:
    content = json.dumps(BODY).replace("2.0", number)

    found = problem(client.post("/v1/costs", content=content, headers=JSON), 422, "invalid-input")

    assert found["detail"] == f"{number} does not fit a double-precision number."


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_double_is_read_exactly(number: float) -> None:
    assert repr(parse_json(json.dumps([number]).encode())[0]) == repr(number)


@pytest.mark.parametrize("zero", ["0.0", "-0.0", "0e5", "0.000E-400"])
def test_zero_is_read_as_zero(zero: str) -> None:
    assert parse_json(zero.encode()) == 0.0


def test_an_empty_body_is_refused(client: TestClient) -> None:
    assert problem(client.post("/v1/costs", headers=JSON), 422, "invalid-input")["field"] == "body"


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "text/json", ""])
def test_another_media_type_is_refused(client: TestClient, content_type: str) -> None:
    response = client.post("/v1/costs", content=json.dumps(BODY), headers={"content-type": content_type})

    problem(response, 415, "unsupported-media-type")


def test_a_charset_may_be_named(client: TestClient) -> None:
    headers = {"content-type": "Application/JSON; charset=utf-8"}

    assert client.post("/v1/costs", content=json.dumps(BODY), headers=headers).status_code == 200


def test_a_body_over_the_limit_is_refused(client: TestClient) -> None:
    content = json.dumps(BODY).ljust(ORDINARY.most_bytes + 1)

    problem(client.post("/v1/costs", content=content, headers=JSON), 413, "payload-too-large")


def test_a_body_at_the_limit_is_read(client: TestClient) -> None:
    content = json.dumps(BODY).ljust(ORDINARY.most_bytes)

    assert client.post("/v1/costs", content=content, headers=JSON).status_code == 200


@pytest.mark.parametrize("content", [b"[" * 100_000, b'{"releases":[' + b"[]," * 170_000 + b"[]]}"])
@pytest.mark.parametrize("path", ["/v1/costs", "/v1/datasets", "/v1/datasets/adult/authorizations"])
def test_a_body_of_too_many_values_is_refused_unread(shared: Service, path: str, content: bytes) -> None:
    headers = shared.headers(**JSON, **{"Idempotency-Key": "values"})
    unused = mock.Mock(loads=mock.Mock(side_effect=AssertionError("it was parsed")))
    with mock.patch.object(body, "json", unused):
        answer = shared.client.post(path, content=content, headers=headers)

    assert "10000 values" in problem(answer, 413, "payload-too-large")["detail"]


def test_a_body_that_says_it_is_too_long_is_not_waited_for(client: TestClient) -> None:
    def pieces() -> Iterator[bytes]:
        raise AssertionError("it was read")
        yield b""

    headers = {**JSON, "Content-Length": str(ORDINARY.most_bytes + 1)}
    problem(client.post("/v1/costs", content=pieces(), headers=headers), 413, "payload-too-large")


def test_lists_may_be_longer(shared: Service) -> None:
    item = {"dataset": "nowhere", "run": "r", "releases": [GAUSSIAN]}
    content = json.dumps({"mode": "each", "items": [item] * 1000}).ljust(LISTS.most_bytes)
    headers = shared.headers(**JSON, **{"Idempotency-Key": "long"})

    assert shared.client.post("/v1/authorizations", content=content, headers=headers).status_code == 201


@pytest.mark.parametrize("padding", ["", " " * 70_000], ids=["small", "large"])
def test_too_many_keys_are_refused_before_validation(client: TestClient, padding: str) -> None:
    content = json.dumps({f"k{number}": 1 for number in range(MAX_KEYS + 1)}) + padding

    found = problem(client.post("/v1/costs", content=content, headers=JSON), 422, "invalid-input")
    assert "65 keys" in found["detail"]
    assert "errors" not in found


@pytest.mark.parametrize("padding", ["", " " * 70_000], ids=["small", "large"])
@pytest.mark.parametrize(
    "body",
    [
        {f"k{number}": 1 for number in range(60)},
        {"releases": [{} for _ in range(64)], "adjacency": "add-remove"},
        {**BODY, "orders": ["x"] * 512},
    ],
)
def test_few_errors_are_told_whatever_is_wrong(
    client: TestClient, body: dict[str, Any], padding: str
) -> None:
    answer = client.post("/v1/costs", content=json.dumps(body) + padding, headers=JSON)

    found = problem(answer, 422, "invalid-input")
    assert 1 <= len(found["errors"]) <= 20


def test_a_large_body_is_read_beside_the_event_loop(client: TestClient) -> None:
    threads: list[int] = []
    read = CostRequest.model_validate

    def noted(content: Any) -> CostRequest:
        threads.append(threading.get_ident())
        return read(content)

    with mock.patch.object(CostRequest, "model_validate", noted):
        answer = client.post("/v1/costs", content=json.dumps(BODY).ljust(70_000), headers=JSON)
    assert answer.status_code == 200
    assert len(threads) == 1
    assert threads[0] != client.portal.call(threading.get_ident)  # type: ignore[union-attr]


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/cost", "/v1/costs/"])
def test_an_unknown_address_is_a_problem(client: TestClient, path: str) -> None:
    problem(client.get(path), 404, "not-found")


def test_a_wrong_method_is_a_problem_that_names_the_right_one(client: TestClient) -> None:
    response = client.get("/v1/costs")

    problem(response, 405, "method-not-allowed")
    assert response.headers["allow"] == "POST"


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/v1/datasets", "GET, POST"),
        ("/v1/tokens", "GET, POST"),
        ("/v1/datasets/adult/partitions", "GET, POST"),
        ("/v1/datasets/adult/reservations", "GET, POST"),
        ("/v1/datasets/adult/authorizations", "POST"),
        ("/v1/datasets/adult/budget", "GET"),
    ],
)
def test_a_wrong_method_is_reported_every_right_one(client: TestClient, path: str, allowed: str) -> None:
    response = client.put(path)

    problem(response, 405, "method-not-allowed")
    assert response.headers["allow"] == allowed


def test_a_page_is_reported_every_right_method_too(tmp_path: Path) -> None:
    with TestClient(create_server(Settings(f"sqlite:///{tmp_path / 'ledger.db'}"))) as client:
        response = client.delete("/dashboard/login")

    assert response.status_code == 405
    assert response.headers["allow"] == "GET, HEAD, POST"


class Sharper(AdjacencyMismatch):
    """An error that the table does not list, below one that it does."""


@pytest.mark.parametrize(
    ("error", "slug", "members"),
    [
        (InvalidInput("alpha", "above 1", 0.5), "invalid-input", {"field": "alpha"}),
        (Unproven("no theorem"), "unproven", {}),
        (Unreachable("no noise is enough"), "unreachable", {}),
        *(
            (
                kind("Theorem 9", "replace-one", "add-remove"),
                "adjacency-mismatch",
                {"theorem": "Theorem 9", "needs": "replace-one", "found": "add-remove"},
            )
            for kind in (AdjacencyMismatch, Sharper)
        ),
    ],
)
def test_a_domain_error_has_one_answer(
    client: TestClient, error: Exception, slug: str, members: dict[str, str]
) -> None:
    with mock.patch.object(amplification, "cost_of", side_effect=error):
        found = problem(client.post("/v1/costs", json=BODY), 422, slug)

    assert found["detail"] == str(error)
    assert {name: found[name] for name in members} == members
    assert set(found) == {"type", "title", "status", "detail", *members}


def test_an_unexpected_error_tells_nothing_of_the_inside(client: TestClient) -> None:
    with mock.patch.object(amplification, "cost_of", side_effect=ZeroDivisionError("secret 7")):
        response = client.post("/v1/costs", json=BODY)

    problem(response, 500, "internal-error")
    assert "secret" not in response.text
