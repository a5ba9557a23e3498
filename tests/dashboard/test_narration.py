"""Every kind of entry is put into words, with its fields in tables and its JSON as the API shows it."""

import html
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpledger.dashboard.narration import narrate
from dpledger.ledger.model.entries import EntryKind
from tests.api.service import GAUSSIAN, Service, made
from tests.dashboard.forms import words
from tests.dashboard.visitor import Visitor

SHARED = {"accounting": "shared", "epsilon": 1.0, "delta": 1e-6}


def change_budget(service: Service, name: str, budget: dict[str, Any]) -> None:
    etag = service.get(f"/v1/datasets/{name}").headers["etag"]
    body = {"budget": budget, "reason": "second wave"}
    made(service.post(f"/v1/datasets/{name}/budget-changes", body, headers={"If-Match": etag}))


def fill(service: Service) -> None:
    """Entries of every kind but an accepted rollback."""
    service.open()
    made(service.authorize({**GAUSSIAN, "purpose": "gradient"}, run="night"))
    held = made(service.reserve(2, run="night", releases=[{**GAUSSIAN, "noise_std": 20.0}]))
    made(service.settle(held["id"], 1))
    made(service.reserve(1, run="night", seconds=60.0, releases=[{**GAUSSIAN, "noise_std": 20.0}]))
    service.clock.advance(120)
    change_budget(service, "adult", {"accounting": "zcdp", "rho": 2.0})
    quota = {"team": "ranking", "fraction": 0.25, "window_seconds": 86_400, "reason": "agreed"}
    made(service.post("/v1/datasets/adult/quotas", quota))
    made(service.post("/v1/datasets/adult/quotas", {**quota, "fraction": None}))
    service.open("parts")
    made(service.post("/v1/datasets/parts/partitions", {"count": 30}))
    service.open("shared", budget=SHARED)
    part = {"name": "a", "epsilon": 0.1, "delta": 1e-7, "budget": {"accounting": "rdp"}}
    made(service.post("/v1/datasets/shared/allocations", part))
    made(service.post("/v1/datasets/shared/allocations/a/return", {"reason": "not needed"}))
    for name, path, decision in (
        ("b", "decision", {"decision": "approve", "reason": "agreed"}),
        ("c", "decision", {"decision": "reject", "reason": "no room"}),
        ("d", "withdrawal", {"reason": "not needed"}),
    ):
        asked = {"allocation": {**part, "name": name}, "reason": "a study"}
        request = made(service.post("/v1/datasets/shared/budget-requests", asked))
        made(service.post(f"/v1/datasets/shared/budget-requests/{request['id']}/{path}", decision))
    renewal = {"period": "month", "budget": {"accounting": "zcdp", "rho": 0.1}, "reason": "monthly data"}
    made(service.post("/v1/datasets/parts/renewal", renewal))
    made(service.post("/v1/datasets/parts/renewal", {**renewal, "budget": None}))


SAID = {
    ("adult", 1): "The dataset was opened with the budget zcdp: ρ = 0.51.",
    (
        "adult",
        2,
    ): "Run night was granted one step: gaussian (noise_std 2, sensitivity 1) · full, for gradient.",
    ("adult", 3): "Run night reserved up to 2 repetitions until",
    ("adult", 4): "Reservation adult~3 was settled: 1 repetitions ran, the rest was given back.",
    ("adult", 6): "Nobody settled reservation adult~5 in time: all 1 repetitions were charged.",
    ("adult", 7): "An admin changed the limit of the budget to zcdp: ρ = 2.",
    ("adult", 8): "Team ranking may use at most 25 % of the budget within 1 day.",
    ("adult", 9): "The quota of team ranking within 1 day was removed.",
    ("parts", 2): "30 partitions were opened",
    ("shared", 2): "Allocation a was opened",
    ("shared", 3): "Allocation a was given back",
    ("shared", 4): "A token asked an admin for an allocation. Nothing was charged.",
    ("shared", 5): "An admin approved the request of entry 4: the next entry carries it out.",
    ("shared", 8): "An admin rejected the request of entry 7.",
    ("shared", 10): "The token that made the request of entry 9 withdrew it.",
    (
        "parts",
        3,
    ): "Every new month gets a budget of its own, for new records: zcdp: ρ = 0.1.",
    ("parts", 4): "An admin ended the renewal by month: no new epoch gets a budget of its own.",
}


def test_every_kind_of_entry_is_said_in_words(service: Service, visitor: Visitor) -> None:
    fill(service)
    visitor.log_in(service.token)
    kinds = set()

    for (dataset, sequence), said in SAID.items():
        entry = service.shown(f"/v1/datasets/{dataset}/entries/{sequence}")
        kinds.add(entry["kind"])
        page = visitor.get(f"/datasets/{dataset}/entries/{sequence}").text
        assert said in words(page), words(page)
        assert entry["hash"] in page
        shown = re.search(r"<details class=\"raw\">.*?<code>(.*?)</code>", page, re.DOTALL)
        assert shown is not None
        assert json.loads(html.unescape(shown[1])) == entry
    assert {each.value for each in EntryKind} - kinds == {"reserved", "rollback-accepted"} - kinds


def test_the_cost_is_that_of_the_api_to_the_last_digit(service: Service, visitor: Visitor) -> None:
    service.open(budget={"accounting": "rdp", "epsilon": 1.0, "delta": 1e-6})
    made(service.authorize({**GAUSSIAN, "noise_std": 77.7}))
    cost = service.shown("/v1/datasets/adult/entries/2")["cost"]

    page = words(visitor.get("/datasets/adult/entries/2").text)

    assert f"ρ (zCDP) {cost['rho']!r}" in page
    assert f"μ (Gaussian DP) {cost['mu']!r}" in page
    assert f"{len(cost['orders'])} orders from" in page


def test_fields_lead_to_what_they_name(service: Service, visitor: Visitor) -> None:
    service.open()
    held = made(service.reserve(2, run="a run/with signs"))
    made(service.settle(held["id"], 1))

    page = visitor.page("/datasets/adult/entries/3")

    assert 'href="/dashboard/datasets/adult/entries/2">adult~2</a>' in page
    assert "/run?name=a+run%2Fwith+signs" in page


def test_a_rollback_is_said_in_words() -> None:
    entry = {
        "kind": "rollback-accepted",
        "sequence": 9,
        "detail": {"lost": {"sequence": 12, "entry": "ab"}, "reason": "the disk died"},
    }

    found = narrate(entry)

    assert "gave up entries" in found.sentence
    assert [row.value for row in found.detail] == ['{"sequence": 12, "entry": "ab"}', "the disk died"]


def test_a_kind_that_nobody_has_worded_yet_is_shown_by_its_name() -> None:
    found = narrate({"kind": "something-new", "sequence": 3, "detail": {"asked_for": 1.5, "by": None}})

    assert found.sentence == "An entry of the kind something new."
    assert [(row.label, row.value) for row in found.detail] == [("Asked for", "1.5"), ("By", "none")]


values = st.one_of(st.none(), st.booleans(), st.integers(-(2**60), 2**60), st.floats(), st.text(max_size=20))


@given(
    st.sampled_from(["something-new", "opened", "allocated", "quota-changed", "allocation-returned"]),
    st.dictionaries(
        st.sampled_from(["note", "items", "lost", "names"]), values | st.lists(values), max_size=4
    ),
)
def test_whatever_a_detail_holds_is_said(kind: str, detail: dict[str, Any]) -> None:
    found = narrate({"kind": kind, "sequence": 1, "detail": detail})

    assert found.sentence.endswith(".")
    assert len(found.detail) == len(detail)


@pytest.mark.parametrize("document", ["", "{}", "[]", "null", "not json", '{"accounting": "gone"}'])
def test_a_budget_that_cannot_be_read_is_shown_as_it_stands(document: str) -> None:
    found = narrate({"kind": "budget-changed", "sequence": 2, "detail": {"budget": document}})

    assert document in found.sentence
