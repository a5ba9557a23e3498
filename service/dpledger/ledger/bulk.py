"""Several spends across datasets and partitions under one key."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dpledger.accounting.errors import AccountingError
from dpledger.accounting.validation import check_choice
from dpledger.ledger.authorization import Yes, spend_in, stored_yes, try_charge, yes_body
from dpledger.ledger.charges import fitting
from dpledger.ledger.decide import Refused
from dpledger.ledger.errors import LedgerError, NotFound, Unavailable
from dpledger.ledger.idempotency import NO_DATASET, IdempotentExecutor
from dpledger.ledger.model.entries import Charge
from dpledger.ledger.model.requests import Answer, Spend
from dpledger.ledger.model.state import LedgerState
from dpledger.ledger.ports import IdempotentRequest, Transaction
from dpledger.ledger.responses import text
from dpledger.ledger.unit_of_work import UnitOfWork

__all__ = ["MODES", "authorize_all", "no_pause"]

MODES = ("all-or-nothing", "each")
_SHORT = 16
"""Lists up to this length are decided under the locks at once: that takes less than drafting them."""
_DRAFTS = 2
Item = Yes | dict[str, Any]
"""A yes, or the record of a no: ``{"refused": …}``, ``{"failed": …}`` or ``{"not_taken": true}``."""


class _Draft(NamedTuple):
    """A list decided on one state of its ledgers, with all that is to be written if they have not moved."""

    states: dict[str, LedgerState]
    units: dict[str, UnitOfWork]
    items: list[Item]
    outcome: str
    kept: str

    def holds_for(self, states: Mapping[str, LedgerState]) -> bool:
        """Whether the ledgers have not moved: all that a decision rests on follows from their entries."""
        return {name: (state.sequence, state.head) for name, state in states.items()} == {
            name: (state.sequence, state.head) for name, state in self.states.items()
        }


class _List(NamedTuple):
    """What is asked for, and what each part of it costs."""

    spends: Sequence[Spend]
    charges: Sequence[Charge | LedgerError | AccountingError]
    mode: str
    call: IdempotentRequest
    pause: Callable[[], None]

    @property
    def names(self) -> list[str]:
        """The datasets that there are, in the order in which they are locked."""
        return sorted({spend.dataset for spend in self.spends} - _absent(self.spends, self.charges))


def no_pause() -> None:
    """Nobody else is waiting."""


def authorize_all(
    executor: IdempotentExecutor,
    spends: Sequence[Spend],
    mode: str,
    call: IdempotentRequest,
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
        charges.append(charge := try_charge(executor, spend))
        # What fails for now must not be kept as the answer for good.
        if isinstance(charge, Unavailable) or (mode == "all-or-nothing" and not isinstance(charge, Charge)):
            raise charge
        pause()
    asked = _List(spends, charges, mode, call, pause)
    outcome, items, replayed = _decided(executor, asked)
    return _to_answer(executor, outcome, items, replayed, pause)


def _decided(executor: IdempotentExecutor, asked: _List) -> tuple[str, list[Item], bool]:
    drafts = _DRAFTS if len(asked.spends) > _SHORT else 0
    for _ in range(drafts):
        found = _drafted(executor, asked)
        if not isinstance(found, _Draft):
            return found
        written = executor.run(lambda tx, draft=found: _write(executor, tx, asked, draft))  # type: ignore[misc]
        if written is not None:
            return written
    at_once = executor.run(lambda tx: _write(executor, tx, asked, None))
    assert at_once is not None, "under the locks nothing moves"
    return at_once


def _drafted(executor: IdempotentExecutor, asked: _List) -> "_Draft | tuple[str, list[Item], bool]":
    """Decide on the last committed state; what the key was answered before is read from there."""
    with executor.storage.snapshot() as snapshot, np.errstate(over="ignore"):
        states = snapshot.lock(asked.names)
        return _known(executor, snapshot, asked, states) or _draft(executor, snapshot, asked, states)


def _write(
    executor: IdempotentExecutor, transaction: Transaction, asked: _List, draft: _Draft | None
) -> tuple[str, list[Item], bool] | None:
    """Write what was decided, or without a draft decide here; None if the ledgers have moved."""
    states = transaction.lock(asked.names)
    known = _known(executor, transaction, asked, states)
    if known is not None:
        return known
    if draft is None:
        draft = _draft(executor, transaction, asked._replace(pause=no_pause), states)
    elif not draft.holds_for(states):
        return None
    for unit in draft.units.values():
        unit.resume(transaction)
        if draft.outcome == "granted":
            unit.write()
        else:
            unit.write_refusals()
    executor.keep(transaction, NO_DATASET, asked.call, Answer(draft.outcome, draft.kept))
    return draft.outcome, draft.items, False


def _known(
    executor: IdempotentExecutor, transaction: Transaction, asked: _List, states: dict[str, LedgerState]
) -> tuple[str, list[Item], bool] | None:
    executor.refuse_revoked(transaction, asked.call)
    known = executor.known(transaction, NO_DATASET, asked.call)
    return None if known is None else (known.outcome, _restore(transaction, states, known.body), True)


def _draft(
    executor: IdempotentExecutor, transaction: Transaction, asked: _List, states: dict[str, LedgerState]
) -> _Draft:
    mode, actor = asked.mode, asked.call.actor
    units = {name: executor.open_unit(transaction, state) for name, state in sorted(states.items())}
    _load_partitions(units, asked.spends, mode)
    items: list[Item] = []
    for spend, charge in zip(asked.spends, asked.charges, strict=True):
        items.append(_item(executor, transaction, units, spend, charge, mode, actor))
        asked.pause()
    granted = mode == "each" or all(isinstance(item, Yes) for item in items)
    if not granted:
        items = [{"not_taken": True} if isinstance(item, Yes) else item for item in items]
    records = [_record(spend, item) for spend, item in zip(asked.spends, items, strict=True)]
    outcome = "granted" if granted else "refused"
    return _Draft(states, units, items, outcome, text({"items": records}))


def _absent(spends: Sequence[Spend], charges: Sequence[Charge | LedgerError | AccountingError]) -> set[str]:
    """The datasets that there are not; one that was opened while the list was read is there."""
    pairs = list(zip(spends, charges, strict=True))
    missing = {spend.dataset for spend, charge in pairs if isinstance(charge, NotFound)}
    return missing - {spend.dataset for spend, charge in pairs if isinstance(charge, Charge)}


def _load_partitions(units: dict[str, UnitOfWork], spends: Sequence[Spend], mode: str) -> None:
    """Read all partitions at once; a name that is not there concerns its own item if each stands alone."""
    for name, unit in units.items():
        try:
            unit.load_partitions([s.partition for s in spends if s.dataset == name and s.partition])
        except NotFound:
            if mode == "all-or-nothing":
                raise


def _item(
    executor: IdempotentExecutor,
    transaction: Transaction,
    units: dict[str, UnitOfWork],
    spend: Spend,
    charge: Charge | LedgerError | AccountingError,
    mode: str,
    actor: str,
) -> Item:
    if not isinstance(charge, Charge):
        return _failure_fields(charge)
    try:
        unit = units[spend.dataset]
        charge = fitting(unit.state, charge)
        outcome = spend_in(transaction, unit, spend, charge, actor, None)
    except (LedgerError, AccountingError) as error:
        if mode == "all-or-nothing":
            raise
        return _failure_fields(error)
    if isinstance(outcome, Refused):
        body = executor.responses.refusal(spend.dataset, spend.run, charge, 1, outcome)
        return {"refused": {**json.loads(body), **_partition(spend.partition)}}
    return Yes(spend.dataset, outcome.entry, charge, outcome.budget, outcome.fraction, spend.partition)


def _failure_fields(error: LedgerError | AccountingError) -> dict[str, Any]:
    words = re.sub(r"(?<!^)(?=[A-Z])", "-", type(error).__name__).lower()
    return {"failed": {"reason": words, "detail": str(error)}}


def _partition(name: str | None) -> dict[str, str]:
    return {} if name is None else {"partition": name}


def _record(spend: Spend, item: Item) -> dict[str, Any]:
    return {"dataset": spend.dataset, "sequence": item.entry.sequence} if isinstance(item, Yes) else item


def _restore(transaction: Transaction, states: dict[str, LedgerState], body: str) -> list[Item]:
    items: list[Item] = []
    for record in json.loads(body)["items"]:
        if "sequence" in record:
            state = states[record["dataset"]]
            stored = transaction.entry(state.dataset_id, record["sequence"])
            items.append(stored_yes(transaction, state, stored))
        else:
            items.append(record)
    return items


def _to_answer(
    executor: IdempotentExecutor,
    outcome: str,
    items: Sequence[Item],
    replayed: bool,
    pause: Callable[[], None],
) -> Answer:
    results: list[str] = []
    for item in items:
        results.append(_result(executor, item))
        pause()
    return Answer(outcome, f'{{"outcome":"{outcome}","results":[{",".join(results)}]}}', replayed)


def _result(executor: IdempotentExecutor, item: Item) -> str:
    return f'{{"granted":{yes_body(executor, item)}}}' if isinstance(item, Yes) else text(item)
