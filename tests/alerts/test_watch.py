"""Thresholds: noticed once, delivered at least once, whatever happens in between. On both databases."""

import json
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from dpledger.alerts.watch import LEASE_SECONDS, LONGEST_PAUSE_SECONDS, Watch, pause_seconds
from dpledger.alerts.webhook import Webhook
from dpledger.logs import JsonFormatter
from dpledger.server import create_server
from dpledger.settings import Settings
from dpledger.storage.repositories.alerts import Alert, AlertStore
from dpledger.storage.repository import open_storage
from tests.alerts.receiver import Receiver
from tests.api.service import Service, SetClock

SECRET = b"a secret that both sides know"
WHOLE = {"accounting": "zcdp", "rho": 0.5}
"""Four looks with a Gaussian of σ = 2, each a quarter."""


def watch_over(service: Service, receiver: Any, thresholds: tuple[float, ...] = (0.5, 0.75)) -> Watch:
    database = service.app.state.services.storage.database
    reported = Webhook(receiver.url, SECRET) if isinstance(receiver, Receiver) else receiver
    return Watch(AlertStore(database), reported, thresholds, service.clock)


@pytest.fixture
def opened(service: Service) -> Service:
    service.open("adult", WHOLE)
    return service


def spend(service: Service, times: int = 1, dataset: str = "adult") -> None:
    for _ in range(times):
        assert service.authorize(dataset=dataset).status_code == 201


def raise_budget(service: Service, rho: float) -> None:
    body = {"budget": {"accounting": "zcdp", "rho": rho}, "reason": "more people"}
    seen = {"If-Match": f'"{service.sequence()}"'}
    assert service.post("/v1/datasets/adult/budget-changes", body, headers=seen).status_code == 201


def test_nothing_is_reported_before_a_threshold(opened: Service, receiver: Receiver) -> None:
    spend(opened)
    watch_over(opened, receiver).check()

    assert receiver.reported() == []


def test_each_threshold_is_reported_once(opened: Service, receiver: Receiver) -> None:
    watch = watch_over(opened, receiver)
    spend(opened, 2)
    for _ in range(3):
        watch.check()
    assert receiver.reported() == [("adult", 0.5)]

    spend(opened)
    for _ in range(3):
        watch.check()

    assert receiver.reported() == [("adult", 0.5), ("adult", 0.75)]
    assert len({body["id"] for body in receiver.bodies}) == 2
    assert receiver.bodies[1]["sequence"] == opened.sequence()
    assert 0.2499 <= receiver.bodies[1]["remaining_fraction"] <= 0.25
    assert watch.outcomes == {"delivered": 2}


def test_a_reservation_counts_as_spent(opened: Service, receiver: Receiver) -> None:
    assert opened.reserve(3).status_code == 201
    watch_over(opened, receiver).check()

    assert receiver.reported() == [("adult", 0.5), ("adult", 0.75)]


def test_what_was_passed_while_nobody_watched_is_reported(opened: Service, receiver: Receiver) -> None:
    """What is reported comes from what every entry stores, not from having been there."""
    opened.open("other", WHOLE)
    spend(opened, 3)
    spend(opened, 2, dataset="other")

    watch_over(opened, receiver).check()

    assert sorted(receiver.reported()) == [("adult", 0.5), ("adult", 0.75), ("other", 0.5)]


def test_a_failure_is_tried_again_later_and_later(opened: Service, receiver: Receiver) -> None:
    watch = watch_over(opened, receiver, (0.5,))
    spend(opened, 2)
    receiver.answers.extend([500, 500])

    watch.check()
    watch.check()
    assert len(receiver.received) == 1, "tried again without a pause"
    opened.clock.advance(pause_seconds(1))
    watch.check()
    opened.clock.advance(pause_seconds(1) * 0.9)
    watch.check()
    assert len(receiver.received) == 2, "the second pause is no longer than the first"
    opened.clock.advance(pause_seconds(2))
    watch.check()
    opened.clock.advance(2 * LONGEST_PAUSE_SECONDS)
    watch.check()

    assert len(receiver.received) == 3
    assert len({body for _, _, body in receiver.received}) == 1
    assert watch.outcomes == {"failed": 2, "delivered": 1}


def test_one_that_is_not_taken_does_not_hold_up_the_others(opened: Service, receiver: Receiver) -> None:
    opened.open("other", WHOLE)
    spend(opened, 3)
    spend(opened, 2, dataset="other")
    watch = watch_over(opened, receiver)
    receiver.answers.append(400)

    for _ in range(2):
        watch.check()

    assert len({body["id"] for body in receiver.bodies}) == 3
    assert watch.outcomes == {"failed": 1, "delivered": 2}


class Dying:
    """Delivers, then takes the process with it before anybody can make a note."""

    def __init__(self, webhook: Webhook) -> None:
        self._webhook = webhook

    def deliver(self, alert: Alert, instance: str) -> None:
        self._webhook.deliver(alert, instance)
        raise SystemExit


def test_a_crash_between_delivery_and_note_delivers_again(opened: Service, receiver: Receiver) -> None:
    spend(opened, 2)
    with pytest.raises(SystemExit):
        watch_over(opened, Dying(Webhook(receiver.url, SECRET)), (0.5,)).check()
    assert len(receiver.received) == 1

    survivor = watch_over(opened, receiver, (0.5,))
    survivor.check()
    assert len(receiver.received) == 1, "delivered while another process may still be delivering"
    opened.clock.advance(LEASE_SECONDS)
    survivor.check()
    survivor.check()

    assert len(receiver.received) == 2
    assert receiver.received[0][2] == receiver.received[1][2]


def test_replicas_that_look_together_tell_once(opened: Service, receiver: Receiver) -> None:
    for index in range(5):
        opened.open(f"other-{index}", WHOLE)
        spend(opened, 3, dataset=f"other-{index}")
    watches = [watch_over(opened, receiver) for _ in range(4)]

    threads = [threading.Thread(target=watch.check) for watch in watches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(receiver.received) == 10
    assert len({body["id"] for body in receiver.bodies}) == 10


def test_a_raised_budget_arms_the_threshold_again(opened: Service, receiver: Receiver) -> None:
    watch = watch_over(opened, receiver, (0.5,))
    spend(opened, 2)
    watch.check()

    raise_budget(opened, 1.0)
    watch.check()
    assert len(receiver.received) == 1
    spend(opened, 2)
    watch.check()

    assert receiver.reported() == [("adult", 0.5)] * 2
    assert len({body["id"] for body in receiver.bodies}) == 2


def test_what_was_passed_is_reported_even_if_the_budget_is_raised_meanwhile(
    opened: Service, receiver: Receiver
) -> None:
    watch = watch_over(opened, receiver, (0.5,))
    spend(opened, 2)
    receiver.answers.append(503)
    watch.check()

    raise_budget(opened, 1.0)
    opened.clock.advance(pause_seconds(1))
    watch.check()

    assert receiver.reported() == [("adult", 0.5)] * 2
    assert watch.outcomes["delivered"] == 1


def test_pauses_double_up_to_an_hour() -> None:
    pauses = [pause_seconds(attempts) for attempts in range(1, 30)]

    assert pauses[:4] == [5.0, 10.0, 20.0, 40.0]
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_PAUSE_SECONDS
    assert pause_seconds(3, 0.0) == 10.0


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """Every line as the service writes it."""
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record))

    handler = Keep()
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.addHandler(handler)
    caplog.set_level(logging.DEBUG)
    yield lines
    root.removeHandler(handler)


def test_no_secret_and_no_address_in_the_logs(opened: Service, receiver: Receiver, logged: list[str]) -> None:
    watch = watch_over(opened, receiver, (0.5,))
    spend(opened, 2)
    receiver.answers.append(500)
    watch.check()
    opened.clock.advance(pause_seconds(1))
    watch.check()

    events = [json.loads(line)["event"] for line in logged if '"dpledger.alerts"' in line]
    assert events == ["alert not delivered", "alert delivered"]
    everything = "\n".join(logged)
    for hidden in (SECRET.decode(), "secret-path", "token=hidden", "v1="):
        assert hidden not in everything


@contextmanager
def serving(tmp_path: Path, receiver: Receiver) -> Iterator[Service]:
    """The service as it is served, with the watch beside it."""
    secret = tmp_path / "alert-secret"
    secret.write_bytes(SECRET + b"\n")
    reported: list[str] = []
    settings = Settings(
        f"sqlite:///{tmp_path / 'ledger.db'}",
        alert_url=receiver.url,
        alert_secret_file=secret,
        alert_thresholds=(0.5,),
        alert_seconds=0.05,
    )
    with TestClient(create_server(settings, announce=reported.append)) as client:
        yield Service(client, reported[0], SetClock())


@pytest.fixture
def server(tmp_path: Path, receiver: Receiver) -> Iterator[Service]:
    with serving(tmp_path, receiver) as service:
        yield service


def wait_until(condition: Any, seconds: float = 60.0) -> None:
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.02)


def test_the_served_service_tells_by_itself(server: Service, receiver: Receiver) -> None:
    server.open("adult", WHOLE)
    spend(server, 2)

    wait_until(lambda: receiver.received)

    wait_until(lambda: 'dpledger_alerts_total{outcome="delivered"} 1.0' in server.get("/metrics").text)
    assert "dpledger_alerts_waiting 0.0" in server.get("/metrics").text
    assert receiver.reported() == [("adult", 0.5)]


def test_a_delivery_under_way_is_waited_for(tmp_path: Path, receiver: Receiver) -> None:
    receiver.delay_seconds = 0.5
    with serving(tmp_path, receiver) as service:
        service.open("adult", WHOLE)
        spend(service, 2)
        wait_until(lambda: receiver.received)

    storage = open_storage(f"sqlite:///{tmp_path / 'ledger.db'}")
    assert AlertStore(storage.database).waiting() == 0
    storage.close()


def test_an_unexpected_error_does_not_end_the_watch(
    server: Service, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("nobody foresaw this")

    with monkeypatch.context() as broken:
        broken.setattr(AlertStore, "notice", fail)
        server.open("adult", WHOLE)
        spend(server, 2)
        time.sleep(0.2)
        assert receiver.received == []

    wait_until(lambda: receiver.received)


def test_without_an_address_nothing_is_watched(tmp_path: Path) -> None:
    reported: list[str] = []
    app = create_server(Settings(f"sqlite:///{tmp_path / 'ledger.db'}"), announce=reported.append)
    with TestClient(app) as client:
        answer = client.get("/metrics", headers={"Authorization": f"Bearer {reported[0]}"})

    assert "dpledger_alerts" not in answer.text
