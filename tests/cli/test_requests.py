"""``dpledger request``, through a service and directly on its database."""

import itertools

import pytest

from tests.cli.running import Served, run

_numbers = itertools.count()
ZCDP = {"accounting": "zcdp", "rho": 0.5}
SHARED = {"accounting": "shared", "epsilon": 3.0, "delta": 1e-5}


def opened(service: Served, budget: dict[str, object]) -> str:
    name = f"asked-{next(_numbers)}"
    service.post("datasets", f"open-{name}", {"name": name, "budget": budget})
    return name


@pytest.fixture
def dataset(service: Served) -> str:
    return opened(service, ZCDP)


def test_another_budget_is_asked_for_and_approved(
    ledger_target: list[str], service: Served, dataset: str
) -> None:
    asked = ("request", "open", dataset, "--budget", "zcdp:rho=0.75", "--reason", "another year")
    made = run(*asked, *ledger_target)
    assert (made.code, made.err) == (0, "")
    assert made.out == (
        f"requested another budget, zcdp, ρ = 0.75: {dataset}~2 is open until an admin decides\n"
    )
    listed = run("request", "list", dataset, "--state", "open", *ledger_target, "--json").json
    assert listed == service.get(f"datasets/{dataset}/budget-requests?state=open")
    table = run("request", "list", dataset, *ledger_target).out.splitlines()
    assert table[0].split()[:4] == ["request", "state", "asked", "by"]
    assert "another budget, zcdp, ρ = 0.75" in table[2]

    approved = run("request", "approve", dataset, f"{dataset}~2", "--reason", "agreed", *ledger_target)
    assert approved.out.startswith(f"approved {dataset}~2, carried out by entry 4; {dataset} has ")
    shown = run("request", "show", dataset, f"{dataset}~2", *ledger_target).out
    assert f"{dataset}~2, approved" in shown
    assert "agreed" in shown
    one = run("request", "show", dataset, f"{dataset}~2", *ledger_target, "--json").json
    assert one == service.get(f"datasets/{dataset}/budget-requests/{dataset}~2")
    run("request", "approve", dataset, f"{dataset}~2", *ledger_target).failed(3, "approved")
    assert run("request", "list", dataset, "--state", "open", *ledger_target).out.startswith(
        "no such requests"
    )

    lower = run("request", "open", dataset, "--budget", "zcdp:rho=0.1", "--reason", "over", *ledger_target)
    assert lower.code == 0
    warned = run("request", "approve", dataset, f"{dataset}~5", *ledger_target, "--json")
    assert warned.json["state"] == "approved"
    assert warned.err.startswith("warning: this limit limits what is still to come")


def test_requests_are_rejected_and_withdrawn(ledger_target: list[str], dataset: str) -> None:
    for _ in range(2):
        run("request", "open", dataset, "--budget", "zcdp:rho=0.75", "--reason", "more", *ledger_target)
    first, second = f"{dataset}~2", f"{dataset}~3"
    assert "more: --next" in run("request", "list", dataset, "--limit", "1", *ledger_target).out
    rejected = run("request", "reject", dataset, first, "--reason", "no", *ledger_target)
    assert rejected.out == f"rejected {first} by entry 4\n"
    withdrawn = run("request", "withdraw", dataset, second, *ledger_target, "--json").json
    assert (withdrawn["state"], withdrawn["decision"]["sequence"]) == ("withdrawn", 5)
    run("request", "withdraw", dataset, second, "--reason", "no", *ledger_target).failed(3, "withdrawn")
    run("request", "show", dataset, f"{dataset}~9", *ledger_target).failed(4, "request")
    run("request", "show", dataset, "none", *ledger_target).failed(4, "request")


def test_an_allocation_and_a_quota_are_asked_for(ledger_target: list[str], service: Served) -> None:
    name = opened(service, SHARED)
    part = ("--allocation", "study", "--epsilon", "1", "--delta", "1e-6", "--budget", "zcdp")
    made = run("request", "open", name, *part, "--reason", "a study", *ledger_target)
    assert made.out.startswith("requested allocation study, zcdp, ")
    assert run("request", "approve", name, f"{name}~2", *ledger_target).code == 0
    assert run("allocation", "show", name, "study", *ledger_target).code == 0
    quota = ("--fraction", "0.5", "--window-seconds", "60", "--reason", "more")
    run("request", "open", name, *quota, *ledger_target).failed(3, "team")
    run("request", "open", name, "--reason", "nothing", *ledger_target).failed(2, "--budget")
