"""The checker can fail: what is planted into an honest history is reported, each as what it is."""

import copy
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from dpledger.auth.keys import load_keys
from tests.chaos.classes import Class, Met, class_of_answer
from tests.chaos.faults import stream
from tests.chaos.history import Asked, History
from tests.chaos.verdict import Verdict, judge
from tests.chaos.workload import KINDS, Scenery, Workload
from tests.reliability.database_targets import DatabaseTarget, sqlite_place
from tests.reliability.ledgers import entries_of
from tests.reliability.processes import services
from tests.reliability.wire import Ask, Heard, ask

REQUESTS = 300
TIGHT = "tight"


def honest(target: DatabaseTarget, port: int) -> History:
    """A history without any fault: the workload of the storm, and a small dataset that is exhausted."""
    history, workload = History(), Workload("caller", Scenery(), stream(5))
    budget = {"accounting": "zcdp", "rho": 0.04}
    follow = [Ask("/v1/datasets", {"name": TIGHT, "budget": budget}, "tight")]
    follow += [spend(f"tight-{number}") for number in range(3)]
    follow.reverse()
    while len(history.asked) < REQUESTS or follow:
        asked = history.begin(follow.pop() if follow else workload.next())
        heard = ask(port, target.token, asked.request)
        asked.met.append(class_of_answer(heard))
        asked.answers.append(heard)
        if TIGHT not in (asked.request.key or ""):
            follow += workload.learn(asked)
    first: dict[str | None, Asked] = {}
    for asked in history.asked:
        known = first.setdefault(asked.request.key, asked)
        known.answers += asked.answers if known is not asked else []
    history.asked = list(first.values())
    names = {asked.request.body["name"] for asked in history.asked if asked.request.path == "/v1/datasets"}  # type: ignore[index]
    history.ledgers = {name: entries_of(port, target.token, name) for name in sorted(names)}
    return history


def spend(key: str) -> Ask:
    body = {"run": "run", "releases": [{"mechanism": "zcdp", "rho": 0.03}]}
    return Ask(f"/v1/datasets/{TIGHT}/authorizations", body, key)


Recorded = tuple[History, Callable[[History], Verdict]]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    target = sqlite_place(tmp_path_factory.mktemp("honest"))
    with services(target, 1) as (running,):
        history = honest(target, running.port)
    actor, seed = target.token.split("_")[1], load_keys(target.key_file).receipt_seed
    return history, lambda recorded_history: judge(recorded_history, actor, seed)


@pytest.fixture
def history(recorded: Recorded) -> History:
    recorded_history = recorded[0]
    return History(copy.deepcopy(recorded_history.asked), copy.deepcopy(recorded_history.ledgers))


@pytest.fixture
def verdict_of(recorded: Recorded) -> Callable[[History], Verdict]:
    return recorded[1]


def asked_for(history: History, key: str) -> Asked:
    return next(asked for asked in history.asked if asked.request.key == key)


def with_body(asked: Asked, **fields: Any) -> None:
    """Alter every answer alike, so that they agree with each other."""
    asked.answers = [replace(heard, body={**heard.body, **fields}) for heard in asked.answers]


def counts(verdict: Verdict) -> dict[str, int]:
    names = ("lost", "overspent", "doubled", "unclassified", "different")
    return {name: len(getattr(verdict, name)) for name in names if getattr(verdict, name)}


def test_an_honest_history_holds(history: History, verdict_of: Callable[[History], Verdict]) -> None:
    verdict = verdict_of(history)

    assert counts(verdict) == {}, verdict
    assert verdict.holds
    assert verdict.refusals > 0
    assert verdict.entries == sum(map(len, history.ledgers.values())) > REQUESTS / 2
    kinds = {entry["kind"] for entries in history.ledgers.values() for entry in entries}
    assert kinds >= {"opened", "authorized", "reserved", "settled", "allocated", "partitions-opened"}
    assert all(any(name.startswith(f"{kind}-") for name in history.ledgers) for kind in KINDS)
    line = r"faults=7 lost=0 overspent=0 doubled=0 unclassified=0 replay=equal seed=9"
    assert re.fullmatch(line, verdict.line(7, 9))


def test_an_entry_that_was_answered_and_is_gone_is_lost(
    history: History, verdict_of: Callable[[History], Verdict]
) -> None:
    history.ledgers[TIGHT].pop()
    verdict = verdict_of(history)

    # Two answers refer to it: the grant, and the refusals that were made after it.
    assert set(counts(verdict)) == {"lost"}
    assert not verdict.holds


def test_a_whole_dataset_that_is_gone_is_lost(
    history: History, verdict_of: Callable[[History], Verdict]
) -> None:
    del history.ledgers[TIGHT]

    assert set(counts(verdict_of(history))) == {"lost"}


def test_an_entry_that_is_missing_from_within_is_lost(
    history: History, verdict_of: Callable[[History], Verdict]
) -> None:
    name = max(history.ledgers, key=lambda each: len(history.ledgers[each]))
    del history.ledgers[name][-2]

    assert counts(verdict_of(history))["lost"] == 1


def test_a_charge_that_no_request_explains_is_doubled(
    history: History, verdict_of: Callable[[History], Verdict]
) -> None:
    """As if one request had been charged twice: the ledger has an entry that no answer names."""
    history.asked.remove(asked_for(history, "tight-0"))

    assert counts(verdict_of(history))["doubled"] == 1


def test_two_requests_that_were_given_one_entry_are_reported(
    history: History, verdict_of: Callable[[History], Verdict]
) -> None:
    again = copy.deepcopy(asked_for(history, "tight-0"))
    again.request = spend("another-key")
    history.asked.append(again)

    assert counts(verdict_of(history))["doubled"] == 1


def test_a_changed_answer_is_different(history: History, verdict_of: Callable[[History], Verdict]) -> None:
    with_body(asked_for(history, "tight-0"), remaining={"fraction": 1.0, "rho": 0.04, "additive_delta": 0.0})

    assert counts(verdict_of(history)) == {"different": 1}


def test_a_changed_refusal_is_different(history: History, verdict_of: Callable[[History], Verdict]) -> None:
    refused = asked_for(history, "tight-1")
    assert refused.refused
    with_body(refused, fits={"times": 1, "cost_fraction": 1.0})

    assert counts(verdict_of(history)) == {"different": 1}


def test_a_refusal_that_does_not_stick_is_different(
    history: History, verdict_of: Callable[[History], Verdict]
) -> None:
    granted = asked_for(history, "tight-0").answers[0]
    asked_for(history, "tight-1").answers.append(granted)

    assert counts(verdict_of(history)) == {"different": 1}


def test_a_refusal_where_there_was_room_is_different(
    history: History, verdict_of: Callable[[History], Verdict]
) -> None:
    with_body(asked_for(history, "tight-1"), sequence=1)

    assert counts(verdict_of(history)) == {"different": 1}


def test_a_grant_beyond_the_budget_is_overspent(
    history: History, verdict_of: Callable[[History], Verdict]
) -> None:
    """As if a lock had been missing: the second step has an entry and an answer like the first."""
    first, second = asked_for(history, "tight-0"), asked_for(history, "tight-1")
    entry = {**history.ledgers[TIGHT][-1], "sequence": 3, "id": f"{TIGHT}~3"}
    history.ledgers[TIGHT].append(entry)
    body = {**first.answers[0].body, "sequence": 3, "id": f"{TIGHT}~3"}
    second.answers = [Heard(201, body)]

    assert counts(verdict_of(history)) == {"overspent": 1}


@pytest.mark.parametrize("problem", ["reservation-closed", "allocation-in-use", "allocation-returned"])
def test_a_final_answer_that_the_ledger_does_not_bear_out_is_different(
    history: History, verdict_of: Callable[[History], Verdict], problem: str
) -> None:
    """As if a reservation were called closed that nobody settled, or an allocation returned that is open."""
    opened = next(asked for asked in history.asked if asked.request.path == "/v1/datasets")
    name = opened.answers[0].body["name"]
    paths = {"reservation-closed": f"/v1/reservations/{name}~1/settlement"}
    path = paths.get(problem, f"/v1/datasets/{name}/allocations/part/return")
    history.asked.append(
        Asked(Ask(path, {"used": 0}, "final"), answers=[Heard(409, {"type": f"/problems/{problem}"})])
    )

    assert counts(verdict_of(history)) == {"different": 1}


def test_a_precondition_that_held_and_is_said_to_have_failed_is_different(
    history: History, verdict_of: Callable[[History], Verdict]
) -> None:
    path, heard = (
        f"/v1/datasets/{TIGHT}/budget-changes",
        Heard(412, {"type": "/problems/precondition-failed"}),
    )
    for behind, found in ((0, {"different": 1}), (1, {})):
        sequence = len(history.ledgers[TIGHT]) - behind
        asked = Asked(Ask(path, {}, f"match-{behind}", if_match=sequence), answers=[heard])
        kept, history.asked = history.asked, [*history.asked, asked]
        assert counts(verdict_of(history)) == found
        history.asked = kept


@pytest.mark.parametrize(
    "heard",
    [
        Heard(500, {"type": "/problems/internal-error"}),
        Heard(409, {"type": "/problems/ledger-rolled-back"}),
        Heard(404, {"type": "/problems/not-found"}),
        Heard(502, {"detail": "a gateway"}),
    ],
)
def test_an_answer_in_no_class_is_reported(
    history: History, verdict_of: Callable[[History], Verdict], heard: Heard
) -> None:
    met = class_of_answer(heard)
    asked_for(history, "tight-0").met.insert(0, met)

    assert met.kind is Class.UNCLASSIFIED
    assert counts(verdict_of(history)) == {"unclassified": 1}


def test_an_error_in_no_class_is_reported(history: History, verdict_of: Callable[[History], Verdict]) -> None:
    asked_for(history, "tight-0").met.append(Met(Class.UNCLASSIFIED, "ValueError()"))

    assert counts(verdict_of(history)) == {"unclassified": 1}


def test_a_request_that_was_never_answered_is_reported(
    history: History, verdict_of: Callable[[History], Verdict]
) -> None:
    history.asked.append(Asked(spend("silent")))

    assert counts(verdict_of(history)) == {"different": 1}


def test_what_the_services_own_verification_finds_is_reported(
    history: History, verdict_of: Callable[[History], Verdict]
) -> None:
    history.invalid.append("tight: altered")

    assert counts(verdict_of(history)) == {"different": 1}
