"""Rules of methods that release sufficient statistics."""

import math
from collections.abc import Callable
from typing import Any

from dpledger_client.optimizers.methods.adassp import AdaSSP
from dpledger_client.optimizers.methods.approximate_logistic import ApproximateLogistic
from dpledger_client.optimizers.support.base import Method
from dpledger_client.optimizers.support.planning import Item, Setting
from dpledger_client.optimizers.support.rules.facts import PublicFacts

__all__ = ["adassp", "approximate_logistic", "with_shares"]


def approximate_logistic(facts: PublicFacts) -> Method:
    """A fiftieth of μ² for the norms of rows, and the rest for the statistics."""
    return with_shares(ApproximateLogistic, facts, {"norm_multiplier": 0.02, "noise_multiplier": 0.98})


def adassp(facts: PublicFacts) -> Method:
    """A third of what the row norms leave for the least eigenvalue, as the paper has it, and the rest."""
    shares = {"norm_multiplier": 0.02, "eigenvalue_multiplier": 0.32, "noise_multiplier": 0.66}
    return with_shares(AdaSSP, facts, shares)


def with_shares(
    make: Callable[..., Method], facts: PublicFacts, shares: dict[str, float], **chosen: Any
) -> Method:
    """A method of Gaussian looks, the noise of each by its share of μ²; options replace what is chosen.

    All looks together are asked for once more, as a budget may round their sum otherwise than one of them.
    """
    given = {**chosen, **facts.options}
    left = {name: share for name, share in shares.items() if name not in given}

    def at(factor: float) -> Method:
        noise = {name: factor / (math.sqrt(share) * facts.room.mu) for name, share in left.items()}
        return make(**given, **noise)

    def items(factor: float) -> list[Item]:
        return at(factor).items(Setting(facts.adjacency, facts.records))

    return at(facts.room.least(items)) if left else make(**given)
