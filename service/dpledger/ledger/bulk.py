"""Several spends across datasets and partitions under one key."""

import json
import re
from collections.abc import Sequence
from typing import Any

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

__all__ = ["MODES", "authorize_all"]

MODES = ("all-or-nothing", "each")
Item = Yes | dict[str, Any]
"""A yes, or the record of a no: ``{"refused": …}``, ``{"failed": …}`` or ``{"not_taken": true}``."""


def authorize_all(teller: Teller, spends: Sequence[Spend], mode: str, intent: Intent) -> Answer:
    """Decide all spends in one transaction; the answer lists one result a spend.

    ``all-or-nothing``: any refusal leaves every ledger as it was. ``each``: every spend is decided
    on its own. What is kept under the key is what is needed to say the same again.
    """
    check_choice("mode", mode, MODES)
    charges = [charged(teller, spend) for spend in spends]
    for charge in charges:
        # What fails for now must not be kept as the answer for good.
        if isinstance(charge, Unavailable) or (mode == "all-or-nothing" and not isinstance(charge, Charge)):
            raise charge
    return _told(teller, *teller.run(lambda tx: _decide(teller, tx, spends, charges, mode, intent)))


def _decide(
    teller: Teller,
    transaction: Transaction,
    spends: Sequence[Spend],
    charges: Sequence[Charge | LedgerError | AccountingError],
    mode: str,
    intent: Intent,
) -> tuple[str, list[Item], bool]:
    books = transaction.lock(sorted({spend.dataset for spend in spends} - _absent(spends, charges)))
    teller.refuse_ended(transaction, intent)
    known = teller.known(transaction, NO_DATASET, intent)
    if known is not None:
        return known.outcome, _restored(transaction, books, known.body), True
    sittings = {name: teller.sit(transaction, book) for name, book in sorted(books.items())}
    _load_partitions(sittings, spends, mode)
    items = [
        _item(teller, transaction, sittings, spend, charge, mode, intent.actor)
        for spend, charge in zip(spends, charges, strict=True)
    ]
    granted = mode == "each" or all(isinstance(item, Yes) for item in items)
    if granted:
        for sitting in sittings.values():
            sitting.write()
    else:
        for sitting in sittings.values():
            sitting.write_refusals()
        items = [{"not_taken": True} if isinstance(item, Yes) else item for item in items]
    outcome = "granted" if granted else "refused"
    records = [_record(spend, item) for spend, item in zip(spends, items, strict=True)]
    teller.keep(transaction, NO_DATASET, intent, Answer(outcome, text({"items": records})))
    return outcome, items, False


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


def _told(teller: Teller, outcome: str, items: Sequence[Item], replayed: bool) -> Answer:
    results = ",".join([_result(teller, item) for item in items])
    return Answer(outcome, f'{{"outcome":"{outcome}","results":[{results}]}}', replayed)


def _result(teller: Teller, item: Item) -> str:
    return f'{{"granted":{yes_body(teller, item)}}}' if isinstance(item, Yes) else text(item)
