"""The method behind ``auto``, by public facts alone."""

from dpledger_client.optimizers.support.rules.facts import PublicFacts

__all__ = ["choose"]


def choose(_facts: PublicFacts) -> str:
    """The name of a method that has a rule."""
    return "noisy-gd"
