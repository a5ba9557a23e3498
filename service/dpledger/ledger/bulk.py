"""Several spends across datasets and partitions under one key."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dpledger.accounting.errors import AccountingError
from dpledger.accounting.validation import check_choice
from dpledger.ledger.answers import text
from dpledger.ledger.authorizing import Yes, charged, spend_in, stored_yes, yes_body
from dpledger.ledger.charging import fitting
from dpledger.ledger.decide import Refused
from dpledger.ledger.entries import Charge
from dpledger.ledger.errors import LedgerError, NotFound, Unavailable
from dpledger.ledger.ports import Intent, Transaction
from dpledger.ledger.requests import Answer, Spend
from dpledger.ledger.sitting import Sitting
from dpledger.ledger.state import Book
from dpledger.ledger.teller import NO_DATASET, Teller

__all__ = ["MODES", "authorize_all", "no_pause"]

MODES = ("all-or-nothing", "each")
_SHORT = 16
"""Lists up to this length are decided under the locks at once: that takes less than drafting them."""
_DRAFTS = 2
Item = Yes | dict[str, Any]
"""A yes, or the record of a no: ``{"refused": …}``, ``{"failed": …}`` or ``{"not_taken": true}``."""


class _Draft(NamedTuple):
    """A list decided on one state of its ledgers, with all that is to be written if they have not moved."""

    books: dict[str, Book]
    sittings: dict[str, Sitting]
    items: list[Item]
    outcome: str
    kept: str

    def holds_for(self, books: Mapping[str, Book]) -> bool:
        """Whether the ledgers have not moved: all that a decision rests on follows from their entries."""
        return {name: (book.sequence, book.head) for name, book in books.items()} == {
            name: (book.sequence, book.head) for name, book in self.books.items()
        }


class _List(NamedTuple):
    """What is asked for, and what each part of it costs."""

    spends: Sequence[Spend]
    charges: Sequence[Charge | LedgerError | AccountingError]
    mode: str
    intent: Intent
    pause: Callable[[], None]

    @property
    def names(self) -> list[str]:
        """The datasets that there are, in the order in which they are locked."""
        return sorted({spend.dataset for spend in self.spends} - _absent(self.spends, self.charges))


def no_pause() -> None:
    """Nobody else is waiting."""


def authorize_all(
    teller: Teller,
    spends: Sequence[Spend],
    mode: str,
    intent: Intent,
    pause: Callable[[], None] = no_pause,
) -> Answer:
    """Decide all spends in one transaction; the answer lists one result a spend.

    ``all-or-nothing``: any refusal leaves every ledger as it was. ``each``: every spend is decided
    on its own. What is kept under the key is what is needed to say the same again.

    A long list is decided before its ledgers are locked, on one state of the database, and written under
    the locks if the ledgers still stand there: a writer of SQLite holds up everybody, and deciding takes most
    of the time. If they have moved, it is decided again, at last under the locks. ``pause`` is called between
    items while nothing is locked.
    """
    check_choice("mode", mode, MODES)
    charges: list[Charge | LedgerError | AccountingError] = []
    for spend in spends:
        charges.append(charge := charged(teller, spend))
        # What fails for now must not be kept as the answer for good.
        if isinstance(charge, Unavailable) or (mode == "all-or-nothing" and not isinstance(charge, Charge)):
            raise charge
        pause()
    asked = _List(spends, charges, mode, intent, pause)
    outcome, items, replayed = _decided(teller, asked)
    return _told(teller, outcome, items, replayed, pause)


def _decided(teller: Teller, asked: _List) -> tuple[str, list[Item], bool]:
    drafts = _DRAFTS if len(asked.spends) > _SHORT else 0
    for _ in range(drafts):
        found = _drafted(teller, asked)
        if not isinstance(found, _Draft):
            return found
        written = teller.run(lambda tx, draft=found: _write(teller, tx, asked, draft))  # type: ignore[misc]
        if written is not None:
            return written
    at_once = teller.run(lambda tx: _write(teller, tx, asked, None))
    assert at_once is not None, "under the locks nothing moves"
    return at_once


def _drafted(teller: Teller, asked: _List) -> "_Draft | tuple[str, list[Item], bool]":
    """Decide on the last committed state; what the key was answered before is told from there."""
    with teller.storage.snapshot() as snapshot, np.errstate(over="ignore"):
        books = snapshot.lock(asked.names)
        return _known(teller, snapshot, asked, books) or _draft(teller, snapshot, asked, books)


def _write(
    teller: Teller, transaction: Transaction, asked: _List, draft: _Draft | None
) -> tuple[str, list[Item], bool] | None:
    """Write what was decided, or without a draft decide here; None if the ledgers have moved."""
    books = transaction.lock(asked.names)
    known = _known(teller, transaction, asked, books)
    if known is not None:
        return known
    if draft is None:
        draft = _draft(teller, transaction, asked._replace(pause=no_pause), books)
    elif not draft.holds_for(books):
        return None
    for sitting in draft.sittings.values():
        sitting.resume(transaction)
        if draft.outcome == "granted":
            sitting.write()
        else:
            sitting.write_refusals()
    teller.keep(transaction, NO_DATASET, asked.intent, Answer(draft.outcome, draft.kept))
    return draft.outcome, draft.items, False


def _known(
    teller: Teller, transaction: Transaction, asked: _List, books: dict[str, Book]
) -> tuple[str, list[Item], bool] | None:
    teller.refuse_ended(transaction, asked.intent)
    known = teller.known(transaction, NO_DATASET, asked.intent)
    return None if known is None else (known.outcome, _restored(transaction, books, known.body), True)


def _draft(teller: Teller, transaction: Transaction, asked: _List, books: dict[str, Book]) -> _Draft:
    mode, actor = asked.mode, asked.intent.actor
    sittings = {name: teller.sit(transaction, book) for name, book in sorted(books.items())}
    _load_partitions(sittings, asked.spends, mode)
    items: list[Item] = []
    for spend, charge in zip(asked.spends, asked.charges, strict=True):
        items.append(_item(teller, transaction, sittings, spend, charge, mode, actor))
        asked.pause()
    granted = mode == "each" or all(isinstance(item, Yes) for item in items)
    if not granted:
        items = [{"not_taken": True} if isinstance(item, Yes) else item for item in items]
    records = [_record(spend, item) for spend, item in zip(asked.spends, items, strict=True)]
    outcome = "granted" if granted else "refused"
    return _Draft(books, sittings, items, outcome, text({"items": records}))


def _absent(spends: Sequence[Spend], charges: Sequence[Charge | LedgerError | AccountingError]) -> set[str]:
    """The datasets that there are not; one that was opened while the list was read is there."""
    pairs = list(zip(spends, charges, strict=True))
    missing = {spend.dataset for spend, charge in pairs if isinstance(charge, NotFound)}
    return missing - {spend.dataset for spend, charge in pairs if isinstance(charge, Charge)}


def _load_partitions(sittings: dict[str, Sitting], spends: Sequence[Spend], mode: str) -> None:
    """Read all partitions at once; a name that is not there concerns its own item if each stands alone."""
    for name, sitting in sittings.items():
        try:
            sitting.load_partitions([s.partition for s in spends if s.dataset == name and s.partition])
        except NotFound:
            if mode == "all-or-nothing":
                raise


def _item(
    teller: Teller,
    transaction: Transaction,
    sittings: dict[str, Sitting],
    spend: Spend,
    charge: Charge | LedgerError | AccountingError,
    mode: str,
    actor: str,
) -> Item:
    if not isinstance(charge, Charge):
        return _failed(charge)
    try:
        sitting = sittings[spend.dataset]
        charge = fitting(sitting.book, charge)
        outcome = spend_in(transaction, sitting, spend, charge, actor, None)
    except (LedgerError, AccountingError) as error:
        if mode == "all-or-nothing":
            raise
        return _failed(error)
    if isinstance(outcome, Refused):
        body = teller.desk.refusal(spend.dataset, spend.run, charge, 1, outcome)
        return {"refused": {**json.loads(body), **_partition(spend.partition)}}
    return Yes(spend.dataset, outcome.entry, charge, outcome.budget, outcome.fraction, spend.partition)


def _failed(error: LedgerError | AccountingError) -> dict[str, Any]:
    words = re.sub(r"(?<!^)(?=[A-Z])", "-", type(error).__name__).lower()
    return {"failed": {"reason": words, "detail": str(error)}}


def _partition(name: str | None) -> dict[str, str]:
    return {} if name is None else {"partition": name}


def _record(spend: Spend, item: Item) -> dict[str, Any]:
    return {"dataset": spend.dataset, "sequence": item.entry.sequence} if isinstance(item, Yes) else item


def _restored(transaction: Transaction, books: dict[str, Book], body: str) -> list[Item]:
    items: list[Item] = []
    for record in json.loads(body)["items"]:
        if "sequence" in record:
            book = books[record["dataset"]]
            stored = transaction.entry(book.dataset_id, record["sequence"])
            items.append(stored_yes(transaction, book, stored))
        else:
            items.append(record)
    return items


def _told(
    teller: Teller, outcome: str, items: Sequence[Item], replayed: bool, pause: Callable[[], None]
) -> Answer:
    results: list[str] = []
    for item in items:
        results.append(_result(teller, item))
        pause()
    return Answer(outcome, f'{{"outcome":"{outcome}","results":[{",".join(results)}]}}', replayed)


def _result(teller: Teller, item: Item) -> str:
    return f'{{"granted":{yes_body(teller, item)}}}' if isinstance(item, Yes) else text(item)
