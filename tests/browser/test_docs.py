"""The API's description and the tutorials in a real browser; whatever it complains of fails the test."""

import functools
import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.watching import DESKTOP, PHONE, Watched

PATIENCE_MILLISECONDS = 120_000
BUILD_SECONDS = 1100
"""With its environment, on a busy machine: what hangs still ends."""
ROOT = Path(__file__).resolve().parents[2]
FOREIGN = re.compile(r"<(?:script|img|iframe|source)[^>]* src=\"https?:|<link[^>]*stylesheet[^>]*https?:")
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.ipynb"))


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


class Quiet(SimpleHTTPRequestHandler):
    """Files, without a line for each request."""

    def log_message(self, *_arguments: object) -> None:
        pass


@contextmanager
def served_files(folder: Path) -> Iterator[str]:
    """The files of a folder on loopback."""
    handler = functools.partial(Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def build_site(folder: Path) -> None:
    """What ``make docs`` builds, from the sources as they are now: every tutorial is run for it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    built = subprocess.run(
        ["make", "docs", f"SITE={folder}"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr


SHOWN = """
() => {
  const article = document.querySelector("article");
  const all = (what) => [...article.querySelectorAll(what)];
  return {
    cells: all(".highlight:not(.output)").length,
    printed: all("div.output").map((each) => each.innerText),
    tables: all("div.output table").length,
    figures: all("img.output").map((image) => image.naturalWidth),
    overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  };
}
"""


@contextmanager
def watched_tutorial(browser: Browser, origin: str, stem: str, **options: Any) -> Iterator[Page]:
    watched = Watched(browser, origin, **options)
    yield opened(watched, f"/tutorials/{stem}.html", "article h1")
    watched.close()
    assert watched.complaints == []


def check_tutorial(tutorial: Path, shown: dict[str, Any]) -> None:
    """Every cell is there, with what it printed, and nothing is wider than the screen."""
    cells = json.loads(tutorial.read_text(encoding="utf-8"))["cells"]
    assert shown["cells"] == sum(cell["cell_type"] == "code" for cell in cells)
    assert len(shown["printed"]) >= shown["cells"] // 2
    assert all(text.strip() for text in shown["printed"])
    assert not any("Traceback" in text or str(ROOT) in text for text in shown["printed"])
    assert shown["overflow"] <= 0
    if tutorial.stem == "researcher":
        assert shown["tables"] >= 3
        assert [width > 100 for width in shown["figures"]] == [True]


def check_search_from_a_folder(browser: Browser, site: Path) -> None:
    """It needs no server, and asks nobody."""
    watched = Watched(browser, "file://")
    page = watched.page
    page.goto(f"file://{site}/tutorials/auditor.html")
    page.wait_for_load_state("networkidle")
    page.locator(".md-search__input").click()
    page.locator(".md-search__input").press_sequentially("hockey")
    page.wait_for_selector(".md-search-result__link")
    watched.close()
    assert watched.complaints == []


# One test, so that the site is built once however the tests are spread over processes.
@pytest.mark.timeout(BUILD_SECONDS + 100)
def test_the_site_shows_what_the_tutorials_printed_and_loads_only_itself(
    browser: Browser, tmp_path: Path, artifacts: Path
) -> None:
    build_site(tmp_path)

    pages = {page: page.read_text(encoding="utf-8") for page in tmp_path.rglob("*.html")}
    assert len(pages) > len(TUTORIALS)
    assert [page.name for page, text in pages.items() if FOREIGN.search(text)] == []
    with served_files(tmp_path) as origin:
        for tutorial in TUTORIALS:
            for name, size in (("wide", DESKTOP), ("phone", PHONE)):
                with watched_tutorial(browser, origin, tutorial.stem, viewport=size) as page:
                    page.screenshot(path=artifacts / f"{tutorial.stem}-{name}.png", full_page=True)
                    check_tutorial(tutorial, page.evaluate(SHOWN))
    check_search_from_a_folder(browser, tmp_path)
