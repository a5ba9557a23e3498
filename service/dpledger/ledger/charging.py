"""From what a caller asks to what a dataset is charged: computed outside any transaction, and kept.

Orders, adjacency and accounting of a dataset never change once it is opened, so a charge computed
before the lock is the one that the decision needs.
"""

import threading
from collections import OrderedDict
from typing import Any

import numpy as np

from dpledger.accounting.sampling import Sample
from dpledger.accounting.stepcost import cost_of
from dpledger.accounting.steps import Step
from dpledger.accounting.validation import Floats
from dpledger.ledger.budget import Accounting, Budget
from dpledger.ledger.entries import Charge
from dpledger.ledger.ports import Storage
from dpledger.ledger.requests import Spend
from dpledger.ledger.state import Book

__all__ = ["Charger", "charge_for"]

_KEPT = 4096
_SCALAR_ORDERS: Floats = np.array([2.0])
"""Scalar accountings need no curve; one order keeps the computation small."""


def charge_for(budget: Budget, step: Step, purpose: str) -> Charge:
    """What one such step costs a dataset with this budget."""
    scalar = budget.accounting in (Accounting.ZCDP, Accounting.GDP)
    cost = cost_of(step, _SCALAR_ORDERS if scalar else budget.orders)
    return Charge(step, purpose, cost, budget.amounts(cost))


class Charger:
    """Computes charges and keeps the most recent ones."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._books: dict[str, Book] = {}
        self._charges: OrderedDict[Any, Charge] = OrderedDict()
        self._guard = threading.Lock()

    def charge(self, spend: Spend) -> Charge:
        """The charge for a spend; raises what the accounting refuses, or NotFound."""
        key = (spend.dataset, spend.releases, spend.sample, spend.seen_sample is None, spend.purpose)
        with self._guard:
            known = self._charges.get(key)
            if known is not None:
                self._charges.move_to_end(key)
                return known
        charge = self._computed(spend)
        with self._guard:
            self._charges[key] = charge
            while len(self._charges) > _KEPT:
                self._charges.popitem(last=False)
        return charge

    def _computed(self, spend: Spend) -> Charge:
        book = self._book(spend.dataset)
        sample = spend.sample if spend.seen_sample is None else Sample()
        return charge_for(book.budget, Step(spend.releases, sample, book.adjacency), spend.purpose)

    def _book(self, name: str) -> Book:
        """The dataset's unchanging parts; limits and totals of this copy are never looked at."""
        if name not in self._books:
            self._books[name] = self._storage.dataset(name).book
        return self._books[name]
