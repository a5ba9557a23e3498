"""What pages show, on either database."""

import html
import re
from typing import Any
from urllib.parse import urlencode

import pytest

from dpledger.dashboard.views import ROWS
from dpledger.ledger.errors import Unavailable
from dpledger.storage.read_models import dashboard as overview
from tests.api.service import POISSON, SUBSAMPLED, Service, made, problem
from tests.dashboard.visitor import Visitor, datasets_in, entries_in, section

RDP: dict[str, Any] = {"accounting": "rdp", "epsilon": 3.0, "delta": 1e-5}
STEP: dict[str, Any] = {**SUBSAMPLED, "purpose": "gradient"}


def spend_sampled(service: Service, times: int, dataset: str = "adult", run: str = "agd-1") -> None:
    for _ in range(times):
        made(service.authorize(STEP, dataset=dataset, run=run, sample=POISSON))


def test_an_empty_ledger_says_how_to_open_a_dataset(visitor: Visitor) -> None:
    page = visitor.page()

    assert "No dataset yet" in page
    assert "curl -X POST http://testserver/v1/datasets" in page


def test_datasets_stand_in_the_order_of_urgency(service: Service, visitor: Visitor) -> None:
    for name, steps in (("fresh", 0), ("half", 2), ("used-up", 4), ("also-half", 2)):
        service.open(name)
        for _ in range(steps):
            made(service.authorize(dataset=name))

    page = visitor.page()

    assert datasets_in(page) == ["used-up", "also-half", "half", "fresh"]
    assert ">1.9 %</strong>" in page
    assert "1 below 10 %" in page


def test_a_lowered_limit_stands_beside_the_guarantee(service: Service, visitor: Visitor) -> None:
    service.open("adult", RDP)
    fact = re.search(r"<dt>Guarantee</dt><dd>([^<]*)</dd>", visitor.page("/datasets/adult"))
    assert fact is not None
    assert fact[1] == "ε = 3 at δ = 1e-5, since entry 1"
    body = {"budget": {**RDP, "epsilon": 2.0}, "reason": "less"}
    made(service.post("/v1/datasets/adult/budget-changes", body, headers={"If-Match": "1"}))

    page = visitor.page("/datasets/adult")

    assert "since entry 1; the limit is lower and limits what is to come</dd>" in page


def test_a_search_looks_at_names_and_descriptions_in_any_case(service: Service, visitor: Visitor) -> None:
    service.open("census", description="Income of adults")
    service.open("trips", description="100% of the rides")
    service.open("notes")

    assert datasets_in(visitor.page("/?search=ADULT")) == ["census"]
    assert datasets_in(visitor.page("/?search=tri")) == ["trips"]
    assert datasets_in(visitor.page("/?search=0%25 of")) == ["trips"]
    assert datasets_in(visitor.page("/?search=%25")) == ["trips"]
    assert "No dataset found" in visitor.page("/?search=nothing-like-it")


def test_pages_of_the_list_follow_each_other_without_gaps(shared: Service) -> None:
    visitor = Visitor(shared)
    visitor.log_in(shared.token)
    names = [f"listed-{number:02d}" for number in range(2 * ROWS + 3)]
    for name in names:
        shared.open(name)

    found, path = [], "/?search=listed"
    while path:
        page = visitor.page(path)
        found += datasets_in(page)
        following = re.search(r'rel="next" href="/dashboard([^"]+)"', page)
        path = "" if following is None else following[1].replace("&amp;", "&")

    assert found == names


def test_a_token_sees_only_its_datasets(service: Service) -> None:
    for name in ("mine", "theirs"):
        service.open(name)
    visitor = Visitor(service)
    visitor.log_in(service.make_token("read", datasets=["mine", "not-there"]).token)

    assert datasets_in(visitor.page()) == ["mine"]
    assert datasets_in(visitor.page("/?search=their")) == []
    for path in ("", "/run?name=x", "/entries/1"):
        assert visitor.get(f"/datasets/theirs{path}").status_code == 403
    assert visitor.post("/datasets/theirs/verification").status_code == 403
    assert visitor.get("/datasets/mine").status_code == 200


def test_a_dataset_that_nobody_used_says_how_to_ask_for_a_step(service: Service, visitor: Visitor) -> None:
    service.open()
    page = visitor.page("/datasets/adult")

    assert "curl -X POST http://testserver/v1/datasets/adult/authorizations" in page
    assert "Nothing spent yet" in page
    for part in ("runs", "purposes", "refusals", "reservations", "teams"):
        assert f'<section class="card" id="{part}"' not in page
    assert "data-chart" not in page


def test_a_dataset_shows_left_curve_runs_and_purposes(service: Service, visitor: Visitor) -> None:
    service.open(budget=RDP)
    spend_sampled(service, 3, run="agd-1")
    spend_sampled(service, 1, run="agd-2")
    budget = service.budget()

    page = visitor.page("/datasets/adult")

    numbers = [
        [float(each) for each in re.findall(r'<data value="([^"]+)">', row)] for row in _rows(page, "curve")
    ]
    assert [row[0] for row in numbers] == budget["spent"]["orders"]
    assert [row[1] for row in numbers] == budget["spent"]["epsilons"]
    assert [row[2] for row in numbers] == budget["limit"]["epsilons"]
    assert [row for row in _rows(page, "curve") if ">yes<" in row] == [_binding_row(page, budget)]
    runs = section(page, "runs")
    assert runs.index("agd-1") < runs.index("agd-2")
    assert "gradient" in section(page, "purposes")
    last = [float(each) for each in re.findall(r'<data value="([^"]+)">', _rows(page, "left")[-1])]
    assert last == [budget["fraction"]]


def _rows(page: str, series: str) -> list[str]:
    table = re.search(rf'<table data-series="{series}">(.*?)</table>', page)
    assert table is not None, series
    return re.findall(r"<tr[^>]*>.*?</tr>", table[1])[1:]


def _binding_row(page: str, budget: dict[str, Any]) -> str:
    """By the rule of rdp: of the orders with a budget, the one that has most of it left."""
    spent, limit = budget["spent"]["epsilons"], budget["limit"]["epsilons"]
    shares = [used / most if most > 0 else float("inf") for used, most in zip(spent, limit, strict=True)]
    return _rows(page, "curve")[shares.index(min(shares))]


def test_a_scalar_accounting_has_no_curve(service: Service, visitor: Visitor) -> None:
    service.open()
    made(service.authorize())

    page = visitor.page("/datasets/adult")

    assert 'data-chart="burn-down"' in page
    assert 'data-chart="curve"' not in page
    assert "curve-title" not in page
    assert "Spent and reserved</dt><dd>ρ = 0.125 of 0.51" in page


def test_a_refusal_shows_who_asked_and_what_was_left(service: Service, visitor: Visitor) -> None:
    service.open()
    for _ in range(4):
        made(service.authorize())
    assert service.authorize(run="greedy").status_code == 409

    refusals = section(visitor.page("/datasets/adult"), "refusals")

    assert "greedy" in refusals
    assert service.token.split("_")[1][:8] in refusals
    assert "1.9 %" in refusals


def test_open_reservations_are_shown_until_they_are_settled(service: Service, visitor: Visitor) -> None:
    service.open()
    held = made(service.reserve(3))
    page = visitor.page("/datasets/adult")
    assert "up to 3 × gaussian σ/Δ = 2" in section(page, "reservations")
    assert 'class="held"' in page

    made(service.settle(held["id"], 1))

    page = visitor.page("/datasets/adult")
    assert 'id="reservations"' not in page
    assert 'class="held"' not in page
    assert "1 used of reservation 2" in page


def test_partitions_are_summed_up_and_lead_to_their_entries(service: Service, visitor: Visitor) -> None:
    service.open()
    made(service.post("/v1/datasets/adult/partitions", {"names": [f"day-{day:02d}" for day in range(25)]}))
    for _ in range(2):
        made(service.authorize(partition="day-07"))
    made(service.authorize(partition="day-03"))

    page = visitor.page("/datasets/adult")
    partitions = section(page, "partitions")

    assert "25 disjoint parts" in partitions
    assert re.search(r"Most is spent on <a[^>]*>day-07</a>, with 50.9 % left", partitions)
    assert "day-19" in partitions
    assert "day-20" not in partitions
    assert "day-20" in section(visitor.page("/datasets/adult?partitions=19"), "partitions")
    assert entries_in(visitor.page("/datasets/adult?partition=day-07")) == [4, 3]


def test_entries_are_filtered_by_kind_run_and_partition(service: Service, visitor: Visitor) -> None:
    service.open(budget=RDP)
    spend_sampled(service, 2, run="a")
    spend_sampled(service, 2, run="b")
    held = made(service.post("/v1/datasets/adult/reservations", _reservation("b")))
    made(service.settle(held["id"], 1))

    def shown(query: str) -> list[int]:
        return entries_in(visitor.page(f"/datasets/adult?{query}"))

    assert shown("") == [7, 6, 5, 4, 3, 2, 1]
    assert shown("kind=authorized") == [5, 4, 3, 2]
    assert shown("kind=settled") == [7]
    assert shown("run=b") == [7, 6, 5, 4]
    assert shown("run=b&kind=authorized") == [5, 4]
    assert shown("run=nobody") == []
    assert "No entry is like that" in visitor.page("/datasets/adult?run=nobody")


def _reservation(run: str) -> dict[str, Any]:
    return {"run": run, "sample": POISSON, "releases": [STEP], "times": 2, "expires_in_seconds": 60.0}


def test_older_entries_follow_on_the_latest(service: Service, visitor: Visitor) -> None:
    service.open(budget=RDP)
    spend_sampled(service, ROWS + 5)

    first = visitor.page("/datasets/adult?run=agd-1")
    older = re.search(r'rel="next" href="/dashboard([^"#]+)#entries"', first)

    assert older is not None
    assert entries_in(first) == list(range(ROWS + 6, 6, -1))
    assert entries_in(visitor.page(older[1].replace("&amp;", "&"))) == [6, 5, 4, 3, 2]


def test_a_search_that_no_index_answers_looks_back_a_bounded_part(
    service: Service, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "WINDOW", 4)
    monkeypatch.setattr(overview, "_COMBED_AT_ONCE", 2)
    service.open(budget=RDP)
    made(service.post("/v1/datasets/adult/reservations", _reservation("a")))
    spend_sampled(service, 7, run="a")

    first = visitor.page("/datasets/adult?run=a&kind=reserved")
    second = visitor.page("/datasets/adult?run=a&kind=reserved&before=6")

    assert entries_in(first) == []
    assert "from number 6 on is like that. There may be older ones" in first
    assert "before=6&amp;kind=reserved&amp;run=a" in first
    assert entries_in(second) == [2]


def test_a_run_shows_its_steps_noise_and_cost(service: Service, visitor: Visitor) -> None:
    service.open(budget=RDP)
    laplace = {"mechanism": "laplace", "sensitivity": 2.0, "scale": 20.0}
    made(service.authorize(STEP, run="agd/1 & more", sample=POISSON))
    made(service.authorize(STEP, laplace, run="agd/1 & more", sample=POISSON))
    made(service.authorize(STEP, run="another", sample=POISSON))

    link = re.search(
        r'href="/dashboard(/datasets/adult/run\?name=agd[^"]*)"', visitor.page("/datasets/adult")
    )
    assert link is not None
    page = visitor.page(link[1])

    assert "<h1>agd/1 &amp; more</h1>" in page
    assert entries_in(page) == [3, 2]
    noise = [re.findall(r'<td>([a-z]+)</td>.*?value="([^"]+)"', row) for row in _rows(page, "noise")]
    assert noise == [[("gaussian", "1.1")], [("gaussian", "1.1")], [("laplace", "10.0")]]
    costs = [[float(each) for each in re.findall(r'value="([^"]+)"', row)] for row in _rows(page, "cost")]
    assert len(costs) == 2
    assert costs[1][1] == pytest.approx(costs[0][0] + costs[1][0])
    assert visitor.get("/datasets/adult/run?name=nobody").status_code == 404


def test_a_declared_cost_has_no_noise_to_show(service: Service, visitor: Visitor) -> None:
    service.open()
    made(service.authorize({"mechanism": "zcdp", "rho": 0.01}, run="r"))

    assert "its costs were declared" in visitor.page("/datasets/adult/run?name=r")


def test_an_entry_shows_everything_it_records(service: Service, visitor: Visitor) -> None:
    service.open()
    made(service.authorize(STEP))
    entry = service.shown("/v1/datasets/adult/entries/2")

    page = visitor.page("/datasets/adult/entries/2")

    assert entry["hash"] in page
    assert "&#34;noise_std&#34;: 1.1" in page
    assert visitor.get("/datasets/adult/entries/3").status_code == 404


def test_texts_from_outside_are_escaped(service: Service, visitor: Visitor) -> None:
    bad = "<script>alert(1)</script>"
    service.open(description=bad, unit=bad)
    made(service.authorize({**STEP, "purpose": bad}, run=bad))
    service.authorize(run=f"{bad}-again", sample=None)
    for _ in range(4):
        service.authorize(run=bad)

    for path in ("/", "/datasets/adult", "/datasets/adult/run?name=%3Cscript%3Ealert(1)%3C/script%3E"):
        page = visitor.page(path)
        assert bad not in page
        assert "&lt;script&gt;" in page
    assert bad not in visitor.page(f"/?search={bad}")
    assert bad not in visitor.page(f"/datasets/adult?run={bad}")


def test_a_page_that_did_not_change_is_not_sent_again(service: Service, visitor: Visitor) -> None:
    service.open()
    for path in ("/", "/datasets/adult"):
        first = visitor.get(path)
        tag = first.headers["etag"]
        assert f'data-tag="{tag.replace(chr(34), "&#34;")}"' in first.text
        again = visitor.get(path, {"If-None-Match": tag})
        assert (again.status_code, again.content) == (304, b"")

        made(service.authorize())

        changed = visitor.get(path, {"If-None-Match": tag})
        assert changed.status_code == 200
        assert changed.headers["etag"] != tag


def test_teams_are_shown_by_name_and_so_is_the_quota_that_refused(service: Service, visitor: Visitor) -> None:
    service.open()
    team = service.make_token("spend", team="ranking")
    quota = {"team": "ranking", "fraction": 0.3, "reason": "agreed"}
    made(service.post("/v1/datasets/adult/quotas", quota))
    made(team.authorize())
    problem(team.authorize(run="greedy"), 409, "quota-exceeded")

    page = visitor.page("/datasets/adult")
    assert "beyond the quota of team ranking" in section(page, "refusals")
    assert ">team ranking<" in page
    assert "how much a team may use" in page


def test_a_refusal_alone_changes_the_page(service: Service, visitor: Visitor) -> None:
    service.open()
    for _ in range(4):
        made(service.authorize())
    tag = visitor.get("/datasets/adult").headers["etag"]

    assert service.authorize().status_code == 409

    assert visitor.get("/datasets/adult", {"If-None-Match": tag}).status_code == 200


def test_a_run_page_is_tagged_too(service: Service, visitor: Visitor) -> None:
    service.open()
    made(service.authorize(run="r"))
    tag = visitor.get("/datasets/adult/run?name=r").headers["etag"]

    assert visitor.get("/datasets/adult/run?name=r", {"If-None-Match": tag}).status_code == 304


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/datasets/nowhere", 404),
        ("/nowhere", 404),
        ("/static/nothing.js", 404),
        ("/?after=x", 400),
        ("/?after=x~y", 400),
        ("/?search=" + "x" * 201, 400),
        ("/?search=%00", 400),
        ("/datasets/adult?kind=strange", 400),
        ("/datasets/adult?before=-1", 400),
        ("/datasets/adult?before=99999999999999999999", 400),
        ("/datasets/adult?partitions=x", 400),
    ],
)
def test_what_cannot_be_answered_is_a_page_that_says_so(shared: Service, path: str, status: int) -> None:
    visitor = Visitor(shared)
    visitor.log_in(shared.token)

    answer = visitor.get(path)

    assert answer.status_code == status
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "All datasets" in answer.text


def test_a_search_finds_a_text_as_it_was_written(service: Service, visitor: Visitor) -> None:
    service.open("adult", description="Équipe")

    assert datasets_in(visitor.page("/?search=Équipe")) == ["adult"]


@pytest.mark.parametrize("left", [10_001, 32_768, 99_999])
def test_no_page_ends_beyond_a_whole_budget(visitor: Visitor, left: int) -> None:
    assert visitor.get(f"/?after={left}~adult").status_code == 400


def test_a_database_that_is_away_is_a_page_too(
    service: Service, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise Unavailable("the database is away")

    monkeypatch.setattr(service.app.state.services.storage.database, "read", away)

    answer = visitor.get("/")

    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
    assert "The database is away" in answer.text


@pytest.mark.parametrize("run", [" padded ", " ", "Ünï 実行", "<script>alert(1)</script>", "r" * 200])
def test_every_name_that_a_run_may_have_leads_to_its_page(
    service: Service, visitor: Visitor, run: str
) -> None:
    service.open()
    made(service.authorize(run=run))
    link = re.search(
        r'href="/dashboard(/datasets/adult/run\?[^"]+)"', section(visitor.page("/datasets/adult"), "runs")
    )
    assert link is not None

    page = visitor.get(html.unescape(link[1])).text

    assert f"<h1>{html.escape(run)}</h1>" in page
    assert entries_in(" ".join(visitor.page(f"/datasets/adult?{urlencode({'run': run})}").split())) == [2]


def test_a_problem_names_things_as_they_are_written(service: Service, visitor: Visitor) -> None:
    service.open()

    answer = visitor.get("/datasets/adult/run?name=Sweep-A")

    assert answer.status_code == 404
    assert "There is no run" in answer.text
    assert "Sweep-A" in answer.text


def test_the_delta_that_was_set_aside_is_shown(service: Service, visitor: Visitor) -> None:
    service.open("adult", {**RDP, "additive_delta": 1e-6})
    service.open("plain", RDP)
    made(service.authorize({"mechanism": "propose-test-release", "epsilon": 0.01, "delta": 4e-7}))

    assert "<dt>δ set aside</dt><dd>4e-7 of 1e-6 used</dd>" in visitor.page("/datasets/adult")
    assert "δ set aside" not in visitor.page("/datasets/plain")
