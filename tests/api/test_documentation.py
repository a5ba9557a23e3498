"""docs/api.md says what the service does: every route is there, and every example is run."""

from typing import Any

import pytest

from dpledger.api.app import create_app
from dpledger.settings import Settings
from tests.api.documented import PAGE, described_routes, routes, run


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
        assert ("keyed" in text.split("```")[0]) == ("Idempotency-Key" in text), route
        assert "```sh\ncurl" in text, route


def test_every_example_gets_the_answer_that_is_shown(page: str) -> None:
    """After a wanted change: ``python -m tests.api.documented`` writes the answers anew."""
    assert run(page) == page


def test_a_wrong_answer_would_be_noticed(page: str) -> None:
    wrong = page.replace('"status": "ok"', '"status": "fine"', 1)

    assert wrong != page
    assert run(wrong) == page
