"""Renewal by epochs: a budget of its own for the new data of each calendar period, and for nothing else.

Statement: every unit's loss stays within the dataset's limits, however many epochs are opened, whenever, and
in the light of whatever outputs; what concerns an epoch is granted only within its own limits, too.
Conditions: the data of one protected unit lie in one partition, which is set once: units are records, or
the dataset was opened with the statement that each unit's data lie in one partition; whoever opens an epoch
states that its records were in no other. Epochs are those of the one period that the first policy fixed, so
that they are disjoint in time. Under a private key a neighbour changes two partitions, and the two largest
add up, as for all partitions (:class:`~dpledger.ledger.model.state.PartitionExtremes`).
Proof: neighbours differ in one unit, so in one partition (two under a private key). What is released from
the others, and which epochs are opened when, depends on the rest of the data and on earlier outputs alone.
So the interaction is one with that partition and with the whole, which the filter for both bounds. Nothing
is given back: an epoch's partition begins empty, and an older one keeps its totals and its budget.
Source: McSherry 2009 (parallel composition), and the filters' own for adaptive steps.
"""

import datetime as dt
import enum
import json
from dataclasses import dataclass

from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.entries import Entry

__all__ = [
    "RECORD",
    "EpochOpening",
    "Period",
    "Renewal",
    "epochs_at",
    "renewal_of",
    "units_lie_in_one_partition",
]

RECORD = "record"
"""The unit that is in one partition by itself."""
_EPOCH_START = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MONTHS = 12


class Period(enum.Enum):
    """A calendar period in UTC; each has one epoch."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    QUARTER = "quarter"
    YEAR = "year"


@dataclass(frozen=True, eq=False)
class Renewal:
    """The policy that an entry set; without a budget no epoch is opened any more."""

    sequence: int
    period: Period
    budget: Budget | None
    reason: str


@dataclass(frozen=True)
class EpochOpening:
    """Under which policy an epoch is opened, and what whoever opens it states of its records."""

    renewal: int
    statement: str


def renewal_of(entry: Entry) -> Renewal:
    """The policy that an entry set."""
    detail = json.loads(entry.detail or "{}")
    budget = None if detail["budget"] is None else Budget.from_document(detail["budget"])
    return Renewal(entry.sequence, Period(detail["period"]), budget, detail["reason"])


def units_lie_in_one_partition(opening: Entry) -> bool:
    """Whether units are records, or were stated at the dataset's opening to lie in one partition each."""
    detail = json.loads(opening.detail or "{}")
    return detail.get("unit") == RECORD or detail.get("units_in_one_partition") is True


def epochs_at(period: Period, at_us: int) -> tuple[str, str]:
    """The epoch in which a time lies, and the one after it: those that may be opened then."""
    today = (_EPOCH_START + dt.timedelta(microseconds=at_us)).date()
    return _name(period, today), _name(period, _after(period, today))


def _name(period: Period, day: dt.date) -> str:
    if period is Period.WEEK:
        year, week, _ = day.isocalendar()
        return f"{year:04}-W{week:02}"
    return {
        Period.DAY: day.isoformat(),
        Period.MONTH: f"{day.year:04}-{day.month:02}",
        Period.QUARTER: f"{day.year:04}-Q{(day.month + 2) // 3}",
        Period.YEAR: f"{day.year:04}",
    }[period]


def _after(period: Period, day: dt.date) -> dt.date:
    """A day of the period that follows."""
    if period in (Period.DAY, Period.WEEK):
        return day + dt.timedelta(days=1 if period is Period.DAY else 7)
    months = {Period.MONTH: 1, Period.QUARTER: 3, Period.YEAR: _MONTHS}[period]
    years, month = divmod(day.month - 1 + months, _MONTHS)
    return dt.date(day.year + years, month + 1, 1)
