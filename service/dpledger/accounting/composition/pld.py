"""Privacy-loss distributions as a composition theorem; see :mod:`dpledger.accounting.pld`."""

import math

from dpledger.accounting.composition.plan import Plan
from dpledger.accounting.errors import InvalidInput
from dpledger.accounting.pld.distribution import TOLERANCE
from dpledger.accounting.pld.plan import PlanLoss
from dpledger.accounting.validation import check_open_unit

__all__ = ["pld_epsilon"]


def pld_epsilon(plan: Plan, *, tolerance: float = TOLERANCE) -> float:
    """Upper bound on a plan's ε at its δ, about ``tolerance`` (relative) from the least.

    Statement: that of :class:`~dpledger.accounting.pld.plan.PlanLoss`.
    Conditions: every step has a dominating pair; steps and counts are fixed in advance.
    Source: Zhu, Dong, Wang 2022; Doroshenko et al. 2022; Koskela, Jälkö, Honkela 2020.
    """
    delta = check_open_unit("delta", plan.delta)
    found = PlanLoss(plan.parts).epsilon(delta, tolerance=tolerance)
    if found == math.inf:
        raise InvalidInput("delta", "above the steps' own additive delta", delta)
    return found
