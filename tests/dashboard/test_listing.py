"""The list of datasets: orders, filters, what each row says of its dataset, and the same as a file."""

import csv
import io
import re
from collections.abc import Callable
from typing import Any

import pytest

from dpledger.storage.engine.session import Session
from dpledger.storage.read_models.dashboard import reader
from dpledger.storage.read_models.listing import ORDERS, Cursor, Listing
from dpledger.storage.repository import SqlStorage
from tests.api.service import GAUSSIAN, Service, made
from tests.dashboard.test_agreement import headline, row_of
from tests.dashboard.visitor import Visitor, datasets_in
from tests.storage.ledgers import ZCDP, costing, open_ledger, spend

WHOLE: dict[str, Any] = {"accounting": "zcdp", "rho": 1.0}
HALF = {"mechanism": "zcdp", "rho": 0.5}
DAY_SECONDS = 86_400.0


def listed(storage: SqlStorage, listing: Listing, size: int, among: set[str] | None = None) -> list[str]:
    """Every dataset, page by page."""
    names: list[str] = []
    after: Cursor | None = None
    with reader(storage.database) as reading:
        while page := reading.listed(listing, after, size, among):
            names += [each.place.name for each in page]
            after = page[-1].place
    return names


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("order", ORDERS)
def test_every_order_goes_on_behind_any_place(storage: SqlStorage, order: str, descending: bool) -> None:
    for name, steps in (("a", 1), ("b", 0), ("c", 4), ("d", 1), ("e", 0), ("f", 2)):
        open_ledger(storage, name, ZCDP)
        if steps:
            spend(storage, name, steps, each=costing(0.1))
    with reader(storage.database) as reading:
        rows = {each.place.name: each for each in reading.listed(Listing(), None, 10)}
    keys: dict[str, Callable[[Any], Any]] = {
        "left": lambda each: each.left_basis_points,
        "name": lambda each: 0,
        "entries": lambda each: each.row.state.sequence,
        "changed": lambda each: each.row.changed_at_us,
    }
    expected = sorted(rows, key=lambda name: (keys[order](rows[name]), name), reverse=descending)

    for size in (1, 2, 4, 10):
        assert listed(storage, Listing(order, descending), size) == expected
        assert listed(storage, Listing(order, descending), size, {*rows, "nowhere"}) == expected
    assert listed(storage, Listing(order, descending), 2, {"a", "c", "f"}) == [
        name for name in expected if name in "acf"
    ]


@pytest.fixture
def varied(service: Service) -> Service:
    """Datasets in every situation."""
    for name in ("unused", "running", "low", "spent", "refusing", "closed"):
        service.open(name, budget=WHOLE)
    service.open("gaussian", budget={"accounting": "gdp", "mu": 1.0})
    job = service.make_token("spend", team="ranking")
    service.clock.advance(3600)
    for rho, name in ((0.25, "running"), (0.92, "low"), (1.0, "spent"), (0.5, "refusing"), (0.5, "closed")):
        made(job.authorize({"mechanism": "zcdp", "rho": rho}, dataset=name, run=f"run-of-{name}"))
    etag = service.get("/v1/datasets/closed").headers["etag"]
    change = {"budget": {"accounting": "zcdp", "rho": 0.1}, "reason": "over"}
    made(service.post("/v1/datasets/closed/budget-changes", change, headers={"If-Match": etag}))
    service.clock.advance(3600)
    for _ in range(3):
        assert job.authorize({"mechanism": "zcdp", "rho": 0.75}, dataset="refusing").status_code == 409
    assert service.reserve(4, dataset="running", releases=[HALF]).status_code == 409
    return service


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("state=used-up", {"spent", "closed"}),
        ("state=low", {"low"}),
        ("state=refusing", {"refusing"}),
        ("state=fine", {"unused", "running", "refusing", "gaussian"}),
        ("kind=gdp", {"gaussian"}),
        ("kind=rdp", set()),
        ("team=ranking", {"running", "low", "spent", "refusing", "closed"}),
        ("team=nobody", set()),
        ("team=ranking&state=fine", {"running", "refusing"}),
        ("search=un", {"unused", "running"}),
        ("search=un&team=ranking&kind=zcdp&state=fine&sort=-entries", {"running"}),
    ],
)
def test_filters_narrow_the_list_for_every_token(varied: Service, query: str, expected: set[str]) -> None:
    everybody, limited = Visitor(varied), Visitor(varied)
    everybody.log_in(varied.token)
    names = ["unused", "running", "low", "spent", "refusing", "closed", "gaussian"]
    limited.log_in(varied.make_token("read", datasets=names).token)

    for visitor in (everybody, limited):
        assert set(datasets_in(visitor.page(f"/?{query}"))) == expected


def test_a_row_says_what_becomes_of_its_dataset(varied: Service) -> None:
    visitor = Visitor(varied)
    visitor.log_in(varied.token)
    page = visitor.page()

    assert "nothing spent yet" in row_of(page, "unused")
    assert "used up" in row_of(page, "spent")
    assert "closed: the limit was lowered" in row_of(page, "closed")
    refusing = row_of(page, "refusing")
    assert "refusing since 2023-11-15 00:13" in refusing
    assert re.search(r'data-label="Refused, 24 h" class="num"><strong class="low">3</strong>', refusing)
    assert "run-of-refusing</a>" in refusing
    assert 'href="/dashboard/?team=ranking">ranking</a>' in refusing
    assert "50.0 %" in refusing
    for name in ("running", "low"):
        day = re.search(
            r'<span class="situation running">(\d{4}-\d\d-\d\d \d\d:\d\d)</span>', row_of(page, name)
        )
        assert day is not None
        projected = headline(visitor.page(f"/datasets/{name}"))
        assert day[1][:10] in projected
        assert f"at about {day[1][11:]} UTC" in projected
    assert f"Refusing since {'2023-11-15 00:13:20'} UTC" in headline(visitor.page("/datasets/refusing"))
    assert page.count('<svg class="spark') == 7


def test_refusals_of_another_day_are_not_counted(varied: Service) -> None:
    varied.clock.advance(DAY_SECONDS + 1)
    visitor = Visitor(varied)
    visitor.log_in(varied.token)

    row = row_of(visitor.page(), "refusing")

    assert re.search(r'class="num"><span class="none">0</span>', row)
    assert "refusing since 2023-11-15 00:13" in row


def test_more_refusals_than_are_looked_at_are_still_dated_rightly(service: Service, visitor: Visitor) -> None:
    service.open(budget=WHOLE)
    made(service.authorize(HALF))
    for _ in range(103):
        service.clock.advance(60)
        assert service.authorize({"mechanism": "zcdp", "rho": 0.75}).status_code == 409

    row = row_of(visitor.page(), "adult")

    assert ">100+</strong>" in row
    assert "refusing since 2023-11-14 22:14" in row


def test_headings_and_chips_are_plain_links_that_keep_the_rest(varied: Service) -> None:
    visitor = Visitor(varied)
    visitor.log_in(varied.token)
    page = visitor.page("/?state=fine&search=un&sort=-entries")

    assert 'href="/dashboard/?sort=entries&amp;state=fine&amp;search=un"' in page, "the other way round"
    assert 'href="/dashboard/?sort=name&amp;state=fine&amp;search=un"' in page
    assert 'href="/dashboard/?sort=-entries&amp;search=un" aria-current="true"' in page, (
        "takes the state away"
    )
    assert 'href="/dashboard/?sort=-entries&amp;state=fine&amp;kind=gdp&amp;search=un"' in page
    assert 'aria-sort="descending"' in page
    assert '<input type="hidden" name="state" value="fine">' in page
    assert "<script>" not in page


@pytest.mark.parametrize(
    "query", ["state=odd", "kind=odd", "sort=odd", "sort=--left", "after=x", "sort=entries&after=-1~a"]
)
def test_what_no_list_has_is_refused(shared: Service, query: str) -> None:
    visitor = Visitor(shared)
    visitor.log_in(shared.token)

    assert visitor.get(f"/?{query}").status_code == 400
    assert visitor.get(f"/datasets.csv?{query}").status_code == 400


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_the_file_holds_what_the_list_shows(varied: Service) -> None:
    visitor = Visitor(varied)
    visitor.log_in(varied.token)

    for query in ("", "?team=ranking&sort=-name", "?search=nothing-like-it"):
        answer = visitor.get(f"/datasets.csv{query}")
        assert answer.headers["content-type"] == "text/csv; charset=utf-8"
        assert answer.headers["cache-control"] == "no-store"
        rows = rows_of(answer.text)
        assert [row["dataset"] for row in rows] == datasets_in(visitor.page(f"/{query}"))
    rows = rows_of(visitor.get("/datasets.csv").text)
    for row in rows:
        shown = varied.shown(f"/v1/datasets/{row['dataset']}/budget")
        assert float(row["left"]) == shown["fraction"]
        runs = varied.shown(f"/v1/datasets/{row['dataset']}/runs")["items"]
        assert row["top_run"] == (runs[0]["run"] if runs else "")
        if runs:
            # Beside a limit that was lowered a run's share is more than all of it.
            assert min(1.0, float(row["top_share"])) == pytest.approx(runs[0]["fraction"])
            assert row["top_team"] == runs[0]["team"]


def test_no_cell_of_the_file_is_a_formula(service: Service, visitor: Visitor) -> None:
    service.open(description='=HYPERLINK("https://evil.example")')
    made(service.authorize(GAUSSIAN, run="@SUM(1+1)"))

    (row,) = rows_of(visitor.get("/datasets.csv").text)

    assert row["description"].startswith("'=")
    assert row["top_run"].startswith("'@")


def test_a_limited_token_gets_its_datasets_in_the_file_alone(varied: Service) -> None:
    visitor = Visitor(varied)
    visitor.log_in(varied.make_token("read", datasets=["low"]).token)

    assert [row["dataset"] for row in rows_of(visitor.get("/datasets.csv").text)] == ["low"]
    assert Visitor(varied).get("/datasets.csv").status_code == 303


def test_how_much_is_asked_depends_on_the_page_and_not_on_the_ledger(
    service: Service, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def count() -> int:
        asked: list[object] = []
        rows, rows_of_each = Session.rows, Session.rows_of_each
        with monkeypatch.context() as patched:

            def counted(self: Session, statement: Any, values: Any, each: Any = ()) -> Any:
                asked.append(statement)
                return rows(self, statement, values, each)

            def counted_each(self: Session, lists: Any) -> Any:
                asked.extend(query for queries in lists for query in queries)
                return rows_of_each(self, lists)

            patched.setattr(Session, "rows", counted)
            patched.setattr(Session, "rows_of_each", counted_each)
            visitor.page()
        return len(asked)

    for number in range(25):
        service.open(f"dataset-{number:02d}", budget=WHOLE)
        made(service.authorize({"mechanism": "zcdp", "rho": 0.01}, dataset=f"dataset-{number:02d}"))
    few = count()
    for number in range(25):
        for _ in range(4):
            made(service.authorize({"mechanism": "zcdp", "rho": 0.01}, dataset=f"dataset-{number:02d}"))
    for number in range(25, 40):
        service.open(f"dataset-{number:02d}", budget=WHOLE)

    assert count() == few
    assert few <= 10 + 8 * 20
