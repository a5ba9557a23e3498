"""``dpledger allocation``, through a service and directly on its database."""

import itertools
import json

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


def test_a_plan_inside_is_shown_with_its_items(
    ledger_target: list[str], service: Served, dataset: str
) -> None:
    plan = {"accounting": "plan", "items": [{"name": "look", "releases": [GAUSSIAN], "times": "most"}]}
    made = run(*create(dataset, "team-a", "--budget", json.dumps(plan)), *ledger_target).out.splitlines()
    (item,) = service.get(f"datasets/{dataset}/allocations/team-a")["budget"]["items"]
    assert made[1].split() == ["item", "takes", "limit"]
    assert made[3].split()[:1] + made[3].split()[-1:] == ["look", str(item["times"])]

    step = {"run": "run-1", "releases": [GAUSSIAN], "allocation": "team-a"}
    service.post(f"datasets/{dataset}/authorizations", f"look-{dataset}", step)
    shown = run("allocation", "show", dataset, "team-a", *ledger_target).out
    assert shown.count("%") == 1
    counts = [item["times"], 1, 0, item["times"] - 1]
    assert shown.splitlines()[-1].split()[:5] == ["look", *map(str, counts)]


def test_entries_name_the_allocation_that_they_are_of(
    ledger_target: list[str], service: Served, dataset: str
) -> None:
    assert "allocation" not in run("entries", dataset, *ledger_target).out
    run(*create(dataset, "team-a"), *ledger_target)
    step = {"run": "run-1", "releases": [GAUSSIAN], "allocation": "team-a"}
    service.post(f"datasets/{dataset}/authorizations", f"named-{dataset}", step)

    header, _, *rows = run("entries", dataset, *ledger_target).out.splitlines()
    at = header.index("allocation")
    assert [row[at:].split()[0] for row in rows[1:]] == ["team-a", "team-a"]


def test_what_is_too_much_or_there_already_is_refused(ledger_target: list[str], dataset: str) -> None:
    run(*create(dataset, "team-a"), *ledger_target)

    run(*create(dataset, "team-a"), *ledger_target).failed(3, "already")
    too_much = run(*create(dataset, "team-b", epsilon="2.5"), *ledger_target)
    too_much.failed(3, "does not cover")
    too_much.failed(3, "What is left to allocate is ε = 2, δ = 9e-06.")
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
