"""A dominating pair cut into cells of its privacy loss: the one thing that discretisation needs to know.

Everything below works on measures rather than probabilities. Two facts make rounding safe:

- if P̃ ≥ P and dP̃/dQ̃ ≥ dP/dQ everywhere, then ∫(P̃ − γQ̃)₊ ≥ ∫(P − γQ)₊ at every γ, because
  (P̃ − γQ̃)₊ = P̃(1 − γ/r̃)₊ rises in both; the same holds for products, hence for composition;
- a statistic of the outcome never raises the hockey-stick divergence (post-processing).
"""

from dataclasses import dataclass, replace

import numpy as np

from dpledger.accounting.validation import Floats

__all__ = ["ROUNDING", "Cells", "merge"]

ROUNDING = 2.0**-53
"""Half a unit in the last place of 1: the relative error of one operation."""


@dataclass(frozen=True)
class Cells:
    """The masses of P and Q between consecutive edges of the privacy loss log dP/dQ.

    Attributes
    ----------
    edges
        Increasing, n + 1 of them; the first may be −∞.
    p, q
        Masses of the n cells between them under P and Q.
    excess
        p − e^(lower edge)·q of each cell, at least 0, without its cancellation.
    excess_error
        Absolute bound on the error of each excess.
    low, high
        (P, Q) masses below the first and above the last edge, infinite losses not counted.
    infinite
        (P mass where Q has none, Q mass where P has none).
    mass_error
        Relative bound on the error of every mass.
    edge_error
        How far a true loss may lie outside the cell that it was counted in.
    shortfall
        Relative bound on how much larger than the truth a mass of P may be, where that is more than
        ``mass_error``: it weakens lower bounds only.
    """

    edges: Floats
    p: Floats
    q: Floats
    excess: Floats
    excess_error: Floats
    low: tuple[float, float]
    high: tuple[float, float]
    infinite: tuple[float, float]
    mass_error: float
    edge_error: float
    shortfall: float = 0.0

    def reversed(self) -> "Cells":
        """The cells of (Q, P), whose loss is the negative."""
        lower, upper = self.edges[:-1], self.edges[1:]
        # q − e^(−upper)·p, from what is known: excess = p − e^lower·q.
        excess = self.q * -np.expm1(lower - upper) - np.exp(-upper) * self.excess
        error = np.exp(-upper) * self.excess_error + 8.0 * ROUNDING * self.q * -np.expm1(lower - upper)
        return replace(
            self,
            edges=-self.edges[::-1],
            p=self.q[::-1],
            q=self.p[::-1],
            excess=np.maximum(excess, 0.0)[::-1],
            excess_error=error[::-1],
            low=self.high[::-1],
            high=self.low[::-1],
            infinite=self.infinite[::-1],
        )

    def scaled(self, factor: float) -> "Cells":
        """Both measures times ``factor``."""
        return replace(
            self,
            p=factor * self.p,
            q=factor * self.q,
            excess=factor * self.excess,
            excess_error=factor * self.excess_error,
            low=_times(factor, self.low),
            high=_times(factor, self.high),
            infinite=_times(factor, self.infinite),
        )


def merge(first: Cells, second: Cells) -> Cells:
    """Two measures side by side, on the same edges."""
    return replace(
        first,
        p=first.p + second.p,
        q=first.q + second.q,
        excess=first.excess + second.excess,
        excess_error=first.excess_error + second.excess_error,
        low=_plus(first.low, second.low),
        high=_plus(first.high, second.high),
        infinite=_plus(first.infinite, second.infinite),
        mass_error=max(first.mass_error, second.mass_error) + 2.0 * ROUNDING,
        edge_error=max(first.edge_error, second.edge_error),
        shortfall=max(first.shortfall, second.shortfall),
    )


def _times(factor: float, pair: tuple[float, float]) -> tuple[float, float]:
    return factor * pair[0], factor * pair[1]


def _plus(first: tuple[float, float], second: tuple[float, float]) -> tuple[float, float]:
    return first[0] + second[0], first[1] + second[1]
