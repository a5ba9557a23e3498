"""What pages show of a shared budget and its allocations, on either database."""

import re
from typing import Any

import pytest

from dpledger.storage.read_models.fractions import fractions_left
from tests.api.service import GAUSSIAN, Service, made, problem
from tests.dashboard.visitor import Visitor, entries_in, section

SHARED = {"accounting": "shared", "epsilon": 3.0, "delta": 1e-5}
QUIET = {**GAUSSIAN, "noise_std": 30.0, "purpose": "gradient"}


@pytest.fixture
def shared(service: Service) -> Service:
    service.open("adult", SHARED)
    return service


def allocate(service: Service, name: str, **more: Any) -> None:
    body = {"name": name, "epsilon": 1.0, "delta": 1e-6, "budget": {"accounting": "zcdp"}, **more}
    made(service.post("/v1/datasets/adult/allocations", body))


def test_an_unused_one_says_how_to_open_an_allocation(service: Service, visitor: Visitor) -> None:
    service.open("adult", SHARED)
    page = visitor.page("/datasets/adult")

    assert "/v1/datasets/adult/allocations" in page
    assert "None yet." in section(page, "allocations")


def test_the_list_shows_what_is_left_to_allocate(shared: Service, visitor: Visitor) -> None:
    allocate(shared, "team-a")

    page = visitor.page()

    assert "ε = 2, δ = 9e-6" in page
    assert ">66.6 %</strong>" in page


def test_allocations_stand_in_a_table_as_what_they_are(shared: Service, visitor: Visitor) -> None:
    allocate(shared, "team-a")
    allocate(shared, "team-b", budget={"accounting": "rdp"}, epsilon=0.5)
    allocate(shared, "spare")
    made(shared.post("/v1/datasets/adult/allocations/spare/return", {"reason": "not needed"}))
    made(shared.authorize(QUIET, allocation="team-a"))
    made(shared.reserve(2, allocation="team-b", releases=[QUIET]))

    page = visitor.page("/datasets/adult")

    table = section(page, "allocations")
    assert table.index("team-a") < table.index("team-b") < table.index("spare")
    assert "ε = 1, δ = 1e-6" in table
    assert "ε = 0.5, δ = 1e-6" in table
    assert "1 reserved" in table
    assert ">returned<" in table
    owner = shared.shown("/v1/datasets/adult/allocations/team-a")["owner"]
    assert f"<code>{owner[:8]}</code>" in table
    left = shared.shown("/v1/datasets/adult/allocations/team-a")["fraction"]
    assert f"{int(left * 1000) / 10} %" in table
    assert "2 allocations open, 1 returned" in section(page, "curve-numbers")
    assert "1 reserved" in visitor.page()
    assert "gradient" in section(page, "purposes")
    assert "run-1" in section(page, "runs")
    assert "allocation team-b" in section(page, "reservations")


def test_the_burn_down_and_the_metrics_are_of_what_is_not_allocated(
    shared: Service, visitor: Visitor
) -> None:
    allocate(shared, "team-a")
    for _ in range(3):
        made(shared.authorize({**QUIET, "noise_std": 12.0}, allocation="team-a"))
    assert shared.shown("/v1/datasets/adult/allocations/team-a")["fraction"] < 0.6

    numbers = section(visitor.page("/datasets/adult"), "burn-down-numbers")

    levels = {float(value) for value in re.findall(r'<data value="([^"]+)">', numbers)}
    assert {round(level, 3) for level in levels} == {1.0, 0.667}
    database = shared.app.state.services.storage.database
    assert fractions_left(database, ["adult"]) == {"adult": 0.6666}


def test_entries_name_their_allocation_and_can_be_chosen_by_it(shared: Service, visitor: Visitor) -> None:
    allocate(shared, "team-a")
    allocate(shared, "team-b", budget={"accounting": "rdp"})
    for name in ("team-a", "team-b", "team-a"):
        made(shared.authorize(QUIET, allocation=name))

    assert entries_in(visitor.page("/datasets/adult")) == [6, 5, 4, 3, 2, 1]
    page = visitor.page("/datasets/adult?allocation=team-a")
    assert entries_in(page) == [6, 4]
    assert "from allocation" in page
    assert entries_in(visitor.page("/datasets/adult?allocation=team-a&run=run-1")) == [6, 4]
    assert entries_in(visitor.page("/datasets/adult?allocation=team-a&run=other")) == []
    opened = visitor.page("/datasets/adult?kind=allocated")
    assert entries_in(opened) == [3, 2]
    assert re.findall(r"to allocation <a [^>]*>([^<]+)</a>", opened) == ["team-b", "team-a"]
    assert "team-b" in visitor.page("/datasets/adult/entries/5")


def test_a_budget_that_is_all_allocated_is_not_called_used_up(shared: Service, visitor: Visitor) -> None:
    allocate(shared, "team-a", epsilon=3.0)

    now = section(visitor.page("/datasets/adult"), "now")

    assert "All allocated" in now
    assert "Steps are authorized within allocations" in now
    assert "Used up" not in now
    made(shared.authorize(QUIET, allocation="team-a"))


def test_a_refused_allocation_is_named_once(shared: Service, visitor: Visitor) -> None:
    asked = {"name": "team-c", "epsilon": 4.0, "delta": 1e-6, "budget": {"accounting": "zcdp"}}
    problem(shared.post("/v1/datasets/adult/allocations", asked), 409, "budget-exhausted")

    shown = section(visitor.page("/datasets/adult"), "refusals").split("<tbody>")[1]

    assert "allocation team-c" in shown
    assert "for allocation" not in shown


def test_a_run_is_shown_by_its_entries(shared: Service, visitor: Visitor) -> None:
    allocate(shared, "team-a")
    allocate(shared, "team-b", budget={"accounting": "rdp"})
    for name in ("team-a", "team-b"):
        made(shared.authorize(QUIET, allocation=name))

    page = visitor.page("/datasets/adult/run?name=run-1")

    assert "Share of its allocation" in page
    assert "of the budget" not in section(page, "now")
    assert entries_in(page) == [5, 4]


def test_refusals_name_the_allocation(shared: Service, visitor: Visitor) -> None:
    allocate(shared, "team-a")
    loud = {**GAUSSIAN, "noise_std": 0.5}
    assert shared.authorize(loud, allocation="team-a").status_code == 409
    body = {"name": "team-b", "epsilon": 9.0, "delta": 1e-6, "budget": {"accounting": "zcdp"}}
    assert shared.post("/v1/datasets/adult/allocations", body).status_code == 409

    refusals = section(visitor.page("/datasets/adult"), "refusals")

    assert "allocation team-a" in refusals
    assert "allocation team-b" in refusals


def test_allocations_are_listed_page_by_page(shared: Service, visitor: Visitor) -> None:
    for number in range(22):
        allocate(shared, f"team-{number:02}", epsilon=0.1, delta=1e-7)

    page = visitor.page("/datasets/adult")
    assert "team-19" in section(page, "allocations")
    assert "team-20" not in section(page, "allocations")

    rest = section(visitor.page("/datasets/adult?allocations=21"), "allocations")
    assert "team-20" in rest
    assert "team-19" not in rest
