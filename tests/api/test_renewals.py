"""Renewal by epochs over HTTP: new partitions for new data, and refusals of what would not be sound."""

from typing import Any

import pytest

from dpledger.api.schemas.responses import PartitionsAnswer, RenewalAnswer
from tests.api.service import GAUSSIAN, ZCDP, Service, made, problem

HERE = "/v1/datasets/trips"
DAY = 86_400
MONTHLY = {"period": "month", "budget": {"accounting": "zcdp", "rho": 0.13}, "reason": "a year of data"}
"""Room for one look with a Gaussian of σ = 2, ρ = 0.125, in each epoch."""


def opened(service: Service, *, partitions: bool = True, **settings: Any) -> Service:
    body = {"name": "trips", "budget": ZCDP, **settings}
    made(service.post("/v1/datasets", body))
    if partitions:
        made(service.post(f"{HERE}/partitions", {"names": ["2023-10"]}))
    return service


def renew(service: Service, **more: Any) -> Any:
    return service.post(f"{HERE}/renewal", {**MONTHLY, **more})


def begin(service: Service, epoch: str, **more: Any) -> Any:
    body = {"epoch": epoch, "records_are_new": True, "statement": "trips are dated by their start", **more}
    return service.post(f"{HERE}/epochs", body)


def look(service: Service, epoch: str) -> Any:
    body = {"run": "job", "releases": [GAUSSIAN], "partition": epoch}
    return service.post(f"{HERE}/authorizations", body)


def test_each_epoch_has_a_budget_of_its_own_and_nothing_is_given_back(service: Service) -> None:
    opened(service)
    job = service.make_token("spend")
    policy = made(renew(service))
    RenewalAnswer.model_validate(policy)
    assert (policy["sequence"], policy["current"], policy["next"]) == (3, "2023-11", "2023-12")
    assert policy["budget"] == MONTHLY["budget"]
    assert service.shown(f"{HERE}/renewal") == policy

    begun = made(begin(job, "2023-11"))
    PartitionsAnswer.model_validate(begun)
    assert (begun["sequence"], begun["first"]) == (4, "2023-11")
    entry = service.shown(f"{HERE}/entries/4")
    assert entry["kind"] == "partitions-opened"
    assert entry["detail"]["epoch"] == {
        "renewal": 3,
        "records_are_new": True,
        "statement": "trips are dated by their start",
    }
    made(look(job, "2023-11"))
    problem(look(job, "2023-11"), 409, "budget-exhausted")
    before = service.shown(f"{HERE}/partitions/2023-11")

    service.clock.advance(20 * DAY)
    made(begin(job, "2023-12"))
    made(look(job, "2023-12"))
    problem(look(job, "2023-12"), 409, "budget-exhausted")
    problem(look(job, "2023-11"), 409, "budget-exhausted")
    after = service.shown(f"{HERE}/partitions/2023-11")
    assert {**after, "sequence": 0} == {**before, "sequence": 0}
    assert service.budget("trips")["spent"]["rho"] == pytest.approx(0.125), "the largest of the partitions"
    service.verified("trips")


def test_no_past_far_or_present_epoch_is_opened_again(service: Service) -> None:
    opened(service)
    made(renew(service))
    for name in ("2023-10", "2024-01", "2023-11-14", "north"):
        problem(begin(service, name), 422, "invalid-input")
    made(begin(service, "2023-11"))
    made(begin(service, "2023-12"))
    problem(begin(service, "2023-11"), 409, "already-exists")
    service.clock.advance(60 * DAY)
    problem(begin(service, "2023-12"), 422, "invalid-input")
    made(begin(service, "2024-01"))
    service.verified("trips")


@pytest.mark.parametrize(
    "more",
    [{"records_are_new": False}, {"statement": ""}, {"statement": "x" * 2001}, {"records_are_new": "yes"}],
)
def test_an_epoch_is_opened_with_its_statement_alone(service: Service, more: dict[str, Any]) -> None:
    opened(service)
    made(renew(service))
    problem(begin(service, "2023-11", **more), 422, "invalid-input")


def test_what_would_not_be_sound_is_refused_with_the_reason(service: Service) -> None:
    opened(service, partitions=False)
    refused = problem(renew(service), 422, "unproven")
    assert "has no partitions" in refused["detail"]
    made(service.post("/v1/datasets", {"name": "users", "budget": ZCDP, "unit": "user"}))
    made(service.post("/v1/datasets/users/partitions", {"names": ["2023-10"]}))
    refused = problem(service.post("/v1/datasets/users/renewal", MONTHLY), 422, "unproven")
    assert "units that recur over epochs bear the sum" in refused["detail"]
    problem(service.get("/v1/datasets/users/renewal"), 404, "not-found")


def test_units_that_were_stated_to_be_in_one_partition_are_renewed(service: Service) -> None:
    opened(service, unit="session", units_in_one_partition=True)
    detail = service.shown(f"{HERE}/entries/1")["detail"]
    assert detail["units_in_one_partition"] is True
    made(renew(service))
    made(begin(service, "2023-11"))
    service.verified("trips")


def test_under_a_private_key_the_two_largest_add_up(service: Service) -> None:
    opened(service, adjacency="replace-one", records=100)
    assert service.shown(HERE)["partition_key"] == "private"
    made(renew(service, budget={"accounting": "zcdp", "rho": 0.26}))
    made(begin(service, "2023-11"))
    made(begin(service, "2023-12"))
    made(look(service, "2023-11"))
    made(look(service, "2023-12"))
    problem(look(service, "2023-11"), 409, "budget-exhausted")
    assert service.budget("trips")["spent"]["rho"] == pytest.approx(0.25)
    service.verified("trips")


def test_the_policy_s_budget_changes_for_new_epochs_and_its_period_never(service: Service) -> None:
    opened(service)
    problem(begin(service, "2023-11"), 404, "not-found")
    made(renew(service))
    made(begin(service, "2023-11"))
    problem(renew(service, period="week"), 422, "invalid-input")
    made(renew(service, budget={"accounting": "zcdp", "rho": 0.26}))
    made(begin(service, "2023-12"))
    budgets = [
        service.shown(f"{HERE}/partitions/{name}")["own_budget"]["rho"] for name in ("2023-11", "2023-12")
    ]
    assert budgets == [0.13, 0.26]
    ended = made(renew(service, budget=None))
    assert ended["budget"] is None
    service.clock.advance(60 * DAY)
    problem(begin(service, "2024-01"), 404, "not-found")
    service.verified("trips")


def test_what_is_spent_on_the_whole_is_not_renewed(service: Service) -> None:
    opened(service)
    made(service.authorize(GAUSSIAN, dataset="trips"))
    made(renew(service))
    assert made(begin(service, "2023-11"))["warnings"] == []
    problem(look(service, "2023-11"), 409, "budget-exhausted")
    made(service.authorize({**GAUSSIAN, "noise_std": 20.0}, dataset="trips"))
    begun = made(renew(service, budget={"accounting": "zcdp", "rho": 0.1}))
    begun = made(begin(service, "2023-12"))
    assert begun["warnings"] == [
        "what was spent on the whole, or under a private key elsewhere, leaves nothing for 2023-12"
    ]
    service.verified("trips")


def test_who_may_set_a_policy_and_open_an_epoch(service: Service) -> None:
    opened(service)
    job, reader = service.make_token("spend"), service.make_token("read")
    problem(renew(job), 403, "forbidden")
    made(renew(service))
    problem(begin(reader, "2023-11"), 403, "forbidden")
    made(begin(job, "2023-11"))
    problem(job.post(f"{HERE}/partitions", {"names": ["north"]}), 403, "forbidden")
    for budget in ({"accounting": "gdp", "mu": 1.0}, {"accounting": "zcdp", "rho": 0.0}):
        assert renew(service, budget=budget).status_code == 422
