"""Between the domain's values and what a column holds, bit for bit in both directions.

Vectors are little-endian float64. A vector of nothing but positive zeros is stored as no bytes at all:
most are (nothing reserved, a partition that was just opened).
"""

import functools
import hashlib
from typing import Any

import numpy as np

from dpledger.accounting.cost import Cost
from dpledger.accounting.exact import Exact
from dpledger.accounting.steps import Step
from dpledger.accounting.validation import Floats
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.entries import Charge, EntryKind
from dpledger.ledger.model.state import AnyTotals, ExactTotals, PartitionExtremes, Totals
from dpledger.ledger.ports import IdempotentRequest

__all__ = [
    "CLOSED_AS",
    "KINDS",
    "KIND_CODES",
    "OPEN",
    "STATE_NAMES",
    "Damaged",
    "charge_from_columns",
    "columns_of_charge",
    "columns_of_totals",
    "entry_key",
    "extremes_from_bytes",
    "extremes_to_bytes",
    "step_from_column",
    "totals_from_columns",
    "vector_from_bytes",
    "vector_to_bytes",
]

# What the numbers mean can never change: they are in every database.
KIND_CODES = {
    EntryKind.OPENED: 1,
    EntryKind.BUDGET_CHANGED: 2,
    EntryKind.PARTITIONS_OPENED: 3,
    EntryKind.AUTHORIZED: 4,
    EntryKind.RESERVED: 5,
    EntryKind.SETTLED: 6,
    EntryKind.EXPIRED: 7,
    EntryKind.ROLLBACK_ACCEPTED: 8,
    EntryKind.ALLOCATED: 9,
    EntryKind.ALLOCATION_RETURNED: 10,
    EntryKind.QUOTA_CHANGED: 11,
    EntryKind.BUDGET_REQUESTED: 12,
    EntryKind.REQUEST_APPROVED: 13,
    EntryKind.REQUEST_REJECTED: 14,
    EntryKind.REQUEST_WITHDRAWN: 15,
    EntryKind.RENEWAL_CHANGED: 16,
}
KINDS = {code: kind for kind, code in KIND_CODES.items()}

OPEN = 0
CLOSED_AS = {EntryKind.SETTLED: 1, EntryKind.EXPIRED: 2}
STATE_NAMES = {code: kind.value for kind, code in CLOSED_AS.items()}

_FLOAT = np.dtype("<f8")
_INTEGER = np.dtype("<i8")


class Damaged(ValueError):
    """A stored value that this code cannot have written."""


def vector_to_bytes(vector: Floats) -> bytes:
    """Little-endian bytes of a vector; none for positive zeros."""
    raw = vector.astype(_FLOAT, copy=False).tobytes()
    return raw if raw.strip(b"\0") else b""


def vector_from_bytes(raw: bytes, size: int) -> Floats:
    """The read-only vector of ``size`` numbers that :func:`vector_to_bytes` wrote."""
    if not raw:
        return np.zeros(size)
    if len(raw) != size * _FLOAT.itemsize:
        raise Damaged(f"a vector of {size} numbers is stored in {len(raw)} bytes")
    return np.frombuffer(raw, dtype=_FLOAT)


def columns_of_totals(totals: AnyTotals) -> tuple[bytes, bytes, int, str | None]:
    """``spent``, ``reserved``, ``open_reservations``, ``exact``."""
    spent = vector_to_bytes(totals.spent)
    if not isinstance(totals, ExactTotals):
        return spent, vector_to_bytes(totals.reserved), totals.open_reservations, None
    parts = (totals.exact_spent, totals.exact_reserved)
    exact = "|".join([part.text if any(part.numerators) else "" for part in parts])
    # Its floats show nothing held where no reservation is open.
    reserved = vector_to_bytes(totals.reserved) if totals.open_reservations else b""
    return spent, reserved, totals.open_reservations, exact


def totals_from_columns(
    spent: bytes, reserved: bytes, open_reservations: int, exact: str | None, *, size: int
) -> AnyTotals:
    """Totals with ``size`` coordinates."""
    floats = vector_from_bytes(spent, size), vector_from_bytes(reserved, size)
    if exact is None:
        return Totals(*floats, open_reservations)
    try:
        kept, held = (Exact.from_text(part) if part else Exact.zero(size) for part in exact.split("|"))
    except ValueError as error:
        raise Damaged(f"exact totals cannot be read: {error}") from error
    if not len(kept.numerators) == len(held.numerators) == size:
        raise Damaged(f"exact totals have other than {size} coordinates")
    totals = ExactTotals(kept, held, open_reservations)
    # What is shown is what is stored, so that a changed float is found out.
    totals.__dict__.update(spent=floats[0], reserved=floats[1])
    return totals


def extremes_to_bytes(extremes: PartitionExtremes, budget: Budget) -> bytes:
    """The five vectors of the extremes one after another; nothing where it is the empty one of ``budget``."""
    raw = _crowd_bytes(extremes)
    return b"" if raw == _crowd_bytes(PartitionExtremes.empty(budget)) else raw


def _crowd_bytes(extremes: PartitionExtremes) -> bytes:
    floats = (extremes.headroom, extremes.least_limit, extremes.first, extremes.second)
    holder = extremes.holder.astype(_INTEGER, copy=False)
    return b"".join([vector.astype(_FLOAT, copy=False).tobytes() for vector in floats]) + holder.tobytes()


def extremes_from_bytes(raw: bytes, budget: Budget) -> PartitionExtremes:
    """The extremes that :func:`extremes_to_bytes` wrote beside this budget."""
    if not raw:
        return PartitionExtremes.empty(budget)
    size = budget.size
    if len(raw) != 5 * size * _FLOAT.itemsize:
        raise Damaged(f"extremes of {size} coordinates are stored in {len(raw)} bytes")
    headroom, least_limit, first, second = np.frombuffer(raw, dtype=_FLOAT, count=4 * size).reshape(4, size)
    holder = np.frombuffer(raw, dtype=_INTEGER, offset=4 * size * _FLOAT.itemsize)
    return PartitionExtremes(headroom, least_limit, first, second, holder)


def columns_of_charge(charge: Charge) -> tuple[Any, ...]:
    """``fingerprint`` and what :func:`charge_from_columns` takes."""
    cost = charge.cost
    return (
        charge.fingerprint,
        charge.step.canonical,
        charge.purpose,
        charge.amounts.astype(_FLOAT, copy=False).tobytes(),
        cost.orders.astype(_FLOAT, copy=False).tobytes(),
        cost.epsilons.astype(_FLOAT, copy=False).tobytes(),
        cost.delta,
        cost.rho,
        cost.mu,
        cost.pure_epsilon,
        charge.accounting,
    )


def charge_from_columns(
    step: str,
    purpose: str,
    amounts: bytes,
    orders: bytes,
    epsilons: bytes,
    delta: float,
    rho: float | None,
    mu: float | None,
    pure_epsilon: float | None,
    accounting: str | None,
) -> Charge:
    """A charge from its columns; its fingerprint is computed anew, so an altered one shows."""
    try:
        curve = np.frombuffer(orders, dtype=_FLOAT), np.frombuffer(epsilons, dtype=_FLOAT)
        cost = Cost(*curve, delta, rho, mu, pure_epsilon)
        charged = np.frombuffer(amounts, dtype=_FLOAT)
        return Charge(Step.from_canonical(step), purpose, cost, charged, accounting=accounting)
    except (ValueError, KeyError, TypeError) as error:
        raise Damaged(f"a charge cannot be read: {error}") from error


def step_from_column(text: str) -> Step:
    """The step of a charge."""
    try:
        return Step.from_canonical(text)
    except (ValueError, KeyError, TypeError) as error:
        raise Damaged(f"a step cannot be read: {error}") from error


@functools.lru_cache(maxsize=1024)  # each is looked for, and then kept
def entry_key(dataset_id: int, call: IdempotentRequest) -> bytes:
    """Sixteen bytes for a key of one actor in one dataset; what an entry that answers it is found by."""
    scope = b"%d\0%s\0" % (dataset_id, call.actor.encode())
    return hashlib.blake2b(scope + call.key, digest_size=16).digest()
