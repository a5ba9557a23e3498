"""A synchronous standby keeps every acknowledged entry. Real servers, set up by the deployed scripts."""

import contextlib
import re
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx2
import psycopg
import pytest

from tests.api.service import Service, made, running
from tests.deploy.clusters import PASSWORD, Server, make_primary, make_standby, server

PATIENCE_SECONDS = 60.0
WAITED_SECONDS = 3.0
ROOMY = {"accounting": "zcdp", "rho": 1000.0}


@dataclass(frozen=True)
class Pair:
    primary: Server
    standby: Server

    @property
    def url(self) -> str:
        """Both hosts; and a limit on statements that would end too early any wait that it concerns."""
        hosts = f"127.0.0.1:{self.primary.port},127.0.0.1:{self.standby.port}"
        quoted = PASSWORD.replace(" ", "%20")
        limit = "options=-c%20statement_timeout%3D2s"
        return f"postgresql://dpledger:{quoted}@{hosts}/postgres?{limit}"


@pytest.fixture
def pair() -> Iterator[Pair]:
    with server() as primary, server() as standby:
        make_primary(primary)
        make_standby(standby, primary)
        yield Pair(primary, standby)


@pytest.fixture
def service(pair: Pair, tmp_path: Path) -> Iterator[Service]:
    with running(pair.url, tmp_path / "keys.json") as service:
        service.open("adult", ROOMY)
        yield service


def authorized_at_last(service: Service, key: str) -> httpx2.Response:
    """Ask with the same key until there is an answer, as a client does."""
    give_up = time.monotonic() + PATIENCE_SECONDS
    while (answer := service.authorize(key=key)).status_code == 503:
        assert time.monotonic() < give_up
        time.sleep(0.1)
    return answer


def test_a_promoted_standby_has_everything_that_was_acknowledged(pair: Pair, service: Service) -> None:
    reported = {f"before-{index}": made(service.authorize(key=f"before-{index}")) for index in range(25)}

    pair.primary.end(signal.SIGQUIT)
    assert service.client.get("/readyz").status_code == 503
    pair.standby.run("pg_ctl", "promote")

    assert authorized_at_last(service, "after").status_code == 201
    for key, answer in reported.items():
        again = service.authorize(key=key)
        assert again.headers["idempotency-replayed"] == "true"
        assert made(again) == answer
    assert service.sequence() == 1 + len(reported) + 1
    service.verified()


def test_nothing_is_acknowledged_while_the_standby_is_away(pair: Pair, service: Service) -> None:
    pair.standby.end(signal.SIGINT)
    answers: list[httpx2.Response] = []
    asking = threading.Thread(target=lambda: answers.append(service.authorize(key="alone")))
    asking.start()

    asking.join(WAITED_SECONDS)
    assert answers == []
    pair.standby.serve()
    asking.join(PATIENCE_SECONDS)

    assert [answer.status_code for answer in answers] == [201]
    assert made(service.authorize(key="alone")) == answers[0].json()


@pytest.fixture
def strict(pair: Pair, tmp_path: Path) -> Iterator[Service]:
    with running(pair.url, tmp_path / "keys.json", require_standby=True, standby_seconds=0.2) as service:
        yield service


def standbys(service: Service) -> str:
    text = service.get("/metrics").text
    return "".join(re.findall(r"^dpledger_synchronous_standbys (\S+)$", text, re.M))


def ready_at_last(service: Service, status: int) -> dict[str, str]:
    give_up = time.monotonic() + PATIENCE_SECONDS
    while (answer := service.client.get("/readyz")).status_code != status:
        assert time.monotonic() < give_up, answer.text
        time.sleep(0.1)
    found: dict[str, str] = answer.json()
    return found


def set_names(server: Server, names: str) -> None:
    with server.connect() as connection:
        connection.autocommit = True
        connection.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
        connection.execute("SELECT pg_reload_conf()")


def test_where_a_standby_is_required_the_service_is_ready_only_with_one(pair: Pair, strict: Service) -> None:
    """Looked at again and again: while it is there, away, back, and no longer waited for."""
    ready_at_last(strict, 200)
    assert standbys(strict) == "1.0"

    pair.standby.end(signal.SIGINT)
    found = ready_at_last(strict, 503)
    assert "no synchronous standby is connected" in found["detail"]
    pair.standby.serve()
    ready_at_last(strict, 200)

    set_names(pair.primary, "")
    found = ready_at_last(strict, 503)
    assert "synchronous_standby_names is empty" in found["detail"]
    assert standbys(strict) == "0.0"
    assert strict.client.get("/healthz").status_code == 200


def test_several_hosts_without_a_synchronous_standby_are_warned_of(
    pair: Pair, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    set_names(pair.primary, "")
    with running(pair.url, tmp_path / "keys.json", standby_seconds=0.1) as service:
        give_up = time.monotonic() + PATIENCE_SECONDS
        while standbys(service) != "0.0":
            assert time.monotonic() < give_up
            time.sleep(0.05)
        assert service.client.get("/readyz").status_code == 200
    warned = [each for each in caplog.records if each.message == "no synchronous standby"]
    assert len(warned) == 1
    assert warned[0].levelname == "WARNING"


def test_one_host_is_not_watched(pair: Pair, tmp_path: Path) -> None:
    url = pair.url.replace(f",127.0.0.1:{pair.standby.port}", "")
    with running(url, tmp_path / "keys.json") as service:
        assert standbys(service) == ""


def test_an_old_primary_that_comes_back_acknowledges_nothing(pair: Pair) -> None:
    """It waits for a standby that has gone its own way, so no ledger is continued in two places."""
    pair.primary.end(signal.SIGQUIT)
    pair.standby.run("pg_ctl", "promote")
    pair.primary.serve()
    acknowledged: list[str] = []

    def write() -> None:
        with contextlib.suppress(psycopg.Error), pair.primary.connect() as connection:
            connection.execute("CREATE TABLE late (entry int)")
            connection.commit()
            acknowledged.append("late")

    writing = threading.Thread(target=write)
    writing.start()
    writing.join(WAITED_SECONDS)
    pair.primary.end(signal.SIGQUIT)
    writing.join(PATIENCE_SECONDS)

    assert acknowledged == []
