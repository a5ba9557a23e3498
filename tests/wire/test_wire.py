"""The wire and the ledger are what they were when the session was recorded.

Texts for people (titles and details of problems, descriptions of the API) may change; nothing else may. The
curves of sampled steps are exponentials and logarithms, whose last bits depend on the processor: answers
with such numbers, and the hashes and receipts over them, to nine digits; all others byte by byte.
"""

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from dpledger.api.app import create_app
from dpledger.settings import Settings
from tests.api.service import SetClock
from tests.wire.recorder import ADMIN, KEYS, OPENAPI, RECORDED, SESSION, Exchange, play, write_keys

PROSE = {"title", "detail", "theorem", "conditions", "source"}
"""Members of a body that are sentences for a reader."""
TEXTS = {"title", "description", "summary", "operationId"}
"""Keys of the API's description that name or explain."""
SAMPLED = {"rdp", "planned", "replaced", "plan-items"}
"""Datasets of the session whose steps are sampled."""
QUERIES = {"/v1/compositions", "/v1/calibrations", "/v1/amplifications", "/v1/costs"}
LEAST_SAME_BYTES = 250
"""Of the answers, so many have no number that depends on the processor."""
DIGEST = re.compile(r"[0-9a-f]{64}|eyJ[\w-]+\.[\w-]+\.[\w-]+")
"""A hash, or a receipt."""
LEDGERS = sorted(RECORDED.glob("ledger*.db.gz"))


def _recorded() -> list[Exchange]:
    return [json.loads(line) for line in SESSION.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> list[Exchange]:
    return list(play(tmp_path_factory.mktemp("wire")))


def test_the_session_is_long_and_goes_over_every_route(played: list[Exchange]) -> None:
    assert len(played) >= 200
    called = {(each["request"]["method"], each["request"]["path"].partition("?")[0]) for each in played}
    templates = json.loads(OPENAPI.read_text(encoding="utf-8"))["paths"]
    uncalled = [
        (method, template)
        for template, operations in templates.items()
        for method in operations
        if template not in {"/metrics"} and not any(_matches(template, method, *each) for each in called)
    ]
    assert uncalled == []


def _matches(template: str, method: str, called_method: str, path: str) -> bool:
    parts, given = template.split("/"), path.split("/")
    alike = all(part == found or part.startswith("{") for part, found in zip(parts, given, strict=False))
    return method.upper() == called_method and len(parts) == len(given) and alike


def test_the_same_requests_get_the_same_answers(played: list[Exchange]) -> None:
    recorded = _recorded()
    assert len(played) == len(recorded)
    different = [
        (each["request"], each["status"], was["status"], _first_difference(each, was))
        for each, was in zip(played, recorded, strict=True)
        if not _alike(_without_prose(each), _without_prose(was))
    ]
    assert different == []
    same = sum(
        _without_prose(each) == _without_prose(was) for each, was in zip(played, recorded, strict=True)
    )
    assert same >= LEAST_SAME_BYTES


def _alike(one: Any, other: Any) -> bool:
    return bool(one == other or (_is_rounded(one) and _rounded(one) == _rounded(other)))


def _is_rounded(exchange: Any) -> bool:
    """Whether the answer rests on the curve of a sampled step."""
    path, asked = exchange["request"]["path"], json.dumps(exchange["request"].get("body"))
    return any(f"/{name}/" in path or f'"{name}"' in asked for name in SAMPLED) or path in QUERIES


def _rounded(exchange: Any) -> Any:
    body = exchange["body"]
    return {**exchange, "body": _nine_digits(_parsed(body) if isinstance(body, str) else body)}


def _parsed(body: str) -> Any:
    try:
        return [json.loads(line) for line in body.splitlines()]
    except ValueError:
        return body


def _nine_digits(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.9g}"
    if isinstance(value, str):
        return _nine_digits(json.loads(value)) if value.startswith("{") else DIGEST.sub("digest", value)
    if isinstance(value, list):
        return [_nine_digits(each) for each in value]
    if not isinstance(value, dict):
        return value
    # A plan's ε and profile are found to a tolerance, and tested elsewhere.
    return {name: _nine_digits(each) for name, each in value.items() if name != "plan"}


def _without_prose(exchange: Exchange) -> Any:
    """The exchange; bodies that are JSON objects without their sentences, all others byte for byte."""
    body = exchange["body"]
    if exchange["headers"].get("content-type") == "application/problem+json" or '"theorem"' in body:
        body = {name: value for name, value in json.loads(body).items() if name not in PROSE}
        body |= {"errors": [each["field"] for each in body["errors"]]} if "errors" in body else {}
        body |= {"fits": _decided(body["fits"])} if isinstance(body.get("fits"), dict) else {}
    return {**exchange, "body": body}


def _decided(fits: dict[str, Any]) -> dict[str, Any]:
    """What would fit, without the advice that later versions add for a reader."""
    return {name: value for name, value in fits.items() if name not in ("advice", "order")}


def _first_difference(one: Exchange, other: Exchange) -> tuple[str, str]:
    place = next((i for i, (a, b) in enumerate(zip(one["body"], other["body"], strict=False)) if a != b), 0)
    return one["body"][max(0, place - 60) : place + 60], other["body"][max(0, place - 60) : place + 60]


def test_the_description_of_the_api_differs_only_in_texts() -> None:
    recorded = json.loads(OPENAPI.read_text(encoding="utf-8"))
    assert _shape(create_app(Settings()).openapi()) == _shape(recorded)


def _shape(document: dict[str, Any]) -> Any:
    """Paths with every reference resolved, so that names of schemas do not matter, and without texts."""
    schemas = document["components"]["schemas"]

    def resolve(node: Any, within: tuple[str, ...] = ()) -> Any:
        if isinstance(node, list):
            return [resolve(each, within) for each in node]
        if not isinstance(node, dict):
            return node
        name = node["$ref"].rpartition("/")[2] if "$ref" in node else None
        if name is not None:
            return "recursive" if name in within else resolve(schemas[name], (*within, name))
        return {
            key: resolve(value, within)
            for key, value in node.items()
            if not (key in TEXTS and isinstance(value, str))
        }

    return resolve(document["paths"])


@pytest.fixture(params=LEDGERS, ids=lambda path: path.name)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TestClient]:
    database = tmp_path / "ledger.db"
    database.write_bytes(gzip.decompress(request.param.read_bytes()))
    settings = Settings(f"sqlite:///{database}", write_keys(tmp_path), expiry_seconds=3600.0)
    headers = {"Authorization": f"Bearer {ADMIN.text}"}
    with TestClient(create_app(settings, clock=SetClock()), headers=headers) as client:
        yield client


def test_a_recorded_ledger_opens_and_verifies(opened: TestClient) -> None:
    """Verification replays every entry and compares the totals with the stored ones bit for bit."""
    names = [each["name"] for each in opened.get("/v1/datasets?limit=100").json()["items"]]
    assert len(names) > 10
    found = {name: opened.get(f"/v1/datasets/{name}/verification").json() for name in names}
    assert {name: each["problems"] for name, each in found.items() if not each["valid"]} == {}


def test_a_recorded_receipt_still_verifies(opened: TestClient) -> None:
    assert KEYS.receipt_seed
    keys = opened.get("/.well-known/dpledger-keys.json").json()
    recorded = next(e for e in _recorded() if e["request"]["path"].endswith("keys.json"))
    assert keys == json.loads(recorded["body"])
