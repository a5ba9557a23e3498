"""The guarantee and the warnings of plans, as the service shows them."""

from typing import Any

import pytest

from dpledger.api.schemas.responses import BudgetAnswer, BudgetChangeAnswer, DatasetAnswer, OpenedAnswer
from tests.api.service import GAUSSIAN, POISSON, SUBSAMPLED, ZCDP, Service, made, problem

RDP: dict[str, Any] = {"accounting": "rdp", "epsilon": 1.0, "delta": 1e-6}
PLAN: dict[str, Any] = {"sample": POISSON, "releases": [SUBSAMPLED], "steps": 1000}


def change(service: Service, budget: dict[str, Any], dataset: str = "adult") -> Any:
    match = {"If-Match": f'"{service.sequence(dataset)}"'}
    body = {"budget": budget, "reason": "review"}
    return service.post(f"/v1/datasets/{dataset}/budget-changes", body, headers=match)


def test_a_lowered_limit_stands_beside_what_is_proven(adult: Service) -> None:
    assert adult.shown("/v1/datasets/adult")["guarantee"] == {"rho": 0.51, "since": 1, "lowered": False}

    lowered = made(change(adult, {"accounting": "zcdp", "rho": 0.2}))

    BudgetChangeAnswer.model_validate(lowered)
    assert lowered["guarantee"] == {"rho": 0.51, "since": 1, "lowered": True}
    (warning,) = lowered["warnings"]
    assert "what is still to come" in warning
    shown, budget = adult.shown("/v1/datasets/adult"), adult.budget()
    DatasetAnswer.model_validate(shown)
    BudgetAnswer.model_validate(budget)
    assert shown["budget"]["rho"] == budget["limit"]["rho"] == 0.2
    assert shown["guarantee"]["rho"] == budget["guarantee"]["rho"] == 0.51
    assert adult.shown("/v1/datasets")["items"][0]["guarantee"] == shown["guarantee"]
    adult.verified()

    raised = made(change(adult, {"accounting": "zcdp", "rho": 0.9}))

    assert raised["guarantee"] == {"rho": 0.9, "since": 3, "lowered": False}
    assert raised["warnings"] == []
    adult.verified()


def test_the_guarantee_of_crossing_limits_is_kept_and_replayed(service: Service) -> None:
    service.open("adult", {**RDP, "epsilon": 2.0, "delta": 1e-4})
    made(change(service, {**RDP, "epsilon": 3.0, "delta": 1e-9}))
    made(change(service, {**RDP, "epsilon": 1.0, "delta": 1e-9}))

    guarantee = service.budget()["guarantee"]

    assert {name: guarantee[name] for name in ("epsilon", "delta", "since", "lowered")} == {
        "epsilon": 3.0,
        "delta": 1e-4,
        "since": 2,
        "lowered": True,
    }
    assert len(guarantee["epsilons"]) == len(guarantee["orders"])
    service.verified()


def test_an_opening_whose_plan_does_not_fit_says_so(service: Service) -> None:
    opened = service.open("adult", {**RDP, "plan": PLAN})

    OpenedAnswer.model_validate(opened)
    (warning,) = opened["warnings"]
    assert "names 1000 steps, and the budget grants 1:" in warning
    assert "accounting plan, the dataset would grant 277 steps" in warning
    forecast = service.post("/v1/datasets/adult/forecast", {"sample": POISSON, "releases": [SUBSAMPLED]})
    assert forecast.json()["fits"] == 1


def test_the_same_key_warns_again(service: Service) -> None:
    body = {"name": "adult", "budget": {**RDP, "plan": PLAN}}
    first, again = (made(service.post("/v1/datasets", body, key="one")) for _ in range(2))

    assert first["warnings"]
    assert again == first


@pytest.mark.parametrize("steps", [None, 100, 3000])
def test_a_plan_that_fits_warns_of_nothing(service: Service, steps: int | None) -> None:
    plan = {**PLAN, "steps": steps}

    assert (
        service.open("adult", {"accounting": "rdp", "epsilon": 3.0, "delta": 1e-5, "plan": plan})["warnings"]
        == []
    )
    assert service.open("other", ZCDP)["warnings"] == []


def test_a_plan_without_a_number_must_fit_once(service: Service) -> None:
    step = {"sample": POISSON, "releases": [{**SUBSAMPLED, "noise_std": 0.3}]}

    (warning,) = service.open("adult", {**RDP, "plan": step})["warnings"]

    assert "names a step, and the budget grants 0:" in warning


@pytest.mark.parametrize("accounting", ["rdp", "rdp-order"])
def test_a_plan_in_a_change_is_counted_against_what_is_left(service: Service, accounting: str) -> None:
    budget = {"accounting": accounting, "epsilon": 3.0, "delta": 1e-5}
    opened = service.open("adult", {**budget, "plan": PLAN})
    made(service.reserve(2500, sample=POISSON, releases=[SUBSAMPLED]))

    fits, fewer = (
        made(change(service, {**budget, "plan": {**PLAN, "steps": steps}})) for steps in (400, 1000)
    )

    assert fits["warnings"] == []
    (warning,) = fewer["warnings"]
    assert "names 1000 steps, and the budget grants " in warning
    assert service.shown("/v1/datasets/adult")["orders"] == opened["orders"]


def test_a_plan_in_a_change_is_read(service: Service) -> None:
    service.open("adult", RDP)

    broken = {**PLAN, "releases": [{**GAUSSIAN, "noise_std": -1.0}]}
    problem(change(service, {**RDP, "plan": broken}), 422, "invalid-input")
    other = {"sample": {"scheme": "without-replacement", "rate": 0.1}, "releases": [GAUSSIAN]}
    problem(change(service, {**RDP, "plan": other}), 422, "adjacency-mismatch")
    assert service.sequence() == 1


def test_a_plan_of_a_filter_that_takes_none_is_refused(adult: Service) -> None:
    answer = change(adult, {**ZCDP, "plan": PLAN})

    assert problem(answer, 422, "invalid-input")["field"] == "budget.plan"


def test_a_partitions_own_plan_warns_too(service: Service) -> None:
    service.open("adult", {"accounting": "rdp", "epsilon": 3.0, "delta": 1e-5, "plan": PLAN})
    own = {"names": ["ann"], "budget": {"accounting": "rdp", "epsilon": 1.0, "delta": 1e-5, "plan": PLAN}}

    opened = made(service.post("/v1/datasets/adult/partitions", own))

    assert "names 1000 steps" in opened["warnings"][0]
