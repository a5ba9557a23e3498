"""Probes, the API's own description, and what may be asked without a token."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import make_url

from tests.api.service import Service, problem
from tests.support.databases import PostgresqlServer

PUBLIC = {"/healthz", "/readyz", "/.well-known/dpledger-keys.json"}


def test_the_process_is_alive(client: TestClient) -> None:
    answer = client.get("/healthz")

    assert answer.status_code == 200
    assert answer.json() == {"status": "ok"}


def test_a_ready_service_names_its_database_and_schema(service: Service) -> None:
    found = service.client.get("/readyz").json()

    assert found["status"] == "ok"
    assert found["database"] in {"sqlite", "postgresql"}
    assert found["schema_revision"]


def test_a_service_with_another_schema_is_not_ready(service: Service) -> None:
    with mock.patch("dpledger.storage.migrate.head_revision", return_value="other"):
        answer = service.client.get("/readyz")

    problem(answer, 503, "unavailable")
    assert int(answer.headers["retry-after"]) >= 1


def test_a_service_that_lost_its_database_is_alive_but_not_ready(
    service: Service, database_url: str, request: pytest.FixtureRequest
) -> None:
    services = service.app.state.services
    with without_database(database_url, request):
        services.storage.database.reading.dispose()
        problem(service.client.get("/readyz"), 503, "unavailable")
        assert service.client.get("/healthz").status_code == 200
        services.storage.database.reading.dispose()

    assert service.client.get("/readyz").status_code == 200


@contextmanager
def without_database(url: str, request: pytest.FixtureRequest) -> Iterator[None]:
    """Take the database away for a while: the file is moved, or the server lets nobody in."""
    if url.startswith("sqlite"):
        file = Path(url.removeprefix("sqlite:///"))
        moved = file.rename(file.with_suffix(".away"))
        yield
        moved.replace(file)
        return
    server: PostgresqlServer = request.getfixturevalue("postgresql")
    name = make_url(url).database
    with server.connect() as connection:
        connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        connection.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
        yield
        connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")


@pytest.fixture
def operations(client: TestClient) -> dict[tuple[str, str], dict[str, Any]]:
    paths = client.get("/openapi.json").json()["paths"]
    return {
        (method.upper(), path): found for path, methods in paths.items() for method, found in methods.items()
    }


def test_every_route_of_the_contract_is_described(operations: dict[tuple[str, str], Any]) -> None:
    assert {f"{method} {path}" for method, path in operations} >= {
        "GET /healthz",
        "GET /metrics",
        "GET /readyz",
        "GET /.well-known/dpledger-keys.json",
        "POST /v1/costs",
        "POST /v1/datasets",
        "GET /v1/datasets",
        "GET /v1/datasets/{dataset}",
        "GET /v1/datasets/{dataset}/budget",
        "POST /v1/datasets/{dataset}/budget-changes",
        "POST /v1/datasets/{dataset}/partitions",
        "GET /v1/datasets/{dataset}/partitions",
        "POST /v1/datasets/{dataset}/authorizations",
        "POST /v1/authorizations",
        "POST /v1/datasets/{dataset}/reservations",
        "GET /v1/datasets/{dataset}/reservations",
        "GET /v1/reservations/{reservation}",
        "POST /v1/reservations/{reservation}/settlement",
        "GET /v1/datasets/{dataset}/entries",
        "GET /v1/datasets/{dataset}/entries/{sequence}",
        "GET /v1/datasets/{dataset}/runs",
        "GET /v1/datasets/{dataset}/verification",
        "GET /v1/datasets/{dataset}/export",
        "POST /v1/tokens",
        "GET /v1/tokens",
        "DELETE /v1/tokens/{token}",
    }


def test_no_route_is_open_but_health_and_keys(
    client: TestClient, operations: dict[tuple[str, str], Any]
) -> None:
    for (method, path), operation in operations.items():
        named = {"reservation": "adult~1", "token": "abc", "allocation": "team-a", "partition": "north"}
        named["request"] = "adult~2"
        address = path.format(dataset="adult", sequence=1, **named)
        answer = client.request(method, address, headers={"Authorization": ""})
        if path in PUBLIC:
            assert answer.status_code == 200
            assert operation["security"] == []
        else:
            problem(answer, 401, "unauthenticated")
            assert answer.headers["www-authenticate"].startswith("Bearer")
            assert operation["security"] == [{"token": []}]
            assert operation["x-scope"] in {"admin", "spend", "read"}


def test_statuses_are_declared_by_number(operations: dict[tuple[str, str], Any]) -> None:
    for (method, path), operation in operations.items():
        statuses = set(operation["responses"])
        assert statuses <= {"200", "201", "204", *(str(status) for status in range(400, 600))}
        assert "500" in statuses
        if path not in PUBLIC:
            assert {"401", "403", "503"} <= statuses, (method, path)
        if "201" in statuses:
            assert {"400", "409", "413", "415", "422"} <= statuses
            names = {parameter["name"] for parameter in operation["parameters"]}
            assert "Idempotency-Key" in names


def test_every_reference_of_the_description_leads_somewhere(client: TestClient) -> None:
    description = client.get("/openapi.json").json()
    known = {f"#/components/schemas/{name}" for name in description["components"]["schemas"]}

    def references(value: Any) -> set[str]:
        if isinstance(value, dict):
            own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
            return own.union(*(references(each) for each in value.values()))
        if isinstance(value, list):
            return set().union(*(references(each) for each in value))
        return set()

    assert references(description) <= known


LOADED = re.compile(r'(?:href|src)="([^"]+)"')


@pytest.mark.parametrize("path", ["/docs", "/redoc"])
def test_a_page_of_the_description_loads_nothing_from_outside(client: TestClient, path: str) -> None:
    page = client.get(path)

    assert page.status_code == 200
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    addresses = [each for each in LOADED.findall(page.text) if each not in {"data:,", "openapi.json"}]
    assert len(addresses) >= 3
    for address in addresses:
        loaded = client.get(f"/{address}")
        assert loaded.status_code == 200, address
        assert "immutable" in loaded.headers["cache-control"]
        assert loaded.headers["content-type"].startswith(("text/css", "text/javascript"))
        assert "cdn." not in loaded.text


def test_each_page_has_a_word_of_its_own_for_its_styles(client: TestClient) -> None:
    one, two = (client.get("/redoc").headers["content-security-policy"] for _ in range(2))

    assert one != two


def test_there_is_no_other_file_beside_the_pages(client: TestClient) -> None:
    problem(client.get("/docs/settings.py"), 404, "not-found")
