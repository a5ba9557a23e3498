"""A ledger as the commands see it, whether a service stands before it or not."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dpledger.cli.targets import LedgerTarget

__all__ = ["PAGE_LIMIT", "EntryQuery", "Fields", "Held", "Ledger", "Page", "collect_pages", "open_ledger"]

PAGE_LIMIT = 1000
Fields = dict[str, Any]
Page = dict[str, Any]
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class EntryQuery:
    """Which entries are wanted."""

    kind: str | None = None
    run: str | None = None
    partition: str | None = None
    newest_first: bool = False
    allocation: str | None = None


@dataclass(frozen=True)
class Held:
    """A request that a client has the answer to: whose token, which dataset, address and key."""

    actor: str
    dataset: str | None
    path: str
    key: str


class Ledger(Protocol):
    """Every answer has the shape of the API's own; every refusal is :class:`Failed`."""

    def datasets(self, search: str | None, limit: int, cursor: str | None) -> Page:
        """A page of datasets by name."""
        ...

    def dataset(self, name: str) -> Fields:
        """One dataset."""
        ...

    def budget(self, name: str, delta: float | None) -> Fields:
        """Limit, spent, reserved and remaining."""
        ...

    def deployment(self, name: str, query: Fields) -> Fields:
        """A draft of the dataset's entry for the deployments registry."""
        ...

    def runs(self, name: str, limit: int, cursor: str | None) -> Page:
        """A page of runs with what each has spent."""
        ...

    def entries(self, name: str, query: EntryQuery, limit: int, cursor: str | None) -> Page:
        """A page of entries."""
        ...

    def verification(self, name: str, progress: Progress) -> Fields:
        """Whether the chain holds; ``progress`` receives entries done and to do, where that is known."""
        ...

    def report(self, name: str, progress: Progress) -> Fields:
        """What an auditor asks of a dataset, its ledger replayed; ``progress`` as for a verification."""
        ...

    def lost(self) -> list[Fields]:
        """Verdicts on datasets that have a high-water mark and are gone, where the marks can be seen."""
        ...

    def entry(self, name: str, sequence: int) -> Fields:
        """One entry."""
        ...

    def key_set(self) -> Fields:
        """The public keys that receipts are checked with."""
        ...

    def outcomes(self, held: Sequence[Held]) -> list[str | None]:
        """How each request was answered, ``granted`` or ``refused``; None where nothing is known of it."""
        ...

    def accept_rollback(self, name: str, body: Fields, key: str) -> Fields:
        """Give up entries that a ledger has lost."""
        ...

    def export(self, name: str) -> Iterator[bytes]:
        """Every entry as a line of JSON, in pieces of whole lines or not."""
        ...

    def forecast(self, name: str, body: Fields) -> Fields:
        """How many more such steps fit."""
        ...

    def open_dataset(self, body: Fields, key: str) -> Fields:
        """Open a dataset under an idempotency key."""
        ...

    def change_budget(self, name: str, body: Fields, sequence: int, key: str) -> Fields:
        """Set another limit if the dataset is still at ``sequence``."""
        ...

    def allocations(self, name: str, limit: int, cursor: str | None) -> Page:
        """A page of allocations of a shared budget."""
        ...

    def allocation(self, name: str, allocation: str) -> Fields:
        """One allocation."""
        ...

    def create_allocation(self, name: str, body: Fields, key: str) -> Fields:
        """Take a part of a shared budget."""
        ...

    def return_allocation(self, name: str, allocation: str, body: Fields, key: str) -> Fields:
        """Give back an allocation from which nothing was released."""
        ...

    def partitions(self, name: str, limit: int, cursor: str | None) -> Page:
        """A page of partitions with what each has left."""
        ...

    def partition(self, name: str, partition: str) -> Fields:
        """One partition."""
        ...

    def open_partitions(self, name: str, body: Fields, key: str) -> Fields:
        """Open partitions under an idempotency key."""
        ...

    def reservations(self, name: str, limit: int, cursor: str | None) -> Page:
        """A page of open reservations."""
        ...

    def settle(self, reservation: str, body: Fields, key: str) -> Fields:
        """Close a reservation with the number of repetitions that ran."""
        ...

    def tokens(self, limit: int, cursor: str | None) -> Page:
        """A page of tokens without their secrets."""
        ...

    def quotas(self, name: str, limit: int, cursor: str | None) -> Page:
        """A page of the quotas in force."""
        ...

    def change_quota(self, name: str, body: Fields, key: str) -> Fields:
        """Set, change or remove a team's quota."""
        ...

    def renewal(self, name: str) -> Fields:
        """The policy of renewal."""
        ...

    def change_renewal(self, name: str, body: Fields, key: str) -> Fields:
        """Set, change or end the policy of renewal."""
        ...

    def open_epoch(self, name: str, body: Fields, key: str) -> Fields:
        """Open the partition of an epoch."""
        ...

    def budget_requests(self, name: str, state: str | None, limit: int, cursor: str | None) -> Page:
        """A page of requests for budget."""
        ...

    def budget_request(self, name: str, request: str) -> Fields:
        """One request for budget."""
        ...

    def request_budget(self, name: str, body: Fields, key: str) -> Fields:
        """Ask an admin for budget."""
        ...

    def decide_request(self, name: str, request: str, body: Fields, key: str) -> Fields:
        """Approve or reject a request for budget."""
        ...

    def withdraw_request(self, name: str, request: str, body: Fields, key: str) -> Fields:
        """Withdraw a request for budget."""
        ...

    def create_token(self, body: Fields, key: str, *, new_keys: bool) -> Fields:
        """A token with its secret; ``new_keys`` makes a key file although there are tokens of another."""
        ...

    def revoke_token(self, token_id: str) -> None:
        """End a token."""
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...


@contextlib.contextmanager
def open_ledger(ledger_target: LedgerTarget) -> Iterator[Ledger]:
    """The ledger at a place."""
    ledger = _at(ledger_target)
    try:
        yield ledger
    finally:
        ledger.close()


def _at(ledger_target: LedgerTarget) -> Ledger:
    # Imported where they are needed: a query to a service does without SQLAlchemy and scipy, which
    # take most of a second to load.
    if ledger_target.url is not None:
        from dpledger.cli.remote import Remote

        return Remote(ledger_target.url, ledger_target.token, ledger_target.timeout_seconds)
    from dpledger.cli.direct import Direct

    return Direct(ledger_target.database, ledger_target.key_file, ledger_target.token)


def collect_pages(fetch: Callable[[int, str | None], Page], limit: int, cursor: str | None) -> Page:
    """Up to ``limit`` items in one page, and the cursor behind them."""
    items: list[Fields] = []
    while True:
        page = fetch(min(PAGE_LIMIT, limit - len(items)), cursor)
        items += page["items"]
        cursor = page["next"]
        if cursor is None or len(items) >= limit:
            return {"items": items, "next": cursor}
