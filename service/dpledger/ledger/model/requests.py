"""Requests before anything is looked up."""

from dataclasses import dataclass
from typing import Any

from dpledger.accounting.sampling import Sample
from dpledger.accounting.steps import Release
from dpledger.ledger.model.budget_request import RequestState
from dpledger.ledger.model.entries import Charge
from dpledger.ledger.model.renewal import Period
from dpledger.ledger.ports import IdempotentRequest

__all__ = [
    "Authorization",
    "NewAllocation",
    "NewBudgetRequest",
    "NewEpoch",
    "NewQuota",
    "NewRenewal",
    "QuotaRaise",
    "RequestDecision",
    "Settlement",
    "Spend",
]


@dataclass(frozen=True)
class Spend:
    """Releases on one sample of a dataset, or of one of its partitions, or from one of its allocations.

    ``seen_sample`` is the sequence number of the entry whose sample is looked at again: such a look
    is charged raw, whatever the sample's scheme was. ``item`` names the item of a plan that it takes.
    """

    dataset: str
    run: str
    releases: tuple[Release, ...]
    sample: Sample
    purpose: str = ""
    partition: str | None = None
    seen_sample: int | None = None
    item: str | None = None
    allocation: str | None = None


@dataclass(frozen=True)
class Authorization:
    """One spend now, under one key; ``charge`` where what it costs was computed before."""

    spend: Spend
    call: IdempotentRequest
    charge: Charge | None = None


@dataclass(frozen=True, eq=False)
class NewAllocation:
    """A part (ε_j, δ_j) of a shared budget to be opened; ``budget`` is the wire form of the one inside."""

    name: str
    epsilon: float
    delta: float
    budget: dict[str, Any]
    reason: str | None = None


@dataclass(frozen=True)
class NewQuota:
    """The fraction that a team may use within a window, or in all; none to remove the quota."""

    team: str
    fraction: float | None
    window_seconds: int | None
    reason: str


@dataclass(frozen=True)
class QuotaRaise:
    """A larger fraction for the quota that the caller's team has within a window, or in all."""

    fraction: float
    window_seconds: int | None


@dataclass(frozen=True, eq=False)
class NewBudgetRequest:
    """What is asked of an admin, and why: an allocation, a raised quota, or the wire form of a new budget."""

    asked: NewAllocation | QuotaRaise | dict[str, Any]
    reason: str


@dataclass(frozen=True)
class RequestDecision:
    """What became of the request that an entry made; ``reason`` is whoever decided's."""

    dataset: str
    sequence: int
    state: RequestState
    reason: str | None = None


@dataclass(frozen=True, eq=False)
class NewRenewal:
    """A policy of renewal; ``budget`` is the wire form of each new epoch's, or None to end it."""

    period: Period
    budget: dict[str, Any] | None
    reason: str


@dataclass(frozen=True)
class NewEpoch:
    """An epoch to be opened; ``statement`` says why its records were in no other partition."""

    epoch: str
    statement: str


@dataclass(frozen=True)
class Settlement:
    """How many repetitions of a reservation ran.

    ``by_admin`` tells whether the caller's token is an admin's; ``statement`` is why the rest released
    nothing, which an admin gives for another token's reservation.
    """

    dataset: str
    sequence: int
    used: int
    statement: str | None = None
    by_admin: bool = False
