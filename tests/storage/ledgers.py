"""Small ledgers to store: decided by the real rule state, written through a transaction."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dpledger.accounting.sampling import Adjacency
from dpledger.accounting.steps import Step
from dpledger.ledger.charges import charge_for
from dpledger.ledger.decide import Granted, Stamp, decide, partition_extremes
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.commands import Authorize, Command
from dpledger.ledger.model.entries import Charge, Entry, EntryKind
from dpledger.ledger.model.state import LedgerState, PartitionExtremes
from dpledger.ledger.ports import IdempotentRequest, NewDataset, NewEntry
from dpledger.storage.repository import SqlStorage, SqlTransaction

ACTOR = "token-1"
ORDERS = np.array([1.5, 2.0, 10.6, 64.0])
ROOMY = Budget(
    "rdp",
    ORDERS,
    np.array([1e6, 1e6, 1e6, 1e6, 1e-6]),
    {"epsilon": 1.0, "delta": 1e-5},
    np.array([0.02, 0.04, 0.9, 0.04]),
)
ZCDP = Budget("zcdp", np.empty(0), np.array([0.5, 0.0]), {"rho": 0.5})


def charge(noise_std: float = 30.0, purpose: str = "gradient", budget: Budget = ROOMY) -> Charge:
    """What one Gaussian on a Poisson sample costs; on all of the dataset where the budget is scalar."""
    sample = None if budget.accounting == "zcdp" else {"scheme": "poisson", "rate": 0.01}
    release = {"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": noise_std}
    return charge_for(budget, Step.from_fields([release], sample, "add-remove"), purpose)


def costing(rho: float) -> Charge:
    """A declared zCDP cost."""
    step = Step.from_fields([{"mechanism": "zcdp", "rho": rho}], None, "add-remove")
    return charge_for(ZCDP, step, "")


def call(number: int, actor: str = ACTOR, request: bytes = b"r" * 16) -> IdempotentRequest:
    """The number-th request of an actor."""
    return IdempotentRequest(actor, hashlib.blake2b(str(number).encode(), digest_size=16).digest(), request)


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


def open_in(transaction: SqlTransaction, dataset: NewDataset) -> LedgerState:
    """Open a dataset with its first entry, as the service does."""
    state = transaction.open_dataset(dataset)
    entry = Entry(1, EntryKind.OPENED, dataset.at_us, ACTOR, state.head, detail=dataset.budget.document)
    after = replace(state, sequence=1, head=entry.hash)
    transaction.append(state, after, [NewEntry(entry)])
    return after


def open_ledger(
    storage: SqlStorage, name: str = "adult", budget: Budget = ROOMY, **others: Any
) -> LedgerState:
    """Open a dataset and commit."""
    with storage.begin() as transaction:
        return open_in(transaction, new_dataset(name, budget, **others))


def decided(
    transaction: SqlTransaction, state: LedgerState, commands: Sequence[Command], at_us: int = 2_000
) -> tuple[LedgerState, list[Entry]]:
    """Decide commands one after another; keep their charges and partitions; append nothing yet."""
    entries = []
    for command in commands:
        outcome = decide(state, command, Stamp(at_us, ACTOR))
        assert isinstance(outcome, Granted)
        if isinstance(getattr(command, "charge", None), Charge):
            transaction.keep_charge(state.dataset_id, command.charge)  # type: ignore[union-attr]
        if outcome.partitions:
            transaction.save_partitions(state.dataset_id, outcome.partitions)
        entries.append(outcome.entry)
        state = replace(outcome.state, extremes=_counted(transaction, outcome))
    return state, entries


def _counted(transaction: SqlTransaction, outcome: Granted) -> PartitionExtremes:
    state = outcome.state
    if not outcome.recount:
        return state.extremes
    return partition_extremes(state, transaction.all_partitions(state.dataset_id))


def write(
    transaction: SqlTransaction, state: LedgerState, *commands: Command, at_us: int = 2_000
) -> LedgerState:
    """Decide commands and append their entries together."""
    after, entries = decided(transaction, state, commands, at_us)
    transaction.append(state, after, [NewEntry(entry) for entry in entries])
    return after


def spend(
    storage: SqlStorage, name: str, times: int, run: str = "run-1", each: Charge | None = None
) -> LedgerState:
    """Authorize a number of steps in one transaction and commit."""
    step = charge() if each is None else each
    with storage.begin() as transaction:
        state = transaction.lock([name])[name]
        return write(transaction, state, *[Authorize(step, run)] * times)


def same_bits(first: Any, second: Any) -> bool:
    """Whether two vectors are equal in every bit."""
    return bool(np.asarray(first).tobytes() == np.asarray(second).tobytes())


def same_book(first: LedgerState, second: LedgerState) -> bool:
    """Whether two states are equal in every bit of every vector."""
    plain = ("dataset_id", "name", "adjacency", "partition_key", "partitions", "sequence", "head")
    extremes = ("headroom", "least_limit", "first", "second", "holder")
    return (
        all(getattr(first, name) == getattr(second, name) for name in plain)
        and first.budget.document == second.budget.document
        and first.whole.open_reservations == second.whole.open_reservations
        and same_bits(first.whole.spent, second.whole.spent)
        and same_bits(first.whole.reserved, second.whole.reserved)
        and all(same_bits(getattr(first.extremes, name), getattr(second.extremes, name)) for name in extremes)
    )
