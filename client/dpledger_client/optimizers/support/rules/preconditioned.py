"""The rule of preconditioned gradient descent."""

import math
from dataclasses import replace

from dpledger_client._checks import check_count
from dpledger_client.optimizers.methods.preconditioned_gd import PreconditionedGradientDescent
from dpledger_client.optimizers.support.base import Method
from dpledger_client.optimizers.support.planning import Item, Setting
from dpledger_client.optimizers.support.rules.facts import PublicFacts

__all__ = ["MOST_COLUMNS", "preconditioned_gd"]

SHARES = {"norm_multiplier": 0.02, "moment_multiplier": 0.05, "matrix_multiplier": 0.1}
"""Of μ², for the looks before the gradients."""
REACH = 400.0
"""The step size times the steps."""
MOST_COLUMNS = 512
"""For a second-moment matrix, which takes time by the square of the columns."""
_WEAK = 3.0
"""The strength up to which thresholds are highest and clips lowest."""


def preconditioned_gd(facts: PublicFacts) -> Method:
    """Shares of μ² for the moments, and the rest for the gradients.

    With s = nμ over the adjacency's factor and d columns, s/d says how exactly each of d directions can be
    known: thresholds are the lower, and clips the higher, the larger it is.
    """
    given = {"steps": 60, "momentum": 0.9, **facts.options}
    steps, columns = check_count("steps", given["steps"]), facts.features or facts.dimension
    strength = facts.records * facts.room.mu / facts.sensitivity(1.0) / columns
    doublings = min(2.0, max(0.0, math.log2(strength / _WEAK)))
    given.setdefault("clip", 0.2 + 0.05 * doublings)
    given.setdefault("threshold", 2.0 - 0.5 * doublings)
    given.setdefault("step_size", REACH / steps)
    shares = {name: share for name, share in SHARES.items() if _looks(name, columns)}
    shares["noise_multiplier"] = (1.0 - math.fsum(shares.values())) / steps
    open_ones = {name: share for name, share in shares.items() if name not in given}
    for name, share in open_ones.items():
        given[name] = 1.0 / (math.sqrt(share) * facts.room.mu)
    method = PreconditionedGradientDescent(**given)
    return _grown(method, facts, tuple(open_ones)) if open_ones else method


def _looks(name: str, columns: int) -> bool:
    return name != "matrix_multiplier" or columns <= MOST_COLUMNS


def _grown(method: PreconditionedGradientDescent, facts: PublicFacts, names: tuple[str, ...]) -> Method:
    """With the noise that was left open by so much larger or smaller that all looks fit together."""

    def at(factor: float) -> PreconditionedGradientDescent:
        return replace(method, **{name: getattr(method, name) * factor for name in names})

    def items(factor: float) -> list[Item]:
        return at(factor).items(Setting(facts.adjacency, facts.records))

    return at(facts.room.least(items))
