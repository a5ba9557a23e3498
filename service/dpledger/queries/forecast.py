"""Forecasts how many more steps a dataset grants, from its last committed state."""

from typing import NamedTuple

import numpy as np

from dpledger.accounting.exact import Exact
from dpledger.accounting.steps import Step, releases_from_fields
from dpledger.accounting.validation import MAX_COUNT
from dpledger.ledger.charges import check_equal_sizes, check_names_allocation
from dpledger.ledger.errors import AllocationReturned
from dpledger.ledger.model.allocation import ledger_within
from dpledger.ledger.model.state import Amounts, ExactTotals, LedgerState, Partition
from dpledger.queries.requests import MOST_PLANNED, ChargeQuery, Fields, ForecastQuery, sample_from
from dpledger.storage.repositories.allocations import find_allocations
from dpledger.storage.repositories.datasets import find_dataset
from dpledger.storage.repositories.partitions import find_partitions
from dpledger.storage.repository import SqlStorage

__all__ = ["charge_query", "forecast", "read_state"]


class State(NamedTuple):
    """The ledger that a step would be decided on: a dataset's, or that within one of its allocations."""

    ledger: LedgerState
    partition: Partition | None = None
    allocation: str | None = None


def read_state(
    storage: SqlStorage, dataset: str, partition: str | None, allocation: str | None = None
) -> State:
    """A dataset's state, and one of its partitions or allocations where it is named, read together."""
    with storage.database.read() as session:
        state = find_dataset(session, dataset).state
        check_names_allocation(state, allocation)
        if allocation is not None:
            part = find_allocations(session, state.dataset_id, [allocation])[allocation]
            if part.returned:
                raise AllocationReturned(allocation)
            state = ledger_within(state, part)
        if partition is None:
            return State(state, None, allocation)
        named = find_partitions(session, state.dataset_id, [partition], state.budget.size)
        return State(state, named[partition], allocation)


def charge_query(query: ForecastQuery, state: LedgerState) -> ChargeQuery:
    """What one such step costs this dataset; it never changes while the dataset lives."""
    sample = sample_from(query.sample)
    step = Step(releases_from_fields(query.releases), sample, state.adjacency)
    check_equal_sizes(state, step, query.partition)
    return ChargeQuery(budget=state.budget.document, step=step.canonical)


def forecast(found: State, asked: ChargeQuery, charge: Fields) -> Fields:
    """The largest reservation of such steps that would be granted now; ``charge`` is what each costs."""
    state, partition, allocation = found
    named = {} if partition is None else {"partition": partition.name}
    if allocation is not None:
        named["allocation"] = allocation
    fits = _most(state, partition, _each(state, charge))
    return {
        "dataset": state.name,
        **named,
        "sequence": state.sequence,
        "fits": fits,
        **({} if fits else _explain(state, partition, charge, Step.from_canonical(asked.step))),
        "remaining": state.remaining(partition),
        "cost": charge["cost"],
        **state.budget.filter.theorem.fields(),
    }


def _explain(state: LedgerState, partition: Partition | None, charge: Fields, step: Step) -> Fields:
    """Why not even one fits, in the words of the refusal that asking for it would meet, and one more."""
    asked, room = np.array(charge["amounts"]), state.room(partition)
    found = state.budget.filter.explain_refusal(state.budget, step, asked, room)
    if grants := charge["plan_grants"]:
        least = "at least " if grants == MOST_PLANNED else ""
        said = f"a plan budget for the same ε and δ, opened for this step, grants it {least}{_times(grants)}"
        return {**found, "advice": [*found.get("advice", []), said]}
    return found


def _times(number: int) -> str:
    return f"{number} times" if number != 1 else "once"


def _each(state: LedgerState, charge: Fields) -> Amounts:
    exact = isinstance(state.whole, ExactTotals)
    return Exact.from_text(charge["exact"]) if exact else np.array(charge["amounts"])


def _most(state: LedgerState, partition: Partition | None, each: Amounts) -> int:
    low, high = 0, MAX_COUNT + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if state.fits(each, partition, middle) else (low, middle)
    return low
