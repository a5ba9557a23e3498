"""The Rényi curve of AboveThreshold: a chain of comparisons read from its end.

Statement
---------
Queries of sensitivity Δ are compared one after another with a noisy threshold until the first is above, at
most K of them. With F and S the distribution and survival function of the query noise and RDP_thr(α; x) the
curve of the threshold noise under a shift x, for every s in [0, 1]

    ε(α) ≤ RDP_thr(α; sΔ) + log(W_K)/(α−1),   W_0 = 1,
    W_n = max(W_{n−1}, sup over x and t of S(x−t)^α S(x)^(1−α) + F(x−t)^α F(x)^(1−α)·W_{n−1}),

with t in [(s−1)Δ, (s+1)Δ]. Without a limit on the queries W is the fixed point, if there is one.

Conditions: either adjacency, Δ under it; every α > 1; independent noises, that of the threshold symmetric.
The threshold may have no noise: then s = 0.
Source: proven here. The mechanism is that of Dwork, Naor, Reingold, Rothblum, Vadhan 2009, and Algorithm
5.1 of Chen 2020, dissertation.

Proof
-----
On the first dataset count the threshold's noise from −sΔ. Releasing the noisy threshold too can only raise
the divergence (data processing), and costs RDP_thr(α; sΔ). Given it the answers form a chain: each
comparison adds S(x−t)^α S(x)^(1−α) for stopping and multiplies what follows by F(x−t)^α F(x)^(1−α), where x
is the threshold's distance from the query on the second dataset and t the query's own shift plus sΔ. Read
from its end, and with the worst x and t at each comparison, this is the recursion. For fixed x the bracket
is convex in p = S(x−t), and p is monotone in t, so the supremum over t is at an end of its interval.

How it is computed
------------------
With w = W − 1 a step is w ← g(w) = sup D + b·w over the lines of `above_threshold_terms`: a convex,
increasing function. Where a step adds little, g is replaced on [w, (1+η)w] by its chord, which lies above
it, and as many steps as begin there are taken at once. The share s is searched; every s gives a bound.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpledger.accounting.mechanisms.above_threshold_terms import NoiseTerms, gaussian_terms, laplace_terms
from dpledger.accounting.mechanisms.laplace import laplace_curve
from dpledger.accounting.numerics import round_up
from dpledger.accounting.validation import Floats

__all__ = [
    "GAUSSIAN_NOISE",
    "LAPLACE_NOISE",
    "QueryNoise",
    "Resolution",
    "ThresholdChain",
    "chain_log_moment",
]

_NARROWEST_LEVEL, _WIDEST_LEVEL = 1e-6, 0.25
"""Between them η, the share by which w may grow along one chord."""
_GAP_AT_FIXED_POINT = 1e-5
"""How far a chord may lie above g, relative to the distance of its fixed point."""
_STRAIGHT = 1e-3
"""How near its limit the rate of growth must be for the rest of the way to be taken at once."""
_PATIENCE = 400
"""After so many turns any chord is taken: still a bound, and the number of turns stays small."""
_LARGEST_LOG_SLOPE = 700.0
"""Steeper lines would overflow."""
_ROUNDING, _ROUNDING_PER_QUERY = 1e-9, 4e-15
"""Relative. Cover the evaluation of D and of the chords (below 1e-10), and that of each b (below 1e-15)."""
_FIRST_SHARES = np.linspace(0.0, 1.0, 5)
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
_GOLDEN_STEPS = 11
_ORDERS_AT_ONCE = 256
_QUIETLY = np.errstate(divide="ignore", over="ignore", invalid="ignore", under="ignore")
"""Zero and infinite terms are part of the bounds; what is not finite in the end is refused there."""


@dataclass(frozen=True)
class Resolution:
    """How closely the supremum and the chain are followed; any is a bound, a finer one a tighter bound."""

    cells: int
    chord_gap: float


@dataclass(frozen=True)
class QueryNoise:
    """What the chain needs to know of a noise: one comparison, the threshold's curve, and how fine a grid."""

    terms: NoiseTerms
    threshold_curve: Callable[[Floats, Floats], Floats]
    coarse: Resolution
    fine: Resolution


@dataclass(frozen=True)
class ThresholdChain:
    """AboveThreshold in units of its noises.

    Parameters
    ----------
    noise
        Of the threshold and of the queries.
    query_ratio, threshold_ratio
        Sensitivity over scale; the second is None where the threshold has no noise.
    queries
        K; None for no limit.
    """

    noise: QueryNoise
    query_ratio: float
    threshold_ratio: float | None
    queries: int | None

    def curve(self, orders: Floats) -> Floats:
        """The bound at every order, non-decreasing; infinite where this method gives none."""
        parts = np.array_split(orders, math.ceil(orders.size / _ORDERS_AT_ONCE))
        bounds = np.concatenate([self._minimize_over_split(part) for part in parts])
        rounding = _ROUNDING + _ROUNDING_PER_QUERY * (0 if self.queries is None else self.queries)
        raised = round_up(np.where(np.isfinite(bounds), bounds, 0.0) * (1.0 + rounding), ulps=8)
        # A divergence does not decrease with its order, so a bound at a higher order serves the lower.
        raised = np.where(np.isfinite(bounds), raised, np.inf)
        return np.minimum.accumulate(raised[::-1])[::-1]

    @_QUIETLY
    def bound(self, orders: Floats, shares: Floats, resolution: Resolution) -> Floats:
        """RDP_thr(α; sΔ) + log(W_K)/(α−1) for the share s of each order: valid whatever the shares."""
        forward = self.noise.terms(orders, (1.0 + shares) * self.query_ratio, self.queries, resolution.cells)
        backward = self.noise.terms(orders, (1.0 - shares) * self.query_ratio, self.queries, resolution.cells)
        log_moment = chain_log_moment(
            np.hstack([forward.log_excess, backward.log_excess]),
            np.hstack([forward.log_below, backward.log_above]),
            self.queries,
            chord_gap=resolution.chord_gap,
        )
        return self._threshold(orders, shares) + log_moment / (orders - 1.0)

    def _threshold(self, orders: Floats, shares: Floats) -> Floats:
        if self.threshold_ratio is None:
            return np.zeros_like(orders)
        return self.noise.threshold_curve(orders, shares * self.threshold_ratio)

    def _minimize_over_split(self, orders: Floats) -> Floats:
        return self.bound(orders, self._best_shares(orders), self.noise.fine)

    def _best_shares(self, orders: Floats) -> Floats:
        """The share of the shift that the threshold takes, searched as if the bound had one minimum in it."""
        if self.threshold_ratio is None:
            return np.zeros_like(orders)
        found = np.array([self._coarse(orders, np.full_like(orders, share)) for share in _FIRST_SHARES])
        lowest = np.argmin(found, axis=0)
        low = _FIRST_SHARES[np.maximum(lowest - 1, 0)]
        high = _FIRST_SHARES[np.minimum(lowest + 1, len(_FIRST_SHARES) - 1)]
        inner, at_inner = self._golden_section(orders, low, high)
        return np.where(at_inner < found.min(axis=0), inner, _FIRST_SHARES[lowest])

    def _golden_section(self, orders: Floats, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        at_left, at_right = self._coarse(orders, left), self._coarse(orders, right)
        for _ in range(_GOLDEN_STEPS):
            falls = at_right < at_left
            low, high = np.where(falls, left, low), np.where(falls, high, right)
            probe = np.where(falls, low + _GOLDEN * (high - low), high - _GOLDEN * (high - low))
            at_probe = self._coarse(orders, probe)
            left, right = np.where(falls, right, probe), np.where(falls, probe, left)
            at_left, at_right = np.where(falls, at_right, at_probe), np.where(falls, at_probe, at_left)
        return np.where(at_right < at_left, right, left), np.minimum(at_left, at_right)

    def _coarse(self, orders: Floats, shares: Floats) -> Floats:
        found = self.bound(orders, shares, self.noise.coarse)
        return np.where(np.isnan(found), np.inf, found)


@_QUIETLY
def chain_log_moment(
    log_excess: Floats, log_slope: Floats, queries: int | None, *, chord_gap: float = 1e-3
) -> Floats:
    """log W_K for lines D + b·w given by log D and log b, one row per chain; infinite if it diverges.

    Without a limit on the queries W − 1 = sup D/(1 − b), where every b < 1.
    """
    first = log_excess.max(axis=1)
    log_gains = log_excess - first[:, None]
    gains = np.exp(log_gains)
    losses = -np.expm1(np.minimum(log_slope, _LARGEST_LOG_SLOPE))
    if queries is None:
        growth = np.where((losses > 0.0).all(axis=1), np.log((gains / losses).max(axis=1)), np.inf)
    else:
        # g(w)/w does not grow with w, so the first step's growth bounds all others; it is used alone, and is
        # close, for lines too steep for the rest.
        straight = (queries - 1) * np.logaddexp(log_gains, log_slope).max(axis=1)
        steep = log_slope.max(axis=1) > _LARGEST_LOG_SLOPE
        steps = np.where(steep, 0.0, queries - 1.0)
        growth = np.where(steep, straight, _log_growth(gains, losses, steps, chord_gap))
    return np.where(first == -np.inf, 0.0, np.logaddexp(0.0, first + growth))


def _log_growth(gains: Floats, losses: Floats, steps: Floats, chord_gap: float) -> Floats:
    """log(w_(1+steps)/w_1), the lines scaled by w_1; not a number where a line is none."""
    growth = np.where(np.isnan(gains + losses).any(axis=1), np.nan, 0.0)
    level, limit = np.full(len(gains), _WIDEST_LEVEL), -losses.min(axis=1)
    rows = np.flatnonzero((steps > 0.0) & np.isfinite(growth))
    left, gains, losses = steps[rows], gains[rows], losses[rows]
    turn = 0
    while rows.size:
        tolerance = chord_gap if turn < _PATIENCE else np.inf
        taken, added, rate, level[rows] = _stride(gains, losses, growth[rows], left, level[rows], tolerance)
        # The rate falls towards its limit: once it is there, the rest of the way is straight.
        straight = (rate <= limit[rows] * (1.0 + _STRAIGHT)) | (rate == 0.0)
        growth[rows] += np.where(straight, left * np.log1p(rate), added)
        left = np.where(straight, 0.0, left - taken)
        if not left.all():
            rest = left > 0.0
            rows, left, gains, losses = rows[rest], left[rest], gains[rest], losses[rest]
        turn += 1
    return growth


def _stride(
    gains: Floats, losses: Floats, growth: Floats, left: Floats, level: Floats, tolerance: float
) -> tuple[Floats, Floats, Floats, Floats]:
    """Steps taken at once, growth of log w in them, rate at their start, and the level to try next."""
    rate, slope = _envelope(gains, losses, growth)
    rate = np.maximum(rate, 0.0)
    if not (rate < level).any():
        return np.ones_like(left), np.log1p(rate), rate, level
    rate_ahead, slope_ahead = _envelope(gains, losses, growth + np.log1p(level))
    # A convex function is below its chord by at most a quarter of the width times the change of slope.
    gap = level / 4.0 * (slope_ahead - slope)
    close = gap <= tolerance * rate + _GAP_AT_FIXED_POINT * (1.0 - slope_ahead)
    jumps = close & (rate < level)
    count, rise = _chord_steps(rate, rate_ahead, level, left)
    level = np.clip(np.where(close, 1.4 * level, level / 2.0), _NARROWEST_LEVEL, _WIDEST_LEVEL)
    return np.where(jumps, count, 1.0), np.log1p(np.where(jumps, rise, rate)), rate, level


def _envelope(gains: Floats, losses: Floats, growth: Floats) -> tuple[Floats, Floats]:
    """g(w)/w − 1 and the slope of g at w = w_1·e^growth."""
    values = gains * np.exp(-growth)[:, None] - losses
    top = values.argmax(axis=1)
    rows = np.arange(len(top))
    return values[rows, top], 1.0 - losses[rows, top]


def _chord_steps(rate: Floats, rate_ahead: Floats, level: Floats, left: Floats) -> tuple[Floats, Floats]:
    """How many of the steps left are taken, and the share by which w grows in them.

    Along the chord through (w, g(w)) and (w(1+η), g(w(1+η))) the share v grown so far follows
    v ← rate + (1 + bend)·v, so v_n = rate·((1 + bend)^n − 1)/bend; it stays below η for
    log(1 + bend·η/rate)/log(1 + bend) steps, forever if the argument is negative. The chord bounds every step
    that begins below η.
    """
    bend = ((1.0 + level) * rate_ahead - rate) / level
    bend = np.maximum(np.where(np.abs(bend) < 1e-12, 1e-12, bend), 1e-12 - 1.0)
    room = bend * level / rate
    count = np.where(room > -1.0, np.floor(np.log1p(room) / np.log1p(bend)) + 1.0, np.inf)
    taken = np.minimum(count, left)
    return taken, rate * np.expm1(taken * np.log1p(bend)) / bend


def _gaussian_threshold_curve(orders: Floats, shifts: Floats) -> Floats:
    """α·x²/2 (Mironov 2017, Proposition 7)."""
    return orders * shifts**2 / 2.0


def _laplace_threshold_curve(orders: Floats, shifts: Floats) -> Floats:
    """Mironov 2017, Proposition 6."""
    return laplace_curve(shifts, orders)


LAPLACE_NOISE = QueryNoise(
    laplace_terms, _laplace_threshold_curve, coarse=Resolution(32, 1e-3), fine=Resolution(96, 1e-3)
)
GAUSSIAN_NOISE = QueryNoise(
    gaussian_terms, _gaussian_threshold_curve, coarse=Resolution(96, 1e-2), fine=Resolution(600, 1e-3)
)
