"""Several pairs at once, as one pair: for releases that share a sample."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dpledger.accounting.errors import Unproven
from dpledger.accounting.pld.cells import ROUNDING, Cells
from dpledger.accounting.pld.discretization import connect_the_dots, even_edges, infinite_mass, merged_cells
from dpledger.accounting.pld.moments import Cumulants
from dpledger.accounting.pld.pairs import AtomicPair, DominatingPair, Span
from dpledger.accounting.validation import Floats

__all__ = ["ProductPair", "product_pair"]

_POINTS = 4096
_CUT = 1e-22
_UNDERFLOW = 1e-280
"""Lower bounds need one statistic under P and Q: nothing is moved but what is hardly a float."""
_MOST_DRAWS = 10_000


@dataclass(frozen=True)
class ProductPair(DominatingPair):
    """A product of pairs on a fine grid: one atomic pair that dominates it, one that it dominates.

    Statement: releases from one sample are dominated together by the product of their pairs; connecting the
    dots of each factor keeps domination, merging cells is post-processing.
    Conditions: the releases and their number are fixed before the sample is drawn.
    Source: Zhu, Dong, Wang 2022, Theorem 10; Doroshenko et al. 2022.
    """

    above: AtomicPair
    below: AtomicPair = field(repr=False)
    atomic = True

    @property
    def anchor(self) -> float:  # type: ignore[override]
        """That of the pair that dominates."""
        return self.above.anchor

    @property
    def unbounded_below(self) -> bool:  # type: ignore[override]
        """As the pair that dominates."""
        return self.above.unbounded_below

    @property
    def dominated(self) -> DominatingPair:
        return self.below

    def cells(self, edges: Floats) -> Cells:
        return self.above.cells(edges)

    def span(self, mass: float) -> Span:
        return self.above.span(mass)

    def reversed_span(self, mass: float) -> Span:
        return self.above.reversed_span(mass)

    def natural_edges(self, span: Span, count: int) -> Floats:
        return self.above.natural_edges(span, count)


def product_pair(items: Sequence[tuple[DominatingPair, int]]) -> DominatingPair:
    """The product of pairs, each with its multiplicity; a single pair is returned as it is."""
    if len(items) == 1 and items[0][1] == 1:
        return items[0][0]
    draws = sum(times for _, times in items)
    if draws > _MOST_DRAWS:
        raise Unproven(
            f"up to {_MOST_DRAWS} releases of different kinds on one sample have a dominating pair here"
        )
    width = _width(items, draws)
    cells = [
        (pair.cells(even_edges(*pair.span(_CUT / draws), pair.anchor, width)), times) for pair, times in items
    ]
    return ProductPair(_above(cells, width), _below(cells))


def _width(items: Sequence[tuple[DominatingPair, int]], draws: int) -> float:
    """A few thousand points over where the sum lies."""
    spans = [(pair.span(_CUT / draws), times) for pair, times in items]
    whole = sum(times * (high - low) for (low, high), times in spans)
    spread = 20.0 * Cumulants(items, _CUT / draws).at(0.0).deviation + max(
        high - low for (low, high), _ in spans
    )
    return min(whole, spread) / _POINTS


@dataclass
class _Line:
    """Masses on consecutive indices from ``first``."""

    masses: Floats
    first: int = 0


def _above(cells: Sequence[tuple[Cells, int]], width: float) -> AtomicPair:
    parts = [(connect_the_dots(each, width), times) for each, times in cells]
    origin = math.fsum(times * part.origin for part, times in parts)
    line, cut = _summed([(part.masses, times) for part, times in parts], _CUT, up=True)
    losses: Floats = origin + width * (line.first + np.arange(line.masses.size, dtype=np.float64))
    error = sum(times * part.log_error for part, times in parts) + _convolution_error(cells, line)
    infinite = infinite_mass(parts) + cut
    size = abs(origin) + width * (abs(line.first) + line.masses.size)
    q = line.masses * np.exp(-losses)
    alone = max(1.0 - float(q.sum()), 0.0) + ROUNDING * (16.0 + q.size) + error
    return AtomicPair(
        losses,
        line.masses,
        q,
        infinite=(infinite, alone),
        mass_error=error + ROUNDING * (8.0 + size),
        loss_error=8.0 * ROUNDING * size,
    )


def _below(cells: Sequence[tuple[Cells, int]]) -> AtomicPair:
    parts = [(merged_cells(each), times) for each, times in cells]
    p, _ = _summed([(part.p, times) for part, times in parts], _UNDERFLOW, up=False)
    q, _ = _summed([(part.q, times) for part, times in parts], _UNDERFLOW, up=False)
    size = max(line.first + line.masses.size for line in (p, q))
    full_p, full_q = (np.zeros(size), np.zeros(size))
    full_p[p.first : p.first + p.masses.size] = p.masses
    full_q[q.first : q.first + q.masses.size] = q.masses
    both = (full_p > _UNDERFLOW) & (full_q > _UNDERFLOW)
    error = sum(times * part.log_error for part, times in parts) + _convolution_error(cells, p)
    infinite = infinite_mass(parts)
    alone = float(full_q[~both].sum())
    losses = np.log(full_p[both] / full_q[both])
    order = np.argsort(losses, kind="stable")
    kept_p, kept_q = full_p[both][order], full_q[both][order]
    return AtomicPair(
        losses[order],
        kept_p,
        kept_q,
        infinite=(infinite, alone),
        mass_error=error,
        loss_error=2.0 * error,
    )


def _convolution_error(cells: Sequence[tuple[Cells, int]], line: _Line) -> float:
    draws = sum(times for _, times in cells)
    return ROUNDING * 2.0 * draws * (8.0 + line.masses.size)


def _summed(parts: Sequence[tuple[Floats, int]], least: float, *, up: bool) -> tuple[_Line, float]:
    """Convolution powers; far ends are cut, to infinity (``up``) or onto the last index kept."""
    total, cut = _Line(np.ones(1)), 0.0
    for masses, times in parts:
        base = _Line(masses)
        while times:
            if times & 1:
                total, lost = _cut(_convolved(total, base), least, up)
                cut += lost
            times >>= 1
            if times:
                base, lost = _cut(_convolved(base, base), least, up)
                cut += 2.0 * times * lost
    return total, cut


def _convolved(first: _Line, second: _Line) -> _Line:
    return _Line(np.convolve(first.masses, second.masses), first.first + second.first)


def _cut(line: _Line, least: float, up: bool) -> tuple[_Line, float]:
    masses = line.masses
    low = int(np.searchsorted(np.cumsum(masses), least))
    high = masses.size - int(np.searchsorted(np.cumsum(masses[::-1]), least))
    if high - low < 2:
        return line, 0.0
    kept = masses[low:high].copy()
    kept[0] += masses[:low].sum()
    lost = float(masses[high:].sum())
    if up:
        return _Line(kept, line.first + low), lost * (1.0 + 1e-12)
    kept[-1] += lost
    return _Line(kept, line.first + low), 0.0
