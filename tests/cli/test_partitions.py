"""``dpledger partition``, through a service and directly on its database."""

import itertools

import pytest

from tests.cli.running import GAUSSIAN, Served, run

_numbers = itertools.count()


@pytest.fixture
def dataset(service: Served) -> str:
    """A dataset without partitions."""
    name = f"users-{next(_numbers)}"
    service.post("datasets", f"open-{name}", {"name": name, "budget": {"accounting": "zcdp", "rho": 0.5}})
    return name


def at(service: Served) -> list[str]:
    return ["--url", service.address, "--token", service.token]


def spend(service: Served, dataset: str, partition: str | None, key: str) -> None:
    step = {"run": "run-1", "releases": [GAUSSIAN], "partition": partition}
    service.post(f"datasets/{dataset}/authorizations", f"{key}-{dataset}", step)


def test_they_are_opened_and_shown_as_the_api_shows_them(
    ledger_target: list[str], service: Served, dataset: str
) -> None:
    opening = ["partition", "open", dataset, "ann", "a/b c", "--budget", "zcdp:rho=0.25"]
    made = run(*opening, *ledger_target, "--json").json
    assert (made["opened"], made["first"], made["last"]) == (2, "ann", "a/b c")
    spend(service, dataset, "ann", "part")
    spend(service, dataset, None, "whole")

    listed = run("partition", "list", dataset, *ledger_target, "--json").json
    assert listed == service.get(f"datasets/{dataset}/partitions")
    for name, path in (("ann", "ann"), ("a/b c", "a%2Fb%20c")):
        shown = run("partition", "show", dataset, name, *ledger_target, "--json").json
        assert shown == service.get(f"datasets/{dataset}/partitions/{path}")
        assert shown["name"] == name
        assert shown["own_budget"]["rho"] == 0.25


def test_they_are_reported_in_lines_and_in_a_table(
    ledger_target: list[str], service: Served, dataset: str
) -> None:
    reported = run("partition", "open", dataset, "--count", "3", *at(service))
    assert (reported.code, reported.out) == (0, f"opened 3 partitions, 0 to 2, of {dataset} by entry 2\n")
    service.post(f"datasets/{dataset}/partitions", f"parts-{dataset}", {"names": ["ann"]})
    spend(service, dataset, "ann", "one")

    table = run("partition", "list", dataset, *ledger_target).out.splitlines()
    assert table[0].split() == ["partition", "left", "left"]
    assert table[2].split() == ["0", "ρ", "=", "0.5", "100.0", "%"]
    assert table[-1].split() == ["ann", "ρ", "=", "0.494999", "98.9", "%"]
    shown = run("partition", "show", dataset, "ann", *ledger_target).out
    assert f"ann of {dataset}, true at entry 4" in shown
    assert "the dataset's" in shown
    assert "ρ = 0.005, the spend on the whole included" in shown
    first = run("partition", "list", dataset, "--limit", "1", *ledger_target).out.splitlines()
    rest = run("partition", "list", dataset, *first[-1].split()[1:], *ledger_target).out.splitlines()
    assert [row.split() for row in (first[2], *rest[2:])] == [row.split() for row in table[2:]]


def test_a_curve_and_items_are_shown_below(service: Served, dataset: str) -> None:
    ledger_target = at(service)
    item = {"name": "look", "releases": [GAUSSIAN], "times": 5}
    kinds = {"rdp": {}, "plan": {"items": [item]}}
    for accounting, more in kinds.items():
        name = f"{dataset}-{accounting}"
        budget = {"accounting": accounting, "epsilon": 1.0, "delta": 1e-5, **more}
        service.post("datasets", f"open-{name}", {"name": name, "budget": budget})
        service.post(f"datasets/{name}/partitions", f"parts-{name}", {"names": ["ann"]})
        spend(service, name, "ann", "one")

    assert "limit ε" in run("partition", "show", f"{dataset}-rdp", "ann", *ledger_target).out
    shown = run("partition", "show", f"{dataset}-plan", "ann", *ledger_target).out.splitlines()
    assert shown[-1].split() == ["look", "5", "1", "0", "4"]


def test_what_cannot_be_opened_or_found_is_refused(
    ledger_target: list[str], service: Served, dataset: str
) -> None:
    opening = ["partition", "open", dataset]
    run(*opening, *ledger_target).failed(2, "--count")
    run(*opening, "ann", "--count", "2", *ledger_target).failed(2, "--count")
    service.post(f"datasets/{dataset}/partitions", f"parts-{dataset}", {"names": ["ann"]})
    run(*opening, "ann", *at(service)).failed(3, "already")
    run("partition", "show", dataset, "bob", *ledger_target).failed(4, "bob")
    run("partition", "show", "nobody", "ann", *ledger_target).failed(4, "nobody")
    assert "dpledger partition open" in run("partition", "list", "mnist", *ledger_target).out


def test_opening_needs_an_admin_also_in_a_database(service: Served, dataset: str) -> None:
    run("partition", "open", dataset, "ann", "--database", service.database).failed(5, "--token")
    run("partition", "show", dataset, "..", "--url", service.address).failed(4, "address")
