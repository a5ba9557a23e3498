"""From a dominating pair to even grids of losses: one that dominates it, one that it dominates."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpledger.accounting.pld.cells import ROUNDING, Cells
from dpledger.accounting.validation import Floats

__all__ = [
    "Dominated",
    "Dominating",
    "Indices",
    "Levels",
    "connect_the_dots",
    "even_edges",
    "graded_edges",
    "infinite_mass",
    "merged_cells",
    "rough_masses",
]

Indices = NDArray[np.int64]

Levels = tuple[tuple[int, float, float], ...]
"""From what loss down and up a cell may be how many widths wide, widest last."""

_UNDERFLOW = 1e-290
"""A mass below this may be too small for a float to be right; so much counts as infinite for each cell."""


_LEAST_SPREAD = 1e-300
"""Of a cell whose edges are one float: errors of edges are above it, so all of its mass moves up."""


@dataclass(frozen=True)
class Dominating:
    """A measure P on losses origin + index·width that dominates a pair; Q is e^(−loss) times it.

    Attributes
    ----------
    origin, width
        The grid.
    index
        Where masses are: increasing from 0.
    masses
        P masses there.
    infinite
        P mass at infinite loss.
    log_error
        All masses are right after multiplication by e^log_error.
    blur
        E of the variance that the two ends of a cell add, per index: how far from the pair the grid is.
    """

    origin: float
    width: float
    index: Indices
    masses: Floats
    infinite: float
    log_error: float
    blur: Floats


@dataclass(frozen=True)
class Dominated:
    """The cell in which the loss lies, as a statistic: its exact law under P and under Q, by index."""

    p: Floats
    q: Floats
    infinite: float
    log_error: float


def even_edges(low: float, high: float, anchor: float, width: float) -> Floats:
    """anchor + j·width from at or below ``low`` to at or above ``high``, at least two of them."""
    first = np.floor((low - anchor) / width * (1.0 - 1e-14) - 1e-9)
    last = _last_edge(high, anchor, width)
    edges: Floats = anchor + width * np.arange(first, max(last, first + 1.0) + 1.0)
    return edges


def _last_edge(high: float, anchor: float, width: float) -> float:
    """The number of the edge at or above ``high``, or below it by rounding alone.

    Losses that are all within rounding of the anchor have an edge above them: without one they would all
    count as infinite.
    """
    last = math.ceil((high - anchor) / width * (1.0 - 1e-14) - 1e-9)
    return max(last, 1.0) if high > anchor else last


def graded_edges(low: float, high: float, anchor: float, width: float, levels: Levels) -> Floats:
    """The edges of :func:`even_edges` with fewer of them far out, where ``levels`` allow wider cells."""
    first = int(np.floor((low - anchor) / width * (1.0 - 1e-14) - 1e-9))
    last = max(int(_last_edge(high, anchor, width)), first + 1)
    begin, end = first, last
    downs, ups = [], []
    for factor, down, up in reversed(levels):
        inner = [min(max(int((at - anchor) / width), begin), end) for at in (down, up)]
        downs.append(np.arange(begin, inner[0], factor))
        ups.append(np.arange(inner[1], end, factor))
        begin, end = inner
    index = np.concatenate((*downs, np.arange(begin, end), *reversed(ups), [last]))
    if first < 0 < last and index[zero := int(np.searchsorted(index, 0))] != 0:
        index = np.insert(index, zero, 0)
    edges: Floats = anchor + width * index.astype(np.float64)
    return edges


def connect_the_dots(cells: Cells, width: float) -> Dominating:
    """A discrete pair on the edges that dominates the cells' pair.

    Statement: each cell's mass moves to the cell's two edges so that its mass under P and under Q stays.
    The likelihood ratio becomes a mean-preserving spread of itself under Q, so H_γ rises at every γ and
    is unchanged where γ is the exponential of an edge: the least pair on these losses that dominates.
    Losses above the last edge become infinite, losses below the first edge move up to it.
    Conditions: any pair; edges that are whole numbers of ``width`` apart.
    Rounding: the share of the upper edge and the losses are raised by the cells' errors, so that P̃ ≥ P (after
    e^log_error) and dP̃/dQ̃ ≥ dP/dQ; a share that is too large moves mass to a larger loss.
    Source: Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022, Theorem 3.1 ("connect the dots").
    """
    upper = _upper_share(cells)
    raised = cells.p * upper
    masses = np.zeros(cells.p.size + 1)
    masses[:-1] = cells.p - raised
    masses[1:] += raised
    masses[0] += cells.low[0]
    index = np.rint((cells.edges - cells.edges[0]) / width).astype(np.int64)
    blur = np.append(cells.p * (upper * (1.0 - upper)) * np.square(np.diff(cells.edges)), 0.0)
    return Dominating(
        float(cells.edges[0]) + cells.edge_error,
        width,
        index,
        masses,
        cells.high[0] + cells.infinite[0] + _UNDERFLOW * masses.size,
        cells.mass_error + 4.0 * ROUNDING,
        blur,
    )


def _upper_share(cells: Cells) -> Floats:
    """The part of each cell's P mass that moves to its upper edge, rounded up."""
    spread = np.maximum(-np.expm1(cells.edges[:-1] - cells.edges[1:]), _LEAST_SPREAD)
    present = np.maximum(cells.p, _UNDERFLOW)
    with np.errstate(over="ignore"):
        share = ((cells.excess + cells.excess_error) / present + cells.edge_error) / spread
    clipped: Floats = np.clip(share * (1.0 + 2.0 * cells.mass_error + 8.0 * ROUNDING), 0.0, 1.0)
    return clipped


def infinite_mass(parts: "Sequence[tuple[Dominating | Dominated, int]]") -> float:
    """1 − Π(1 − m)^times over the infinite masses m: that of the composition, up to e^(their log errors).

    It is concave along rays from 0, so a factor on every m is at most that factor on it.
    """
    if any(part.infinite >= 1.0 for part, _ in parts):
        return 1.0
    return -math.expm1(math.fsum(times * math.log1p(-part.infinite) for part, times in parts))


def rough_masses(cells: Cells) -> Floats:
    """The masses of :func:`connect_the_dots` on uneven edges, for moments that need no proof."""
    raised = cells.p * _upper_share(cells)
    masses: Floats = np.append(cells.p - raised, 0.0)
    masses[1:] += raised
    masses[0] += cells.low[0]
    masses[-1] += cells.high[0]
    return masses


def merged_cells(cells: Cells) -> Dominated:
    """The index of the cell as a statistic of the outcome.

    Statement: any statistic's hockey-stick divergence is at most the pair's, and so is
    P(T > t) − γ·Q(T > t) for T the sum of such indices over many outcomes, at every t.
    Conditions: any pair; masses of P are right after e^(−log_error), those of Q after e^(+log_error).
    Source: post-processing; the best t is that of Neyman and Pearson up to the width of cells.
    """
    p, q = cells.p.copy(), cells.q.copy()
    p[0] += cells.low[0]
    q[0] += cells.low[1]
    p[-1] += cells.high[0]
    q[-1] += cells.high[1] + _UNDERFLOW
    error = 1.01 * max(cells.mass_error, cells.shortfall) + 4.0 * ROUNDING
    return Dominated(p, q, cells.infinite[0], error)
