"""Dominating pairs: two laws (P, Q) whose hockey-stick divergence bounds that of a mechanism at every γ ≥ 0.

A pair is known here by the law of its privacy loss log dP/dQ under P and under Q, cut into
:class:`~dpledger.accounting.pld.cells.Cells`. Source: Zhu, Dong, Wang 2022, "Optimal accounting of
differential privacy via characteristic function", Definition 7.
"""

import abc
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpledger.accounting.pld.cells import ROUNDING, Cells, merge
from dpledger.accounting.validation import Floats

__all__ = [
    "AtomicPair",
    "BoundedRangePair",
    "DominatingPair",
    "GaussianPair",
    "LaplacePair",
    "MixturePair",
    "ReversedPair",
    "randomized_response_pair",
]

Span = tuple[float, float]
_FURTHEST = 32.0
"""Standard deviations beyond which a normal tail is no normal float."""


class DominatingPair(abc.ABC):
    """Two laws (P, Q), immutable."""

    anchor: float = 0.0
    """A loss that the grid should hold: an end of the support, or its largest atom."""

    atomic: bool = False
    """True where much of the mass sits in single losses, which a grid blurs."""

    unbounded_below: bool = False
    """True where Q has mass that P has not: losses of −∞."""

    @property
    def dominated(self) -> "DominatingPair":
        """The pair that lower bounds are taken of: itself where it is exact."""
        return self

    @abc.abstractmethod
    def cells(self, edges: Floats) -> Cells:
        """The masses between ``edges``, which increase; only the first may lie below every loss."""

    @abc.abstractmethod
    def span(self, mass: float) -> Span:
        """Losses outside which P has about ``mass`` on either side, or the support's ends."""

    @abc.abstractmethod
    def reversed_span(self, mass: float) -> Span:
        """The same under Q."""

    @abc.abstractmethod
    def natural_edges(self, span: Span, count: int) -> Floats:
        """Edges over a span that follow the pair's own shape, for rough moments."""


@dataclass(frozen=True)
class ReversedPair(DominatingPair):
    """(Q, P) for (P, Q): the other direction of neighbours."""

    pair: DominatingPair

    @property
    def anchor(self) -> float:  # type: ignore[override]
        """The negative of the pair's own."""
        return -self.pair.anchor

    @property
    def atomic(self) -> bool:  # type: ignore[override]
        """As the pair itself."""
        return self.pair.atomic

    @property
    def dominated(self) -> DominatingPair:
        return ReversedPair(self.pair.dominated)

    def cells(self, edges: Floats) -> Cells:
        return self.pair.cells(-edges[::-1]).reversed()

    def span(self, mass: float) -> Span:
        low, high = self.pair.reversed_span(mass)
        return -high, -low

    def reversed_span(self, mass: float) -> Span:
        low, high = self.pair.span(mass)
        return -high, -low

    def natural_edges(self, span: Span, count: int) -> Floats:
        edges: Floats = -self.pair.natural_edges((-span[1], -span[0]), count)[::-1]
        return edges


@dataclass(frozen=True)
class GaussianPair(DominatingPair):
    """N(μ, 1) against N(0, 1), in either direction the same profile.

    Statement: dominates Gaussian noise with L2 sensitivity over noise at most μ, any μ-GDP release, and
    any number of Gaussians with Σμ_j² ≤ μ², chosen adaptively or not. Equal for N(0, 1) against N(μ, 1).
    Conditions: μ > 0 under the adjacency at hand.
    Source: Balle and Wang 2018; Dong, Roth, Su 2022, Theorem 2.10 and Corollary 2; Zhu, Dong, Wang 2022.
    """

    mu: float

    def cells(self, edges: Floats) -> Cells:
        x = edges / self.mu + 0.5 * self.mu
        p, q = _normal_masses(x - self.mu), _normal_masses(x)
        lower = edges[:-1]
        excess = p[1:-1] - np.exp(lower) * q[1:-1]
        at = np.clip(x, -_FURTHEST - 1.0, _FURTHEST + 1.0)  # beyond, masses are no normal floats
        reach = np.maximum(np.abs(at[:-1]), np.abs(at[1:]))
        width = np.maximum(at[1:] - at[:-1], 1e-300)
        errors = np.where(reach < _FURTHEST, _normal_error(reach + self.mu, self.mu, width), 0.0)
        mass_error = float(errors.max())
        size = self.mu * (float(reach.max()) + self.mu)
        return Cells(
            edges,
            p[1:-1],
            q[1:-1],
            np.maximum(excess, 0.0),
            p[1:-1] * (2.0 * errors + ROUNDING * (4.0 + size)),
            (float(p[0]), float(q[0])),
            (float(p[-1]), float(q[-1])),
            (0.0, 0.0),
            mass_error,
            8.0 * ROUNDING * size,
        )

    def span(self, mass: float) -> Span:
        centre, reach = 0.5 * self.mu * self.mu, self.mu * _quantile(mass)
        return centre - reach, centre + reach

    def reversed_span(self, mass: float) -> Span:
        low, high = self.span(mass)
        return -high, -low

    def natural_edges(self, span: Span, count: int) -> Floats:
        return np.linspace(*span, count + 1)


def _normal_masses(x: Floats) -> Floats:
    """N(0, 1) below x[0], between consecutive x, and above x[-1], each from the nearer tail."""
    tail = special.ndtr(-np.abs(x))
    right = x > 0.0
    steps = np.where(right[:-1], -np.diff(tail), np.diff(tail))
    around = np.flatnonzero(right[1:] & ~right[:-1])
    steps[around] = 1.0 - tail[around] - tail[around + 1]
    ends = [1.0 - tail[0] if right[0] else tail[0]], [tail[-1] if right[-1] else 1.0 - tail[-1]]
    masses: Floats = np.concatenate((ends[0], steps, ends[1]))
    return masses


def _normal_error(reach: Floats, mu: float, width: Floats) -> Floats:
    """Relative errors of the masses of cells ``width`` wide, for |x| up to ``reach``.

    A tail of N(0, 1) is computed to (16 + 4x²)u (measured: half of that, for scipy squares x before the
    exponential) and is at most φ(x)·min(1.26, 1/x); an edge is off by at most 4u(|x| + μ), which moves φ(x)
    times that. A cell narrower than 1/|x| has at least width·φ/e, so its two edges are off by 2e(20.2 +
    8|x| + 4μ)u/width; a wider one has at least 0.63 of the tail at its inner edge, where φ is at most
    |x| + 1 tails.
    """
    narrow = 6.0 * (21.0 + 8.0 * reach + 5.0 * mu) / width
    return ROUNDING * (narrow + 32.0 * (1.0 + reach) * (reach + mu + 2.0))


def _quantile(mass: float) -> float:
    """How many standard deviations leave ``mass`` beyond."""
    return min(max(-float(special.ndtri(min(max(mass, 1e-300), 0.4))), 0.5), _FURTHEST)


@dataclass(frozen=True)
class BoundedRangePair(DominatingPair):
    """The worst over all pairs whose losses span at most ε (exponential mechanism, Gumbel noisy max).

    Statement: H_γ = (1 − √γ·e^(−ε/2))² / (1 − e^(−ε)) for e^(−ε) ≤ γ ≤ e^ε dominates every release of
    bounded range ε. With c = 1 − e^(−ε), P(L > s) = (1 − e^((s−ε)/2))/c and
    Q(L > s) = (e^(−(s+ε)/2) − e^(−ε))/c.
    Proof: the losses of a pair lie in [t − ε, t] for some t in [0, ε]; by convexity the two-point pair on the
    ends is the worst, (e^(−t) − e^(−ε))(e^t − γ)/(1 − e^(−ε)); the maximum over t is at 2t = ε + log γ. A
    supremum of convex functions is convex, so it belongs to a pair; it is its own reverse.
    Conditions: ε > 0; either adjacency, as the mechanism states.
    Source: Dong, Durfee, Rogers 2020 (two-point pairs); Zhu, Dong, Wang 2022, Proposition 10 (convexity).
    """

    epsilon: float

    @property
    def anchor(self) -> float:  # type: ignore[override]
        """The largest loss."""
        return self.epsilon

    def cells(self, edges: Floats) -> Cells:
        return _exponential_cells(edges, self.epsilon, -1.0 / math.expm1(-self.epsilon))

    def span(self, mass: float) -> Span:
        return -self.epsilon, self.epsilon

    reversed_span = span

    def natural_edges(self, span: Span, count: int) -> Floats:
        return np.linspace(*span, count + 1)


@dataclass(frozen=True)
class LaplacePair(DominatingPair):
    """Laplace noise under a shift of d scales: H_γ = 1 − √γ·e^(−d/2) for e^(−d) ≤ γ ≤ e^d.

    Statement: dominates Laplace noise on any number of coordinates whose L1 sensitivity over scale is at
    most d. Proof: in one dimension the noise is log-concave, so the best tests are half-lines and a larger
    shift is worse. Two coordinates with d₁ + d₂ = d: write the pair's law of the loss with density √(pq),
    ν_d, half of e^(−d/2) at each of ±d and a quarter of e^(−d/2) as density between. With E(s) = e^(−|s|/2),
    E∗ν_d = e^(−max(d, |s|)/2), and e^(−s/2)·H at γ = e^s is e^(−s/2) − (E∗ν)(s). So domination means
    E∗ν₁∗ν₂ ≥ e^(−max(d, |s|)/2): for |s| ≥ d they are equal, for |s| ≤ |d₁ − d₂| the left is
    e^(−d/2)(1 + min(d₁, d₂)/2), and in between e^(−d/2)(1 + (min(d₁, d₂) − c)/4), c = |s| − max(d₁, d₂).
    More coordinates follow by induction.
    Conditions: d > 0; either adjacency, L1 sensitivity under it; noise independent over coordinates.
    Source: the proof above; for one coordinate Zhu, Dong, Wang 2022.
    """

    shift: float
    atomic = True

    @property
    def anchor(self) -> float:  # type: ignore[override]
        """The largest loss, an atom of mass one half."""
        return self.shift

    def cells(self, edges: Floats) -> Cells:
        d, far = self.shift, 0.5 * math.exp(-self.shift)
        ends = AtomicPair((-d, d), (far, 0.5), (0.5, far))
        return merge(_exponential_cells(edges, d, 0.5), ends.cells(edges))

    def span(self, mass: float) -> Span:
        return -self.shift, self.shift

    reversed_span = span

    def natural_edges(self, span: Span, count: int) -> Floats:
        return np.linspace(*span, count + 1)


def _exponential_cells(edges: Floats, limit: float, factor: float) -> Cells:
    """Densities factor/2·e^((s−d)/2) under P and factor/2·e^(−(s+d)/2) under Q for |s| < d."""
    near = 64.0 * ROUNDING * (1.0 + limit)  # an edge just inside an end of the support is that end
    at = np.where(edges > limit - near, limit, np.where(edges < near - limit, -limit, edges))
    lower, upper = at[:-1], at[1:]
    share = -np.expm1(0.5 * (lower - upper))
    p = factor * np.exp(0.5 * (upper - limit)) * share
    q = factor * np.exp(-0.5 * (lower + limit)) * share
    below = np.exp(lower) - np.exp(edges[:-1])  # where the cell begins before the support
    excess = p * share + np.maximum(below, 0.0) * q
    low = _exponential_tail(-limit, float(at[0]), limit, factor)
    high = _exponential_tail(float(at[-1]), limit, limit, factor)
    mass_error = ROUNDING * (16.0 + limit)
    edge_error = near + 4.0 * ROUNDING * max(abs(float(at[-1])), abs(float(at[0])))
    return Cells(
        edges, p, q, excess, 2.0 * mass_error * excess, low, high, (0.0, 0.0), mass_error, edge_error
    )


def _exponential_tail(start: float, end: float, limit: float, factor: float) -> tuple[float, float]:
    share = -math.expm1(0.5 * (start - end))
    return factor * math.exp(0.5 * (end - limit)) * share, factor * math.exp(-0.5 * (start + limit)) * share


class AtomicPair(DominatingPair):
    """Finitely many losses with their masses under P and Q.

    Parameters
    ----------
    losses, p, q
        Increasing losses and the masses there; p = e^loss·q up to ``mass_error``.
    infinite
        P mass where Q has none, and Q mass where P has none.
    mass_error, loss_error
        Relative error of the masses, absolute error of the losses.
    """

    atomic = True

    def __init__(
        self,
        losses: Floats | tuple[float, ...],
        p: Floats | tuple[float, ...],
        q: Floats | tuple[float, ...],
        *,
        infinite: tuple[float, float] = (0.0, 0.0),
        mass_error: float = 16.0 * ROUNDING,
        loss_error: float = 0.0,
    ) -> None:
        self.losses = np.asarray(losses, dtype=np.float64)
        self.p, self.q = np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64)
        self.infinite, self.mass_error, self.loss_error = infinite, mass_error, loss_error
        self.anchor = float(self.losses[-1])
        self.unbounded_below = infinite[1] > 0.0

    def cells(self, edges: Floats) -> Cells:
        count = edges.size - 1
        size = float(np.abs(self.losses).max())
        near = 64.0 * ROUNDING * (1.0 + size)  # a loss just above an edge belongs below it
        index = np.searchsorted(edges, self.losses - near)
        index[(index == 0) & (self.losses >= edges[0] - near)] = 1  # on the first edge: in the first cell
        start = edges[np.maximum(index - 1, 0)]
        p, q = (_per_cell(index, mass, count + 2) for mass in (self.p, self.q))
        above = self.p * -np.expm1(np.minimum(start - self.losses, 0.0))
        excess = _per_cell(index, above, count + 2)[1:-1]
        mass_error = self.mass_error + ROUNDING * (8.0 + self.losses.size)
        return Cells(
            edges,
            p[1:-1],
            q[1:-1],
            excess,
            2.0 * mass_error * excess + ROUNDING * p[1:-1] * size,
            (float(p[0]), float(q[0])),
            (float(p[-1]), float(q[-1])),
            self.infinite,
            mass_error,
            near + 4.0 * ROUNDING * size + self.loss_error,
        )

    def span(self, mass: float) -> Span:
        return _atoms_span(self.losses, self.p, mass)

    def reversed_span(self, mass: float) -> Span:
        return _atoms_span(self.losses, self.q, mass)

    def natural_edges(self, span: Span, count: int) -> Floats:
        if self.losses.size > count:
            return np.linspace(*span, count + 1)
        inside = self.losses[(self.losses > span[0]) & (self.losses < span[1])]
        edges: Floats = np.concatenate(([span[0]], inside, [span[1]]))
        return edges


def _per_cell(index: NDArray[np.intp], masses: Floats, count: int) -> Floats:
    return np.bincount(index, masses, count).astype(np.float64)


def _atoms_span(losses: Floats, masses: Floats, mass: float) -> Span:
    below = int(np.searchsorted(np.cumsum(masses), mass))
    above = int(np.searchsorted(np.cumsum(masses[::-1]), mass))
    low = min(below, losses.size - 1)
    return float(losses[low]), float(losses[max(losses.size - 1 - above, low)])


def randomized_response_pair(epsilon: float, delta: float = 0.0) -> AtomicPair:
    """The pair that dominates every (ε, δ)-private release.

    Statement: with probability δ everything shows, otherwise randomized response with odds e^ε.
    Conditions: ε ≥ 0, 0 ≤ δ < 1, either adjacency; tight for randomized response and for (ε, δ).
    Source: Kairouz, Oh, Viswanath 2015, Theorem 3.4's proof; Murtagh and Vadhan 2016.
    """
    rest = 1.0 - delta
    truth = rest / (1.0 + math.exp(-epsilon))
    lie = truth * math.exp(-epsilon)
    error = ROUNDING * (16.0 + epsilon)
    if epsilon == 0.0:
        return AtomicPair((0.0,), (rest,), (rest,), infinite=(delta, delta))
    return AtomicPair(
        (-epsilon, epsilon), (lie, truth), (truth, lie), infinite=(delta, delta), mass_error=error
    )


@dataclass(frozen=True)
class MixturePair(DominatingPair):
    """One of several pairs, chosen by a coin that shows: Σ_j w_j·H_γ(P_j‖Q_j).

    Statement: dominates a mechanism that runs part j with probability w_j, the same for both neighbours,
    whether or not j shows (joint convexity). Conditions: pair j dominates part j.
    Source: Balle, Barthe, Gaboardi 2018, Lemma 1 (joint convexity of the hockey-stick divergence).
    """

    parts: tuple[tuple[float, DominatingPair], ...]

    @property
    def atomic(self) -> bool:  # type: ignore[override]
        """Where any part is."""
        return any(pair.atomic for _, pair in self.parts)

    @property
    def anchor(self) -> float:  # type: ignore[override]
        """That of the first part."""
        return self.parts[0][1].anchor

    def cells(self, edges: Floats) -> Cells:
        first, *others = (pair.cells(edges).scaled(weight) for weight, pair in self.parts)
        for other in others:
            first = merge(first, other)
        return first

    def span(self, mass: float) -> Span:
        spans = [pair.span(mass) for _, pair in self.parts]
        return min(low for low, _ in spans), max(high for _, high in spans)

    def reversed_span(self, mass: float) -> Span:
        spans = [pair.reversed_span(mass) for _, pair in self.parts]
        return min(low for low, _ in spans), max(high for _, high in spans)

    def natural_edges(self, span: Span, count: int) -> Floats:
        return np.linspace(*span, count + 1)
