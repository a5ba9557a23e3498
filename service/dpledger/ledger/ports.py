"""The repository protocol: what the ledger needs from storage, which implements it.

A :class:`Transaction` is one database transaction. Everything read through it after ``lock`` is
stable until it ends; it commits when the ``with`` block of :meth:`Storage.begin` ends without an
exception, and not one moment earlier.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from dpledger.accounting.rounding import Direction, scale
from dpledger.accounting.steps import Step
from dpledger.accounting.validation import Floats
from dpledger.ledger.marks import Mark
from dpledger.ledger.model.allocation import Allocation
from dpledger.ledger.model.budget import Budget, Plan
from dpledger.ledger.model.budget_request import BudgetRequest, RequestState
from dpledger.ledger.model.commands import Reservation
from dpledger.ledger.model.entries import Charge, Entry, EntryKind
from dpledger.ledger.model.quota import Quota
from dpledger.ledger.model.state import LedgerState, Partition

if TYPE_CHECKING:
    from dpledger.ledger.results import ItemRecord, Result

__all__ = [
    "DatasetRow",
    "EntryFilter",
    "Held",
    "IdempotentRequest",
    "KeptGrant",
    "NewDataset",
    "NewEntry",
    "Refusal",
    "Renderer",
    "ReportRows",
    "ReservationRow",
    "RunRow",
    "Storage",
    "StoredAnswer",
    "StoredEntry",
    "Transaction",
]


class IdempotentRequest(NamedTuple):
    """Who asks, under which idempotency key, for what (both hashed to 16 bytes)."""

    actor: str
    key: bytes
    request: bytes


@dataclass(frozen=True)
class StoredAnswer:
    """An answer kept under its key: ``outcome`` is ``granted`` or ``refused``, ``body`` a renderer's text."""

    request: bytes
    outcome: str
    body: str


@dataclass(frozen=True, eq=False)
class NewDataset:
    """A dataset to be opened."""

    name: str
    description: str
    adjacency: str
    unit: str
    records: int | None
    partition_key: str
    budget: Budget
    at_us: int
    plan: Plan | None = None
    units_in_one_partition: bool = False


@dataclass(frozen=True, eq=False)
class DatasetRow:
    """A dataset as it is listed and shown: its state and what was said of it when it was opened."""

    state: LedgerState
    description: str
    unit: str
    records: int | None
    opened_at_us: int
    changed_at_us: int


class ReservationRow(NamedTuple):
    """A reservation, open or closed: ``state`` is ``open``, ``settled`` or ``expired``."""

    state: str
    run: str
    times: int
    expires_at_us: int


class NewEntry(NamedTuple):
    """An entry to append, with what its own transaction keeps beside it.

    ``call`` is set where the entry itself answers the key (single authorizations); ``fraction`` is
    the fraction left after it, so that the answer can be given again word for word.
    """

    entry: Entry
    call: IdempotentRequest | None = None
    fraction: float | None = None


@dataclass(frozen=True)
class Refusal:
    """A spend that was refused: who asked for what, what was left, and what would have fitted.

    ``sequence`` is the entry after which it was decided; ``fits_fraction`` is the part of one
    repetition's cost that was still to be had. ``team`` is the one whose quota refused it, where the budget
    would have granted it.
    """

    sequence: int
    at_us: int
    actor: str
    run: str
    partition: str | None
    purpose: str
    times: int
    fits_times: int
    fits_fraction: float
    fraction: float
    allocation: str | None = None
    team: str | None = None


@dataclass(frozen=True, eq=False)
class StoredEntry:
    """An entry as read back; ``charge`` is looked up where the entry has one."""

    entry: Entry
    hash: bytes
    charge: Charge | None = None
    partition_name: str | None = None
    request: bytes | None = None
    fraction: float | None = None
    allocation_name: str | None = None


@dataclass(frozen=True, eq=False)
class RunRow:
    """What one run has spent (settled and authorized), and when it was active.

    ``team`` is that of the token that began it.
    """

    name: str
    entries: int
    amounts: Floats
    first_at_us: int
    last_at_us: int
    team: str | None = None


@dataclass(frozen=True, eq=False)
class Held:
    """What the open reservations of one run hold of one charge: how often, by how many of them."""

    run: str
    charge: Charge
    times: int
    reservations: int

    @property
    def amounts(self) -> Floats:
        """All of it together, rounded up."""
        return scale(self.charge.amounts, self.times, Direction.UP)


class ReportRows(NamedTuple):
    """What a dataset's report is made of, read at one moment.

    ``changes`` are budget changes and accepted rollbacks, ``refusals`` how many spends were refused.
    """

    row: DatasetRow
    runs: list[RunRow]
    purposes: list[RunRow]
    held: list[Held]
    changes: list[StoredEntry]
    charges: list[Charge]
    allocations: list[Allocation]
    allocation_counts: tuple[int, int]
    refusals: int


@dataclass(frozen=True)
class EntryFilter:
    """Which entries to list, newest last; ``after`` is the sequence number to start behind."""

    after: int = 0
    limit: int = 100
    kind: str | None = None
    run: str | None = None
    partition: str | None = None
    newest_first: bool = False
    allocation: str | None = None


class Known(NamedTuple):
    """What is known of a group's requests, each matched by actor and key: compare ``request``.

    ``ended`` are the actors whose tokens are revoked, expired or unknown, ``teams`` those of the others;
    ``entries`` and ``answers`` are what answered a key before.
    """

    ended: set[str]
    teams: dict[str, str | None]
    entries: dict[IdempotentRequest, StoredEntry]
    answers: dict[IdempotentRequest, StoredAnswer]


class Transaction(Protocol):
    """One database transaction, seen from the ledger."""

    def lock(self, names: Sequence[str], *, rolled_back: bool = False) -> dict[str, LedgerState]:
        """Lock the datasets' rows in sorted order and read their states; raises NotFound.

        Raises RolledBack for a ledger that is behind its high-water mark, unless ``rolled_back`` allows it.
        """
        ...

    def holds(self, state: LedgerState, mark: Mark) -> bool:
        """Whether a locked ledger has this very entry."""
        ...

    def open_dataset(self, dataset: NewDataset) -> LedgerState:
        """Insert a dataset with an empty ledger and lock it; raises AlreadyExists or RolledBack."""
        ...

    def known(self, dataset_id: int, calls: Sequence[IdempotentRequest], now_us: int) -> "Known":
        """What is known of requests: whose tokens ended, and what answered their keys before."""
        ...

    def answers(
        self, dataset_id: int, calls: Sequence[IdempotentRequest]
    ) -> dict[IdempotentRequest, StoredAnswer]:
        """The stored answers for these keys; ``dataset_id`` 0 is for what belongs to no single one."""
        ...

    def keep_answers(
        self, dataset_id: int, answers: Sequence[tuple[IdempotentRequest, StoredAnswer]]
    ) -> None:
        """Store answers under their keys."""
        ...

    def note_refusals(self, dataset_id: int, refusals: Sequence[Refusal]) -> None:
        """Keep what was refused, for whoever looks after the dataset."""
        ...

    def keep_charge(self, dataset_id: int, charge: Charge) -> None:
        """Store a charge under its fingerprint unless it is there."""
        ...

    def charge(self, dataset_id: int, fingerprint: bytes) -> Charge:
        """Read a charge back."""
        ...

    def append(self, before: LedgerState, after: LedgerState, entries: Sequence[NewEntry]) -> None:
        """Append entries and store the state after them (budget, totals, extremes, sequence, head).

        Also keeps the per-run spend: authorized amounts on ``authorized``, used repetitions on
        ``settled`` and ``expired``.
        """
        ...

    def partitions(self, dataset_id: int, names: Sequence[str]) -> dict[str, Partition]:
        """Partitions by name; raises NotFound for a name that is not there."""
        ...

    def all_partitions(self, dataset_id: int) -> Iterator[Partition]:
        """Every partition in the order of its number."""
        ...

    def save_partitions(self, dataset_id: int, partitions: Iterable[Partition]) -> None:
        """Insert or update partitions; raises AlreadyExists for a name that is taken."""
        ...

    def allocations(self, dataset_id: int, names: Sequence[str]) -> dict[str, Allocation]:
        """Allocations by name, returned ones too; raises NotFound for a name that is not there."""
        ...

    def save_allocations(self, dataset_id: int, allocations: Iterable[Allocation]) -> None:
        """Insert or update allocations; raises AlreadyExists for a name that is taken."""
        ...

    def quotas(self, dataset_id: int, team: str) -> list[Quota]:
        """The quotas in force for a team, by the entries that set them."""
        ...

    def count_quotas(self, dataset_id: int) -> int:
        """How many quotas are in force."""
        ...

    def save_quotas(self, dataset_id: int, quotas: Iterable[Quota]) -> None:
        """Insert or update quotas; those that were removed are forgotten."""
        ...

    def budget_request(self, dataset_id: int, sequence: int) -> BudgetRequest | None:
        """The request for budget that an entry made, open or decided; None where it made none."""
        ...

    def count_open_requests(self, dataset_id: int, actor: str) -> tuple[int, int]:
        """How many requests are open, and how many of them this token made."""
        ...

    def save_budget_requests(self, dataset_id: int, requests: Iterable[BudgetRequest]) -> None:
        """Insert requests, or update them with what was decided."""
        ...

    def budget_at(self, dataset_id: int, sequence: int) -> Budget:
        """The budget in force at that entry."""
        ...

    def latest(self, dataset_id: int, kind: EntryKind) -> "StoredEntry | None":
        """The latest entry of a kind, or None."""
        ...

    def budget_changed_since(self, dataset_id: int, sequence: int) -> bool:
        """Whether an entry behind this one changed the budget."""
        ...

    def entry(self, dataset_id: int, sequence: int) -> StoredEntry:
        """One entry; raises NotFound."""
        ...

    def reservation(self, dataset_id: int, sequence: int) -> Reservation:
        """An open reservation; raises NotFound or ReservationClosed."""
        ...

    def due_reservations(self, dataset_id: int, now_us: int) -> list[Reservation]:
        """Open reservations whose time is over, oldest first."""
        ...

    def teams(self, token_ids: Sequence[str], now_us: int) -> dict[str, str | None]:
        """The teams of those tokens that are neither revoked nor expired nor unknown now."""
        ...


class KeptGrant(NamedTuple):
    """An item of a kept list that was granted: its entry answers it again."""

    dataset: str
    sequence: int


class Renderer(Protocol):
    """Writes results as the text that is kept under their keys, and reads a kept list back."""

    def render_kept(self, result: "Result") -> str:
        """The text that is kept of a result, from which the same answer can be given again."""
        ...

    def parse_kept_list(self, body: str) -> "Sequence[KeptGrant | ItemRecord]":
        """The items of a list that was kept."""
        ...


class Storage(Protocol):
    """A database."""

    def begin(self) -> AbstractContextManager[Transaction]:
        """A writing transaction: commits at the end of the block, rolls back on an exception.

        Raises Unavailable where the database is away, full or stays busy. The caller retries the
        block as a whole on :meth:`is_transient`.
        """
        ...

    def snapshot(self) -> AbstractContextManager[Transaction]:
        """One committed state, read as in a transaction; its ``lock`` locks nothing, and it cannot write."""
        ...

    def is_transient(self, error: BaseException) -> bool:
        """Whether running the whole transaction again may succeed (serialization, deadlock)."""
        ...

    def datasets_due(self, now_us: int, limit: int) -> list[str]:
        """Names of datasets with a reservation whose time is over."""
        ...

    def dataset(self, name: str) -> DatasetRow:
        """One dataset as last committed; raises NotFound."""
        ...

    def refuse_rolled_back(self, name: str) -> None:
        """Raise RolledBack if the ledger as last committed is behind its high-water mark."""
        ...

    def datasets(self, after: str, limit: int, search: str | None) -> list[DatasetRow]:
        """Datasets by name, behind ``after``."""
        ...

    def entries(self, dataset_id: int, chosen: EntryFilter) -> list[StoredEntry]:
        """Entries as last committed, charges included."""
        ...

    def first_steps(self, dataset_id: int, charged: int, most: int) -> tuple[list[Step], bool]:
        """Distinct steps of the first ``charged`` charges, at most so many, and whether there are more."""
        ...

    def open_reservations(self, dataset_id: int, after: int, limit: int) -> list[Reservation]:
        """Open reservations by sequence number."""
        ...

    def held(self, dataset_id: int) -> list[Held]:
        """What open reservations hold, by run and charge."""
        ...

    def reservation(self, dataset_id: int, sequence: int) -> ReservationRow | None:
        """One reservation as last committed, closed ones too; None if the entry made none."""
        ...

    def runs(self, dataset_id: int, after: str, limit: int) -> list[RunRow]:
        """Runs by name."""
        ...

    def partitions(self, dataset_id: int, after: int, limit: int) -> list[Partition]:
        """Partitions by number."""
        ...

    def partition(self, dataset_id: int, name: str) -> Partition | None:
        """One partition as last committed; None where there is none of this name."""
        ...

    def allocation(self, dataset_id: int, name: str) -> Allocation | None:
        """One allocation as last committed, returned ones too; None where there is none of this name."""
        ...

    def allocations(self, dataset_id: int, after: int, limit: int) -> list[Allocation]:
        """Allocations by the sequence numbers of the entries that opened them."""
        ...

    def quotas(self, dataset_id: int, after: int, limit: int) -> list[Quota]:
        """Quotas in force by the sequence numbers of the entries that set them."""
        ...

    def budget_requests(
        self, dataset_id: int, after: int, limit: int, state: RequestState | None = None
    ) -> list[BudgetRequest]:
        """Requests for budget by the entries that made them; all, or those in one state."""
        ...

    def open_requests(
        self, limit: int, names: Sequence[str] | None, after: tuple[int, str, int] | None
    ) -> list[tuple[str, BudgetRequest]]:
        """Open requests over all datasets, or those of some names, by time; each with its dataset's name."""
        ...

    def allocation_counts(self, dataset_id: int) -> tuple[int, int]:
        """How many allocations are open, and how many were returned."""
        ...

    def report(self, name: str, most: int) -> ReportRows:
        """What a dataset's report is made of, with at most so many rows of each kind; raises NotFound."""
        ...

    def ready(self) -> dict[str, Any]:
        """What /readyz reports; raises Unavailable."""
        ...
