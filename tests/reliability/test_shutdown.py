"""SIGTERM under load: what was accepted is finished and answered, what was not accepted is not recorded."""

import threading
from dataclasses import dataclass, field

from tests.reliability.database_targets import DatabaseTarget
from tests.reliability.ledgers import authorization, check_ledger, entries_of, open_dataset
from tests.reliability.processes import services
from tests.reliability.wire import Heard, Line, as_first, ask, ask_until_answered, volley

CALLERS = 8
BEFORE_SIGNAL = 5
"""Answers that every caller has before the signal is sent."""
TOGETHER = 64
PLENTY = 100_000
SIGNAL_AFTER_SECONDS = 0.02


@dataclass
class Caller:
    """Sends one step after another over one connection until the connection ends."""

    port: int
    token: str
    name: str
    number: int
    reported: dict[str, Heard] = field(default_factory=dict)
    warm: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        line = Line(self.port, self.token)
        try:
            for index in range(PLENTY):
                key = f"caller-{self.number}-{index}"
                line.send(authorization(self.name, 1, key))
                self.reported[key] = line.hear()
                if len(self.reported) >= BEFORE_SIGNAL:
                    self.warm.set()
        except OSError:
            line.close()


def started(callers: list[Caller]) -> list[threading.Thread]:
    threads = [threading.Thread(target=caller.run) for caller in callers]
    for thread in threads:
        thread.start()
    for caller in callers:
        assert caller.warm.wait(timeout=60.0)
    return threads


def test_a_stopped_service_has_answered_all_that_it_recorded(
    database_target: DatabaseTarget, clean: int
) -> None:
    name = open_dataset(clean, database_target.token, "stopped", units=PLENTY)
    with services(database_target, 1) as (running,):
        callers = [Caller(running.port, database_target.token, name, number) for number in range(CALLERS)]
        threads = started(callers)
        running.end()
        for thread in threads:
            thread.join(timeout=60.0)
        assert "stopped" in running.events()

    reported = {key: answer for caller in callers for key, answer in caller.reported.items()}
    granted = {key: answer for key, answer in reported.items() if answer.status == 201}
    assert {answer.status for answer in reported.values()} <= {201, 503}
    assert len(entries_of(clean, database_target.token, name)) - 1 == len(granted)
    for key, answer in granted.items():
        again = ask(clean, database_target.token, authorization(name, 1, key))
        assert (again.replayed, as_first(again)) == (True, answer)
    check_ledger(clean, database_target.token, name, spent=len(granted), authorized=len(granted))


def test_a_service_stopped_in_the_middle_of_a_volley_can_be_asked_again(
    database_target: DatabaseTarget, clean: int
) -> None:
    """The signal comes while many requests wait: another service answers the rest."""
    name = open_dataset(clean, database_target.token, "volley", units=TOGETHER)
    requests = [authorization(name, 1, f"key-{index}") for index in range(TOGETHER)]
    with services(database_target, 1) as (running,):
        alarm = threading.Timer(SIGNAL_AFTER_SECONDS, running.end)
        alarm.start()
        answers = volley([running.port], database_target.token, requests)
        alarm.join()
        assert "stopped" in running.events()

    retried = [ask_until_answered(clean, database_target.token, request) for request in requests]
    for reported, again in zip(answers, retried, strict=True):
        assert again.status == 201
        assert reported is None or reported.status == 503 or as_first(again) == reported
    check_ledger(clean, database_target.token, name, spent=TOGETHER, authorized=TOGETHER)
