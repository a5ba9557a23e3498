"""The list, the pages, the API and the command line say the same of one ledger."""

import re
from pathlib import Path
from typing import Any

import pytest

from dpledger.dashboard import formatting as wording
from tests.api.service import GAUSSIAN, Service, made
from tests.cli.running import run as run_command
from tests.dashboard.forms import confirm, review
from tests.dashboard.visitor import Visitor, section, serving

WHOLE: dict[str, Any] = {"accounting": "zcdp", "rho": 1.0}
DAY_SECONDS = 86_400.0


def declared(rho: float) -> dict[str, Any]:
    return {"mechanism": "zcdp", "rho": rho, "purpose": "counts"}


def row_of(page: str, name: str) -> str:
    """A dataset's row in the list."""
    found = re.search(rf'<th scope="row"><a href="/dashboard/datasets/{name}">(.*?)</tr>', page)
    assert found is not None, name
    return found[1]


def headline(page: str) -> str:
    """What stands at the top of a dataset's page, without its markup."""
    return " ".join(re.sub(r"<[^>]+>", " ", section(page, "now")).split())


@pytest.mark.parametrize(
    ("budget", "spent"),
    [
        (WHOLE, [declared(0.123456)]),
        ({"accounting": "gdp", "mu": 2.0}, [{"mechanism": "gdp", "mu": 1.2345}]),
        ({"accounting": "rdp", "epsilon": 3.0, "delta": 1e-5}, [{**GAUSSIAN, "noise_std": 77.7}]),
        (WHOLE, [declared(0.99995)]),
    ],
)
def test_the_list_shows_the_amounts_of_the_api_and_of_the_page(
    service: Service, visitor: Visitor, budget: dict[str, Any], spent: list[dict[str, Any]]
) -> None:
    service.open(budget=budget)
    made(service.authorize(*spent))
    left = service.shown("/v1/datasets/adult")["remaining"]
    name, symbol = next((n, s) for n, s in (("epsilon", "ε"), ("rho", "ρ"), ("mu", "μ")) if n in left)
    amount = f"{symbol} = {wording.rounded_down(left[name])}"

    row, page = row_of(visitor.page(), "adult"), visitor.page("/datasets/adult")

    percent = wording.left_percent(left["fraction"]).replace("<", "&lt;")
    assert f'<span class="minor">{amount}</span>' in row
    assert f">{percent}</strong>" in row
    assert f"{amount} of " in section(page, "now")
    assert f">{percent}</span> left" in section(page, "now")


def test_a_review_shows_the_amounts_that_the_api_then_shows(service: Service, visitor: Visitor) -> None:
    service.open(budget=WHOLE)
    made(service.make_token("spend").reserve(4, releases=[declared(0.0123)], run="lost", seconds=3600.0))
    budget = {"rho": "0.75", "reason": "review"}
    settlement = {"used": "1", "statement": "the job died"}

    for path, fields in (("reservations/2/settlement", settlement), ("budget", budget)):
        found = review(visitor, f"/datasets/adult/{path}", fields)
        assert confirm(visitor, found).status_code == 303
        shown = service.budget()
        assert wording.left_percent(shown["fraction"]) in found.text
    assert f"ρ = {wording.rounded_down(shown['limit']['rho'])}" in found.text
    assert f"ρ = {wording.rounded_up(shown['guarantee']['rho'])}" in found.text


def test_the_list_the_page_and_the_api_agree_on_the_run_that_spent_most(
    service: Service, visitor: Visitor
) -> None:
    service.open(budget=WHOLE)
    for run, rho in (("small", 0.0111), ("large", 0.2345), ("middle", 0.1)):
        made(service.authorize(declared(rho), run=run))
    spent = {each["run"]: each["fraction"] for each in service.shown("/v1/datasets/adult/runs")["items"]}
    share = wording.share_percent(spent["large"])

    assert max(spent, key=lambda name: spent[name]) == "large"
    for text in (
        row_of(visitor.page(), "adult"),
        section(visitor.page("/datasets/adult"), "runs"),
        section(visitor.page("/datasets/adult?range=24h"), "runs"),
        section(visitor.page("/datasets/adult/runs"), "runs"),
        headline(visitor.page("/datasets/adult/run?name=large")),
    ):
        assert "23.5 %" in text
        assert share in ("23.5 %", "23.6 %")


@pytest.mark.parametrize(
    ("rho", "used_up"), [(1.0, True), (0.99995, True), (0.9999001, True), (0.99985, False), (0.5, False)]
)
def test_the_list_and_the_page_agree_on_what_is_used_up(
    service: Service, visitor: Visitor, rho: float, used_up: bool
) -> None:
    service.open(budget=WHOLE)
    made(service.authorize(declared(rho)))
    limited = Visitor(service)
    limited.log_in(service.make_token("read", datasets=["adult"]).token)

    for each in (visitor, limited):
        assert ("1 used up" in each.page()) == used_up
        assert ('<strong class="out">' in row_of(each.page(), "adult")) == used_up
        assert ("Used up" in headline(each.page("/datasets/adult"))) == used_up


def test_a_dataset_that_refuses_everything_is_not_projected_but_says_since_when(
    service: Service, visitor: Visitor
) -> None:
    service.open()
    for _ in range(4):
        service.clock.advance(3600)
        made(service.authorize())
    assert "projected to be used up" in headline(visitor.page("/datasets/adult"))
    service.clock.advance(DAY_SECONDS)
    since = wording.instant_text(service.clock.at_us)
    assert service.authorize().status_code == 409
    for _ in range(3):
        service.clock.advance(DAY_SECONDS)
        assert service.authorize(run="greedy").status_code == 409
    visitor.log_in(service.token)

    page = visitor.page("/datasets/adult")

    assert "projected" not in headline(page)
    assert f"Refusing since {since} UTC" in headline(page)
    assert "4 requests" in headline(page)
    assert 'data-series="projection"' not in page


def test_a_grant_or_another_budget_ends_the_refusing(service: Service, visitor: Visitor) -> None:
    service.open()
    for _ in range(4):
        made(service.authorize())

    def refuse() -> None:
        assert service.authorize().status_code == 409
        assert "Refusing since" in headline(visitor.page("/datasets/adult"))

    refuse()
    made(service.authorize({**GAUSSIAN, "noise_std": 200.0}))
    assert "Refusing" not in headline(visitor.page("/datasets/adult"))
    refuse()
    etag = service.get("/v1/datasets/adult").headers["etag"]
    change = {"budget": {"accounting": "zcdp", "rho": 2.0}, "reason": "review"}
    made(service.post("/v1/datasets/adult/budget-changes", change, headers={"If-Match": etag}))
    assert "Refusing" not in headline(visitor.page("/datasets/adult"))


def test_a_request_that_was_only_too_large_is_no_refusing(service: Service, visitor: Visitor) -> None:
    service.open()
    made(service.authorize())
    assert service.reserve(10).status_code == 409

    assert "Refusing" not in headline(visitor.page("/datasets/adult"))


def test_an_expired_reservation_does_not_end_the_refusing(service: Service, visitor: Visitor) -> None:
    service.open()
    made(service.reserve(4, seconds=60.0))
    service.clock.advance(30)
    since = wording.instant_text(service.clock.at_us)
    assert service.authorize().status_code == 409
    service.clock.advance(60)
    service.app.state.services.ledger.expire_due()
    assert service.sequence() == 3

    assert f"Refusing since {since} UTC" in headline(visitor.page("/datasets/adult"))


def test_a_run_shows_what_it_holds(service: Service, visitor: Visitor) -> None:
    service.open(budget=WHOLE)
    made(service.authorize(declared(0.05), run="both"))
    for name, times in (("both", 2), ("holding", 3)):
        made(service.reserve(times, run=name, releases=[declared(0.1)]))

    page = visitor.page("/datasets/adult")

    runs = section(page, "runs")
    assert runs.index("holding") < runs.index("both")
    assert "30.0 %" in runs
    assert "25.0 %" in runs
    purposes = section(page, "purposes")
    assert "55.0 %" in purposes
    assert "50.0 % reserved" in purposes
    held = headline(visitor.page("/datasets/adult/run?name=holding"))
    assert "30.0 % of the budget" in held
    assert "30.0 % held by 1 open reservation" in held
    both = headline(visitor.page("/datasets/adult/run?name=both"))
    assert "25.0 % of the budget" in both
    assert "5.00 % spent" in both
    assert "20.0 % held by 1 open reservation" in both


def test_what_a_run_holds_is_reported_by_the_api_and_the_command_line(tmp_path: Path) -> None:
    database, keys = f"sqlite:///{tmp_path / 'ledger.db'}", tmp_path / "ledger.db.keys.json"
    with serving(database, keys) as service:
        service.open(budget=WHOLE)
        made(service.authorize(declared(0.05), run="both"))
        held = made(service.reserve(2, run="both", releases=[declared(0.1)]))
        (run,) = service.shown("/v1/datasets/adult/runs")["items"]
        assert run["spent"]["rho"] == 0.05
        assert 0.2 <= run["reserved"]["rho"] <= 0.2000001
        assert run["reserved"]["open"] == 1
        shown = run_command("dataset", "runs", "adult", "--database", database).out
        assert re.search(r"both +2 +5\.1 % +20\.1 %", shown), shown
        made(service.settle(held["id"], 1))
        (run,) = service.shown("/v1/datasets/adult/runs")["items"]
        assert run["reserved"] == {"rho": 0.0, "additive_delta": 0.0, "open": 0, "fraction": 0.0}


PERCENT = re.compile(r"(\d+(?:\.\d+)?(?:e[+-]\d+)?) %")


@pytest.mark.parametrize("key", ["fixed", "private"])
def test_no_percentage_of_a_partitioned_dataset_is_beyond_a_hundred(
    service: Service, visitor: Visitor, key: str
) -> None:
    service.open(budget=WHOLE, partition_key=key)
    names = [f"day-{day}" for day in range(6)]
    made(service.post("/v1/datasets/adult/partitions", {"names": names}))
    made(service.authorize(declared(0.1)))
    for name in names:
        made(service.authorize(declared(0.3), partition=name))
        made(service.reserve(1, releases=[declared(0.1)], partition=name))

    pages = [visitor.page(path) for path in ("/", "/datasets/adult", "/datasets/adult/run?name=run-1")]

    for page in pages:
        assert [each for each in PERCENT.findall(page) if float(each) > 100.0] == []
    worst = {"fixed": "≤ 50.0 %", "private": "≤ 90.0 %"}[key]
    assert worst in section(pages[1], "runs")
    assert worst in headline(pages[2])
    (costs,) = re.findall(r'data-series="cost">(.*?)</table>', pages[2])
    totals = re.findall(r'<data value="([^"]+)">', costs)
    assert max(float(each) for each in totals) == pytest.approx({"fixed": 0.5, "private": 0.9}[key])
    (run,) = service.shown("/v1/datasets/adult/runs")["items"]
    assert run["fraction"] <= 1.0 - service.budget()["fraction"]


def test_spent_includes_what_is_reserved_and_says_so(service: Service, visitor: Visitor) -> None:
    service.open(budget=WHOLE)
    made(service.authorize(declared(0.25)))
    made(service.reserve(2, releases=[declared(0.125)]))
    budget = service.budget()

    assert 0.5 <= budget["spent"]["rho"] <= 0.5000001
    assert 0.25 <= budget["reserved"]["rho"] <= 0.2500001
    answer = service.app.openapi()["components"]["schemas"]["BudgetAnswer"]["properties"]
    assert "reserved" in answer["spent"]["description"]
    assert "included in `spent`" in answer["reserved"]["description"]
    assert "Spent and reserved" in visitor.page("/datasets/adult")
    documented = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
    assert "`spent` includes what is reserved" in documented
