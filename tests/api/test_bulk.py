"""Lists across datasets and partitions: all or nothing, or each on its own."""

from typing import Any

import pytest

from dpledger.api.answers import BulkAnswer
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
