"""The rule of quotas, as pure functions: which one a command exceeds, and what they are after it.

In a shared budget what counts is what a team allocates: spends from an allocation were counted with it.
"""

import numpy as np

from dpledger.accounting.exact import Exact
from dpledger.ledger.model.allocation import shared_amounts
from dpledger.ledger.model.commands import (
    Allocate,
    Authorize,
    ChangeQuota,
    Command,
    Expire,
    Reserve,
    ReturnAllocation,
    Settle,
)
from dpledger.ledger.model.entries import Charge
from dpledger.ledger.model.quota import Quota
from dpledger.ledger.model.state import LedgerState

__all__ = ["amounts_asked", "first_exceeded", "quotas_after", "times_within"]


def first_exceeded(state: LedgerState, command: Authorize | Reserve | Allocate, at_us: int) -> Quota | None:
    """The first quota that a granted command would exceed, at this time; None where all admit it."""
    each, times = amounts_asked(state, command)
    now = (quota.at(at_us) for quota in command.quotas)
    return next((quota for quota in now if not quota.admits(state.budget, each, times)), None)


def times_within(state: LedgerState, command: Authorize | Reserve, at_us: int, most: int) -> int:
    """The largest number of repetitions up to ``most`` that all quotas admit."""
    each, now = _exactly(state, command.charge), [quota.at(at_us) for quota in command.quotas]
    low, high = 0, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        if all(quota.admits(state.budget, each, middle) for quota in now):
            low = middle
        else:
            high = middle
    return low


def amounts_asked(state: LedgerState, command: Authorize | Reserve | Allocate) -> tuple[Exact, int]:
    """What a command asks of the budget: amounts, and how often."""
    if isinstance(command, Allocate):
        return shared_amounts(command.epsilon, command.delta), 1
    return _exactly(state, command.charge), command.times if isinstance(command, Reserve) else 1


def quotas_after(state: LedgerState, command: Command, at_us: int) -> tuple[Quota, ...]:
    """Those quotas that a granted command changes, as they are after it; the state is that before it."""
    if isinstance(command, ChangeQuota):
        return (_changed(state, command, at_us),)
    if isinstance(command, (Authorize, Reserve, Allocate)):
        if not command.quotas:
            return ()
        each, times = amounts_asked(state, command)
        now = [quota.at(at_us) for quota in command.quotas]
        if isinstance(command, Reserve):
            return tuple(quota.reserved(each, times) for quota in now)
        return tuple(quota.charged(each) for quota in now)
    if isinstance(command, (Settle, Expire)):
        return _closed(state, command, at_us)
    if isinstance(command, ReturnAllocation):
        part = command.allocation
        return tuple(
            quota.at(at_us).given_back(part.amounts)
            for quota in command.quotas
            if quota.counts(part.sequence)
        )
    return ()


def _closed(state: LedgerState, command: Settle | Expire, at_us: int) -> tuple[Quota, ...]:
    held = command.reservation
    counting = [quota.at(at_us) for quota in held.quotas if quota.counts(held.sequence)]
    if not counting:
        return ()
    each = _exactly(state, held.charge)
    used = command.used if isinstance(command, Settle) else held.times
    return tuple(quota.settled(each, held.times, used) for quota in counting)


def _changed(state: LedgerState, command: ChangeQuota, at_us: int) -> Quota:
    """The quota after its change: one that is there goes on counting."""
    present = command.present
    if present is None:
        assert command.fraction is not None, "there is none to remove"
        nothing = Exact.zero(state.budget.size)
        team, window = command.team, command.window_seconds
        return Quota(state.sequence + 1, team, command.fraction, window, (), nothing, latest_us=at_us)
    return present.at(at_us).with_fraction(command.fraction)


def _exactly(state: LedgerState, charge: Charge) -> Exact:
    """What a step adds, also in ledgers that round each sum up."""
    amounts = state.amounts_of(charge)
    return Exact.of_floats(amounts) if isinstance(amounts, np.ndarray) else amounts
