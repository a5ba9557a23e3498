"""Partitions: opened by name or number, composed in parallel."""

from typing import Any
from unittest import mock

import pytest

from dpledger.api.schemas.responses import PartitionPage, PartitionsAnswer, PartitionView
from dpledger.storage.repository import SqlTransaction
from tests.api.service import GAUSSIAN, ZCDP, Service, made, problem

PATH = "/v1/datasets/users/partitions"


def opened(service: Service, **more: Any) -> Service:
    service.open("users", ZCDP, **more)
    made(service.post(PATH, {"names": ["ann", "bob", "cem"]}))
    return service


def spend(service: Service, partition: str | None, noise_std: float = 2.0) -> int:
    release = {**GAUSSIAN, "noise_std": noise_std}
    return service.authorize(release, dataset="users", partition=partition).status_code


def test_answers_have_the_declared_shapes(service: Service) -> None:
    service.open("users")

    body = made(service.post(PATH, {"names": ["ann"]}))

    ends = {"first": "ann", "last": "ann"}
    assert body == {"dataset": "users", "sequence": 2, "opened": 1, **ends, "warnings": []}
    PartitionsAnswer.model_validate(body)
    PartitionPage.model_validate(service.shown(PATH))


def test_disjoint_parts_are_spent_in_parallel(service: Service) -> None:
    opened(service)

    assert [spend(service, name) for name in ["ann"] * 3 + ["bob"]] == [201] * 4

    assert 0.37 < service.budget("users")["spent"]["rho"] < 0.38
    left = {each["name"]: each["remaining"]["fraction"] for each in service.shown(PATH)["items"]}
    assert left["ann"] < left["bob"] < left["cem"] == 1.0
    assert [spend(service, None), spend(service, None)] == [201, 409]
    assert spend(service, "ann") == 409
    assert spend(service, "cem") == 201
    service.verified("users")


def test_under_replace_one_the_key_is_private_unless_stated(service: Service) -> None:
    opened(service, adjacency="replace-one")
    assert service.shown("/v1/datasets/users")["partition_key"] == "private"

    names = ["ann", "ann", "bob", "bob", "ann", "cem", "cem", "cem"]
    assert [spend(service, name) for name in names] == [201] * 4 + [409, 201, 201, 409]
    assert 0.5 <= service.budget("users")["spent"]["rho"] < 0.51
    service.verified("users")


def test_a_fixed_key_may_be_stated_under_replace_one(service: Service) -> None:
    opened(service, adjacency="replace-one", partition_key="fixed")

    assert [spend(service, name) for name in ["ann"] * 4 + ["bob"] * 4] == [201] * 8


def test_partitions_may_have_a_budget_of_their_own(service: Service) -> None:
    service.open("users")
    made(service.post(PATH, {"names": ["small"], "budget": {"accounting": "zcdp", "rho": 0.2}}))
    made(service.post(PATH, {"names": ["plain"]}))

    assert [spend(service, name) for name in ["small", "small", "plain", "plain"]] == [201, 409, 201, 201]
    assert spend(service, None) == 409
    service.verified("users")


def test_a_partition_shows_what_a_record_in_it_bears(service: Service) -> None:
    opened(service)
    for partition in ("ann", None):
        assert spend(service, partition) == 201

    ann, bob = (service.shown(f"{PATH}/{name}") for name in ("ann", "bob"))

    for each in (ann, bob):
        PartitionView.model_validate(each)
        listed = service.shown(PATH)["items"][each["number"]]
        assert listed["remaining"]["fraction"] == each["fraction"] == each["remaining"]["fraction"]
        assert each["remaining"]["rho"] <= each["limit"]["rho"] - each["spent"]["rho"]
    assert (ann["spent"]["rho"], bob["spent"]["rho"]) == (0.25, 0.125)
    assert service.get(f"{PATH}/nobody").json()["kind"] == "partition"


def test_under_a_private_key_a_partition_bears_the_largest_other_too(service: Service) -> None:
    opened(service, partition_key="private")
    for partition in ("ann", "ann", "bob"):
        assert spend(service, partition) == 201

    spent = {name: service.shown(f"{PATH}/{name}")["spent"]["rho"] for name in ("ann", "bob", "cem")}

    assert spent["ann"] == spent["bob"] == pytest.approx(0.375)
    assert spent["cem"] == pytest.approx(0.25)
    assert spent["ann"] >= 0.375
    assert spent["cem"] >= 0.25


def test_a_budget_of_its_own_limits_what_a_partition_shows(service: Service) -> None:
    service.open("users", ZCDP)
    made(service.post(PATH, {"names": ["a/b"], "budget": {"accounting": "zcdp", "rho": 0.2}}))
    assert spend(service, "a/b") == 201

    shown = service.shown(f"{PATH}/a%2Fb")

    assert (shown["name"], shown["limit"]["rho"], shown["own_budget"]["rho"]) == ("a/b", 0.2, 0.2)
    assert shown["remaining"]["rho"] <= 0.2 - 0.125
    assert shown["fraction"] == shown["remaining"]["fraction"] == pytest.approx(0.375)


def test_what_is_left_is_never_more_than_the_dataset_has(service: Service) -> None:
    service.open("users", {"accounting": "zcdp", "rho": 0.5})
    made(service.post(PATH, {"names": ["ann"], "budget": {"accounting": "zcdp", "rho": 8.0}}))
    assert spend(service, "ann") == 201

    (ann,) = service.shown(PATH)["items"]

    assert ann["remaining"]["rho"] <= 0.375
    assert ann["remaining"]["fraction"] <= 0.75


def test_what_is_left_is_reported_only_in_terms_of_both_budgets(service: Service) -> None:
    service.open("users", {"accounting": "zcdp", "rho": 0.01})
    own = {"accounting": "zcdp", "epsilon": 10.0, "delta": 1e-5}
    made(service.post(PATH, {"names": ["ann"], "budget": own}))

    (ann,) = service.shown(PATH)["items"]

    assert ann["remaining"] == {"fraction": 1.0, "rho": 0.01}


def test_a_spend_is_reported_what_its_partition_has_left(service: Service) -> None:
    service.open("users", {"accounting": "zcdp", "rho": 5.0})
    made(service.post(PATH, {"names": ["small"], "budget": {"accounting": "zcdp", "rho": 0.2}}))
    step = {**GAUSSIAN, "noise_std": 2.0}

    first, again, refused = (
        service.authorize(step, dataset="users", partition="small", key=key) for key in ("one", "one", "two")
    )

    left = first.json()["remaining"]
    assert left["rho"] == pytest.approx(0.075)
    assert left["rho"] <= 0.075
    assert left["fraction"] == pytest.approx(0.375)
    assert again.json() == first.json()
    assert problem(refused, 409, "budget-exhausted")["remaining"] == left
    assert service.shown(PATH)["items"][0]["remaining"] == left


def test_a_partitions_budget_follows_the_datasets_rule(service: Service) -> None:
    service.open("users")

    answer = service.post(PATH, {"names": ["x"], "budget": {"accounting": "gdp", "mu": 0.1}})

    assert problem(answer, 422, "invalid-input")["field"] == "budget.accounting"


def test_partitions_are_not_opened_with_a_budget_that_allows_nothing(service: Service) -> None:
    service.open("users", {"accounting": "rdp", "epsilon": 1.0, "delta": 1e-5})
    own = {"accounting": "rdp", "epsilon": 1e-9, "delta": 1e-5}

    answer = service.post(PATH, {"names": ["x"], "budget": own})

    assert problem(answer, 422, "invalid-input")["field"] == "budget"


def test_ten_thousand_are_opened_in_one_call(service: Service) -> None:
    service.open("users")

    body = made(service.post(PATH, {"count": 10_000}))
    more = made(service.post(PATH, {"count": 2}))

    assert (body["opened"], body["first"], body["last"]) == (10_000, "0", "9999")
    assert (more["first"], more["last"]) == ("10000", "10001")
    assert service.shown("/v1/datasets/users")["partitions"] == 10_002
    assert spend(service, "9999") == 201
    service.verified("users")


def test_pages_join_without_a_gap(service: Service) -> None:
    service.open("users")
    made(service.post(PATH, {"count": 7}))
    first = service.shown(PATH, limit=4)

    second = service.shown(PATH, limit=4, next=first["next"])

    assert [each["number"] for each in first["items"] + second["items"]] == list(range(7))
    assert second["next"] is None


def test_a_name_is_opened_once(service: Service) -> None:
    opened(service)

    found = problem(service.post(PATH, {"names": ["dan", "bob"]}), 409, "already-exists")

    assert found["kind"] == "partition"
    assert service.sequence("users") == 2
    assert spend(service, "dan") == 404


def test_opening_again_with_the_same_key_is_answered_as_the_first_time(service: Service) -> None:
    service.open("users")
    first = service.post(PATH, {"count": 3}, key="k")
    again = service.post(PATH, {"count": 3}, key="k")

    assert (again.status_code, again.content) == (201, first.content)
    assert again.headers["idempotency-replayed"] == "true"
    assert service.shown("/v1/datasets/users")["partitions"] == 3


def test_a_settled_reservation_gives_room_back_to_its_partition(service: Service) -> None:
    opened(service)
    held = made(service.reserve(4, dataset="users", partition="ann"))
    assert held["partition"] == "ann"
    assert (spend(service, "ann"), spend(service, None)) == (409, 409)

    made(service.settle(held["id"], 1))

    assert (spend(service, "ann"), spend(service, None), spend(service, "ann")) == (201, 201, 201)
    assert spend(service, None) == 409
    service.verified("users")


def test_expiry_in_a_partition_is_charged_there(service: Service) -> None:
    opened(service)
    made(service.reserve(4, dataset="users", partition="ann", seconds=10))
    service.clock.advance(11)

    assert (spend(service, "ann"), spend(service, "bob"), spend(service, None)) == (409, 201, 409)
    service.verified("users")


@pytest.mark.parametrize("partition_key", ["fixed", "private"])
def test_what_expires_together_is_counted_once(service: Service, partition_key: str) -> None:
    service.open("users", partition_key=partition_key)
    made(service.post(PATH, {"names": ["ann", "bob", "cy"]}))
    for times, name in enumerate(["ann", "bob", "cy"], 1):
        step = {**GAUSSIAN, "noise_std": 7.0}
        made(service.reserve(times, dataset="users", partition=name, releases=[step]))
    service.clock.advance(61)

    counted = mock.patch.object(
        SqlTransaction, "all_partitions", autospec=True, side_effect=SqlTransaction.all_partitions
    )
    with counted as count:
        assert spend(service, "ann") == 201

    assert count.call_count == 1
    assert service.sequence("users") == 9
    service.verified("users")


def test_a_lower_budget_closes_partitions_that_are_beyond_it(service: Service) -> None:
    opened(service)
    spend(service, "ann")
    spend(service, "ann")
    change = {"budget": {"accounting": "zcdp", "rho": 0.2}, "reason": "review"}
    etag = service.get("/v1/datasets/users").headers["etag"]
    made(service.post("/v1/datasets/users/budget-changes", change, headers={"If-Match": etag}))

    assert (spend(service, "ann", 100.0), spend(service, "bob"), spend(service, "bob")) == (409, 201, 409)
    service.verified("users")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "names"),
        ({"names": ["a"], "count": 1}, "names"),
        ({"names": []}, "names"),
        ({"names": [""]}, "names[0]"),
        ({"names": ["x" * 201]}, "names[0]"),
        ({"names": ["a", "a"]}, "partitions"),
        ({"count": 0}, "count"),
        ({"count": 10_001}, "count"),
        ({"names": [str(number) for number in range(10_001)]}, "names"),
    ],
)
def test_limits(still: Service, body: dict[str, Any], field: str) -> None:
    assert problem(still.post("/v1/datasets/adult/partitions", body), 422, "invalid-input")["field"] == field
