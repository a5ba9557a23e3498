"""What a dataset's page shows of a range of time: its burn-down, and the runs that spent most in it."""

import re
from typing import Any

import numpy as np
import pytest

from dpledger.dashboard import formatting as wording
from dpledger.ledger.model.commands import Authorize
from dpledger.storage.read_models import spending as spending_model
from dpledger.storage.read_models.dashboard import reader
from dpledger.storage.repository import SqlStorage
from tests.api.service import Service, made
from tests.dashboard.test_agreement import declared
from tests.dashboard.visitor import Visitor, section
from tests.storage.ledgers import ZCDP, costing, open_ledger, write

WHOLE: dict[str, Any] = {"accounting": "zcdp", "rho": 1.0}
HOUR_SECONDS, DAY_SECONDS = 3600.0, 86_400.0


def shares(page: str) -> dict[str, str]:
    """The share of each run that a page shows."""
    rows = re.findall(r'<tr><th scope="row" class="name">(.*?)</tr>', section(page, "runs"))
    found = [
        (re.search(r">([^<]+)</a>", row), re.search(r'class="num nowrap">([^<]+)<', row)) for row in rows
    ]
    return {name[1]: share[1] for name, share in found if name and share}


def left_in(page: str) -> list[tuple[str, float]]:
    """The points of the burn-down: times and parts."""
    table = re.search(r'<table data-series="left">(.*?)</table>', page)
    assert table is not None
    found = re.findall(r'<time datetime="([^"]+)">.*?<data value="([^"]+)">', table[1])
    return [(at, float(left)) for at, left in found]


@pytest.fixture
def busy(service: Service, visitor: Visitor) -> Visitor:
    """A dataset on which an old run spent most of all, and another one most lately."""
    service.open(budget=WHOLE)
    service.clock.advance(DAY_SECONDS)
    made(service.authorize(declared(0.4), run="old"))
    service.clock.advance(20 * DAY_SECONDS)
    made(service.authorize(declared(0.05), run="old"))
    made(service.authorize(declared(0.1), run="middle"))
    service.clock.advance(5 * DAY_SECONDS)
    for _ in range(2):
        service.clock.advance(HOUR_SECONDS)
        made(service.authorize(declared(0.08), run="fresh"))
    held = made(service.reserve(10, run="settled", releases=[declared(0.01)]))
    made(service.settle(held["id"], 3))
    made(service.reserve(2, run="middle", seconds=DAY_SECONDS, releases=[declared(0.02)]))
    visitor.log_in(service.token)
    return visitor


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ("24h", {"fresh": "16.0 %", "middle": "4.00 %", "settled": "3.00 %"}),
        ("7d", {"fresh": "16.0 %", "middle": "14.0 %", "old": "5.00 %", "settled": "3.00 %"}),
        ("30d", {"old": "45.0 %", "fresh": "16.0 %", "middle": "14.0 %", "settled": "3.00 %"}),
        ("all", {"old": "45.0 %", "fresh": "16.0 %", "middle": "14.0 %", "settled": "3.00 %"}),
    ],
)
def test_the_runs_that_spent_most_in_a_range_stand_first(
    busy: Visitor, chosen: str, expected: dict[str, str]
) -> None:
    page = busy.page(f"/datasets/adult?range={chosen}")

    found = shares(page)
    assert found == expected
    assert list(found) == list(expected)
    assert "An estimate" not in section(page, "runs")


def test_a_range_of_everything_has_the_amounts_of_the_api(service: Service, busy: Visitor) -> None:
    found = shares(busy.page("/datasets/adult?range=30d"))

    for run in service.shown("/v1/datasets/adult/runs")["items"]:
        both = run["fraction"] + run["reserved"]["fraction"]
        assert float(found[run["run"]].removesuffix(" %")) == pytest.approx(100.0 * both, abs=0.11)


def test_the_burn_down_begins_where_the_range_does(service: Service, busy: Visitor) -> None:
    everything = left_in(busy.page("/datasets/adult"))
    week = left_in(busy.page("/datasets/adult?range=7d"))
    day = left_in(busy.page("/datasets/adult?range=24h"))

    assert everything[0][1] == 1.0
    assert week[0][0] == wording.instant_iso(service.clock.at_us - 7 * 86_400_000_000)
    assert week[0][1] == pytest.approx(0.6)
    assert day[0][1] == pytest.approx(0.45)
    left = service.budget()["fraction"]
    for points in (everything, week, day):
        assert points[-1][1] == left
        assert [at for at, _ in points] == sorted(at for at, _ in points)
    assert everything[-len(day) + 1 :] == day[1:]


def test_a_range_is_chosen_by_a_plain_link(busy: Visitor) -> None:
    page = busy.page("/datasets/adult?range=7d")

    assert 'href="/dashboard/datasets/adult?range=24h"' in page
    assert 'href="/dashboard/datasets/adult?range=7d" aria-current="true"' in page
    assert busy.get("/datasets/adult?range=year").status_code == 400


def test_a_range_in_which_nothing_happened_says_so(service: Service, visitor: Visitor) -> None:
    service.open(budget=WHOLE)
    made(service.authorize(declared(0.1)))
    service.clock.advance(3 * DAY_SECONDS)
    visitor.log_in(service.token)

    page = visitor.page("/datasets/adult?range=24h")

    assert "Nothing was spent in the last 24 hours" in section(page, "runs")
    assert [left for _, left in left_in(page)] == [service.budget()["fraction"]] * 2


def test_many_entries_are_sampled_and_the_estimate_is_near(
    storage: SqlStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs that take turns must not fall in with the stretches from which the sample is drawn."""
    open_ledger(storage, "adult", ZCDP)
    with storage.begin() as transaction:
        state = transaction.lock(["adult"])["adult"]
        commands = [Authorize(costing(1e-6), "even" if index % 2 else "odd") for index in range(1200)]
        commands += [Authorize(costing(1e-6), "rare") for _ in range(400)]
        write(transaction, state, *commands)
    with reader(storage.database) as reading:
        state = reading.dataset("adult").state
        exact = reading.spending(state, 0)
    monkeypatch.setattr(spending_model, "COUNTED", 100)
    monkeypatch.setattr(spending_model, "SAMPLED", 400)
    with reader(storage.database) as reading:
        estimate, again = reading.spending(state, 0), reading.spending(state, 0)

    assert (exact.sampled, exact.entries) == (None, state.sequence)
    assert (estimate.sampled, estimate.entries) == (400, state.sequence)
    summed = {row.name: float(row.amounts[0]) for row in exact.rows}
    assert summed == pytest.approx({"even": 6e-4, "odd": 6e-4, "rare": 4e-4})
    near = {row.name: float(row.amounts[0]) for row in estimate.rows}
    assert near == pytest.approx(summed, rel=0.15)
    assert [(row.name, row.entries) for row in again.rows] == [
        (row.name, row.entries) for row in estimate.rows
    ]


def test_an_estimate_is_called_one(service: Service, busy: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spending_model, "COUNTED", 3)
    monkeypatch.setattr(spending_model, "SAMPLED", 4)

    page = busy.page("/datasets/adult?range=30d")

    assert f"An estimate from 4 of {service.sequence()} entries" in section(page, "runs")


def test_how_much_a_range_asks_does_not_grow_with_its_entries(
    storage: SqlStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spending_model, "COUNTED", 10)
    monkeypatch.setattr(spending_model, "SAMPLED", 16)
    found = []
    for name, many in (("few", 60), ("many", 900)):
        open_ledger(storage, name, ZCDP)
        with storage.begin() as transaction:
            write(
                transaction,
                transaction.lock([name])[name],
                *[Authorize(costing(1e-6), f"run-{index % 3}") for index in range(many)],
            )
        with reader(storage.database) as reading:
            found.append(reading.spending(reading.dataset(name).state, 0))

    assert [sum(each.sampled or 0 for each in found[:1]), found[1].sampled] == [16, 16]
    assert np.isfinite([row.amounts for each in found for row in each.rows]).all()


def test_all_runs_are_listed_by_name_page_by_page(service: Service, visitor: Visitor) -> None:
    service.open(budget=WHOLE)
    team = service.make_token("spend", team="ranking")
    names = [f"run-{number:02d}" for number in range(53)]
    for name in names:
        made(team.authorize(declared(0.001), run=name))
    made(team.reserve(2, run="run-07", releases=[declared(0.002)]))

    first = visitor.page("/datasets/adult/runs")
    following = re.search(r'rel="next" href="/dashboard([^"]+)"', first)
    assert following is not None
    second = visitor.page(following[1])

    listed = [re.findall(r"/run\?name=(run-\d\d)", section(page, "runs")) for page in (first, second)]
    assert [*listed[0], *listed[1]] == names
    row = next(each for each in first.split("<tr>") if "run-07" in each)
    assert "0.100 %" in row
    assert "0.400 %" in row
    assert "ranking" in row
    assert 'href="/dashboard/datasets/adult/runs"' in visitor.page("/datasets/adult")


def test_the_runs_of_another_dataset_are_closed(service: Service) -> None:
    service.open("mine")
    service.open("theirs")
    other = Visitor(service)
    other.log_in(service.make_token("read", datasets=["mine"]).token)

    assert other.get("/datasets/mine/runs").status_code == 200
    assert other.get("/datasets/theirs/runs").status_code == 403
    assert Visitor(service).get("/datasets/mine/runs").status_code == 303


def test_quotas_are_shown_with_the_amounts_of_the_api(service: Service, visitor: Visitor) -> None:
    service.open(budget=WHOLE)
    for team, fraction, window in (("ranking", 0.25, None), ("ranking", 0.1, 86_400), ("search", 0.07, None)):
        body = {"team": team, "fraction": fraction, "window_seconds": window, "reason": "agreed"}
        made(service.post("/v1/datasets/adult/quotas", body))
    ranking = service.make_token("spend", team="ranking")
    made(ranking.authorize(declared(0.04)))
    made(ranking.reserve(2, releases=[declared(0.01)]))
    made(service.make_token("spend", team="others").authorize(declared(0.01)))

    part = section(visitor.page("/datasets/adult"), "teams")

    rows = re.findall(r'<tr><th scope="row" class="name" data-label="Team">(.*?)</tr>', part)
    quotas = service.shown("/v1/datasets/adult/quotas")["items"]
    assert len(rows) == len(quotas) == 3
    for row, quota in zip(rows, quotas, strict=True):
        assert row.startswith(quota["team"])
        assert wording.part_percent(quota["fraction"]) in row
        assert wording.window_text(quota["window_seconds"]) in row
        assert f">{wording.left_percent(quota['remaining']['fraction'])}</td>" in row
    assert "60.0 % of it used" in rows[1].replace("60.1", "60.0")
    assert "Without a quota: others" in part
    assert "percent=7" in rows[2]
    assert "window=86400&amp;window_unit=seconds&amp;percent=10" in rows[1]


def test_a_team_without_quotas_is_named_and_a_reader_is_offered_no_change(
    service: Service, visitor: Visitor
) -> None:
    service.open(budget=WHOLE)
    assert 'id="teams"' not in visitor.page("/datasets/adult")
    made(service.make_token("spend", team="ranking").authorize(declared(0.01)))
    other = Visitor(service)
    other.log_in(service.make_token("read").token)

    assert "/quotas?team=ranking" in section(visitor.page("/datasets/adult"), "teams")
    assert "/quotas" not in section(other.page("/datasets/adult"), "teams")


def test_reservations_are_paged(service: Service, visitor: Visitor) -> None:
    service.open(budget=WHOLE)
    for _ in range(11):
        made(service.reserve(1, releases=[declared(0.001)]))

    first = section(visitor.page("/datasets/adult"), "reservations")
    following = re.search(r"\?reservations=(\d+)#reservations", first)
    assert following is not None
    second = section(visitor.page(f"/datasets/adult?reservations={following[1]}"), "reservations")

    entries = [re.findall(r"/reservations/(\d+)/settlement", part) for part in (first, second)]
    assert [int(each) for part in entries for each in part] == list(range(2, 13))
