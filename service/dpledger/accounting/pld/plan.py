"""Plans: step descriptions with counts, between proven bounds in both directions of neighbours."""

from collections.abc import Callable, Sequence

import numpy as np

from dpledger.accounting.errors import InvalidInput
from dpledger.accounting.numerics import root_of_squares
from dpledger.accounting.pld.catalogue import dominating_pairs
from dpledger.accounting.pld.concentrated import ConcentratedPair
from dpledger.accounting.pld.distribution import (
    BOUNDS_TOLERANCE,
    PROFILE_TOLERANCE,
    TOLERANCE,
    Interval,
    PrivacyLossDistribution,
)
from dpledger.accounting.pld.items import Items, check_mu, check_rho
from dpledger.accounting.pld.pairs import DominatingPair, GaussianPair
from dpledger.accounting.rounding import Direction, widen
from dpledger.accounting.steps import Step
from dpledger.accounting.validation import Floats, check_count, check_non_negative, check_vector

__all__ = ["PlanLoss"]

_ROUGH = 3e-3
"""Relative tolerance at which directions are distinguished."""


class PlanLoss:
    """The privacy loss of steps fixed in advance, taken in any adaptive order, with early stopping.

    Statement: δ(ε) of the plan is at most the larger of those of the two directions, each the composition of
    the steps' dominating pairs in that direction (:class:`PrivacyLossDistribution`). Beside the steps, and
    interleaved with them at will, may run adaptive Gaussians with Σμ_j² ≤ ``mu``² on every path, as one pair
    N(μ, 1) against N(0, 1), and any adaptive interaction with Σρ_j ≤ ``rho`` on every path, as one
    :class:`~dpledger.accounting.pld.concentrated.ConcentratedPair`.
    Proof: draw every item's pair beforehand; a step's kernel, which depends on the past, takes its item's
    draw to the release. For ``mu`` the draw is the end of a Brownian motion with drift; its bridge, free of
    the drift, supplies the whole path, and each Gaussian is the path's next increment of length μ_j². Given
    all of these draws the rest is still an interaction within ``rho``.
    Conditions: steps and counts, ``mu`` and ``rho`` fixed before the first release; one adjacency, also for
    the μ_j and ρ_j; a sample of its own for each step.
    Source: Zhu, Dong, Wang 2022; Vadhan, Zhang 2023; Smith and Thakurta 2022 (Gaussian filters).

    Parameters
    ----------
    parts
        Steps with how often each is taken; none are needed beside a positive ``mu`` or ``rho``.
    mu, rho
        Caps of the adaptive Gaussians and of the zCDP remainder; 0 for none.

    Raises
    ------
    Unproven
        Where a step has no dominating pair.
    InvalidInput
        Where a cap is negative or no number, or so large that no grid holds its losses.
    """

    def __init__(self, parts: Sequence[tuple[Step, int]], *, mu: float = 0.0, rho: float = 0.0) -> None:
        beside = _caps(mu, rho)
        adjacencies = {step.adjacency for step, _ in parts}
        if len(adjacencies) > 1 or not (adjacencies or beside):
            raise InvalidInput("parts", "steps of one adjacency, at least one or a cap", len(parts))
        pairs = [(*dominating_pairs(step), check_count("times", times)) for step, times in parts]
        remove = _collected([(items, times) for items, _, times in pairs] + [(beside, 1)])
        add = _collected([(items, times) for _, items, times in pairs] + [(beside, 1)])
        self.directions = tuple(
            PrivacyLossDistribution(items)
            for items in ([remove] if remove == add else [remove, add])
            if items
        )

    def epsilon(self, delta: float, *, tolerance: float = TOLERANCE) -> float:
        """Upper bound on ε at ``delta``; infinite where the steps' own δ exceed it."""
        return self._larger(
            tolerance,
            lambda each, within: each.epsilon(delta, tolerance=within),
            lambda each: each.foreseen_epsilon(delta),
        )

    def _larger(
        self,
        tolerance: float,
        bound: Callable[[PrivacyLossDistribution, float], float],
        foreseen: Callable[[PrivacyLossDistribution], float],
    ) -> float:
        """The larger upper bound of the directions; the one that is clearly smaller is looked at roughly."""
        if len(self.directions) < 2 or tolerance > 0.1 * _ROUGH:
            return max((bound(each, tolerance) for each in self.directions), default=0.0)
        larger, other = sorted(self.directions, key=foreseen, reverse=True)
        found = bound(larger, tolerance)
        return found if bound(other, _ROUGH) <= found else max(found, bound(other, tolerance))

    def delta(self, epsilon: float, *, tolerance: float = TOLERANCE) -> float:
        """Upper bound on δ at ``epsilon``."""
        return self._larger(
            tolerance,
            lambda each, within: each.delta(epsilon, tolerance=within),
            lambda each: each.delta(epsilon, tolerance=_ROUGH),
        )

    def profile(self, epsilons: Floats | Sequence[float], *, tolerance: float = PROFILE_TOLERANCE) -> Floats:
        """Upper bounds on δ at each of ``epsilons`` ≥ 0, for a curve; each of them is proven."""
        at = check_vector("epsilons", epsilons)
        check_non_negative("epsilons", float(at.min()))
        found = [each.profile(at, tolerance=tolerance) for each in self.directions]
        larger: Floats = np.maximum.reduce(found) if found else np.zeros(at.size)
        return larger

    def epsilon_bounds(self, delta: float, *, tolerance: float = BOUNDS_TOLERANCE) -> Interval:
        """Both bounds on the ε of the plan's dominating pairs at ``delta``."""
        return _largest([each.epsilon_bounds(delta, tolerance=tolerance) for each in self.directions])

    def delta_bounds(self, epsilon: float, *, tolerance: float = BOUNDS_TOLERANCE) -> Interval:
        """Both bounds on the δ of the plan's dominating pairs at ``epsilon``."""
        return _largest([each.delta_bounds(epsilon, tolerance=tolerance) for each in self.directions])


def _caps(mu: float, rho: float) -> Items:
    """The pairs of an adaptive remainder."""
    gaussian: Items = ((GaussianPair(check_mu(mu)), 1),) if check_non_negative("mu", mu) else ()
    concentrated: Items = ((ConcentratedPair(check_rho(rho)), 1),) if check_non_negative("rho", rho) else ()
    return gaussian + concentrated


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
