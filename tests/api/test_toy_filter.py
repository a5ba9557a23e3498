"""A new kind of budget is one class and one call of ``register``; API, command line and dashboard know it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dpledger.ledger.filters import register, unregister
from tests.api.service import Service, made, problem
from tests.cli.running import run as run_command
from tests.dashboard.visitor import Visitor, section, serving
from tests.support.toy_filter import PureFilter

BUDGET = {"accounting": "pure-sum", "epsilon": 1.0}
COUNT = {"mechanism": "pure", "epsilon": 0.25, "purpose": "counts"}
GAUSSIAN = {"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": 10.0}


@pytest.fixture
def kind() -> Iterator[str]:
    """The toy kind, known for the length of one test."""
    register(PureFilter())
    yield PureFilter.name
    unregister(PureFilter.name)


@pytest.fixture
def place(kind: str, tmp_path: Path) -> Iterator[tuple[Service, str]]:
    """A service that knows the kind, and its database."""
    assert kind
    database = f"sqlite:///{tmp_path / 'ledger.db'}"
    with serving(database, tmp_path / "ledger.db.keys.json") as service:
        yield service, database


def test_an_unknown_kind_is_refused_and_named_once_it_is_there(service: Service) -> None:
    refused = problem(service.post("/v1/datasets", {"name": "adult", "budget": BUDGET}), 422, "invalid-input")
    assert "pure-sum" not in refused["detail"].split("Input should be")[-1]

    register(PureFilter())
    try:
        with pytest.raises(ValueError, match="there is a filter pure-sum already"):
            register(PureFilter())
        assert service.open(budget=BUDGET)["budget"] == BUDGET
    finally:
        unregister("pure-sum")


def test_the_api_decides_shows_and_verifies_by_it(place: tuple[Service, str]) -> None:
    service, _ = place
    service.open(budget=BUDGET)
    for _ in range(3):
        made(service.authorize(COUNT))
    held = made(service.reserve(1, releases=[COUNT]))
    refused = problem(service.authorize(COUNT), 409, "budget-exhausted")
    assert refused["fits"] == {"times": 0, "cost_fraction": 0.0}
    made(service.settle(held["id"], 0))

    problem(service.authorize(GAUSSIAN), 422, "unproven")
    budget = service.budget(delta=1e-6)
    assert budget["limit"] == {"epsilon": 1.0, "pure_epsilon": 1.0, "additive_delta": 0.0}
    assert budget["spent"]["pure_epsilon"] == 0.75
    assert budget["spent"]["indicative_epsilon"] == pytest.approx(0.75)
    assert budget["fraction"] == pytest.approx(0.25)
    forecast = service.client.post(
        "/v1/datasets/adult/forecast", json={"releases": [COUNT]}, headers=service.headers()
    ).json()
    assert (forecast["fits"], forecast["theorem"]) == (1, "Σε ≤ ε_max")
    change = {"budget": {**BUDGET, "epsilon": 0.5}, "reason": "less"}
    lowered = made(service.post("/v1/datasets/adult/budget-changes", change, headers={"If-Match": "6"}))
    assert lowered["guarantee"] == {"epsilon": 1.0, "since": 1, "lowered": True}
    service.verified()


def test_the_description_has_a_schema_for_it(place: tuple[Service, str]) -> None:
    service, _ = place
    schemas = service.client.get("/openapi.json").json()["components"]["schemas"]

    reference = schemas["BudgetBody"]["discriminator"]["mapping"]["pure-sum"]
    described = schemas[reference.rsplit("/", 1)[1]]
    assert set(described["properties"]) == {"accounting", "epsilon"}


def test_the_command_line_opens_and_shows_it(place: tuple[Service, str]) -> None:
    service, database = place
    target = ["--database", database]
    as_admin = [*target, "--token", service.token]
    opened = run_command("dataset", "open", "adult", "--budget", "pure-sum:epsilon=1", *as_admin)
    assert opened.out == "opened adult: pure-sum, ε = 1, add-remove\n", opened.err
    made(service.authorize(COUNT))

    shown = run_command("dataset", "show", "adult", *target).out
    assert "pure-sum, ε = 1" in shown
    assert "ε = 0.749999 (74.9 %)" in shown
    assert "pure_epsilon = 0.25" in run_command("dataset", "budget", "adult", *target).out
    assert "pure_epsilon = 0.25" in run_command("report", "adult", *target).out
    history = run_command("entries", "adult", *target).out
    assert "authorized" in history
    assert "74.9 %" in history
    assert "holds" in run_command("verify", *target).out
    forecast = run_command("forecast", "adult", "pure:epsilon=0.25", *target).out
    assert "3 more such steps" in forecast


def test_the_dashboard_draws_it(place: tuple[Service, str]) -> None:
    service, _ = place
    service.open(budget=BUDGET)
    made(service.authorize(COUNT))
    visitor = Visitor(service)
    visitor.log_in(service.token)

    page = visitor.page("/datasets/adult")

    assert "Pure DP: the sum of ε stays within its limit" in page
    assert "<dt>Spent and reserved</dt><dd>pure ε = " in page
    assert ">74.9 %</span> left" in page
    assert "25.0 %" in section(page, "runs")
    assert "pure-sum" in visitor.page()
    assert "Spent, reservations included</th><td>25.0 % of it: pure_epsilon = 0.25" in visitor.page(
        "/datasets/adult/report"
    )
    for path in ("/datasets/adult/run?name=run-1", "/datasets/adult/entries/1", "/datasets/adult/entries/2"):
        assert visitor.page(path)
