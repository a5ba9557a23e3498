"""A token pasted where an id, a name or a key belongs: its secret comes back nowhere."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from dpledger.logs import JsonFormatter
from tests.api.service import GAUSSIAN, ZCDP, Service, problem

TOKEN = "dpl_abcdefghijklmnop_qrstuvwxyz234567abcdefghijklmnopqrstuvwxyz234567abcd"
SECRET = TOKEN.rpartition("_")[2]
SPEND: dict[str, Any] = {"run": "r", "releases": [GAUSSIAN]}
ADDRESSES = [
    ("GET", f"/v1/datasets/{TOKEN}"),
    ("GET", f"/v1/datasets/{TOKEN}/budget"),
    ("GET", f"/v1/datasets/adult/entries/{TOKEN}"),
    ("GET", f"/v1/datasets/adult/entries?next={TOKEN}"),
    ("GET", f"/v1/datasets/adult/entries?run={TOKEN}&kind={TOKEN}"),
    ("GET", f"/v1/datasets?search={TOKEN}&limit={TOKEN}"),
    ("GET", f"/{TOKEN}"),
    ("DELETE", f"/v1/tokens/{TOKEN}"),
    ("PUT", f"/v1/datasets/{TOKEN}"),
]
BODIES: list[tuple[str, dict[str, Any]]] = [
    (f"/v1/datasets/{TOKEN}/authorizations", SPEND),
    ("/v1/datasets/adult/authorizations", {**SPEND, "run": TOKEN}),
    ("/v1/datasets/adult/authorizations", {**SPEND, "partition": TOKEN}),
    ("/v1/datasets/adult/authorizations", {**SPEND, "sample": {"id": TOKEN}}),
    ("/v1/datasets/adult/authorizations", {**SPEND, TOKEN: 1}),
    ("/v1/datasets/adult/authorizations", {**SPEND, "releases": [{"mechanism": TOKEN}]}),
    ("/v1/datasets/adult/authorizations", {**SPEND, "releases": [{**GAUSSIAN, "purpose": f"a {TOKEN}"}]}),
    ("/v1/datasets/adult/authorizations", {**SPEND, "releases": [{**GAUSSIAN, TOKEN: TOKEN}]}),
    ("/v1/authorizations", {"mode": "each", "items": [{**SPEND, "dataset": TOKEN}]}),
    ("/v1/authorizations", {"mode": "each", "items": [{**SPEND, "dataset": "adult", "partition": TOKEN}]}),
    (f"/v1/reservations/{TOKEN}/settlement", {"used": 1}),
    (f"/v1/reservations/{TOKEN}~2/settlement", {"used": 1}),
    ("/v1/datasets", {"name": TOKEN, "budget": ZCDP}),
    ("/v1/datasets", {"name": "other", "description": f"see {TOKEN}", "budget": ZCDP}),
    ("/v1/datasets", {"name": "other", "unit": TOKEN, "budget": ZCDP}),
    ("/v1/datasets/adult/partitions", {"names": [TOKEN]}),
    ("/v1/tokens", {"scopes": ["read"], "description": TOKEN}),
    ("/v1/tokens", {"scopes": ["read"], "datasets": [TOKEN]}),
    ("/v1/conversions", {"from": {"notion": TOKEN}, "to": {"notion": "pure"}}),
    ("/v1/compositions", {"plan": [{"releases": [GAUSSIAN]}], "adjacency": "add-remove", "delta": 1e-5,
                          "method": TOKEN}),
]  # fmt: skip


class Kept(logging.Handler):
    """Keeps every line as it would be written."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.setFormatter(JsonFormatter())
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    caplog.set_level(logging.DEBUG)
    kept = Kept()
    logging.getLogger().addHandler(kept)
    yield kept.lines
    logging.getLogger().removeHandler(kept)


def assert_unsaid(service: Service, answer: Any, lines: list[str]) -> None:
    assert SECRET not in answer.text
    assert SECRET not in str(answer.headers)
    assert not [line for line in lines if SECRET in line]
    assert SECRET not in service.get("/metrics").text


@pytest.mark.parametrize(("method", "path"), ADDRESSES)
def test_an_address_is_not_echoed(still: Service, lines: list[str], method: str, path: str) -> None:
    answer = still.client.request(method, path, headers=still.headers())

    assert 400 <= answer.status_code < 500 or "search" in path or "kind" in path
    assert_unsaid(still, answer, lines)


@pytest.mark.parametrize(("path", "body"), BODIES)
def test_a_body_is_not_echoed(still: Service, lines: list[str], path: str, body: dict[str, Any]) -> None:
    answer = still.post(path, body)

    assert 400 <= answer.status_code < 500, answer.text
    assert_unsaid(still, answer, lines)
    assert SECRET not in json.dumps(still.shown("/v1/datasets"))


def test_a_key_twice_in_a_body_is_not_echoed(still: Service, lines: list[str]) -> None:
    headers = still.headers(**{"Content-Type": "application/json"})
    answer = still.client.post("/v1/costs", content=f'{{"{TOKEN}": 1, "{TOKEN}": 2}}', headers=headers)

    problem(answer, 400, "malformed-json")
    assert_unsaid(still, answer, lines)


def test_a_request_id_is_not_echoed(still: Service, lines: list[str]) -> None:
    for path in ("/v1/costs", "/v1/datasets/adult/authorizations"):
        answer = still.client.post(path, headers={**still.headers(), "X-Request-ID": TOKEN})
        assert answer.headers["x-request-id"]
        assert_unsaid(still, answer, lines)


@pytest.mark.parametrize("path", ["/v1/datasets/adult/authorizations", "/v1/datasets/adult/reservations"])
@pytest.mark.parametrize(
    ("name", "values", "slug"),
    [
        ("Idempotency-Key", ("a", "b"), "idempotency-key-invalid"),
        ("Idempotency-Key", ("a", "a"), "idempotency-key-invalid"),
        ("Content-Type", ("application/json", "application/json"), "repeated-header"),
        ("Authorization", ("", ""), "repeated-header"),
    ],
)
def test_a_header_that_may_come_once_is_refused_twice(
    still: Service, path: str, name: str, values: tuple[str, str], slug: str
) -> None:
    usual = {"Idempotency-Key": "k", "Content-Type": "application/json", **still.headers()}
    headers = [(each, value) for each, value in usual.items() if each != name]
    headers += [(name, value or usual[name]) for value in values]
    before = still.sequence()

    answer = still.client.post(path, content=json.dumps(SPEND), headers=headers)

    problem(answer, 400, slug)
    assert still.sequence() == before


def test_if_match_comes_once(still: Service) -> None:
    headers = [*still.headers(**{"Idempotency-Key": "k", "Content-Type": "application/json"}).items()]
    headers += [("If-Match", '"1"'), ("If-Match", '"2"')]
    body = json.dumps({"budget": ZCDP, "reason": "r"})

    answer = still.client.post("/v1/datasets/adult/budget-changes", content=body, headers=headers)

    problem(answer, 400, "repeated-header")
