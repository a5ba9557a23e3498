"""Many requests of one team at once against two service processes: no more than its quota is granted."""

from typing import Any

import pytest

from tests.reliability.database_targets import DatabaseTarget
from tests.reliability.ledgers import check_ledger, look, open_dataset, step
from tests.reliability.wire import Ask, ask, ask_until_answered, volley

TOGETHER = 64
SHARE = 10.5 / 100.5
"""Of a budget for a hundred: ten, and half a unit for rounding."""


@pytest.fixture(scope="module")
def team_token(database_target: DatabaseTarget, ports: list[int]) -> str:
    body = {"scopes": ["spend"], "team": "lab"}
    made = ask(ports[0], database_target.token, Ask("/v1/tokens", body, "the-team"))
    assert made.status == 201, made
    token: str = made.body["token"]
    return token


def limited(database_target: DatabaseTarget, ports: list[int], name: str, window: int | None) -> str:
    """A dataset for a hundred units, of which the team may use ten."""
    open_dataset(ports[0], database_target.token, name, units=100)
    body = {"team": "lab", "fraction": SHARE, "window_seconds": window, "reason": "a tenth"}
    made = ask(ports[0], database_target.token, Ask(f"/v1/datasets/{name}/quotas", body, f"limit-{name}"))
    assert made.status == 201, made
    return name


def requests_of(name: str, kind: str) -> list[Ask]:
    """What is asked for at once: one unit each."""
    here = f"/v1/datasets/{name}"
    asked: dict[str, tuple[str, dict[str, Any]]] = {
        "authorization": (f"{here}/authorizations", step(1)),
        "reservation": (f"{here}/reservations", {**step(1), "times": 1, "expires_in_seconds": 600.0}),
        "list": ("/v1/authorizations", {"mode": "all-or-nothing", "items": [{"dataset": name, **step(1)}]}),
    }
    path, body = asked[kind]
    return [Ask(path, body, f"{name}-{kind}-{index}") for index in range(TOGETHER)]


@pytest.mark.parametrize("window", [None, 86_400])
@pytest.mark.parametrize("kind", ["authorization", "reservation", "list"])
def test_a_quota_for_ten_grants_ten(
    database_target: DatabaseTarget, ports: list[int], team_token: str, kind: str, window: int | None
) -> None:
    name = limited(database_target, ports, f"quota-{kind}-{window or 'all'}", window)
    requests = requests_of(name, kind)
    answers = volley(ports, team_token, requests)
    assert None not in answers
    heard = [
        ask_until_answered(ports[0], team_token, request) if answer.postponed else answer
        for request, answer in zip(requests, answers, strict=True)
        if answer is not None
    ]

    statuses = [answer.status for answer in heard]
    assert (statuses.count(201), statuses.count(409)) == (10, TOGETHER - 10), statuses
    assert {answer.problem for answer in heard} == {None, "quota-exceeded"}
    (quota,) = look(ports[1], database_target.token, name, "quotas")["items"]
    assert quota["remaining"]["fraction"] * 100.5 == pytest.approx(0.5)
    assert quota["open_reservations"] == (10 if kind == "reservation" else 0)
    if kind == "reservation":
        assert look(ports[1], database_target.token, name, "verification")["valid"]
    else:
        check_ledger(ports[1], database_target.token, name, spent=10, authorized=10, **{"quota-changed": 1})
