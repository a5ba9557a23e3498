"""The service's answers as frozen values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dpledger_client._calls import Answer
from dpledger_client._html import amounts_text, bar_text, table

__all__ = ["Budget", "Cost", "Granted", "Settlement", "as_budget", "as_cost", "as_settlement", "to_grant"]


@dataclass(frozen=True)
class Cost:
    """A cost; a notion that does not apply is None."""

    orders: tuple[float, ...]
    epsilons: tuple[float, ...]
    delta: float = 0.0
    rho: float | None = None
    mu: float | None = None
    pure_epsilon: float | None = None


@dataclass(frozen=True)
class Granted:
    """A recorded yes.

    Attributes
    ----------
    id, sequence
        Its name, and its place in the dataset's ledger.
    sample
        As recorded; its ``id`` names it for another look.
    cost
        What was charged, or for a reservation what one repetition costs.
    remaining
        What is left in the budget's own terms, rounded down.
    receipt
        A signed statement: see :func:`~dpledger_client.receipts.verify_receipt`.
    key, replayed
        The idempotency key, and whether the service had said this to it before.
    times, expires_at
        Of a reservation.
    """

    id: str
    sequence: int
    dataset: str
    run: str
    partition: str | None
    sample: Mapping[str, Any]
    cost: Cost
    remaining: Mapping[str, Any]
    receipt: str
    key: str | None = None
    replayed: bool = False
    times: int | None = None
    expires_at: str | None = None


@dataclass(frozen=True)
class Settlement:
    """A reservation that was closed."""

    id: str
    sequence: int
    times: int
    used: int
    returned: int
    remaining: Mapping[str, Any]


@dataclass(frozen=True)
class Budget:
    """A dataset's budget, true at ``sequence``: spent is rounded up, remaining down."""

    dataset: str
    sequence: int
    accounting: str
    limit: Mapping[str, Any]
    spent: Mapping[str, Any]
    reserved: Mapping[str, Any]
    remaining: Mapping[str, Any]
    fraction: float
    guarantee: Mapping[str, Any] = field(default_factory=dict)
    """The largest limit ever in force, which is what is proven of all outputs together."""
    plan: Mapping[str, Any] | None = None
    """Of a plan its ε at δ, its privacy ``profile`` and its ``audit``: see ``docs/plans.md``."""

    def _repr_html_(self) -> str:
        """The budget as a table, for notebooks."""
        held = f"{self.reserved.get('open', 0)} open"
        if self.reserved.get("open"):
            held = ", ".join(filter(None, (held, amounts_text(self.reserved, up=True))))
        return table(
            f"Budget of {self.dataset} ({self.accounting}), true at entry {self.sequence}",
            [
                ("guarantee", amounts_text(self.guarantee, up=True)),
                ("limit", amounts_text(self.limit, up=False)),
                ("spent", amounts_text(self.spent, up=True)),
                ("reserved", held),
                ("remaining", amounts_text(self.remaining, up=False)),
                ("left", bar_text(self.fraction)),
            ],
        )


def as_cost(body: Mapping[str, Any]) -> Cost:
    """Read a cost."""
    return Cost(
        orders=tuple(body["orders"]),
        epsilons=tuple(body["epsilons"]),
        delta=body.get("delta", 0.0),
        rho=body.get("rho"),
        mu=body.get("mu"),
        pure_epsilon=body.get("pure_epsilon"),
    )


def to_grant(body: Mapping[str, Any], answer: Answer) -> Granted:
    """Read a yes from an answer's body, or from one item of it."""
    return Granted(
        id=body["id"],
        sequence=body["sequence"],
        dataset=body["dataset"],
        run=body["run"],
        partition=body.get("partition"),
        sample=body["sample"],
        cost=as_cost(body["cost"]),
        remaining=body["remaining"],
        receipt=body["receipt"],
        key=answer.key,
        replayed=answer.replayed,
        times=body.get("times"),
        expires_at=body.get("expires_at"),
    )


def as_settlement(body: Mapping[str, Any]) -> Settlement:
    """Read a settlement."""
    names = ("id", "sequence", "times", "used", "returned", "remaining")
    return Settlement(**{name: body[name] for name in names})


def as_budget(body: Mapping[str, Any]) -> Budget:
    """Read a budget."""
    names = ("dataset", "sequence", "accounting", "limit", "spent", "reserved", "remaining", "fraction")
    return Budget(
        **{name: body[name] for name in names}, guarantee=body.get("guarantee", {}), plan=body.get("plan")
    )
