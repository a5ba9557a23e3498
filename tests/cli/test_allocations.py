"""``dpledger allocation``, through a service and directly on its database."""

import itertools

import pytest

from tests.cli.running import GAUSSIAN, Served, run

_numbers = itertools.count()


@pytest.fixture
def dataset(service: Served) -> str:
    """A dataset with a shared budget of ε = 3 at δ = 1e-5."""
    name = f"shared-{next(_numbers)}"
    budget = {"accounting": "shared", "epsilon": 3.0, "delta": 1e-5}
    service.post("datasets", f"open-{name}", {"name": name, "budget": budget})
    return name


def create(dataset: str, name: str, *more: str, epsilon: str = "1") -> list[str]:
    return ["allocation", "create", dataset, name, "--epsilon", epsilon, "--delta", "1e-6", *more]


def test_an_allocation_is_made_as_the_api_makes_it(
    ledger_target: list[str], service: Served, dataset: str
) -> None:
    made = run(
        *create(dataset, "team-a", "--budget", "rdp-order:order=64", "--reason", "ranking"),
        *ledger_target,
        "--json",
    ).json

    assert (made["name"], made["epsilon"], made["delta"]) == ("team-a", 1.0, 1e-6)
    assert made["budget"]["accounting"] == "rdp-order"
    assert made["owner"] == service.token.split("_")[1]
    shown = service.get(f"datasets/{dataset}/allocations/team-a")
    assert run("allocation", "show", dataset, "team-a", *ledger_target, "--json").json == shown
    listed = service.get(f"datasets/{dataset}/allocations")
    assert run("allocation", "list", dataset, *ledger_target, "--json").json == listed
    entry = service.get(f"datasets/{dataset}/entries/{made['sequence']}")
    assert entry["detail"]["reason"] == "ranking"


def test_it_is_told_in_a_line_and_in_a_table(ledger_target: list[str], dataset: str) -> None:
    reported = run(*create(dataset, "team-a"), *ledger_target)
    assert (reported.code, reported.err) == (0, "")
    left = f"ε = 2, δ = 9e-06 of {dataset} is left to allocate"
    assert reported.out == f"allocated team-a: rdp, ε = 1 at δ = 1e-06; {left}\n"

    table = run("allocation", "list", dataset, *ledger_target).out
    assert all(word in table for word in ("team-a", "open", "rdp, ε = 1 at δ = 1e-06", "100.0 %"))
    shown = run("allocation", "show", dataset, "team-a", *ledger_target).out
    assert f"team-a of {dataset}, by entry 2" in shown
    assert "ε = 1, δ = 1e-06" in shown
    assert "1 open, 0 returned" in run("dataset", "budget", dataset, *ledger_target).out
    assert "ε = 2 at δ = 9e-06" in run("dataset", "show", dataset, *ledger_target).out


def test_what_is_too_much_or_there_already_is_refused(ledger_target: list[str], dataset: str) -> None:
    run(*create(dataset, "team-a"), *ledger_target)

    run(*create(dataset, "team-a"), *ledger_target).failed(3, "already")
    run(*create(dataset, "team-b", epsilon="2.5"), *ledger_target).failed(3, "does not cover")
    run(*create(dataset, "team-b", "--budget", "zcdp:rho=1"), *ledger_target).failed(2, "rho")
    run("allocation", "show", dataset, "team-b", *ledger_target).failed(4, "team-b")
    run(*create("adult", "team-a"), *ledger_target).failed(3, "not shared")


def test_an_untouched_allocation_is_returned_and_no_other(
    ledger_target: list[str], service: Served, dataset: str
) -> None:
    for name in ("spare", "used"):
        run(*create(dataset, name, "--budget", "zcdp"), *ledger_target)
    step = {"run": "run-1", "releases": [GAUSSIAN], "allocation": "used"}
    service.post(f"datasets/{dataset}/authorizations", f"step-{dataset}", step)
    giving_back = ["allocation", "return", dataset]

    reported = run(*giving_back, "spare", "--reason", "not needed", *ledger_target)

    left = f"ε = 2, δ = 9e-06 of {dataset} is left to allocate"
    assert reported.out == f"returned spare by entry 5: {left}\n"
    assert "returned" in run("allocation", "show", dataset, "spare", *ledger_target).out
    run(*giving_back, "used", "--reason", "x", *ledger_target).failed(3, "cannot be returned")
    named = run("entries", dataset, "--allocation", "used", *ledger_target, "--json").json["items"]
    assert [entry["sequence"] for entry in named] == [4]
    kinds = run("entries", dataset, "--kind", "allocation-returned", *ledger_target, "--json").json["items"]
    assert [entry["sequence"] for entry in kinds] == [5]
    assert "run-1" in run("dataset", "runs", dataset, *ledger_target).out
    run("verify", dataset, *ledger_target)


def test_a_forecast_names_the_allocation(ledger_target: list[str], dataset: str) -> None:
    run(*create(dataset, "team-a", "--budget", "zcdp"), *ledger_target)
    asked = ["forecast", dataset, "gaussian:sensitivity=1,noise_std=50", *ledger_target]

    reported = run(*asked, "--allocation", "team-a")

    assert "more such steps" in reported.out
    assert "team-a" in reported.out
    run(*asked).failed(2, "allocations")
