"""Forecasts how many more steps a dataset grants, from its last committed state."""

from typing import Any

import numpy as np

from dpledger.accounting.exact import Exact
from dpledger.accounting.sampling import Sample
from dpledger.accounting.steps import Step
from dpledger.accounting.validation import MAX_COUNT
from dpledger.api.queries.evaluation import ChargeQuery
from dpledger.api.queries.requests import ForecastBody
from dpledger.api.schemas.requests import to_releases
from dpledger.ledger.charges import check_equal_sizes
from dpledger.ledger.model.state import Amounts, ExactTotals, LedgerState, Partition
from dpledger.storage.repositories.datasets import find_dataset
from dpledger.storage.repositories.partitions import find_partitions
from dpledger.storage.repository import SqlStorage

__all__ = ["charge_query", "forecast", "read_state"]

State = tuple[LedgerState, Partition | None]


def read_state(storage: SqlStorage, dataset: str, partition: str | None) -> State:
    """A dataset's state, and one of its partitions where it is named, read together."""
    with storage.database.read() as session:
        state = find_dataset(session, dataset).state
        if partition is None:
            return state, None
        named = find_partitions(session, state.dataset_id, [partition], state.budget.size)
        return state, named[partition]


def charge_query(body: ForecastBody, state: LedgerState) -> ChargeQuery:
    """What one such step costs this dataset; it never changes while the dataset lives."""
    sample = Sample() if body.sample is None else body.sample.to_domain()
    step = Step(to_releases(body.releases), sample, state.adjacency)
    check_equal_sizes(state, step, body.partition)
    return ChargeQuery(budget=state.budget.document, step=step.canonical)


def forecast(found: State, charge: dict[str, Any]) -> dict[str, Any]:
    """The answer: the largest reservation of such steps that would be granted now."""
    state, partition = found
    named = {} if partition is None else {"partition": partition.name}
    fits = _most(state, partition, _each(state, charge))
    return {
        "dataset": state.name,
        **named,
        "sequence": state.sequence,
        "fits": fits,
        **({} if fits else _advice(state, partition, charge)),
        "remaining": state.remaining(partition),
        "cost": charge["cost"],
        **state.budget.filter.theorem.fields(),
    }


def _advice(state: LedgerState, partition: Partition | None, charge: dict[str, Any]) -> dict[str, Any]:
    """Why not even one fits, in the words of the refusal that asking for it would meet."""
    asked = np.array(charge["amounts"])
    return state.budget.filter.explain_refusal(state.budget, state.committed_for(partition), asked)


def _each(state: LedgerState, charge: dict[str, Any]) -> Amounts:
    exact = isinstance(state.whole, ExactTotals)
    return Exact.from_text(charge["exact"]) if exact else np.array(charge["amounts"])


def _most(state: LedgerState, partition: Partition | None, each: Amounts) -> int:
    low, high = 0, MAX_COUNT + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if state.fits(each, partition, middle) else (low, middle)
    return low
