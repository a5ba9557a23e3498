"""Entries: the immutable lines of a ledger, hash-chained.

An entry's hash is SHA-256 over the hash before it and the entry's canonical text, so a change, a
removal or a swap anywhere breaks every later link. The canonical text holds only strings, integers
and the budget's own document, and refers to what was charged by the charge's fingerprint, which
covers the step description, its purpose and the amounts bit for bit.
"""

import datetime as dt
import enum
import hashlib
from dataclasses import dataclass
from functools import cached_property, lru_cache
from json.encoder import encode_basestring_ascii
from typing import Any

from dpledger.accounting.cost import Cost
from dpledger.accounting.exact import Exact
from dpledger.accounting.sampling import Adjacency
from dpledger.accounting.steps import Step
from dpledger.accounting.validation import Floats
from dpledger.ledger.model.budget import Budget

__all__ = [
    "GENESIS",
    "LONG_STEP_CHARACTERS",
    "Charge",
    "Entry",
    "EntryKind",
    "identifier",
    "instant",
    "moment",
    "parse_identifier",
    "quoted",
]

quoted = encode_basestring_ascii
"""A text as JSON."""

LONG_STEP_CHARACTERS = 4096
"""Most steps are described in some hundred; the longest that is read takes hundreds of thousands."""
GENESIS = bytes(32)
"""The hash before the first entry."""


class EntryKind(enum.Enum):
    """What an entry records."""

    OPENED = "opened"
    BUDGET_CHANGED = "budget-changed"
    PARTITIONS_OPENED = "partitions-opened"
    AUTHORIZED = "authorized"
    RESERVED = "reserved"
    SETTLED = "settled"
    EXPIRED = "expired"
    ROLLBACK_ACCEPTED = "rollback-accepted"
    ALLOCATED = "allocated"
    ALLOCATION_RETURNED = "allocation-returned"
    QUOTA_CHANGED = "quota-changed"
    BUDGET_REQUESTED = "budget-requested"
    REQUEST_APPROVED = "request-approved"
    REQUEST_REJECTED = "request-rejected"
    REQUEST_WITHDRAWN = "request-withdrawn"
    RENEWAL_CHANGED = "renewal-changed"


@dataclass(frozen=True, eq=False)
class Charge:
    """One step description as this dataset is charged for it: stored once, referred to by entries.

    ``basis`` is that of the budget for which it was computed, ``item`` the item of a plan that was asked for;
    neither is stored. ``amounts`` are what is
    shown; ``exactly`` follows from the step and from them, so the fingerprint covers it too. ``accounting``
    is the kind of the allocation's budget, in a dataset that has several kinds: there equal amounts may be of
    different things.
    """

    step: Step
    purpose: str
    cost: Cost
    amounts: Floats
    basis: object = None
    item: str | None = None
    accounting: str | None = None

    @cached_property
    def fingerprint(self) -> bytes:
        """SHA-256 over the description, the purpose and the amounts' bytes; where it has one, the accounting.

        With the accounting the orders are covered too, since allocations of one kind may look at others.
        """
        digest = hashlib.sha256(self.step.canonical.encode())
        digest.update(b"\0" + self.purpose.encode() + b"\0")
        digest.update(self.amounts.astype("<f8").tobytes())
        if self.accounting is not None:
            digest.update(b"\0" + self.accounting.encode() + b"\0")
            digest.update(self.cost.orders.astype("<f8").tobytes())
        return digest.digest()

    def is_for(self, budget: Budget, adjacency: Adjacency, *, allocated: bool = False) -> bool:
        """Whether it was computed for this rule and adjacency, within an allocation or not."""
        fits = self.basis == budget.basis and self.step.adjacency is adjacency
        return fits and (self.accounting is not None) is allocated

    def exactly(self, budget: Budget) -> Exact:
        """What one such step adds to a ledger with this budget, exactly; the last answer is remembered."""
        known: tuple[object, Exact] | None = self.__dict__.get("_exactly")
        if known is None or known[0] != budget.basis:
            known = budget.basis, budget.exact_amounts(self.step, self.amounts)
            self.__dict__["_exactly"] = known
        return known[1]

    @cached_property
    def cost_fields(self) -> dict[str, Any]:
        """The cost as it is shown, with null where a notion does not apply."""
        return {
            "rho": self.cost.rho,
            "mu": self.cost.mu,
            "pure_epsilon": self.cost.pure_epsilon,
            "delta": self.cost.delta,
            "orders": self.cost.orders.tolist(),
            "epsilons": self.cost.epsilons.tolist(),
        }

    @cached_property
    def is_long(self) -> bool:
        """Whether its description is too long to remember thousands of the kind."""
        return len(self.step.canonical) > LONG_STEP_CHARACTERS

    @property
    def declared(self) -> bool:
        """Whether any part of the cost is the caller's own statement."""
        return any(release.mechanism.declared for release in self.step.releases)


@dataclass(frozen=True)
class Entry:
    """One line of a ledger.

    ``at_us`` and ``expires_at_us`` are microseconds since the epoch; ``actor`` is the token's id;
    ``sample``, ``reservation`` and ``allocation`` are the sequence numbers of the entries that drew the
    sample, made the reservation and opened the allocation. ``team`` is the label of the token.
    """

    sequence: int
    kind: EntryKind
    at_us: int
    actor: str
    previous: bytes
    run: str | None = None
    partition: int | None = None
    charge: bytes | None = None
    times: int | None = None
    used: int | None = None
    sample: int | None = None
    reservation: int | None = None
    expires_at_us: int | None = None
    detail: str | None = None
    allocation: int | None = None
    team: str | None = None

    @property
    def canonical(self) -> str:
        """The text that is hashed: JSON of what is set, with sorted keys and no spaces.

        Written out by hand because every decision hashes an entry.
        """
        parts = [f'{{"actor":{quoted(self.actor)}']
        if self.allocation is not None:
            parts.append(f'"allocation":{self.allocation}')
        parts.append(f'"at_us":{self.at_us}')
        if self.charge is not None:
            parts.append(f'"charge":"{self.charge.hex()}"')
        if self.detail is not None:
            parts.append(f'"detail":{quoted(self.detail)}')
        if self.expires_at_us is not None:
            parts.append(f'"expires_at_us":{self.expires_at_us}')
        parts.append(f'"kind":"{self.kind.value}"')
        if self.partition is not None:
            parts.append(f'"partition":{self.partition}')
        if self.reservation is not None:
            parts.append(f'"reservation":{self.reservation}')
        if self.run is not None:
            parts.append(f'"run":{quoted(self.run)}')
        if self.sample is not None:
            parts.append(f'"sample":{self.sample}')
        parts.append(f'"sequence":{self.sequence}')
        if self.team is not None:
            parts.append(f'"team":{quoted(self.team)}')
        if self.times is not None:
            parts.append(f'"times":{self.times}')
        if self.used is not None:
            parts.append(f'"used":{self.used}')
        return ",".join(parts) + "}"

    @cached_property
    def hash(self) -> bytes:
        """SHA-256 of the previous hash and the canonical text."""
        return hashlib.sha256(self.previous + self.canonical.encode()).digest()


def identifier(dataset: str, sequence: int) -> str:
    """The public id of what the entry made: an authorization, its sample, or a reservation."""
    return f"{dataset}~{sequence}"


def parse_identifier(value: str) -> tuple[str, int] | None:
    """Dataset and sequence number of an id, or None where it is not one."""
    dataset, tilde, digits = value.rpartition("~")
    if not (tilde and dataset and digits.isascii() and digits.isdigit() and len(digits) < 19):
        return None
    return dataset, int(digits)


@lru_cache(maxsize=64)
def moment(at_us: int) -> str:
    """Microseconds since the epoch as ISO 8601 in UTC."""
    return (_EPOCH + dt.timedelta(microseconds=at_us)).isoformat().replace("+00:00", "Z")


def instant(now: dt.datetime) -> int:
    """An aware time as microseconds since the epoch, exactly."""
    return (now - _EPOCH) // dt.timedelta(microseconds=1)


_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
