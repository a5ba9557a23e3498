"""Decides, as pure functions: ``decide`` grants or refuses, ``apply`` gives the state after an entry.

``apply`` is also what replays a ledger from its entries, so a stored total can only be what the
entries say.
"""

import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import sub
from typing import Any, NamedTuple

import numpy as np

from dpledger.accounting.exact import Exact, rows_above
from dpledger.accounting.rounding import Direction, scale
from dpledger.accounting.validation import Floats
from dpledger.ledger.guarantee import covering
from dpledger.ledger.model.allocation import Allocation, ledger_within, place_ledger, shared_amounts
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.budget_request import DECIDED_AS
from dpledger.ledger.model.commands import (
    AcceptRollback,
    Allocate,
    Authorize,
    ChangeBudget,
    ChangeQuota,
    ChangeRenewal,
    Command,
    DecideRequest,
    Expire,
    OpenPartitions,
    Record,
    RequestBudget,
    Reservation,
    Reserve,
    ReturnAllocation,
    Settle,
)
from dpledger.ledger.model.entries import Charge, Entry, EntryKind
from dpledger.ledger.model.quota import Quota
from dpledger.ledger.model.state import (
    AnyTotals,
    ExactTotals,
    LedgerState,
    Partition,
    PartitionExtremes,
    Totals,
    add_up,
    add_up_each,
    nothing_spent,
)
from dpledger.ledger.quota_rule import amounts_asked, first_exceeded, quotas_after, times_within

__all__ = [
    "Applied",
    "Granted",
    "Refused",
    "Stamp",
    "apply",
    "authorize_in_a_row",
    "decide",
    "decide_in_general",
    "detail_of",
    "frees_room",
    "is_plain",
    "partition_extremes",
    "would_fit",
]


class Stamp(NamedTuple):
    """When, by whose token, and of which team that is."""

    at_us: int
    actor: str
    team: str | None = None


class Granted(NamedTuple):
    """The entry to append, the state after it, and the partitions or allocation that changed or were opened.

    ``recount``: room may have grown in a partition, so the extremes must be counted afresh
    (:func:`partition_extremes`). ``quotas`` are those that changed.
    """

    entry: Entry
    state: LedgerState
    partitions: tuple[Partition, ...] = ()
    recount: bool = False
    allocation: Allocation | None = None
    quotas: tuple[Quota, ...] = ()


class Applied(NamedTuple):
    """The state after a command, before its entry is linked, and what else changed or was opened."""

    state: LedgerState
    partitions: tuple[Partition, ...] = ()
    allocation: Allocation | None = None


@dataclass(frozen=True, eq=False)
class Refused:
    """The filter would not hold, or the ``quota``, which then is as it stands. Nothing changes."""

    amounts: Floats
    remaining: dict[str, Any]
    sequence: int
    fits: dict[str, Any]
    quota: Quota | None = None
    budget: Budget | None = None


def decide(state: LedgerState, command: Command, stamp: Stamp) -> Granted | Refused:
    """Decide one command against the present state; pure and total.

    Only requests to spend or to allocate can be refused: settlements, expiries and budget changes are
    records of what happened and are always taken.
    """
    if isinstance(command, Authorize) and command.allocation is None and is_plain(state, command.quotas):
        return _authorize_plainly(state, command, stamp)
    return decide_in_general(state, command, stamp)


def is_plain(state: LedgerState, quotas: Sequence[Quota] = ()) -> bool:
    """Whether there are neither partitions nor open reservations nor quotas."""
    return not (state.partitions or state.whole.open_reservations or quotas)


def authorize_in_a_row(
    state: LedgerState, command: Authorize, stamps: Sequence[Stamp]
) -> tuple[list[Entry], list[float], LedgerState]:
    """One step of the whole asked for several times: the entries of those granted up to the first refused.

    For a step from an allocation, ``state`` is the ledger within it.
    With them the fractions left after each, and the state after the last. The state must be plain. The
    same bits as :func:`decide` gives for one after another, in half of its time.
    """
    if isinstance(state.whole, ExactTotals):
        totals, sums = _exactly_in_a_row(state, state.whole, command.charge, len(stamps))
    else:
        totals, sums = _raised_in_a_row(state, state.whole, command.charge, len(stamps))
    if not len(sums):
        return [], [], state
    entries: list[Entry] = []
    head = state.head
    for sequence, stamp in enumerate(stamps[: len(sums)], state.sequence + 1):
        entries.append(_authorization_entry(sequence, head, command, stamp))
        head = entries[-1].hash
    after = state.charged(totals, entries[-1].sequence, head)
    return entries, state.budget.fractions_left(sums), after


def _exactly_in_a_row(
    state: LedgerState, before: ExactTotals, charge: Charge, times: int
) -> tuple[AnyTotals, Floats]:
    """The totals after as many as fit, and what was spent after each in floats.

    How many fit is a division, however many are asked for.
    """
    first = before.exact_spent.plus(charge.exactly(state.budget))
    # Over the denominator of the sum both are whole numbers, so that all sums are made of one addition each.
    start = before.exact_spent.plus(Exact((0,) * len(first.numerators), first.denominator))
    each = Exact(tuple(map(sub, first.numerators, start.numerators)), first.denominator)
    granted = state.budget.fits_in_a_row(start, each, times)
    if not granted:
        return before, np.empty((0, before.size))
    rows = list(itertools.accumulate([each] * (granted - 1), Exact.plus, initial=first))
    sums, after = rows_above(rows), replace(before, exact_spent=rows[-1])
    # The same bits as it would compute when it is asked.
    after.__dict__["spent"] = sums[-1]
    return after, sums


def _raised_in_a_row(
    state: LedgerState, before: Totals, charge: Charge, times: int
) -> tuple[AnyTotals, Floats]:
    """The same in floats, each sum rounded up."""
    sums = add_up_each(before.spent, charge.amounts, times)
    refused = np.flatnonzero(~state.budget.holds_each(sums, state.budget.limits))
    granted = sums[: refused[0]] if refused.size else sums
    return (Totals(granted[-1], before.reserved) if len(granted) else before), granted


def _authorize_plainly(state: LedgerState, command: Authorize, stamp: Stamp) -> Granted | Refused:
    """The step of a training job, without partitions and reservations: what is checked is what is kept.

    The same bits as :func:`decide_in_general` gives, in half of its time.
    """
    after = _plainly_charged(state, command.charge)
    if after is None:
        return _refusal(state, command)
    entry = _authorization_entry(state.sequence + 1, state.head, command, stamp)
    return Granted(entry, state.charged(after, entry.sequence, entry.hash))


def _plainly_charged(state: LedgerState, charge: Charge) -> AnyTotals | None:
    """The totals after a step, None where the filter would not hold."""
    whole, budget = state.whole, state.budget
    if isinstance(whole, ExactTotals):
        total = whole.exact_spent.plus(charge.exactly(budget))
        return ExactTotals(total, whole.exact_reserved) if budget.holds_exactly(total) else None
    spent = add_up(whole.spent, charge.amounts)
    return Totals(spent, whole.reserved) if budget.holds(spent, budget.limits) else None


def decide_in_general(state: LedgerState, command: Command, stamp: Stamp) -> Granted | Refused:
    """Any command in any state."""
    if isinstance(command, Allocate):
        if not would_fit(state, command):
            return _allocation_refusal(state, command)
    elif isinstance(command, (Authorize, Reserve)) and not would_fit(state, command):
        return _refusal(_ledger_for(state, command.allocation), command)
    if isinstance(command, (Authorize, Reserve, Allocate)) and command.quotas:
        exceeded = first_exceeded(state, command, stamp.at_us)
        if exceeded is not None:
            return _quota_refusal(state, command, exceeded, stamp)
    entry = _entry(state, command, stamp)
    after, partitions, allocation = apply(state, command)
    linked = replace(after, sequence=entry.sequence, head=entry.hash)
    recount = frees_room(command) and state.partitions > 0
    quotas = quotas_after(state, command, stamp.at_us)
    return Granted(entry, linked, partitions, recount, allocation, quotas)


def would_fit(state: LedgerState, command: Authorize | Reserve | Allocate) -> bool:
    """Whether the filter holds after this spend, or this allocation."""
    if isinstance(command, Allocate):
        amounts = shared_amounts(command.epsilon, command.delta)
        return state.budget.filter.allocates and state.fits(amounts, None)
    if (command.allocation is not None) is not state.budget.filter.allocates:
        return False
    if command.allocation is not None and command.allocation.returned:
        return False
    ledger = _ledger_for(state, command.allocation)
    return ledger.fits(ledger.amounts_of(command.charge), command.partition, _times(command))


def _ledger_for(state: LedgerState, allocation: Allocation | None) -> LedgerState:
    """The ledger that a spend is decided on: the dataset's own, or that within the allocation."""
    return state if allocation is None else ledger_within(state, allocation)


def _times(command: Authorize | Reserve) -> int:
    return command.times if isinstance(command, Reserve) else 1


def frees_room(command: Command) -> bool:
    """Whether a partition may have more room after this than before."""
    if isinstance(command, (Settle, Expire)):
        return command.reservation.partition is not None
    return isinstance(command, ChangeBudget)


def _refusal(state: LedgerState, command: Authorize | Reserve) -> Refused:
    times = _times(command)
    charge, room, budget = command.charge, state.room(command.partition), state.budget
    fits = {
        "times": _repetitions_that_fit(state, command, times),
        "cost_fraction": _fraction_that_fits(state, room, charge.amounts),
        **budget.filter.explain_refusal(budget, charge.step, charge.amounts, room),
    }
    asked = scale(charge.amounts, times, Direction.UP)
    return Refused(asked, state.remaining(command.partition), state.sequence, fits)


def _allocation_refusal(state: LedgerState, command: Allocate) -> Refused:
    """What an allocation asked for; all that is left would have been granted."""
    amounts, left = shared_amounts(command.epsilon, command.delta).shown(), state.remaining(None)
    fits = {"epsilon": left["epsilon"], "delta": left["delta"]}
    return Refused(amounts, left, state.sequence, fits)


def _quota_refusal(
    state: LedgerState, command: Authorize | Reserve | Allocate, exceeded: Quota, stamp: Stamp
) -> Refused:
    """What the quotas do not admit, although the budget would."""
    each, times = amounts_asked(state, command)
    rooms = [quota.at(stamp.at_us).room(state.budget) for quota in command.quotas]
    room = np.maximum(0.0, np.min(rooms, axis=0))
    if isinstance(command, Allocate):
        fits = {"epsilon": float(room[0]), "delta": float(room[1])}
    else:
        fits = {
            "times": times_within(state, command, stamp.at_us, times - 1),
            "cost_fraction": _fraction_that_fits(state, room, each.above()),
        }
    left = state.remaining(command.partition if not isinstance(command, Allocate) else None)
    asked = each.times(times).above()
    return Refused(asked, left, state.sequence, fits, exceeded, state.budget)


def _repetitions_that_fit(state: LedgerState, command: Authorize | Reserve, times: int) -> int:
    """The largest number of repetitions below ``times`` that would have been granted."""
    low, high, each = 0, times, state.amounts_of(command.charge)
    while high - low > 1:
        middle = (low + high) // 2
        if state.fits(each, command.partition, middle):
            low = middle
        else:
            high = middle
    return low


def _fraction_that_fits(state: LedgerState, room: Floats, amounts: Floats) -> float:
    """How much of one repetition's cost would still fit, between 0 and 1, rounded down."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        share = np.where(amounts > 0.0, np.nextafter(np.maximum(0.0, room) / amounts, 0.0), room >= 0.0)
    main = share[:-1].max() if state.budget.filter.one_suffices else share[:-1].min()
    return float(min(1.0, main, share[-1]))


def _entry(state: LedgerState, command: Command, stamp: Stamp) -> Entry:
    if isinstance(command, Authorize):
        return _authorization_entry(state.sequence + 1, state.head, command, stamp)
    return Entry(
        sequence=state.sequence + 1,
        kind=_kind_of(command),
        at_us=stamp.at_us,
        actor=stamp.actor,
        previous=state.head,
        team=stamp.team,
        **_particulars(command),
    )


def _authorization_entry(sequence: int, previous: bytes, command: Authorize, stamp: Stamp) -> Entry:
    return Entry(
        sequence,
        EntryKind.AUTHORIZED,
        stamp.at_us,
        stamp.actor,
        previous,
        command.run,
        None if command.partition is None else command.partition.number,
        command.charge.fingerprint,
        sample=command.sample,
        allocation=None if command.allocation is None else command.allocation.sequence,
        team=stamp.team,
    )


_KINDS: dict[type[Any], EntryKind] = {
    Reserve: EntryKind.RESERVED,
    Settle: EntryKind.SETTLED,
    Expire: EntryKind.EXPIRED,
    ChangeBudget: EntryKind.BUDGET_CHANGED,
    OpenPartitions: EntryKind.PARTITIONS_OPENED,
    AcceptRollback: EntryKind.ROLLBACK_ACCEPTED,
    Allocate: EntryKind.ALLOCATED,
    ReturnAllocation: EntryKind.ALLOCATION_RETURNED,
    ChangeQuota: EntryKind.QUOTA_CHANGED,
    RequestBudget: EntryKind.BUDGET_REQUESTED,
    ChangeRenewal: EntryKind.RENEWAL_CHANGED,
}


def _kind_of(command: Command) -> EntryKind:
    return DECIDED_AS[command.state] if isinstance(command, DecideRequest) else _KINDS[type(command)]


def _particulars(command: Reserve | Allocate | Record) -> dict[str, Any]:
    if isinstance(command, Reserve):
        return {
            "run": command.run,
            "charge": command.charge.fingerprint,
            "partition": _number(command.partition),
            "allocation": _sequence_of(command.allocation),
            "times": command.times,
            "expires_at_us": command.expires_at_us,
        }
    if isinstance(command, (Settle, Expire)):
        held = command.reservation
        return {
            "reservation": held.sequence,
            "used": command.used if isinstance(command, Settle) else held.times,
            "run": held.run,
            "partition": _number(held.partition),
            "allocation": _sequence_of(held.allocation),
            **_stated(command),
        }
    if isinstance(command, (Allocate, ReturnAllocation)):
        return _allocation_particulars(command)
    if isinstance(command, ChangeBudget):
        detail = {"budget": command.budget.document, "reason": command.reason}
        return {"detail": _json(detail)}
    if isinstance(command, AcceptRollback):
        lost = {"sequence": command.sequence, "entry": command.entry}
        return {"detail": _json({"lost": lost, "reason": command.reason})}
    if isinstance(command, ChangeQuota):
        return {"detail": _json(_quota_detail(command))}
    if isinstance(command, (RequestBudget, DecideRequest)):
        return {"detail": _json(_request_detail(command))}
    return {"detail": _json(_partition_detail(command))}


def _partition_detail(command: OpenPartitions | ChangeRenewal) -> dict[str, Any]:
    own = None if command.budget is None else command.budget.document
    if isinstance(command, ChangeRenewal):
        return {"period": command.period.value, "budget": own, "reason": command.reason}
    detail: dict[str, Any] = {"names": command.names, "budget": own}
    if command.epoch is not None:
        stated = {"records_are_new": True, "statement": command.epoch.statement}
        detail["epoch"] = {"renewal": command.epoch.renewal, **stated}
    return detail


def _allocation_particulars(command: Allocate | ReturnAllocation) -> dict[str, Any]:
    if isinstance(command, ReturnAllocation):
        return {"allocation": command.allocation.sequence, "detail": _json({"reason": command.reason})}
    detail = {
        "name": command.name,
        "epsilon": command.epsilon,
        "delta": command.delta,
        "budget": command.budget.document,
    }
    return {"detail": _json(detail if command.reason is None else {**detail, "reason": command.reason})}


def _quota_detail(command: ChangeQuota) -> dict[str, Any]:
    return {
        "team": command.team,
        "fraction": command.fraction,
        "window_seconds": command.window_seconds,
        "reason": command.reason,
    }


def _request_detail(command: RequestBudget | DecideRequest) -> dict[str, Any]:
    if isinstance(command, RequestBudget):
        return {"kind": command.kind.value, "asked": json.loads(command.asked)}
    reason = {} if command.reason is None else {"reason": command.reason}
    return {"request": command.request.sequence, **reason}


def detail_of(command: Allocate | ChangeQuota | ChangeBudget) -> str:
    """The detail of the entry that would record this."""
    return str(_particulars(command)["detail"])


def _stated(command: Settle | Expire) -> dict[str, str]:
    """The statement as the entry's detail; entries without one keep the text, and so the hash, they had."""
    if isinstance(command, Expire) or command.statement is None:
        return {}
    return {"detail": _json({"statement": command.statement})}


def _number(partition: Partition | None) -> int | None:
    return None if partition is None else partition.number


def _sequence_of(allocation: Allocation | None) -> int | None:
    return None if allocation is None else allocation.sequence


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def apply(state: LedgerState, command: Command) -> Applied:
    """The state after a granted command, before its entry is linked."""
    if isinstance(command, (Authorize, Reserve, Settle, Expire)):
        held = command.reservation if isinstance(command, (Settle, Expire)) else command
        if held.allocation is None:
            return _spend(state, command)
        within = _spend(ledger_within(state, held.allocation), command).state
        placed, moved = place_ledger(state, held.allocation, within, 1, _count_releases(command))
        return Applied(placed, allocation=moved)
    if isinstance(command, ChangeBudget):
        return Applied(_changed(state, command.budget))
    if isinstance(command, AcceptRollback):
        return Applied(state)
    if isinstance(command, Allocate):
        return _allocate(state, command)
    if isinstance(command, ReturnAllocation):
        return _return(state, command.allocation)
    if isinstance(command, ChangeQuota):
        return Applied(replace(state, has_quotas=True))
    if isinstance(command, (RequestBudget, DecideRequest, ChangeRenewal)):
        return Applied(replace(state, governed=True))
    return _open(state, command)


def _spend(state: LedgerState, command: Authorize | Reserve | Settle | Expire) -> Applied:
    """A spend, or the end of a reservation, in the ledger that it concerns."""
    if isinstance(command, Authorize):
        return _move(state, command.partition, lambda totals: _charged(state, totals, command.charge))
    if isinstance(command, Reserve):
        return _move(state, command.partition, lambda t: _held(state, t, command.charge, command.times))
    return _close(state, command)


def _count_releases(command: Authorize | Reserve | Settle | Expire) -> int:
    """How many repetitions may have been released with it."""
    if isinstance(command, Settle):
        return command.used
    if isinstance(command, Expire):
        return command.reservation.times
    return 1 if isinstance(command, Authorize) else 0


def _allocate(state: LedgerState, command: Allocate) -> Applied:
    totals = nothing_spent(command.budget)
    opened = Allocation(
        state.sequence + 1,
        command.name,
        command.owner,
        command.epsilon,
        command.delta,
        command.budget,
        totals,
    )
    assert isinstance(state.whole, ExactTotals), "shared budgets add exact numbers"
    return Applied(replace(state, whole=state.whole.charged(opened.amounts)), allocation=opened)


def _return(state: LedgerState, allocation: Allocation) -> Applied:
    assert allocation.is_untouched, "what may have been released is never given back"
    assert isinstance(state.whole, ExactTotals), "shared budgets add exact numbers"
    rest = state.whole.exact_spent.minus(allocation.amounts, 1)
    # Nothing at all is stored without a denominator, and must be the same when it is replayed.
    rest = rest if any(rest.numerators) else Exact.zero(state.whole.size)
    left = replace(state.whole, exact_spent=rest)
    returned = replace(allocation, returned=True, entries=allocation.entries + 1)
    return Applied(replace(state, whole=left), allocation=returned)


def _changed(state: LedgerState, budget: Budget) -> LedgerState:
    guarantee, since = covering(state.guarantee, budget), state.guaranteed_since
    if guarantee is not state.guarantee:
        since = state.sequence + 1
    extremes = PartitionExtremes.empty(budget)
    return replace(state, budget=budget, extremes=extremes, guarantee=guarantee, guaranteed_since=since)


def _charged(state: LedgerState, totals: AnyTotals, charge: Charge) -> AnyTotals:
    if isinstance(totals, ExactTotals):
        return totals.charged(charge.exactly(state.budget))
    return totals.charged(charge.amounts)


def _held(state: LedgerState, totals: AnyTotals, charge: Charge, times: int) -> AnyTotals:
    if isinstance(totals, ExactTotals):
        return totals.held(charge.exactly(state.budget), times)
    return totals.held(scale(charge.amounts, times, Direction.UP))


def _settled(state: LedgerState, totals: AnyTotals, held: Reservation, used: int) -> AnyTotals:
    if isinstance(totals, ExactTotals):
        return totals.settled(held.charge.exactly(state.budget), held.times, used)
    return totals.settled(held.charge.amounts, held.times, used)


def _move(state: LedgerState, partition: Partition | None, move: Any) -> Applied:
    if partition is None:
        return Applied(replace(state, whole=move(state.whole)))
    moved = replace(partition, totals=move(partition.totals))
    return Applied(replace(state, extremes=state.extremes.including(moved, state.budget)), (moved,))


def _close(state: LedgerState, command: Settle | Expire) -> Applied:
    held: Reservation = command.reservation
    used = command.used if isinstance(command, Settle) else held.times
    return _move(state, held.partition, lambda totals: _settled(state, totals, held, used))


def _open(state: LedgerState, command: OpenPartitions) -> Applied:
    opened = tuple(
        Partition(state.partitions + index, name, command.budget, _nothing(state))
        for index, name in enumerate(command.names)
    )
    extremes = state.extremes.including(opened[0], state.budget)
    return Applied(replace(state, extremes=extremes, partitions=state.partitions + len(opened)), opened)


def _nothing(state: LedgerState) -> AnyTotals:
    kind = ExactTotals if isinstance(state.whole, ExactTotals) else Totals
    return kind.zero(state.budget.size)


def partition_extremes(state: LedgerState, partitions: Iterable[Partition]) -> PartitionExtremes:
    """All partitions looked at afresh: needed after a refund or a budget change, where room grows."""
    extremes = PartitionExtremes.empty(state.budget)
    for partition in partitions:
        extremes = extremes.including(partition, state.budget)
    return extremes
