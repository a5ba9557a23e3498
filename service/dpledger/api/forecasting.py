"""How many more such steps a dataset grants, from its ledger as last committed."""

from typing import Any

import numpy as np

from dpledger.accounting.exact import Exact
from dpledger.accounting.sampling import Sample
from dpledger.accounting.steps import Step
from dpledger.accounting.validation import MAX_COUNT
from dpledger.api.query_bodies import ForecastBody
from dpledger.api.questions import ChargeQuestion
from dpledger.api.schemas import to_releases
from dpledger.api.theorems import FILTERS
from dpledger.ledger.charging import check_equal_sizes
from dpledger.ledger.state import Amounts, Book, ExactTotals, Partition
from dpledger.storage.books import dataset_named
from dpledger.storage.partitions import partitions_named
from dpledger.storage.repository import SqlStorage

__all__ = ["charge_question", "forecast", "read_state"]

State = tuple[Book, Partition | None]


def read_state(storage: SqlStorage, dataset: str, partition: str | None) -> State:
    """A dataset's book, and one of its partitions where it is named, read together."""
    with storage.database.read() as session:
        book = dataset_named(session, dataset).book
        if partition is None:
            return book, None
        named = partitions_named(session, book.dataset_id, [partition], book.budget.size)
        return book, named[partition]


def charge_question(body: ForecastBody, book: Book) -> ChargeQuestion:
    """What one such step costs this dataset; it never changes while the dataset lives."""
    sample = Sample() if body.sample is None else body.sample.to_domain()
    step = Step(to_releases(body.releases), sample, book.adjacency)
    check_equal_sizes(book, step, body.partition)
    return ChargeQuestion(budget=book.budget.document, step=step.canonical)


def forecast(state: State, charge: dict[str, Any]) -> dict[str, Any]:
    """The answer: the largest reservation of such steps that would be granted now."""
    book, partition = state
    named = {} if partition is None else {"partition": partition.name}
    return {
        "dataset": book.name,
        **named,
        "sequence": book.sequence,
        "fits": _most(book, partition, _each(book, charge)),
        "remaining": book.remaining(partition),
        "cost": charge["cost"],
        **FILTERS[book.budget.accounting].fields(),
    }


def _each(book: Book, charge: dict[str, Any]) -> Amounts:
    exact = isinstance(book.whole, ExactTotals)
    return Exact.from_text(charge["exact"]) if exact else np.array(charge["amounts"])


def _most(book: Book, partition: Partition | None, each: Amounts) -> int:
    low, high = 0, MAX_COUNT + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if book.fits(each, partition, middle) else (low, middle)
    return low
