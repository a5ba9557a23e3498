"""One noisy comparison of AboveThreshold, bounded over every position of the threshold.

A comparison of scale-1 noise with the threshold at distance y answers "above" with probability
S(y − τ) on one dataset and S(y) on its neighbour, τ > 0 being the shift between the two. At order α

    A(y) = S(y−τ)^α S(y)^(1−α),   B(y) = F(y−τ)^α F(y)^(1−α),   D(y) = A + B − 1,

and the chain needs sup over y of D(y) + b(y)·w for every w ≥ 0, where b is A or B. (A negative shift
is the same comparison with y and the two answers mirrored, so b = A.)

How the supremum over a continuum is bounded
--------------------------------------------
D = D_S + D_F, where with q = S or F, δ = q(y−τ) − q(y) and p_θ = (1−θ)·q(y) + θ·q(y−τ)

    D_q = α(α−1) ∫ (1−θ) δ² p_θ^(α−2) q^(1−α) dθ.

The second derivative of the logarithm of a mixture is at least the mean of those of its parts. Hence
log D_S, log D_F, log A and log B each lie, on a cell of width h, at most c = h²/8·M above their chord,
where M bounds minus their second derivative there (the M of each noise are derived beside its code).
The sum of the exponentials of four such chords is convex, so that the supremum over the cell is at its
ends: raising the values at every grid point by the larger c of its two cells bounds the continuum from
above, with a relative error of order h² however small the shift is.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import special

from dpledger.accounting.validation import Floats

__all__ = [
    "ComparisonTerms",
    "NoiseTerms",
    "gaussian_terms",
    "laplace_terms",
    "log_gain_excess",
    "log_loss_excess",
]

_SERIES_REACH = 0.5
_FACTORIALS = np.array([math.factorial(n + 2) for n in range(12)], dtype=np.float64)
_EXPONENTIAL_REST = 1.0 / _FACTORIALS
"""(e^x − 1 − x)/x² as a power series; what is left out is below 1e-14 of it for |x| ≤ 1/2."""
_WEIGHTED_REST = np.arange(1.0, 13.0) / _FACTORIALS
"""((x − 1)e^x + 1)/x² as a power series."""

_FAR = 14.0
"""Beyond this many standard deviations from both peaks the tails are bounded by monotonicity."""
_TAIL_CELLS = 12
_SHORT_SHIFT = 0.02
"""Below it log S(y−τ) − log S(y) would cancel, and is integrated from the hazard instead."""
_GAUSS_NODES = np.array([0.5 - math.sqrt(0.15), 0.5, 0.5 + math.sqrt(0.15)])
_GAUSS_WEIGHTS = np.array([5.0, 8.0, 5.0]) / 18.0


@dataclass(frozen=True)
class ComparisonTerms:
    """Logarithms, one row per order, of points whose lines D + b·w bound the whole continuum."""

    log_excess: Floats
    log_above: Floats
    log_below: Floats


NoiseTerms = Callable[[Floats, Floats, int | None, int], ComparisonTerms]
"""(orders, shifts, queries, cells) -> terms, one row per order; every shift is at least 0."""


def laplace_terms(orders: Floats, shifts: Floats, _queries: int | None, cells: int) -> ComparisonTerms:
    """Terms for Laplace noise.

    Only 0 ≤ y ≤ τ matters. Left of 0, with z = e^y/2, S(y) = 1 − z and S(y−τ) = 1 − z·e^(−τ), so that A is
    convex and B linear in z; right of τ the same holds with z = e^(−y)/2 and the answers exchanged.
    So the supremum there is at y = 0, at y = τ, or at infinity where D = 0 and b ≤ 1: no change.

    On [0, τ] log δ has second derivative −(1−δ)/δ − (δ'/δ)² ≥ −1/δ (as |δ'| ≤ δ), and δ is least at the
    ends: (1 − e^(−τ))/2. log S(y) is linear; log S(y−τ) has second derivative −h(1+h), h the hazard; log B is
    convex. For α < 2 the power of p_θ is negative and adds at most (2−α)/4, a quarter of the squared range
    of the hazards. The grid is closer near τ, where A peaks on a scale of 1/√α.
    """
    alpha, tau = orders[:, None], shifts[:, None]
    back, forth = _laplace_grid(alpha, tau, cells)
    log_above = -math.log(2.0) - forth
    log_below = np.log1p(-0.5 * np.exp(-forth))
    gain = np.log1p(-np.expm1(-back)) + forth
    loss = -back - np.log1p(-np.expm1(-forth))
    hazard = 1.0 / (2.0 * np.exp(back[:, 1:]) - 1.0)
    bend = hazard * (1.0 + hazard)
    edge = -4.0 / np.expm1(-np.maximum(tau, 1e-300)) + np.maximum(2.0 - alpha, 0.0) / 4.0
    weight = np.diff(forth) ** 2 / 8.0
    return ComparisonTerms(
        np.logaddexp(
            log_above
            + log_gain_excess(alpha, gain)
            + _raise(weight * (edge + np.maximum(alpha - 2.0, 0.0) * bend)),
            log_below + log_loss_excess(alpha, loss) + _raise(weight * edge),
        ),
        log_above + alpha * gain + _raise(weight * alpha * bend),
        log_below + alpha * loss,
    )


def _laplace_grid(alpha: Floats, tau: Floats, cells: int) -> tuple[Floats, Floats]:
    """τ − y and y for y from 0 to τ, closer together near τ."""
    stretch = np.arcsinh(tau * np.sqrt(alpha))
    share = np.linspace(1.0, 0.0, cells + 1)
    back = np.where(stretch > 0.0, np.sinh(stretch * share) / np.sqrt(alpha), 0.0)
    back = np.minimum(back, tau)
    back[:, 0] = tau[:, 0]
    return back, tau - back


def gaussian_terms(orders: Floats, shifts: Floats, queries: int | None, cells: int) -> ComparisonTerms:
    """Terms for Gaussian noise, for a finite number of queries.

    With h the hazard φ/S, 0 < h' < 1 and h'' > 0 (Sampford 1953). log δ has second derivative ≥ −1, log S
    has −h'. So minus the second derivative is at most

    - log D_S: 2 for α ≥ 2, as (α−2)h'(y) ≤ (α−1)h'(y);
    - log D_F: 2 + (α−2)c for α ≥ 2, with c ≥ h'(τ−y) − h'(−y);
    - both, for α < 2: 2 + (2−α)/4 times the squared difference of the hazards over the shift;
    - log A: α·h'(y−τ) − (α−1)h'(y) ≤ h'(y);
    - log B: α·h'(τ−y) − (α−1)h'(−y) ≤ h'(−y) + α·c.

    h'' = h(h' − 1 + (h−z)²) < h'·(h − z), where h' grows with z and h − z falls, so that on a cell each is
    bounded from its ends; c also by h'(τ−y). Outside the grid, see :func:`_gaussian_tails`.
    """
    alpha, tau = orders[:, None], shifts[:, None]
    y = _gaussian_grid(alpha * tau, 1 if queries is None else queries, cells)
    hazards = _Hazards(_hazard(y), _hazard(-y), _hazard(y - tau), _hazard(tau - y))
    log_above, log_below = special.log_ndtr(-y), special.log_ndtr(y)
    gain, loss = _gaussian_log_ratios(y, tau)
    bend_s, bend_f, bend_a, bend_b = _gaussian_bends(alpha, tau, y, hazards)
    weight = np.diff(y) ** 2 / 8.0
    inner = ComparisonTerms(
        np.logaddexp(
            log_above + log_gain_excess(alpha, gain) + _raise(weight * bend_s),
            log_below + log_loss_excess(alpha, loss) + _raise(weight * bend_f),
        ),
        log_above + alpha * gain + _raise(weight * bend_a),
        _raise_to_one(log_below + alpha * loss, weight * bend_b),
    )
    tails = _gaussian_tails(alpha, y, gain, loss)
    return ComparisonTerms(
        np.hstack([inner.log_excess, tails.log_excess]),
        np.hstack([inner.log_above, tails.log_above]),
        np.hstack([inner.log_below, tails.log_below]),
    )


@dataclass(frozen=True)
class _Hazards:
    """h at y, −y, y − τ and τ − y."""

    here: Floats
    mirrored: Floats
    behind: Floats
    shifted: Floats


def _gaussian_grid(peak: Floats, queries: int, cells: int) -> Floats:
    """From −14 to α·τ + 14, dense where the maximisers of a chain of that length lie.

    The first steps are decided near 0 and near the peak α·τ of A, later ones up to √(2·log K) further out.
    A long way between the two is crossed with cells that grow with the distance from either.
    """
    reach = 3.0 + math.sqrt(2.0 * math.log(queries))
    half = peak / 2.0 + reach
    bunching = np.maximum(0.5 * np.log(half / 10.0), 1e-3)
    share = np.tanh(bunching * np.linspace(-1.0, 1.0, cells + 1)) / np.tanh(bunching)
    core = peak / 2.0 + half * share
    tail = np.linspace(_FAR, reach, _TAIL_CELLS, endpoint=False)
    left = np.broadcast_to(-tail, (len(peak), _TAIL_CELLS))
    return np.hstack([left, core, peak + tail[::-1]])


def _gaussian_log_ratios(y: Floats, tau: Floats) -> tuple[Floats, Floats]:
    """log S(y−τ)/S(y) ≥ 0 and log F(y−τ)/F(y) ≤ 0."""
    gain, loss = np.empty_like(y), np.empty_like(y)
    short = tau[:, 0] < _SHORT_SHIFT
    gain[short] = _integrated_hazard(y[short], tau[short], 1.0)
    loss[short] = -_integrated_hazard(y[short], tau[short], -1.0)
    y, tau = y[~short], tau[~short]
    gain[~short] = special.log_ndtr(tau - y) - special.log_ndtr(-y)
    loss[~short] = special.log_ndtr(y - tau) - special.log_ndtr(y)
    return np.maximum(gain, 0.0), np.minimum(loss, 0.0)


def _integrated_hazard(y: Floats, tau: Floats, sign: float) -> Floats:
    """∫ h(sign·x) dx from y − τ to y by three Gauss nodes: to 1e-10 for τ < 0.02 and |y| < 14."""
    total = np.zeros_like(y)
    for node, weight in zip(_GAUSS_NODES, _GAUSS_WEIGHTS, strict=True):
        total += weight * _hazard(sign * (y - tau * node))
    return tau * total


def _hazard(x: Floats) -> Floats:
    """φ(x)/S(x) of the normal distribution."""
    hazard: Floats = math.sqrt(2.0 / math.pi) / special.erfcx(x / math.sqrt(2.0))
    return hazard


def _gaussian_bends(
    alpha: Floats, tau: Floats, y: Floats, hazards: _Hazards
) -> tuple[Floats, Floats, Floats, Floats]:
    """On each cell, minus the second derivatives of log D_S, log D_F, log A and log B, from above."""
    slope_here = _hazard_slope(hazards.here, y)[:, 1:]
    slope_mirrored = _hazard_slope(hazards.mirrored, -y)[:, :-1]
    slope_shifted = _hazard_slope(hazards.shifted, tau - y)[:, :-1]
    change = slope_shifted * np.minimum(tau * (hazards.mirrored + y)[:, 1:], 1.0)
    below_two = np.maximum(2.0 - alpha, 0.0) / 4.0
    spread_s = hazards.here[:, 1:] - hazards.behind[:, :-1]
    spread_f = hazards.shifted[:, :-1] - hazards.mirrored[:, 1:]
    return (
        2.0 + below_two * spread_s**2,
        2.0 + np.maximum(alpha - 2.0, 0.0) * change + below_two * spread_f**2,
        slope_here,
        slope_mirrored + alpha * change,
    )


def _hazard_slope(hazard: Floats, x: Floats) -> Floats:
    """h' = h(h − x), kept in [0, 1] where rounding would leave it."""
    return np.clip(hazard * (hazard - x), 0.0, 1.0)


def _gaussian_tails(alpha: Floats, y: Floats, gain: Floats, loss: Floats) -> ComparisonTerms:
    """One line for all y left of the grid and one for all y right of it.

    Left of y₀: A ≤ S(y₀)^(1−α), and B grows with y as the reversed hazard falls, so
    D ≤ (S(y₀)^(1−α) − 1) + B(y₀). Right of y₁ > α·τ: A falls, since
    α·h(y−τ) − (α−1)h(y) ≥ h(y−τ) − (α−1)τ ≥ y − α·τ, and B ≤ F ≤ 1, so D ≤ A(y₁).
    """
    first, last = y[:, :1], y[:, -1:]
    left_above = (1.0 - alpha) * special.log_ndtr(-first)
    left_below = special.log_ndtr(first) + alpha * loss[:, :1]
    left_excess = np.logaddexp(np.log(np.expm1(left_above)), left_below)
    right_above = special.log_ndtr(-last) + alpha * gain[:, -1:]
    return ComparisonTerms(
        np.hstack([left_excess, right_above]),
        np.hstack([left_above, right_above]),
        np.hstack([left_below, np.zeros_like(right_above)]),
    )


def _raise(cell_excess: Floats) -> Floats:
    """For each grid point the larger of the amounts of its two cells."""
    raised = np.empty((cell_excess.shape[0], cell_excess.shape[1] + 1))
    raised[:, 1:-1] = np.maximum(cell_excess[:, 1:], cell_excess[:, :-1])
    raised[:, 0], raised[:, -1] = cell_excess[:, 0], cell_excess[:, -1]
    return raised


def _raise_to_one(log_values: Floats, cell_excess: Floats) -> Floats:
    """Raised values that grow and are below 1: a cell too wide for its chord is given 1 at both ends."""
    wide = np.where(log_values[:, 1:] + cell_excess > 0.0, np.inf, cell_excess)
    return np.minimum(log_values + _raise(wide), 0.0)


def log_gain_excess(alpha: Floats, log_ratio: Floats) -> Floats:
    """log(e^(αu) − 1 − α(e^u − 1)) for u ≥ 0, to a few units in the last place for every α > 1; −∞ at u = 0.

    With k = α − 1 the argument is e^u(e^(ku) − 1) − k(e^u − 1), where nothing cancels that vanishes with k.
    """
    k = alpha - 1.0
    far = np.maximum(log_ratio, _SERIES_REACH / alpha)
    rising = alpha * far + np.log(k * np.exp(-k * far) * np.expm1(-far) - np.expm1(-k * far))
    near = np.minimum(log_ratio, _SERIES_REACH / alpha)
    return np.where(near < log_ratio, rising, _log_excess_series(k, near))


def log_loss_excess(alpha: Floats, log_ratio: Floats) -> Floats:
    """The same for u ≤ 0."""
    k = alpha - 1.0
    far = np.minimum(log_ratio, -_SERIES_REACH / alpha)
    falling = np.log(np.exp(far) * np.expm1(k * far) - k * np.expm1(far))
    near = np.maximum(log_ratio, -_SERIES_REACH / alpha)
    return np.where(near > log_ratio, falling, _log_excess_series(k, near))


def _log_excess_series(k: Floats, u: Floats) -> Floats:
    """The same where α·|u| ≤ 1/2, as k·u²·(((u − 1)e^u + 1)/u² + k·e^u·(e^(ku) − 1 − ku)/(ku)²)."""
    rest = _power_series(_WEIGHTED_REST, u) + k * np.exp(u) * _power_series(_EXPONENTIAL_REST, k * u)
    return np.log(k * rest) + 2.0 * np.log(np.abs(u))


def _power_series(coefficients: Floats, x: Floats) -> Floats:
    total = np.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        total *= x
        total += coefficient
    return total
