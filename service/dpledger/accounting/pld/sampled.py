"""Dominating pairs of a mechanism that sees a sample."""

import math
from dataclasses import dataclass

import numpy as np

from dpledger.accounting.pld.cells import ROUNDING, Cells
from dpledger.accounting.pld.pairs import DominatingPair, Span
from dpledger.accounting.validation import Floats

__all__ = ["PoissonPair", "SymmetricPair"]


@dataclass(frozen=True)
class PoissonPair(DominatingPair):
    """((1−q)Q + qP, Q): a record removed, when each is drawn by a coin of its own.

    Statement: if (P, Q) dominates all that is released from one sample, in the direction that removes a
    record, ((1−q)Q + qP, Q) dominates the same on a Poisson sample of rate q. For adding a record it is the
    reverse of this pair, built from the reverse of the pair that dominates adding.
    Conditions: Poisson sampling, add-remove adjacency, 0 < q ≤ 1 − 1e-6; several releases on one sample enter
    together, with a cap fixed in advance, as the product of their pairs.
    Source: Zhu, Dong, Wang 2022, Theorem 11 (proof in appendix D); Steinke 2022, section 6.
    """

    pair: DominatingPair
    rate: float

    @property
    def anchor(self) -> float:  # type: ignore[override]
        """The largest loss where it is an atom, otherwise the infimum log(1 − q)."""
        return self._loss(self.pair.anchor) if self.pair.atomic else math.log1p(-self.rate)

    @property
    def atomic(self) -> bool:  # type: ignore[override]
        """As the pair that is sampled."""
        return self.pair.atomic

    @property
    def dominated(self) -> DominatingPair:
        return PoissonPair(self.pair.dominated, self.rate)

    def _loss(self, loss: float) -> float:
        """log(1 − q + q·e^loss)."""
        return math.log1p(self.rate * math.expm1(loss))

    def cells(self, edges: Floats) -> Cells:
        q = self.rate
        with np.errstate(divide="ignore"):
            raw = np.log1p(np.maximum(np.expm1(edges) / q, -1.0))
        base = self.pair.cells(raw)
        alone = base.infinite[1]  # its loss is log(1 − q)
        under_q = base.q.copy()
        if np.isinf(raw[0]):
            under_q[0] += alone
            alone = 0.0
        p = (1.0 - q) * under_q + q * base.p
        before = q + np.expm1(np.minimum(edges[:-1], 0.0)) < 0.0  # the cell begins below log(1 − q)
        excess = np.where(before, np.maximum(p - np.exp(edges[:-1]) * under_q, 0.0), q * base.excess)
        low, high = self._mixed(base.low, alone), self._mixed(base.high, 0.0)
        size = max(abs(float(edges[0])), abs(float(edges[-1])))
        # The edge of the sampled pair is that of a quotient, (e^edge − 1)/q, which is right to a few u: that
        # moves this edge by as many |1 − e^(−edge)|, most near log(1 − q), where it is q/(1 − q).
        steepest = math.expm1(-min(max(float(edges[0]), math.log1p(-q)), 0.0))
        return Cells(
            edges,
            p,
            under_q,
            excess,
            np.where(before, 2.0 * base.mass_error, 0.0) * p
            + q * base.excess_error
            + 4.0 * ROUNDING * excess,
            low,
            high,
            (q * base.infinite[0], 0.0),
            base.mass_error + 4.0 * ROUNDING,
            base.edge_error * self._slope(raw) + ROUNDING * (16.0 * size + 8.0 * steepest),
        )

    def _slope(self, raw: Floats) -> float:
        """The most that this loss changes with the pair's own."""
        largest = math.exp(float(raw[-1]))
        return self.rate * largest / (1.0 - self.rate + self.rate * largest)

    def _mixed(self, masses: tuple[float, float], alone: float) -> tuple[float, float]:
        p, q = masses
        return (1.0 - self.rate) * (q + alone) + self.rate * p, q + alone

    def span(self, mass: float) -> Span:
        share = min(mass / self.rate, 0.1)
        low, high = self.reversed_span(mass)
        return low, max(self._loss(self.pair.span(share)[1]), high)

    def reversed_span(self, mass: float) -> Span:
        low, high = self.pair.reversed_span(min(mass, 0.1))
        low = math.log1p(-self.rate) if self.pair.unbounded_below else self._loss(low)
        return low, self._loss(high)

    def natural_edges(self, span: Span, count: int) -> Floats:
        low, high = self.pair.span(1e-15)[0], self._raw(span[1])
        inner = self.pair.natural_edges((min(low, high - 1e-3 * abs(high)), high), count)
        edges: Floats = np.log1p(self.rate * np.expm1(inner))
        apart = 1e-6 * (span[1] - span[0])
        edges = edges[edges > span[0] + apart]
        edges = edges[np.append(True, np.diff(edges) > 1e-9 * apart)]
        return np.concatenate(([span[0]], edges))

    def _raw(self, loss: float) -> float:
        return math.log1p(math.expm1(loss) / self.rate)


@dataclass(frozen=True)
class SymmetricPair(DominatingPair):
    """The positive losses of a pair and of its reverse, for sampling without replacement.

    Statement: with S = ((1−q)Q + qP, Q), the function H_γ(S) for γ ≥ 1 and 1 − γ + γ·H_{1/γ}(S) below
    dominates any mechanism on a sample drawn without replacement, both directions at once. It is convex: at
    γ = 1 its slope rises, since (1−q)Q + qP gives the losses below 0 at least what Q gives those above. So
    it belongs to a pair: losses above 0 as in S, their mirror image below, the rest at 0.
    Conditions: without replacement, replace-one adjacency, 0 < q < 1, (P, Q) dominates the mechanism on any
    two samples that differ in one record, in both directions. Several releases on one sample enter together.
    Source: Zhu, Dong, Wang 2022, Theorem 11; the proof in ``amplification/without_replacement.py``.
    """

    pair: PoissonPair
    anchor = 0.0

    @property
    def dominated(self) -> DominatingPair:
        return SymmetricPair(PoissonPair(self.pair.pair.dominated, self.pair.rate))

    def cells(self, edges: Floats) -> Cells:
        positive = self._half(edges)
        negative = self._half(-edges[::-1]).reversed()
        p, q = positive.p + negative.p, positive.q + negative.q
        excess = positive.excess + negative.excess
        error = positive.excess_error + negative.excess_error
        return self._with_rest(edges, p, q, excess, error, positive, negative)

    def _half(self, edges: Floats) -> Cells:
        """The part with losses above 0, on all edges, which lie on both sides of 0."""
        first = int(np.searchsorted(edges, 0.0, side="right"))
        inner = self.pair.cells(np.concatenate(([0.0], edges[first:])))
        pad = np.zeros(first - 1)
        excess = inner.excess.copy()
        excess[0] += -math.expm1(float(edges[first - 1])) * inner.q[0]
        return Cells(
            edges,
            np.concatenate((pad, inner.p)),
            np.concatenate((pad, inner.q)),
            np.concatenate((pad, excess)),
            np.concatenate((pad, inner.excess_error)),
            (0.0, 0.0),
            inner.high,
            (inner.infinite[0], 0.0),
            inner.mass_error,
            inner.edge_error,
        )

    def _with_rest(
        self, edges: Floats, p: Floats, q: Floats, excess: Floats, error: Floats, up: Cells, down: Cells
    ) -> Cells:
        shown = up.p.sum() + up.high[0] + up.low[0] + up.infinite[0]
        shown += down.p.sum() + down.high[0] + down.low[0]
        mass_error = max(up.mass_error, down.mass_error)
        uncertain = 2.0 * mass_error + ROUNDING * (8.0 + p.size)
        rest = max(1.0 - float(shown), 0.0) + uncertain
        at = int(np.searchsorted(edges, 0.0)) - 1
        low, high = np.add(up.low, down.low), np.add(up.high, down.high)
        p[at] += rest
        q[at] += rest
        excess[at] += rest * -math.expm1(float(edges[at]))
        error[at] += 8.0 * ROUNDING
        return Cells(
            edges,
            p,
            q,
            excess,
            error,
            (float(low[0]), float(low[1])),
            (float(high[0]), float(high[1])),
            (up.infinite[0], up.infinite[0]),
            mass_error,
            max(up.edge_error, down.edge_error),
            2.0 * uncertain / rest,
        )

    def span(self, mass: float) -> Span:
        high = self.pair.span(mass)[1]
        low = max(self.pair.reversed_span(mass)[1], 1e-3 * high)
        return -low, high

    def reversed_span(self, mass: float) -> Span:
        low, high = self.span(mass)
        return -high, -low

    def natural_edges(self, span: Span, count: int) -> Floats:
        reach = max(span[1], -span[0])
        edges = self.pair.natural_edges((self.pair.span(0.1)[0], reach), 2 * count)
        half = edges[edges > 1e-4 * reach]
        both = np.concatenate((-half[::-1], [0.0], half))
        inside = both[(both > 0.999 * span[0]) & (both < 0.999 * span[1])]
        return np.concatenate(([span[0]], inside, [span[1]]))
