"""Commands: requests with everything looked up that a decision needs."""

from dataclasses import dataclass
from typing import NamedTuple

from dpledger.ledger.model.allocation import Allocation
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.budget_request import BudgetRequest, RequestKind, RequestState
from dpledger.ledger.model.entries import Charge
from dpledger.ledger.model.quota import Quota
from dpledger.ledger.model.renewal import EpochOpening, Period
from dpledger.ledger.model.state import Partition

__all__ = [
    "AcceptRollback",
    "Allocate",
    "Authorize",
    "ChangeBudget",
    "ChangeQuota",
    "ChangeRenewal",
    "Command",
    "DecideRequest",
    "Expire",
    "OpenPartitions",
    "Record",
    "RequestBudget",
    "Reservation",
    "Reserve",
    "ReturnAllocation",
    "Settle",
]


class Authorize(NamedTuple):
    """One step now. ``sample`` is the sequence number of the entry whose sample is looked at again.

    ``quotas`` are those of the team that asks, here and elsewhere.
    """

    charge: Charge
    run: str
    partition: Partition | None = None
    sample: int | None = None
    allocation: Allocation | None = None
    quotas: tuple[Quota, ...] = ()


@dataclass(frozen=True, eq=False)
class Reserve:
    """Up to ``times`` repetitions, to be settled before ``expires_at_us``."""

    charge: Charge
    run: str
    times: int
    expires_at_us: int
    partition: Partition | None = None
    allocation: Allocation | None = None
    quotas: tuple[Quota, ...] = ()


@dataclass(frozen=True, eq=False)
class Allocate:
    """A part (ε_j, δ_j) of a shared budget, with a budget of its own that implies it."""

    name: str
    owner: str
    epsilon: float
    delta: float
    budget: Budget
    reason: str | None = None
    quotas: tuple[Quota, ...] = ()


@dataclass(frozen=True, eq=False)
class Reservation:
    """An open reservation, by the entry that made it; ``actor`` is the id of the token that reserved.

    ``team`` is the label of that token: what is settled or expires is spent by it, whoever settles.
    """

    sequence: int
    charge: Charge
    run: str
    times: int
    expires_at_us: int
    partition: Partition | None = None
    actor: str = ""
    allocation: Allocation | None = None
    team: str | None = None
    quotas: tuple[Quota, ...] = ()


@dataclass(frozen=True, eq=False)
class Settle:
    """``used`` repetitions ran; the caller states that the rest released nothing, and may say why."""

    reservation: Reservation
    used: int
    statement: str | None = None


@dataclass(frozen=True, eq=False)
class Expire:
    """Nobody settled in time: all of it is charged."""

    reservation: Reservation


@dataclass(frozen=True, eq=False)
class ChangeBudget:
    """Another limit, with the reason an administrator gave. Partitions are passed to be looked at again."""

    budget: Budget
    reason: str


@dataclass(frozen=True, eq=False)
class OpenPartitions:
    """Disjoint parts, each with a ledger of its own; ``epoch`` is given with that of one epoch."""

    names: tuple[str, ...]
    budget: Budget | None = None
    epoch: EpochOpening | None = None


@dataclass(frozen=True, eq=False)
class ChangeRenewal:
    """The budget of the epochs that are opened from now on; without one no more are."""

    period: Period
    budget: Budget | None
    reason: str


@dataclass(frozen=True, eq=False)
class AcceptRollback:
    """An administrator gives up entries up to ``sequence``, which the ledger held and holds no more."""

    sequence: int
    entry: str
    reason: str


@dataclass(frozen=True, eq=False)
class ReturnAllocation:
    """An allocation from which nothing was released is given back; its name stays taken."""

    allocation: Allocation
    reason: str
    quotas: tuple[Quota, ...] = ()


@dataclass(frozen=True, eq=False)
class ChangeQuota:
    """Another fraction for a team and window, or none any more; ``present`` is the quota that there is."""

    team: str
    fraction: float | None
    window_seconds: int | None
    reason: str
    present: Quota | None = None


@dataclass(frozen=True, eq=False)
class RequestBudget:
    """What an admin is asked for: ``asked`` is the detail of the entry that would carry it out."""

    kind: RequestKind
    asked: str


@dataclass(frozen=True, eq=False)
class DecideRequest:
    """A request is approved, rejected or withdrawn; an approval is followed by what it carries out."""

    request: BudgetRequest
    state: RequestState
    reason: str | None = None


Record = (
    Settle
    | Expire
    | ChangeBudget
    | OpenPartitions
    | AcceptRollback
    | ReturnAllocation
    | ChangeQuota
    | ChangeRenewal
    | RequestBudget
    | DecideRequest
)
"""What is never refused: it records what happened or was decided elsewhere."""
Command = Authorize | Reserve | Allocate | Record
