"""Lists across datasets and partitions: all or nothing, or each on its own."""

import json
import threading
from typing import Any

import pytest

from dpledger.api.schemas.requests import BulkBody
from dpledger.api.schemas.responses import BulkAnswer
from dpledger.ledger.bulk import no_pause
from dpledger.ledger.model.requests import Spend
from dpledger.ledger.ports import IdempotentRequest
from tests.api.service import GAUSSIAN, POISSON, Service, made, problem


def item(dataset: str = "adult", noise_std: float = 2.0, **more: Any) -> dict[str, Any]:
    return {"dataset": dataset, "run": "r", "releases": [{**GAUSSIAN, "noise_std": noise_std}], **more}


@pytest.fixture
def two(adult: Service) -> Service:
    adult.open("census")
    return adult


def test_all_of_a_list_is_taken_in_its_order(two: Service) -> None:
    answer = two.bulk("all-or-nothing", item("census"), item("adult"), item("census"))

    body = made(answer)
    BulkAnswer.model_validate(body)
    assert body["outcome"] == "granted"
    assert [each["granted"]["id"] for each in body["results"]] == ["census~2", "adult~2", "census~3"]
    for name in ("adult", "census"):
        two.verified(name)


def test_one_refusal_leaves_every_ledger_as_it_was(two: Service) -> None:
    answer = two.bulk("all-or-nothing", item("census"), item("adult", noise_std=0.5), key="k")

    refused = problem(answer, 409, "budget-exhausted")
    assert refused["outcome"] == "refused"
    assert refused["results"][0] == {"not_taken": True}
    assert refused["results"][1]["refused"]["dataset"] == "adult"
    assert (two.sequence("adult"), two.sequence("census")) == (1, 1)
    again = two.bulk("all-or-nothing", item("census"), item("adult", noise_std=0.5), key="k")
    assert again.content == answer.content
    assert again.headers["idempotency-replayed"] == "true"


def test_each_stands_on_its_own(two: Service) -> None:
    answer = two.bulk(
        "each",
        item("census"),
        item("adult", noise_std=0.5),
        item("adult"),
        item("unknown"),
        item("adult", partition="nowhere"),
        item("adult", sample=POISSON),
        key="k",
    )

    body = made(answer)
    BulkAnswer.model_validate(body)
    kinds = [next(iter(each)) for each in body["results"]]
    assert kinds == ["granted", "refused", "granted", "failed", "failed", "failed"]
    assert [each["failed"]["reason"] for each in body["results"][3:]] == [
        "not-found",
        "not-found",
        "unproven",
    ]
    assert (two.sequence("adult"), two.sequence("census")) == (2, 2)
    again = two.bulk(
        "each",
        item("census"),
        item("adult", noise_std=0.5),
        item("adult"),
        item("unknown"),
        item("adult", partition="nowhere"),
        item("adult", sample=POISSON),
        key="k",
    )
    assert again.content == answer.content
    assert again.headers["idempotency-replayed"] == "true"


@pytest.mark.parametrize(
    ("odd", "status", "slug"),
    [
        (item("unknown"), 404, "not-found"),
        (item(partition="nowhere"), 404, "not-found"),
        (item(sample=POISSON), 422, "unproven"),
        (item(sample={"id": "adult~1"}), 422, "invalid-input"),
    ],
)
def test_all_or_nothing_tells_the_first_error_and_takes_nothing(
    two: Service, odd: dict[str, Any], status: int, slug: str
) -> None:
    problem(two.bulk("all-or-nothing", item("census"), odd, key="k"), status, slug)

    assert (two.sequence("adult"), two.sequence("census")) == (1, 1)
    made(two.bulk("all-or-nothing", item("census"), key="k"))


def test_a_list_sees_what_it_has_spent_itself(adult: Service) -> None:
    body = made(adult.bulk("each", *[item()] * 6))

    assert ["granted" in each for each in body["results"]] == [True] * 4 + [False] * 2
    assert body["results"][4]["refused"]["sequence"] == 5


def test_a_key_is_not_used_for_two_lists(two: Service) -> None:
    made(two.bulk("each", item("census"), key="k"))

    problem(two.bulk("each", item("adult"), key="k"), 422, "idempotency-key-reused")


def test_a_thousand_partitions_in_one_call(service: Service) -> None:
    service.open("users")
    made(service.post("/v1/datasets/users/partitions", {"count": 1000}))

    body = made(service.bulk("all-or-nothing", *(item("users", partition=str(n)) for n in range(1000))))

    assert len(body["results"]) == 1000
    assert 0.12 < service.budget("users")["spent"]["rho"] < 0.13
    service.verified("users")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"items": [item()]}, "mode"),
        ({"mode": "some", "items": [item()]}, "mode"),
        ({"mode": "each", "items": []}, "items"),
        ({"mode": "each", "items": [item()] * 1001}, "items"),
        ({"mode": "each", "items": [{**item(), "dataset": "UPPER"}]}, "items[0].dataset"),
        ({"mode": "each", "items": [item(), item(noise_std=-1.0)]}, "items[1].releases[0].noise_std"),
    ],
)
def test_limits_of_a_list(still: Service, body: dict[str, Any], field: str) -> None:
    assert problem(still.post("/v1/authorizations", body), 422, "invalid-input")["field"] == field


LONG = 40
"""More than is decided under the locks at once."""
ROOMY = {"accounting": "zcdp", "rho": 1000.0}


def decided(service: Service, mode: str, spends: list[Spend], key: bytes, pause: Any = no_pause) -> Any:
    services = service.app.state.services
    actor = services.gatekeeper.caller(f"Bearer {service.token}").id
    answer = services.ledger.authorize_all(spends, mode, IdempotentRequest(actor, key * 16, b"r" * 16), pause)
    body = services.responses.respond(answer).body
    return answer.outcome, json.loads(body)["results"], answer.replayed


def spends(dataset: str = "adult", count: int = LONG, **more: Any) -> list[Spend]:
    return BulkBody.model_validate({"mode": "each", "items": [item(dataset, **more)] * count}).spends()


@pytest.mark.parametrize("mode", ["all-or-nothing", "each"])
def test_nobody_waits_while_a_long_list_is_decided(service: Service, mode: str) -> None:
    for name in ("adult", "census"):
        service.open(name, ROOMY)
    others: list[int] = []

    def others_spend() -> None:
        if len(others) < 5:
            others.append(service.authorize(dataset="census").status_code)

    outcome, results, _ = decided(service, mode, spends(), b"k", others_spend)

    assert others == [201] * 5
    assert outcome == "granted"
    assert [each["granted"]["sequence"] for each in results] == list(range(2, LONG + 2))
    assert (service.sequence("adult"), service.sequence("census")) == (LONG + 1, 6)
    for name in ("adult", "census"):
        service.verified(name)


@pytest.mark.parametrize("times", [0, 1, 2])
@pytest.mark.parametrize(
    ("mode", "count", "expected"),
    [("each", 40, (40, 39, 38)), ("all-or-nothing", 39, (39, 39, 0)), ("all-or-nothing", 38, (38, 38, 38))],
)
def test_a_list_that_was_overtaken_is_decided_again(
    service: Service, mode: str, count: int, expected: tuple[int, ...], times: int
) -> None:
    service.open("adult", {"accounting": "zcdp", "rho": 5.01})  # room for 40 of 0.125
    # Pauses come after each charge and then after each item of each draft, of which there are two.
    overtaking = iter([False] * count + [times > 0] + [False] * (count - 1) + [times > 1])
    overtaken: list[int] = []

    def overtake() -> None:
        if next(overtaking, False):
            overtaken.append(service.authorize().status_code)

    outcome, results, _ = decided(service, mode, spends(count=count), b"k", overtake)

    granted = sum("granted" in each for each in results)
    assert overtaken == [201] * times
    assert granted == expected[times]
    assert service.sequence() == 1 + times + granted
    assert outcome == ("granted" if granted else "refused")
    service.verified()


def test_a_long_list_is_answered_again_without_a_lock(service: Service) -> None:
    service.open("adult", ROOMY)
    first = decided(service, "each", spends(), b"k")

    storage = service.app.state.services.storage
    with storage.begin():  # on SQLite nobody else can write now
        again = decided(service, "each", spends(), b"k")

    assert first[2] is False
    assert again == (*first[:2], True)
    assert service.sequence() == LONG + 1


def test_lists_and_single_spends_together_never_spend_too_much(service: Service) -> None:
    service.open("adult", {"accounting": "zcdp", "rho": 12.6})  # room for 100 of 0.125
    granted: list[int] = []

    def lists(key: bytes) -> None:
        _, results, _ = decided(service, "each", spends(count=30), key)
        granted.append(sum("granted" in each for each in results))

    def singles(_key: bytes) -> None:
        granted.extend(service.authorize().status_code == 201 for _ in range(30))

    works = [lists, singles, lists, singles, lists]
    threads = [
        threading.Thread(target=work, args=(bytes([97 + number]),)) for number, work in enumerate(works)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sum(granted) == 100
    assert service.sequence() == 101
    service.verified()


def test_long_lists_that_queue_up_are_told_to_come_back(service: Service) -> None:
    service.open("adult", ROOMY)
    services = service.app.state.services
    services.lists.waiting = 1000
    try:
        answer = service.bulk("each", *[item()] * LONG)
        assert answer.headers["retry-after"]
        problem(answer, 503, "unavailable")
        made(service.bulk("each", item()))
    finally:
        services.lists.waiting = 0
    made(service.bulk("each", *[item()] * LONG))
