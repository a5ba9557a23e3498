"""The state machine on both databases, over the whole application and two replicas of it."""

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from dpledger.api.app import create_app
from dpledger.settings import Settings
from tests.reliability.database_targets import DatabaseTarget
from tests.reliability.machine import TEAM, LedgerMachine
from tests.reliability.wire import Ask, Heard

START_US = 1_800_000_000_000_000
STEPS_PER_EXAMPLE = 50
EXAMPLES = {"sqlite": 60, "postgresql": 10}
"""How many steps each takes is drawn too, about 42 in the mean."""
LEAST_STEPS = {"sqlite": 2000, "postgresql": 300}


class SettableClock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self._now_us = START_US

    def now_us(self) -> int:
        return self._now_us

    def advance(self, seconds: int) -> None:
        self._now_us += seconds * 1_000_000


class Replicas:
    """Two applications on one database; each can be stopped and started again."""

    def __init__(self, database_target: DatabaseTarget) -> None:
        self._database_target = database_target
        self._clock = SettableClock()
        self._clients = [self._started(), self._started()]
        self._token = database_target.token
        made = self.ask(0, Ask("/v1/tokens", {"scopes": ["admin"], "team": TEAM}, "the-team"))
        self._token = made.body["token"]

    def _started(self) -> TestClient:
        # Nothing may happen by itself between two steps, so the service's own look-out sleeps.
        chosen = Settings(self._database_target.database, self._database_target.key_file, expiry_seconds=1e6)
        client = TestClient(create_app(chosen, clock=self._clock))
        client.__enter__()
        return client

    def ask(self, replica: int, request: Ask) -> Heard:
        headers = request.headers(self._token)
        answer = self._clients[replica].request(
            request.method, request.path, content=request.text(), headers=headers
        )
        return Heard(answer.status_code, answer.json(), answer.headers.get("idempotency-replayed") == "true")

    def restart(self, replica: int) -> None:
        self._clients[replica].__exit__(None, None, None)
        self._clients[replica] = self._started()

    def sweep(self, replica: int) -> None:
        app: Any = self._clients[replica].app
        app.state.services.ledger.expire_due()

    def advance(self, seconds: int) -> None:
        self._clock.advance(seconds)

    def now(self) -> float:
        return self._clock.now_us() / 1e6

    def close(self) -> None:
        for client in self._clients:
            client.__exit__(None, None, None)


@pytest.fixture
def replicas(fresh_place: DatabaseTarget) -> Iterator[Replicas]:
    replicas = Replicas(fresh_place)
    yield replicas
    replicas.close()


def test_the_service_does_what_the_model_says(fresh_place: DatabaseTarget, replicas: Replicas) -> None:
    kind = "sqlite" if fresh_place.database.startswith("sqlite") else "postgresql"

    class Machine(LedgerMachine):
        site = replicas
        steps = 0

    chosen = settings(
        max_examples=EXAMPLES[kind],
        stateful_step_count=STEPS_PER_EXAMPLE,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(Machine, settings=chosen)

    assert Machine.steps >= LEAST_STEPS[kind]
