"""Plans: step descriptions with counts, between proven bounds in both directions of neighbours."""

from collections.abc import Callable, Sequence

from dpledger.accounting.errors import InvalidInput
from dpledger.accounting.numerics import root_of_squares
from dpledger.accounting.pld.catalogue import Items, check_mu, dominating_pairs
from dpledger.accounting.pld.distribution import TOLERANCE, Interval, PrivacyLossDistribution
from dpledger.accounting.pld.pairs import DominatingPair, GaussianPair
from dpledger.accounting.rounding import Direction, widen
from dpledger.accounting.steps import Step
from dpledger.accounting.validation import check_count

__all__ = ["PlanLoss"]

_ROUGH = 3e-3
"""Relative tolerance at which directions are distinguished."""


class PlanLoss:
    """The privacy loss of steps fixed in advance, taken in any adaptive order, with early stopping.

    Statement: δ(ε) of the plan is at most the larger of those of the two directions, each the composition of
    the steps' dominating pairs in that direction (:class:`PrivacyLossDistribution`).
    Conditions: steps and counts fixed before the first release; one adjacency; a
    sample of its own for each step.
    Source: Zhu, Dong, Wang 2022; Vadhan, Zhang 2023.

    Parameters
    ----------
    parts
        Steps with how often each is taken.

    Raises
    ------
    Unproven
        Where a step has no dominating pair.
    """

    def __init__(self, parts: Sequence[tuple[Step, int]]) -> None:
        if len({step.adjacency for step, _ in parts}) != 1:
            raise InvalidInput("parts", "steps of one adjacency, at least one", len(parts))
        pairs = [(*dominating_pairs(step), check_count("times", times)) for step, times in parts]
        remove = _collected([(items, times) for items, _, times in pairs])
        add = _collected([(items, times) for _, items, times in pairs])
        self.directions = tuple(
            PrivacyLossDistribution(items)
            for items in ([remove] if remove == add else [remove, add])
            if items
        )

    def epsilon(self, delta: float, *, tolerance: float = TOLERANCE) -> float:
        """Upper bound on ε at ``delta``; infinite where the steps' own δ exceed it."""
        return self._larger(tolerance, lambda each, within: each.epsilon(delta, tolerance=within))

    def _larger(self, tolerance: float, bound: Callable[[PrivacyLossDistribution, float], float]) -> float:
        """The larger upper bound of the directions; the one that is clearly smaller is looked at roughly."""
        if len(self.directions) < 2 or tolerance > 0.1 * _ROUGH:
            return max((bound(each, tolerance) for each in self.directions), default=0.0)
        rough = sorted(((bound(each, max(tolerance, _ROUGH)), i) for i, each in enumerate(self.directions)))
        (less, other), (_, first) = rough
        found = bound(self.directions[first], tolerance)
        return found if less <= found else max(found, bound(self.directions[other], tolerance))

    def delta(self, epsilon: float, *, tolerance: float = TOLERANCE) -> float:
        """Upper bound on δ at ``epsilon``."""
        return self._larger(tolerance, lambda each, within: each.delta(epsilon, tolerance=within))

    def epsilon_bounds(self, delta: float, *, tolerance: float = TOLERANCE) -> Interval:
        """Both bounds on the ε of the plan's dominating pairs at ``delta``."""
        return _largest([each.epsilon_bounds(delta, tolerance=tolerance) for each in self.directions])

    def delta_bounds(self, epsilon: float, *, tolerance: float = TOLERANCE) -> Interval:
        """Both bounds on the δ of the plan's dominating pairs at ``epsilon``."""
        return _largest([each.delta_bounds(epsilon, tolerance=tolerance) for each in self.directions])


def _largest(found: Sequence[Interval]) -> Interval:
    return Interval(
        max((each.lower for each in found), default=0.0), max((each.upper for each in found), default=0.0)
    )


def _collected(parts: Sequence[tuple[Items, int]]) -> Items:
    """Equal pairs counted together, all Gaussians looked at in full as one."""
    counts: dict[DominatingPair, int] = {}
    for items, times in parts:
        for pair, each in items:
            counts[pair] = check_count("times", counts.get(pair, 0) + each * times, most=10**15)
    gaussians = [(pair.mu, times) for pair, times in counts.items() if isinstance(pair, GaussianPair)]
    others = tuple((pair, times) for pair, times in counts.items() if not isinstance(pair, GaussianPair))
    if not gaussians:
        return others
    if len(gaussians) == 1 and gaussians[0][1] == 1:
        return ((GaussianPair(gaussians[0][0]), 1), *others)
    mu = check_mu(widen(root_of_squares(gaussians), Direction.UP, ulps=4))
    return ((GaussianPair(mu), 1), *others)
