"""Logging in through an issuer of another site, in a real browser: which cookies travel is its decision."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.api.service import SetClock
from tests.auth.issuer import CLIENT_ID, CLIENT_SECRET, PUBLIC_URL, Issuer, issuing
from tests.browser.watching import PHONE, Watched
from tests.reliability.database_targets import sqlite_place
from tests.reliability.processes import await_service, start_service
from tests.reliability.wire import HOST


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    """An issuer of another site than the service's: 127.0.0.1 and localhost are two for a browser."""
    with issuing(SetClock(int(time.time() * 1e6))) as issuer:
        issuer.url = issuer.url.replace("127.0.0.1", "localhost")
        yield issuer


@pytest.fixture(scope="module")
def origin(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a service is that trusts the issuer."""
    folder = tmp_path_factory.mktemp("sign-on")
    (folder / "secret").write_text(CLIENT_SECRET)
    running = start_service(
        sqlite_place(folder),
        DPLEDGER_OIDC_ISSUER=issuer.url,
        DPLEDGER_OIDC_CLIENT_ID=CLIENT_ID,
        DPLEDGER_OIDC_CLIENT_SECRET_FILE=str(folder / "secret"),
        DPLEDGER_OIDC_GRANTS="auditors=read",
        DPLEDGER_PUBLIC_URL=PUBLIC_URL,
    )
    try:
        await_service(running)
        issuer.browsers_at = f"http://{HOST}:{running.port}"
        yield issuer.browsers_at
    finally:
        running.end()


def test_a_person_logs_in_through_another_site(
    browser: Browser, issuer: Issuer, origin: str, artifacts: Path
) -> None:
    watched = Watched(browser, origin)
    page = watched.go("/?search=trips")
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    page.screenshot(path=artifacts / "login-single-sign-on.png")

    page.get_by_role("link", name="Log in with single sign-on").click()
    page.get_by_role("link", name="Yes, it is me").click()
    page.wait_for_url("**/dashboard/?search=trips")

    expect(page.get_by_role("heading", name="Datasets", exact=True)).to_be_visible()
    assert [each for each in watched.complaints if issuer.url not in each] == []
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    watched.close()


def test_the_login_fits_a_phone_in_the_dark(browser: Browser, origin: str, artifacts: Path) -> None:
    watched = Watched(browser, origin, viewport=PHONE, color_scheme="dark")
    page = watched.go("/login")

    page.screenshot(path=artifacts / "login-single-sign-on-phone-dark.png")

    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.keyboard.press("Shift+Tab")
    expect(page.get_by_role("link", name="Log in with single sign-on")).to_be_focused()
    assert watched.complaints == []
    watched.close()
