"""The pair that dominates whatever is ρ-zCDP, adaptive interactions included."""

import functools
import math
from dataclasses import dataclass

import numpy as np

from dpledger.accounting.pld.cells import ROUNDING, Cells, merge
from dpledger.accounting.pld.pairs import DominatingPair, Span
from dpledger.accounting.rounding import Direction
from dpledger.accounting.solving import bracketed_root, prove_nearby
from dpledger.accounting.validation import Floats

__all__ = ["ConcentratedPair"]

_LARGEST_EXPONENT = 512.0
"""Losses that P exceeds with less than e^−512 count as infinite: beyond, masses of Q are no floats."""
_MOST_STEPS = 100


@dataclass(frozen=True)
class ConcentratedPair(DominatingPair):
    """The worst that all orders of ρ-zCDP allow together, its own reverse.

    Statement: let (P, Q) have D_α ≤ αρ at every α > 1 in both directions. Then H_γ(P‖Q) is at most the
    profile G of the pair whose losses above t* have, with t(β) = (2β + 1)ρ − log(1 + 1/β),
    P(L > t(β)) = e^(−β²ρ) and Q(L > t(β)) = e^(−(β+1)²ρ) for β > β*, the mirror image below −t*, and nothing
    between; β* solves e^(−β²ρ) + e^(−(β+1)²ρ) = 1 and t* = t(β*) > 0.

    Proof. (r − γ)₊ ≤ s_α γ^(1−α) r^α for r ≥ 0, s_α = (1/α)(1 − 1/α)^(α−1), so H_γ = E_Q(P/Q − γ)₊ is at most
    B(γ) = min over α of s_α e^((α−1)(αρ − t)), t = log γ. The derivative in α of the logarithm is
    log(1 − 1/α) + (2α − 1)ρ − t, which rises in α from −∞ to ∞: the minimum is where it is 0, that is
    t = t(β) at β = α − 1, and B = e^(−β²ρ)/(1 + β). In γ, B falls, −B′ = βB/γ = e^(−(β+1)²ρ), which falls
    too: B is convex, and −B′ and B − γB′ are the Q and P above. The reverse (Q, P) obeys the same bound, so
    H_γ ≤ 1 − γ + γB(1/γ) as well. G is B for γ ≥ e^t*, this second bound for γ ≤ e^−t*, and linear between:
    both ends of that chord lie on the line P* − γQ*, because P* + Q* = 1, and H is convex in γ. Last, t* > 0:
    at t = 0, e^((2β+1)ρ) = 1 + 1/β and the sum is e^(−β²ρ)(1 + 2β)/(1 + β) > 1 by log(1 + x) ≤ x/√(1 + x) at
    x = 1/β and log(1 + x) ≥ 2x/(2 + x) at x = β/(1 + β); the sum falls in β. β* is rounded down: then
    P* + Q* ≥ 1, both bounds still lie below G, and G belongs to measures of a total just above 1.

    *Beside a plan.* Any adaptive interaction with Σρ_j ≤ ρ on every path (a zCDP filter), interleaved with a
    plan at will: draw all of the plan's pairs first and show them. Given these the interaction still has
    E_Q(P/Q)^α ≤ e^(α(α−1)ρ), so it adds at most G: δ(ε) ≤ E[G(e^(ε−ℓ))] over the plan's loss ℓ, which is the
    product of the plan with this pair.
    Conditions: ρ > 0 bounds D_α/α at all α > 1 in both directions of neighbours; either adjacency.
    Source: Bun and Steinke 2016 (zCDP); Canonne, Kamath, Steinke 2020, Proposition 12 (s_α); Feldman and
    Zrnic 2021 (Rényi filters); Zhu, Dong, Wang 2022, Proposition 10 (convex profiles belong to pairs); the
    closed form and the chord by the proof above.
    """

    rho: float

    @property
    def anchor(self) -> float:  # type: ignore[override]
        """Where the losses above 0 begin."""
        return self._loss(self._least)

    @property
    def _least(self) -> float:
        return _least_root(self.rho)

    def _loss(self, root: float) -> float:
        """t(β)."""
        return (2.0 * root + 1.0) * self.rho - math.log1p(1.0 / root)

    def cells(self, edges: Floats) -> Cells:
        upper = self._half(edges)
        return merge(upper, self._half(-edges[::-1]).reversed())

    def _half(self, edges: Floats) -> Cells:
        """The losses above t*.

        Masses belong to the roots that were found, whose own rounding does not matter: what they miss an
        edge by is measured and becomes the edge error. Exponents are right to 4u of themselves, other
        operations to 12u together.
        """
        roots, edge_error = self._roots(edges)
        exponents = self.rho * np.square(1.0 + roots)
        mass_error = ROUNDING * (16.0 + 4.0 * min(float(exponents[-1]), 746.0))
        p, q = np.exp(-self.rho * np.square(roots)), np.exp(-exponents)
        apart, sums = self.rho * np.diff(roots), roots[:-1] + roots[1:]
        under_p, under_q = -np.expm1(-apart * sums) * p[:-1], -np.expm1(-apart * (sums + 2.0)) * q[:-1]
        excess = np.maximum(under_p - np.exp(edges[:-1]) * under_q, 0.0)
        return Cells(
            edges,
            under_p,
            under_q,
            excess,
            under_p * (2.0 * mass_error + 8.0 * ROUNDING),
            (0.0, 0.0),
            (float(p[-1]), float(q[-1])),
            (0.0, 0.0),
            mass_error,
            edge_error,
        )

    def _roots(self, edges: Floats) -> tuple[Floats, float]:
        """β at each edge, at least β*, and how far a loss may lie from the edge that it was given.

        Newton's steps from the left of a rising concave function stay there: log(1 + 1/β) ≥ 1/(β + 1/2), so
        the root of 2ρy − 1/y = t is at or left of β + 1/2.
        """
        inside = edges > self.anchor
        at = edges[inside]
        roots = np.maximum((at + np.sqrt(at * at + 8.0 * self.rho)) / (4.0 * self.rho) - 0.5, self._least)
        for _ in range(_MOST_STEPS):
            linear, logs = (2.0 * roots + 1.0) * self.rho, np.log1p(1.0 / roots)
            moves = (at - linear + logs) / (2.0 * self.rho + 1.0 / (roots * (1.0 + roots)))
            if not (np.abs(moves) > 4.0 * ROUNDING * roots).any():
                break
            roots = np.maximum(roots + moves, self._least)
        roots = np.maximum.accumulate(roots)
        linear, logs = (2.0 * roots + 1.0) * self.rho, np.log1p(1.0 / roots)
        missed = float((np.abs(at - linear + logs) + 8.0 * ROUNDING * (linear + logs)).max(initial=0.0))
        found = np.full(edges.size, self._least)
        found[inside] = roots
        start = (2.0 * self._least + 1.0) * self.rho + math.log1p(1.0 / self._least)
        return found, missed + 8.0 * ROUNDING * start

    def span(self, mass: float) -> Span:
        root = math.sqrt(min(-math.log(min(max(mass, 1e-300), 0.4)), _LARGEST_EXPONENT) / self.rho)
        high = self._loss(max(root, 1.01 * self._least))
        return -self._loss(max(root - 1.0, self._least)), high

    def reversed_span(self, mass: float) -> Span:
        low, high = self.span(mass)
        return -high, -low

    def natural_edges(self, span: Span, count: int) -> Floats:
        return np.linspace(*span, count + 1)


@functools.lru_cache(maxsize=256)
def _least_root(rho: float) -> float:
    """β*, rounded down: where e^(−β²ρ) + e^(−(β+1)²ρ) is proven to be at least 1."""
    high = math.sqrt(math.log(2.0) / rho)
    low = 0.5 * math.sqrt(math.exp(-rho * (1.0 + high) ** 2) / rho)

    def gap(log_root: float) -> float:
        root = math.exp(log_root)
        return rho * (1.0 + root) ** 2 + math.log(-math.expm1(-rho * root * root))

    def holds(root: float) -> bool:
        exponent = rho * (1.0 + root) ** 2
        rest = math.exp(-exponent) * (1.0 - ROUNDING * (16.0 + 4.0 * exponent))
        return -math.expm1(-rho * root * root) * (1.0 + 16.0 * ROUNDING) <= rest

    found = math.exp(bracketed_root(gap, math.log(low), math.log(high)))
    return prove_nearby(found, holds, Direction.DOWN)
