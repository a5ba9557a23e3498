"""``GET /v1/datasets/{dataset}/report``: every number is that of the other reads."""

from typing import Any

import pytest
import sqlalchemy as sa

from dpledger.api.schemas.responses import ReportAnswer
from dpledger.ledger.filters import filter_names
from dpledger.ledger.report import report_document
from tests.api.service import GAUSSIAN, POISSON, SUBSAMPLED, Service, made, problem

STEP: dict[str, Any] = {**GAUSSIAN, "noise_std": 30.0, "purpose": "gradient"}
BUDGETS: dict[str, dict[str, Any]] = {
    "zcdp": {"accounting": "zcdp", "epsilon": 1.0, "delta": 1e-6},
    "gdp": {"accounting": "gdp", "mu": 0.7},
    "rdp-order": {"accounting": "rdp-order", "epsilon": 1.0, "delta": 1e-6, "order": 16.0},
    "rdp": {"accounting": "rdp", "epsilon": 3.0, "delta": 1e-5},
    "rdp-curve": {"accounting": "rdp-curve", "orders": [2.0, 16.0], "epsilons": [0.5, 2.0]},
    "plan": {
        "accounting": "plan",
        "epsilon": 1.0,
        "delta": 1e-5,
        "items": [{"name": "look", "releases": [{**GAUSSIAN, "noise_std": 30.0}], "times": 10}],
    },
    "shared": {"accounting": "shared", "epsilon": 3.0, "delta": 1e-5},
}


def path_of(name: str) -> str:
    return f"/v1/datasets/{name}"


def spent(service: Service, accounting: str, name: str = "adult") -> dict[str, Any]:
    """The report of a dataset with runs that spent and one that only holds something."""
    service.open(name, BUDGETS[accounting], description="Census", records=48_842)
    part: dict[str, Any] = {}
    if accounting == "shared":
        body = {"name": "team", "epsilon": 1.0, "delta": 1e-6, "budget": {"accounting": "zcdp"}}
        made(service.post(f"{path_of(name)}/allocations", body))
        part = {"allocation": "team"}
    for run in ("one", "one", "two"):
        made(service.authorize(STEP, dataset=name, run=run, **part))
    made(service.reserve(2, name, run="holding", releases=[STEP], **part))
    return report_of(service, name)


def report_of(service: Service, name: str = "adult") -> dict[str, Any]:
    found: dict[str, Any] = service.shown(f"{path_of(name)}/report")
    ReportAnswer.model_validate(found)
    return found


def named(items: list[dict[str, Any]], name: str = "run") -> dict[str, dict[str, Any]]:
    return {each[name]: each for each in items}


def test_every_kind_of_budget_is_tried() -> None:
    assert BUDGETS.keys() == set(filter_names())


@pytest.mark.parametrize("accounting", BUDGETS)
def test_it_says_what_the_other_reads_say(shared: Service, accounting: str) -> None:
    service, name = shared, f"kind-{accounting}"
    found, path = spent(service, accounting, name), path_of(name)

    assert found["dataset"] == service.shown(path)
    assert found["budget"] == service.budget(name)
    assert named(found["runs"]) == named(service.shown(f"{path}/runs")["items"])
    verdict = service.shown(f"{path}/verification")
    assert found["verification"] == {**verdict, "at": found["at"]}
    assert (found["sequence"], found["head"]) == (verdict["sequence"], verdict["head"])
    assert found["rule"]["accounting"] == accounting
    assert all(found["rule"].values())
    assert found["truncated"] == []
    (step,) = found["steps"]
    assert (step["purpose"], step["declared"]) == ("gradient", False)
    assert step["step"]["releases"][0]["noise_std"] == 30.0
    if accounting == "shared":
        assert found["allocations"] == service.shown(f"{path}/allocations")["items"]
    else:
        assert found["allocations"] == []


def test_spending_is_shown_by_purpose_as_by_run(service: Service) -> None:
    found = spent(service, "zcdp")

    assert [each["run"] for each in found["runs"]] == ["one", "two", "holding"]
    (purpose,) = found["purposes"]
    assert purpose["purpose"] == "gradient"
    runs = [each["spent"]["rho"] for each in found["runs"]]
    assert purpose["spent"]["rho"] == pytest.approx(sum(runs))
    assert purpose["reserved"] == named(found["runs"])["holding"]["reserved"]


def test_changes_and_refusals_are_reported_with_their_reasons(shared: Service) -> None:
    service, name = shared, "changed"
    service.open(name)
    assert service.authorize({**GAUSSIAN, "noise_std": 0.1}, dataset=name).status_code == 409
    for sequence, (rho, reason) in enumerate(((0.4, "the board"), (0.6, "a second study")), start=1):
        body = {"budget": {"accounting": "zcdp", "rho": rho}, "reason": reason}
        made(service.post(f"{path_of(name)}/budget-changes", body, headers={"If-Match": f'"{sequence}"'}))

    found = report_of(service, name)

    assert [each["detail"]["reason"] for each in found["changes"]] == ["the board", "a second study"]
    assert found["changes"] == service.shown(f"{path_of(name)}/entries", kind="budget-changed")["items"]
    assert found["refusals"] == 1
    assert found["budget"]["guarantee"]["rho"] == 0.6
    assert found["budget"]["guarantee"]["since"] == 3


def test_a_declared_cost_is_marked(shared: Service) -> None:
    shared.open("declared", BUDGETS["rdp"])
    made(shared.authorize({"mechanism": "zcdp", "rho": 0.001, "purpose": "counts"}, dataset="declared"))
    made(shared.authorize(SUBSAMPLED, dataset="declared", sample=POISSON))

    marks = {each["purpose"]: each["declared"] for each in report_of(shared, "declared")["steps"]}

    assert marks == {"counts": True, "": False}


_ALTERED = """
UPDATE entries SET at_us = at_us + 1
WHERE sequence = 3 AND dataset_id = (SELECT id FROM datasets WHERE name = 'broken')
"""


def test_a_broken_ledger_is_reported_as_such(shared: Service) -> None:
    spent(shared, "zcdp", "broken")
    with shared.app.state.services.storage.database.begin() as session:
        session.change(sa.text(_ALTERED), {})

    verdict = report_of(shared, "broken")["verification"]

    assert not verdict["valid"]
    assert "entry 3" in verdict["problems"][0]


def test_long_lists_are_cut_and_say_so(shared: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    service, name = shared, "long"
    monkeypatch.setattr("dpledger.ledger.report.MOST_ROWS", 2)
    service.open(name)
    for number in range(3):
        step = {**STEP, "noise_std": 20.0 + 10.0 * number}
        made(service.authorize(step, dataset=name, run=f"{number}"))

    found = report_of(service, name)

    assert [len(found[name]) for name in ("runs", "purposes", "steps")] == [2, 1, 2]
    assert found["truncated"] == ["runs", "steps"]
    assert [each["run"] for each in found["runs"]] == ["0", "1"]


def test_figures_are_of_one_entry(shared: Service) -> None:
    service = shared
    service.open("moving")
    made(service.authorize(dataset="moving"))
    rows = service.app.state.services.storage.report("moving", 10)
    made(service.authorize(dataset="moving"))

    found = report_document(rows, service.clock.now_us(), None)

    assert (found["sequence"], found["budget"]["sequence"], found["dataset"]["sequence"]) == (2, 2, 2)
    assert found["budget"]["spent"]["rho"] == 0.125
    assert found["verification"] is None


def test_a_dataset_that_is_not_there(shared: Service) -> None:
    problem(shared.get("/v1/datasets/nobody/report"), 404, "not-found")
