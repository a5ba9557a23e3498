"""``dpledger serve`` as a process with its settings in the environment."""

import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.alerts.receiver import Receiver, receiving
from tests.reliability.database_targets import sqlite_place
from tests.reliability.ledgers import authorization, open_dataset
from tests.reliability.processes import services
from tests.reliability.wire import HOST, ask

PATIENCE_SECONDS = 60.0


@pytest.fixture
def receiver() -> Any:
    with receiving() as receiver:
        yield receiver


def metrics(port: int, token: str) -> str:
    request = urllib.request.Request(
        f"http://{HOST}:{port}/metrics", headers={"Authorization": f"Bearer {token}"}
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
        return str(answer.read().decode())


def test_metrics_and_alerts_are_what_the_environment_says(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text("a secret that both sides know")
    monkeypatch.setenv("DPLEDGER_METRICS_DATASETS", "served")
    monkeypatch.setenv("DPLEDGER_ALERT_URL", receiver.url)
    monkeypatch.setenv("DPLEDGER_ALERT_SECRET_FILE", str(tmp_path / "secret"))
    monkeypatch.setenv("DPLEDGER_ALERT_THRESHOLDS", "0.2")
    monkeypatch.setenv("DPLEDGER_ALERT_SECONDS", "0.1")
    database_target = sqlite_place(tmp_path)

    with services(database_target, 1) as (running,):
        name = open_dataset(running.port, database_target.token, "served", units=4)
        assert ask(running.port, database_target.token, authorization(name, 1, "one")).status == 201
        give_up = time.monotonic() + PATIENCE_SECONDS
        while not receiver.received:
            assert time.monotonic() < give_up
            time.sleep(0.05)
        reported = metrics(running.port, database_target.token)
        log = running.log.read_text(encoding="utf-8")

    assert receiver.reported() == [(name, 0.2)]
    assert 'dpledger_decisions_total{operation="authorize",outcome="granted"} 1.0' in reported
    assert 'dpledger_remaining_fraction{dataset="served"} 0.7' in reported
    assert "secret-path" not in log
    assert "both sides" not in log
