"""Many requests at once against two service processes: the budget and the key decide, not the timing."""

import pytest

from tests.reliability.database_targets import DatabaseTarget
from tests.reliability.ledgers import (
    allocated_step,
    allocation,
    authorization,
    check_ledger,
    check_shared,
    look,
    open_dataset,
    open_shared,
)
from tests.reliability.model import UNIT
from tests.reliability.wire import Ask, Heard, as_first, ask, ask_until_answered, volley

TOGETHER = 64
ROUNDS = 50
REPEATED_ROUNDS = 10


def answered(answers: list[Heard | None]) -> list[Heard]:
    assert None not in answers
    return [answer for answer in answers if answer is not None]


def test_a_budget_for_one_grants_one(database_target: DatabaseTarget, ports: list[int]) -> None:
    for number in range(ROUNDS):
        name = open_dataset(ports[0], database_target.token, f"one-{number}", units=1)
        requests = [authorization(name, 1, f"key-{index}") for index in range(TOGETHER)]
        answers = answered(volley(ports, database_target.token, requests))

        statuses = [answer.status for answer in answers]
        assert (statuses.count(201), statuses.count(409)) == (1, TOGETHER - 1), statuses
        assert {answer.problem for answer in answers} == {None, "budget-exhausted"}
        check_ledger(ports[number % 2], database_target.token, name, spent=1, authorized=1)


def test_the_last_steps_of_a_plan_are_granted_once(database_target: DatabaseTarget, ports: list[int]) -> None:
    """Counts are whole numbers: of 64 requests at once, a plan for ten grants ten, and all ten."""
    item = {
        "name": "sgd",
        "sample": {"scheme": "poisson", "rate": 0.01},
        "releases": [{"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": 1.1}],
    }
    budget = {"accounting": "plan", "epsilon": 1.0, "delta": 1e-5, "items": [{**item, "times": 10}]}
    for number in range(REPEATED_ROUNDS):
        name = f"planned-{number}"
        opened = ask(
            ports[0], database_target.token, Ask("/v1/datasets", {"name": name, "budget": budget}, name)
        )
        assert opened.status == 201, opened
        body = {"run": "race", "sample": item["sample"], "releases": item["releases"]}
        path = f"/v1/datasets/{name}/authorizations"
        answers = answered(
            volley(
                ports,
                database_target.token,
                [Ask(path, body, f"key-{index}") for index in range(TOGETHER)],
            )
        )
        statuses = [answer.status for answer in answers]
        assert (statuses.count(201), statuses.count(409)) == (10, TOGETHER - 10), statuses
        shown = look(ports[number % 2], database_target.token, name, "budget")
        assert shown["spent"]["items"] == [{"name": "sgd", "times": 10}]
        assert look(ports[1], database_target.token, name, "verification")["valid"]


def test_a_budget_for_some_grants_so_many(database_target: DatabaseTarget, ports: list[int]) -> None:
    """Different prices at once: what is granted fits, and what was refused would not have."""
    name = open_dataset(ports[0], database_target.token, "some", units=100)
    prices = [1 + index % 7 for index in range(TOGETHER)]
    requests = [authorization(name, price, f"key-{index}") for index, price in enumerate(prices)]
    answers = answered(volley(ports, database_target.token, requests))

    granted = [price for price, answer in zip(prices, answers, strict=True) if answer.status == 201]
    refused = [price for price, answer in zip(prices, answers, strict=True) if answer.status == 409]
    assert len(granted) + len(refused) == TOGETHER
    assert sum(granted) <= 100
    assert all(sum(granted) + price > 100 for price in refused)
    check_ledger(ports[1], database_target.token, name, spent=sum(granted), authorized=len(granted))


def repeated_until_answered(database_target: DatabaseTarget, ports: list[int], request: Ask) -> list[Heard]:
    """Send one request many times at once; whoever has to wait asks again."""
    answers = answered(volley(ports, database_target.token, [request] * TOGETHER))
    return [
        ask_until_answered(ports[index % 2], database_target.token, request) if answer.postponed else answer
        for index, answer in enumerate(answers)
    ]


def test_one_key_sent_many_times_at_once_is_one_authorization(
    database_target: DatabaseTarget, ports: list[int]
) -> None:
    for number in range(REPEATED_ROUNDS):
        name = open_dataset(ports[0], database_target.token, f"key-{number}", units=TOGETHER)
        answers = repeated_until_answered(database_target, ports, authorization(name, 1, "the-key"))

        assert {answer.status for answer in answers} == {201}
        assert [as_first(answer) for answer in answers] == [as_first(answers[0])] * TOGETHER
        assert [answer.replayed for answer in answers].count(False) == 1
        check_ledger(ports[1], database_target.token, name, spent=1, authorized=1)


def test_one_key_sent_many_times_at_once_is_one_refusal(
    database_target: DatabaseTarget, ports: list[int]
) -> None:
    name = open_dataset(ports[0], database_target.token, "refused", units=1)
    answers = repeated_until_answered(database_target, ports, authorization(name, 2, "the-key"))

    assert {answer.problem for answer in answers} == {"budget-exhausted"}
    assert [as_first(answer) for answer in answers] == [as_first(answers[0])] * TOGETHER
    check_ledger(ports[1], database_target.token, name, spent=0, authorized=0)


@pytest.mark.parametrize("what", ["opening", "reservation", "bulk"])
def test_one_key_sent_many_times_at_once_is_one_of_anything(
    database_target: DatabaseTarget, ports: list[int], what: str
) -> None:
    name = f"once-{what}"
    step = {"run": "race", "releases": [{"mechanism": "zcdp", "rho": UNIT}]}
    budget = {"accounting": "zcdp", "rho": 2.5 * UNIT}
    requests = {
        "opening": Ask("/v1/datasets", {"name": name, "budget": budget}, "the-key"),
        "reservation": Ask(
            f"/v1/datasets/{name}/reservations", {**step, "times": 2, "expires_in_seconds": 600.0}, "the-key"
        ),
        "bulk": Ask("/v1/authorizations", {"mode": "each", "items": [{"dataset": name, **step}]}, "the-key"),
    }
    if what != "opening":
        open_dataset(ports[0], database_target.token, name, units=2)
    answers = repeated_until_answered(database_target, ports, requests[what])

    assert {answer.status for answer in answers} == {201}
    assert [as_first(answer) for answer in answers] == [as_first(answers[0])] * TOGETHER
    kinds = {"reservation": {"reserved": 1}, "bulk": {"authorized": 1}, "opening": {}}[what]
    spent = {"reservation": 2, "bulk": 1, "opening": 0}[what]
    check_ledger(ports[1], database_target.token, name, spent=spent, **kinds)


def test_transfers_that_cross_do_not_stand_in_each_others_way(
    database_target: DatabaseTarget, ports: list[int]
) -> None:
    """Lists over two datasets in opposite order, all at once: locks are taken in one order."""
    names = [open_dataset(ports[0], database_target.token, f"cross-{each}", units=TOGETHER) for each in "ab"]
    step = {"run": "race", "releases": [{"mechanism": "zcdp", "rho": UNIT}]}
    forth = [{"dataset": name, **step} for name in names]
    requests = [
        Ask("/v1/authorizations", {"mode": "all-or-nothing", "items": items}, f"key-{index}")
        for index in range(TOGETHER // 2)
        for items in (forth, forth[::-1])
    ]
    unlike = [Ask(each.path, each.body, f"{each.key}-{index % 2}") for index, each in enumerate(requests)]
    answers = answered(volley(ports, database_target.token, unlike))

    assert {answer.status for answer in answers} == {201}
    for name in names:
        check_ledger(ports[1], database_target.token, name, spent=TOGETHER, authorized=TOGETHER)
    assert (
        ask(ports[0], database_target.token, authorization(names[0], 1, "one-more")).problem
        == "budget-exhausted"
    )


def test_a_shared_budget_for_ten_parts_hands_out_ten(
    database_target: DatabaseTarget, ports: list[int]
) -> None:
    """One tenth each, all asked for at once from two processes: 0.1 ten times is 1.0, and no more."""
    for number in range(ROUNDS // 5):
        name = open_shared(ports[0], database_target.token, f"ten-{number}", tenths=10)
        requests = [allocation(name, f"part-{index}", f"key-{index}") for index in range(TOGETHER)]
        answers = answered(volley(ports, database_target.token, requests))

        statuses = [answer.status for answer in answers]
        assert (statuses.count(201), statuses.count(409)) == (10, TOGETHER - 10), statuses
        assert {answer.problem for answer in answers} == {None, "budget-exhausted"}
        check_shared(ports[number % 2], database_target.token, name, tenths=10, allocated=10)


def test_one_name_is_one_allocation(database_target: DatabaseTarget, ports: list[int]) -> None:
    name = open_shared(ports[0], database_target.token, "names", tenths=10)
    requests = [allocation(name, "part", f"key-{index}") for index in range(TOGETHER)]
    answers = answered(volley(ports, database_target.token, requests))

    assert [answer.status for answer in answers].count(201) == 1
    assert {answer.problem for answer in answers} == {None, "already-exists"}
    check_shared(ports[1], database_target.token, name, tenths=1, allocated=1)


def test_spends_and_returns_that_meet_leave_nothing_released_and_returned(
    database_target: DatabaseTarget, ports: list[int]
) -> None:
    """Four allocations with room for ten steps each, and a return of each, all at once."""
    name = open_shared(ports[0], database_target.token, "meet", tenths=4)
    parts = [f"part-{index}" for index in range(4)]
    for part in parts:
        assert ask(ports[0], database_target.token, allocation(name, part, part)).status == 201
    requests = [allocated_step(name, parts[index % 4], f"key-{index}") for index in range(TOGETHER)]
    for at, part in zip((0, 9, 30, 60), parts, strict=True):
        path = f"/v1/datasets/{name}/allocations/{part}/return"
        requests.insert(at, Ask(path, {"reason": "spare"}, f"return-{part}"))
    answers = answered(volley(ports, database_target.token, requests))

    pairs = list(zip(requests, answers, strict=True))
    returned = {
        each.path.split("/")[-2] for each, answer in pairs if answer.status == 201 and "return" in each.path
    }
    granted = [
        each.body["allocation"]
        for each, answer in pairs
        if answer.status == 201 and each.body and "run" in each.body
    ]
    assert returned.isdisjoint(granted)
    for part in parts:
        assert granted.count(part) == (0 if part in returned else 10)
    problems = {answer.problem for answer in answers}
    assert problems <= {None, "budget-exhausted", "allocation-returned", "allocation-in-use"}
    kinds = {"allocated": 4, "authorized": len(granted), "allocation-returned": len(returned)}
    check_shared(ports[1], database_target.token, name, tenths=4 - len(returned), **kinds)
