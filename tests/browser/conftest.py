"""A service as it is run, a real Chromium, and a record of everything that the browser complains of."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from tests.browser.watching import BUSY_MILLISECONDS, Watched
from tests.reliability.database_targets import DatabaseTarget, sqlite_place
from tests.reliability.processes import services
from tests.reliability.wire import HOST

expect.set_options(timeout=BUSY_MILLISECONDS)
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# A test must not depend on what a browser fetches for itself, nor on a machine's graphics.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
    "--no-first-run",
)

CHROMIUM = next((path for name in BROWSERS if (path := shutil.which(name))), None)
# A newcomer's machine may have no browser, and these tests are then left out; in CI that is a failure.
collect_ignore_glob = [] if CHROMIUM or os.environ.get("CI") else ["test_*.py"]


# No wider than a module: while Playwright runs, its thread has a running event loop, and no other
# test there may call asyncio.run.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium of the machine."""
    assert CHROMIUM is not None, "no Chromium here: apt-get install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def database_target(tmp_path_factory: pytest.TempPathFactory) -> DatabaseTarget:
    return sqlite_place(tmp_path_factory.mktemp("browser"))


@pytest.fixture(scope="module")
def port(database_target: DatabaseTarget) -> Iterator[int]:
    with services(database_target, 1) as (running,):
        yield running.port


@pytest.fixture
def watched(browser: Browser, port: int) -> Iterator[Watched]:
    """A page whose every complaint is a failure."""
    watched = Watched(browser, f"http://{HOST}:{port}")
    yield watched
    watched.close()
    assert watched.complaints == []


@pytest.fixture(scope="session")
def artifacts() -> Path:
    """Where screenshots are kept; git ignores it."""
    folder = Path(__file__).resolve().parents[2] / "artifacts" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
