from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.service import Service
from tests.dashboard.visitor import Visitor, serving
from tests.support.databases import database_url, engine, postgresql, storage, template

__all__ = ["database_url", "engine", "postgresql", "storage", "template"]


@pytest.fixture
def service(database_url: str, tmp_path: Path) -> Iterator[Service]:
    """A service with its dashboard on an empty ledger, once on each kind of database."""
    with serving(database_url, tmp_path / "keys.json") as service:
        yield service


@pytest.fixture
def visitor(service: Service) -> Visitor:
    """Somebody who is logged in with the admin token."""
    visitor = Visitor(service)
    visitor.log_in(service.token)
    return visitor


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service on SQLite for tests that need no second database."""
    folder = tmp_path_factory.mktemp("shared")
    with serving(f"sqlite:///{folder / 'ledger.db'}", folder / "keys.json") as service:
        yield service
