"""Quotas over HTTP: a limit to the use of one team, beside the budget, which alone is a guarantee."""

import functools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from dpledger.api.schemas.responses import QuotaAnswer, QuotaPage
from dpledger.storage.repositories import quotas
from tests.api.service import GAUSSIAN, START_US, ZCDP, Service, made, problem

SMALL = {**GAUSSIAN, "noise_std": 10.0}
"""ρ = 0.005, of which a hundred fit."""
HOUR = 3600
BUDGET = {"accounting": "zcdp", "rho": 0.5}


def limit(service: Service, fraction: float | None, window: int | None = None, **more: Any) -> Any:
    body = {"team": "ranking", "fraction": fraction, "window_seconds": window, "reason": "agreed", **more}
    return service.post("/v1/datasets/adult/quotas", body)


def listed(service: Service) -> list[dict[str, Any]]:
    page = service.shown("/v1/datasets/adult/quotas")
    QuotaPage.model_validate(page)
    items: list[dict[str, Any]] = page["items"]
    return items


@pytest.fixture
def ranking(service: Service) -> Service:
    """A token of a team on a dataset in which a hundred small steps fit."""
    service.open("adult", BUDGET)
    return service.make_token("spend", team="ranking")


def step(**more: Any) -> dict[str, Any]:
    return {"dataset": "adult", "run": "run-1", "releases": [SMALL], **more}


def test_a_quota_is_set_changed_and_removed_as_entries(service: Service, ranking: Service) -> None:
    first = made(limit(service, 0.25, HOUR))
    QuotaAnswer.model_validate(first)
    assert (first["sequence"], first["since"], first["remaining"]["rho"]) == (2, 2, pytest.approx(0.125))
    made(ranking.authorize(SMALL))
    changed = made(limit(service, 0.5, HOUR))
    assert (changed["sequence"], changed["since"]) == (4, 2)
    assert changed["remaining"]["fraction"] == pytest.approx(0.49), "it goes on counting"
    made(limit(service, 0.9))
    assert [(each["fraction"], each["window_seconds"]) for each in listed(service)] == [
        (0.5, HOUR),
        (0.9, None),
    ]

    removed = made(limit(service, None, HOUR))
    QuotaAnswer.model_validate(removed)
    assert removed == {
        "dataset": "adult",
        "sequence": 6,
        "team": "ranking",
        "fraction": None,
        "window_seconds": HOUR,
    }
    problem(limit(service, None, HOUR), 404, "not-found")
    assert [each["window_seconds"] for each in listed(service)] == [None]
    detail = service.shown("/v1/datasets/adult/entries/6")["detail"]
    assert detail == {"team": "ranking", "fraction": None, "window_seconds": HOUR, "reason": "agreed"}
    service.verified()


def test_only_an_admin_sets_a_quota_and_only_with_a_reason(service: Service, ranking: Service) -> None:
    problem(limit(ranking, 0.5), 403, "forbidden")
    problem(limit(service, 0.5, reason=""), 422, "invalid-input")


@pytest.mark.usefixtures("ranking")
@pytest.mark.parametrize("fraction", [0, -0.1, 1.5, "half", True])
def test_a_fraction_that_is_none_is_refused(service: Service, fraction: Any) -> None:
    problem(limit(service, fraction), 422, "invalid-input")


@pytest.mark.usefixtures("ranking")
@pytest.mark.parametrize("window", [0, -1, 1.5, 10**12, "week"])
def test_a_window_that_is_none_is_refused(service: Service, window: Any) -> None:
    problem(limit(service, 0.5, window), 422, "invalid-input")
    assert listed(service) == []


def test_over_the_quota_is_refused_for_good_under_its_key_and_charges_nothing(
    service: Service, ranking: Service
) -> None:
    made(limit(service, 0.02, HOUR))
    made(ranking.authorize(SMALL))
    made(ranking.authorize(SMALL))
    before = service.budget()
    refused = problem(ranking.authorize(SMALL, key="third"), 409, "quota-exceeded")

    assert refused["quota"] == {
        "team": "ranking",
        "fraction": 0.02,
        "window_seconds": HOUR,
        "sequence": 2,
        "open_reservations": 0,
        "remaining": {"fraction": pytest.approx(0.0, abs=1e-12), "rho": pytest.approx(0.0, abs=1e-12)},
        "frees_at": refused["quota"]["frees_at"],
    }
    assert "2023-11-14T23:13:20Z" < refused["quota"]["frees_at"] <= "2023-11-14T23:15:15Z"
    assert refused["remaining"]["fraction"] == pytest.approx(0.98)
    assert service.budget() == before
    assert listed(service)[0]["frees_at"] == refused["quota"]["frees_at"]

    service.clock.advance(2 * HOUR)
    again = ranking.authorize(SMALL, key="third")
    assert (again.status_code, again.headers["idempotency-replayed"]) == (409, "true")
    assert again.json() == refused
    made(ranking.authorize(SMALL))
    assert listed(service)[0]["remaining"]["fraction"] == pytest.approx(0.01)
    service.verified()


def test_others_are_not_limited_and_the_budget_decides_first(service: Service, ranking: Service) -> None:
    made(limit(service, 0.02))
    other = service.make_token("spend", team="search")
    made(other.reserve(97, releases=[SMALL]))
    made(ranking.authorize(SMALL))
    problem(ranking.reserve(2, releases=[SMALL]), 409, "quota-exceeded")
    made(service.authorize(SMALL))
    problem(ranking.reserve(2, releases=[SMALL]), 409, "budget-exhausted")
    made(ranking.authorize(SMALL))
    service.verified()


def test_what_is_reserved_counts_as_used_and_settlement_gives_it_back(
    service: Service, ranking: Service
) -> None:
    made(limit(service, 0.1, HOUR))
    held = made(ranking.reserve(10, releases=[SMALL], seconds=3 * HOUR))
    service.clock.advance(2 * HOUR)
    refused = problem(ranking.authorize(SMALL), 409, "quota-exceeded")
    assert refused["quota"]["frees_at"] is None
    assert refused["quota"]["open_reservations"] == 1

    # An admin settles, and the quota of the team that reserved has it back.
    made(
        service.post(
            f"/v1/reservations/{held['id']}/settlement", {"used": 4, "statement": "the job has ended"}
        )
    )
    answer = problem(ranking.reserve(7, releases=[SMALL]), 409, "quota-exceeded")
    assert answer["fits"]["times"] == 6
    made(ranking.reserve(6, releases=[SMALL], seconds=60))
    service.clock.advance(120)
    problem(ranking.authorize(SMALL), 409, "quota-exceeded")
    service.verified()


def test_lists_are_held_to_the_quota(service: Service, ranking: Service) -> None:
    made(limit(service, 0.02))
    refused = problem(ranking.bulk("all-or-nothing", step(), step(), step()), 409, "quota-exceeded")
    assert [list(each) for each in refused["results"]] == [["not_taken"], ["not_taken"], ["refused"]]
    each = made(ranking.bulk("each", step(), step(), step()))
    assert [next(iter(result)) for result in each["results"]] == ["granted", "granted", "refused"]
    assert each["results"][2]["refused"]["quota"]["team"] == "ranking"
    long = made(ranking.bulk("each", *[step(run=f"run-{number}") for number in range(40)]))
    assert {next(iter(result)) for result in long["results"]} == {"refused"}
    service.verified()


def test_a_long_list_is_held_to_the_quota(service: Service, ranking: Service) -> None:
    """Long lists are decided before their ledgers are locked."""
    made(limit(service, 0.02))
    long = made(ranking.bulk("each", *[step(run=f"run-{number}") for number in range(40)]))
    found = [next(iter(result)) for result in long["results"]]
    assert (found[:2], set(found[2:])) == (["granted", "granted"], {"refused"})
    service.verified()


def test_many_at_once_are_granted_what_the_quota_has(service: Service, ranking: Service) -> None:
    made(limit(service, 0.1, HOUR))
    with ThreadPoolExecutor(64) as pool:
        answers = list(pool.map(lambda number: ranking.authorize(SMALL, key=f"k{number}"), range(64)))
    statuses = [answer.status_code for answer in answers]
    assert (statuses.count(201), statuses.count(409)) == (10, 54)
    assert {answer.json().get("type") for answer in answers} == {None, "/problems/quota-exceeded"}
    service.verified()


def test_in_a_shared_budget_what_a_team_allocates_counts(service: Service) -> None:
    service.open("adult", {"accounting": "shared", "epsilon": 3.0, "delta": 1e-5})
    team = service.make_token("spend", team="ranking")
    made(limit(service, 0.5))

    def allocate(name: str, epsilon: float) -> Any:
        body = {"name": name, "epsilon": epsilon, "delta": 1e-6, "budget": {"accounting": "zcdp"}}
        return team.post("/v1/datasets/adult/allocations", body)

    made(allocate("a", 1.0))
    refused = problem(allocate("b", 0.6), 409, "quota-exceeded")
    assert refused["fits"] == {"epsilon": 0.5, "delta": pytest.approx(4e-6)}
    made(team.authorize({**GAUSSIAN, "noise_std": 30.0}, allocation="a"))
    made(allocate("c", 0.5))
    problem(team.authorize({**GAUSSIAN, "noise_std": 0.1}, allocation="c"), 409, "budget-exhausted")
    made(team.post("/v1/datasets/adult/allocations/c/return", {"reason": "not needed"}))
    made(allocate("d", 0.5))
    problem(allocate("e", 0.1), 409, "quota-exceeded")
    service.verified()


@pytest.mark.usefixtures("ranking")
def test_quotas_and_partitions_are_not_combined(service: Service) -> None:
    made(limit(service, 0.5))
    problem(service.post("/v1/datasets/adult/partitions", {"names": ["north"]}), 422, "unproven")
    service.open("parted", ZCDP)
    made(service.post("/v1/datasets/parted/partitions", {"names": ["north"]}))
    body = {"team": "ranking", "fraction": 0.5, "reason": "agreed"}
    problem(service.post("/v1/datasets/parted/quotas", body), 422, "unproven")


@pytest.mark.usefixtures("ranking")
def test_there_is_an_end_to_quotas(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpledger.ledger.quotas.MAX_QUOTAS", 2)
    made(limit(service, 0.5))
    made(limit(service, 0.4, HOUR))
    problem(limit(service, 0.3, 2 * HOUR), 422, "invalid-input")
    made(limit(service, 0.3, HOUR))


def test_a_stored_quota_that_was_altered_is_found_out(service: Service, ranking: Service) -> None:
    made(limit(service, 0.5))
    made(ranking.authorize(SMALL))
    engine = service.app.state.services.storage.database.engine
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE quotas SET slices = '[]'")
    found = service.shown("/v1/datasets/adult/verification")
    assert not found["valid"]
    assert found["problems"][0].startswith("quota of entry 2 is stored as 0.5 for ranking")
    with engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM quotas")
    found = service.shown("/v1/datasets/adult/verification")
    assert found["problems"] == ["quota of entry 2 is stored or recorded, but not both"]


def test_a_refusal_by_a_quota_is_kept_as_such(service: Service, ranking: Service) -> None:
    made(limit(service, 0.01))
    made(ranking.authorize(SMALL))
    problem(ranking.authorize(SMALL), 409, "quota-exceeded")
    service.clock.at_us = START_US + 1
    engine = service.app.state.services.storage.database.engine
    with engine.connect() as connection:
        rows = connection.exec_driver_sql("SELECT team, fits_times FROM refusals").fetchall()
    assert [tuple(row) for row in rows] == [("ranking", 0)]


def test_without_quotas_nothing_is_asked_about_them(
    service: Service, ranking: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No step nor reservation of a team executes a statement about quotas where there are none."""
    asked: list[str] = []
    for name in ("find_quotas", "count_quotas", "save_quotas", "quotas_page"):
        product = getattr(quotas, name)
        monkeypatch.setattr(quotas, name, functools.partial(_noting, asked, name, product))
    made(ranking.authorize(SMALL))
    made(ranking.bulk("each", step()))
    made(ranking.settle(made(ranking.reserve(2, releases=[SMALL]))["id"], 1))
    service.verified()
    assert asked == []

    made(limit(service, 0.5))
    asked.clear()
    made(service.authorize(SMALL))
    assert asked == [], "the caller is of no team"
    made(ranking.authorize(SMALL))
    assert asked == ["find_quotas", "save_quotas"]


def _noting(asked: list[str], name: str, product: Any, *arguments: Any) -> Any:
    asked.append(name)
    return product(*arguments)
