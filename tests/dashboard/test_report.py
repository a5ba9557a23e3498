"""The report's page: its numbers are the API's, on the dashboard and in a file of its own."""

import html
import re
import threading
from typing import Any

import pytest

from dpledger.dashboard import formatting as wording
from dpledger.dashboard.pages import Pages
from dpledger.dashboard.report import (
    amounts_down,
    amounts_up,
    change_text,
    described_step,
    headline,
    verification_of,
)
from dpledger.dashboard.verification import Verdict
from tests.api.service import GAUSSIAN, POISSON, SUBSAMPLED, Service, made
from tests.dashboard.visitor import Visitor

LOOK: dict[str, Any] = {**GAUSSIAN, "noise_std": 30.0, "purpose": "gradient"}
PLAN: dict[str, Any] = {
    "accounting": "plan",
    "epsilon": 1.0,
    "delta": 1e-5,
    "items": [
        {"name": "sgd", "sample": POISSON, "releases": [SUBSAMPLED], "times": 20},
        {"name": "look", "releases": [{**GAUSSIAN, "noise_std": 30.0}], "times": 10},
        {"name": "reserve", "gdp": {"mu": 0.05}},
    ],
}
BUDGETS: dict[str, dict[str, Any]] = {
    "zcdp": {"accounting": "zcdp", "epsilon": 1.0, "delta": 1e-6},
    "gdp": {"accounting": "gdp", "mu": 0.7},
    "rdp": {"accounting": "rdp", "epsilon": 3.0, "delta": 1e-5},
    "rdp-curve": {"accounting": "rdp-curve", "orders": [2.0, 16.0], "epsilons": [0.5, 2.0]},
    "plan": PLAN,
    "shared": {"accounting": "shared", "epsilon": 3.0, "delta": 1e-5},
}
HOSTILE = "<script>alert('x')</script>&\"{{ 7 * 7 }}"


def text_of(page: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


def body_of(page: str) -> str:
    """The report itself, without what stands around it."""
    return text_of(re.split(r'<div class="report">', page)[1].split("</main>")[0])


def spent(service: Service, accounting: str, name: str) -> dict[str, Any]:
    service.open(name, BUDGETS[accounting], records=48_842)
    part: dict[str, Any] = {}
    if accounting == "shared":
        body = {"name": "team", "epsilon": 1.0, "delta": 1e-6, "budget": {"accounting": "zcdp"}}
        made(service.post(f"/v1/datasets/{name}/allocations", body))
        part = {"allocation": "team"}
    for run in ("one", "one", "two"):
        made(service.authorize(LOOK, dataset=name, run=run, **part))
    made(service.reserve(2, name, seconds=3600.0, run="holding", releases=[LOOK], **part))
    return report_of(service, name)


def report_of(service: Service, name: str) -> dict[str, Any]:
    found: dict[str, Any] = service.shown(f"/v1/datasets/{name}/report")
    return found


@pytest.fixture
def reader(shared: Service) -> Visitor:
    visitor = Visitor(shared)
    visitor.log_in(shared.token)
    return visitor


@pytest.mark.parametrize("accounting", BUDGETS)
def test_the_page_and_the_file_show_the_numbers_of_the_api(
    shared: Service, reader: Visitor, accounting: str
) -> None:
    report = spent(shared, accounting, name=accounting)
    budget = report["budget"]

    page, file = reader.page(f"/datasets/{accounting}/report"), Pages().render_report(report)

    wanted = [
        f"Privacy report: {accounting}",
        headline(budget["guarantee"]),
        f"Limit in force {amounts_down(budget['limit'])}",
        amounts_up(budget["spent"]),
        f"Left {wording.left_percent(budget['fraction'])} of it: {amounts_down(budget['remaining'])}",
        f"{wording.left_percent(budget['fraction'])} left",
        *(report["rule"][name] for name in ("summary", "theorem", "conditions", "source")),
        report["head"],
        "48 842",
        "gaussian (noise_std 30, sensitivity 1) · full gradient computed",
    ]
    for each in report["runs"]:
        share = "–" if each["fraction"] is None else wording.share_percent(each["fraction"])
        held = each["reserved"].get("fraction")
        reserved = f"{each['reserved']['open']} open" if held is None else wording.share_percent(held)
        wanted.append(f"{each['run']} {share} {reserved} {each['entries']} ")
    for text in (body_of(page), body_of(file)):
        assert [each for each in wanted if " ".join(each.split()) not in text] == []


def test_items_of_a_plan_and_what_an_auditor_asks(shared: Service, reader: Visitor) -> None:
    report = spent(shared, "plan", name="planned")
    found = report["budget"]["plan"]

    text = body_of(reader.page("/datasets/planned/report"))

    assert "look gaussian (sensitivity 1, noise_std 30) · full 5 2 10 5" in text
    assert "reserve any gdp steps μ² = 0 μ² = 0 μ² = " in text
    assert f"ε at δ = 1e-5 {wording.rounded_up(found['epsilon'])} proven not below" in text
    assert f"μ = {wording.rounded_up(found['audit']['equivalent_mu'])}" in text
    assert f"attack at most {wording.share_percent(found['audit']['advantage'])}" in text


def test_changes_are_told_with_their_reasons(shared: Service, reader: Visitor) -> None:
    shared.open("changed")
    made(shared.authorize(dataset="changed"))
    change = {"budget": {"accounting": "zcdp", "rho": 0.3}, "reason": "the board wants less"}
    made(shared.post("/v1/datasets/changed/budget-changes", change, headers={"If-Match": '"2"'}))

    text = body_of(reader.page("/datasets/changed/report"))

    assert "limit ρ = 0.3 the board wants less" in text
    assert "The present limit is lower than the guarantee" in text
    assert "ρ = 0.51 guaranteed of all outputs together, since entry 1" in text


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"kind": "rollback-accepted", "detail": {"lost": {"sequence": 1200}}}, "up to entry 1 200"),
        ({"budget": '{"accounting": "rdp-curve", "target": {}, "orders": [2.0, 4.0]}'}, "over 2 orders"),
        (
            {"budget": '{"accounting": "plan", "limits": [300.0, 0.0025, 0.0], "target": {}}'},
            "items limited to 300, 0.0025",
        ),
    ],
)
def test_a_change_is_put_into_words(entry: dict[str, Any], words: str) -> None:
    whole = entry if "kind" in entry else {"kind": "budget-changed", "detail": entry}
    assert words in change_text(whole)


def test_what_nobody_verified_is_said_and_what_somebody_did(shared: Service, reader: Visitor) -> None:
    shared.open("adult")
    assert "Nobody had the ledger replayed" in body_of(reader.page("/datasets/adult/report"))
    reader.post("/datasets/adult/verification")
    for thread in threading.enumerate():
        if thread.name == "verification":
            thread.join()
    made(shared.authorize())

    text = body_of(reader.page("/datasets/adult/report"))

    assert "Valid up to entry 1:" in text
    assert "Entries after that one have not been replayed." in text
    heads = [shared.shown(f"/v1/datasets/adult/entries/{number}")["hash"] for number in (1, 2)]
    assert all(head in text for head in heads)


def test_a_broken_ledger_is_not_called_valid(shared: Service) -> None:
    shared.open("broken")
    problems = ("entry 1 <b>does not follow</b>",)
    verdict = Verdict(0, finished_at_us=shared.clock.at_us, sequence=1, problems=problems)
    report = {**report_of(shared, "broken"), "verification": verification_of("broken", verdict)}

    file = Pages().render_report(report)

    assert "Not valid" in body_of(file)
    assert "Valid up to" not in body_of(file)
    assert "entry 1 &lt;b&gt;does not follow&lt;/b&gt;" in file
    assert verification_of("broken", None) is None
    assert verification_of("broken", Verdict(0)) is None


def test_hostile_texts_are_escaped(shared: Service, reader: Visitor) -> None:
    shared.open("hostile", description=HOSTILE)
    made(shared.authorize({**GAUSSIAN, "purpose": HOSTILE}, dataset="hostile", run=HOSTILE))

    for page in (
        reader.page("/datasets/hostile/report"),
        Pages().render_report(report_of(shared, "hostile")),
    ):
        assert "<script>alert" not in page
        assert text_of(page).count(HOSTILE) == 4


def test_the_file_needs_no_other_and_runs_nothing(shared: Service) -> None:
    shared.open("alone")

    file = Pages().render_report(report_of(shared, "alone"))

    assert re.findall(r"<(?:script|img|link|iframe|object|form|a)\b", file) == []
    assert re.findall(r"url\(|@import|https?:", file) == []
    assert "default-src 'none'" in file
    assert "@media print" in file


def test_long_lists_are_cut_on_the_page(shared: Service) -> None:
    shared.open("long")
    made(shared.authorize(dataset="long"))
    report = report_of(shared, "long")
    (run,), (step,) = report["runs"], report["steps"]
    changes = [
        {"sequence": n, "at": run["last_at"], "actor": "a", "kind": "budget-changed"} for n in range(101)
    ]
    limit = {"reason": "r", "budget": '{"accounting": "zcdp", "target": {"rho": 1.0}}'}
    report |= {"runs": [run] * 101, "steps": [step] * 1000, "truncated": ["steps"]}
    report["changes"] = [{**each, "detail": limit} for each in changes]

    file = Pages().render_report(report)

    assert file.count('<th scope="row" class="name">run-1</th>') == 100
    assert "The first 100 are shown here." in file
    assert "The first 100 are shown here; the list itself ends at 1 000." in file
    assert "Only the latest 100 are shown here." in file
    assert '<td class="num">0</td><td class="nowrap">2023' not in file


def test_the_dataset_page_leads_to_it(shared: Service, reader: Visitor) -> None:
    shared.open("linked")

    assert '<a href="/dashboard/datasets/linked/report">Report</a>' in reader.page("/datasets/linked")
    assert reader.get("/datasets/nobody/report").status_code == 404


def test_steps_and_amounts_are_put_into_words() -> None:
    tuned = {"mechanism": "tuned", "law": "poisson", "mean": 3.0, "candidates": [[{}]]}
    step = {"sample": {"scheme": "poisson", "rate": 0.01}, "releases": [{**GAUSSIAN, "count": 3}, tuned]}
    assert described_step(step) == (
        "3 × gaussian (sensitivity 1, noise_std 2); tuned (law poisson, mean 3) · poisson, rate 0.01"
    )
    assert amounts_up({"rho": 0.123456, "additive_delta": 1e-7}) == "ρ = 0.1235, additive δ = 1e-7"
    assert amounts_down({"rho": 0.123456, "additive_delta": 0.0}) == "ρ = 0.1234"
    assert headline({"orders": [2.0], "epsilons": [0.5], "since": 1}) == "a Rényi curve over 1 orders"
    assert headline({"epsilon": 1.0, "delta": 1e-6, "rho": 0.02}) == "ε = 1 at δ = 1e-6"
