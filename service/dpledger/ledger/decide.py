"""The whole rule book, as pure functions: ``decide`` says yes or no, ``apply`` says what a yes changes.

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
from dpledger.ledger.budget import Budget
from dpledger.ledger.commands import (
    AcceptRollback,
    Authorize,
    ChangeBudget,
    Command,
    Expire,
    OpenPartitions,
    Record,
    Reservation,
    Reserve,
    Settle,
)
from dpledger.ledger.entries import Charge, Entry, EntryKind
from dpledger.ledger.guarantee import covering
from dpledger.ledger.state import (
    AnyTotals,
    Book,
    Crowd,
    ExactTotals,
    Partition,
    Totals,
    raised,
    raised_each,
)

__all__ = [
    "Granted",
    "Refused",
    "Stamp",
    "apply",
    "authorize_in_a_row",
    "crowd_of",
    "decide",
    "decide_in_general",
    "frees_room",
    "is_plain",
    "would_fit",
]


class Stamp(NamedTuple):
    """When, and by whose token."""

    at_us: int
    actor: str


class Granted(NamedTuple):
    """The entry to append, the book after it, and the partitions that changed or were opened.

    ``recount``: room may have grown in a partition, so the crowd must be counted afresh
    (:func:`crowd_of`).
    """

    entry: Entry
    book: Book
    partitions: tuple[Partition, ...] = ()
    recount: bool = False


@dataclass(frozen=True, eq=False)
class Refused:
    """The filter would not hold. Nothing changes."""

    amounts: Floats
    remaining: dict[str, Any]
    sequence: int
    fits: dict[str, Any]


def decide(book: Book, command: Command, stamp: Stamp) -> Granted | Refused:
    """Decide one command against the present state; pure and total.

    Only requests to spend can be refused: settlements, expiries and budget changes are records of
    what happened and are always taken.
    """
    if isinstance(command, Authorize) and is_plain(book):
        return _authorize_plainly(book, command, stamp)
    return decide_in_general(book, command, stamp)


def is_plain(book: Book) -> bool:
    """Whether there are neither partitions nor open reservations."""
    return not (book.partitions or book.whole.open_reservations)


def authorize_in_a_row(
    book: Book, command: Authorize, at_us: int, actors: Sequence[str]
) -> tuple[list[Entry], list[float], Book]:
    """One step of the whole asked for several times: the entries of those granted up to the first refused.

    With them the fractions left after each, and the book after the last. The book must be plain. The
    same bits as :func:`decide` gives for one after another, in half of its time.
    """
    if isinstance(book.whole, ExactTotals):
        totals, sums = _exactly_in_a_row(book, book.whole, command.charge, len(actors))
    else:
        totals, sums = _raised_in_a_row(book, book.whole, command.charge, len(actors))
    if not len(sums):
        return [], [], book
    entries: list[Entry] = []
    head = book.head
    for sequence, actor in enumerate(actors[: len(sums)], book.sequence + 1):
        entries.append(_authorized(sequence, head, command, Stamp(at_us, actor)))
        head = entries[-1].hash
    after = book.charged(totals, entries[-1].sequence, head)
    return entries, book.budget.fractions_left(sums), after


def _exactly_in_a_row(
    book: Book, before: ExactTotals, charge: Charge, times: int
) -> tuple[AnyTotals, Floats]:
    """The totals after as many as fit, and what was spent after each in floats.

    How many fit is a division, however many are asked for.
    """
    first = before.exact_spent.plus(charge.exactly(book.budget))
    # Over the denominator of the sum both are whole numbers, so that all sums are made of one addition each.
    start = before.exact_spent.plus(Exact((0,) * len(first.numerators), first.denominator))
    each = Exact(tuple(map(sub, first.numerators, start.numerators)), first.denominator)
    granted = book.budget.fits_in_a_row(start, each, times)
    if not granted:
        return before, np.empty((0, before.size))
    rows = list(itertools.accumulate([each] * (granted - 1), Exact.plus, initial=first))
    return replace(before, exact_spent=rows[-1]), rows_above(rows)


def _raised_in_a_row(book: Book, before: Totals, charge: Charge, times: int) -> tuple[AnyTotals, Floats]:
    """The same in floats, each sum rounded up."""
    sums = raised_each(before.spent, charge.amounts, times)
    refused = np.flatnonzero(~book.budget.holds_each(sums, book.budget.limits))
    granted = sums[: refused[0]] if refused.size else sums
    return (Totals(granted[-1], before.reserved) if len(granted) else before), granted


def _authorize_plainly(book: Book, command: Authorize, stamp: Stamp) -> Granted | Refused:
    """The step of a training job, without partitions and reservations: what is checked is what is kept.

    The same bits as :func:`decide_in_general` gives, in half of its time.
    """
    after = _plainly_charged(book, command.charge)
    if after is None:
        return _refusal(book, command)
    entry = _authorized(book.sequence + 1, book.head, command, stamp)
    return Granted(entry, book.charged(after, entry.sequence, entry.hash))


def _plainly_charged(book: Book, charge: Charge) -> AnyTotals | None:
    """The totals after a step, None where the filter would not hold."""
    whole, budget = book.whole, book.budget
    if isinstance(whole, ExactTotals):
        total = whole.exact_spent.plus(charge.exactly(budget))
        return ExactTotals(total, whole.exact_reserved) if budget.holds_exactly(total) else None
    spent = raised(whole.spent, charge.amounts)
    return Totals(spent, whole.reserved) if budget.holds(spent, budget.limits) else None


def decide_in_general(book: Book, command: Command, stamp: Stamp) -> Granted | Refused:
    """Any command in any state."""
    if isinstance(command, (Authorize, Reserve)) and not would_fit(book, command):
        return _refusal(book, command)
    entry = _entry(book, command, stamp)
    after, partitions = apply(book, command)
    linked = replace(after, sequence=entry.sequence, head=entry.hash)
    return Granted(entry, linked, partitions, recount=frees_room(command) and book.partitions > 0)


def would_fit(book: Book, command: Authorize | Reserve) -> bool:
    """Whether the filter holds after this spend."""
    return book.fits(book.amounts_of(command.charge), command.partition, _times(command))


def _times(command: Authorize | Reserve) -> int:
    return command.times if isinstance(command, Reserve) else 1


def frees_room(command: Command) -> bool:
    """Whether a partition may have more room after this than before."""
    if isinstance(command, (Settle, Expire)):
        return command.reservation.partition is not None
    return isinstance(command, ChangeBudget)


def _refusal(book: Book, command: Authorize | Reserve) -> Refused:
    times = _times(command)
    fits = {
        "times": _repetitions_that_fit(book, command, times),
        "cost_fraction": _fraction_that_fits(book, book.room(command.partition), command.charge.amounts),
    }
    asked = scale(command.charge.amounts, times, Direction.UP)
    return Refused(asked, book.remaining(command.partition), book.sequence, fits)


def _repetitions_that_fit(book: Book, command: Authorize | Reserve, times: int) -> int:
    """The largest number of repetitions below ``times`` that would have been granted."""
    low, high, each = 0, times, book.amounts_of(command.charge)
    while high - low > 1:
        middle = (low + high) // 2
        if book.fits(each, command.partition, middle):
            low = middle
        else:
            high = middle
    return low


def _fraction_that_fits(book: Book, room: Floats, amounts: Floats) -> float:
    """How much of one repetition's cost would still fit, between 0 and 1, rounded down."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        share = np.where(amounts > 0.0, np.nextafter(np.maximum(0.0, room) / amounts, 0.0), room >= 0.0)
    main = share[:-1].max() if book.budget.accounting.value == "rdp" else share[:-1].min()
    return float(min(1.0, main, share[-1]))


def _entry(book: Book, command: Command, stamp: Stamp) -> Entry:
    if isinstance(command, Authorize):
        return _authorized(book.sequence + 1, book.head, command, stamp)
    return Entry(
        sequence=book.sequence + 1,
        kind=_KINDS[type(command)],
        at_us=stamp.at_us,
        actor=stamp.actor,
        previous=book.head,
        **_particulars(command),
    )


def _authorized(sequence: int, previous: bytes, command: Authorize, stamp: Stamp) -> Entry:
    return Entry(
        sequence,
        EntryKind.AUTHORIZED,
        stamp.at_us,
        stamp.actor,
        previous,
        command.run,
        _number(command.partition),
        command.charge.fingerprint,
        sample=command.sample,
    )


_KINDS: dict[type[Any], EntryKind] = {
    Reserve: EntryKind.RESERVED,
    Settle: EntryKind.SETTLED,
    Expire: EntryKind.EXPIRED,
    ChangeBudget: EntryKind.BUDGET_CHANGED,
    OpenPartitions: EntryKind.PARTITIONS_OPENED,
    AcceptRollback: EntryKind.ROLLBACK_ACCEPTED,
}


def _particulars(command: Reserve | Record) -> dict[str, Any]:
    if isinstance(command, Reserve):
        return {
            "run": command.run,
            "charge": command.charge.fingerprint,
            "partition": _number(command.partition),
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
            **_stated(command),
        }
    if isinstance(command, ChangeBudget):
        detail = {"budget": command.budget.document, "reason": command.reason}
        return {"detail": _json(detail)}
    if isinstance(command, AcceptRollback):
        lost = {"sequence": command.sequence, "entry": command.entry}
        return {"detail": _json({"lost": lost, "reason": command.reason})}
    own = None if command.budget is None else command.budget.document
    return {"detail": _json({"names": command.names, "budget": own})}


def _stated(command: Settle | Expire) -> dict[str, str]:
    """The statement as the entry's detail; entries without one keep the text, and so the hash, they had."""
    if isinstance(command, Expire) or command.statement is None:
        return {}
    return {"detail": _json({"statement": command.statement})}


def _number(partition: Partition | None) -> int | None:
    return None if partition is None else partition.number


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def apply(book: Book, command: Command) -> tuple[Book, tuple[Partition, ...]]:
    """The state after a granted command, before its entry is linked."""
    if isinstance(command, Authorize):
        return _moved(book, command.partition, lambda totals: _charged(book, totals, command.charge))
    if isinstance(command, Reserve):
        return _moved(book, command.partition, lambda t: _held(book, t, command.charge, command.times))
    if isinstance(command, (Settle, Expire)):
        return _closed(book, command)
    if isinstance(command, ChangeBudget):
        return _changed(book, command.budget), ()
    if isinstance(command, AcceptRollback):
        return book, ()
    return _opened(book, command)


def _changed(book: Book, budget: Budget) -> Book:
    guarantee, since = covering(book.guarantee, budget), book.guaranteed_since
    if guarantee is not book.guarantee:
        since = book.sequence + 1
    crowd = Crowd.empty(budget)
    return replace(book, budget=budget, crowd=crowd, guarantee=guarantee, guaranteed_since=since)


def _charged(book: Book, totals: AnyTotals, charge: Charge) -> AnyTotals:
    if isinstance(totals, ExactTotals):
        return totals.charged(charge.exactly(book.budget))
    return totals.charged(charge.amounts)


def _held(book: Book, totals: AnyTotals, charge: Charge, times: int) -> AnyTotals:
    if isinstance(totals, ExactTotals):
        return totals.held(charge.exactly(book.budget), times)
    return totals.held(scale(charge.amounts, times, Direction.UP))


def _settled(book: Book, totals: AnyTotals, held: Reservation, used: int) -> AnyTotals:
    if isinstance(totals, ExactTotals):
        return totals.settled(held.charge.exactly(book.budget), held.times, used)
    return totals.settled(held.charge.amounts, held.times, used)


def _moved(book: Book, partition: Partition | None, move: Any) -> tuple[Book, tuple[Partition, ...]]:
    if partition is None:
        return replace(book, whole=move(book.whole)), ()
    moved = replace(partition, totals=move(partition.totals))
    return replace(book, crowd=book.crowd.including(moved, book.budget)), (moved,)


def _closed(book: Book, command: Settle | Expire) -> tuple[Book, tuple[Partition, ...]]:
    held: Reservation = command.reservation
    used = command.used if isinstance(command, Settle) else held.times
    return _moved(book, held.partition, lambda totals: _settled(book, totals, held, used))


def _opened(book: Book, command: OpenPartitions) -> tuple[Book, tuple[Partition, ...]]:
    opened = tuple(
        Partition(book.partitions + index, name, command.budget, _nothing(book))
        for index, name in enumerate(command.names)
    )
    crowd = book.crowd.including(opened[0], book.budget)
    return replace(book, crowd=crowd, partitions=book.partitions + len(opened)), opened


def _nothing(book: Book) -> AnyTotals:
    kind = ExactTotals if isinstance(book.whole, ExactTotals) else Totals
    return kind.zero(book.budget.size)


def crowd_of(book: Book, partitions: Iterable[Partition]) -> Crowd:
    """All partitions looked at afresh: needed after a refund or a budget change, where room grows."""
    crowd = Crowd.empty(book.budget)
    for partition in partitions:
        crowd = crowd.including(partition, book.budget)
    return crowd
