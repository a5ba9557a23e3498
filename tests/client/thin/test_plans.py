"""Plan budgets and allocations, as both clients send them, and refusals that teach."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from dpledger_client import (
    AsyncLedger,
    BudgetExhausted,
    BudgetWarning,
    Gaussian,
    Ledger,
    Poisson,
)
from dpledger_client.optimizers import plan
from tests.client.thin.fake import FakeService, problem

STEP = Gaussian(1.0, 1.1)
ITEMS = plan(
    dataset={"adjacency": "add-remove", "records": 10_000},
    method="dp-sgd",
    steps=400,
    batch_size=100,
    clip=1.0,
    noise_multiplier=1.1,
    step_size=0.5,
)
ALLOCATION = {
    "id": "d~7",
    "name": "team-a",
    "sequence": 7,
    "dataset": "d",
    "epsilon": 1.0,
    "delta": 1e-6,
    "budget": {"accounting": "plan"},
    "remaining": {"fraction": 1.0},
    "warnings": ["Item 'sgd' fits 399 times."],
}
clients = pytest.mark.parametrize("asynchronous", [False, True])


class Client:
    """Either client, asked in the same words."""

    def __init__(self, service: FakeService, asynchronous: bool) -> None:
        kind = AsyncLedger if asynchronous else Ledger
        self.dataset: Any = kind(
            "http://ledger", token="dpl_abc_secret", transport=service.transport
        ).dataset("d")
        self.asynchronous = asynchronous

    def done(self, call: Any) -> Any:
        """What a call returns, awaited if it has to be."""
        return asyncio.run(call) if self.asynchronous else call

    def listed(self, items: Any) -> list[Any]:
        """What an iterator gives."""

        async def gather() -> list[Any]:
            return [item async for item in items]

        return asyncio.run(gather()) if self.asynchronous else list(items)


def bodies(service: FakeService) -> list[tuple[str, Any]]:
    """What was posted, and where."""
    posted = [request for request in service.requests if request.method == "POST"]
    return [(request.url.path, json.loads(request.content)) for request in posted]


def allocated(_request: httpx2.Request) -> httpx2.Response:
    return httpx2.Response(201, json=ALLOCATION)


@clients
def test_a_dataset_is_opened_with_a_plan(asynchronous: bool) -> None:
    service = FakeService()
    client = Client(service, asynchronous)
    client.done(client.dataset.open(plan=ITEMS, epsilon=1, delta=1e-5, records=10_000))

    [(path, body)] = bodies(service)
    assert path == "/v1/datasets"
    step = {"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": 1.1}
    item = {"name": "sgd", "sample": {"scheme": "poisson", "rate": 0.01}, "releases": [step], "times": 400}
    assert body["budget"] == {"accounting": "plan", "epsilon": 1.0, "delta": 1e-5, "items": [item]}


@clients
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "either a budget or a plan"),
        ({"budget": {"accounting": "zcdp"}, "plan": ITEMS}, "either a budget or a plan"),
        ({"budget": {"accounting": "zcdp"}, "epsilon": 1.0}, "go with a plan"),
        ({"plan": ITEMS, "epsilon": 1.0}, "must be given with a plan"),
    ],
)
def test_a_budget_is_given_in_one_way(asynchronous: bool, given: dict[str, Any], message: str) -> None:
    service = FakeService()
    client = Client(service, asynchronous)
    with pytest.raises(ValueError, match=message):
        client.done(client.dataset.open(**given))
    assert not service.requests


@clients
def test_an_allocation_is_made_and_spent_from(asynchronous: bool) -> None:
    service = FakeService(allocated)
    client = Client(service, asynchronous)
    account = client.dataset.run("job")
    with pytest.warns(BudgetWarning, match="fits 399 times"):
        bound = client.done(account.allocate("team-a", epsilon=1, delta=1e-6, plan=ITEMS))
    client.done(bound.authorize(STEP, sample=Poisson(0.01), item="sgd"))
    client.done(account.authorize(STEP))

    (path, made), (_, spent), (_, unbound) = bodies(service)
    assert path == "/v1/datasets/d/allocations"
    budget = {"accounting": "plan", "items": ITEMS}
    assert made == {"name": "team-a", "epsilon": 1.0, "delta": 1e-6, "budget": budget}
    assert (spent["allocation"], spent["item"]) == ("team-a", "sgd")
    assert unbound.keys() == {"run", "releases"}
    assert "allocation='team-a'" in repr(bound)


@clients
def test_a_reservation_and_a_bulk_request_are_charged_to_the_allocation(asynchronous: bool) -> None:
    service = FakeService()
    client = Client(service, asynchronous)
    account = client.dataset.run("job", allocation="team-a")

    async def reserve() -> None:
        async with account.reserve(STEP, times=3, item="sgd") as hold:
            hold.release(0.0)

    if asynchronous:
        asyncio.run(reserve())
    else:
        with account.reserve(STEP, times=3, item="sgd") as hold:
            hold.release(0.0)
    client.done(client.dataset.ledger.authorize_all([account.spend(STEP, item="sgd")]))

    reserved, _, bulk = (body for _, body in bodies(service))
    for body in (reserved, bulk["items"][0]):
        assert (body["allocation"], body["item"]) == ("team-a", "sgd")


@clients
def test_an_allocation_of_another_kind_is_made_as_it_is_given(asynchronous: bool) -> None:
    service = FakeService(allocated)
    client = Client(service, asynchronous)
    with pytest.warns(BudgetWarning):
        client.done(
            client.dataset.run("job").allocate(
                "team-a", epsilon=1.0, delta=1e-6, budget={"accounting": "zcdp"}
            )
        )
    assert bodies(service)[0][1]["budget"] == {"accounting": "zcdp"}


@clients
def test_allocations_are_listed_and_returned(asynchronous: bool) -> None:
    service = FakeService()
    client = Client(service, asynchronous)

    assert client.listed(client.dataset.allocations()) == [{"path": "/v1/datasets/d/allocations"}]
    service.failures = [allocated]
    assert client.done(client.dataset.return_allocation("team a", "the study was called off")) == ALLOCATION
    assert service.requests[-1].url.raw_path == b"/v1/datasets/d/allocations/team%20a/return"
    assert bodies(service)[-1][1] == {"reason": "the study was called off"}


def test_a_restarted_job_allocates_once(tmp_path: Path) -> None:
    service = FakeService()
    for _ in range(2):
        account = Ledger("http://ledger", token="dpl_abc_secret", transport=service.transport)
        job = account.dataset("d").run("job", journal=tmp_path / "job.journal")
        job.allocate("team-a", epsilon=1.0, delta=1e-6, plan=ITEMS).authorize(STEP)
        assert job.journal is not None
        job.journal.close()
    assert len(service.entries) == 2


def refused(**fits: Any) -> str:
    """The message of a refusal with such a ``fits``."""
    service = FakeService(lambda _: problem(409, "budget-exhausted", fits=fits))
    with pytest.raises(BudgetExhausted) as raised:
        Ledger("http://ledger", transport=service.transport).dataset("d").run("job").authorize(STEP)
    return str(raised.value)


def test_a_refusal_says_which_item_is_used_up() -> None:
    assert refused(times=0, cost_fraction=0.0, item="sgd").endswith(
        "because Item 'sgd' of the plan is used up."
    )


def test_a_refusal_says_which_order_binds() -> None:
    assert refused(times=0, cost_fraction=0.4, order=10.6).endswith("because Order 10.6 binds.")


def test_a_refusal_gives_the_advice_as_sentences_and_nothing_twice() -> None:
    advice = ["order α = 10.6 binds: 0.1 is left there", "A plan budget would grant 421 steps."]
    words = refused(times=0, cost_fraction=0.4, order=10.6, advice=advice)
    assert words.endswith(
        "because Order α = 10.6 binds: 0.1 is left there. A plan budget would grant 421 steps."
    )


def test_an_item_that_has_something_left_is_not_called_used_up() -> None:
    advice = "item reserve of the plan has μ² = 0.002 of 0.0025 left; more noise costs less of it"
    words = refused(times=0, cost_fraction=0.1, item="reserve", advice=[advice])
    assert words.endswith("because I" + advice[1:] + ".")


def test_a_refusal_without_more_says_what_it_said_before() -> None:
    assert refused(times=0, cost_fraction=0.4) == "budget-exhausted: because"
