"""Decisions on requests for budget that meet: each request is decided once, and no budget is exceeded."""

from typing import Any

import pytest

from tests.reliability.database_targets import DatabaseTarget
from tests.reliability.ledgers import (
    check_ledger,
    check_shared,
    decided_request,
    look,
    open_dataset,
    open_shared,
    requested_allocation,
)
from tests.reliability.model import limit_rho, lowered_plan
from tests.reliability.wire import Ask, Heard, ask, ask_until_answered, volley

TOGETHER = 64
ROUNDS = 10
PER_TOKEN = 16


@pytest.fixture(scope="module")
def admins(database_target: DatabaseTarget, ports: list[int]) -> list[str]:
    """Two admins, of two teams."""
    return [make_token(ports, database_target, f"admin-{team}", "admin", team) for team in ("one", "two")]


def make_token(ports: list[int], target: DatabaseTarget, key: str, scope: str, team: str) -> str:
    made = ask(ports[0], target.token, Ask("/v1/tokens", {"scopes": [scope], "team": team}, key))
    assert made.status == 201, made
    token: str = made.body["token"]
    return token


def requested(port: int, token: str, request: Ask) -> str:
    made = ask(port, token, request)
    assert made.status == 201, made
    request_id: str = made.body["id"]
    return request_id


def final(ports: list[int], tokens: list[str], requests: list[Ask]) -> list[Heard]:
    """All sent at once, the tokens taking turns; whoever has to wait asks again."""
    answers = volley(ports, tokens, requests)
    assert None not in answers
    return [
        ask_until_answered(ports[0], tokens[index % len(tokens)], requests[index])
        if answer.postponed
        else answer
        for index, answer in enumerate(answers)
        if answer is not None
    ]


def test_two_admins_who_approve_one_request_carry_it_out_once(
    database_target: DatabaseTarget, ports: list[int], admins: list[str]
) -> None:
    for number in range(ROUNDS):
        name = open_shared(ports[0], database_target.token, f"approved-{number}", tenths=10)
        request = requested(ports[0], admins[0], requested_allocation(name, "part", "ask"))
        approvals = [decided_request(name, request, "approve", f"yes-{index}") for index in range(TOGETHER)]
        answers = final(ports, admins, approvals)

        statuses = [answer.status for answer in answers]
        assert (statuses.count(201), statuses.count(409)) == (1, TOGETHER - 1), statuses
        assert {answer.problem for answer in answers} == {None, "request-closed"}
        kinds = {"budget-requested": 1, "request-approved": 1}
        check_shared(ports[number % 2], database_target.token, name, tenths=1, allocated=1, **kinds)


@pytest.mark.parametrize("other", ["withdraw", "reject"])
def test_of_an_approval_and_its_opposite_that_meet_one_wins(
    database_target: DatabaseTarget, ports: list[int], admins: list[str], other: str
) -> None:
    for number in range(ROUNDS):
        name = open_shared(ports[0], database_target.token, f"{other}-{number}", tenths=10)
        request = requested(ports[0], admins[1], requested_allocation(name, "part", "ask"))
        # The second admin, who made the request, approves nothing; the first rejects or withdraws nothing.
        decisions = [
            decided_request(name, request, "approve", "yes"),
            decided_request(name, request, other, "no"),
        ]
        first, second = final(ports, admins, decisions)

        assert sorted([first.status, second.status]) == [201, 409]
        assert {first.problem, second.problem} == {None, "request-closed"}
        approved = first.status == 201
        closed = {"withdraw": "request-withdrawn", "reject": "request-rejected"}[other]
        kinds = {"budget-requested": 1, ("request-approved" if approved else closed): 1}
        check_shared(
            ports[1], database_target.token, name, tenths=int(approved), allocated=int(approved), **kinds
        )


def test_approvals_that_together_exceed_a_shared_budget_never_do(
    database_target: DatabaseTarget, ports: list[int], admins: list[str]
) -> None:
    """64 requests for a tenth each, approved at once by two admins: a budget for ten carries out ten."""
    name = open_shared(ports[0], database_target.token, "exceeded", tenths=10)
    asking = [
        make_token(ports, database_target, f"asks-{index}", "spend", "lab")
        for index in range(TOGETHER // PER_TOKEN)
    ]
    ids = [
        requested(
            ports[0], asking[index % len(asking)], requested_allocation(name, f"part-{index}", f"{index}")
        )
        for index in range(TOGETHER)
    ]
    answers = final(ports, admins, [decided_request(name, each, "approve", f"yes-{each}") for each in ids])

    statuses = [answer.status for answer in answers]
    assert (statuses.count(201), statuses.count(409)) == (10, TOGETHER - 10), statuses
    assert {answer.problem for answer in answers} == {None, "budget-exhausted"}
    kinds = {"budget-requested": TOGETHER, "request-approved": 10}
    check_shared(ports[1], database_target.token, name, tenths=10, allocated=10, **kinds)
    left = look(ports[1], database_target.token, name, "budget-requests?state=open&limit=1000")["items"]
    refused = [each for each, status in zip(ids, statuses, strict=True) if status == 409]
    assert [each["id"] for each in left] == refused, "what did not fit stays open"


def test_an_epoch_that_is_opened_many_times_at_once_is_one_partition(
    database_target: DatabaseTarget, ports: list[int], admins: list[str]
) -> None:
    name, token = open_dataset(ports[0], database_target.token, "epochs", units=10), database_target.token
    policy = {"period": "year", "budget": budget_of_epochs(ports[0], token, name), "reason": "each year"}
    requests = [
        Ask(f"/v1/datasets/{name}/partitions", {"names": ["before"]}, "first"),
        Ask(f"/v1/datasets/{name}/renewal", policy, "policy"),
    ]
    assert [ask(ports[0], token, each).status for each in requests] == [201, 201]
    epoch = look(ports[0], token, name, "renewal")["next"]
    body = {"epoch": epoch, "records_are_new": True, "statement": "dated by their start"}
    path = f"/v1/datasets/{name}/epochs"
    answers = final(ports, admins, [Ask(path, body, f"open-{index}") for index in range(TOGETHER)])

    statuses = [answer.status for answer in answers]
    assert (statuses.count(201), statuses.count(409)) == (1, TOGETHER - 1), statuses
    assert {answer.problem for answer in answers} == {None, "already-exists"}
    kinds = {"partitions-opened": 2, "renewal-changed": 1}
    check_ledger(ports[1], token, name, spent=0, **kinds)


def budget_of_epochs(port: int, token: str, name: str) -> dict[str, Any]:
    """A smaller one of the dataset's own kind."""
    planned = look(port, token, name, "budget")["accounting"] == "plan"
    return lowered_plan(5) if planned else {"accounting": "zcdp", "rho": limit_rho(5)}
