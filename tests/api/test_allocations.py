"""Allocations: parts of a shared budget, each with a budget of its own inside."""

import json
from typing import Any

import httpx2
import pytest

from dpledger.api.schemas.query_responses import ForecastAnswer
from dpledger.api.schemas.responses import (
    AllocationAnswer,
    AllocationPage,
    AllocationReturnAnswer,
    AllocationView,
    AuthorizationAnswer,
    BudgetAnswer,
    DatasetAnswer,
    EntryAnswer,
    ReservationPage,
    RunPage,
)
from dpledger.ledger.receipts import verify_receipt
from tests.api.service import GAUSSIAN, POISSON, SUBSAMPLED, Service, made, problem

SHARED = {"accounting": "shared", "epsilon": 3.0, "delta": 1e-5}
QUIET = {**GAUSSIAN, "noise_std": 30.0}
KINDS: dict[str, dict[str, Any]] = {
    "zcdp": {"accounting": "zcdp"},
    "gdp": {"accounting": "gdp"},
    "rdp": {"accounting": "rdp", "plan": {"releases": [SUBSAMPLED], "sample": POISSON}},
    "rdp-order": {"accounting": "rdp-order", "order": 16},
    "rdp-curve": {"accounting": "rdp-curve", "plan": {"releases": [SUBSAMPLED], "sample": POISSON}},
}


@pytest.fixture
def shared(service: Service) -> Service:
    service.open("adult", SHARED)
    return service


def allocate(service: Service, name: str, epsilon: float = 1.0, **more: Any) -> httpx2.Response:
    body = {"name": name, "epsilon": epsilon, "delta": 1e-6, "budget": {"accounting": "zcdp"}, **more}
    key = body.pop("key", None)
    return service.post("/v1/datasets/adult/allocations", body, key)


def give_back(service: Service, name: str) -> httpx2.Response:
    return service.post(f"/v1/datasets/adult/allocations/{name}/return", {"reason": "not needed"})


def shown(service: Service, name: str) -> dict[str, Any]:
    found: dict[str, Any] = service.shown(f"/v1/datasets/adult/allocations/{name}")
    return found


def test_answers_have_the_declared_shapes(shared: Service) -> None:
    opened = made(allocate(shared, "team-a", reason="ranking models"))
    AllocationAnswer.model_validate(opened)
    AuthorizationAnswer.model_validate(made(shared.authorize(QUIET, allocation="team-a")))
    made(shared.reserve(1, allocation="team-a", releases=[QUIET]))
    made(allocate(shared, "team-b"))
    AllocationReturnAnswer.model_validate(made(give_back(shared, "team-b")))

    AllocationPage.model_validate(shared.shown("/v1/datasets/adult/allocations"))
    AllocationView.model_validate(shown(shared, "team-a"))
    BudgetAnswer.model_validate(shared.budget())
    DatasetAnswer.model_validate(shared.shown("/v1/datasets/adult"))
    RunPage.model_validate(shared.shown("/v1/datasets/adult/runs"))
    ReservationPage.model_validate(shared.shown("/v1/datasets/adult/reservations"))
    for item in shared.shown("/v1/datasets/adult/entries")["items"]:
        EntryAnswer.model_validate(item)
    shared.verified()


def test_an_allocation_says_what_it_is_and_what_the_dataset_has_left(shared: Service) -> None:
    opened = made(allocate(shared, "team-a"))

    assert opened["id"] == "adult~2"
    assert (opened["name"], opened["sequence"], opened["dataset"]) == ("team-a", 2, "adult")
    assert (opened["epsilon"], opened["delta"], opened["warnings"]) == (1.0, 1e-6, [])
    assert opened["owner"] == shared.shown("/v1/datasets/adult/entries/2")["actor"]
    assert opened["remaining"]["epsilon"] == 2.0
    assert opened["remaining"]["delta"] == 9e-6
    assert 0.66 < opened["remaining"]["fraction"] < 2 / 3
    budget = shared.budget()
    assert budget["limit"] == {"epsilon": 3.0, "delta": 1e-5, "additive_delta": 0.0}
    assert budget["allocated"] == {"epsilon": 1.0, "delta": 1e-6}
    assert budget["allocations"] == {"open": 1, "returned": 0}
    assert budget["remaining"] == opened["remaining"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_budget_lives_inside(shared: Service, kind: str) -> None:
    planned = {"plan": {"releases": [QUIET]}} if "plan" in KINDS[kind] else {}
    opened = made(allocate(shared, "part", budget={**KINDS[kind], **planned}))
    assert opened["budget"]["accounting"] == kind
    assert (opened["budget"]["epsilon"], opened["budget"]["delta"]) == (1.0, 1e-6)

    step: dict[str, Any] = {"releases": [QUIET]}
    granted = made(shared.authorize(*step["releases"], allocation="part"))

    assert granted["allocation"] == "part"
    assert 0.0 < granted["remaining"]["fraction"] < 1.0
    assert granted["remaining"]["delta"] == 1e-6
    assert shown(shared, "part")["fraction"] == granted["remaining"]["fraction"]
    forecast = shared.post("/v1/datasets/adult/forecast", {**step, "allocation": "part"}).json()
    ForecastAnswer.model_validate(forecast)
    assert forecast["allocation"] == "part"
    made(shared.reserve(forecast["fits"], allocation="part", **step))
    refused = problem(shared.reserve(1, allocation="part", **step), 409, "budget-exhausted")
    assert refused["allocation"] == "part"
    assert "part" in refused["detail"]
    shared.verified()


def test_an_allocation_grants_what_a_dataset_of_its_kind_grants(shared: Service) -> None:
    step = {"releases": [SUBSAMPLED], "sample": POISSON}
    for kind in ("rdp", "rdp-order", "rdp-curve"):
        shared.open(kind, {**KINDS[kind], "epsilon": 1.0, "delta": 1e-6})
        made(allocate(shared, kind, budget=KINDS[kind]))

    for kind in ("rdp", "rdp-order", "rdp-curve"):
        alone = shared.post(f"/v1/datasets/{kind}/forecast", step).json()
        inside = shared.post("/v1/datasets/adult/forecast", {**step, "allocation": kind}).json()
        assert inside["fits"] == alone["fits"]
        assert inside["cost"] == alone["cost"]


def test_sums_are_those_on_paper(service: Service) -> None:
    service.open("adult", {"accounting": "shared", "epsilon": 0.3, "delta": 3e-6})

    made(allocate(service, "tenth", 0.1))
    made(allocate(service, "fifth", 0.2))

    left = service.budget()["remaining"]
    assert left["epsilon"] == 0.0
    assert left["delta"] == 1e-6
    refused = problem(allocate(service, "more", 1e-300), 409, "budget-exhausted")
    assert refused["fits"] == {"epsilon": 0.0, "delta": 1e-6}


@pytest.mark.parametrize(("epsilon", "delta"), [(2.0000001, 1e-6), (1.0, 9.5e-6)])
def test_more_than_is_left_is_refused_for_good(shared: Service, epsilon: float, delta: float) -> None:
    made(allocate(shared, "first"))

    refused = problem(allocate(shared, "second", epsilon, delta=delta, key="k"), 409, "budget-exhausted")

    assert refused["allocation"] == "second"
    assert refused["requested"] == {"epsilon": epsilon, "delta": delta}
    assert refused["remaining"]["epsilon"] == refused["fits"]["epsilon"] == 2.0
    assert refused["fits"]["delta"] == 9e-6
    made(give_back(shared, "first"))
    again = allocate(shared, "second", epsilon, delta=delta, key="k")
    assert problem(again, 409, "budget-exhausted")["remaining"] == refused["remaining"]
    assert again.headers["Idempotency-Replayed"] == "true"
    made(allocate(shared, "second", epsilon, delta=delta))


def test_a_plan_beyond_the_allocation_is_refused_in_its_own_numbers(shared: Service) -> None:
    items = [{"name": "look", "releases": [{**GAUSSIAN, "noise_std": 0.5}], "times": 1}]
    plan = {"accounting": "plan", "items": items}

    refused = problem(allocate(shared, "planned", delta=5e-6, budget=plan), 422, "invalid-input")

    assert "within epsilon 1 at delta 5e-06; this one needs" in refused["detail"]


def test_an_allocation_is_made_once_per_key(shared: Service) -> None:
    first = allocate(shared, "team-a", key="k")
    again = allocate(shared, "team-a", key="k")

    assert made(again) == made(first)
    assert again.headers["Idempotency-Replayed"] == "true"
    assert shared.budget()["allocations"]["open"] == 1


def test_a_budget_that_was_returned_in_full_is_verified_and_handed_out_again(shared: Service) -> None:
    for name in ("team-a", "team-b"):
        made(allocate(shared, name, 1.5))
    for name in ("team-b", "team-a"):
        made(give_back(shared, name))
    shared.verified()
    assert shared.budget()["remaining"] == {"fraction": 1.0, "epsilon": 3.0, "delta": 1e-5}

    made(allocate(shared, "team-c", 0.3))

    shared.verified()


def test_a_name_is_taken_for_good(shared: Service) -> None:
    made(allocate(shared, "team-a"))
    assert problem(allocate(shared, "team-a"), 409, "already-exists")["name"] == "team-a"

    made(give_back(shared, "team-a"))

    problem(allocate(shared, "team-a"), 409, "already-exists")


def test_what_was_never_used_can_be_returned(shared: Service) -> None:
    made(allocate(shared, "team-a", 3.0))
    held = made(shared.reserve(2, allocation="team-a", releases=[QUIET]))
    in_use = problem(give_back(shared, "team-a"), 409, "allocation-in-use")
    assert "open" in in_use["how"]
    made(shared.settle(held["id"], 0))

    returned = made(give_back(shared, "team-a"))

    assert (returned["state"], returned["sequence"]) == ("returned", shared.sequence())
    assert returned["remaining"] == {"fraction": 1.0, "epsilon": 3.0, "delta": 1e-5}
    assert shown(shared, "team-a")["state"] == "returned"
    assert shown(shared, "team-a")["fraction"] == 0.0
    problem(shared.authorize(allocation="team-a"), 409, "allocation-returned")
    problem(shared.reserve(1, allocation="team-a"), 409, "allocation-returned")
    problem(give_back(shared, "team-a"), 409, "allocation-returned")
    made(allocate(shared, "team-b", 3.0))
    shared.verified()


@pytest.mark.parametrize("how", ["authorized", "settled", "expired"])
def test_what_may_have_been_released_stays(shared: Service, how: str) -> None:
    made(allocate(shared, "team-a"))
    step = QUIET
    if how == "authorized":
        made(shared.authorize(step, allocation="team-a"))
    else:
        held = made(shared.reserve(2, allocation="team-a", releases=[step], seconds=5.0))
        if how == "settled":
            made(shared.settle(held["id"], 1))
        shared.clock.advance(10.0)

    refused = problem(give_back(shared, "team-a"), 409, "allocation-in-use")

    assert how in refused["how"]
    assert shared.budget()["allocated"]["epsilon"] == 1.0
    shared.verified()


def test_a_release_that_costs_nothing_counts_too(shared: Service) -> None:
    made(allocate(shared, "team-a"))
    made(shared.authorize({"mechanism": "zcdp", "rho": 0.0}, allocation="team-a"))
    assert shown(shared, "team-a")["fraction"] == 1.0

    problem(give_back(shared, "team-a"), 409, "allocation-in-use")


def test_only_the_owner_or_an_admin_returns_it(shared: Service) -> None:
    owner, other = shared.make_token("spend"), shared.make_token("spend")
    made(allocate(owner, "team-a"))
    made(allocate(owner, "team-b"))

    problem(give_back(other, "team-a"), 403, "forbidden")

    made(give_back(owner, "team-a"))
    made(give_back(shared, "team-b"))


def test_any_token_of_the_dataset_spends_from_it_but_none_of_others(shared: Service) -> None:
    owner, other = shared.make_token("spend", "read"), shared.make_token("spend")
    elsewhere = shared.make_token("spend", "read", datasets=["other"])
    made(allocate(owner, "team-a"))
    step = QUIET

    made(other.authorize(step, allocation="team-a"))

    problem(elsewhere.authorize(step, allocation="team-a"), 403, "forbidden")
    problem(allocate(elsewhere, "team-b"), 403, "forbidden")
    problem(give_back(elsewhere, "team-a"), 403, "forbidden")
    problem(elsewhere.get("/v1/datasets/adult/allocations"), 403, "forbidden")
    reader = shared.make_token("read")
    problem(allocate(reader, "team-b"), 403, "forbidden")
    assert reader.shown("/v1/datasets/adult/allocations/team-a")["entries"] == 1


def test_a_spend_of_a_shared_budget_names_an_allocation(shared: Service) -> None:
    made(allocate(shared, "team-a"))
    for answer in (
        shared.authorize(),
        shared.reserve(1),
        shared.post("/v1/datasets/adult/forecast", {"releases": [GAUSSIAN]}),
    ):
        refused = problem(answer, 422, "invalid-input")
        assert refused["field"] == "allocation"
        assert "/allocations" in refused["detail"]
    for answer in (shared.authorize(allocation="team-z"), shared.reserve(1, allocation="team-z")):
        assert problem(answer, 404, "not-found")["kind"] == "allocation"


def test_other_budgets_have_no_allocations(service: Service) -> None:
    service.open()

    problem(allocate(service, "team-a"), 422, "unproven")

    for answer in (
        service.authorize(allocation="team-a"),
        service.reserve(1, allocation="team-a"),
        service.post("/v1/datasets/adult/forecast", {"releases": [GAUSSIAN], "allocation": "team-a"}),
    ):
        assert problem(answer, 422, "invalid-input")["field"] == "allocation"
    assert service.shown("/v1/datasets/adult/allocations") == {"items": [], "next": None}
    problem(service.get("/v1/datasets/adult/allocations/team-a"), 404, "not-found")


@pytest.mark.parametrize(
    ("budget", "field"),
    [
        ({"accounting": "zcdp", "rho": 0.5}, "budget"),
        ({"accounting": "gdp", "mu": 0.5}, "budget"),
        ({"accounting": "rdp-curve", "orders": [2.0], "epsilons": [0.5]}, "budget"),
        ({"accounting": "rdp", "epsilon": 1.0}, "budget.epsilon"),
        ({"accounting": "rdp", "delta": 1e-6}, "budget.delta"),
        ({"accounting": "shared"}, "budget.accounting"),
        ({"accounting": "rdp", "additive_delta": 1e-6}, "budget.additive_delta"),
    ],
)
def test_the_budget_inside_follows_from_epsilon_and_delta(
    shared: Service, budget: dict[str, Any], field: str
) -> None:
    refused = problem(allocate(shared, "team-a", budget=budget), 422, "invalid-input")

    assert refused["field"] == field
    assert shared.budget()["allocations"]["open"] == 0


@pytest.mark.parametrize(
    ("field", "value"), [("epsilon", 0.0), ("epsilon", -1.0), ("delta", 0.0), ("delta", 1.0)]
)
def test_epsilon_and_delta_have_ranges(shared: Service, field: str, value: float) -> None:
    assert problem(allocate(shared, "team-a", **{field: value}), 422, "invalid-input")["field"] == field


@pytest.mark.parametrize("name", ["", "a/b", "..", "é", "x" * 101])
def test_a_name_can_stand_in_a_path(shared: Service, name: str) -> None:
    assert problem(allocate(shared, name), 422, "invalid-input")["field"] == "name"


def test_a_name_that_no_database_holds_is_not_found(shared: Service) -> None:
    path = "/v1/datasets/adult/allocations/%00"
    problem(shared.get(path), 404, "not-found")
    problem(shared.post(f"{path}/return", {"reason": "never used"}), 404, "not-found")


def test_an_additive_share_is_part_of_delta(shared: Service) -> None:
    made(allocate(shared, "team-a", budget={"accounting": "rdp", "additive_delta": 5e-7}))
    fixed = {"mechanism": "approximate", "epsilon": 0.01, "delta": 2e-7}

    made(shared.authorize(fixed, allocation="team-a"))
    made(shared.authorize(fixed, allocation="team-a"))

    problem(shared.authorize(fixed, allocation="team-a"), 409, "budget-exhausted")
    assert shown(shared, "team-a")["spent"]["additive_delta"] == 4e-7


def test_partitions_and_allocations_do_not_mix(shared: Service) -> None:
    made(allocate(shared, "team-a"))

    problem(shared.post("/v1/datasets/adult/partitions", {"count": 2}), 422, "unproven")
    problem(shared.authorize(allocation="team-a", partition="0"), 404, "not-found")


def test_a_sample_is_looked_at_again_from_the_allocation_that_drew_it(shared: Service) -> None:
    kind = {"accounting": "rdp"}
    step = {**SUBSAMPLED, "noise_std": 40.0}
    for name in ("team-a", "team-b"):
        made(allocate(shared, name, budget=kind))
    drawn = made(shared.authorize(step, allocation="team-a", sample=POISSON))["sample"]["id"]

    made(shared.authorize(step, allocation="team-a", sample={"id": drawn}))

    other = shared.authorize(step, allocation="team-b", sample={"id": drawn})
    assert problem(other, 422, "invalid-input")["field"] == "sample.id"


def test_lists_spend_from_allocations(shared: Service) -> None:
    made(allocate(shared, "team-a"))
    made(allocate(shared, "team-b", budget={"accounting": "rdp"}))
    step = {"run": "r", "dataset": "adult", "releases": [QUIET]}

    answer = made(
        shared.bulk(
            "each",
            {**step, "allocation": "team-a"},
            {**step, "allocation": "team-b"},
            step,
            {**step, "allocation": "team-z"},
            {**step, "allocation": "team-a", "releases": [{**GAUSSIAN, "noise_std": 0.1}]},
            key="k",
        )
    )

    first, second, unnamed, absent, large = answer["results"]
    assert first["granted"]["allocation"] == "team-a"
    assert second["granted"]["allocation"] == "team-b"
    assert unnamed["failed"]["reason"] == "invalid-input"
    assert absent["failed"]["reason"] == "not-found"
    assert large["refused"]["allocation"] == "team-a"
    assert made(shared.bulk("each", *[{**step, "allocation": "team-a"}] * 40))["outcome"] == "granted"
    assert shown(shared, "team-a")["entries"] == 41
    nothing = shared.bulk(
        "all-or-nothing",
        {**step, "allocation": "team-a"},
        {**step, "allocation": "team-b", "releases": [{**GAUSSIAN, "noise_std": 0.1}]},
    )
    assert nothing.status_code == 409
    assert shown(shared, "team-a")["entries"] == 41
    shared.verified()


def test_a_receipt_and_a_replay_name_the_allocation(shared: Service) -> None:
    made(allocate(shared, "team-a"))
    first = shared.authorize(QUIET, allocation="team-a", key="k")
    again = shared.authorize(QUIET, allocation="team-a", key="k")

    assert again.content == first.content
    keys = shared.client.get("/.well-known/dpledger-keys.json").json()
    stated = verify_receipt(made(first)["receipt"], keys)
    assert stated["allocation"] == "adult~2"
    entry = shared.shown(f"/v1/datasets/adult/entries/{made(first)['sequence']}")
    assert entry["allocation"] == "team-a"
    assert stated["entry"] == entry["hash"]
    listed = shared.shown("/v1/datasets/adult/entries", allocation="team-a")["items"]
    assert [item["sequence"] for item in listed] == [entry["sequence"]]
    assert shared.shown("/v1/datasets/adult/entries", allocation="team-z")["items"] == []


def test_entries_record_allocations(shared: Service) -> None:
    made(allocate(shared, "team-a", reason="ranking models"))
    made(give_back(shared, "team-a"))

    opened, returned = shared.shown("/v1/datasets/adult/entries", newest_first=False)["items"][1:]

    assert (opened["kind"], returned["kind"]) == ("allocated", "allocation-returned")
    assert (opened["detail"]["name"], opened["detail"]["reason"]) == ("team-a", "ranking models")
    assert json.loads(opened["detail"]["budget"])["target"]["epsilon"] == 1.0
    assert (returned["allocation"], returned["detail"]) == ("team-a", {"reason": "not needed"})
    assert [item["kind"] for item in shared.shown("/v1/datasets/adult/entries", kind="allocated")["items"]]


def test_allocations_are_listed_page_by_page(shared: Service) -> None:
    for number in range(5):
        made(allocate(shared, f"team-{number}", 0.5))
    made(give_back(shared, "team-3"))

    found: list[dict[str, Any]] = []
    page = shared.shown("/v1/datasets/adult/allocations", limit=2)
    found += page["items"]
    while page["next"]:
        page = shared.shown("/v1/datasets/adult/allocations", limit=2, next=page["next"])
        found += page["items"]

    assert [item["name"] for item in found] == [f"team-{number}" for number in range(5)]
    assert [item["state"] for item in found] == ["open"] * 3 + ["returned", "open"]
    assert shared.budget()["allocated"]["epsilon"] == 2.0


def test_the_shared_limit_changes_as_others_do(shared: Service) -> None:
    made(allocate(shared, "team-a", 2.0))
    step = QUIET

    def change(epsilon: float, delta: float) -> dict[str, Any]:
        body = {"budget": {**SHARED, "epsilon": epsilon, "delta": delta}, "reason": "a decision"}
        tag = {"If-Match": f'"{shared.sequence()}"'}
        return made(shared.post("/v1/datasets/adult/budget-changes", body, headers=tag))

    lowered = change(1.0, 2e-5)

    assert lowered["remaining"]["epsilon"] == 0.0
    assert lowered["guarantee"]["epsilon"] == 3.0
    assert lowered["guarantee"]["delta"] == 2e-5
    problem(allocate(shared, "team-b", 0.1), 409, "budget-exhausted")
    made(shared.authorize(step, allocation="team-a"))  # what was handed out stays
    change(4.0, 1e-5)
    made(allocate(shared, "team-b", 2.0))
    guarantee = shared.shown("/v1/datasets/adult")["guarantee"]
    assert (guarantee["epsilon"], guarantee["delta"]) == (4.0, 2e-5)
    shared.verified()


def test_runs_of_a_shared_budget_are_counted_and_not_summed(shared: Service) -> None:
    made(allocate(shared, "team-a"))
    made(allocate(shared, "team-b", budget={"accounting": "rdp"}))
    step = QUIET
    for name in ("team-a", "team-b", "team-b"):
        made(shared.authorize(step, allocation=name))
    made(shared.reserve(3, allocation="team-b", releases=[step]))

    (run,) = shared.shown("/v1/datasets/adult/runs")["items"]

    assert (run["entries"], run["spent"], run["fraction"]) == (4, {}, None)
    assert run["reserved"] == {"open": 1}
    (held,) = shared.shown("/v1/datasets/adult/reservations")["items"]
    assert held["allocation"] == "team-b"
    assert shared.budget()["reserved"]["open"] == 1


def test_a_plan_inside_grants_what_exact_accounting_allows(service: Service) -> None:
    service.open("adult", {"accounting": "shared", "epsilon": 3.0, "delta": 1e-4})
    sgd: dict[str, Any] = {"name": "sgd", "sample": POISSON, "releases": [SUBSAMPLED], "times": "most"}
    look: dict[str, Any] = {"name": "look", "releases": [{**GAUSSIAN, "noise_std": 100.0}], "times": 2}
    opened = made(allocate(service, "job", delta=1e-5, budget={"accounting": "plan", "items": [sgd, look]}))
    AllocationAnswer.model_validate(opened)
    count = next(each for each in opened["budget"]["items"] if each["name"] == "sgd")["times"]
    assert count >= 400
    assert opened["plan"]["epsilon"] <= 1.0
    step: dict[str, Any] = {"allocation": "job", "sample": POISSON}

    held = made(service.reserve(count, releases=[SUBSAMPLED], **step))
    AllocationView.model_validate(shown(service, "job"))
    refused = problem(service.authorize(SUBSAMPLED, **step), 409, "budget-exhausted")
    assert refused["fits"]["item"] == "sgd"
    made(service.settle(held["id"], count - 1))
    first = made(service.authorize(SUBSAMPLED, **step))
    problem(service.authorize(SUBSAMPLED, **step), 409, "budget-exhausted")
    again = {"id": first["sample"]["id"]}
    problem(service.authorize(SUBSAMPLED, allocation="job", sample=again), 422, "unproven")
    for _ in range(2):
        made(service.authorize(look["releases"][0], allocation="job", item="look"))
    problem(service.authorize(look["releases"][0], allocation="job"), 409, "budget-exhausted")
    problem(service.authorize({**GAUSSIAN, "noise_std": 1.0}, allocation="job"), 422, "unproven")
    service.verified()


def test_a_plan_that_does_not_fit_is_warned_of(shared: Service) -> None:
    plan = {"releases": [SUBSAMPLED], "sample": POISSON, "steps": 1_000_000}

    opened = made(allocate(shared, "team-a", budget={"accounting": "rdp", "plan": plan}))

    assert "1000000 steps" in opened["warnings"][0]
