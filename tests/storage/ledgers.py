"""Small ledgers to store: decided by the real rule book, written through a transaction."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dpledger.accounting.sampling import Adjacency
from dpledger.accounting.steps import Step
from dpledger.ledger.budget import Accounting, Budget
from dpledger.ledger.charging import charge_for
from dpledger.ledger.commands import Authorize, Command
from dpledger.ledger.decide import Granted, Stamp, crowd_of, decide
from dpledger.ledger.entries import Charge, Entry, EntryKind
from dpledger.ledger.ports import Intent, NewDataset, NewEntry
from dpledger.ledger.state import Book, Crowd
from dpledger.storage.repository import SqlStorage
from dpledger.storage.transaction import SqlTransaction

ACTOR = "token-1"
ORDERS = np.array([1.5, 2.0, 10.6, 64.0])
ROOMY = Budget(
    Accounting.RDP,
    ORDERS,
    np.array([1e6, 1e6, 1e6, 1e6, 1e-6]),
    {"epsilon": 1.0, "delta": 1e-5},
    np.array([0.02, 0.04, 0.9, 0.04]),
)
ZCDP = Budget(Accounting.ZCDP, np.empty(0), np.array([0.5, 0.0]), {"rho": 0.5})


def charge(noise_std: float = 30.0, purpose: str = "gradient", budget: Budget = ROOMY) -> Charge:
    """What one Gaussian on a Poisson sample costs; on all of the dataset where the budget is scalar."""
    sample = None if budget.accounting is Accounting.ZCDP else {"scheme": "poisson", "rate": 0.01}
    release = {"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": noise_std}
    return charge_for(budget, Step.from_fields([release], sample, "add-remove"), purpose)


def costing(rho: float) -> Charge:
    """A declared zCDP cost."""
    step = Step.from_fields([{"mechanism": "zcdp", "rho": rho}], None, "add-remove")
    return charge_for(ZCDP, step, "")


def intent(number: int, actor: str = ACTOR, request: bytes = b"r" * 16) -> Intent:
    """The intent of the number-th request of an actor."""
    return Intent(actor, hashlib.blake2b(str(number).encode(), digest_size=16).digest(), request)


def new_dataset(name: str, budget: Budget = ROOMY, **others: Any) -> NewDataset:
    fields: dict[str, Any] = {
        "description": f"what {name} holds",
        "adjacency": Adjacency.ADD_REMOVE.value,
        "unit": "record",
        "records": None,
        "partition_key": "fixed",
        "at_us": 1_000,
    }
    return NewDataset(name=name, budget=budget, **{**fields, **others})


def open_in(transaction: SqlTransaction, dataset: NewDataset) -> Book:
    """Open a dataset with its first entry, as the service does."""
    book = transaction.open_dataset(dataset)
    entry = Entry(1, EntryKind.OPENED, dataset.at_us, ACTOR, book.head, detail=dataset.budget.document)
    after = replace(book, sequence=1, head=entry.hash)
    transaction.append(book, after, [NewEntry(entry)])
    return after


def open_ledger(storage: SqlStorage, name: str = "adult", budget: Budget = ROOMY, **others: Any) -> Book:
    """Open a dataset and commit."""
    with storage.begin() as transaction:
        return open_in(transaction, new_dataset(name, budget, **others))


def decided(
    transaction: SqlTransaction, book: Book, commands: Sequence[Command], at_us: int = 2_000
) -> tuple[Book, list[Entry]]:
    """Decide commands one after another; keep their charges and partitions; append nothing yet."""
    entries = []
    for command in commands:
        outcome = decide(book, command, Stamp(at_us, ACTOR))
        assert isinstance(outcome, Granted)
        if isinstance(getattr(command, "charge", None), Charge):
            transaction.keep_charge(book.dataset_id, command.charge)  # type: ignore[union-attr]
        if outcome.partitions:
            transaction.save_partitions(book.dataset_id, outcome.partitions)
        entries.append(outcome.entry)
        book = replace(outcome.book, crowd=_counted(transaction, outcome))
    return book, entries


def _counted(transaction: SqlTransaction, outcome: Granted) -> Crowd:
    book = outcome.book
    if not outcome.recount:
        return book.crowd
    return crowd_of(book, transaction.all_partitions(book.dataset_id))


def write(transaction: SqlTransaction, book: Book, *commands: Command, at_us: int = 2_000) -> Book:
    """Decide commands and append their entries together."""
    after, entries = decided(transaction, book, commands, at_us)
    transaction.append(book, after, [NewEntry(entry) for entry in entries])
    return after


def spend(storage: SqlStorage, name: str, times: int, run: str = "run-1", each: Charge | None = None) -> Book:
    """Authorize a number of steps in one transaction and commit."""
    step = charge() if each is None else each
    with storage.begin() as transaction:
        book = transaction.lock([name])[name]
        return write(transaction, book, *[Authorize(step, run)] * times)


def same_bits(first: Any, second: Any) -> bool:
    """Whether two vectors are equal in every bit."""
    return bool(np.asarray(first).tobytes() == np.asarray(second).tobytes())


def same_book(first: Book, second: Book) -> bool:
    """Whether two books are equal in every bit of every vector."""
    plain = ("dataset_id", "name", "adjacency", "partition_key", "partitions", "sequence", "head")
    crowds = ("headroom", "least_limit", "first", "second", "holder")
    return (
        all(getattr(first, name) == getattr(second, name) for name in plain)
        and first.budget.document == second.budget.document
        and first.whole.open_reservations == second.whole.open_reservations
        and same_bits(first.whole.spent, second.whole.spent)
        and same_bits(first.whole.reserved, second.whole.reserved)
        and all(same_bits(getattr(first.crowd, name), getattr(second.crowd, name)) for name in crowds)
    )
