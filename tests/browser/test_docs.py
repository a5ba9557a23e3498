"""The pages of the API's description in a real browser; whatever it complains of fails the test."""

import json
from pathlib import Path
from urllib.request import urlopen

import pytest
from playwright.sync_api import Page

from tests.browser.watching import Watched

PATIENCE_MILLISECONDS = 120_000


@pytest.fixture(scope="module")
def summaries(port: int) -> set[str]:
    """What each route says of itself in one line."""
    with urlopen(f"http://127.0.0.1:{port}/openapi.json") as answer:
        paths = json.load(answer)["paths"]
    return {operation["summary"] for methods in paths.values() for operation in methods.values()}


def opened(watched: Watched, path: str, ready: str) -> Page:
    watched.page.goto(f"{watched.origin}{path}")
    watched.page.wait_for_selector(ready, timeout=PATIENCE_MILLISECONDS)
    watched.page.wait_for_load_state("networkidle")
    return watched.page


def test_swagger_draws_every_route(watched: Watched, summaries: set[str], artifacts: Path) -> None:
    page = opened(watched, "/docs", ".opblock-summary-description")

    drawn = page.locator(".opblock-summary-description").all_inner_texts()
    assert set(drawn) == summaries
    page.locator(".opblock-summary-control", has_text="Authorize one step").click()
    page.wait_for_selector(".opblock-body .model-example, .opblock-body .highlight-code")
    page.screenshot(path=artifacts / "docs.png")


def test_redoc_draws_every_route(watched: Watched, summaries: set[str], artifacts: Path) -> None:
    page = opened(watched, "/redoc", "h2")

    drawn = {text.strip() for text in page.locator("h2").all_inner_texts()}
    assert summaries <= drawn
    assert page.locator(".menu-content").bounding_box() is not None
    page.screenshot(path=artifacts / "redoc.png")


@pytest.mark.parametrize(("path", "ready"), [("/docs", ".opblock"), ("/redoc", "h2")])
def test_only_files_of_this_server_are_loaded(watched: Watched, path: str, ready: str) -> None:
    opened(watched, path, ready)

    loaded = {address.partition("?")[0] for address, _ in watched.statuses}
    assert "/openapi.json" in loaded
    assert all(status == 200 for _, status in watched.statuses)
    assert len([address for address in loaded if address.endswith(".js")]) >= 2
