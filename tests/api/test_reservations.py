"""Reservations: held, settled, expired; silence gives nothing back."""

import pytest
import sqlalchemy as sa

from dpledger.api.schemas.responses import (
    ReservationAnswer,
    ReservationPage,
    ReservationState,
    SettlementAnswer,
)
from dpledger.storage.engine.codec import Damaged
from tests.api.service import GAUSSIAN, Service, made, problem


def spent(service: Service) -> float:
    rho: float = service.budget()["spent"]["rho"]
    return rho


def test_answers_have_the_declared_shapes(adult: Service) -> None:
    held = made(adult.reserve(2))

    ReservationAnswer.model_validate(held)
    ReservationPage.model_validate(adult.shown("/v1/datasets/adult/reservations"))
    SettlementAnswer.model_validate(made(adult.settle(held["id"], 1)))


def test_what_is_held_cannot_be_spent_elsewhere(adult: Service) -> None:
    made(adult.reserve(4))

    refused = problem(adult.reserve(1), 409, "budget-exhausted")

    assert refused["fits"]["times"] == 0
    budget = adult.budget()
    assert budget["reserved"]["open"] == 1
    assert 0.5 <= budget["reserved"]["rho"] < 0.5001
    assert budget["spent"]["rho"] >= budget["reserved"]["rho"]


def test_a_refusal_says_how_many_repetitions_fit(adult: Service) -> None:
    refused = problem(adult.reserve(10), 409, "budget-exhausted")

    assert refused["requested"]["times"] == 10
    assert refused["fits"]["times"] == 4
    made(adult.reserve(4))


@pytest.mark.parametrize("used", [0, 1, 4])
def test_settling_returns_what_did_not_run(adult: Service, used: int) -> None:
    held = made(adult.reserve(4))

    settled = made(adult.settle(held["id"], used))

    assert (settled["times"], settled["used"], settled["returned"]) == (4, used, 4 - used)
    assert used * 0.125 <= spent(adult) <= used * 0.125 * 1.000001
    assert adult.budget()["reserved"] == {"rho": 0.0, "additive_delta": 0.0, "open": 0}
    adult.verified()


def test_settling_again_with_the_same_key_is_answered_as_the_first_time(adult: Service) -> None:
    held = made(adult.reserve(4))
    first = adult.settle(held["id"], 2, key="s")

    again = adult.settle(held["id"], 2, key="s")

    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert again.headers["idempotency-replayed"] == "true"
    problem(adult.settle(held["id"], 1, key="s"), 422, "idempotency-key-reused")
    closed = problem(adult.settle(held["id"], 2), 409, "reservation-closed")
    assert (closed["reservation"], closed["how"]) == (held["id"], "settled")


@pytest.mark.parametrize("used", [-1, 5])
def test_no_more_and_no_less_than_was_held_is_settled(adult: Service, used: int) -> None:
    held = made(adult.reserve(4))

    assert problem(adult.settle(held["id"], used), 422, "invalid-input")["field"] == "used"
    made(adult.settle(held["id"], 4))


@pytest.mark.parametrize("reservation", ["adult~9", "adult", "~1", "other~2", "a%00b~2", "adult~x"])
def test_an_unknown_reservation_is_not_found(adult: Service, reservation: str) -> None:
    problem(adult.settle(reservation, 0), 404, "not-found")


def test_an_authorization_is_no_reservation(adult: Service) -> None:
    granted = made(adult.authorize())

    problem(adult.settle(granted["id"], 0), 404, "not-found")


def test_an_expired_reservation_is_charged_in_full(adult: Service) -> None:
    held = made(adult.reserve(3, seconds=60))
    adult.clock.advance(59.9)
    assert adult.app.state.services.ledger.expire_due() == 0
    adult.clock.advance(0.1)

    assert adult.app.state.services.ledger.expire_due() == 1

    assert spent(adult) >= 3 * 0.125
    assert adult.budget()["reserved"]["open"] == 0
    entry = adult.shown("/v1/datasets/adult/entries/3")
    assert (entry["kind"], entry["used"], entry["reservation"], entry["actor"]) == (
        "expired",
        3,
        held["id"],
        "service",
    )
    closed = problem(adult.settle(held["id"], 0), 409, "reservation-closed")
    assert closed["how"] == "expired"
    adult.verified()


def test_what_is_due_is_charged_before_anything_else_is_decided(adult: Service) -> None:
    held = made(adult.reserve(4, seconds=60))
    adult.clock.advance(61)

    problem(adult.settle(held["id"], 0), 409, "reservation-closed")
    problem(adult.authorize(), 409, "budget-exhausted")

    kinds = [entry["kind"] for entry in adult.shown("/v1/datasets/adult/entries")["items"]]
    assert kinds == ["opened", "reserved", "expired"]
    adult.verified()


def test_open_reservations_are_listed(adult: Service) -> None:
    first = made(adult.reserve(1, run="a", seconds=60))
    second = made(adult.reserve(2, run="b", seconds=120))
    made(adult.settle(first["id"], 1))

    (listed,) = adult.shown("/v1/datasets/adult/reservations")["items"]

    assert (listed["id"], listed["run"], listed["times"]) == (second["id"], "b", 2)
    assert listed["expires_at"] == second["expires_at"]
    assert listed["step"]["releases"] == [GAUSSIAN]


def test_pages_of_reservations_join_without_a_gap(adult: Service) -> None:
    made_ids = [made(adult.reserve(1, run=f"r{n}"))["id"] for n in range(4)]
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = adult.shown("/v1/datasets/adult/reservations", limit=3, **cursor)
        seen += [item["id"] for item in page["items"]]
        if page["next"] is None:
            break
        cursor = {"next": page["next"]}

    assert seen == made_ids


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"times": 0}, "times"),
        ({"times": 1.5}, "times"),
        ({"times": 10**7 + 1}, "times"),
        ({"expires_in_seconds": 0}, "expires_in_seconds"),
        ({"expires_in_seconds": 1e9}, "expires_in_seconds"),
        ({"sample": {"id": "adult~1"}}, "sample.id"),
    ],
)
def test_limits_of_a_reservation(still: Service, changes: dict[str, object], field: str) -> None:
    body = {"run": "r", "releases": [GAUSSIAN], "times": 1, "expires_in_seconds": 60, **changes}

    answer = still.post("/v1/datasets/adult/reservations", body)

    assert problem(answer, 422, "invalid-input")["field"] == field


def test_what_was_said_to_be_expired_stays_so_when_the_clock_goes_back(adult: Service) -> None:
    """A settlement that comes too late records the expiry, instead of telling of one that is undone."""
    held = made(adult.reserve(2))
    adult.clock.advance(61.0)
    closed = problem(adult.settle(held["id"], 0, key="late"), 409, "reservation-closed")
    kinds = [entry["kind"] for entry in adult.shown("/v1/datasets/adult/entries")["items"]]
    adult.clock.advance(-61.0)

    assert (closed["how"], kinds) == ("expired", ["opened", "reserved", "expired"])
    assert problem(adult.settle(held["id"], 0, key="late"), 409, "reservation-closed") == closed
    assert adult.budget()["reserved"]["rho"] == 0.0
    adult.verified()


def test_the_background_task_expires_what_is_due(adult: Service) -> None:
    """The task is a loop around ``expire_due``: one turn of it, with the loop's pause taken out."""
    made(adult.reserve(1, seconds=60))
    adult.clock.advance(61)
    services = adult.app.state.services
    portal = adult.client.portal
    assert portal is not None

    async def one_turn() -> int:
        found: int = await services.write(services.ledger.expire_due)
        return found

    assert portal.call(one_turn) == 1
    assert adult.budget()["reserved"]["open"] == 0


def test_a_dataset_that_cannot_be_read_does_not_keep_others_from_expiring(adult: Service) -> None:
    adult.open("census")
    for name, seconds in (("adult", 60), ("census", 61)):
        made(adult.reserve(1, dataset=name, seconds=seconds))
    services = adult.app.state.services
    with services.storage.database.begin() as session:
        session.change(sa.text("UPDATE charges SET step = 'spoilt' WHERE dataset_id = 1"), {})
    adult.clock.advance(62)

    with pytest.raises(Damaged):
        services.ledger.expire_due()
    assert adult.budget("census")["reserved"]["open"] == 0
    assert adult.budget("adult")["reserved"]["open"] == 1


def test_another_token_of_the_dataset_cannot_settle(adult: Service) -> None:
    owner, other = adult.make_token("spend"), adult.make_token("spend", datasets=["adult"])
    held = made(owner.reserve(4))
    before = spent(adult)

    refused = problem(other.settle(held["id"], 0), 403, "forbidden")

    assert refused["reservation"] == held["id"]
    assert "token that reserved" in refused["detail"]
    assert spent(adult) == before
    assert made(owner.settle(held["id"], 1))["used"] == 1


@pytest.mark.parametrize("used", [0, 4])
def test_not_even_a_full_settlement_is_another_tokens_to_state(adult: Service, used: int) -> None:
    held = made(adult.make_token("spend").reserve(4))

    problem(adult.make_token("spend").settle(held["id"], used), 403, "forbidden")


def test_an_admin_settles_for_another_token_in_full_or_with_a_statement(adult: Service) -> None:
    owner = adult.make_token("spend")
    first, second = made(owner.reserve(2)), made(owner.reserve(2))

    missing = problem(adult.settle(first["id"], 1), 422, "invalid-input")
    assert missing["field"] == "statement"
    made(adult.settle(first["id"], 2))
    path = f"/v1/reservations/{second['id']}/settlement"
    made(adult.post(path, {"used": 1, "statement": "job 7 was killed; its journal ends after one release"}))

    (_, entry) = adult.shown("/v1/datasets/adult/entries", kind="settled")["items"]
    assert entry["detail"] == {"statement": "job 7 was killed; its journal ends after one release"}
    assert entry["used"] == 1
    adult.verified()


def test_a_reservation_says_whether_it_is_open(adult: Service) -> None:
    held = made(adult.reserve(2, seconds=60))
    adult.clock.advance(20)
    path = f"/v1/reservations/{held['id']}"

    shown = adult.shown(path)

    ReservationState.model_validate(shown)
    assert (shown["id"], shown["state"], shown["times"]) == (held["id"], "open", 2)
    assert shown["expires_in_seconds"] == 40.0
    made(adult.settle(held["id"], 1))
    assert adult.shown(path)["state"] == "settled"
    later = made(adult.reserve(1, seconds=5))
    adult.clock.advance(6)
    due = adult.shown(f"/v1/reservations/{later['id']}")
    assert (due["state"], due["expires_in_seconds"]) == ("open", 0.0)
    adult.app.state.services.ledger.expire_due()
    assert adult.shown(f"/v1/reservations/{later['id']}")["state"] == "expired"


def test_the_state_of_a_reservation_is_reported_to_tokens_of_its_dataset_alone(adult: Service) -> None:
    held = made(adult.reserve(2))
    path = f"/v1/reservations/{held['id']}"

    assert adult.make_token("read", datasets=["adult"]).shown(path)["state"] == "open"
    problem(adult.make_token("read", datasets=["other"]).get(path), 403, "forbidden")
    for unknown in ("adult~9", "adult~1", "adult", "other~2"):
        problem(adult.get(f"/v1/reservations/{unknown}"), 404, "not-found")
