"""docs/api.md names every route and what the service takes; the examples of api.md and plans.md are run."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from dpledger.accounting.mechanisms import MECHANISMS
from dpledger.accounting.sampling import Adjacency
from dpledger.api.app import create_app
from dpledger.ledger.filters import filter_names
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.planning import plan_of, unspent_plan_warnings
from dpledger.settings import Settings
from tests.api.documented import PAGE, PAGES, described_routes, routes, run


@pytest.fixture(scope="module")
def page() -> str:
    return PAGE.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def operations() -> dict[tuple[str, str], dict[str, Any]]:
    paths = create_app(Settings()).openapi()["paths"]
    return {(method.upper(), path): found for path, each in paths.items() for method, found in each.items()}


def test_every_route_is_documented_and_no_other(
    page: str, operations: dict[tuple[str, str], dict[str, Any]]
) -> None:
    assert routes(page) == set(operations)


def test_every_route_has_an_example_and_says_who_may_call_it(
    page: str, operations: dict[tuple[str, str], dict[str, Any]]
) -> None:
    for route, text in described_routes(page).items():
        scope = operations[route].get("x-scope")
        named = "Open to everybody." if scope is None else f"Scope `{scope}`"
        assert named in text, route
        assert ("idempotent" in text.split("```")[0]) == ("Idempotency-Key" in text), route
        assert "```sh\ncurl" in text, route


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.name))
def test_every_example_gets_the_answer_that_is_shown(path: Path) -> None:
    """After a wanted change: ``python -m tests.api.documented`` writes the answers anew."""
    page = path.read_text(encoding="utf-8")
    assert page.count("```sh\ncurl ") == page.count("```text\n")
    assert run(page) == page


def test_a_wrong_answer_would_be_noticed(page: str) -> None:
    wrong = page.replace('"status": "ok"', '"status": "fine"', 1)

    assert wrong != page
    assert run(wrong) == page


def rows(page: str, section: str) -> dict[str, str]:
    """What each name in the first column of a section's table stands for: the rest of its line."""
    text = page.split(f"\n## {section}\n")[1].split("\n## ")[0]
    lines = [line.strip("| ").split(" | ", 1) for line in text.splitlines() if line.startswith("| `")]
    return {name: rest for first, rest in lines[1:] for name in re.findall(r"`([^`]+)`", first)}


def test_every_mechanism_is_listed_with_its_fields(page: str) -> None:
    listed = rows(page, "Steps")

    assert set(listed) == set(MECHANISMS)
    for name, mechanism in MECHANISMS.items():
        fields = {field.name for field in dataclasses.fields(mechanism)}  # type: ignore[arg-type]
        assert fields <= set(re.findall(r"`(\w+)`", listed[name])), name


def test_every_accounting_is_listed_with_a_budget_that_opens(page: str) -> None:
    assert set(rows(page, "Budgets")) == set(filter_names())
    example = page.split("\n## Budgets\n")[1].split("\n\n    ")[1].split("\n\n")[0]

    fields = json.loads(example)
    budget = Budget.from_fields(fields, Adjacency.ADD_REMOVE)

    assert unspent_plan_warnings(plan_of(fields, Adjacency.ADD_REMOVE), budget) == []
    assert budget.accounting == "rdp"
    assert budget.orders.size > 1
