"""How many steps the default filter grants through the API: q = 0.01, σ = 1.1, δ = 1e-5, with that plan."""

from typing import Any

import pytest

from tests.api.service import POISSON, SUBSAMPLED, Service, made, problem


def planned(epsilon: float) -> dict[str, Any]:
    plan = {"releases": [SUBSAMPLED], "sample": POISSON}
    return {"accounting": "rdp", "epsilon": epsilon, "delta": 1e-5, "plan": plan}


def test_one_by_one_at_epsilon_one(service: Service) -> None:
    service.open("adult", planned(1.0))
    granted = 0
    while (answer := service.authorize(SUBSAMPLED, sample=POISSON)).status_code == 201:
        granted += 1

    problem(answer, 409, "budget-exhausted")
    assert 128 <= granted <= 141
    assert service.budget()["fraction"] < 0.01
    service.verified()


@pytest.mark.parametrize(("epsilon", "least", "unsound"), [(3.0, 3090, 3132), (1.0, 128, 141)])
def test_by_reservation(service: Service, epsilon: float, least: int, unsound: int) -> None:
    service.open("adult", planned(epsilon))
    refused = service.reserve(10_000, releases=[SUBSAMPLED], sample=POISSON)

    fits = problem(refused, 409, "budget-exhausted")["fits"]["times"]

    assert least <= fits <= unsound
    held = made(service.reserve(fits, releases=[SUBSAMPLED], sample=POISSON))
    made(service.settle(held["id"], fits))
    problem(service.authorize(SUBSAMPLED, sample=POISSON), 409, "budget-exhausted")
    service.verified()


def test_in_lists_at_epsilon_three(service: Service) -> None:
    service.open("adult", planned(3.0))
    item = {"dataset": "adult", "run": "r", "releases": [SUBSAMPLED], "sample": POISSON}
    granted = 0
    for _ in range(4):
        results = made(service.bulk("each", *[item] * 1000))["results"]
        granted += sum("granted" in result for result in results)

    assert 3090 <= granted <= 3132
    service.verified()


def test_a_curve_for_the_plan_alone_loses_nothing(service: Service) -> None:
    service.open("adult", {**planned(1.0), "accounting": "rdp-curve"})

    refused = service.reserve(10_000, releases=[SUBSAMPLED], sample=POISSON)

    assert problem(refused, 409, "budget-exhausted")["fits"]["times"] >= 140


@pytest.mark.parametrize(
    ("budget", "release", "times"),
    [
        (
            {"accounting": "zcdp", "rho": 1.0},
            {"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": 1.0},
            2,
        ),
        ({"accounting": "gdp", "mu": 0.3}, {"mechanism": "gdp", "mu": 0.1}, 9),
        ({"accounting": "zcdp", "rho": 0.3}, {"mechanism": "zcdp", "rho": 0.1}, 3),
        (
            {"accounting": "zcdp", "rho": 1.0, "additive_delta": 0.3},
            {"mechanism": "approximate", "epsilon": 0.1, "delta": 0.1},
            3,
        ),
    ],
)
def test_a_round_budget_is_granted_to_its_last_step(
    service: Service, budget: dict[str, Any], release: dict[str, Any], times: int
) -> None:
    service.open("adult", budget)
    forecast = {"releases": [release]}
    before = service.post("/v1/datasets/adult/forecast", forecast).json()["fits"]
    for _ in range(times - 1):
        made(service.authorize(release))
    held = made(service.reserve(1, releases=[release]))

    problem(service.authorize(release), 409, "budget-exhausted")
    made(service.settle(held["id"], 1))
    problem(service.authorize(release), 409, "budget-exhausted")

    assert before == times
    assert service.post("/v1/datasets/adult/forecast", forecast).json()["fits"] == 0
    shown = service.budget()
    name = (
        "additive_delta" if "delta" in release else {"zcdp": "rho", "gdp": "mu_squared"}[budget["accounting"]]
    )
    assert shown["spent"][name] == pytest.approx(shown["limit"][name], rel=1e-15)
    service.verified()
