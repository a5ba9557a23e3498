"""Books, charges and budgets to decide on, made without any storage."""

import json
from dataclasses import replace
from typing import Any

from dpledger.accounting.sampling import Adjacency
from dpledger.accounting.steps import Step
from dpledger.ledger.charges import charge_for
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.entries import GENESIS, Charge, Entry, EntryKind
from dpledger.ledger.model.state import LedgerState, PartitionExtremes, nothing_spent
from dpledger.ledger.ports import StoredEntry

ADD_REMOVE = Adjacency.ADD_REMOVE
GAUSSIAN = {"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": 1.1}
POISSON = {"scheme": "poisson", "rate": 0.01}
PLAN = {"releases": [GAUSSIAN], "sample": POISSON}
BUDGETS: list[dict[str, Any]] = [
    {"accounting": "zcdp", "rho": 0.5},
    {"accounting": "gdp", "mu": 1.0},
    {"accounting": "rdp", "epsilon": 2.0, "delta": 1e-5, "additive_delta": 1e-6},
    {"accounting": "rdp-order", "epsilon": 2.0, "delta": 1e-5, "order": 16},
    {"accounting": "rdp-curve", "orders": [2, 4.5, 32], "epsilons": [0.5, 1, 8.0], "additive_delta": 1e-6},
]


def budget_of(**fields: Any) -> Budget:
    return Budget.from_fields(fields, ADD_REMOVE)


def adding(fields: dict[str, Any], arithmetic: str) -> Budget:
    """A budget of a ledger that adds exact numbers, or floats as the first ones did."""
    budget = Budget.from_fields(fields, ADD_REMOVE)
    return budget if arithmetic == "exact" else replace(budget, exact=None)


def charge_of(budget: Budget, *releases: dict[str, Any], sample: dict[str, Any] | None = None) -> Charge:
    return charge_for(budget, Step.from_fields(list(releases), sample, "add-remove"), "")


def gaussian(budget: Budget, noise_std: float) -> Charge:
    return charge_of(budget, {**GAUSSIAN, "noise_std": noise_std})


def opened(budget: Budget, partition_key: str = "fixed") -> tuple[LedgerState, StoredEntry]:
    """A ledger that was just opened, and its first entry."""
    fields = {"adjacency": "add-remove", "partition_key": partition_key, "budget": budget.document}
    entry = Entry(1, EntryKind.OPENED, 1, "admin", GENESIS, detail=json.dumps(fields, separators=(",", ":")))
    whole, extremes = nothing_spent(budget), PartitionExtremes.empty(budget)
    state = LedgerState(
        1, "adult", ADD_REMOVE, partition_key, budget, whole, extremes, 0, 1, entry.hash, budget, 1
    )
    return state, StoredEntry(entry, entry.hash)
