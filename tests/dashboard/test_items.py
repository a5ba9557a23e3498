"""The page of a budget that is drawn as its items."""

import html
import re
from typing import Any

import numpy as np
import pytest

from dpledger.accounting.sampling import Adjacency
from dpledger.dashboard import formatting as wording
from dpledger.ledger.model.budget import Budget
from tests.api.service import GAUSSIAN, POISSON, SUBSAMPLED, Service, made
from tests.dashboard.visitor import Visitor, section

EVALUATION = {**GAUSSIAN, "noise_std": 40.0}
ITEMS: list[dict[str, Any]] = [
    {"name": "sgd", "sample": POISSON, "releases": [SUBSAMPLED], "times": 200},
    {"name": "evaluate", "releases": [EVALUATION], "times": 2},
    {"name": "searches", "zcdp": {"rho": 0.001}},
]
PLAN: dict[str, Any] = {"accounting": "plan", "epsilon": 1.0, "delta": 1e-5, "items": ITEMS}


def text_of(markup: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", markup)).split())


def rows_of(page: str, part: str) -> list[str]:
    """The rows of the table in a part of a page, as text."""
    body = section(page, part).split("<tbody>")[1]
    return [text_of(row) for row in body.split("</tr>")[:-1]]


@pytest.fixture
def planned(service: Service) -> Service:
    """A plan of which one item is used up, one is partly reserved, and one is a cap."""
    service.open(budget=PLAN)
    for _ in range(3):
        made(service.authorize(SUBSAMPLED, sample=POISSON, run="sgd-1"))
    for _ in range(2):
        made(service.authorize({**EVALUATION, "purpose": "accuracy"}, run="look"))
    made(service.reserve(50, run="sgd-2", sample=POISSON, releases=[SUBSAMPLED]))
    made(service.authorize({"mechanism": "zcdp", "rho": 0.00025}, run="search"))
    return service


def test_each_item_has_a_row_with_its_counts(planned: Service, visitor: Visitor) -> None:
    sgd, evaluate, searches = rows_of(visitor.page("/datasets/adult"), "items")

    assert sgd == "sgd gaussian σ/Δ = 1.1 · poisson q = 0.01 3 50 200"
    assert evaluate == "evaluate used up gaussian σ/Δ = 40 · full 2 0 2"
    assert searches == "searches steps chosen on the way: their ρ adds up ρ = 0.00025 ρ = 0 ρ = 0.001"
    assert planned.sequence() == 8


def test_the_headline_and_the_list_say_what_is_left_of_the_first_items(
    planned: Service, visitor: Visitor
) -> None:
    left = "147 of 200 sgd, 0 of 2 evaluate and 1 more"
    fraction = planned.shown("/v1/datasets/adult")["remaining"]["fraction"]

    now = text_of(section(visitor.page("/datasets/adult"), "now"))

    assert f"{wording.left_percent(fraction)} left {left}, within ε = 1 at δ = 1e-5" in now
    assert "weigh each item by its Rényi cost at order 2" in now
    assert "ε = 1 at δ = 1e-5, since entry 1" in now
    assert left in visitor.page()


def test_shares_of_runs_add_up_to_what_is_not_left(planned: Service, visitor: Visitor) -> None:
    page = visitor.page("/datasets/adult")
    shares = re.findall(r'<td class="num nowrap">(\S+) %', section(page, "runs"))
    fraction = planned.shown("/v1/datasets/adult")["remaining"]["fraction"]

    assert len(shares) == 4
    assert sum(map(float, shares)) == pytest.approx(100.0 * (1.0 - fraction), rel=0.01)
    purposes = re.findall(r'<td class="num nowrap">(\S+) %', section(page, "purposes"))
    assert sum(map(float, purposes)) == pytest.approx(100.0 * (1.0 - fraction), rel=0.01)
    (total,) = re.findall(r'<span class="big">(\S+) %</span> of the budget', visitor.page(RUN))
    assert float(total) == pytest.approx(float(shares[0]), rel=0.02)


RUN = "/datasets/adult/run?name=sgd-2"


def test_the_profile_is_a_table_beside_its_figure(planned: Service, visitor: Visitor) -> None:
    page = visitor.page("/datasets/adult")
    found = planned.shown("/v1/datasets/adult/budget")["plan"]

    assert 'data-chart="profile"' in page
    table = page.split('data-series="profile"')[1].split("</table>")[0]
    values = [float(each) for each in re.findall(r'<data value="([^"]+)">', table)]
    assert values[0::2] == found["profile"]["epsilons"]
    assert values[1::2] == found["profile"]["deltas"]
    limit = page.split('data-series="limit"')[1].split("</table>")[0]
    assert re.findall(r'<data value="([^"]+)">', limit) == ["1.0", "1e-05"]


def test_an_auditor_finds_bounds_that_are_rounded_to_the_safe_side(
    planned: Service, visitor: Visitor
) -> None:
    found = planned.shown("/v1/datasets/adult/budget")["plan"]
    card = text_of(visitor.page("/datasets/adult").split('id="audit-title"')[1].split("</section>")[0])

    assert f"ε at δ = 1e-5 {wording.rounded_up(found['epsilon'])} proven not below" in card
    assert f"Unused ε {wording.rounded_down(found['unused_epsilon'])}" in card
    assert f"μ = {wording.rounded_up(found['audit']['equivalent_mu'])}" in card
    assert f"attack at most {wording.share_percent(found['audit']['advantage'])}" in card
    for rate, at_most in zip(("0.1", "1", "10"), found["audit"]["true_positive_rates"], strict=True):
        assert f"{rate} % false positives at most {wording.share_percent(at_most)}" in card


def test_a_refusal_says_that_nothing_fits(planned: Service, visitor: Visitor) -> None:
    assert planned.authorize(EVALUATION, run="look").status_code == 409

    assert "nothing of it" in rows_of(visitor.page("/datasets/adult"), "refusals")[0]


def test_a_fresh_plan_shows_how_to_ask_for_its_first_step(service: Service, visitor: Visitor) -> None:
    service.open(budget=PLAN)

    page = html.unescape(visitor.page("/datasets/adult"))

    (body,) = re.findall(r"-d '(\{.*?\})'", page)
    answer = service.client.post(
        "/v1/datasets/adult/authorizations",
        content=body,
        headers={**service.headers(), "Content-Type": "application/json", "Idempotency-Key": "first"},
    )
    assert answer.status_code == 201, answer.text


def test_lowered_counts_are_the_limits_that_are_shown(service: Service, visitor: Visitor) -> None:
    service.open(budget=PLAN)
    for _ in range(2):
        made(service.authorize(SUBSAMPLED, sample=POISSON))
    lowered = {"accounting": "plan", "items": [{"name": "sgd", "times": 1}, {"name": "evaluate", "times": 0}]}
    change = {"budget": lowered, "reason": "less"}
    made(service.post("/v1/datasets/adult/budget-changes", change, headers={"If-Match": "3"}))

    page = visitor.page("/datasets/adult")

    sgd, evaluate, _ = rows_of(page, "items")
    assert sgd.startswith("sgd used up")
    assert sgd.endswith("2 0 1")
    assert evaluate.startswith("evaluate used up")
    assert "the limit is lower and limits what is to come" in page
    assert [each for each in re.findall(r"([\d.]+) %", text_of(page)) if float(each) > 100.0] == []


def test_items_of_partitions_are_those_of_the_record_that_bears_most(
    service: Service, visitor: Visitor
) -> None:
    service.open(budget=PLAN)
    made(service.post("/v1/datasets/adult/partitions", {"names": ["a", "b"]}))
    made(service.authorize(SUBSAMPLED, sample=POISSON))
    for partition, times in (("a", 3), ("b", 2)):
        for _ in range(times):
            made(service.authorize(SUBSAMPLED, sample=POISSON, partition=partition))

    page = visitor.page("/datasets/adult")

    assert rows_of(page, "items")[0].endswith("4 0 200")
    assert "the most that any one record bears" in section(page, "items")


def test_long_names_are_cut_where_there_is_little_room() -> None:
    items = [{**ITEMS[0], "name": "n" * 200}]
    budget = Budget.from_fields({**PLAN, "items": items}, Adjacency.ADD_REMOVE)

    assert wording.items_left_text(budget, np.zeros(2)) == f"200 of 200 {'n' * 23}…"


def test_a_plan_that_is_used_up_promises_no_change_of_its_counts(service: Service, visitor: Visitor) -> None:
    once = {"name": "evaluate", "releases": [EVALUATION], "times": 1}
    service.open(budget={"accounting": "plan", "epsilon": 1.0, "delta": 1e-5, "items": [once]})
    made(service.authorize(EVALUATION))

    now = section(visitor.page("/datasets/adult"), "now")

    assert "Every item is used up, and no count of a plan is ever raised." in now
    assert "until an admin changes the budget" not in now
