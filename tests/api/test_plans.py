"""Plan budgets through the API: how many steps they grant, what takes which item, and what is refused."""

import math
import re
import time
from typing import Any

import pytest
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

from dpledger.api.schemas.query_responses import ForecastAnswer
from dpledger.api.schemas.responses import BudgetAnswer, OpenedAnswer, Refusal
from tests.api.service import GAUSSIAN, POISSON, SUBSAMPLED, Service

SGD: dict[str, Any] = {"name": "sgd", "sample": POISSON, "releases": [SUBSAMPLED], "times": "most"}
EVALUATE: dict[str, Any] = {"name": "evaluate", "releases": [{**GAUSSIAN, "noise_std": 40.0}], "times": 3}


def plan(*items: dict[str, Any], epsilon: float = 1.0, delta: float = 1e-5) -> dict[str, Any]:
    return {"accounting": "plan", "epsilon": epsilon, "delta": delta, "items": list(items)}


def opened(service: Service, *items: dict[str, Any], name: str = "adult", **target: float) -> dict[str, Any]:
    answer = service.post("/v1/datasets", {"name": name, "budget": plan(*items, **target)})
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


def sgd_step(**other: Any) -> dict[str, Any]:
    return {"run": "run", "sample": POISSON, "releases": [{**SUBSAMPLED, **other}]}


def least_epsilon(rate: float, noise: float, steps: int, delta: float) -> float:
    """Another accountant's lower bound on ε: no sound plan has more steps than it allows."""
    step = from_gaussian_mechanism(
        noise, pessimistic_estimate=False, value_discretization_interval=1e-3, sampling_prob=rate
    )
    return float(step.self_compose(steps).get_epsilon_for_delta(delta))


@pytest.mark.parametrize(
    ("rate", "noise", "epsilon", "delta", "least"),
    [
        (0.01, 1.1, 1.0, 1e-5, 421),
        (0.01, 1.1, 3.0, 1e-5, 3712),
        (0.01, 1.1, 1.0, 1e-6, 277),
        (0.05, 1.0, 3.0, 1e-5, 68),
    ],
)
def test_an_ordinary_training_gets_what_exact_accounting_allows(
    service: Service, rate: float, noise: float, epsilon: float, delta: float, least: int
) -> None:
    sample, release = {"scheme": "poisson", "rate": rate}, {**GAUSSIAN, "noise_std": noise}
    item = {"name": "sgd", "sample": sample, "releases": [release], "times": "most"}

    found = opened(service, item, epsilon=epsilon, delta=delta)
    count = found["budget"]["items"][0]["times"]
    assert count >= least
    assert least_epsilon(rate, noise, count, delta) <= epsilon
    assert found["plan"]["epsilon_lower_bound"] <= found["plan"]["epsilon"] <= epsilon
    assert found["plan"]["unused_epsilon"] == epsilon - found["plan"]["epsilon"]

    step = {"run": "run", "sample": sample, "releases": [release]}
    body = {**step, "times": count - 1, "expires_in_seconds": 60.0}
    held = service.post("/v1/datasets/adult/reservations", body)
    assert held.status_code == 201, held.text
    assert service.post("/v1/datasets/adult/authorizations", step).status_code == 201
    refused = service.post("/v1/datasets/adult/authorizations", step)
    assert refused.status_code == 409
    assert refused.json()["fits"] | {"advice": []} == {
        "times": 0,
        "cost_fraction": 0.0,
        "item": "sgd",
        "advice": [],
    }
    assert "0 of" in refused.json()["fits"]["advice"][0]


def test_the_profile_falls_and_meets_the_target(service: Service) -> None:
    found = opened(service, SGD)["plan"]
    epsilons, deltas = found["profile"]["epsilons"], found["profile"]["deltas"]
    assert epsilons[0] == 0.0
    assert epsilons[-1] == 2.0
    assert deltas == sorted(deltas, reverse=True)
    assert deltas[epsilons.index(1.0)] <= 1e-5
    assert service.shown("/v1/datasets/adult/budget")["plan"] == found


def test_every_answer_has_the_shape_that_the_description_gives(service: Service) -> None:
    OpenedAnswer.model_validate(opened(service, {**SGD, "times": 1}))
    step = {"releases": [SUBSAMPLED], "sample": POISSON}
    assert service.post("/v1/datasets/adult/authorizations", sgd_step()).status_code == 201
    BudgetAnswer.model_validate(service.shown("/v1/datasets/adult/budget"))
    refused = service.post("/v1/datasets/adult/authorizations", sgd_step()).json()
    Refusal.model_validate({name: refused[name] for name in Refusal.model_fields if name in refused})
    forecast = service.client.post("/v1/datasets/adult/forecast", json=step, headers=service.headers()).json()
    ForecastAnswer.model_validate(forecast)
    assert forecast["item"] == "sgd"
    assert forecast["advice"] == refused["fits"]["advice"]


def test_an_auditor_is_told_what_attacks_may_reach(service: Service) -> None:
    found = opened(service, SGD)["plan"]
    audit = found["audit"]
    assert audit["false_positive_rates"] == [0.001, 0.01, 0.1]
    rates = zip(audit["false_positive_rates"], audit["true_positive_rates"], strict=True)
    for false_positives, true_positives in rates:
        pure = math.exp(found["epsilon"]) * false_positives + 1e-5
        assert false_positives < true_positives < pure
        assert true_positives - false_positives <= audit["advantage"]
    assert audit["advantage"] == pytest.approx(found["profile"]["deltas"][0], rel=1e-3)
    # The μ of the Gaussian mechanism with this ε at δ = 1e-5, by another accountant.
    gaussian = from_gaussian_mechanism(1.0 / audit["equivalent_mu"])
    assert gaussian.get_epsilon_for_delta(1e-5) == pytest.approx(found["epsilon"], rel=1e-3)


def test_items_are_counted_each_on_its_own(service: Service) -> None:
    found = opened(service, {**SGD, "times": 5}, EVALUATE)
    assert [item["times"] for item in found["budget"]["items"]] == [5, 3]
    look = {"run": "look", "releases": EVALUATE["releases"]}
    answers = [service.post("/v1/datasets/adult/authorizations", look).status_code for _ in range(4)]
    assert answers == [201, 201, 201, 409]
    answers = [service.post("/v1/datasets/adult/authorizations", sgd_step()).status_code for _ in range(6)]
    assert answers == [201] * 5 + [409]

    budget = service.shown("/v1/datasets/adult/budget")
    assert budget["spent"]["items"] == [{"name": "sgd", "times": 5}, {"name": "evaluate", "times": 3}]
    assert budget["remaining"]["items"] == [{"name": "sgd", "times": 0}, {"name": "evaluate", "times": 0}]
    assert budget["fraction"] == 0.0
    assert service.shown("/v1/datasets/adult/verification")["valid"]


def test_a_dominated_step_takes_the_item_and_another_does_not(service: Service) -> None:
    opened(service, {**SGD, "times": 2})
    less = {
        "run": "run",
        "sample": {**POISSON, "rate": 0.005},
        "releases": [{**SUBSAMPLED, "noise_std": 2.0}],
    }
    assert service.post("/v1/datasets/adult/authorizations", less).status_code == 201

    for other in (
        sgd_step(noise_std=1.0),
        {**sgd_step(), "sample": {**POISSON, "rate": 0.02}},
        {"run": "run", "releases": [SUBSAMPLED]},
        {"run": "run", "releases": [{"mechanism": "laplace", "sensitivity": 1.0, "scale": 100.0}]},
    ):
        refused = service.post("/v1/datasets/adult/authorizations", other)
        assert refused.status_code == 422, refused.text
        assert refused.json()["type"] == "/problems/unproven"
        assert "sgd" in refused.json()["detail"]
    budget = service.shown("/v1/datasets/adult/budget")
    assert budget["spent"]["items"] == [{"name": "sgd", "times": 1}]


def test_an_item_may_be_named_where_it_dominates(service: Service) -> None:
    opened(service, {**SGD, "times": 1}, {**SGD, "name": "rest", "releases": [GAUSSIAN], "times": 1})
    gentle = {"run": "run", "sample": POISSON, "releases": [{**GAUSSIAN, "noise_std": 3.0}]}
    named = service.post("/v1/datasets/adult/authorizations", {**gentle, "item": "rest"})
    assert named.status_code == 201, named.text
    spent = service.shown("/v1/datasets/adult/budget")["spent"]["items"]
    assert spent == [{"name": "sgd", "times": 0}, {"name": "rest", "times": 1}]
    assert service.post("/v1/datasets/adult/authorizations", {**gentle, "item": "rest"}).status_code == 409
    assert service.post("/v1/datasets/adult/authorizations", gentle).status_code == 201

    wrong = service.post("/v1/datasets/adult/authorizations", {**sgd_step(), "item": "rest"})
    assert wrong.json()["type"] == "/problems/unproven"
    unknown = service.post("/v1/datasets/adult/authorizations", {**sgd_step(), "item": "nothing"})
    assert unknown.json()["field"] == "item"
    assert service.shown("/v1/datasets/adult/verification")["valid"]


def test_reservations_give_back_what_did_not_run(service: Service) -> None:
    opened(service, {**SGD, "times": 10})
    body = {**sgd_step(), "times": 8, "expires_in_seconds": 60.0}
    held = service.post("/v1/datasets/adult/reservations", body).json()
    assert service.post("/v1/datasets/adult/reservations", {**body, "times": 3}).json()["fits"]["times"] == 2
    settled = service.post(f"/v1/reservations/{held['id']}/settlement", {"used": 3})
    assert settled.json()["returned"] == 5
    left = service.shown("/v1/datasets/adult/budget")["remaining"]["items"]
    assert left == [{"name": "sgd", "times": 7}]
    again = service.post("/v1/datasets/adult/reservations", {**body, "times": 7})
    assert again.status_code == 201
    assert service.post("/v1/datasets/adult/authorizations", sgd_step()).status_code == 409


def test_caps_take_what_is_chosen_on_the_way(service: Service) -> None:
    opened(
        service,
        {**SGD, "times": 100},
        {"name": "gradients", "gdp": {"mu": 0.1}},
        {"name": "searches", "zcdp": {"rho": 0.001}},
    )
    half = {"run": "agd", "releases": [{**GAUSSIAN, "noise_std": 20.0}]}
    assert [service.post("/v1/datasets/adult/authorizations", half).status_code for _ in range(5)] == [
        201,
        201,
        201,
        201,
        409,
    ]
    refused = service.post("/v1/datasets/adult/authorizations", half).json()
    assert refused["fits"]["item"] == "gradients"
    search = {"run": "agd", "releases": [{"mechanism": "zcdp", "rho": 0.0005}]}
    assert [service.post("/v1/datasets/adult/authorizations", search).status_code for _ in range(3)] == [
        201,
        201,
        409,
    ]
    spent = service.shown("/v1/datasets/adult/budget")["spent"]["items"]
    assert spent[1:] == [{"name": "gradients", "mu_squared": 0.01}, {"name": "searches", "rho": 0.001}]
    leaky = {"run": "agd", "releases": [{"mechanism": "approximate", "epsilon": 1e-6, "delta": 1e-9}]}
    assert service.post("/v1/datasets/adult/authorizations", leaky).status_code == 422


def test_a_plan_beyond_its_target_is_refused_with_what_it_needs(service: Service) -> None:
    answer = service.post("/v1/datasets", {"name": "adult", "budget": plan({**SGD, "times": 422})})
    assert answer.status_code == 422
    assert "this one needs 1.00" in answer.json()["detail"]
    assert "'most'" in answer.json()["detail"]


@pytest.mark.parametrize(
    "items",
    [
        [],
        [{**SGD, "times": 0}],
        [{**SGD, "times": -1}],
        [{**SGD, "times": 1.5}],
        [{**SGD, "times": "all"}],
        [{**SGD}, {**SGD, "name": "other"}],
        [{**SGD, "times": 1}, {**SGD, "times": 1}],
        [{"name": "nothing"}],
        [{"name": "cap", "gdp": {"mu": 0.0}}],
        [{"name": "cap", "gdp": {"mu": -1.0}}],
        [{"name": "cap", "gdp": {"mu": 1e300}}],
        [{"name": "cap", "zcdp": {"rho": 0.0}}],
        [{"name": "cap", "zcdp": {"rho": 1e300}}],
        [{"name": "both", "zcdp": {"rho": 0.1}, "gdp": {"mu": 0.1}}],
        [{"name": "both", "zcdp": {"rho": 0.001}, "times": 4}],
        [{**SGD, "times": 1, "sample": {"scheme": "without-replacement", "rate": 0.01}}],
        [{"name": "curve", "releases": [{"mechanism": "zcdp", "rho": 0.1}], "times": 1}],
    ],
    ids=str,
)
def test_a_plan_without_proof_is_not_opened(service: Service, items: list[dict[str, Any]]) -> None:
    answer = service.post("/v1/datasets", {"name": "adult", "budget": plan(*items)})
    assert answer.status_code == 422, answer.text


def test_counts_may_be_lowered_and_nothing_else_changes(service: Service) -> None:
    opened(service, {**SGD, "times": 10}, {"name": "cap", "gdp": {"mu": 0.1}})

    def change(**fields: Any) -> Any:
        body = {"budget": {"accounting": "plan", **fields}, "reason": "a smaller study"}
        tag = service.get("/v1/datasets/adult").headers["etag"]
        return service.post("/v1/datasets/adult/budget-changes", body, headers={"If-Match": tag})

    lowered = change(items=[{"name": "sgd", "times": 4}])
    assert lowered.status_code == 201, lowered.text
    assert lowered.json()["guarantee"]["lowered"]
    assert change(items=[{"name": "cap", "gdp": {"mu": 0.05}}]).status_code == 201
    assert [service.post("/v1/datasets/adult/authorizations", sgd_step()).status_code for _ in range(5)] == [
        201,
        201,
        201,
        201,
        409,
    ]
    for fields in (
        {"items": [{"name": "sgd", "times": 5}]},
        {"items": [{"name": "sgd", "times": 2}, {**SGD, "name": "more", "times": 1}]},
        {"items": [{**SGD, "releases": [GAUSSIAN], "times": 2}]},
        {"items": [{"name": "cap", "gdp": {"mu": 0.06}}]},
        {"epsilon": 2.0, "items": [{"name": "sgd", "times": 2}]},
        {"items": [{"name": "sgd", "times": "most"}]},
        {},
    ):
        assert change(**fields).status_code == 422, fields
    items = service.shown("/v1/datasets/adult")["budget"]["items"]
    assert items[0]["times"] == 4
    assert items[1]["gdp"]["mu"] == pytest.approx(0.05)
    assert service.shown("/v1/datasets/adult/verification")["valid"]


def test_a_second_look_at_a_sample_is_refused(service: Service) -> None:
    opened(service, {**SGD, "times": 5}, EVALUATE)
    first = service.post("/v1/datasets/adult/authorizations", sgd_step()).json()
    again = {"run": "run", "sample": {"id": first["sample"]["id"]}, "releases": EVALUATE["releases"]}
    refused = service.post("/v1/datasets/adult/authorizations", again)
    assert refused.status_code == 422
    assert "looked at once" in refused.json()["detail"]


def test_whole_and_partition_add_up(service: Service) -> None:
    opened(service, {**SGD, "times": 5})
    service.post("/v1/datasets/adult/partitions", {"count": 2})
    path = "/v1/datasets/adult/authorizations"
    assert service.post(path, sgd_step()).status_code == 201
    assert [service.post(path, {**sgd_step(), "partition": "0"}).status_code for _ in range(5)] == [
        201,
        201,
        201,
        201,
        409,
    ]
    assert [service.post(path, {**sgd_step(), "partition": "1"}).status_code for _ in range(2)] == [201, 201]
    assert service.post(path, sgd_step()).status_code == 409
    assert service.shown("/v1/datasets/adult/verification")["valid"]


@pytest.mark.parametrize(
    ("adjacency", "key", "rho"),
    # By a private key limits of caps are doubles, which may be below the decimals that were given.
    [("add-remove", "fixed", 1e-3), ("replace-one", "fixed", 1e-3), ("replace-one", "private", 9e-4)],
)
def test_an_item_that_partitions_use_up_is_exact_and_leaves_the_others(
    service: Service, adjacency: str, key: str, rho: float
) -> None:
    first, second = ({**GAUSSIAN, "noise_std": noise} for noise in (20.0, 100.0))
    items = [
        {"name": "first", "releases": [first], "times": 3},
        {"name": "second", "releases": [second], "times": 2},
        {"name": "cap", "zcdp": {"rho": 0.001}},
    ]
    budget = {"accounting": "plan", "epsilon": 1.0, "delta": 1e-5, "items": items}
    service.open(budget=budget, adjacency=adjacency, partition_key=key)
    service.post("/v1/datasets/adult/partitions", {"count": 2})
    cap = {"mechanism": "zcdp", "rho": rho}
    assert service.authorize(cap, partition="0").status_code == 201
    assert service.authorize(first, partition="0").status_code == 201
    assert [service.authorize(first).status_code for _ in range(3)] == [201, 201, 409]
    assert [service.authorize(second).status_code for _ in range(3)] == [201, 201, 409]
    assert service.authorize(cap).status_code == 409
    service.verified()


def test_a_plan_of_many_kinds_takes_seconds(service: Service) -> None:
    kinds = [
        {
            "name": f"kind-{number}",
            "sample": {**POISSON, "rate": 0.01 + number * 1e-5},
            "releases": [{**GAUSSIAN, "noise_std": 50.0 + number / 10.0}],
            "times": 1 + number % 3,
        }
        for number in range(40)
    ]
    most = {"name": "most", "sample": {**POISSON, "rate": 0.001}, "releases": [GAUSSIAN], "times": "most"}
    before = time.process_time()
    found = opened(service, *kinds, most)["plan"]
    assert time.process_time() - before < 10.0, "with the grids of a single kind it takes more than 20"
    assert found["epsilon_lower_bound"] <= found["epsilon"] <= 1.0
    assert found["epsilon_lower_bound"] >= 0.99 * found["epsilon"]


@pytest.mark.parametrize("epsilon", [1.1e100, 1e200, 1e308])
@pytest.mark.parametrize("times", [1, "most"])
def test_an_epsilon_beyond_squares_of_doubles_is_refused(
    service: Service, epsilon: float, times: int | str
) -> None:
    items = [{"name": "look", "releases": [GAUSSIAN], "times": times}]
    budget = {"accounting": "plan", "epsilon": epsilon, "delta": 1e-5, "items": items}
    answer = service.post("/v1/datasets", {"name": "adult", "budget": budget})
    assert answer.status_code == 422
    assert answer.json()["field"] == "budget.epsilon"


def test_a_refusal_does_not_scale_many_releases_under_the_lock(service: Service) -> None:
    service.open(budget={"accounting": "rdp", "epsilon": 0.05, "delta": 1e-5}, adjacency="replace-one")
    sample = {"scheme": "without-replacement", "rate": 0.5}
    laplace = {"mechanism": "laplace", "sensitivity": 1.0}
    for number, advised in ((4, 3), (5, 2)):
        releases = [{**laplace, "scale": 5.0 + each / 100.0} for each in range(number)]
        refused = service.authorize(*releases, sample=sample)
        assert refused.status_code == 409
        assert len(refused.json()["fits"]["advice"]) == advised


def test_a_refusal_by_orders_says_what_would_help(service: Service) -> None:
    budget = {"accounting": "rdp", "epsilon": 1.0, "delta": 1e-6}
    service.post("/v1/datasets", {"name": "adult", "budget": budget})
    fits = service.post("/v1/datasets/adult/authorizations", sgd_step()).json()["fits"]
    assert 1.0 < fits["order"] < 100.0
    assert f"α = {fits['order']:.4g} binds" in fits["advice"][0]
    promised = int(re.search(r"with 1.5 times its noise (\d+) steps would fit", fits["advice"][1])[1])  # type: ignore[index]
    assert "plan budget" in fits["advice"][2]
    asked = {name: value for name, value in sgd_step().items() if name != "run"}
    forecast = service.post("/v1/datasets/adult/forecast", asked).json()
    assert forecast["advice"] == [
        *fits["advice"],
        "a plan budget for the same ε and δ, opened for this step, grants it 277 times",
    ]

    more = {**sgd_step(noise_std=1.5 * 1.1), "times": promised, "expires_in_seconds": 60.0}
    assert service.post("/v1/datasets/adult/reservations", more).status_code == 201


def test_a_refusal_of_noise_at_the_end_of_floats_still_answers(service: Service) -> None:
    budget = {"accounting": "rdp", "epsilon": 1.0, "delta": 1e-6}
    service.post("/v1/datasets", {"name": "adult", "budget": budget})
    step = {"run": "run", "releases": [{**GAUSSIAN, "sensitivity": 1e307, "noise_std": 1e307}]}
    refused = service.post("/v1/datasets/adult/authorizations", step)
    assert refused.status_code == 409
    assert refused.json()["fits"]["advice"]
