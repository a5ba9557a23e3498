"""The part of a budget that is left, as a bar and in words."""

from dataclasses import dataclass

from dpledger.dashboard import formatting as wording
from dpledger.ledger.model.budget import Budget
from dpledger.ledger.model.state import LedgerState
from dpledger.storage.read_models.fractions import basis_points

__all__ = [
    "LOW_BASIS_POINTS",
    "OUT_BASIS_POINTS",
    "Left",
    "compute_left",
    "coordinate_text",
]

LOW_BASIS_POINTS = 1000
"""Below a tenth a budget is called low."""
OUT_BASIS_POINTS = 1
"""Below a ten-thousandth it is called used up, in the list, on its page and among those counted."""


@dataclass(frozen=True)
class Left:
    """What is left of a budget, as a bar and in words."""

    fraction: float
    reserved: float
    percent: str
    amount: str
    limit: str
    phrase: str = ""
    """The amount and the limit as one phrase."""

    @property
    def level(self) -> str:
        """``out``, ``low`` or ``fine``."""
        left = basis_points(self.fraction)
        if left < OUT_BASIS_POINTS:
            return "out"
        return "low" if left < LOW_BASIS_POINTS else "fine"


def compute_left(state: LedgerState) -> Left:
    """What is left, from the ledger itself: the list, the pages and the API say the same."""
    budget, committed = state.budget, state.committed_for(None)
    fraction = budget.fraction_left(committed)
    reserved = budget.filter.share(budget, state.whole.reserved, budget.filter.binding(budget, committed))
    limit = wording.limit_text(budget)
    if budget.filter.allocates:
        amount = wording.part_text(state.remaining(None))
        phrase = f"{amount} of {limit} to allocate"
    elif budget.filter.picture == "items":
        amount = wording.items_left_text(budget, state.shown_for(None))
        phrase = f"{amount}, within {limit}"
    else:
        amount = wording.remaining_text(budget, fraction)
        phrase = f"{amount} of {limit}" if amount else f"of {limit}"
    return Left(
        fraction, min(reserved, 1.0 - fraction), wording.left_percent(fraction), amount, limit, phrase
    )


def coordinate_text(budget: Budget, at: int) -> str:
    """Where shares of the budget are taken: the order that binds, or the one number there is."""
    return f"order α = {wording.number(float(budget.orders[at]))}" if budget.orders.size else ""
