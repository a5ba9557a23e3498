"""The method behind ``auto``, by public facts alone."""

from dpledger_client.objectives.linear import Linear
from dpledger_client.optimizers.support.rules.facts import PublicFacts

__all__ = ["choose"]


def choose(facts: PublicFacts) -> str:
    """The name of a method that has a rule: preconditioned for linear models, plain for others."""
    return "preconditioned-gd" if isinstance(facts.objective, Linear) else "noisy-gd"
