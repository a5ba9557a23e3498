from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.reliability.database_targets import (
    KINDS,
    DatabaseTarget,
    postgresql_place,
    postgresql_server,
    sqlite_place,
)
from tests.reliability.doomed import Executioner
from tests.reliability.processes import services


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Any]:
    with postgresql_server() as server:
        yield server


def new_place(request: pytest.FixtureRequest, folder: Path) -> DatabaseTarget:
    if request.param == "sqlite":
        return sqlite_place(folder)
    return postgresql_place(request.getfixturevalue("postgresql"), folder)


@pytest.fixture(scope="session", params=KINDS)
def database_target(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> DatabaseTarget:
    """A database that tests share; each opens datasets of its own."""
    return new_place(request, tmp_path_factory.mktemp(request.param))


@pytest.fixture(params=KINDS)
def fresh_place(request: pytest.FixtureRequest, tmp_path: Path) -> DatabaseTarget:
    """A database that nobody else has ever opened."""
    return new_place(request, tmp_path)


@pytest.fixture(scope="session")
def ports(database_target: DatabaseTarget) -> Iterator[list[int]]:
    """Two service processes on one database."""
    with services(database_target, 2) as running:
        yield [each.port for each in running]


@pytest.fixture(scope="session")
def clean(ports: list[int]) -> int:
    """A service that nothing happens to: what it shows is what survived."""
    return ports[0]


@pytest.fixture(scope="session")
def executioner() -> Iterator[Executioner]:
    with Executioner() as executioner:
        yield executioner
