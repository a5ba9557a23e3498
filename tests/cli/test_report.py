"""``dpledger report``, through a service and directly on its database."""

import sqlite3
from pathlib import Path

import pytest

from tests.cli.running import GAUSSIAN, Served, run


def test_it_is_the_report_of_the_api(ledger_target: list[str], service: Served) -> None:
    found = run("report", "adult", *ledger_target, "--json").json

    wanted = service.get("datasets/adult/report")
    for each in (found, wanted):
        del each["at"], each["verification"]["at"]
    assert found == wanted


def test_it_is_shown_in_lines_and_tables(ledger_target: list[str]) -> None:
    reported = run("report", "adult", *ledger_target)

    assert (reported.code, reported.err) == (0, "")
    lines = {line.split("  ")[0]: line.rstrip() for line in reported.out.splitlines()}
    assert lines["adjacency"].endswith("add-remove, one record")
    assert lines["guarantee"].endswith("ρ = 0.5, since entry 1")
    assert lines["left"].split()[1:] == ["92.9", "%"]
    assert "valid up to entry 7" in lines["verification"]
    assert lines["sgd"].split() == ["sgd", "4.1", "%", "2"]
    assert lines["gradient"].split() == ["gradient", "7.1", "%", "4"]
    assert "gaussian:noise_std=10,sensitivity=1 full" in reported.out


def test_a_plan_has_its_items_and_a_shared_budget_its_counts(service: Served) -> None:
    ledger_target = ["--url", service.address, "--token", service.token]
    item = {"name": "look", "releases": [GAUSSIAN], "times": 5}
    plan = {"accounting": "plan", "epsilon": 1.0, "delta": 1e-5, "items": [item]}
    service.post("datasets", "planned", {"name": "planned", "budget": plan})
    shared = {"accounting": "shared", "epsilon": 1.0, "delta": 1e-5}
    service.post("datasets", "divided", {"name": "divided", "budget": shared})

    shown = run("report", "planned", *ledger_target).out
    assert "a Gaussian of μ = " in shown
    assert "of any membership attack at most" in shown
    assert ["look", "5", "0", "0", "5"] in [line.split() for line in shown.splitlines()]
    assert "0 open, ε = 0" in run("report", "divided", *ledger_target).out


def test_changes_are_listed_with_their_reasons(service: Served) -> None:
    at_service = ["--url", service.address, "--token", service.token]
    budget = {"accounting": "zcdp", "rho": 0.5}
    service.post("datasets", "open-changed", {"name": "changed", "budget": budget})
    changing = ["dataset", "change-budget", "changed", "--budget", "zcdp:rho=0.4", "--reason", "the board"]
    run(*changing, *at_service)

    shown = run("report", "changed", *at_service).out

    assert "budget-changed   the board" in shown
    assert "the budget is lower and limits what is to come" in shown


def test_the_page_is_written_to_a_file(ledger_target: list[str], tmp_path: Path) -> None:
    file = tmp_path / "adult.html"

    reported = run("report", "adult", "--html", str(file), *ledger_target)

    assert reported.out.startswith(f"wrote {file}; valid up to entry 7")
    page = file.read_text(encoding="utf-8")
    assert "<h1>Privacy report: adult</h1>" in page
    assert "https:" not in page
    run("report", "adult", "--html", str(file), *ledger_target).failed(3, "exists", "--force")
    assert run("report", "adult", "--html", str(file), "--force", *ledger_target).code == 0
    assert "<h1>Privacy report: adult" in run("report", "adult", "--html", "-", *ledger_target).out


def test_an_unknown_dataset_is_not_found(ledger_target: list[str], tmp_path: Path) -> None:
    file = tmp_path / "nobody.html"
    run("report", "nobody", "--html", str(file), *ledger_target).failed(4, "nobody")
    assert not file.exists()


@pytest.fixture
def broken(service: Served, tmp_path: Path) -> str:
    """A copy of the ledger with a changed entry."""
    file = tmp_path / "broken.db"
    with sqlite3.connect(service.database.removeprefix("sqlite:///")) as source:
        with sqlite3.connect(file) as target:
            source.backup(target)
            target.execute("UPDATE entries SET at_us = at_us + 1 WHERE sequence = 3")
        target.close()
    source.close()
    return f"sqlite:///{file}"


def test_a_broken_ledger_is_reported_and_exits_7(broken: str) -> None:
    reported = run("report", "adult", "--database", broken)

    assert reported.code == 7
    assert "BROKEN up to entry 2" in reported.out
    assert "adult: entry 3" in reported.out
