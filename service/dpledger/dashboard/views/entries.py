"""Entries of a ledger in a list."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from dpledger.dashboard import formatting as wording
from dpledger.ledger.model.allocation import Allocation
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.entries import EntryKind
from dpledger.ledger.model.state import LedgerState
from dpledger.ledger.ports import EntryFilter, StoredEntry
from dpledger.storage.read_models.dashboard import DashboardReader

__all__ = [
    "ROWS",
    "EntriesPage",
    "EntryItem",
    "EntryQuery",
    "entries_page",
]

ROWS = 20
"""How many datasets, and how many entries, a page shows."""


@dataclass(frozen=True)
class EntryItem:
    """One row of the list of entries."""

    sequence: int
    kind: str
    at_us: int
    actor: str
    team: str | None
    run: str | None
    partition: str | None
    allocation: str | None
    what: str
    purpose: str
    cost: float | None
    fraction: float | None


@dataclass(frozen=True)
class EntryQuery:
    """Which entries are wanted; ``before`` is the sequence number to start below."""

    kind: str | None = None
    run: str | None = None
    partition: str | None = None
    before: int = 0
    allocation: str | None = None

    @property
    def has_filter(self) -> bool:
        """Whether anything but the place in the list was asked for."""
        return bool(self.kind or self.run or self.partition or self.allocation)


@dataclass(frozen=True)
class EntriesPage:
    """Entries, the latest first; ``next`` is where to go on, ``looked_to`` where a long search stopped."""

    items: list[EntryItem]
    next: int | None
    looked_to: int | None


def entries_page(reader: DashboardReader, state: LedgerState, query: EntryQuery, at: int) -> EntriesPage:
    """Entries that were asked for, the latest first; costs are shares at the coordinate ``at``."""
    named = query.kind, query.run, query.partition
    chosen = EntryFilter(query.before, ROWS + 1, *named, allocation=query.allocation)
    found = reader.entries(state.dataset_id, chosen)
    opened_at = {each.entry.allocation for each in found.entries if each.entry.allocation is not None}
    within = reader.allocations_at(state.dataset_id, opened_at)
    items = [_entry(state.budget, stored, at, within) for stored in found.entries[:ROWS]]
    if len(found.entries) > ROWS:
        return EntriesPage(items, items[-1].sequence, None)
    return EntriesPage(items, found.looked_to, found.looked_to)


def _entry(budget: Budget, stored: StoredEntry, at: int, within: Mapping[int, Allocation]) -> EntryItem:
    """A row; the cost of a spend from an allocation is a share of what that has."""
    entry, charge = stored.entry, stored.charge
    allocation = None if entry.allocation is None else within.get(entry.allocation)
    if allocation is not None:
        budget = allocation.budget
        at = budget.filter.binding(budget, allocation.totals.committed)
    cost = None if charge is None else budget.filter.share(budget, charge.amounts, at) * (entry.times or 1)
    return EntryItem(
        entry.sequence,
        entry.kind.value,
        entry.at_us,
        entry.actor,
        entry.team,
        entry.run,
        stored.partition_name,
        _allocation_name(stored),
        _what(stored),
        "" if charge is None else charge.purpose,
        cost,
        stored.fraction,
    )


def _allocation_name(stored: StoredEntry) -> str | None:
    """The allocation that an entry is about: one that it opens is named in its detail."""
    entry = stored.entry
    if entry.kind is not EntryKind.ALLOCATED or entry.detail is None:
        return stored.allocation_name
    return str(json.loads(entry.detail)["name"])


def _what(stored: StoredEntry) -> str:
    entry, charge = stored.entry, stored.charge
    if charge is not None:
        repeated = f"up to {wording.count(entry.times)} × " if entry.times is not None else ""
        return repeated + wording.step_text(charge.step)
    if entry.reservation is not None:
        return f"{wording.count(entry.used or 0)} used of reservation {entry.reservation}"
    # A kind that nobody has worded yet is shown by its name.
    return _WHAT.get(entry.kind, entry.kind.value.replace("-", " "))


_WHAT = {
    EntryKind.OPENED: "the ledger's first entry",
    EntryKind.BUDGET_CHANGED: "another limit",
    EntryKind.ROLLBACK_ACCEPTED: "lost entries given up",
    EntryKind.PARTITIONS_OPENED: "disjoint parts with ledgers of their own",
    EntryKind.ALLOCATED: "a part of the shared budget",
    EntryKind.ALLOCATION_RETURNED: "given back, nothing was released",
    EntryKind.QUOTA_CHANGED: "how much a team may use",
    EntryKind.BUDGET_REQUESTED: "asked of an admin",
    EntryKind.REQUEST_APPROVED: "carried out by the next entry",
    EntryKind.REQUEST_REJECTED: "decided by an admin",
    EntryKind.REQUEST_WITHDRAWN: "by the token that asked",
    EntryKind.RENEWAL_CHANGED: "budgets of new epochs",
}
