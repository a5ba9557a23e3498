"""What meets in one group, and what moves while somebody looks."""

import asyncio
from typing import Any
from unittest import mock

import pytest
from fastapi import APIRouter

from dpledger.accounting.errors import Unproven
from dpledger.accounting.sampling import Sample, Scheme
from dpledger.accounting.steps import Release
from dpledger.api.http.routing import GuardedRoute, public
from dpledger.ledger.errors import KeyReused, NotFound, TokenEnded, Unavailable
from dpledger.ledger.model.requests import Authorization, Spend
from dpledger.ledger.ports import IdempotentRequest
from dpledger.ledger.results import Grant, SpendRefusal
from tests.api.service import GAUSSIAN, Service, made

RELEASE = Release.from_fields(GAUSSIAN)


def asked(service: Service, key: str, run: str = "r", **more: Any) -> Authorization:
    spend = Spend("adult", run, (RELEASE,), **{"sample": Sample(), **more})
    actor = service.token.split("_")[1]
    return Authorization(spend, IdempotentRequest(actor, key.encode().ljust(16), run.encode().ljust(16)))


def body_of(service: Service, result: Any) -> bytes:
    response: bytes = service.app.state.services.responses.respond(result).body
    return response


def test_one_group_answers_each_of_its_requests(adult: Service) -> None:
    group = [
        asked(adult, "a"),
        asked(adult, "a"),
        asked(adult, "a", run="other"),
        asked(adult, "b", sample=Sample(Scheme.POISSON, 0.1)),
        asked(adult, "c", partition="nowhere"),
        *[asked(adult, f"d{number}") for number in range(4)],
        asked(adult, "d3"),
        asked(adult, "d3", run="other"),
    ]

    replies = adult.app.state.services.ledger.batches.decide("adult", group)

    first, again, other, unproven, nowhere, *rest, last, last_again, last_other = replies
    assert isinstance(first, Grant)
    assert (again.replayed, body_of(adult, again)) == (True, body_of(adult, first))
    assert isinstance(other, KeyReused)
    assert isinstance(unproven, Unproven)
    assert isinstance(nowhere, NotFound)
    assert [type(each) for each in rest] == [Grant] * 3
    assert isinstance(last, SpendRefusal)
    assert (last_again.replayed, body_of(adult, last_again)) == (True, body_of(adult, last))
    assert isinstance(last_other, KeyReused)
    assert adult.sequence() == 5
    adult.verified()


def test_a_later_group_answers_from_what_is_stored(adult: Service) -> None:
    ledger = adult.app.state.services.ledger
    (first,) = ledger.batches.decide("adult", [asked(adult, "a")])

    again, other, fresh = ledger.batches.decide(
        "adult", [asked(adult, "a"), asked(adult, "a", run="other"), asked(adult, "b")]
    )

    assert (again.replayed, body_of(adult, again)) == (True, body_of(adult, first))
    assert isinstance(other, KeyReused)
    assert fresh.outcome == "granted"


def test_an_ended_token_ends_its_own_requests_alone(adult: Service) -> None:
    stranger = asked(adult, "a")
    stranger = Authorization(stranger.spend, stranger.call._replace(actor="stranger"))

    ended, granted = adult.app.state.services.ledger.batches.decide("adult", [stranger, asked(adult, "a")])

    assert isinstance(ended, TokenEnded)
    assert granted.outcome == "granted"


def test_a_group_for_an_unknown_dataset_fails_as_one(service: Service) -> None:
    with pytest.raises(NotFound):
        service.app.state.services.ledger.batches.decide("adult", [asked(service, "a")])


def test_verification_holds_a_ledger_still_that_never_stands_still(adult: Service) -> None:
    """Between reading the state and its partitions somebody spends, each time."""
    made(adult.post("/v1/datasets/adult/partitions", {"names": ["p"]}))
    small = {**GAUSSIAN, "noise_std": 100.0}
    storage = adult.app.state.services.storage
    read_partitions = storage.partitions
    moves: list[int] = []

    def partitions(dataset_id: int, after: int, limit: int) -> Any:
        found = read_partitions(dataset_id, after, limit)
        if after < 0 and len(moves) < 3:
            moves.append(made(adult.authorize(small, partition="p"))["sequence"])
        return found

    with mock.patch.object(storage, "partitions", partitions):
        verdict = adult.app.state.services.reader.verification("adult")

    assert moves == [3, 4, 5]
    assert verdict["valid"] is True
    assert verdict["sequence"] == 5


@pytest.mark.parametrize("error", [Unavailable("away"), ZeroDivisionError("a fault")])
def test_expiry_goes_on_after_an_error(adult: Service, error: Exception) -> None:
    services = adult.app.state.services
    calls: list[str] = []

    def fail() -> int:
        calls.append("called")
        raise error

    async def some_turns() -> None:
        with mock.patch.object(services, "settings", mock.Mock(expiry_seconds=0.0)):
            task = asyncio.get_running_loop().create_task(services._expire_now_and_then())
            while len(calls) < 3:
                await asyncio.sleep(0.001)
            task.cancel()

    portal = adult.client.portal
    assert portal is not None
    with mock.patch.object(services.ledger, "expire_due", fail):
        portal.call(some_turns)

    assert len(calls) >= 3


def test_a_route_without_a_scope_does_not_start() -> None:
    router = APIRouter(route_class=GuardedRoute)

    def forgotten() -> None: ...

    with pytest.raises(TypeError, match="has no scope"):
        router.get("/forgotten")(forgotten)
    router.get("/open")(public()(forgotten))


@pytest.mark.parametrize("holds", [False, True])
def test_equal_steps_of_an_allocation_are_decided_one_after_another(service: Service, holds: bool) -> None:
    """Also while a reservation is open in it: each of them on what those before it in the group have left."""
    service.open("adult", {"accounting": "shared", "epsilon": 3.0, "delta": 1e-3})
    part = {"name": "part", "epsilon": 1.0, "delta": 1e-5, "budget": {"accounting": "zcdp"}}
    made(service.post("/v1/datasets/adult/allocations", part))
    limit = service.shown("/v1/datasets/adult/allocations/part")["limit"]["rho"]
    cost = 0.9 * limit / 3
    if holds:
        tiny = {"mechanism": "zcdp", "rho": 1e-9}
        body = {"run": "r", "releases": [tiny], "allocation": "part", "times": 1, "expires_in_seconds": 60}
        made(service.post("/v1/datasets/adult/reservations", body))
    release = Release.from_fields({"mechanism": "zcdp", "rho": cost})
    spend = Spend("adult", "r", (release,), sample=Sample(), allocation="part")
    charge = service.app.state.services.ledger.charge(spend)
    group = [Authorization(spend, asked(service, f"k{number}").call, charge) for number in range(8)]

    replies = service.app.state.services.ledger.batches.decide("adult", group)

    assert [type(each) for each in replies] == [Grant] * 3 + [SpendRefusal] * 5
    shown = service.shown("/v1/datasets/adult/allocations/part")
    assert 3 * cost <= shown["spent"]["rho"] <= limit
    service.verified()


def test_equal_steps_of_a_group_stop_at_the_quota(service: Service) -> None:
    """Those of the team at its quota, those of others not."""
    service.open("adult", {"accounting": "zcdp", "rho": 0.5})
    team = service.make_token("spend", team="ranking")
    limit = {"team": "ranking", "fraction": 0.1, "reason": "a tenth"}
    made(service.post("/v1/datasets/adult/quotas", limit))
    release = Release.from_fields({"mechanism": "zcdp", "rho": 0.02})
    spend = Spend("adult", "r", (release,), sample=Sample())
    charge = service.app.state.services.ledger.charge(spend)
    callers = [team] * 4 + [service] * 2 + [team] * 2
    group = [
        Authorization(spend, asked(caller, f"k{number}").call, charge)
        for number, caller in enumerate(callers)
    ]

    replies = service.app.state.services.ledger.batches.decide("adult", group)

    assert [type(each) for each in replies] == [Grant] * 2 + [SpendRefusal] * 2 + [Grant] * 2 + [
        SpendRefusal
    ] * 2
    service.verified()
