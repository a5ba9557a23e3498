"""Computes what a dataset is charged for a step, outside any transaction, and caches it.

Orders, adjacency and accounting of a dataset never change once it is opened, so a charge computed
before the lock is the one that the decision needs. Only a fail-over that lost the dataset, or a
restored backup, can bring another one under its name; :func:`fitting` is what notices.
"""

import threading
from collections import OrderedDict
from dataclasses import replace
from typing import Any

from dpledger.accounting.errors import InvalidInput, Unproven
from dpledger.accounting.sampling import Adjacency, Sample
from dpledger.accounting.steps import Step
from dpledger.ledger.errors import NotFound
from dpledger.ledger.filters.shared import refuse_without_allocation
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.entries import Charge
from dpledger.ledger.model.requests import Spend
from dpledger.ledger.model.state import LedgerState
from dpledger.ledger.ports import Storage

__all__ = ["Charger", "charge_for", "check_equal_sizes", "check_names_allocation", "fitting"]

_KEPT, _KEPT_LONG = 4096, 32
"""Charges that are remembered, and those of long steps: thousands of these would fill the memory."""
_LARGEST = 1e250
"""As many such amounts as a ledger can hold, reserved ten million at a time, have a finite sum."""


def charge_for(
    budget: Budget, step: Step, purpose: str, item: str | None = None, *, allocated: bool = False
) -> Charge:
    """What one such step costs a dataset with this budget; ``item`` is the item of a plan that it takes.

    ``allocated``: the budget is that of one of the dataset's allocations.
    """
    cost = budget.cost(step)
    amounts = budget.amounts(step, cost, item)
    if not (amounts <= _LARGEST).all():
        # Where one order is enough to hold, an infinite sum at another would go unnoticed, and stay.
        raise InvalidInput("releases", f"a step that costs at most {_LARGEST:g}", amounts.max())
    return Charge(step, purpose, cost, amounts, budget.basis, item, budget.accounting if allocated else None)


def fitting(state: LedgerState, charge: Charge, *, allocated: bool = False) -> Charge:
    """The charge, computed anew if the locked state is not of the dataset that it was computed for.

    For a spend from an allocation ``state`` is the ledger within it.
    """
    if charge.is_for(state.budget, state.adjacency, allocated=allocated):
        return charge
    step = replace(charge.step, adjacency=state.adjacency)
    return charge_for(state.budget, step, charge.purpose, charge.item, allocated=allocated)


def check_names_allocation(state: LedgerState, allocation: str | None) -> None:
    """Refuse a spend of a shared budget that names no allocation, and of any other that names one."""
    if state.budget.filter.allocates:
        if allocation is None:
            refuse_without_allocation()
    elif allocation is not None:
        requirement = f"absent: the budget of {state.name} is not shared, so it has no allocations"
        raise InvalidInput("allocation", requirement, allocation)


def check_equal_sizes(state: LedgerState, step: Step, partition: str | None) -> None:
    """Refuse what needs equally many records in neighbours, in a partition that a record may leave.

    By a private key a neighbour may have one record more or less in the partition. A sample of fixed
    size then may have another size, and permuted mini-batches may be one more: at rate 0.01 of 100
    records of norm 1, noise 2, order 2, charged 2.81e-4, the true divergence is 0.25. It is asked
    wherever a spend is decided, and not by a replay: what was granted once stays in the ledger.
    """
    if partition is None or state.partition_key == "fixed" or not step.needs_equal_sizes:
        return
    raise Unproven(
        "samples without replacement and output-mixture need neighbours with equally many records, and "
        f"under partition_key private a neighbour may have one record more or less in {partition!r}. Use "
        "the partition in full, spend on the whole dataset, or open the dataset with partition_key fixed if "
        "records never change their partition, or with adjacency add-remove for Poisson samples"
    )


def check_second_look(budget: Budget) -> None:
    """Refuse a second look at a sample where the filter has no proof for it."""
    if not budget.filter.allows_second_looks:
        raise Unproven(
            f"under accounting {budget.accounting} a sample is looked at once: what is proven for a first "
            "look at it does not cover a second one decided later. Name all releases of a sample, with their "
            "counts, in one item, or draw a fresh sample"
        )


class Charger:
    """Computes charges and keeps the most recent ones."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._states: dict[str, LedgerState] = {}
        self._inner_budgets: OrderedDict[tuple[str, str], Budget] = OrderedDict()
        self._charges: OrderedDict[Any, Charge] = OrderedDict()
        self._long_charges: OrderedDict[Any, Charge] = OrderedDict()
        self._guard = threading.Lock()

    def charge(self, spend: Spend) -> Charge:
        """The charge for a spend; raises what the accounting refuses, or NotFound."""
        fresh = spend.seen_sample is None
        key = (
            spend.dataset,
            spend.releases,
            spend.sample,
            fresh,
            spend.purpose,
            spend.item,
            spend.allocation,
        )
        known = self._recall(key)
        if known is not None:
            return known
        charge = self._compute(spend)
        if charge.is_long:
            self._keep(self._long_charges, key, charge, _KEPT_LONG)
        else:
            self._keep(self._charges, key, charge)
        return charge

    def _recall(self, key: Any) -> Charge | None:
        with self._guard:
            for kept in (self._charges, self._long_charges):
                known = kept.get(key)
                if known is not None:
                    kept.move_to_end(key)
                    return known
        return None

    def _keep(self, kept: OrderedDict[Any, Any], key: Any, value: Any, most: int = _KEPT) -> None:
        with self._guard:
            kept[key] = value
            while len(kept) > most:
                kept.popitem(last=False)

    def rule(self, name: str) -> tuple[Budget, Adjacency]:
        """What of a dataset's budget never changes, and its adjacency; raises NotFound."""
        state = self._state(name)
        return state.budget, state.adjacency

    def _compute(self, spend: Spend) -> Charge:
        budget, adjacency = self._budget_for(spend)
        if spend.seen_sample is not None:
            check_second_look(budget)
        sample = spend.sample if spend.seen_sample is None else Sample()
        step = Step(spend.releases, sample, adjacency)
        allocated = spend.allocation is not None
        return charge_for(budget, step, spend.purpose, spend.item, allocated=allocated)

    def _budget_for(self, spend: Spend) -> tuple[Budget, Adjacency]:
        """The budget that a spend is charged to, the dataset's or the allocation's, and the adjacency."""
        name, state = spend.dataset, self._state(spend.dataset)
        if (spend.allocation is not None) is not state.budget.filter.allocates:
            # A restored backup may have brought another dataset under the name.
            state = self._states[name] = self._storage.dataset(name).state
            check_names_allocation(state, spend.allocation)
        if spend.allocation is None:
            return state.budget, state.adjacency
        return self._allocation_budget(name, spend.allocation), state.adjacency

    def _allocation_budget(self, dataset: str, name: str) -> Budget:
        """An allocation's budget, which never changes; raises NotFound."""
        known = self._inner_budgets.get((dataset, name))
        if known is None:
            state = self._states[dataset] = self._storage.dataset(dataset).state
            found = self._storage.allocation(state.dataset_id, name)
            if found is None:
                raise NotFound("allocation", name)
            known = found.budget
            self._keep(self._inner_budgets, (dataset, name), known)
        return known

    def _state(self, name: str) -> LedgerState:
        """The dataset's unchanging parts; limits and totals of this copy are never looked at."""
        if name not in self._states:
            self._states[name] = self._storage.dataset(name).state
        return self._states[name]
