"""Probes, the API's own description, and what may be asked without a token."""

from typing import Any
from unittest import mock

import pytest
from fastapi.testclient import TestClient

from tests.api.service import Service, problem

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


@pytest.fixture
def operations(client: TestClient) -> dict[tuple[str, str], dict[str, Any]]:
    paths = client.get("/openapi.json").json()["paths"]
    return {
        (method.upper(), path): found for path, methods in paths.items() for method, found in methods.items()
    }


def test_every_route_of_the_contract_is_described(operations: dict[tuple[str, str], Any]) -> None:
    assert {f"{method} {path}" for method, path in operations} >= {
        "GET /healthz",
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
        address = path.format(dataset="adult", sequence=1, reservation="adult~1", token="abc")
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


@pytest.mark.parametrize("path", ["/docs", "/redoc"])
def test_no_page_that_loads_outside_scripts(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 404
