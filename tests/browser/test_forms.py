"""Forms of admins in a real browser: without scripts, by keys, on every screen; what they say and do."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.test_dashboard import ACCESSIBLE, SCREENS, WIDER
from tests.browser.watching import Watched
from tests.reliability.database_targets import DatabaseTarget
from tests.reliability.wire import Ask, ask

GAUSSIAN = {"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": 10.0}


@pytest.fixture(scope="module")
def filled(port: int, database_target: DatabaseTarget) -> int:
    """A dataset with a reservation of ten steps, by a token of a team."""
    datasets: dict[str, Any] = {"name": "adult", "budget": {"accounting": "zcdp", "rho": 0.5}}
    held: dict[str, Any] = {
        "run": "lost",
        "releases": [GAUSSIAN],
        "times": 10,
        "expires_in_seconds": 86_400.0,
    }
    quota: dict[str, Any] = {"team": "ranking", "fraction": 0.25, "reason": "agreed"}
    asked = [("", datasets), ("/adult/reservations", held), ("/adult/quotas", quota)]
    for number, (path, body) in enumerate(asked):
        sent = Ask(f"/v1/datasets{path}", body, f"forms-{number}")
        assert ask(port, database_target.token, sent).status == 201
    return port


@pytest.fixture(params=[False, True], ids=["plain", "scripts"])
def visit(
    request: pytest.FixtureRequest, watched: Watched, filled: int, database_target: DatabaseTarget
) -> Iterator[Watched]:
    """An admin, once with and once without scripts."""
    assert filled
    watched.log_in(database_target.token)
    other = watched.another(java_script_enabled=request.param)
    yield other
    other.close()


def reviewed(page: Page, artifacts: Path | None = None, name: str = "") -> Page:
    """The page that says what would happen."""
    page.get_by_role("button", name="Review").click()
    expect(page.get_by_text("Nothing is changed yet.")).to_be_visible()
    if artifacts is not None:
        page.screenshot(path=artifacts / f"review-{name}.png", full_page=True)
    return page


LIMITS = iter(["0.75", "1.25"])
"""The browsers with and without scripts share a ledger, and each raises its limit."""


def test_a_budget_is_changed_and_the_entry_says_so(visit: Watched, artifacts: Path) -> None:
    page, limit = visit.go("/datasets/adult"), next(LIMITS)
    page.get_by_role("link", name="Change the budget").click()
    page.get_by_label("ρ", exact=True).fill(limit)
    page.get_by_label("Reason").fill("the second wave")
    reviewed(page, artifacts, "budget")
    expect(page.locator(".review")).to_contain_text(f"ρ = {limit}")
    expect(page.locator("main")).to_contain_text("guarantee")

    page.get_by_role("button", name="Change the budget").dblclick()

    page.wait_for_url("**/datasets/adult/entries/*")
    expect(page.locator(".said")).to_contain_text(f"ρ = {limit}")
    expect(page.locator("main")).to_contain_text("the second wave")
    url = page.url
    page.reload()
    assert page.url == url


def test_what_is_wrong_is_said_beside_what_was_written(visit: Watched) -> None:
    page = visit.go("/datasets/adult/budget")
    page.get_by_label("ρ", exact=True).fill("NaN")
    page.get_by_label("Reason").fill("no number")
    page.get_by_role("button", name="Review").click()

    expect(page.get_by_role("alert")).to_contain_text("Rho must be a number")
    expect(page.get_by_label("Reason")).to_have_value("no number")
    visit.complaints[:] = [each for each in visit.complaints if "422" not in each]


def test_a_quota_is_changed_from_the_list_of_teams(visit: Watched, artifacts: Path) -> None:
    page = visit.go("/datasets/adult")
    page.get_by_role("link", name="Change the quota of ranking in all").click()
    expect(page.get_by_role("textbox", name="Team")).to_have_value("ranking")
    page.get_by_label("Part of the budget").fill("30")
    page.get_by_label("Reason").fill("more")
    reviewed(page, artifacts, "quota")

    page.get_by_role("button", name="Set the quota").click()

    page.wait_for_url("**/datasets/adult/entries/*")
    expect(page.locator(".said")).to_contain_text("Team ranking may use at most 30 %")
    assert "30 % in all" in visit.go("/datasets/adult").locator("#teams").inner_text()


def test_a_token_s_secret_is_shown_once_and_not_in_the_address(visit: Watched, artifacts: Path) -> None:
    page = visit.go("/tokens")
    page.get_by_role("link", name="Make a token").click()
    page.get_by_role("radio", name="read").check()
    page.get_by_label("Description").fill("for a browser")
    reviewed(page, artifacts, "token")
    page.get_by_role("button", name="Make the token").click()

    secret = page.locator(".secret").inner_text()
    page.screenshot(path=artifacts / "token-made.png", full_page=True)

    assert secret.startswith("dpl_")
    assert secret.rpartition("_")[2] not in page.url
    assert all("dpl_" not in url for url, _ in visit.statuses)
    page = visit.go("/tokens")
    assert secret not in page.content()
    page.get_by_role("link", name=f"Revoke token {secret.split('_')[1]}").click()
    page.get_by_role("button", name="Revoke the token").click()
    page.wait_for_url("**/dashboard/tokens")
    row = page.locator("tr", has_text=secret.split("_")[1])
    expect(row).to_contain_text("revoked")


def test_a_reservation_is_settled_from_the_page(
    visit: Watched, filled: int, database_target: DatabaseTarget, artifacts: Path
) -> None:
    made = ask(
        filled,
        database_target.token,
        Ask(
            "/v1/datasets/adult/reservations",
            {"run": "gone", "releases": [GAUSSIAN], "times": 4, "expires_in_seconds": 86_400.0},
            f"gone-{id(visit)}",
        ),
    )
    assert made.status == 201
    page = visit.go("/datasets/adult")
    row = page.locator("#reservations tr", has_text="gone").last
    row.get_by_role("textbox").fill("1")
    row.get_by_role("button").click()
    expect(page.get_by_label("Repetitions that ran")).to_have_value("1")
    page.get_by_label("Why the others released nothing").fill("the node was lost")
    reviewed(page, artifacts, "settlement")
    expect(page.locator("main")).to_contain_text("3 are given back")

    page.get_by_role("button", name="Settle").click()

    page.wait_for_url("**/datasets/adult/entries/*")
    expect(page.locator(".said")).to_contain_text("1 repetitions ran")


@pytest.mark.parametrize("screen", SCREENS)
def test_a_review_fits_every_screen_and_keys_reach_it(
    watched: Watched, filled: int, database_target: DatabaseTarget, screen: str, artifacts: Path
) -> None:
    assert filled
    watched.log_in(database_target.token)
    options: dict[str, Any] = SCREENS[screen]
    shown = watched.another(**options)
    page = shown.go("/datasets/adult/budget")
    page.get_by_label("ρ", exact=True).fill("0.001")
    page.get_by_label("Reason").fill("w" * 300)
    reviewed(page, artifacts, screen)

    assert page.evaluate(ACCESSIBLE) == []
    assert page.evaluate(WIDER) == []
    page.get_by_role("button", name="Change the budget").focus()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Leave it as it is")).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url("**/datasets/adult")
    shown.close()


def test_what_somebody_types_into_a_live_page_stays(
    watched: Watched, filled: int, database_target: DatabaseTarget
) -> None:
    watched.log_in(database_target.token)
    page = watched.go("/datasets/adult")
    typed = page.locator("#reservations input").first
    typed.fill("7")
    sent = Ask("/v1/datasets/adult/authorizations", {"run": "meanwhile", "releases": [GAUSSIAN]}, "meanwhile")
    assert ask(filled, database_target.token, sent).status == 201

    expect(page.locator("#runs")).to_contain_text("meanwhile")

    expect(typed).to_have_value("7")
