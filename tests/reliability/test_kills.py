"""SIGKILL at the worst moments: what was acknowledged is kept, what is retried is charged once."""

import signal
from dataclasses import dataclass

import pytest

from tests.reliability.database_targets import DatabaseTarget
from tests.reliability.doomed import ACKNOWLEDGEMENT, COMMITTED, POINTS, Executioner
from tests.reliability.ledgers import (
    allocated_step,
    allocation,
    authorization,
    check_ledger,
    check_shared,
    open_dataset,
    open_shared,
    step,
)
from tests.reliability.wire import Ask, Heard, as_first, ask, ask_until_answered, volley

DEATHS = 20
TOGETHER = 6
BEFOREHAND = 2
"""Requests that the doomed service answers before the fatal ones."""


@dataclass(frozen=True)
class Scene:
    """A dataset, the requests that are under way when the service dies, and the ledger they must leave."""

    name: str
    fatal: list[Ask]
    spent: int
    kinds: dict[str, int]
    shared: bool = False

    def first(self, index: int) -> Ask:
        """A request that the doomed service answers before the fatal ones."""
        if self.shared:
            return allocation(self.name, f"first-{index}", f"first-{index}")
        return authorization(self.name, 1, f"first-{index}")

    def check(self, port: int, token: str) -> None:
        """What must be true of the ledger in the end."""
        if self.shared:
            check_shared(port, token, self.name, tenths=self.spent, **self.kinds)
        else:
            check_ledger(port, token, self.name, spent=self.spent, **self.kinds)


def authorizations(database_target: DatabaseTarget, port: int, name: str) -> Scene:
    """Several steps at once, decided in groups."""
    open_dataset(port, database_target.token, name, units=BEFOREHAND + TOGETHER)
    fatal = [authorization(name, 1, f"fatal-{index}") for index in range(TOGETHER)]
    return Scene(name, fatal, BEFOREHAND + TOGETHER, {"authorized": BEFOREHAND + TOGETHER})


def bulk(database_target: DatabaseTarget, port: int, name: str) -> Scene:
    """Lists of steps, each under one key."""
    open_dataset(port, database_target.token, name, units=BEFOREHAND + 2 * TOGETHER)
    body = {"mode": "all-or-nothing", "items": [{"dataset": name, **step(1)}] * 2}
    fatal = [Ask("/v1/authorizations", body, f"{name}-{index}") for index in range(TOGETHER)]
    return Scene(name, fatal, BEFOREHAND + 2 * TOGETHER, {"authorized": BEFOREHAND + 2 * TOGETHER})


def reservation(name: str, key: str) -> Ask:
    body = {**step(1), "times": 3, "expires_in_seconds": 3600.0}
    return Ask(f"/v1/datasets/{name}/reservations", body, key)


def reservations(database_target: DatabaseTarget, port: int, name: str) -> Scene:
    """Holds: a second one under the same key would not fit."""
    open_dataset(port, database_target.token, name, units=BEFOREHAND + 3 * TOGETHER)
    fatal = [reservation(name, f"fatal-{index}") for index in range(TOGETHER)]
    kinds = {"authorized": BEFOREHAND, "reserved": TOGETHER}
    return Scene(name, fatal, BEFOREHAND + 3 * TOGETHER, kinds)


def settlements(database_target: DatabaseTarget, port: int, name: str) -> Scene:
    """Giving back twice would be the worst of all: each hold returns two of its three."""
    open_dataset(port, database_target.token, name, units=BEFOREHAND + 3 * TOGETHER)
    held = [ask(port, database_target.token, reservation(name, f"held-{index}")) for index in range(TOGETHER)]
    fatal = [
        Ask(f"/v1/reservations/{each.body['id']}/settlement", {"used": 1}, f"{name}-{index}")
        for index, each in enumerate(held)
    ]
    kinds = {"authorized": BEFOREHAND, "reserved": TOGETHER, "settled": TOGETHER}
    return Scene(name, fatal, BEFOREHAND + TOGETHER, kinds)


def allocations(database_target: DatabaseTarget, port: int, name: str) -> Scene:
    """Parts of a shared budget: one more than are asked for would not fit."""
    open_shared(port, database_target.token, name, tenths=BEFOREHAND + TOGETHER)
    fatal = [allocation(name, f"part-{index}", f"fatal-{index}") for index in range(TOGETHER)]
    return Scene(name, fatal, BEFOREHAND + TOGETHER, {"allocated": BEFOREHAND + TOGETHER}, shared=True)


def allocated_steps(database_target: DatabaseTarget, port: int, name: str) -> Scene:
    """Steps from an allocation that has room for ten."""
    open_shared(port, database_target.token, name, tenths=BEFOREHAND + 1)
    opened = ask(port, database_target.token, allocation(name, "part", "part"))
    assert opened.status == 201
    fatal = [allocated_step(name, "part", f"fatal-{index}") for index in range(TOGETHER)]
    kinds = {"allocated": BEFOREHAND + 1, "authorized": TOGETHER}
    return Scene(name, fatal, BEFOREHAND + 1, kinds, shared=True)


def allocation_returns(database_target: DatabaseTarget, port: int, name: str) -> Scene:
    """Giving an allocation back twice would hand out its part twice."""
    open_shared(port, database_target.token, name, tenths=BEFOREHAND + TOGETHER)
    for index in range(TOGETHER):
        opened = ask(port, database_target.token, allocation(name, f"part-{index}", f"part-{index}"))
        assert opened.status == 201
    fatal = [
        Ask(f"/v1/datasets/{name}/allocations/part-{index}/return", {"reason": "spare"}, f"{name}-{index}")
        for index in range(TOGETHER)
    ]
    kinds = {"allocated": BEFOREHAND + TOGETHER, "allocation-returned": TOGETHER}
    return Scene(name, fatal, BEFOREHAND, kinds, shared=True)


SCENES = [
    *[authorizations] * 6,
    *[bulk] * 3,
    *[reservations] * 2,
    *[settlements] * 3,
    *[allocations] * 2,
    *[allocated_steps] * 2,
    *[allocation_returns] * 2,
]


def passage_of(point: str, number: int) -> int:
    """The first fatal transaction; answers are counted one by one, so some may still go out."""
    return BEFOREHAND + 1 + (number % TOGETHER if point == ACKNOWLEDGEMENT else 0)


def check_survivors(before: list[Heard], again: list[Heard]) -> None:
    """What was answered before is answered the same, as a repetition."""
    for first, repeated in zip(before, again, strict=True):
        assert repeated.replayed
        assert as_first(repeated) == first


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_service_loses_and_doubles_nothing(
    database_target: DatabaseTarget, clean: int, executioner: Executioner, point: str
) -> None:
    assert len(SCENES) == DEATHS
    for number, make_scene in enumerate(SCENES):
        scene = make_scene(database_target, clean, f"{point}-{number}")
        doomed = executioner.start(database_target, point, passage_of(point, number))
        first = [scene.first(index) for index in range(BEFOREHAND)]
        before = [ask(doomed, database_target.token, request) for request in first]
        answers = volley([doomed], database_target.token, scene.fatal)

        assert executioner.signal_of_death() == signal.SIGKILL
        assert {answer.status for answer in before} == {201}
        assert None in answers
        retried = [ask_until_answered(clean, database_target.token, request) for request in scene.fatal]
        assert {answer.status for answer in retried} == {201}
        survived = [answer.replayed for answer in retried]
        assert any(survived) == (point in COMMITTED)
        check_survivors(before, [ask(clean, database_target.token, request) for request in first])
        acknowledged = [
            (reported, again)
            for reported, again in zip(answers, retried, strict=True)
            if reported is not None
        ]
        check_survivors([reported for reported, _ in acknowledged], [again for _, again in acknowledged])
        scene.check(clean, database_target.token)
