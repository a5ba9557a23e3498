"""Datasets with a budget in whole units, and everything that must be true of one, seen from outside."""

import zlib
from collections import Counter
from typing import Any

from tests.reliability.model import UNIT, budget_fields, rho_of
from tests.reliability.wire import Ask, ask

SLACK = 1e-9
"""In units: far above the rounding of some hundred sums, far below one charge."""


def step(units: int, run: str = "run") -> dict[str, Any]:
    """A declared step that costs so many units."""
    return {"run": run, "releases": [{"mechanism": "zcdp", "rho": units * UNIT}]}


def authorization(name: str, units: int, key: str) -> Ask:
    return Ask(f"/v1/datasets/{name}/authorizations", step(units), key)


def open_dataset(port: int, token: str, name: str, units: int) -> str:
    """Open a dataset with a budget for so many units and no more."""
    # Every other one is a plan, so that whatever is tried is tried with both; no plan has room for very many.
    budget = budget_fields(units, planned=units < 1000 and zlib.crc32(name.encode()) % 2 == 0)
    opened = ask(port, token, Ask("/v1/datasets", {"name": name, "budget": budget}, f"open-{name}"))
    assert opened.status == 201, opened
    return name


def open_shared(port: int, token: str, name: str, tenths: int) -> str:
    """Open a dataset with a shared budget for so many allocations of a tenth."""
    budget = {"accounting": "shared", "epsilon": float(f"{tenths}e-1"), "delta": 1e-3}
    opened = ask(port, token, Ask("/v1/datasets", {"name": name, "budget": budget}, f"open-{name}"))
    assert opened.status == 201, opened
    return name


def allocation(name: str, part: str, key: str) -> Ask:
    """A tenth of ε, with a budget of its own for steps of ``PART_RHO``."""
    body = {"name": part, "epsilon": 0.1, "delta": 1e-6, "budget": {"accounting": "zcdp"}}
    return Ask(f"/v1/datasets/{name}/allocations", body, key)


def requested_allocation(name: str, part: str, key: str) -> Ask:
    """The same tenth, asked of an admin."""
    asked = allocation(name, part, key).body
    return Ask(f"/v1/datasets/{name}/budget-requests", {"allocation": asked, "reason": "a study"}, key)


def decided_request(name: str, request: str, decision: str, key: str) -> Ask:
    """What an admin decides, or with ``withdraw`` what the requester does."""
    here = f"/v1/datasets/{name}/budget-requests/{request}"
    if decision == "withdraw":
        return Ask(f"{here}/withdrawal", {"reason": "as agreed"}, key)
    return Ask(f"{here}/decision", {"decision": decision, "reason": "as agreed"}, key)


def allocated_step(name: str, part: str, key: str) -> Ask:
    """A step of so much that ten fit into an allocation."""
    step = {"run": "run", "releases": [{"mechanism": "zcdp", "rho": PART_RHO}], "allocation": part}
    return Ask(f"/v1/datasets/{name}/authorizations", step, key)


PART_RHO = 3e-5
"""A tenth of what (0.1, 1e-6) is worth, rounded down."""


def check_shared(port: int, token: str, name: str, *, tenths: int, **kinds: int) -> None:
    """What is handed out, exactly, how many entries of each kind, no gaps, and replayed totals as stored."""
    entries = entries_of(port, token, name)
    assert [entry["sequence"] for entry in entries] == list(range(1, len(entries) + 1))
    expected = {"opened": 1, **{kind: count for kind, count in kinds.items() if count}}
    assert Counter(entry["kind"] for entry in entries) == expected
    budget = look(port, token, name, "budget")
    assert budget["sequence"] == len(entries)
    assert budget["allocated"]["epsilon"] == float(f"{tenths}e-1")
    assert budget["allocated"]["epsilon"] <= budget["limit"]["epsilon"]
    for part in look(port, token, name, "allocations?limit=1000")["items"]:
        shown = look(port, token, name, f"allocations/{part['name']}")
        assert shown["spent"]["rho"] <= shown["limit"]["rho"]
        named = [entry for entry in entries if entry.get("allocation") == part["name"]]
        assert len(named) == part["entries"]
    verdict = look(port, token, name, "verification")
    assert (verdict["valid"], verdict["problems"]) == (True, [])


def look(port: int, token: str, name: str, what: str) -> Any:
    shown = ask(port, token, Ask(f"/v1/datasets/{name}/{what}", method="GET"))
    assert shown.status == 200, shown
    return shown.body


def entries_of(port: int, token: str, name: str) -> list[dict[str, Any]]:
    """Every entry, by sequence number."""
    found: list[dict[str, Any]] = []
    cursor = ""
    while True:
        page = look(port, token, name, f"entries?limit=1000{cursor}")
        found += page["items"]
        if page["next"] is None:
            return found
        cursor = f"&next={page['next']}"


def check_ledger(port: int, token: str, name: str, *, spent: int, **kinds: int) -> None:
    """What is spent, how many entries of each kind, no gaps, chain and replayed totals as stored."""
    entries = entries_of(port, token, name)
    assert [entry["sequence"] for entry in entries] == list(range(1, len(entries) + 1))
    expected = {"opened": 1, **{kind: count for kind, count in kinds.items() if count}}
    assert Counter(entry["kind"] for entry in entries) == expected
    budget = look(port, token, name, "budget")
    assert budget["sequence"] == len(entries)
    assert spent <= rho_of(budget["spent"]) / UNIT <= spent + SLACK
    assert rho_of(budget["spent"]) <= rho_of(budget["limit"])
    verdict = look(port, token, name, "verification")
    assert (verdict["valid"], verdict["problems"]) == (True, [])
    assert verdict["sequence"] == len(entries)
