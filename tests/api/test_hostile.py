"""Requests that mean harm, or are merely absurd: refused with a reason, and nothing is worse afterwards."""

import base64
from typing import Any
from unittest import mock

import pytest

from dpledger.ledger.errors import NotFound, Unavailable
from dpledger.ledger.ports import DatasetRow
from dpledger.storage.repository import SqlStorage
from tests.api.service import GAUSSIAN, Service, made, problem

RDP: dict[str, Any] = {"accounting": "rdp", "epsilon": 1.0, "delta": 1e-6}
BODIES = {
    "/v1/datasets/adult/authorizations": '{"run": "r", "releases": [{"mechanism": "gaussian", "x": %s}]}',
    "/v1/authorizations": '{"mode": "each", "items": [{"dataset": "adult", "run": "r", "releases": [%s]}]}',
    "/v1/datasets/adult/reservations": '{"run": "r", "releases": [{"mechanism": "gaussian", "x": %s}]}',
    "/v1/datasets/adult/forecast": '{"releases": [{"mechanism": "gaussian", "x": %s}]}',
    "/v1/compositions": '{"delta": 1e-5, "adjacency": "add-remove", "plan": [{"releases": ['
    '{"mechanism": "gaussian", "x": %s}]}]}',
    "/v1/datasets": '{"name": "x", "budget": %s}',
}
SPACE = " " * 70_000
"""Makes a body large enough to be read in a thread, whose stack is shorter than the event loop's."""


@pytest.mark.parametrize("padding", ["", SPACE], ids=["small", "large"])
@pytest.mark.parametrize("depth", [40, 200, 900, 950, 960, 985, 2000])
def test_a_deep_body_is_not_json_for_us(still: Service, depth: int, padding: str) -> None:
    deep = "[" * depth + "]" * depth
    headers = still.headers(**{"Content-Type": "application/json", "Idempotency-Key": f"deep-{depth}"})
    for path, body in BODIES.items():
        answer = still.client.post(path, content=body % deep + padding, headers=headers)
        assert "deep" in problem(answer, 400, "malformed-json")["detail"]


def test_brackets_beside_each_other_are_not_deep(still: Service) -> None:
    body = {"adjacency": "add-remove", "releases": [{**GAUSSIAN, "purpose": "[{" * 40}] * 40}
    assert still.post("/v1/costs", body).status_code == 200


@pytest.mark.parametrize("odd", ["\ud800", ["\ud800"], {"\ud800": 1}, [{"\udfff": {}}]])
@pytest.mark.parametrize(
    ("path", "where"), [("compositions", "plan[0]."), ("amplifications", ""), ("calibrations", "")]
)
def test_half_a_character_is_an_invalid_input(still: Service, path: str, where: str, odd: Any) -> None:
    releases = [{**GAUSSIAN, "sensitivity": odd}]
    bodies: dict[str, dict[str, Any]] = {
        "compositions": {"plan": [{"releases": releases}], "delta": 1e-5},
        "amplifications": {"releases": releases, "sample": {"scheme": "full"}},
        "calibrations": {"releases": releases, "solve_for": "steps", "target": {"rho": 1.0}},
    }

    answer = still.post(f"/v1/{path}", {"adjacency": "add-remove", **bodies[path]})

    assert problem(answer, 422, "invalid-input")["field"] == f"{where}releases[0].sensitivity"


@pytest.mark.parametrize("search", ["\0", "a\0b", "\x1b[2J"])
def test_a_search_holds_printable_characters(adult: Service, search: str) -> None:
    problem(adult.get("/v1/datasets", search=search), 422, "invalid-input")


@pytest.mark.parametrize("what", ["partitions", "entries", "reservations"])
@pytest.mark.parametrize("number", [2**31 - 1, 2**31, 10**18 - 1])
def test_a_cursor_may_point_beyond_everything(adult: Service, what: str, number: int) -> None:
    made(adult.post("/v1/datasets/adult/partitions", {"count": 2}))
    cursor = base64.urlsafe_b64encode(str(number).encode()).decode().rstrip("=")

    assert adult.shown(f"/v1/datasets/adult/{what}", next=cursor) == {"items": [], "next": None}


@pytest.mark.parametrize("largest", [1e251, 1.7e308])
def test_a_cost_whose_sums_could_become_infinite_is_refused(service: Service, largest: float) -> None:
    opened = service.open("adult", RDP)
    costs = [1e-6] * (len(opened["orders"]) - 1)
    step = {"mechanism": "rdp", "orders": opened["orders"], "epsilons": [*costs, largest]}

    for answer in (service.authorize(step), service.reserve(2, releases=[step])):
        assert problem(answer, 422, "invalid-input")["field"] == "releases"
    bulk = service.bulk("each", {"dataset": "adult", "run": "r", "releases": [step]})
    assert made(bulk)["results"][0]["failed"]["reason"] == "invalid-input"
    assert service.sequence() == 1


def test_the_largest_cost_at_an_order_that_nobody_needs_can_be_reported(service: Service) -> None:
    opened = service.open("adult", RDP)
    costs = [1e-6] * (len(opened["orders"]) - 1)
    step = {"mechanism": "rdp", "orders": opened["orders"], "epsilons": [*costs, 1e250]}

    made(service.authorize(step))
    held = made(service.reserve(10**4, releases=[step]))
    made(service.reserve(10, releases=[step]))
    made(service.settle(held["id"], 1))

    assert service.budget()["spent"]["epsilons"][-1] > 1e250
    assert made(service.authorize(step))["remaining"]["fraction"] > 0.9
    for what in ("runs", "entries", "reservations", "export"):
        assert service.get(f"/v1/datasets/adult/{what}").status_code == 200
    service.verified()


def test_an_item_is_not_failed_for_good_because_the_database_was_away(adult: Service) -> None:
    adult.open("census")
    items = [{"dataset": name, "run": "r", "releases": [GAUSSIAN]} for name in ("adult", "census")]

    def away(_name: str) -> DatasetRow:
        raise Unavailable("the database is away")

    with mock.patch.object(adult.app.state.services.storage, "dataset", away):
        problem(adult.bulk("each", *items, key="k"), 503, "unavailable")
    again = made(adult.bulk("each", *items, key="k"))
    assert [list(each) for each in again["results"]] == [["granted"], ["granted"]]


def test_a_dataset_may_be_opened_while_a_list_is_read(adult: Service) -> None:
    storage: SqlStorage = adult.app.state.services.storage
    found = storage.dataset
    first = mock.Mock(side_effect=[NotFound("dataset", "adult")])

    def opened_meanwhile(name: str) -> DatasetRow:
        return first() if not first.called else found(name)

    items = [{"dataset": "adult", "run": "r", "releases": [GAUSSIAN]}] * 2
    with mock.patch.object(storage, "dataset", opened_meanwhile):
        results = made(adult.bulk("each", *items))["results"]
    assert [list(each) for each in results] == [["failed"], ["granted"]]
    adult.verified()
