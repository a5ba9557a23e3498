"""History: entries, runs, verification, export."""

import json
from typing import Any

import pytest

from dpledger.api.schemas.responses import EntryAnswer, EntryPage, RunPage, VerificationAnswer
from tests.api.service import GAUSSIAN, Service, made, problem

ENTRIES = "/v1/datasets/adult/entries"


@pytest.fixture
def busy(adult: Service) -> Service:
    """Entries: 1 opened, 2 partitions, 3 and 4 authorized, 5 reserved, 6 settled, 7 changed, 8 authorized."""
    small = {**GAUSSIAN, "noise_std": 20.0}
    made(adult.post("/v1/datasets/adult/partitions", {"names": ["p", "q"]}))
    made(adult.authorize(small, run="a"))
    made(adult.authorize(small, run="b", partition="p"))
    held = made(adult.reserve(3, run="a", partition="q"))
    made(adult.settle(held["id"], 2))
    change = {"budget": {"accounting": "zcdp", "rho": 0.6}, "reason": "more"}
    made(adult.post("/v1/datasets/adult/budget-changes", change, headers={"If-Match": '"6"'}))
    made(adult.authorize(small, run="c"))
    return adult


def sequences(page: dict[str, Any]) -> list[int]:
    return [item["sequence"] for item in page["items"]]


def test_entries_have_the_declared_shape_and_no_gap(busy: Service) -> None:
    page = busy.shown(ENTRIES)

    EntryPage.model_validate(page)
    assert sequences(page) == list(range(1, 9))
    assert [item["kind"] for item in page["items"]] == [
        "opened",
        "partitions-opened",
        "authorized",
        "authorized",
        "reserved",
        "settled",
        "budget-changed",
        "authorized",
    ]
    assert len({item["hash"] for item in page["items"]}) == 8


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"kind": "authorized"}, [3, 4, 8]),
        ({"kind": "settled"}, [6]),
        ({"run": "a"}, [3, 5, 6]),
        ({"run": "nobody"}, []),
        ({"partition": "q"}, [5, 6]),
        ({"partition": "nowhere"}, []),
        ({"kind": "authorized", "run": "b"}, [4]),
        ({"newest_first": True}, [8, 7, 6, 5, 4, 3, 2, 1]),
        ({"newest_first": True, "kind": "authorized"}, [8, 4, 3]),
    ],
)
def test_entries_are_filtered(busy: Service, query: dict[str, Any], expected: list[int]) -> None:
    assert sequences(busy.shown(ENTRIES, **query)) == expected


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("limit", [1, 3, 8])
def test_pages_join_without_a_gap(busy: Service, newest_first: bool, limit: int) -> None:
    seen: list[int] = []
    query: dict[str, Any] = {"limit": limit, "newest_first": newest_first}
    while True:
        page = busy.shown(ENTRIES, **query)
        seen += sequences(page)
        if page["next"] is None:
            break
        query["next"] = page["next"]

    assert seen == sorted(range(1, 9), reverse=newest_first)


def test_one_entry_is_shown(busy: Service) -> None:
    entry = busy.shown(f"{ENTRIES}/5")

    EntryAnswer.model_validate(entry)
    assert (entry["id"], entry["times"], entry["partition"]) == ("adult~5", 3, "q")
    assert entry["step"]["releases"] == [GAUSSIAN]
    assert busy.shown(f"{ENTRIES}/6")["reservation"] == "adult~5"


@pytest.mark.parametrize(("sequence", "status"), [("9", 404), ("0", 422), ("x", 422), (str(2**63), 422)])
def test_an_entry_that_is_not_there(busy: Service, sequence: str, status: int) -> None:
    problem(busy.get(f"{ENTRIES}/{sequence}"), status, {404: "not-found", 422: "invalid-input"}[status])


def test_an_unknown_kind_is_refused(still: Service) -> None:
    assert problem(still.get(ENTRIES, kind="refused"), 422, "invalid-input")["field"] == "kind"


def test_runs_show_what_each_has_spent(busy: Service) -> None:
    page = busy.shown("/v1/datasets/adult/runs")

    RunPage.model_validate(page)
    spent = {item["run"]: item["spent"]["rho"] for item in page["items"]}
    small, full = 1 / 800, 0.125
    assert list(spent) == ["a", "b", "c"]
    assert small + 2 * full <= spent["a"] < (small + 2 * full) * 1.000001
    assert small <= spent["b"] < small * 1.000001
    (first,) = busy.shown("/v1/datasets/adult/runs", limit=1)["items"]
    assert first["run"] == "a"


def test_an_export_holds_every_entry_as_a_line(busy: Service) -> None:
    answer = busy.get("/v1/datasets/adult/export")

    assert answer.headers["content-type"] == "application/x-ndjson"
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert lines == busy.shown(ENTRIES)["items"]


def test_a_long_export_is_complete(service: Service) -> None:
    service.open("adult", {"accounting": "zcdp", "rho": 1e6})
    item = {"dataset": "adult", "run": "r", "releases": [GAUSSIAN]}
    made(service.bulk("all-or-nothing", *[item] * 999))

    lines = service.get("/v1/datasets/adult/export").text.splitlines()

    assert [json.loads(line)["sequence"] for line in lines] == list(range(1, 1001))
    service.verified()


def execute(service: Service, statement: str) -> None:
    """Alter the database behind the service's back."""
    with service.app.state.services.storage.database.engine.begin() as connection:
        connection.exec_driver_sql(statement)


def test_verification_confirms_what_is_whole(busy: Service) -> None:
    found = busy.shown("/v1/datasets/adult/verification")

    VerificationAnswer.model_validate(found)
    assert found["valid"] is True
    assert found["problems"] == []
    assert found["head"] == busy.shown(f"{ENTRIES}/8")["hash"]


@pytest.mark.parametrize(
    ("statement", "problem_found"),
    [
        ("UPDATE entries SET at_us = at_us + 1 WHERE sequence = 4", "entry 4"),
        (
            "UPDATE entries SET hash = (SELECT hash FROM entries WHERE sequence = 3) WHERE sequence = 4",
            "entry 4",
        ),
        ("UPDATE entries SET used = 1 WHERE sequence = 6", "entry 6"),
        ("DELETE FROM entries WHERE sequence = 8", "is missing"),
        ("DELETE FROM entries WHERE sequence = 4", "entry 5"),
        ("UPDATE charges SET purpose = 'other'", "charge"),
        ("UPDATE datasets SET spent = reserved", "whole.spent"),
        ("UPDATE partitions SET spent = reserved", "partition p.spent"),
        ("UPDATE partitions SET name = 'z' WHERE name = 'p'", "partition"),
        ("UPDATE entries SET kind = 99 WHERE sequence = 4", "cannot be replayed"),
        ("UPDATE datasets SET spent = 'short'", "cannot be replayed"),
    ],
)
def test_verification_finds_what_was_altered(busy: Service, statement: str, problem_found: str) -> None:
    execute(busy, statement)

    found = busy.shown("/v1/datasets/adult/verification")

    assert found["valid"] is False
    assert problem_found in " ".join(found["problems"])
