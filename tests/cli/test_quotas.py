"""``dpledger quota``, through a service and directly on its database."""

import itertools

import pytest

from tests.cli.running import Served, run

_numbers = itertools.count()
SET = ("--fraction", "0.25", "--window-seconds", "604800", "--reason", "weekly")


@pytest.fixture
def dataset(service: Served) -> str:
    name = f"limited-{next(_numbers)}"
    service.post("datasets", f"open-{name}", {"name": name, "budget": {"accounting": "zcdp", "rho": 0.5}})
    return name


def test_a_quota_is_set_listed_and_removed(ledger_target: list[str], service: Served, dataset: str) -> None:
    made = run("quota", "set", dataset, "ranking", *SET, *ledger_target)
    assert (made.code, made.err) == (0, "")
    assert made.out == (
        f"ranking may use 0.25 of the budget in 604800 s by entry 2 of {dataset}: "
        "25.0 % of the budget is left to it\n"
    )
    listed = run("quota", "list", dataset, *ledger_target, "--json").json
    assert listed == service.get(f"datasets/{dataset}/quotas")
    table = run("quota", "list", dataset, *ledger_target).out.splitlines()
    assert table[0].split() == ["team", "quota", "left", "window", "frees", "entry"]
    assert " ".join(table[2].split()) == "ranking 0.25 of the budget in 604800 s 25.0 % 2"

    again = run(
        "quota", "set", dataset, "ranking", "--fraction", "1", "--reason", "all", *ledger_target, "--json"
    )
    assert (again.json["fraction"], again.json["window_seconds"], again.json["since"]) == (1.0, None, 3)
    removal = ("quota", "remove", dataset, "ranking", "--window-seconds", "604800", "--reason", "over")
    assert run(*removal, *ledger_target).out == f"removed the quota of ranking by entry 4 of {dataset}\n"
    run(*removal, *ledger_target).failed(4, "quota")
    assert run(*removal[:4], "--reason", "over", *ledger_target, "--json").json["fraction"] is None
    assert run("quota", "list", dataset, *ledger_target).out.startswith("no quotas")
    kinds = [each["kind"] for each in service.get(f"datasets/{dataset}/entries?kind=quota-changed")["items"]]
    assert kinds == ["quota-changed"] * 4


def test_a_long_list_goes_on(ledger_target: list[str], dataset: str) -> None:
    for team in ("a", "b"):
        run("quota", "set", dataset, team, *SET, *ledger_target)
    assert "more: --next" in run("quota", "list", dataset, "--limit", "1", *ledger_target).out
