"""Reads ledgers for display. Nothing here writes or decides.

Spent is rounded up and remaining is rounded down. The running ε of what is spent so far is an
indication: what is proven while steps are still chosen adaptively is the budget itself.
"""

import functools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from dpledger.accounting.rounding import Direction, widen
from dpledger.accounting.validation import Floats, check_open_unit
from dpledger.ledger.deployment import MOST_STEPS, DeploymentDetails, deployment_document
from dpledger.ledger.errors import NotFound, RolledBack
from dpledger.ledger.guarantee import guarantee_fields
from dpledger.ledger.model.allocation import Allocation
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.budget_request import BudgetRequest, RequestKind, RequestState
from dpledger.ledger.model.commands import Reservation
from dpledger.ledger.model.entries import Charge, EntryKind, identifier, moment
from dpledger.ledger.model.quota import Quota
from dpledger.ledger.model.renewal import renewal_of
from dpledger.ledger.model.state import ExactTotals, LedgerState, Partition, add_up
from dpledger.ledger.ports import DatasetRow, EntryFilter, Held, RunRow, Storage, StoredEntry
from dpledger.ledger.quotas import quota_fields
from dpledger.ledger.renewals import renewal_fields
from dpledger.ledger.replay import BrokenLedger, Difference, Replay, differences

__all__ = [
    "LedgerReader",
    "Progress",
    "allocation_fields",
    "budget_fields",
    "dataset_fields",
    "entry_fields",
    "request_fields",
    "run_fields",
]

_PAGE = 1000
_ATTEMPTS = 3
_MOST_CHARGES = 10 * MOST_STEPS
"""Charges are one per step and purpose: some are of one step."""
Progress = Callable[[int, int], None]


class _Stored(NamedTuple):
    """What is stored of a dataset beside its entries, all of it read at one moment."""

    row: DatasetRow
    partitions: dict[int, Partition]
    reservations: dict[int, Reservation]
    allocations: dict[int, Allocation]
    quotas: dict[int, Quota]
    requests: dict[int, BudgetRequest]

    @property
    def is_one_row(self) -> bool:
        """Whether there is nothing but the dataset's own row, which is read at one moment anyway."""
        state = self.row.state
        held = self.reservations or state.whole.open_reservations
        return not (self.partitions or self.allocations or held or state.has_quotas or state.governed)


class LedgerReader:
    """Reads ledgers as last committed."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def dataset(self, name: str) -> dict[str, Any]:
        """One dataset with its budget and what is left."""
        return dataset_fields(self._storage.dataset(name))

    def datasets(self, after: str, limit: int, search: str | None = None) -> list[dict[str, Any]]:
        """Datasets by name."""
        return [dataset_fields(row) for row in self._storage.datasets(after, limit, search)]

    def budget(self, name: str, delta: float | None = None) -> dict[str, Any]:
        """Limit, spent, reserved and remaining, true at the sequence number given with them."""
        state = self._storage.dataset(name).state
        allocates = state.budget.filter.allocates
        return budget_fields(
            state, delta, self._storage.allocation_counts(state.dataset_id) if allocates else (0, 0)
        )

    def deployment(self, name: str, details: DeploymentDetails) -> dict[str, Any]:
        """The dataset's entry for the Differential Privacy Deployments Registry, as a draft."""
        row = self._storage.dataset(name)
        steps, more = self._storage.first_steps(row.state.dataset_id, _MOST_CHARGES, MOST_STEPS)
        return deployment_document(row, steps, more, details)

    def quotas(self, name: str, after: int, limit: int, now_us: int) -> list[dict[str, Any]]:
        """Quotas in force by the entries that set them, with what each has left."""
        state = self._storage.dataset(name).state
        found = self._storage.quotas(state.dataset_id, after, limit)
        return [quota_fields(each, state.budget, now_us) for each in found]

    def budget_requests(
        self, name: str, after: int, limit: int, state: RequestState | None = None
    ) -> list[dict[str, Any]]:
        """Requests for budget by the entries that made them; all, or those in one state."""
        dataset_id = self._storage.dataset(name).state.dataset_id
        found = self._storage.budget_requests(dataset_id, after, limit, state)
        return [request_fields(name, each) for each in found]

    def budget_request(self, name: str, sequence: int) -> dict[str, Any]:
        """One request for budget; raises NotFound."""
        dataset_id = self._storage.dataset(name).state.dataset_id
        found = self._storage.budget_requests(dataset_id, sequence - 1, 1)
        if not found or found[0].sequence != sequence:
            raise NotFound("request", identifier(name, sequence))
        return request_fields(name, found[0])

    def open_requests(
        self, limit: int, names: Sequence[str] | None = None, after: tuple[int, str, int] | None = None
    ) -> list[dict[str, Any]]:
        """Open requests over all datasets, or those of some names, the oldest first.

        ``after`` is the time in microseconds, the dataset and the sequence number to start behind.
        """
        found = self._storage.open_requests(limit, names, after)
        return [request_fields(name, each) for name, each in found]

    def allocations(self, name: str, after: int, limit: int) -> list[dict[str, Any]]:
        """Allocations in the order in which they were opened, with what each has left."""
        state = self._storage.dataset(name).state
        found = self._storage.allocations(state.dataset_id, after, limit)
        return [allocation_fields(name, each) for each in found]

    def allocation(self, name: str, allocation: str, delta: float | None = None) -> dict[str, Any]:
        """One allocation with limit, spent, reserved and remaining; raises NotFound."""
        found = self._storage.allocation(self._storage.dataset(name).state.dataset_id, allocation)
        if found is None:
            raise NotFound("allocation", allocation)
        budget, totals = found.budget, found.totals
        committed, shown = totals.committed, totals.committed
        if isinstance(totals, ExactTotals):
            shown = totals.exact_committed.shown()
        at = found.delta if delta is None else check_open_unit("delta", delta)
        left = np.zeros(budget.size) if found.returned else _room(budget, committed)
        return {
            **allocation_fields(name, found),
            "limit": {**budget.target, **_coordinates(budget, budget.limits)},
            "spent": {**_coordinates(budget, shown), **_running(budget, committed, at)},
            "reserved": {**_coordinates(budget, totals.shown_reserved), "open": totals.open_reservations},
            "remaining": {**found.remaining(), **_coordinates(budget, left)},
            "fraction": found.remaining()["fraction"],
            **budget.filter.analysis(budget),
        }

    def entries(self, name: str, chosen: EntryFilter) -> list[dict[str, Any]]:
        """Entries by sequence number."""
        state = self._storage.dataset(name).state
        return [entry_fields(name, stored) for stored in self._storage.entries(state.dataset_id, chosen)]

    def entry(self, name: str, sequence: int) -> dict[str, Any]:
        """One entry."""
        found = self.entries(name, EntryFilter(after=sequence - 1, limit=1))
        if not found or found[0]["sequence"] != sequence:
            raise NotFound("entry", identifier(name, sequence))
        return found[0]

    def runs(self, name: str, after: str, limit: int) -> list[dict[str, Any]]:
        """What each run has spent."""
        state = self._storage.dataset(name).state
        rows, held = self._storage.runs(state.dataset_id, after, limit), self._storage.held(state.dataset_id)
        return [run_fields(state, row, [each for each in held if each.run == row.name]) for row in rows]

    def reservations(self, name: str, after: int, limit: int) -> list[dict[str, Any]]:
        """Open reservations."""
        state = self._storage.dataset(name).state
        held = self._storage.open_reservations(state.dataset_id, after, limit)
        return [_reservation_fields(name, each) for each in held]

    def reservation(self, name: str, sequence: int, now_us: int) -> dict[str, Any]:
        """One reservation, and whether it is still open; raises NotFound."""
        row = self._storage.reservation(self._storage.dataset(name).state.dataset_id, sequence)
        if row is None:
            raise NotFound("reservation", identifier(name, sequence))
        return {
            "id": identifier(name, sequence),
            "dataset": name,
            "run": row.run,
            "state": row.state,
            "times": row.times,
            "expires_at": moment(row.expires_at_us),
            "expires_in_seconds": max(0.0, (row.expires_at_us - now_us) / 1e6),
        }

    def renewal(self, name: str, now_us: int) -> dict[str, Any]:
        """The policy of renewal, and which epochs may be opened now; raises NotFound."""
        state, kind = self._storage.dataset(name).state, EntryKind.RENEWAL_CHANGED.value
        chosen = EntryFilter(limit=1, kind=kind, newest_first=True)
        found = self._storage.entries(state.dataset_id, chosen) if state.governed else []
        if not found:
            raise NotFound("renewal policy", name)
        return renewal_fields(name, renewal_of(found[0].entry), now_us)

    def partitions(self, name: str, after: int, limit: int) -> list[dict[str, Any]]:
        """Partitions with what each has left, the spend on the whole included."""
        state = self._storage.dataset(name).state
        found = self._storage.partitions(state.dataset_id, after, limit)
        return [
            {
                "name": each.name,
                "number": each.number,
                "remaining": state.remaining(each),
            }
            for each in found
        ]

    def partition(self, name: str, partition: str) -> dict[str, Any]:
        """One partition with limit, spent, reserved and remaining; raises NotFound.

        Spent and remaining are those of a record in it: what was spent on the whole is included, and under a
        private key the most that another partition may have added.
        """
        state = self._storage.dataset(name).state
        found = self._storage.partition(state.dataset_id, partition)
        if found is None:
            raise NotFound("partition", partition)
        budget, committed = state.budget, state.committed_for(found)
        shown, limits = state.display_budget(found), found.limits(budget)
        left = np.maximum(0.0, np.nextafter(found.limits_below(budget) - committed, -np.inf))
        held = {**_coordinates(budget, found.totals.shown_reserved), "open": found.totals.open_reservations}
        return {
            "dataset": name,
            "sequence": state.sequence,
            "name": found.name,
            "number": found.number,
            "accounting": budget.accounting,
            "own_budget": None if found.budget is None else found.budget.shown,
            "limit": {**shown.target, **_coordinates(budget, limits)},
            "spent": _coordinates(budget, state.shown_for(found)),
            "reserved": held,
            "remaining": {**state.remaining(found), **_coordinates(budget, left)},
            "fraction": state.fraction_left(found),
        }

    def verification(self, name: str, progress: Progress | None = None) -> dict[str, Any]:
        """Replay every entry; report the first broken link, or every total that differs."""
        reached = 0
        try:
            replay = Replay(self._storage.dataset(name).state.dataset_id, name)
            try:
                stored = self._replay(name, replay, progress)
            finally:
                reached = replay.sequence
            found = _differences(replay, stored)
        except BrokenLedger as broken:
            return _verdict(name, reached, False, [str(broken)])
        except UnicodeEncodeError:  # the name that was asked for is no text: there is no such ledger
            raise
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            # What was tampered with may no longer be readable at all.
            return _verdict(name, reached, False, [f"cannot be replayed: {error}"])
        found = self._behind_mark(name) + found
        return _verdict(name, stored.row.state.sequence, not found, found, replay.head.hex())

    def _behind_mark(self, name: str) -> list[str]:
        """What the chain alone cannot show: that the ledger was longer, or another one."""
        try:
            self._storage.refuse_rolled_back(name)
        except RolledBack as error:
            return [str(error)]
        return []

    def _replay(self, name: str, replay: Replay, progress: Progress | None) -> _Stored:
        """Replay up to a moment at which the state, the partitions and the reservations were read together.

        The latter are read page by page, and the ledger may move on meanwhile. After some vain
        attempts the dataset is held still for as long as it takes.
        """
        for _ in range(_ATTEMPTS):
            stored = self._caught_up(name, replay, progress)
            if stored.is_one_row or self._storage.dataset(name).state.head == stored.row.state.head:
                return stored
        with self._storage.begin() as transaction:
            transaction.lock([name], rolled_back=True)
            return self._caught_up(name, replay, progress)

    def _caught_up(self, name: str, replay: Replay, progress: Progress | None) -> _Stored:
        row = self._storage.dataset(name)
        self._catch_up(row.state, replay, progress)
        state = row.state
        held, parts = self._reservations(state), self._partitions(state)
        kept = self._allocations(state), self._quotas(state), self._requests(state)
        return _Stored(row, parts, held, *kept)

    def _catch_up(self, state: LedgerState, replay: Replay, progress: Progress | None) -> None:
        for stored in self._stream(state.dataset_id, state.sequence, after=replay.sequence):
            replay.take(stored)
            if progress is not None:
                progress(replay.sequence, state.sequence)

    def export(self, name: str) -> Iterator[dict[str, Any]]:
        """The fields of every entry, oldest first."""
        state = self._storage.dataset(name).state
        for stored in self._stream(state.dataset_id, state.sequence):
            yield entry_fields(name, stored)

    def _stream(self, dataset_id: int, until: int, after: int = 0) -> Iterator[StoredEntry]:
        while after < until:
            page = self._storage.entries(
                dataset_id, EntryFilter(after=after, limit=min(_PAGE, until - after))
            )
            if not page:
                raise BrokenLedger(after + 1, "is missing")
            yield from page
            after = page[-1].entry.sequence

    def _reservations(self, state: LedgerState) -> dict[int, Reservation]:
        found: dict[int, Reservation] = {}
        last = 0
        while page := self._storage.open_reservations(state.dataset_id, last, _PAGE):
            found |= {each.sequence: each for each in page}
            last = page[-1].sequence
        return found

    def _allocations(self, state: LedgerState) -> dict[int, Allocation]:
        found: dict[int, Allocation] = {}
        last = 0
        while page := self._storage.allocations(state.dataset_id, last, _PAGE):
            found |= {each.sequence: each for each in page}
            last = page[-1].sequence
        return found

    def _quotas(self, state: LedgerState) -> dict[int, Quota]:
        found: dict[int, Quota] = {}
        last = 0
        while page := self._storage.quotas(state.dataset_id, last, _PAGE) if state.has_quotas else []:
            found |= {each.sequence: each for each in page}
            last = page[-1].sequence
        return found

    def _requests(self, state: LedgerState) -> dict[int, BudgetRequest]:
        found: dict[int, BudgetRequest] = {}
        last = 0
        while page := self._storage.budget_requests(state.dataset_id, last, _PAGE) if state.governed else []:
            found |= {each.sequence: each for each in page}
            last = page[-1].sequence
        return found

    def _partitions(self, state: LedgerState) -> dict[int, Partition]:
        found: dict[int, Partition] = {}
        last = -1
        while page := self._storage.partitions(state.dataset_id, last, _PAGE):
            found |= {each.number: each for each in page}
            last = page[-1].number
        return found


def _differences(replay: Replay, stored: _Stored) -> list[str]:
    parts, said = stored.partitions, replay.partitions
    odd = sorted(set(parts) ^ set(said))
    pairs = [(parts[number], said[number]) for number in sorted(set(parts) - set(odd))]
    kept, recorded = stored.allocations, replay.allocations
    odd_allocations = sorted(set(kept) ^ set(recorded))
    both = [(kept[number], recorded[number]) for number in sorted(set(kept) & set(recorded))]
    limits, counted = stored.quotas, replay.quotas
    odd_quotas = sorted(set(limits) ^ set(counted))
    compared = [(limits[number], counted[number]) for number in sorted(set(limits) & set(counted))]
    asked, decided = stored.requests, replay.requests
    odd_requests = sorted(set(asked) ^ set(decided))
    matched = [(asked[number], decided[number]) for number in sorted(set(asked) & set(decided))]
    found = differences(stored.row.state, replay.state, pairs, both, compared, matched)
    if replay.unit not in (None, stored.row.unit):
        found.append(Difference("unit", stored.row.unit, replay.unit))
    found += _reservations_differ(stored.reservations, replay.reservations)
    lone = [f"partition {number} is stored or recorded, but not both" for number in odd]
    lone += [f"allocation {number} is stored or recorded, but not both" for number in odd_allocations]
    lone += [f"quota of entry {number} is stored or recorded, but not both" for number in odd_quotas]
    lone += [f"request {number} is stored or recorded, but not both" for number in odd_requests]
    if replay.lacks_effect_of is not None:
        lone.append(f"request {replay.lacks_effect_of} was approved and not carried out")
    return lone + [
        f"{each.what} is stored as {each.stored}, the entries say {each.replayed}" for each in found
    ]


def _reservations_differ(
    stored: dict[int, Reservation], replayed: dict[int, Reservation]
) -> list[Difference]:
    pairs = {number: (_hold(stored, number), _hold(replayed, number)) for number in {*stored, *replayed}}
    return [
        Difference(f"reservation {number}", *pair)
        for number, pair in sorted(pairs.items())
        if pair[0] != pair[1]
    ]


def _hold(reservations: dict[int, Reservation], number: int) -> str:
    held = reservations.get(number)
    return "closed" if held is None else f"open until {held.expires_at_us} µs"


def _verdict(
    name: str, sequence: int, valid: bool, problems: list[str], head: str | None = None
) -> dict[str, Any]:
    return {"dataset": name, "sequence": sequence, "valid": valid, "problems": problems, "head": head}


def dataset_fields(row: DatasetRow) -> dict[str, Any]:
    """A dataset as it is shown."""
    state = row.state
    return {
        "name": state.name,
        "description": row.description,
        "adjacency": state.adjacency.value,
        "unit": row.unit,
        "records": row.records,
        "partition_key": state.partition_key,
        "partitions": state.partitions,
        "opened_at": moment(row.opened_at_us),
        "changed_at": moment(row.changed_at_us),
        "sequence": state.sequence,
        "budget": state.budget.shown,
        "guarantee": guarantee_fields(state),
        "orders": state.budget.orders.tolist(),
        "remaining": state.remaining(None),
    }


def budget_fields(
    state: LedgerState, delta: float | None, allocation_counts: tuple[int, int]
) -> dict[str, Any]:
    """A budget as it stands; ``allocation_counts`` are those open and returned, under a shared budget."""
    budget, committed, shown = state.budget, state.committed_for(None), state.shown_for(None)
    at = budget.target.get("delta") if delta is None else check_open_unit("delta", delta)
    whole = state.whole
    found = {
        "dataset": state.name,
        "sequence": state.sequence,
        "accounting": budget.accounting,
        "limit": {**budget.target, **_coordinates(budget, budget.limits)},
        "guarantee": {**guarantee_fields(state), **_coordinates(budget, state.guarantee.limits)},
        "spent": {**_coordinates(budget, shown), **_running(budget, committed, at)},
        "reserved": {**_coordinates(budget, whole.shown_reserved), "open": whole.open_reservations},
        "remaining": {
            **state.remaining(None),
            **_coordinates(budget, _room(budget, committed)),
        },
        "fraction": budget.fraction_left(committed),
        **budget.filter.analysis(budget),
    }
    return {**found, **_allocation_sums(state, *allocation_counts)} if budget.filter.allocates else found


def _allocation_sums(state: LedgerState, taken: int, returned: int) -> dict[str, Any]:
    """What a shared budget has handed out, and to how many allocations."""
    amounts = state.budget.filter.coordinates(state.budget, state.shown_for(None))
    counts = {"open": taken, "returned": returned}
    return {"remaining": state.remaining(None), "allocated": amounts, "allocations": counts}


def allocation_fields(name: str, allocation: Allocation) -> dict[str, Any]:
    """An allocation as it is listed."""
    return {
        "id": identifier(name, allocation.sequence),
        "name": allocation.name,
        "sequence": allocation.sequence,
        "dataset": name,
        "owner": allocation.owner,
        "state": allocation.state,
        "epsilon": allocation.epsilon,
        "delta": allocation.delta,
        "budget": allocation.budget.shown,
        "entries": allocation.entries,
        "open_reservations": allocation.totals.open_reservations,
        "remaining": allocation.remaining(),
    }


def request_fields(name: str, request: BudgetRequest) -> dict[str, Any]:
    """A request for budget as it is shown, with what was decided."""
    return {
        "id": identifier(name, request.sequence),
        "sequence": request.sequence,
        "dataset": name,
        "state": request.state.value,
        "kind": request.kind.value,
        "asked": _asked_fields(request),
        "reason": request.reason,
        "actor": request.actor,
        "team": request.team,
        "at": moment(request.at_us),
        "decision": _decision_fields(request),
    }


def _asked_fields(request: BudgetRequest) -> dict[str, Any]:
    asked = {field: value for field, value in request.fields.items() if field != "reason"}
    if request.kind is not RequestKind.QUOTA:
        asked["budget"] = Budget.from_document(asked["budget"]).shown
    return asked


def _decision_fields(request: BudgetRequest) -> dict[str, Any] | None:
    if request.decided_at is None or request.decided_at_us is None:
        return None
    return {
        "sequence": request.decided_at,
        "by": request.decided_by,
        "team": request.decided_team,
        "at": moment(request.decided_at_us),
        "reason": request.decision_reason,
        "carried_out_by": request.carried_out_at,
    }


def _coordinates(budget: Budget, amounts: Floats) -> dict[str, Any]:
    """Amounts in the accounting's own terms."""
    return {**budget.filter.coordinates(budget, amounts), "additive_delta": float(amounts[-1])}


def _room(budget: Budget, committed: Floats) -> Floats:
    """What is left at each coordinate, rounded down."""
    return np.maximum(0.0, np.nextafter(budget.limits_below - committed, -np.inf))


def _running(budget: Budget, amounts: Floats, delta: float | None) -> dict[str, Any]:
    """The ε at δ of what is spent so far, labelled as the indication that it is."""
    if delta is None or not amounts[-1] < delta:
        return {}
    left = widen(delta - float(amounts[-1]), Direction.DOWN, ulps=1) if amounts[-1] else delta
    epsilon = budget.filter.indicative_epsilon(budget, amounts, left) if amounts[:-1].any() else 0.0
    return {} if epsilon is None else {"indicative_epsilon": epsilon, "delta": delta}


def entry_fields(name: str, stored: StoredEntry) -> dict[str, Any]:
    """An entry as it is shown and exported."""
    entry = stored.entry
    fields: dict[str, Any] = {
        "id": identifier(name, entry.sequence),
        "sequence": entry.sequence,
        "kind": entry.kind.value,
        "at": moment(entry.at_us),
        "actor": entry.actor,
        "hash": stored.hash.hex(),
    }
    optional = {
        "run": entry.run,
        "team": entry.team,
        "partition": stored.partition_name,
        "allocation": stored.allocation_name,
        "times": entry.times,
        "used": entry.used,
        "sample": None if entry.sample is None else identifier(name, entry.sample),
        "reservation": None if entry.reservation is None else identifier(name, entry.reservation),
        "expires_at": None if entry.expires_at_us is None else moment(entry.expires_at_us),
        "detail": None if entry.detail is None else json.loads(entry.detail),
        "fraction_left": stored.fraction,
    }
    fields |= {key: value for key, value in optional.items() if value is not None}
    return fields if stored.charge is None else {**fields, **_charge_fields(stored.charge)}


def _charge_fields(charge: Charge) -> dict[str, Any]:
    return {
        "purpose": charge.purpose,
        "declared": charge.declared,
        "step": json.loads(charge.step.canonical),
        "cost": charge.cost_fields,
    }


def run_fields(state: LedgerState, row: RunRow, held: Sequence[Held]) -> dict[str, Any]:
    """A run's sums. On partitions they add up over disjoint records: none bears more than the worst does."""
    budget = state.budget
    if budget.filter.allocates:
        return _run_counts(row, held)
    holds = functools.reduce(add_up, [each.amounts for each in held], np.zeros(budget.size))
    spent_part, held_part = (1.0 - budget.fraction_left(amounts) for amounts in (row.amounts, holds))
    if state.partitions:
        most = 1.0 - budget.fraction_left(state.committed_for(None))
        spent_part, held_part = min(spent_part, most), min(held_part, most)
    reserved = {"open": sum(each.reservations for each in held), "fraction": held_part}
    return {
        **_run_name(row),
        "entries": row.entries,
        "spent": _coordinates(budget, row.amounts),
        "reserved": {**_coordinates(budget, holds), **reserved},
        "fraction": spent_part,
        "first_at": moment(row.first_at_us),
        "last_at": moment(row.last_at_us),
    }


def _run_name(row: RunRow) -> dict[str, str]:
    return {"run": row.name} if row.team is None else {"run": row.name, "team": row.team}


def _run_counts(row: RunRow, held: Sequence[Held]) -> dict[str, Any]:
    """A run under a shared budget: amounts of different allocations are of different things, so no sums."""
    return {
        **_run_name(row),
        "entries": row.entries,
        "spent": {},
        "reserved": {"open": sum(each.reservations for each in held)},
        "fraction": None,
        "first_at": moment(row.first_at_us),
        "last_at": moment(row.last_at_us),
    }


def _reservation_fields(name: str, held: Reservation) -> dict[str, Any]:
    partition = {} if held.partition is None else {"partition": held.partition.name}
    if held.allocation is not None:
        partition["allocation"] = held.allocation.name
    return {
        "id": identifier(name, held.sequence),
        "run": held.run,
        "times": held.times,
        "expires_at": moment(held.expires_at_us),
        "step": json.loads(held.charge.step.canonical),
        **partition,
    }
