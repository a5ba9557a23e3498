"""Several spends across datasets and partitions under one key."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dpledger.accounting.errors import AccountingError
from dpledger.accounting.validation import check_choice
from dpledger.ledger.authorization import spend_in, stored_grant, try_charge
from dpledger.ledger.decide import Refused
from dpledger.ledger.errors import LedgerError, NotFound, Unavailable
from dpledger.ledger.idempotency import NO_DATASET, IdempotentExecutor
from dpledger.ledger.model.entries import Charge
from dpledger.ledger.model.requests import Spend
from dpledger.ledger.model.state import LedgerState
from dpledger.ledger.ports import IdempotentRequest, KeptGrant, StoredAnswer, Transaction
from dpledger.ledger.results import (
    Failure,
    Grant,
    ItemFailure,
    ItemNotTaken,
    ListItem,
    ListResult,
    SpendRefusal,
)
from dpledger.ledger.unit_of_work import UnitOfWork

__all__ = ["MODES", "authorize_all", "no_pause"]

MODES = ("all-or-nothing", "each")
_SHORT = 16
"""Lists up to this length are decided under the locks at once: that takes less than drafting them."""
_DRAFTS = 2


class _Draft(NamedTuple):
    """A list decided on one state of its ledgers, with all that is to be written if they have not moved."""

    states: dict[str, LedgerState]
    units: dict[str, UnitOfWork]
    result: ListResult
    kept: StoredAnswer

    def holds_for(self, states: Mapping[str, LedgerState]) -> bool:
        """Whether the ledgers have not moved: all that a decision rests on follows from their entries."""
        return {name: (state.sequence, state.head) for name, state in states.items()} == {
            name: (state.sequence, state.head) for name, state in self.states.items()
        }


class _List(NamedTuple):
    """What is asked for, and what each part of it costs."""

    spends: Sequence[Spend]
    charges: Sequence[Charge | Failure]
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
) -> ListResult:
    """Decide all spends in one transaction; the result lists one item per spend.

    ``all-or-nothing``: any refusal leaves every ledger as it was. ``each``: every spend is decided
    on its own. What is kept under the key is what is needed to say the same again.

    A long list is decided before its ledgers are locked, on one state of the database, and written under
    the locks if the ledgers still stand there: a writer of SQLite holds up everybody, and deciding takes most
    of the time. If they have moved, it is decided again, at last under the locks. ``pause`` is called between
    items while nothing is locked.
    """
    check_choice("mode", mode, MODES)
    charges: list[Charge | Failure] = []
    for spend in spends:
        charges.append(charge := try_charge(executor, spend))
        # What fails for now must not be kept as the answer for good.
        if isinstance(charge, Unavailable) or (mode == "all-or-nothing" and not isinstance(charge, Charge)):
            raise charge
        pause()
    return _decide(executor, _List(spends, charges, mode, call, pause))


def _decide(executor: IdempotentExecutor, asked: _List) -> ListResult:
    drafts = _DRAFTS if len(asked.spends) > _SHORT else 0
    for _ in range(drafts):
        found = _draft_unlocked(executor, asked)
        if not isinstance(found, _Draft):
            return found
        written = executor.run(lambda tx, draft=found: _write(executor, tx, asked, draft))  # type: ignore[misc]
        if written is not None:
            return written
    at_once = executor.run(lambda tx: _write(executor, tx, asked, None))
    assert at_once is not None, "under the locks nothing moves"
    return at_once


def _draft_unlocked(executor: IdempotentExecutor, asked: _List) -> _Draft | ListResult:
    """Decide on the last committed state; a key that was answered before is answered from there."""
    with executor.storage.snapshot() as snapshot, np.errstate(over="ignore"):
        states = snapshot.lock(asked.names)
        team = executor.valid_team(snapshot, asked.call)
        return _known(executor, snapshot, asked, states) or _draft(executor, snapshot, asked, states, team)


def _write(
    executor: IdempotentExecutor, transaction: Transaction, asked: _List, draft: _Draft | None
) -> ListResult | None:
    """Write what was decided, or without a draft decide here; None if the ledgers have moved."""
    states = transaction.lock(asked.names)
    team = executor.valid_team(transaction, asked.call)
    known = _known(executor, transaction, asked, states)
    if known is not None:
        return known
    if draft is None:
        draft = _draft(executor, transaction, asked._replace(pause=no_pause), states, team)
    elif not draft.holds_for(states):
        return None
    for unit in draft.units.values():
        unit.resume(transaction)
        if draft.result.outcome == "granted":
            unit.write()
        else:
            unit.write_refusals()
    transaction.keep_answers(NO_DATASET, [(asked.call, draft.kept)])
    return draft.result


def _known(
    executor: IdempotentExecutor, transaction: Transaction, asked: _List, states: dict[str, LedgerState]
) -> ListResult | None:
    known = executor.known(transaction, NO_DATASET, asked.call)
    if known is None:
        return None
    kept = executor.renderer.parse_kept_list(known.body)
    items = [_restore(transaction, states, each) if isinstance(each, KeptGrant) else each for each in kept]
    return ListResult(known.outcome, tuple(items), replayed=True)


def _draft(
    executor: IdempotentExecutor,
    transaction: Transaction,
    asked: _List,
    states: dict[str, LedgerState],
    team: str | None,
) -> _Draft:
    mode, actor = asked.mode, asked.call.actor
    teams = {actor: team}
    units = {name: executor.open_unit(transaction, state, teams) for name, state in sorted(states.items())}
    _load_partitions(units, asked.spends, mode)
    items: list[ListItem] = []
    for spend, charge in zip(asked.spends, asked.charges, strict=True):
        items.append(_item(transaction, units, spend, charge, mode, actor))
        asked.pause()
    granted = mode == "each" or all(isinstance(item, Grant) for item in items)
    if not granted:
        items = [ItemNotTaken() if isinstance(item, Grant) else item for item in items]
    result = ListResult("granted" if granted else "refused", tuple(items))
    return _Draft(states, units, result, executor.stored(asked.call, result))


def _absent(spends: Sequence[Spend], charges: Sequence[Charge | Failure]) -> set[str]:
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
    transaction: Transaction,
    units: dict[str, UnitOfWork],
    spend: Spend,
    charge: Charge | Failure,
    mode: str,
    actor: str,
) -> ListItem:
    if not isinstance(charge, Charge):
        return _failure(charge)
    try:
        unit = units[spend.dataset]
        charge = unit.fitting(charge, unit.allocation_to_spend(spend.allocation))
        outcome = spend_in(transaction, unit, spend, charge, actor, None)
    except (LedgerError, AccountingError) as error:
        if mode == "all-or-nothing":
            raise
        return _failure(error)
    if isinstance(outcome, Refused):
        return SpendRefusal(spend.dataset, spend.run, charge, 1, outcome, spend.partition, spend.allocation)
    return Grant(spend.dataset, outcome.entry, charge, *outcome[1:], spend.partition, spend.allocation)


def _failure(error: Failure) -> ItemFailure:
    slug = re.sub(r"(?<!^)(?=[A-Z])", "-", type(error).__name__).lower()
    return ItemFailure(slug, str(error))


def _restore(transaction: Transaction, states: dict[str, LedgerState], kept: KeptGrant) -> Grant:
    state = states[kept.dataset]
    return stored_grant(transaction, state, transaction.entry(state.dataset_id, kept.sequence))
