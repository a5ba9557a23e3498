"""Whoever changes a ledger behind the service's back is found out by the next verification."""

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from dpledger.storage.engine.codec import OPEN
from dpledger.storage.engine.engines import normalized_url
from tests.reliability.database_targets import DatabaseTarget
from tests.reliability.ledgers import (
    allocated_step,
    allocation,
    authorization,
    check_ledger,
    check_shared,
    decided_request,
    look,
    open_dataset,
    open_shared,
    requested_allocation,
    step,
)
from tests.reliability.model import limit_rho
from tests.reliability.wire import Ask, ask

UNITS = 20
THIS = "dataset_id = (SELECT id FROM datasets WHERE name = :name)"
ALTERATIONS = {
    "a time": f"UPDATE entries SET at_us = at_us + 1 WHERE {THIS} AND sequence = 2",
    "a price": f"UPDATE entries SET charge = (SELECT min(charge) FROM entries WHERE {THIS})"
    f" WHERE {THIS} AND sequence = 3",
    "a count": f"UPDATE entries SET times = times - 1 WHERE {THIS} AND sequence = 4",
    "a run": f"UPDATE entries SET run = (SELECT max(run) FROM entries WHERE {THIS})"
    f" WHERE {THIS} AND sequence = 2",
    "the end": f"DELETE FROM entries WHERE {THIS} AND sequence = 5",
    "the middle": f"DELETE FROM entries WHERE {THIS} AND sequence = 3",
    "a link": f"UPDATE entries SET hash = (SELECT hash FROM entries WHERE {THIS} AND sequence = 3)"
    f" WHERE {THIS} AND sequence = 2",
    "the opening": "UPDATE entries SET detail = replace(detail, :limit, :higher)"
    f" WHERE {THIS} AND sequence = 1",
    "the spent": f"UPDATE datasets SET spent = (SELECT amounts FROM charges WHERE {THIS} AND number ="
    f" (SELECT min(charge) FROM entries WHERE {THIS})) WHERE name = :name",
    "the held": "UPDATE datasets SET reserved = spent WHERE name = :name",
    "the head": f"UPDATE datasets SET head = (SELECT hash FROM entries WHERE {THIS} AND sequence = 2)"
    " WHERE name = :name",
    "the length": "UPDATE datasets SET sequence = sequence - 1 WHERE name = :name",
    "the limit": f"UPDATE budgets SET document = replace(document, :limit, :higher) WHERE {THIS}",
    "the guarantee": "UPDATE datasets SET guaranteed_since = 2 WHERE name = :name",
    "the list of prices": f"UPDATE charges SET amounts = (SELECT spent FROM datasets WHERE name = :name)"
    f" WHERE {THIS}",
    "the prices shown": f"UPDATE charges SET rho = rho / 2 WHERE {THIS}",
    "the unit protected": "UPDATE datasets SET unit = 'session' WHERE name = :name",
    "a hold closed": f"UPDATE reservations SET state = state + 1 WHERE {THIS}",
    "a hold prolonged": f"UPDATE reservations SET expires_at_us = 2 * expires_at_us WHERE {THIS}",
    "a hold forgotten": f"DELETE FROM reservations WHERE {THIS}",
}


@pytest.fixture
def intruder(database_target: DatabaseTarget) -> Iterator[sa.Engine]:
    """Somebody with a password for the database and no respect for the service."""
    engine = sa.create_engine(normalized_url(database_target.database))
    yield engine
    engine.dispose()


def alter(intruder: sa.Engine, name: str, statement: str) -> None:
    values = {"name": name, "limit": repr(limit_rho(UNITS)), "higher": repr(limit_rho(10 * UNITS))}
    used = {key: value for key, value in values.items() if f":{key}" in statement}
    with intruder.begin() as connection:
        assert connection.execute(sa.text(statement), used).rowcount > 0


def write_ledger(database_target: DatabaseTarget, port: int, name: str) -> None:
    """Five entries: opened, two prices, a hold, and one more under another run."""
    open_dataset(port, database_target.token, name, units=UNITS)
    held = {**step(2), "times": 3, "expires_in_seconds": 3600.0}
    other = Ask(f"/v1/datasets/{name}/authorizations", step(1, run="other"), "key-3")
    requests = [
        authorization(name, 1, "key-1"),
        authorization(name, 2, "key-2"),
        Ask(f"/v1/datasets/{name}/reservations", held, "hold"),
        other,
    ]
    assert {ask(port, database_target.token, request).status for request in requests} == {201}
    check_ledger(port, database_target.token, name, spent=10, authorized=3, reserved=1)


@pytest.mark.parametrize("what", ALTERATIONS)
def test_an_altered_ledger_is_found_out(
    database_target: DatabaseTarget, clean: int, intruder: sa.Engine, what: str
) -> None:
    name = what.replace(" ", "-")
    write_ledger(database_target, clean, name)
    alter(intruder, name, ALTERATIONS[what])

    verdict = look(clean, database_target.token, name, "verification")
    assert verdict["valid"] is False
    assert verdict["problems"]


SHARED_ALTERATIONS = {
    "what an allocation has spent": f"UPDATE allocations SET spent = reserved WHERE {THIS}",
    "its exact sums": f"UPDATE allocations SET exact = '|' WHERE {THIS}",
    "its part of epsilon": f"UPDATE allocations SET epsilon = 0.05 WHERE {THIS}",
    "its part of delta": f"UPDATE allocations SET delta = 1e-9 WHERE {THIS}",
    "its owner": f"UPDATE allocations SET owner = 'eve' WHERE {THIS}",
    "its name": f"UPDATE allocations SET name = 'mine' WHERE {THIS}",
    "that something was released": f"UPDATE allocations SET releases = 0 WHERE {THIS}",
    "that it is open": f"UPDATE allocations SET returned = 1 WHERE {THIS}",
    "whose an entry is": f"UPDATE entries SET allocation = NULL WHERE {THIS} AND sequence = 3",
    "the whole allocation": f"DELETE FROM allocations WHERE {THIS}",
    "the kind of a charge": f"UPDATE charges SET accounting = 'gdp' WHERE {THIS}",
}


@pytest.mark.parametrize("what", SHARED_ALTERATIONS)
def test_an_altered_allocation_is_found_out(
    database_target: DatabaseTarget, clean: int, intruder: sa.Engine, what: str
) -> None:
    name, token = what.replace(" ", "-"), database_target.token
    open_shared(clean, token, name, tenths=1)
    requests = [allocation(name, "part", "part"), allocated_step(name, "part", "step")]
    assert {ask(clean, token, request).status for request in requests} == {201}
    check_shared(clean, token, name, tenths=1, allocated=1, authorized=1)
    alter(intruder, name, SHARED_ALTERATIONS[what])

    verdict = look(clean, token, name, "verification")
    assert verdict["valid"] is False
    assert verdict["problems"]


REQUEST_ALTERATIONS = {
    "what was requested": "UPDATE budget_requests SET asked = replace(asked, '0.1', '0.2')"
    f" WHERE {THIS} AND state = 1",
    "who requested it": f"UPDATE budget_requests SET actor = 'eve' WHERE {THIS} AND state = 1",
    "what became of it": "UPDATE budget_requests SET state = 0, decided_at = NULL"
    f" WHERE {THIS} AND state = 1",
    "who approved it": f"UPDATE budget_requests SET decided_by = 'eve' WHERE {THIS} AND state = 1",
    "that it was requested": f"DELETE FROM budget_requests WHERE {THIS} AND state = 1",
    "an open one": f"UPDATE budget_requests SET state = 1, decided_at = 9 WHERE {THIS} AND state = 0",
    "the entry of the request": "UPDATE entries SET detail = replace(detail, '0.1', '0.2')"
    f" WHERE {THIS} AND sequence = 2",
    "the entry of its approval": "UPDATE entries SET detail = replace(detail, '2', '3')"
    f" WHERE {THIS} AND sequence = 4",
    "the kind of its approval": f"UPDATE entries SET kind = 14 WHERE {THIS} AND sequence = 4",
    "what its approval carried out": f"DELETE FROM entries WHERE {THIS} AND sequence = 5",
    "that there are requests": "UPDATE datasets SET governed_at = NULL WHERE name = :name",
}


@pytest.mark.parametrize("what", REQUEST_ALTERATIONS)
def test_an_altered_request_for_budget_is_found_out(
    database_target: DatabaseTarget, clean: int, intruder: sa.Engine, what: str
) -> None:
    name, token = what.replace(" ", "-"), database_target.token
    open_shared(clean, token, name, tenths=3)
    requests = [
        requested_allocation(name, "part", "first"),
        requested_allocation(name, "other", "second"),
        decided_request(name, f"{name}~2", "approve", "yes"),
    ]
    assert {ask(clean, token, request).status for request in requests} == {201}
    check_shared(clean, token, name, tenths=1, allocated=1, **{"budget-requested": 2, "request-approved": 1})
    alter(intruder, name, REQUEST_ALTERATIONS[what])

    verdict = look(clean, token, name, "verification")
    assert verdict["valid"] is False
    assert verdict["problems"]


QUOTA_ALTERATIONS = {
    "the fraction": f"UPDATE quotas SET fraction = 1.0 WHERE {THIS}",
    "what a team used": f"UPDATE quotas SET slices = '[]' WHERE {THIS}",
    "what a team holds": f"UPDATE quotas SET open_reservations = 0 WHERE {THIS}",
    "whose a quota is": f"UPDATE quotas SET team = 'other' WHERE {THIS}",
    "the window": f"UPDATE quotas SET window_seconds = 1 WHERE {THIS}",
    "the time that was seen": f"UPDATE quotas SET latest_us = 1 WHERE {THIS}",
    "the whole quota": f"DELETE FROM quotas WHERE {THIS}",
    "that there are quotas": "UPDATE datasets SET quotas_at = NULL WHERE name = :name",
    "whose entries are": f"UPDATE entries SET team = NULL WHERE {THIS}",
    "what a team is called": f"UPDATE teams SET name = 'other' WHERE {THIS}",
}


@pytest.mark.parametrize("what", QUOTA_ALTERATIONS)
def test_an_altered_quota_is_found_out(
    database_target: DatabaseTarget, clean: int, intruder: sa.Engine, what: str
) -> None:
    name, token = what.replace(" ", "-"), database_target.token
    open_dataset(clean, token, name, units=UNITS)
    made = ask(clean, token, Ask("/v1/tokens", {"scopes": ["spend"], "team": "lab"}, f"team-{name}"))
    limit = {"team": "lab", "fraction": 0.5, "window_seconds": 3600, "reason": "a half"}
    limited = ask(clean, token, Ask(f"/v1/datasets/{name}/quotas", limit, "limit"))
    held = {**step(2), "times": 3, "expires_in_seconds": 3600.0}
    requests = [authorization(name, 1, "key-1"), Ask(f"/v1/datasets/{name}/reservations", held, "hold")]
    asked = [ask(clean, made.body["token"], request) for request in requests]
    assert {answer.status for answer in (made, limited, *asked)} == {201}
    assert look(clean, token, name, "verification")["valid"] is True
    alter(intruder, name, QUOTA_ALTERATIONS[what])

    verdict = look(clean, token, name, "verification")
    assert verdict["valid"] is False
    assert verdict["problems"]


def test_a_ledger_put_away_under_another_name_is_found_out(
    database_target: DatabaseTarget, clean: int, intruder: sa.Engine
) -> None:
    """As it would be to make room for a fresh budget under the old name."""
    write_ledger(database_target, clean, "renamed")
    with intruder.begin() as connection:
        connection.execute(sa.text("UPDATE datasets SET name = 'put-away' WHERE name = 'renamed'"))

    verdict = look(clean, database_target.token, "put-away", "verification")
    assert verdict["valid"] is False
    assert "renamed" in verdict["problems"][0]


def test_a_hold_opened_again_is_found_out(
    database_target: DatabaseTarget, clean: int, intruder: sa.Engine
) -> None:
    """Settled twice, it would give back what another reservation holds."""
    name = "opened-again"
    write_ledger(database_target, clean, name)
    settled = ask(
        clean, database_target.token, Ask(f"/v1/reservations/{name}~4/settlement", {"used": 0}, "settle")
    )
    assert settled.status == 201
    alter(intruder, name, f"UPDATE reservations SET state = {OPEN} WHERE {THIS}")

    assert look(clean, database_target.token, name, "verification")["valid"] is False
