"""The ledger's answers as frozen values; JSON is written from them elsewhere.

``outcome`` is ``granted`` or ``refused``. ``replayed`` is set where the same key was answered before.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from dpledger.accounting.errors import AccountingError
from dpledger.ledger.decide import Refused
from dpledger.ledger.errors import LedgerError
from dpledger.ledger.model.allocation import Allocation
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.budget_request import BudgetRequest
from dpledger.ledger.model.commands import Reservation
from dpledger.ledger.model.entries import Charge, Entry
from dpledger.ledger.model.quota import Quota
from dpledger.ledger.model.renewal import Renewal
from dpledger.ledger.ports import NewDataset

__all__ = [
    "AllocationOpening",
    "AllocationRefusal",
    "AllocationReturn",
    "BudgetChange",
    "DatasetOpening",
    "Decided",
    "Failure",
    "Grant",
    "ItemFailure",
    "ItemNotTaken",
    "ItemRecord",
    "ListItem",
    "ListResult",
    "PartitionOpening",
    "QuotaChange",
    "RenewalChange",
    "RequestApproval",
    "RequestRecord",
    "ReservationGrant",
    "Result",
    "RollbackAcceptance",
    "SettlementRecord",
    "SpendRefusal",
    "StoredResult",
]

Failure = LedgerError | AccountingError
"""Why one request was not decided; it concerns that request alone."""


@dataclass(frozen=True, eq=False)
class Grant:
    """A granted authorization: its entry, and what is left after it as ``fraction`` of ``budget``."""

    outcome: ClassVar[str] = "granted"
    dataset: str
    entry: Entry
    charge: Charge
    budget: Budget
    fraction: float
    partition: str | None
    allocation: str | None = None
    replayed: bool = False


@dataclass(frozen=True, eq=False)
class ReservationGrant:
    """A granted reservation."""

    outcome: ClassVar[str] = "granted"
    replayed: ClassVar[bool] = False
    dataset: str
    entry: Entry
    charge: Charge
    budget: Budget
    fraction: float
    partition: str | None
    allocation: str | None = None


@dataclass(frozen=True, eq=False)
class SettlementRecord:
    """A reservation that was closed by its settlement."""

    outcome: ClassVar[str] = "granted"
    replayed: ClassVar[bool] = False
    dataset: str
    entry: Entry
    reservation: Reservation
    budget: Budget
    fraction: float


@dataclass(frozen=True, eq=False)
class SpendRefusal:
    """A spend that the filter or a quota does not cover: what was asked, is left, and would still fit."""

    outcome: ClassVar[str] = "refused"
    dataset: str
    run: str
    charge: Charge
    times: int
    refused: Refused
    partition: str | None = None
    allocation: str | None = None
    replayed: bool = False


@dataclass(frozen=True, eq=False)
class AllocationOpening:
    """An allocation as it was opened, and what the dataset has left to allocate."""

    outcome: ClassVar[str] = "granted"
    replayed: ClassVar[bool] = False
    dataset: str
    allocation: Allocation
    remaining: Mapping[str, Any]
    warnings: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class AllocationRefusal:
    """An allocation that the shared budget does not cover: what was asked, and what is left."""

    outcome: ClassVar[str] = "refused"
    replayed: ClassVar[bool] = False
    dataset: str
    name: str
    epsilon: float
    delta: float
    refused: Refused


@dataclass(frozen=True, eq=False)
class AllocationReturn:
    """An allocation that was given back, and what the dataset has left to allocate."""

    outcome: ClassVar[str] = "granted"
    replayed: ClassVar[bool] = False
    dataset: str
    sequence: int
    allocation: Allocation
    remaining: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class QuotaChange:
    """A quota as it is after an entry, without one where that removed it."""

    outcome: ClassVar[str] = "granted"
    replayed: ClassVar[bool] = False
    dataset: str
    entry: Entry
    team: str
    window_seconds: int | None
    quota: Quota | None
    budget: Budget


@dataclass(frozen=True, eq=False)
class RequestRecord:
    """A request for budget as an entry left it: open, rejected or withdrawn."""

    outcome: ClassVar[str] = "granted"
    replayed: ClassVar[bool] = False
    dataset: str
    request: BudgetRequest


@dataclass(frozen=True, eq=False)
class RequestApproval:
    """A request that was approved and carried out, and what the dataset has left after it."""

    outcome: ClassVar[str] = "granted"
    replayed: ClassVar[bool] = False
    dataset: str
    request: BudgetRequest
    remaining: Mapping[str, Any]
    guarantee: Mapping[str, Any]
    warnings: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class DatasetOpening:
    """A dataset as it was opened."""

    outcome: ClassVar[str] = "granted"
    replayed: ClassVar[bool] = False
    dataset: NewDataset
    warnings: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class BudgetChange:
    """Another limit in force, and what is proven with it."""

    outcome: ClassVar[str] = "granted"
    replayed: ClassVar[bool] = False
    dataset: str
    sequence: int
    remaining: Mapping[str, Any]
    guarantee: Mapping[str, Any]
    warnings: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class RollbackAcceptance:
    """Entries that a ledger has lost, given up."""

    outcome: ClassVar[str] = "granted"
    replayed: ClassVar[bool] = False
    dataset: str
    sequence: int
    remaining: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class PartitionOpening:
    """Partitions that were opened at once."""

    outcome: ClassVar[str] = "granted"
    replayed: ClassVar[bool] = False
    dataset: str
    sequence: int
    names: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class RenewalChange:
    """A policy of renewal as an entry of this time left it."""

    outcome: ClassVar[str] = "granted"
    replayed: ClassVar[bool] = False
    dataset: str
    renewal: Renewal
    at_us: int


@dataclass(frozen=True)
class ItemFailure:
    """An item of a list that could not be decided: the error's slug and its text."""

    reason: str
    detail: str


@dataclass(frozen=True)
class ItemNotTaken:
    """An item that would have been granted, of a list that was refused as a whole."""


@dataclass(frozen=True)
class ItemRecord:
    """An item of a list that was answered before, as its fields were kept."""

    fields: Mapping[str, Any]


ListItem = Grant | SpendRefusal | ItemFailure | ItemNotTaken | ItemRecord


@dataclass(frozen=True, eq=False)
class ListResult:
    """A list decided in one transaction, item by item."""

    outcome: str
    items: tuple[ListItem, ...]
    replayed: bool = False


@dataclass(frozen=True)
class StoredResult:
    """An answer given again from the text that was kept under its key."""

    outcome: str
    body: str
    replayed: ClassVar[bool] = True


Result = (
    Grant
    | ReservationGrant
    | SettlementRecord
    | SpendRefusal
    | DatasetOpening
    | BudgetChange
    | RollbackAcceptance
    | PartitionOpening
    | AllocationOpening
    | AllocationRefusal
    | AllocationReturn
    | QuotaChange
    | RenewalChange
    | RequestRecord
    | RequestApproval
    | ListResult
    | StoredResult
)
Decided = Grant | SpendRefusal | StoredResult | Failure
"""The decision on one request of a group."""
