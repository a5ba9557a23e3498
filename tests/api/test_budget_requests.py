"""Requests for budget over HTTP: what a token may not do by itself, approved or rejected by an admin."""

from typing import Any

import pytest

from dpledger.api.schemas.responses import BudgetRequestAnswer, BudgetRequestPage, RequestDecisionAnswer
from tests.api.service import GAUSSIAN, Service, made, problem

SMALL = {**GAUSSIAN, "noise_std": 10.0}
"""ρ = 0.005, of which a hundred fit."""
BUDGET = {"accounting": "zcdp", "rho": 0.5}
SHARED = {"accounting": "shared", "epsilon": 3.0, "delta": 1e-5}
HERE = "/v1/datasets/adult/budget-requests"
QUOTAS = "/v1/datasets/adult/quotas"
RAISED = {"budget": {"accounting": "zcdp", "rho": 1.0}, "reason": "another year"}
LARGER = {"quota": {"fraction": 0.5}, "reason": "the study grew"}


def part(name: str = "study", epsilon: float = 1.0) -> dict[str, Any]:
    asked = {"name": name, "epsilon": epsilon, "delta": 1e-6, "budget": {"accounting": "zcdp"}}
    return {"allocation": asked, "reason": "a study"}


def ask(service: Service, body: dict[str, Any], key: str | None = None) -> Any:
    return service.post(HERE, body, key)


def decide(service: Service, request: str, decision: str, reason: str | None = "seen", **more: Any) -> Any:
    return service.post(f"{HERE}/{request}/decision", {"decision": decision, "reason": reason}, **more)


def withdraw(service: Service, request: str, **more: Any) -> Any:
    return service.post(f"{HERE}/{request}/withdrawal", {"reason": "not needed"}, **more)


def listed(service: Service, **query: Any) -> list[dict[str, Any]]:
    page = service.shown(HERE, **query)
    BudgetRequestPage.model_validate(page)
    items: list[dict[str, Any]] = page["items"]
    return items


@pytest.fixture
def ranking(service: Service) -> Service:
    """A token of a team on a dataset in which a hundred small steps fit."""
    service.open("adult", BUDGET)
    return service.make_token("spend", team="ranking")


@pytest.fixture
def sharing(service: Service) -> Service:
    """A token of a team on a dataset with a shared budget."""
    service.open("adult", SHARED)
    return service.make_token("spend", team="ranking")


def limit(service: Service, fraction: float | None, team: str = "ranking") -> None:
    body = {"team": team, "fraction": fraction, "reason": "agreed"}
    made(service.post("/v1/datasets/adult/quotas", body))


def test_a_request_charges_nothing_and_is_carried_out_when_it_is_approved(
    service: Service, ranking: Service
) -> None:
    before = service.budget()
    asked = made(ask(ranking, RAISED))
    BudgetRequestAnswer.model_validate(asked)
    assert asked == {
        "id": "adult~2",
        "sequence": 2,
        "dataset": "adult",
        "state": "open",
        "kind": "budget",
        "asked": {"budget": {"accounting": "zcdp", "rho": 1.0}},
        "reason": "another year",
        "actor": asked["actor"],
        "team": "ranking",
        "at": "2023-11-14T22:13:20Z",
        "decision": None,
    }
    assert {**service.budget(), "sequence": 1} == {**before, "sequence": 1}

    approved = made(decide(service, "adult~2", "approve"))
    RequestDecisionAnswer.model_validate(approved)
    assert approved["state"] == "approved"
    assert approved["decision"] == {
        "sequence": 3,
        "by": approved["decision"]["by"],
        "team": None,
        "at": "2023-11-14T22:13:20Z",
        "reason": "seen",
        "carried_out_by": 4,
    }
    assert approved["decision"]["by"] != asked["actor"]
    assert approved["remaining"]["rho"] == 1.0
    entries = service.shown("/v1/datasets/adult/entries")["items"]
    assert [each["kind"] for each in entries[1:]] == [
        "budget-requested",
        "request-approved",
        "budget-changed",
    ]
    assert entries[2]["detail"] == {"request": 2, "reason": "seen"}
    assert entries[3]["detail"] == entries[1]["detail"]["asked"]
    assert service.shown(f"{HERE}/adult~2")["state"] == "approved"
    assert service.budget()["limit"]["rho"] == 1.0
    service.verified()


def test_an_approval_raises_the_guarantee_as_a_budget_change_does(service: Service, ranking: Service) -> None:
    """The two ways differ in nothing that is proven: the same code decides."""
    made(decide(service, made(ask(ranking, RAISED))["id"], "approve"))
    lowered = {"budget": {"accounting": "zcdp", "rho": 0.1}, "reason": "over"}
    approved = made(decide(service, made(ask(ranking, lowered))["id"], "approve"))
    service.open("same", BUDGET)
    for body in (RAISED, lowered):
        sequence = service.shown("/v1/datasets/same")["sequence"]
        changed = made(
            service.post("/v1/datasets/same/budget-changes", body, headers={"If-Match": f'"{sequence}"'})
        )
    kept = {"since": None}
    assert {**approved["guarantee"], **kept} == {**changed["guarantee"], **kept}
    assert (approved["guarantee"]["rho"], approved["guarantee"]["since"]) == (1.0, 4)
    assert approved["guarantee"]["lowered"]
    assert approved["warnings"] == changed["warnings"] != []
    service.verified()


def test_a_request_for_an_allocation_is_owned_by_whoever_asked(service: Service, sharing: Service) -> None:
    asked = made(ask(sharing, part()))
    assert asked["asked"]["budget"]["accounting"] == "zcdp"
    approved = made(decide(service, asked["id"], "approve", None))
    assert approved["remaining"]["epsilon"] == 2.0
    shown = service.shown("/v1/datasets/adult/allocations/study")
    assert (shown["sequence"], shown["owner"]) == (4, asked["actor"])
    made(sharing.authorize({**GAUSSIAN, "noise_std": 30.0}, allocation="study"))
    service.verified()
    made(decide(service, made(ask(sharing, part("other")))["id"], "approve"))
    made(sharing.post("/v1/datasets/adult/allocations/other/return", {"reason": "not needed"}))
    service.verified()


def test_an_approval_that_does_not_fit_leaves_the_request_open(service: Service, sharing: Service) -> None:
    asked = made(ask(sharing, part(epsilon=2.0)))
    made(service.post("/v1/datasets/adult/allocations", part("first", 1.5)["allocation"]))
    refused = problem(decide(service, asked["id"], "approve", key="first"), 409, "budget-exhausted")
    assert refused["fits"] == {"epsilon": 1.5, "delta": pytest.approx(9e-6)}
    assert [each["state"] for each in listed(service)] == ["open"]
    assert service.shown("/v1/datasets/adult")["sequence"] == 3, "nothing was recorded"
    made(service.post("/v1/datasets/adult/allocations/first/return", {"reason": "room"}))
    again = decide(service, asked["id"], "approve", key="first")
    assert (again.status_code, again.headers["idempotency-replayed"]) == (409, "true")
    made(decide(service, asked["id"], "approve"))
    service.verified()


def test_what_the_admin_approves_is_counted_for_the_admin(service: Service, sharing: Service) -> None:
    """By the same rule as if the admin had made the call: the team's quota neither limits nor counts it."""
    limit(service, 0.1)
    own = service.make_token("admin", team="office")
    asked = made(ask(sharing, part(epsilon=1.0)))
    limit(service, 0.2, "office")
    problem(decide(own, asked["id"], "approve"), 409, "quota-exceeded")
    limit(service, 0.5, "office")
    made(decide(own, asked["id"], "approve"))
    left = {each["team"]: each["remaining"]["epsilon"] for each in service.shown(QUOTAS)["items"]}
    assert left == {"ranking": pytest.approx(0.3), "office": pytest.approx(0.5)}
    made(sharing.post("/v1/datasets/adult/allocations/study/return", {"reason": "not needed"}))
    left = {each["team"]: each["remaining"]["epsilon"] for each in service.shown(QUOTAS)["items"]}
    assert left == {"ranking": pytest.approx(0.3), "office": pytest.approx(1.5)}
    service.verified()


def test_a_larger_quota_is_asked_for_one_s_own_team(service: Service, ranking: Service) -> None:
    problem(ask(ranking, LARGER), 404, "not-found")
    limit(service, 0.02)
    made(ranking.authorize(SMALL))
    problem(ask(service, LARGER), 422, "unproven")
    problem(ask(ranking, {"quota": {"fraction": 0.02}, "reason": "no more"}), 422, "invalid-input")
    asked = made(ask(ranking, LARGER))
    assert asked["asked"] == {"team": "ranking", "fraction": 0.5, "window_seconds": None}
    made(decide(service, asked["id"], "approve"))
    (quota,) = service.shown(QUOTAS)["items"]
    assert (quota["fraction"], quota["sequence"]) == (0.5, 2), "it goes on counting"
    assert quota["remaining"]["fraction"] == pytest.approx(0.49)
    service.verified()


def test_a_quota_raised_by_approval_never_lets_the_budget_be_exceeded(
    service: Service, ranking: Service
) -> None:
    limit(service, 0.02)
    made(service.authorize({**GAUSSIAN, "noise_std": 1.02}))
    made(decide(service, made(ask(ranking, {"quota": {"fraction": 1}, "reason": "all"}))["id"], "approve"))
    made(ranking.authorize(SMALL))
    made(ranking.authorize(SMALL))
    made(ranking.authorize(SMALL))
    problem(ranking.authorize(SMALL), 409, "budget-exhausted")
    service.verified()


def test_a_request_is_outdated_once_what_it_changes_has_changed(service: Service, ranking: Service) -> None:
    budget = made(ask(ranking, RAISED))["id"]
    higher = {"budget": {"accounting": "zcdp", "rho": 2.0}, "reason": "more"}
    made(decide(service, made(ask(ranking, higher))["id"], "approve"))
    outdated = problem(decide(service, budget, "approve"), 409, "request-outdated")
    assert outdated["why"] == "the budget was changed after the request was made"
    assert service.budget()["limit"]["rho"] == 2.0, "it would have lowered it"
    made(decide(service, budget, "reject"))

    limit(service, 0.02)
    quota = made(ask(ranking, LARGER))["id"]
    limit(service, 0.6)
    problem(decide(service, quota, "approve"), 409, "request-outdated")
    limit(service, None)
    problem(decide(service, quota, "approve"), 409, "request-outdated")
    made(withdraw(ranking, quota))
    service.verified()


def test_an_allocation_s_name_that_was_taken_meanwhile_is_refused(service: Service, sharing: Service) -> None:
    one, two = made(ask(sharing, part()))["id"], made(ask(sharing, part()))["id"]
    made(decide(service, one, "approve"))
    problem(decide(service, two, "approve"), 409, "already-exists")
    problem(ask(sharing, part()), 409, "already-exists")
    assert [each["id"] for each in listed(service, state="open")] == [two]
    service.verified()


def test_a_request_is_decided_once(service: Service, ranking: Service) -> None:
    for first in ("approve", "reject", "withdraw"):
        asked = made(ask(ranking, RAISED))["id"]
        made(withdraw(ranking, asked) if first == "withdraw" else decide(service, asked, first))
        for again in (decide(service, asked, "approve"), decide(service, asked, "reject")):
            closed = problem(again, 409, "request-closed")
            assert closed["request"] == asked
        problem(withdraw(ranking, asked), 409, "request-closed")
    states = [each["state"] for each in listed(service)]
    assert states == ["approved", "rejected", "withdrawn"]
    assert listed(service, state="open") == []
    service.verified()


def test_only_an_admin_decides_and_only_the_requester_withdraws(service: Service, ranking: Service) -> None:
    asked = made(ask(ranking, RAISED))["id"]
    problem(decide(ranking, asked, "approve"), 403, "forbidden")
    problem(decide(ranking, asked, "reject"), 403, "forbidden")
    other = service.make_token("spend", team="ranking")
    problem(withdraw(other, asked), 403, "forbidden")
    problem(withdraw(service, asked), 403, "forbidden")
    problem(ask(service.make_token("read"), RAISED), 403, "forbidden")
    problem(decide(service, asked, "reject", None), 422, "invalid-input")
    problem(decide(service, asked, "perhaps"), 422, "invalid-input")
    for absent in ("adult~1", "adult~99", "other~2", "none"):
        problem(decide(service, absent, "reject"), 404, "not-found")
        problem(service.get(f"{HERE}/{absent}"), 404, "not-found")
    assert [each["state"] for each in listed(service)] == ["open"]


@pytest.mark.parametrize(
    "body",
    [
        {"reason": "nothing"},
        {**RAISED, **LARGER},
        {**RAISED, "reason": ""},
        {**RAISED, "reason": "x" * 2001},
        {"budget": {"accounting": "gdp", "mu": 1.0}, "reason": "another rule"},
        {"budget": {"accounting": "zcdp", "rho": -1.0}, "reason": "less than nothing"},
        {"quota": {"fraction": 1.5}, "reason": "more than all"},
        {"allocation": part()["allocation"], "reason": "not shared"},
    ],
)
def test_what_cannot_be_asked_is_refused(service: Service, ranking: Service, body: dict[str, Any]) -> None:
    assert ask(ranking, body).status_code == 422
    assert listed(service) == []


def test_every_answer_is_given_again_under_its_key(service: Service, ranking: Service) -> None:
    first = ask(ranking, RAISED, key="ask")
    decided = decide(service, made(first)["id"], "approve", key="yes")
    for answer, again in (
        (first, ask(ranking, RAISED, key="ask")),
        (decided, decide(service, "adult~2", "approve", key="yes")),
    ):
        assert again.headers["idempotency-replayed"] == "true"
        assert again.content == answer.content
    problem(ask(ranking, LARGER, key="ask"), 422, "idempotency-key-reused")
    problem(decide(service, "adult~2", "reject", key="yes"), 422, "idempotency-key-reused")
    assert service.shown("/v1/datasets/adult")["sequence"] == 4


def test_so_many_requests_may_be_open(
    service: Service, ranking: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpledger.ledger.requests.MAX_OPEN_REQUESTS_PER_TOKEN", 2)
    monkeypatch.setattr("dpledger.ledger.requests.MAX_OPEN_REQUESTS", 3)
    asked = [made(ask(ranking, RAISED))["id"] for _ in range(2)]
    full = problem(ask(ranking, RAISED), 409, "too-many-requests")
    assert (full["open_requests"], full["most"]) == (2, 2)
    made(ask(service, RAISED))
    problem(ask(service, RAISED), 409, "too-many-requests")
    made(withdraw(ranking, asked[0]))
    made(ask(ranking, RAISED))


def test_pages_and_states(service: Service, ranking: Service) -> None:
    ids = [made(ask(ranking, RAISED))["id"] for _ in range(5)]
    made(decide(service, ids[1], "reject"))
    page = service.shown(HERE, state="open", limit=2)
    assert [each["id"] for each in page["items"]] == [ids[0], ids[2]]
    rest = service.shown(HERE, state="open", limit=2, next=page["next"])
    assert [each["id"] for each in rest["items"]] == ids[3:]
    assert rest["next"] is None
    assert [each["id"] for each in listed(service, state="rejected")] == [ids[1]]
    problem(service.get(HERE, state="pending"), 422, "invalid-input")


def test_open_requests_of_all_datasets_are_read_oldest_first(service: Service, ranking: Service) -> None:
    service.open("birds", BUDGET)
    first = made(service.post("/v1/datasets/birds/budget-requests", RAISED))["id"]
    service.clock.advance(1)
    second, third = made(ask(ranking, RAISED))["id"], made(ask(ranking, RAISED))["id"]
    reader = service.app.state.services.reader
    assert [each["id"] for each in reader.open_requests(10)] == [first, second, third]
    assert [each["id"] for each in reader.open_requests(10, ["adult"])] == [second, third]
    assert reader.open_requests(10, []) == []
    at_us = service.clock.now_us()
    assert [each["id"] for each in reader.open_requests(10, None, (at_us, "adult", 2))] == [third]
    assert [each["id"] for each in reader.open_requests(1)] == [first]
    made(decide(service, second, "reject"))
    assert [each["id"] for each in reader.open_requests(10)] == [first, third]


ALTERATIONS = {
    "its state": "UPDATE budget_requests SET state = 0, decided_at = NULL",
    "what was asked": "UPDATE budget_requests SET asked = replace(asked, '1.0', '9.0')",
    "who asked": "UPDATE budget_requests SET actor = 'eve'",
    "who decided": "UPDATE budget_requests SET decided_by = 'eve'",
    "why": "UPDATE budget_requests SET decision_reason = 'none'",
    "all of it": "DELETE FROM budget_requests",
}


@pytest.mark.parametrize("what", ALTERATIONS)
def test_a_stored_request_that_was_altered_is_found_out(
    service: Service, ranking: Service, what: str
) -> None:
    made(decide(service, made(ask(ranking, RAISED))["id"], "approve"))
    engine = service.app.state.services.storage.database.engine
    with engine.begin() as connection:
        assert connection.exec_driver_sql(ALTERATIONS[what]).rowcount == 1
    found = service.shown("/v1/datasets/adult/verification")
    assert not found["valid"]
    assert found["problems"][0].startswith("request 2 is stored")
