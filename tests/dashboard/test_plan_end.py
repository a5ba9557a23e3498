"""When a run's plan ends: at its own rate, and not where it has none."""

import re
from typing import Any

from dpledger.dashboard import formatting as wording
from tests.api.service import Service, made
from tests.dashboard.test_agreement import headline
from tests.dashboard.visitor import Visitor

STEP: dict[str, Any] = {
    "sample": {"scheme": "poisson", "rate": 0.01},
    "releases": [{"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": 2.0}],
}
OTHER: dict[str, Any] = {"releases": [{"mechanism": "laplace", "sensitivity": 1.0, "scale": 100.0}]}
PLAN: dict[str, Any] = {
    "accounting": "plan",
    "epsilon": 1.0,
    "delta": 1e-6,
    "items": [{"name": "sgd", "times": 40, **STEP}, {"name": "looks", "times": 5, **OTHER}],
}
MINUTE_SECONDS = 60.0


def spend(service: Service, run: str, what: dict[str, Any] = STEP) -> None:
    made(service.post("/v1/datasets/adult/authorizations", {"run": run, **what}))


def said(visitor: Visitor, run: str) -> str:
    return headline(visitor.page(f"/datasets/adult/run?name={run}"))


def test_the_end_of_a_plan_follows_from_the_run_s_own_rate(service: Service, visitor: Visitor) -> None:
    service.open(budget=PLAN)
    spend(service, "looker", OTHER)
    for _ in range(10):
        service.clock.advance(MINUTE_SECONDS)
        spend(service, "trainer")
    end = wording.instant_text(service.clock.at_us + 30 * 60_000_000)

    found = said(visitor, "trainer")

    assert f"{end[:10]} at about {end[11:16]} UTC its plan ends" in found
    assert "30 steps are left of sgd, 60 per hour" in found


def test_steps_of_others_are_not_left_to_a_run_and_those_it_holds_are(
    service: Service, visitor: Visitor
) -> None:
    service.open(budget=PLAN)
    for run in ("other", "trainer", "other", "trainer"):
        service.clock.advance(MINUTE_SECONDS)
        spend(service, run)
    for run, times in (("trainer", 10), ("other", 5)):
        body = {"run": run, "times": times, "expires_in_seconds": 3600.0, **STEP}
        made(service.post("/v1/datasets/adult/reservations", body))

    assert "31 steps are left of sgd" in said(visitor, "trainer")
    assert "26 steps are left of sgd" in said(visitor, "other")


def test_a_run_that_is_still_or_began_just_now_has_no_end(service: Service, visitor: Visitor) -> None:
    service.open(budget=PLAN)
    spend(service, "trainer")
    assert "there is no end to expect: 39 steps are left of sgd" in said(visitor, "trainer")
    for _ in range(3):
        service.clock.advance(MINUTE_SECONDS)
        spend(service, "trainer")
    assert "its plan ends" in said(visitor, "trainer")

    service.clock.advance(11 * MINUTE_SECONDS)

    assert "It has not spent for a while" in said(visitor, "trainer")
    assert "per hour" not in said(visitor, "trainer")


def test_a_settled_block_counts_as_the_steps_that_ran(service: Service, visitor: Visitor) -> None:
    service.open(budget=PLAN)
    for _ in range(2):
        body = {"run": "trainer", "times": 10, "expires_in_seconds": 3600.0, **STEP}
        held = made(service.post("/v1/datasets/adult/reservations", body))
        service.clock.advance(10 * MINUTE_SECONDS)
        made(service.settle(held["id"], 10))

    found = said(visitor, "trainer")

    assert "20 steps are left of sgd, 60 per hour" in found


def test_a_plan_that_is_used_up_is_at_its_end(service: Service, visitor: Visitor) -> None:
    service.open(budget=PLAN)
    for _ in range(5):
        service.clock.advance(MINUTE_SECONDS)
        spend(service, "looker", OTHER)

    assert "At its end No step is left of looks" in said(visitor, "looker")


def test_without_a_plan_there_is_no_end(service: Service, visitor: Visitor) -> None:
    service.open()
    made(service.authorize())

    assert not re.search(r"plan|no end to expect", said(visitor, "run-1"))


def test_the_noise_is_what_the_mechanism_says(service: Service, visitor: Visitor) -> None:
    service.open(budget=PLAN)
    spend(service, "trainer")
    spend(service, "looker", OTHER)

    assert "Noise of gaussian 2 × sensitivity" in said(visitor, "trainer")
    assert "Noise of laplace 100 × sensitivity" in said(visitor, "looker")
