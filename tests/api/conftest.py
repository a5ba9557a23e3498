from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from tests.api.service import Service, running
from tests.support.databases import database_url, postgresql, template

__all__ = ["database_url", "postgresql", "template"]


@pytest.fixture
def service(database_url: str, tmp_path: Path) -> Iterator[Service]:
    """A service on an empty ledger, once on each kind of database."""
    with running(database_url, tmp_path / "keys.json") as service:
        yield service


@pytest.fixture
def adult(service: Service) -> Service:
    """The same with one dataset open."""
    service.open("adult")
    return service


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service on SQLite for tests that record nothing."""
    folder = tmp_path_factory.mktemp("shared")
    with running(f"sqlite:///{folder / 'ledger.db'}", folder / "keys.json") as service:
        service.client.headers["Authorization"] = f"Bearer {service.token}"
        yield service


@pytest.fixture(scope="module")
def still(shared: Service) -> Service:
    """The same with one dataset open, for requests that must not change it."""
    shared.open("adult")
    return shared


@pytest.fixture
def client(shared: Service) -> TestClient:
    return shared.client


@pytest.fixture
def app(shared: Service) -> FastAPI:
    return shared.app
