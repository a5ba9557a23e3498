"""The service as ``dpledger serve`` builds it, with everything turned on by its environment."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fastapi.testclient import TestClient

from dpledger.server import bounded_protocol, create_server
from dpledger.settings import Settings
from tests.alerts.receiver import Receiver


@contextmanager
def served(folder: Path, receiver: Receiver) -> Iterator[tuple[TestClient, str]]:
    """A client of it, and its first token."""
    (folder / "secret").write_text("a secret that both sides know\n")
    environment = {
        "DPLEDGER_DATABASE": f"sqlite:///{folder / 'ledger.db'}",
        "DPLEDGER_METRICS_DATASETS": "adult, trips",
        "DPLEDGER_ALERT_URL": receiver.url,
        "DPLEDGER_ALERT_SECRET_FILE": str(folder / "secret"),
        "DPLEDGER_ALERT_SECONDS": "0.05",
    }
    reported: list[str] = []
    settings = Settings.from_environment(environment)
    app = create_server(settings, announce=reported.append)
    bounded_protocol(app, settings)
    with TestClient(app) as client:
        yield client, reported[0]
