"""The database server dies and comes back: what it had committed is there, and the service goes on."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.reliability.database_targets import DatabaseTarget, postgresql_place, postgresql_server
from tests.reliability.ledgers import authorization, check_ledger, open_dataset
from tests.reliability.processes import services
from tests.reliability.wire import Heard, as_first, ask, ask_until_answered
from tests.support.postgresql_processes import await_running

CRASHES = 3
CALLERS = 4
ANSWERS_BETWEEN = 10
PLENTY = 100_000


@pytest.fixture
def server() -> Iterator[Any]:
    with postgresql_server() as server:
        yield server


@dataclass
class Caller:
    """Sends one step after another and repeats each until it is decided, as a client does."""

    database_target: DatabaseTarget
    port: int
    name: str
    number: int
    stop: threading.Event
    reported: dict[str, Heard] = field(default_factory=dict)

    def run(self) -> None:
        while not self.stop.is_set():
            key = f"caller-{self.number}-{len(self.reported)}"
            self.reported[key] = ask_until_answered(
                self.port, self.database_target.token, authorization(self.name, 1, key)
            )


def crash(server: Any) -> None:
    """Immediate shutdown: nothing is flushed, the next start recovers from the write-ahead log."""
    process = server.get_postmaster_info().process
    os.kill(process.pid, signal.SIGQUIT)
    process.wait(timeout=60.0)


def await_progress(callers: list[Caller]) -> None:
    wanted = [len(caller.reported) + ANSWERS_BETWEEN for caller in callers]
    give_up = time.monotonic() + 60.0
    while any(len(caller.reported) < least for caller, least in zip(callers, wanted, strict=True)):
        assert time.monotonic() < give_up, "the service does not go on"
        time.sleep(0.02)


def test_a_database_that_crashes_loses_nothing_acknowledged(server: Any, tmp_path: Path) -> None:
    database_target = postgresql_place(server, tmp_path)
    with services(database_target, 1) as (running,):
        name = open_dataset(running.port, database_target.token, "crash", units=PLENTY)
        stop = threading.Event()
        callers = [Caller(database_target, running.port, name, number, stop) for number in range(CALLERS)]
        threads = [threading.Thread(target=caller.run) for caller in callers]
        for thread in threads:
            thread.start()
        for _ in range(CRASHES):
            await_progress(callers)
            crash(server)
            await_running(server)
        await_progress(callers)
        stop.set()
        for thread in threads:
            thread.join(timeout=60.0)

        reported = {key: answer for caller in callers for key, answer in caller.reported.items()}
        assert {answer.status for answer in reported.values()} == {201}
        assert len({answer.body["sequence"] for answer in reported.values()}) == len(reported)
        for key, answer in reported.items():
            again = ask(running.port, database_target.token, authorization(name, 1, key))
            assert (again.replayed, as_first(again)) == (True, as_first(answer))
        check_ledger(running.port, database_target.token, name, spent=len(reported), authorized=len(reported))
