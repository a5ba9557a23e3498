"""Datasets: opened, listed, shown, their budgets changed."""

from typing import Any

import pytest

from dpledger.api.schemas.responses import (
    BudgetAnswer,
    BudgetChangeAnswer,
    DatasetAnswer,
    DatasetPage,
    OpenedAnswer,
)
from tests.api.service import GAUSSIAN, POISSON, SUBSAMPLED, ZCDP, Service, made, problem

BUDGETS: list[dict[str, Any]] = [
    {"accounting": "zcdp", "rho": 0.5},
    {"accounting": "rdp", "epsilon": 1.0, "delta": 1e-6},
    {"accounting": "zcdp", "epsilon": 1.0, "delta": 1e-6},
    {"accounting": "gdp", "mu": 0.7},
    {"accounting": "rdp-order", "epsilon": 1.0, "delta": 1e-6, "order": 16},
    {"accounting": "rdp-curve", "orders": [2, 8], "epsilons": [0.1, 0.4]},
]


@pytest.mark.parametrize("budget", BUDGETS)
def test_every_budget_of_the_contract_is_kept_and_shown(service: Service, budget: dict[str, Any]) -> None:
    opened = service.open("adult", budget, description="census of 1994", unit="person", records=48_842)

    OpenedAnswer.model_validate(opened)
    found = service.shown("/v1/datasets/adult")
    DatasetAnswer.model_validate(found)
    assert (found["description"], found["unit"], found["records"]) == ("census of 1994", "person", 48_842)
    assert found["budget"]["accounting"] == budget["accounting"]
    named = {name: found["budget"][name] for name in ("rho", "epsilon", "delta", "mu") if name in budget}
    assert named == {name: budget[name] for name in named}
    assert found["remaining"]["fraction"] == 1.0
    assert found["orders"] == opened["orders"]
    shown = service.budget()
    BudgetAnswer.model_validate(shown)
    made(service.authorize({**GAUSSIAN, "noise_std": 100.0}))
    after = service.budget(delta=1e-6)
    BudgetAnswer.model_validate(after)
    assert after["fraction"] < 1.0
    assert after["sequence"] == 2
    assert 0.0 < after["spent"]["indicative_epsilon"] < 2.0
    service.verified()


def test_the_defaults_are_those_of_the_contract(service: Service) -> None:
    opened = service.open("adult")

    assert (opened["adjacency"], opened["unit"], opened["partition_key"]) == ("add-remove", "record", "fixed")
    assert opened["opened_at"] == "2023-11-14T22:13:20Z"


def test_spent_and_remaining_are_rounded_outward(service: Service) -> None:
    service.open("adult", {"accounting": "zcdp", "rho": 0.3})
    release = {**GAUSSIAN, "noise_std": 3.0}  # ρ = 1/18
    for _ in range(3):
        made(service.authorize(release))

    found = service.budget()

    assert found["spent"]["rho"] * 6 >= 1.0
    assert found["spent"]["rho"] + found["remaining"]["rho"] <= 0.3
    assert found["fraction"] <= 1.0 - found["spent"]["rho"] / 0.3


def test_a_name_is_taken_once(adult: Service) -> None:
    found = problem(adult.post("/v1/datasets", {"name": "adult", "budget": ZCDP}), 409, "already-exists")

    assert (found["kind"], found["name"]) == ("dataset", "adult")


def test_opening_again_with_the_same_key_is_answered_as_the_first_time(service: Service) -> None:
    body = {"name": "adult", "budget": ZCDP}
    first = service.post("/v1/datasets", body, key="k")
    service.clock.advance(100)
    again = service.post("/v1/datasets", body, key="k")

    assert (again.status_code, again.content) == (201, first.content)
    assert again.headers["idempotency-replayed"] == "true"
    other = {**body, "unit": "user"}
    problem(service.post("/v1/datasets", other, key="k"), 422, "idempotency-key-reused")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"name": "Adult"}, "name"),
        ({"name": ""}, "name"),
        ({"name": "-x"}, "name"),
        ({"name": "a" * 64}, "name"),
        ({"name": "a\n"}, "name"),
        ({"name": "a~1"}, "name"),
        ({"description": "\x00"}, "description"),
        ({"description": "\ud800"}, "description"),
        ({"description": "x" * 2001}, "description"),
        ({"adjacency": "zero-out"}, "adjacency"),
        ({"unit": ""}, "unit"),
        ({"records": 0}, "records"),
        ({"records": 1.5}, "records"),
        ({"partition_key": "secret"}, "partition_key"),
        ({"budget": 1.0}, "budget"),
        ({"budget": {}}, "budget.accounting"),
        ({"budget": {"accounting": "zcdp", "rho": "1"}}, "budget.rho"),
        ({"budget": {"accounting": "zcdp", "rho": -1}}, "budget.rho"),
        ({"budget": {"accounting": "zcdp", "rho": 10**400}}, "budget.rho"),
        ({"budget": {"accounting": "zcdp", "mu": 1.0}}, "budget.mu"),
        ({"budget": {"accounting": "rdp-curve", "orders": [2.0] * 513}}, "budget.orders"),
        ({"budget": {"accounting": "rdp", "epsilon": 1, "delta": 1e-5, "plan": 7}}, "budget.plan"),
        (
            {"budget": {"accounting": "rdp", "epsilon": 1, "delta": 1e-5, "plan": {"releases": [7]}}},
            "budget.plan.releases[0]",
        ),
        (
            {
                "budget": {
                    "accounting": "rdp",
                    "epsilon": 1,
                    "delta": 1e-5,
                    "plan": {"releases": [{"mechanism": "x"}]},
                }
            },
            "budget.plan.releases[0].mechanism",
        ),
        ({"owner": "ann"}, "owner"),
    ],
)
def test_an_invalid_field_is_named(shared: Service, changes: dict[str, Any], field: str) -> None:
    body = {"name": "adult", "budget": ZCDP, **changes}

    assert problem(shared.post("/v1/datasets", body), 422, "invalid-input")["field"] == field


def test_a_plan_under_the_wrong_adjacency_is_refused(shared: Service) -> None:
    plan = {"releases": [SUBSAMPLED], "sample": POISSON}
    budget = {"accounting": "rdp", "epsilon": 1.0, "delta": 1e-5, "plan": plan}
    body = {"name": "adult", "adjacency": "replace-one", "budget": budget}

    problem(shared.post("/v1/datasets", body), 422, "adjacency-mismatch")


def test_lists_are_paged_by_name(service: Service) -> None:
    names = ["adult", "b.2", "census", "d-4", "e_5"]
    for name in reversed(names):
        service.open(name)

    first = service.shown("/v1/datasets", limit=2)
    second = service.shown("/v1/datasets", limit=2, next=first["next"])
    third = service.shown("/v1/datasets", limit=2, next=second["next"])

    DatasetPage.model_validate(first)
    assert [item["name"] for page in (first, second, third) for item in page["items"]] == names
    assert third["next"] is None
    assert [item["name"] for item in service.shown("/v1/datasets", search="en")["items"]] == ["census"]


@pytest.mark.parametrize("search", ["Équipe", "équipe Ä", "ÄRZTE", "income"])
def test_a_search_finds_a_text_as_it_was_written(service: Service, search: str) -> None:
    service.open("adult", description="Équipe ÄRZTE, équipe Ärzte: Income")

    assert [item["name"] for item in service.shown("/v1/datasets", search=search)["items"]] == ["adult"]


@pytest.mark.parametrize(
    ("query", "field"),
    [({"limit": 0}, "limit"), ({"limit": 1001}, "limit"), ({"limit": "x"}, "limit"), ({"next": "!"}, "next")],
)
def test_a_page_that_cannot_be_is_refused(shared: Service, query: dict[str, Any], field: str) -> None:
    assert problem(shared.get("/v1/datasets", **query), 422, "invalid-input")["field"] == field


@pytest.mark.parametrize("cursor", ["AA", "YQ", "_-8"])
def test_a_number_is_not_read_from_any_text(still: Service, cursor: str) -> None:
    answer = still.get("/v1/datasets/adult/entries", next=cursor)

    assert problem(answer, 422, "invalid-input")["field"] == "next"


@pytest.mark.parametrize(
    "path", ["", "/budget", "/entries", "/runs", "/partitions", "/reservations", "/verification", "/export"]
)
@pytest.mark.parametrize("name", ["unknown", "%00", "UPPER"])
def test_an_unknown_dataset_is_not_found(shared: Service, name: str, path: str) -> None:
    assert problem(shared.get(f"/v1/datasets/{name}{path}"), 404, "not-found")["kind"] == "dataset"


@pytest.mark.parametrize("delta", ["0", "1", "nan", "x", "-1", "1e400"])
def test_a_delta_that_cannot_be_is_refused(still: Service, delta: str) -> None:
    answer = still.get("/v1/datasets/adult/budget", delta=delta)

    assert problem(answer, 422, "invalid-input")["field"] == "delta"


# Budget changes --------------------------------------------------------------------------------------

CHANGES = "/v1/datasets/adult/budget-changes"


def change(service: Service, rho: float, if_match: str | None = None, key: str | None = None) -> Any:
    body = {"budget": {"accounting": "zcdp", "rho": rho}, "reason": "board meeting"}
    chosen = service.get("/v1/datasets/adult").headers["etag"] if if_match is None else if_match
    return service.post(CHANGES, body, key, headers={"If-Match": chosen})


def test_a_budget_is_raised_by_an_entry_like_any_other(adult: Service) -> None:
    for _ in range(4):
        made(adult.authorize())
    problem(adult.authorize(), 409, "budget-exhausted")

    body = made(change(adult, 1.0))

    BudgetChangeAnswer.model_validate(body)
    assert body["sequence"] == 6
    made(adult.authorize())
    entry = adult.shown("/v1/datasets/adult/entries/6")
    assert (entry["kind"], entry["detail"]["reason"]) == ("budget-changed", "board meeting")
    adult.verified()


def test_a_budget_below_what_is_spent_closes_the_dataset_and_never_errs_the_past(adult: Service) -> None:
    made(adult.authorize(key="k"))

    body = made(change(adult, 0.01))

    assert body["remaining"]["fraction"] == 0.0
    problem(adult.authorize({**GAUSSIAN, "noise_std": 1000.0}), 409, "budget-exhausted")
    assert made(adult.authorize(key="k"))["remaining"]["rho"] > 0.3
    adult.verified()


@pytest.mark.parametrize("more", [{"accounting": "rdp"}, {"accounting": "rdp-order", "order": 16}])
def test_a_budget_that_leaves_no_order_closes_the_dataset_until_it_is_raised(
    service: Service, more: dict[str, Any]
) -> None:
    budget = {"epsilon": 1.0, "delta": 1e-5, **more}
    service.open("adult", budget)
    step = {**GAUSSIAN, "noise_std": 100.0}
    for epsilon, status in ((0.001, 409), (1.0, 201)):
        body = {"budget": {**budget, "epsilon": epsilon}, "reason": "a backup was restored"}

        made(service.post(CHANGES, body, headers={"If-Match": str(service.sequence())}))

        assert service.authorize(step).status_code == status
        service.verified()


def test_the_state_must_be_the_one_that_was_looked_at(adult: Service) -> None:
    made(adult.authorize())

    found = problem(change(adult, 1.0, if_match='"1"'), 412, "precondition-failed")

    assert (found["expected"], found["found"]) == ("1", "2")
    assert adult.get("/v1/datasets/adult/budget").headers["etag"] == '"2"'
    made(change(adult, 1.0, if_match="2"))


def test_a_change_needs_a_precondition_and_a_reason(still: Service) -> None:
    body = {"budget": ZCDP, "reason": "x"}
    problem(still.post(CHANGES, body), 428, "precondition-required")
    for wrong in ("*", '"x"', ""):
        answer = still.post(CHANGES, body, headers={"If-Match": wrong})
        assert problem(answer, 422, "invalid-input")["field"] == "If-Match"
    for reason in ({}, {"reason": ""}):
        answer = still.post(CHANGES, {"budget": ZCDP, **reason}, headers={"If-Match": '"1"'})
        assert problem(answer, 422, "invalid-input")["field"] == "reason"


def test_a_change_is_made_once(adult: Service) -> None:
    first = change(adult, 1.0, if_match='"1"', key="k")
    again = change(adult, 1.0, if_match='"1"', key="k")

    assert (again.status_code, again.content) == (201, first.content)
    problem(change(adult, 1.0, if_match='"2"', key="k"), 422, "idempotency-key-reused")


def test_the_rule_cannot_be_changed(still: Service) -> None:
    body = {"budget": {"accounting": "gdp", "mu": 1.0}, "reason": "x"}

    answer = still.post(CHANGES, body, headers={"If-Match": '"1"'})

    assert problem(answer, 422, "invalid-input")["field"] == "budget.accounting"
