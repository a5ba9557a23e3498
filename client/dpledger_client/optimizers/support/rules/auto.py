"""The method behind ``auto``, by public facts alone."""

from dpledger_client.objectives.linear import HingeSVM, HuberSVM, Logistic
from dpledger_client.optimizers.support.rules.facts import PublicFacts
from dpledger_client.optimizers.support.rules.preconditioned import MOST_COLUMNS

__all__ = ["choose"]

_LEAST_STRENGTH = 2.0
"""nμ over the adjacency's factor, per column: simulations have shown nothing below 3."""


def choose(facts: PublicFacts) -> str:
    """``preconditioned-gd`` for classifiers with one margin that can bear it, ``noisy-gd`` for all others."""
    objective, columns = getattr(facts.objective, "unweighted", facts.objective), facts.features
    if not isinstance(objective, Logistic | HuberSVM | HingeSVM) or not columns or columns > MOST_COLUMNS:
        return "noisy-gd"
    strength = facts.records * facts.room.mu / facts.sensitivity(1.0)
    return "preconditioned-gd" if strength >= _LEAST_STRENGTH * columns else "noisy-gd"
