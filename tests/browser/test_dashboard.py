"""The dashboard in a real browser. Whatever the browser complains of fails the test (``watched``)."""

import itertools
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.watching import DESKTOP, PHONE, Watched, drawn
from tests.reliability.database_targets import DatabaseTarget
from tests.reliability.wire import Ask, Heard, ask

PATIENCE_MILLISECONDS = 120_000
SAMPLE = {"scheme": "poisson", "rate": 0.05}
RDP = {"accounting": "rdp", "epsilon": 3.0, "delta": 1e-5}
LOOK = {"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": 40.0}
PLAN: dict[str, Any] = {
    "accounting": "plan",
    "epsilon": 1.0,
    "delta": 1e-5,
    "items": [
        {
            "name": "sgd",
            "sample": {"scheme": "poisson", "rate": 0.01},
            "releases": [{"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": 1.1}],
            "times": "most",
        },
        {"name": "evaluate", "releases": [LOOK], "times": 2},
        {"name": "searches", "zcdp": {"rho": 0.0005}},
    ],
}
DATASETS: dict[str, dict[str, Any]] = {
    "adult": {"description": "Census income, 48 842 records", "records": 48_842, "budget": RDP},
    "mobility": {
        "description": "Trips by user and day",
        "unit": "user",
        "budget": {"accounting": "zcdp", "rho": 0.05},
    },
    "clinic-notes": {"description": "Not used yet", "budget": {"accounting": "gdp", "mu": 0.7}},
    "income": {"description": "A planned training", "records": 48_842, "budget": PLAN},
}
_keys = itertools.count()


def tell(port: int, database_target: DatabaseTarget, path: str, body: dict[str, Any]) -> Heard:
    return ask(port, database_target.token, Ask(f"/v1/datasets{path}", body, f"browser-{next(_keys)}"))


def step(run: str, noise_std: float, **more: Any) -> dict[str, Any]:
    gaussian = {"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": noise_std, "purpose": "gradient"}
    return {"run": run, "sample": SAMPLE, "releases": [gaussian], **more}


@pytest.fixture(scope="module")
def filled(port: int, database_target: DatabaseTarget) -> int:
    """Datasets with two runs, a reservation and a refusal; spent on the whole; not used; and planned."""
    for name, fields in DATASETS.items():
        assert tell(port, database_target, "", {"name": name, **fields}).status == 201
    for index in range(40):
        run = "agd-1" if index % 3 else "sgd-baseline"
        assert (
            tell(port, database_target, "/adult/authorizations", step(run, 1.1 + 0.02 * index)).status == 201
        )
    held = step("agd-2", 1.2, times=10, expires_in_seconds=86_400.0)
    assert tell(port, database_target, "/adult/reservations", held).status == 201
    too_much = step("greedy", 1.0, times=100_000, expires_in_seconds=60.0)
    assert tell(port, database_target, "/adult/reservations", too_much).status == 409
    counts = {"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": 20.0, "purpose": "counts"}
    for _ in range(5):
        asked = {"run": "od-matrix", "releases": [counts]}
        assert tell(port, database_target, "/mobility/authorizations", asked).status == 201
    for _ in range(2):
        asked = {"run": "looks", "releases": [LOOK]}
        assert tell(port, database_target, "/income/authorizations", asked).status == 201
    planned = PLAN["items"][0]
    held = {**planned, "run": "sgd-1", "times": 50, "expires_in_seconds": 86_400.0}
    del held["name"]
    assert tell(port, database_target, "/income/reservations", held).status == 201
    return port


@pytest.fixture
def visit(watched: Watched, filled: int, database_target: DatabaseTarget) -> Watched:
    """Logged in, with the list of datasets before them."""
    assert filled
    watched.log_in(database_target.token)
    return watched


def names_in(page: Page) -> list[str]:
    return page.locator(".datasets tbody th a").all_inner_texts()


def test_a_visit_from_the_login_to_one_run(visit: Watched) -> None:
    page = visit.page
    assert names_in(page) == ["adult", "income", "mobility", "clinic-notes"]

    page.get_by_role("link", name="adult").click()
    expect(page.get_by_role("heading", name="adult", level=1)).to_be_visible()
    burned, curve = drawn(page, "burn-down"), drawn(page, "curve")
    assert burned["lines"]
    assert min(burned["lines"]) > 20
    assert burned["rows"][0] > 5
    assert burned["ticks"] >= 2
    assert len(curve["lines"]) == 2
    assert curve["points"] > curve["rows"][0] // 2

    page.get_by_label("Kind").select_option("reserved")
    page.get_by_role("button", name="Filter").click()
    page.wait_for_url("**kind=reserved**")
    assert page.locator(".entries tbody .kind").all_inner_texts() == ["reserved"]
    page.get_by_label("Run", exact=True).fill("agd-1")
    page.get_by_label("Kind").select_option("any")
    page.get_by_role("button", name="Filter").click()
    page.wait_for_url("**run=agd-1**")
    assert set(page.locator(".entries tbody .run").all_inner_texts()) == {"agd-1"}

    page.locator("#runs").get_by_role("link", name="agd-1").click()
    expect(page.get_by_role("heading", name="agd-1", level=1)).to_be_visible()
    noise, cost = drawn(page, "noise"), drawn(page, "cost")
    assert noise["points"] == noise["rows"][0] == 26
    assert cost["points"] == cost["rows"][0] == 26


def test_a_plan_is_drawn_as_its_items_and_its_profile(visit: Watched) -> None:
    page = visit.go("/datasets/income")
    profile = drawn(page, "profile")

    assert len(profile["lines"]) == 1
    assert profile["points"] == 1
    assert profile["rows"] == [1, 41]
    items = page.locator("#items tbody tr")
    assert [row.count("used up") for row in items.all_inner_texts()] == [0, 1, 0]
    assert items.nth(0).locator("rect.held").evaluate("bar => bar.getBoundingClientRect().width") > 5
    ended, other = (items.nth(at).locator("rect.used") for at in (1, 0))
    assert ended.evaluate(FILL) != other.evaluate(FILL)


FILL = "bar => getComputedStyle(bar).fill"


@pytest.fixture
def job(filled: int, database_target: DatabaseTarget) -> Iterator[threading.Event]:
    """A training job that spends, and at the end asks for more than is left, once it is started."""
    started, done = threading.Event(), threading.Event()

    def train() -> None:
        started.wait()
        while not done.is_set():
            if tell(filled, database_target, "/mobility/authorizations", SPEND).status == 409:
                return
            time.sleep(0.2)

    thread = threading.Thread(target=train)
    thread.start()
    yield started
    done.set()
    started.set()
    thread.join()


SPEND = {
    "run": "night-job",
    "releases": [{"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": 7.5, "purpose": "counts"}],
}


def test_a_refusal_appears_while_a_job_spends(visit: Watched, job: threading.Event) -> None:
    page = visit.go("/datasets/mobility")
    expect(page.locator("#refusals")).to_have_count(0)
    with page.expect_response(lambda answer: answer.status == 304, timeout=PATIENCE_MILLISECONDS):
        page.evaluate("window.stays = true")
    before = drawn(page, "burn-down")["rows"][0]

    job.set()

    expect(page.locator("#refusals")).to_contain_text("night-job", timeout=PATIENCE_MILLISECONDS)
    expect(page.locator("#runs")).to_contain_text("night-job")
    assert drawn(page, "burn-down")["rows"][0] > before
    assert page.evaluate("window.stays") is True
    expect(page.locator("[data-live-status]")).to_contain_text("Updated")


def test_whoever_pauses_is_left_alone(visit: Watched) -> None:
    page = visit.go("/datasets/adult")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("[data-live-status]")).to_have_text("Paused")
    visit.statuses.clear()

    page.wait_for_timeout(5_000)

    assert visit.statuses == []
    with page.expect_response("**/datasets/adult", timeout=PATIENCE_MILLISECONDS):
        page.get_by_role("button", name="Resume").click()


def test_what_a_person_opened_and_focused_stays(
    visit: Watched, filled: int, database_target: DatabaseTarget
) -> None:
    page = visit.go("/datasets/adult")
    page.locator("#burn-down-details summary").click()
    link = page.locator("#runs").get_by_role("link", name="agd-1")
    link.focus()

    tell(filled, database_target, "/adult/authorizations", step("late", 9.0))

    expect(page.locator("#entry-list")).to_contain_text("late", timeout=PATIENCE_MILLISECONDS)
    assert page.locator("#burn-down-details").get_attribute("open") is not None
    expect(link).to_be_focused()


@pytest.mark.parametrize(("name", "noise_std"), [("quiet", 1e160), ("silent", 1e308)])
def test_a_step_with_enormous_noise_is_drawn_without_complaint(
    visit: Watched, filled: int, database_target: DatabaseTarget, name: str, noise_std: float
) -> None:
    assert tell(filled, database_target, "", {"name": name, "budget": RDP}).status == 201
    asked = {**step("hush", noise_std), "sample": {"scheme": "full"}}
    assert tell(filled, database_target, f"/{name}/authorizations", asked).status == 201

    for path, charts in (("", ("burn-down",)), ("/run?name=hush", ("noise", "cost"))):
        page = visit.go(f"/datasets/{name}{path}")
        for chart in charts:
            drawn(page, chart)


def test_a_figure_tells_its_numbers_when_pointed_at(visit: Watched) -> None:
    page = visit.go("/datasets/adult")
    drawn(page, "burn-down")
    _point_at(page, "burn-down", "curve")
    page = visit.go("/datasets/income")
    drawn(page, "profile")
    _point_at(page, "profile")


def _point_at(page: Page, *charts: str) -> None:
    for chart in charts:
        plot = page.locator(f'figure[data-chart="{chart}"] .plot')
        plot.scroll_into_view_if_needed()
        box = plot.bounding_box()
        assert box is not None
        middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        page.mouse.move(middle[0] - 30, middle[1])
        page.mouse.move(*middle, steps=5)
        expect(plot.locator(".hoverlayer .hovertext").first).to_be_visible()


ACCESSIBLE = """
() => {
  const problems = [];
  const named = (element) =>
    element.labels?.length || element.getAttribute("aria-label") || element.textContent.trim();
  const reached = "a[href], button, input:not([type=hidden]), select, textarea";
  for (const element of document.querySelectorAll(reached))
    if (!named(element) && element.getAttribute("aria-hidden") !== "true") problems.push(element.outerHTML);
  for (const table of document.querySelectorAll("table"))
    if (!table.caption?.textContent.trim()) problems.push("a table without a caption");
  for (const region of document.querySelectorAll(".scroll"))
    if (region.tabIndex !== 0 || !region.getAttribute("aria-label")) problems.push("keys cannot scroll it");
  for (const plot of document.querySelectorAll(".plot"))
    if (!plot.getAttribute("aria-label")) problems.push("a figure without words");
  for (const landmark of ["header", "main", "footer", "h1"])
    if (document.querySelectorAll(landmark).length !== 1) problems.push(landmark);
  const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
  if (new Set(ids).size !== ids.length) problems.push("an id that is used twice");
  if (!document.documentElement.lang) problems.push("no language");
  const levels = [...document.querySelectorAll("h1, h2, h3")].map((heading) => Number(heading.tagName[1]));
  levels.forEach((level, index) => {
    if (level > (levels[index - 1] ?? 0) + 1) problems.push(`h${level} out of turn`);
  });
  return problems;
}
"""
PAGES = {
    "datasets": "/",
    "dataset": "/datasets/adult",
    "scalar": "/datasets/mobility",
    "unused": "/datasets/clinic-notes",
    "plan": "/datasets/income",
    "run": "/datasets/adult/run?name=agd-1",
    "entry": "/datasets/adult/entries/2",
    "entry-opened": "/datasets/adult/entries/1",
    "filtered": "/?state=fine&kind=rdp&sort=-entries&search=a",
    "day": "/datasets/adult?range=24h",
    "runs": "/datasets/adult/runs",
    "settlement": "/datasets/adult/reservations/42/settlement",
    "budget": "/datasets/adult/budget",
    "budget-plan": "/datasets/income/budget",
    "quota": "/datasets/adult/quotas?team=ranking&percent=5",
    "tokens": "/tokens",
    "token": "/tokens/new",
    "report": "/datasets/adult/report",
    "report-plan": "/datasets/income/report",
}


@pytest.mark.parametrize("path", PAGES.values(), ids=PAGES.keys())
def test_everything_has_a_name_and_keys_reach_it(visit: Watched, path: str) -> None:
    page = visit.go(path)

    assert page.evaluate(ACCESSIBLE) == []
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()


def test_without_scripts_the_numbers_are_there(visit: Watched) -> None:
    plain = visit.another(java_script_enabled=False)

    page = plain.go("/datasets/adult")

    page.locator("#burn-down-details summary").click()
    expect(page.locator("table[data-series=left]")).to_be_visible()
    assert page.locator("table[data-series=curve] tr").count() > 10
    plain.close()


SCREENS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light", "viewport": DESKTOP},
    "dark": {"color_scheme": "dark", "viewport": DESKTOP},
    "phone": {
        "color_scheme": "light",
        "viewport": PHONE,
        "is_mobile": True,
        "has_touch": True,
        "device_scale_factor": 2,
    },
}


# What sticks out of the page, and which tables a person would have to push aside.
WIDER = """
() => [document.documentElement, ...document.querySelectorAll("div.scroll:not(details *)")]
  .filter((box) => box.scrollWidth > box.clientWidth + 1)
  .map((box) => `${box.getAttribute("aria-label") ?? "page"} ${box.scrollWidth} in ${box.clientWidth}`)
"""


@pytest.mark.parametrize("screen", SCREENS)
def test_every_page_fits_every_screen(visit: Watched, screen: str, artifacts: Path) -> None:
    shown = visit.another(**SCREENS[screen])
    for name, path in PAGES.items():
        page = shown.go(path)
        for chart in page.locator("figure[data-chart]").all():
            drawn(page, chart.get_attribute("data-chart") or "")
        page.screenshot(path=artifacts / f"{name}-{screen}.png", full_page=True)
        wider = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wider <= 0, (name, screen)
    assert _is_dark(shown.page) == (screen == "dark")
    shown.close()


def test_the_longest_names_fit_every_screen(
    visit: Watched, filled: int, database_target: DatabaseTarget
) -> None:
    name, run = "n" * 63, "r" * 200
    assert tell(filled, database_target, "", {"name": name, "budget": RDP}).status == 201
    asked = step(run, 30.0, partition="p" * 200)
    asked["releases"][0]["purpose"] = "w" * 100
    items = [{**item, "name": letter * 200} for letter, item in zip("xyz", PLAN["items"], strict=True)]
    planned = {"name": "m" * 63, "budget": {**PLAN, "items": items}}
    assert tell(filled, database_target, "", planned).status == 201
    assert tell(filled, database_target, f"/{name}/partitions", {"names": ["p" * 200]}).status == 201
    assert tell(filled, database_target, f"/{name}/authorizations", asked).status == 201
    for screen in SCREENS.values():
        shown = visit.another(**screen)
        pages = [f"/datasets/{name}", f"/datasets/{name}/run?name={run}", f"/datasets/{planned['name']}"]
        for path in (f"/?search={name}", f"/?search={planned['name']}", *pages):
            page = shown.go(path)
            wider = page.evaluate(WIDER)
            assert wider == [], (path, screen)
        shown.close()


def _is_dark(page: Page) -> bool:
    colour: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
    red, green, blue = (int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(","))
    return red + green + blue < 3 * 128


def test_figures_follow_a_change_of_colours(visit: Watched) -> None:
    page = visit.go("/datasets/adult")
    drawn(page, "burn-down")
    line = page.locator(".scatterlayer .lines path").first
    light: str = line.evaluate("path => getComputedStyle(path).stroke")

    page.emulate_media(color_scheme="dark")

    expect(line).not_to_have_css("stroke", light)


def test_logging_out_ends_the_visit(visit: Watched, artifacts: Path) -> None:
    page = visit.page
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url("**/dashboard/login")
    page.screenshot(path=artifacts / "login-light.png")

    visit.go("/datasets/adult")

    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
