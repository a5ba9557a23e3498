"""SIGTERM under load: what was accepted is finished and answered, what was not accepted is not recorded."""

import threading
from dataclasses import dataclass, field

from tests.reliability.ledgers import authorization, check_ledger, entries_of, open_dataset
from tests.reliability.places import Place
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
    told: dict[str, Heard] = field(default_factory=dict)
    warm: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        line = Line(self.port, self.token)
        try:
            for index in range(PLENTY):
                key = f"caller-{self.number}-{index}"
                line.send(authorization(self.name, 1, key))
                self.told[key] = line.hear()
                if len(self.told) >= BEFORE_SIGNAL:
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


def test_a_stopped_service_has_answered_all_that_it_recorded(place: Place, clean: int) -> None:
    name = open_dataset(clean, place.token, "stopped", units=PLENTY)
    with services(place, 1) as (running,):
        callers = [Caller(running.port, place.token, name, number) for number in range(CALLERS)]
        threads = started(callers)
        running.end()
        for thread in threads:
            thread.join(timeout=60.0)
        assert "stopped" in running.events()

    told = {key: answer for caller in callers for key, answer in caller.told.items()}
    granted = {key: answer for key, answer in told.items() if answer.status == 201}
    assert {answer.status for answer in told.values()} <= {201, 503}
    assert len(entries_of(clean, place.token, name)) - 1 == len(granted)
    for key, answer in granted.items():
        again = ask(clean, place.token, authorization(name, 1, key))
        assert (again.replayed, as_first(again)) == (True, answer)
    check_ledger(clean, place.token, name, spent=len(granted), authorized=len(granted))


def test_a_service_stopped_in_the_middle_of_a_volley_can_be_asked_again(place: Place, clean: int) -> None:
    """The signal comes while many requests wait: another service answers the rest."""
    name = open_dataset(clean, place.token, "volley", units=TOGETHER)
    requests = [authorization(name, 1, f"key-{index}") for index in range(TOGETHER)]
    with services(place, 1) as (running,):
        alarm = threading.Timer(SIGNAL_AFTER_SECONDS, running.end)
        alarm.start()
        answers = volley([running.port], place.token, requests)
        alarm.join()
        assert "stopped" in running.events()

    retried = [ask_until_answered(clean, place.token, request) for request in requests]
    for told, again in zip(answers, retried, strict=True):
        assert again.status == 201
        assert told is None or told.status == 503 or as_first(again) == told
    check_ledger(clean, place.token, name, spent=TOGETHER, authorized=TOGETHER)
