"""The guarantee over all outputs of a ledger whose budget was changed.

A limit that is lowered limits what is still to come; what was released before stays released. So the
ledger keeps the largest limits that were ever in force beside the present ones.

Statement
    Let L be limits, with a target that they imply, that are at each coordinate at least those of every
    budget that was in force while something was spent. Then all outputs together satisfy the target of L.
Conditions
    L bounds the limits of every course of events, not of the one that was taken alone: either no change
    was decided from outputs, or L was in force before the first of them. (Stopping at the loss after one
    of sixty raises exceeds the limit last raised to by 5.4 times its δ; the tests rebuild it.)
Proof
    A spend is granted only if the rule holds for the totals and the limits in force, and both rules
    (``any``, ``all``) still hold if limits grow. So whichever budget a course of events ends under, its
    totals are within L, which is fixed: L's own filter would have granted every one of these spends.
Where neither of two budgets has the larger limit everywhere
    L is the larger at each coordinate. Rényi budgets: B(α) = ε − log(1 − 1/α) + log(w_α δ' α)/(α − 1)
    grows with ε and with the share δ' of δ that is not additive, and orders and weights are frozen, so
    B(α; ε₁, δ₁') and B(α; ε₂, δ₂') are at most B(α; max ε, max δ'): L implies (max ε, max δ' + max
    additive δ). That is (max ε, max δ) where the additive shares are equal; where they are not, max δ
    alone would be too little. ρ and μ are numbers: the larger one's own (ε, δ) follows from it, and
    they cross with the additive share alone, where the same sum of shares holds. A given curve is its own
    statement; its (ε, δ) is converted from L anew, since two curves may rest on two different orders.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from dpledger.accounting.rounding import Direction, widen
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.state import LedgerState

__all__ = ["covering", "guarantee_fields", "limit_warnings"]


def covering(guarantee: Budget, budget: Budget) -> Budget:
    """The guarantee once ``budget`` was in force too; the same object where it is covered already.

    Statement, conditions and proof: the module's text.
    """
    pairs = list(zip(guarantee.exact_limits, budget.exact_limits, strict=True))
    if all(new <= old for old, new in pairs):
        return guarantee
    if all(old <= new for old, new in pairs):
        return budget
    limits = np.maximum(guarantee.limits, budget.limits)
    exact = None if guarantee.exact is None else tuple(max(pair) for pair in pairs)
    return replace(guarantee, limits=limits, exact=exact, target=_target(guarantee, budget, limits))


def guarantee_fields(state: LedgerState) -> dict[str, Any]:
    """The guarantee as it is shown: in the budget's terms, since when, and if it is above the limit."""
    lowered = not (state.guarantee.limits <= state.budget.limits).all()
    return {**state.guarantee.target, "since": state.guaranteed_since, "lowered": bool(lowered)}


def limit_warnings(state: LedgerState) -> list[str]:
    """What to say where the present limit is not what is proven."""
    if not guarantee_fields(state)["lowered"]:
        return []
    terms = [f"{name} {value!r}" for name, value in state.guarantee.target.items()]
    proven = f": {', '.join(terms)}" if terms else ", a curve"
    return [
        "this limit limits what is still to come; what is proven of all outputs together is the largest "
        f"that was ever in force{proven}"
    ]


def _target(first: Budget, second: Budget, limits: Any) -> dict[str, Any]:
    """What the larger limits at each coordinate imply, in the terms that both budgets have."""
    one, other = first.target, second.target
    found: dict[str, Any] = {
        name: max(one[name], other[name])
        for name in ("epsilon", "rho", "mu")
        if name in one and name in other
    }
    additive = float(limits[-1])
    if "delta" in one and "delta" in other:
        found["delta"], share = _delta(one, other, additive)
        found |= first.filter.cover(first, second, limits, share)
    return {**found, "additive_delta": additive} if additive else found


def _delta(one: dict[str, Any], other: dict[str, Any], additive: float) -> tuple[float, float]:
    """δ, rounded up where it is a sum, and the part of it that is not additive, rounded down."""
    pairs = [(each["delta"], each.get("additive_delta", 0.0)) for each in (one, other)]
    delta = max(whole for whole, _ in pairs)
    if any(share != additive for _, share in pairs):
        largest = max(_between(whole, share, Direction.UP) for whole, share in pairs)
        delta = widen(largest + additive, Direction.UP, ulps=1)
    return delta, _between(delta, additive, Direction.DOWN)


def _between(whole: float, part: float, direction: Direction) -> float:
    return widen(whole - part, direction, ulps=1) if part else whole
