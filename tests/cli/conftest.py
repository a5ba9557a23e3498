from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.running import Served, furnished, served
from tests.support.databases import postgresql

__all__ = ["postgresql"]

VARIABLES = ("DPLEDGER_URL", "DPLEDGER_TOKEN", "DPLEDGER_DATABASE", "DPLEDGER_KEY_FILE")


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of the machine reaches a command: neither its environment nor a ledger lying about."""
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One service for a module, with something in its ledger."""
    with served(tmp_path_factory.mktemp("served")) as service:
        furnished(service)
        yield service


@pytest.fixture(params=["service", "database"])
def ledger_target(service: Served, request: pytest.FixtureRequest) -> list[str]:
    """The options that name one ledger: through its service, and directly while that runs."""
    if request.param == "service":
        return ["--url", service.address, "--token", service.token]
    return ["--database", service.database, "--token", service.token]
