"""Burn-down history: what was left of each budget, kept where it changed by a visible step.

An entry keeps what was left for whom it was charged, which may be a partition; this is what was left
for the dataset as a whole. A budget that only shrinks leaves at most ``STEPS`` points, however many
entries spend it.
"""

from dpledger.ledger.model.state import LedgerState
from dpledger.storage.engine.session import Session
from dpledger.storage.repositories.surrogate_ids import next_number
from dpledger.storage.tables import levels

__all__ = ["STEPS", "fraction_left", "record_level"]

STEPS = 200


def fraction_left(state: LedgerState) -> float:
    """The part of the budget that is left to spend on the whole of the dataset, rounded down."""
    return state.budget.fraction_left(state.committed_for(None))


def record_level(session: Session, before: LedgerState, after: LedgerState, at_us: int, left: float) -> None:
    """Keep what is left after entries if it is visibly less, or more, than before them."""
    if int(STEPS * left) != int(STEPS * fraction_left(before)):
        number = next_number(session, levels, after.dataset_id)
        session.insert(levels, [(after.dataset_id, number, after.sequence, at_us, left)])
