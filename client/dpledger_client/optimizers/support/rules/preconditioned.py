"""The rule of preconditioned gradient descent."""

import math

from dpledger_client._checks import check_count
from dpledger_client.optimizers.methods.preconditioned_gd import PreconditionedGradientDescent
from dpledger_client.optimizers.support.base import Method
from dpledger_client.optimizers.support.rules.facts import PublicFacts
from dpledger_client.optimizers.support.rules.moments import with_shares

__all__ = ["MOST_COLUMNS", "preconditioned_gd"]

_MATRIX = "matrix_multiplier"
SHARES = {"norm_multiplier": 0.02, "moment_multiplier": 0.05, _MATRIX: 0.1}
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
    doublings = min(2.0, math.log2(max(strength, _WEAK) / _WEAK))
    given.setdefault("clip", 0.2 + 0.05 * doublings)
    given.setdefault("threshold", 2.0 - 0.5 * doublings)
    given.setdefault("step_size", REACH / steps)
    shares = {name: share for name, share in SHARES.items() if columns <= MOST_COLUMNS or name != _MATRIX}
    shares["noise_multiplier"] = (1.0 - math.fsum(shares.values())) / steps
    return with_shares(PreconditionedGradientDescent, facts, shares, **given)
