"""A dataset's report for an auditor: what is protected, what is proven, what was spent and by whom.

Every number is one that the other reads of the dataset give, by the same functions; all but the
verification are true at one entry, which the report names.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from dpledger.ledger.model.entries import Charge, moment
from dpledger.ledger.ports import Held, ReportRows, Storage
from dpledger.ledger.reader import (
    LedgerReader,
    Progress,
    allocation_fields,
    budget_fields,
    dataset_fields,
    entry_fields,
    run_fields,
)

__all__ = ["MOST_ROWS", "report_document", "verified_report"]

MOST_ROWS = 1000
"""How many runs, purposes, changes, steps and allocations are listed at most."""


def verified_report(
    storage: Storage, name: str, now_us: int, progress: Progress | None = None
) -> dict[str, Any]:
    """The report of a dataset whose ledger is replayed for it; raises NotFound."""
    # First the figures: what is replayed after them includes the entry that they are true at.
    rows = storage.report(name, MOST_ROWS)
    verdict = LedgerReader(storage).verification(name, progress)
    return report_document(rows, now_us, {**verdict, "at": moment(now_us)})


def report_document(rows: ReportRows, now_us: int, verification: dict[str, Any] | None) -> dict[str, Any]:
    """The report, made at ``now_us``; ``verification`` is None where nobody replayed the ledger.

    Lists that were cut at ``MOST_ROWS`` are named in ``truncated``: runs and purposes then are those with
    most spent, changes the latest, steps and allocations the first.
    """
    state = rows.row.state
    rule = state.budget.filter
    lists = {
        "runs": _runs(rows),
        "purposes": _purposes(rows),
        "changes": [entry_fields(state.name, stored) for stored in rows.changes],
        "steps": [_step_fields(charge) for charge in rows.charges],
        "allocations": [allocation_fields(state.name, each) for each in rows.allocations],
    }
    return {
        "at": moment(now_us),
        "sequence": state.sequence,
        "head": state.head.hex(),
        "dataset": dataset_fields(rows.row),
        "rule": {"accounting": rule.name, "summary": rule.summary, **_cited(rule.theorem.fields())},
        "budget": budget_fields(state, None, rows.allocation_counts),
        **lists,
        "refusals": rows.refusals,
        "truncated": [name for name, items in lists.items() if len(items) >= MOST_ROWS],
        "verification": verification,
    }


def _cited(theorem: dict[str, Any]) -> dict[str, Any]:
    return {name: theorem[name] for name in ("theorem", "conditions", "source")}


def _runs(rows: ReportRows) -> list[dict[str, Any]]:
    held = _by(rows.held, lambda each: each.run)
    return [run_fields(rows.row.state, row, held[row.name]) for row in rows.runs]


def _purposes(rows: ReportRows) -> list[dict[str, Any]]:
    """In the terms of runs; one that is only held for was not spent on at any time."""
    held = _by(rows.held, lambda each: each.charge.purpose)
    found = [run_fields(rows.row.state, row, held[row.name]) for row in rows.purposes]
    kept = ("entries", "spent", "reserved", "fraction")
    return [{"purpose": each["run"], **{name: each[name] for name in kept}} for each in found]


def _by(held: Iterable[Held], holder: Callable[[Held], str]) -> defaultdict[str, list[Held]]:
    found: defaultdict[str, list[Held]] = defaultdict(list)
    for each in held:
        found[holder(each)].append(each)
    return found


def _step_fields(charge: Charge) -> dict[str, Any]:
    return {
        "purpose": charge.purpose,
        "declared": charge.declared,
        "step": json.loads(charge.step.canonical),
    }
