"""``POST /v1/costs`` gives the accounting package's numbers, bit for bit, and records nothing."""

import asyncio
import threading
from typing import Any
from unittest import mock

import httpx2
import numpy as np
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpledger.accounting.cost import Cost
from dpledger.accounting.orders import DEFAULT_ORDERS
from dpledger.accounting.stepcost import cost_of
from dpledger.accounting.steps import Step
from dpledger.queries import amplification
from tests.api.service import Service

GAUSSIAN = {"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": 2.0}
POISSON = {"scheme": "poisson", "rate": 0.1}


def body(**changes: Any) -> dict[str, Any]:
    return {"releases": [GAUSSIAN], "adjacency": "add-remove", **changes}


def answer(client: TestClient, **changes: Any) -> dict[str, Any]:
    response = client.post("/v1/costs", json=body(**changes))
    assert response.status_code == 200, response.text
    cost: dict[str, Any] = response.json()["cost"]
    return cost


def test_a_gaussian_costs_its_closed_form(client: TestClient) -> None:
    cost = answer(client, orders=[1.5, 2, 32])

    assert list(cost) == ["rho", "mu", "pure_epsilon", "delta", "orders", "epsilons"]
    assert 0.125 <= cost["rho"] <= 0.125 * (1 + 1e-12)
    assert 0.5 <= cost["mu"] <= 0.5 * (1 + 1e-12)
    assert cost["pure_epsilon"] is None
    assert cost["delta"] == 0.0
    assert cost["orders"] == [1.5, 2.0, 32.0]
    for order, epsilon in zip(cost["orders"], cost["epsilons"], strict=True):
        assert order / 8 <= epsilon <= order / 8 * (1 + 1e-12)


@pytest.mark.parametrize("sample", [None, {"scheme": "full"}, POISSON])
@pytest.mark.parametrize("orders", [None, [2.0, 2.5, 64.0]])
@pytest.mark.parametrize("releases", [[GAUSSIAN], [{**GAUSSIAN, "count": 3}, {**GAUSSIAN, "noise_std": 5}]])
def test_the_numbers_are_those_of_the_accounting_package(
    client: TestClient,
    sample: dict[str, Any] | None,
    orders: list[float] | None,
    releases: list[dict[str, Any]],
) -> None:
    step = Step.from_fields(releases, sample, "add-remove")
    expected = cost_of(step, DEFAULT_ORDERS if orders is None else np.array(orders))

    cost = answer(client, sample=sample, orders=orders, releases=releases)

    assert cost["orders"] == expected.orders.tolist()
    assert cost["epsilons"] == expected.epsilons.tolist()
    notions = ("rho", "mu", "pure_epsilon", "delta")
    assert {name: cost[name] for name in notions} == {name: getattr(expected, name) for name in notions}


def test_sampling_makes_it_cheaper(client: TestClient) -> None:
    full = np.array(answer(client)["epsilons"])
    sampled = np.array(answer(client, sample=POISSON)["epsilons"])

    assert (sampled < full).all()


def test_purpose_changes_nothing(client: TestClient) -> None:
    assert answer(client, releases=[{**GAUSSIAN, "purpose": "gradient"}]) == answer(client)


def test_the_largest_allowed_request_is_answered(client: TestClient) -> None:
    orders = np.linspace(1.5, 64.0, 512).tolist()

    assert len(answer(client, releases=[GAUSSIAN] * 64, orders=orders)["epsilons"]) == 512


finite = st.floats(min_value=0.0, allow_infinity=False, allow_nan=False)


every_example = settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])


@every_example
@given(epsilons=st.lists(finite, min_size=3, max_size=3), rho=finite, mu=st.none() | finite)
def test_floats_leave_the_service_exactly(
    client: TestClient, epsilons: list[float], rho: float, mu: float | None
) -> None:
    cost = Cost(np.array([1.1, 2.0, 1e6]), np.array(epsilons), rho=rho, mu=mu)
    with mock.patch.object(amplification, "cost_of", return_value=cost):
        answered = answer(client)

    assert (answered["epsilons"], answered["rho"], answered["mu"]) == (epsilons, rho, mu)


@every_example
@given(sensitivity=finite, noise_std=st.floats(min_value=0.0, exclude_min=True, allow_infinity=False))
def test_floats_enter_the_service_exactly(client: TestClient, sensitivity: float, noise_std: float) -> None:
    release = {"mechanism": "gaussian", "sensitivity": sensitivity, "noise_std": noise_std}
    with mock.patch.object(amplification, "cost_of", return_value=Cost.zero(DEFAULT_ORDERS)) as asked:
        answer(client, releases=[release])

    assert asked.call_args.args[0].releases[0].fields() == release


def test_a_slow_bound_leaves_the_event_loop_free(app: FastAPI, shared: Service) -> None:
    started, released = threading.Event(), threading.Event()

    def slow(_step: Step, orders: Any) -> Cost:
        started.set()
        assert released.wait(timeout=30)
        return Cost.zero(orders)

    async def ask_for_health_meanwhile() -> tuple[int, int]:
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://ledger") as client:
            pending = asyncio.create_task(client.post("/v1/costs", json=body(), headers=shared.headers()))
            while not started.is_set():
                await asyncio.sleep(0.01)
            health = await client.get("/healthz")
            assert not pending.done()
            released.set()
            return health.status_code, (await pending).status_code

    with mock.patch.object(amplification, "cost_of", slow):
        assert asyncio.run(asyncio.wait_for(ask_for_health_meanwhile(), timeout=30)) == (200, 200)


SEARCH = {"mechanism": "above-threshold", "noise": "laplace", "sensitivity": 1.0, "epsilon": 0.1}
MIXTURE = {"mechanism": "output-mixture", "noise_std": 2.0, "sensitivities": [1.0], "probabilities": [1.0]}


@pytest.mark.parametrize("release", [SEARCH, MIXTURE])
def test_a_bound_that_may_take_long_is_left_to_the_worker(
    client: TestClient, shared: Service, release: dict[str, Any]
) -> None:
    chosen = body(releases=[GAUSSIAN, release], adjacency="replace-one", orders=[2.0, 8.0])
    step = Step.from_fields(chosen["releases"], None, "replace-one")
    queries = shared.app.state.services.queries
    before = queries.outcomes["answered"] + queries.outcomes["kept"]

    cost = client.post("/v1/costs", json=chosen).json()["cost"]

    assert cost["epsilons"] == cost_of(step, np.array([2.0, 8.0])).epsilons.tolist()
    assert queries.outcomes["answered"] + queries.outcomes["kept"] == before + 1
