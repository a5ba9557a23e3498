"""The metrics, read as Prometheus reads it."""

import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from dpledger import __version__
from dpledger.api.app import create_app
from dpledger.api.metrics import AUTHORIZATIONS, SECONDS, Distribution, Metrics
from dpledger.ledger.results import StoredResult
from dpledger.settings import Settings
from tests.api.service import GAUSSIAN, ZCDP, Service, SetClock, problem

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def read(service: Service) -> Samples:
    answer = service.get("/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return parsed(answer.text)


def parsed(text: str) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples.get((name, frozenset(labels.items())), 0.0)


def decisions(samples: Samples, operation: str) -> dict[str, float]:
    outcomes = ("granted", "refused", "replayed", "error")
    found = {
        each: value(samples, "dpledger_decisions_total", operation=operation, outcome=each)
        for each in outcomes
    }
    return {outcome: count for outcome, count in found.items() if count}


def test_decisions_are_counted_by_outcome(adult: Service) -> None:
    for key in ("a", "b", "c", "d", "d"):
        assert adult.authorize(key=key).status_code == 201
    assert adult.authorize(key="e").status_code == 409
    assert adult.authorize({**GAUSSIAN, "noise_std": 3.0}, key="a").status_code == 422

    found = read(adult)

    assert decisions(found, "authorize") == {"granted": 4, "refused": 1, "replayed": 1, "error": 1}
    assert decisions(found, "open_dataset") == {"granted": 1}


def test_other_operations_have_names_of_their_own(adult: Service) -> None:
    assert adult.reserve(1, key="r").status_code == 201
    assert adult.reserve(1, key="r").status_code == 201
    assert adult.reserve(100).status_code == 409
    assert adult.settle("adult~2", 5).status_code == 422
    assert adult.settle("adult~2", 1).status_code == 201
    item = {"dataset": "adult", "run": "run-1", "releases": [GAUSSIAN]}
    assert adult.bulk("each", item).status_code == 201

    found = read(adult)

    assert decisions(found, "reserve") == {"granted": 1, "refused": 1, "replayed": 1}
    assert decisions(found, "settle") == {"granted": 1, "error": 1}
    assert decisions(found, "authorize_all") == {"granted": 1}


def test_requests_are_timed_by_the_route_as_it_is_described(adult: Service) -> None:
    for _ in range(3):
        adult.authorize()
        adult.budget()
    adult.client.get("/no/such/page")

    found = read(adult)

    def count(method: str, route: str) -> float:
        return value(found, "dpledger_request_seconds_count", method=method, route=route)

    assert count("POST", "/v1/datasets/{dataset}/authorizations") == 3
    assert count("GET", "/v1/datasets/{dataset}/budget") == 3
    assert count("POST", "/v1/datasets") == 1
    assert count("GET", "unknown") == 1
    routes = {dict(labels).get("route") for name, labels in found if name == "dpledger_request_seconds_count"}
    assert not any("adult" in str(route) for route in routes)


def test_groups_are_measured(adult: Service) -> None:
    for _ in range(3):
        adult.authorize()

    found = read(adult)

    assert value(found, "dpledger_group_size_count") == 3
    assert value(found, "dpledger_group_size_sum") == 3
    assert value(found, "dpledger_group_size_bucket", le="1") == 3
    assert value(found, "dpledger_group_seconds_count") == 3
    assert 0 < value(found, "dpledger_group_seconds_sum") < 60


def test_waiting_for_a_lock_is_measured(adult: Service) -> None:
    """Somebody else holds the dataset for a while: every database has its own way to wait for that."""
    held_seconds = 1.5
    storage = adult.app.state.services.storage
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with storage.begin() as transaction:
            transaction.lock(["adult"])
            held.set()
            done.wait(held_seconds)

    before = value(read(adult), "dpledger_lock_wait_seconds_sum")
    holding = threading.Thread(target=hold)
    holding.start()
    assert held.wait(60.0)
    assert adult.authorize().status_code == 201
    holding.join()

    found = read(adult)
    assert value(found, "dpledger_lock_wait_seconds_sum") - before > 0.15
    assert value(found, "dpledger_lock_wait_seconds_bucket", le="+Inf") >= 2


@pytest.fixture
def chosen(tmp_path: Path) -> Iterator[Service]:
    """A service that is to tell what is left of two datasets, one of which nobody opened."""
    reported: list[str] = []
    settings = Settings(
        f"sqlite:///{tmp_path / 'ledger.db'}", tmp_path / "keys.json", metrics_datasets=("adult", "nobody")
    )
    with TestClient(create_app(settings, announce=reported.append)) as client:
        yield Service(client, reported[0], SetClock())


def test_what_is_left_is_reported_for_the_chosen_datasets_alone(chosen: Service) -> None:
    chosen.open("adult", {**ZCDP, "rho": 0.5})
    chosen.open("other")
    assert value(read(chosen), "dpledger_remaining_fraction", dataset="adult") == 1.0

    chosen.authorize()

    found = read(chosen)
    assert value(found, "dpledger_remaining_fraction", dataset="adult") == pytest.approx(0.75, abs=1e-4)
    assert value(found, "dpledger_remaining_fraction", dataset="adult") <= 0.75
    named = [dict(labels)["dataset"] for name, labels in found if name == "dpledger_remaining_fraction"]
    assert named == ["adult"]


def test_queries_are_counted(service: Service) -> None:
    asked = {"from": {"notion": "zcdp", "rho": 0.1}, "to": {"notion": "approximate", "delta": 1e-5}}
    for _ in range(2):
        answer = service.client.post("/v1/conversions", json=asked, headers=service.headers())
        assert answer.status_code == 200, answer.text

    found = read(service)

    assert value(found, "dpledger_questions_waiting") == 0
    assert value(found, "dpledger_questions_total", outcome="answered") == 1
    assert value(found, "dpledger_questions_total", outcome="kept") == 1


def test_the_version_is_reported(service: Service) -> None:
    found = read(service)

    builds = [dict(labels) for name, labels in found if name == "dpledger_build_info"]
    assert [build["version"] for build in builds] == [__version__]


def test_only_a_token_that_reads_every_dataset_reads_metrics(adult: Service) -> None:
    assert adult.make_token("read").get("/metrics").status_code == 200
    problem(adult.make_token("read", datasets=["adult"]).get("/metrics"), 403, "forbidden")
    assert "www-authenticate" in adult.client.get("/metrics").headers


def test_two_services_count_apart() -> None:
    one, two = Metrics(), Metrics()
    one.observe_request("POST", AUTHORIZATIONS, 0.1)

    def count(metrics: Metrics) -> float:
        route = "/v1/datasets/{dataset}/authorizations"
        found = parsed(metrics.text().decode())
        return value(found, "dpledger_request_seconds_count", method="POST", route=route)

    assert (count(one), count(two)) == (1, 0)


def test_an_application_that_is_started_again_tells_each_number_once(tmp_path: Path) -> None:
    reported: list[str] = []
    app = create_app(Settings(f"sqlite:///{tmp_path / 'ledger.db'}"), announce=reported.append)
    for _ in range(2):
        with TestClient(app) as client:
            text = Service(client, reported[0], SetClock()).get("/metrics").text

    types = [line for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(types) == len(set(types))


def test_numbers_fall_into_their_buckets() -> None:
    distribution = Distribution((1.0, 2.0, 4.0))
    for number in (0.5, 1.0, 1.5, 4.0, 9.0):
        distribution.note(number)

    assert distribution.buckets() == ([("1", 2.0), ("2", 3.0), ("4", 4.0), ("+Inf", 5.0)], 16.0)
    assert distribution.buckets()[0][-1] == ("+Inf", 5.0)


def test_no_number_is_lost_between_threads() -> None:
    distribution, threads, each = Distribution((0.5,)), 4, 20_000

    def note() -> None:
        for _ in range(each):
            distribution.note(1.0)

    working = [threading.Thread(target=note) for _ in range(threads)]
    for thread in working:
        thread.start()
    while any(thread.is_alive() for thread in working):
        distribution.buckets()
    for thread in working:
        thread.join()

    assert distribution.buckets() == ([("0.5", 0.0), ("+Inf", float(threads * each))], float(threads * each))


def test_a_group_whose_transaction_fails_counts_as_errors() -> None:
    metrics = Metrics()

    def fail(_name: str, _group: Any) -> Any:
        raise OSError("the disk is gone")

    decide: Any = metrics.observe_groups(fail)
    with pytest.raises(OSError, match="disk"):
        decide("adult", [None] * 3)

    found = parsed(metrics.text().decode())
    assert decisions(found, "authorize") == {"error": 3}
    assert value(found, "dpledger_group_size_sum") == 3


def test_counting_costs_an_authorization_next_to_nothing() -> None:
    """An authorization takes some hundred microseconds at least; counting it takes a few at most."""
    metrics, group = Metrics(), [StoredResult("granted", "{}")] * 64

    def given(_name: str, decided: Any) -> Any:
        return decided

    decide: Any = metrics.observe_groups(given)

    def seconds_for_one() -> float:
        started = time.thread_time()
        decide("adult", group)
        for _ in group:
            metrics.observe_request("POST", AUTHORIZATIONS, SECONDS[0])
        return (time.thread_time() - started) / len(group)

    assert statistics.median(seconds_for_one() for _ in range(200)) < 5e-6
