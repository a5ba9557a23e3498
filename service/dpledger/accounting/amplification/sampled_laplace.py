"""Laplace noise on a sample: its Rényi curve from the dominating pair, at any real orders, rounded up.

Statement
    With d the L1 sensitivity over the scale, the loss s of Laplace noise has under Q an atom of 1/2 at −d,
    one of e^(−d)/2 at d and the density e^(−(s+d)/2)/4 between. With r = 1 − q + q·e^s, L = log r and
    g(x) = e^x − 1 − x, (α−1)·ε(α) is log(1 + E_Q[G]), where
    G = r^α − 1 − α(r − 1) = g(αL) − α·g(L) under Poisson sampling, and without replacement
    G = (f(r) + r·f(1/r))·1{r > 1} = (g(αL) + g(−(α−1)L) − g(L))·1{s > 0}, f(t) = t^α − 1 − α(t − 1).
Conditions
    Poisson with add-remove, or without replacement with replace-one; sensitivity under that adjacency; any
    real α > 1; any number of coordinates or releases on one sample, d added up. Exact under Poisson for one
    coordinate.
Source
    Zhu, Dong, Wang 2022, Theorem 11, with the pair of :class:`~dpledger.accounting.pld.pairs.LaplacePair`;
    for the directions under Poisson, Mironov, Talwar, Zhang 2019, Theorem 5.

Directions under Poisson: E_Q[r^α] is at least E_Q[r^(1−α)], so removing a record is the worse. Proof: h(r) =
r^α − r^(1−α) = 2√r·sinh(κL), κ = α − 1/2, has mean 0 at κ = 1/2 already over each pair of losses s, −s, whose
masses are as e^(−s/2) to e^(s/2). With a = r(s) and b = r(−s), a·b ≥ 1, so log a ≥ −log b, and sinh(κ·log a)
over sinh(−κ·log b) rises in κ. Without replacement: the proof of ``without_replacement`` takes any pair
that dominates samples which differ in one record.

How it is evaluated, and why the result is an upper bound
---------------------------------------------------------
G is convex in e^s, so on each of N panels of width h = 2d/N a chord in e^s is above it. Such a chord's mean
needs the masses of P and Q alone: a panel's mass goes to its ends as e^(h/2) to 1. Together node j then
weighs tanh(h/4)·e^(−jh/2), the first and the last half of that beside their atoms. What is added is h²/12 of
E[G] at moderate orders; near the largest loss, at large orders, αh²/16 of what the atom there gives.

Rounding is charged term by term: L is off by at most 8u·(|t|(2 + |s|)/(1+t) + |L|), t = r − 1, g by that
times its slope and a few units, a sum of n terms by n·u more.
"""

import math

import numpy as np

from dpledger.accounting.mechanisms.laplace import laplace_curve
from dpledger.accounting.numerics import exp_minus_line, round_up
from dpledger.accounting.validation import Floats, check_non_negative, check_orders, check_rate

__all__ = ["laplace_without_replacement_curve", "poisson_laplace_curve"]

_UNIT = 2.0**-53
_LARGEST_SHIFT = 300.0
"""Larger shifts, whose losses are hardly private, are left unamplified."""
_LARGEST_RATE = 1.0 - 1e-6
"""So are larger rates: the curve does not fall in the rate, and at 1 it is that of a full look."""
_LEAST_RATE = 1e-50
_PANEL, _LEAST_PANELS, _MOST_PANELS = 0.01, 512, 4096
_LINEAR = 600.0
_MAX_CELLS = 2**19


def poisson_laplace_curve(rate: float, shift: float, orders: Floats) -> Floats:
    """ε(α) of Laplace noise on a Poisson sample under add-remove adjacency; statement: the module's text.

    Parameters
    ----------
    rate
        Sampling rate q in [0, 1].
    shift
        L1 sensitivity over scale; for several Laplace releases on one sample their sum.
    orders
        Strictly increasing real orders above 1.
    """
    return _curve(rate, shift, orders, mirrored=False)


def laplace_without_replacement_curve(rate: float, shift: float, orders: Floats) -> Floats:
    """The same on a sample drawn without replacement, under replace-one adjacency, q the sample's share."""
    return _curve(rate, shift, orders, mirrored=True)


def _curve(rate: float, shift: float, orders: Floats, *, mirrored: bool) -> Floats:
    rate, shift, orders = check_rate("rate", rate), check_non_negative("shift", shift), check_orders(orders)
    if rate == 0.0 or shift == 0.0:
        return np.zeros(orders.size)
    unamplified = laplace_curve(shift, orders)
    if rate > _LARGEST_RATE or shift > _LARGEST_SHIFT:
        return unamplified
    nodes = _Nodes(max(rate, _LEAST_RATE), shift, mirrored=mirrored)
    parts = np.array_split(orders, math.ceil(orders.size * nodes.logs.size / _MAX_CELLS))
    moments = np.concatenate([nodes.log_moments(part) for part in parts])
    return np.minimum(round_up(moments / (orders - 1.0), ulps=16), unamplified)


class _Nodes:
    """Ends of the panels: their weights under Q, t and L there, and the error of L."""

    def __init__(self, rate: float, shift: float, *, mirrored: bool) -> None:
        panels = min(max(math.ceil(2.0 * shift / _PANEL), _LEAST_PANELS), _MOST_PANELS)
        panels = 1 << (panels - 1).bit_length()
        index = np.arange(panels // 2 if mirrored else 0, panels + 1, dtype=np.float64)
        losses = shift * (index / (panels // 2) - 1.0)
        self.mirrored = mirrored
        self.weights = _weights(index, shift, panels)
        self.tilts = rate * np.expm1(losses)
        self.logs = np.log1p(self.tilts)
        steep = np.abs(self.tilts) * (2.0 + np.abs(losses)) / (1.0 + self.tilts)
        self.sway = 8.0 * _UNIT * (steep + np.abs(self.logs))
        self.slack = _UNIT * (index.size + 32.0 + 4.0 * shift)

    def log_moments(self, orders: Floats) -> Floats:
        """(α−1)·ε(α), rounded up."""
        near = orders * float(self.logs[-1]) <= _LINEAR
        moments = np.empty(orders.size)
        moments[near] = self._by_excess(orders[near])
        if not near.all():  # then the shift is large, and no weight is zero
            moments[~near] = self._by_log_sum(orders[~near])
        return moments

    def _by_excess(self, orders: Floats) -> Floats:
        """log(1 + E[G]), all terms of which are positive."""
        column = orders[:, None]
        powers = column * self.logs
        above, below = exp_minus_line(powers), exp_minus_line(self.logs)
        if self.mirrored:
            above = above + exp_minus_line(self.logs - powers)
        else:
            below = column * below
        moved = 4.0 * column * self.sway * (np.abs(np.expm1(powers)) + np.abs(self.tilts))
        terms = (above - below) + moved + 16.0 * _UNIT * (above + below)
        moments: Floats = np.log1p(terms @ self.weights * (1.0 + 2.0 * self.slack))
        return moments

    def _by_log_sum(self, orders: Floats) -> Floats:
        """log E[r^α], which is all under Poisson; without replacement G ≤ r^α + (α−1)r + 1 and E[r] = 1."""
        column = orders[:, None]
        exponents = column * self.logs + np.log(self.weights)
        peaks = exponents.max(axis=1)
        shares = np.exp(exponents - peaks[:, None])
        totals = shares.sum(axis=1)
        moments = peaks + np.log(totals)
        if self.mirrored:
            moments = np.logaddexp(moments, np.log(orders + 1.0))
        errors = 2.0 * orders * (shares @ self.sway) / totals + 8.0 * _UNIT * np.abs(moments)
        found: Floats = moments + errors + 2.0 * self.slack
        return found


def _weights(index: Floats, shift: float, panels: int) -> Floats:
    """Of the nodes −d + j·2d/N under Q."""
    share = math.tanh(shift / (2.0 * panels))
    weights: Floats = share * np.exp(index * (-shift / panels))
    weights[-1] = 0.5 * math.exp(-shift) * (1.0 + share)
    if index[0] == 0.0:
        weights[0] = 0.5 * (1.0 + share)
    return weights
