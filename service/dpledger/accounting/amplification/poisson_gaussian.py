"""The Poisson-subsampled Gaussian: its Rényi curve at any real orders, exact and rounded up.

Statement
    With N the standard normal density, z = μu − μ²/2 and μ = sensitivity / noise, the curve is
    ε(α) = log I(α) / (α−1), I(α) = E_{u~N}[(1 − q + q·e^z)^α]. It holds in both directions: the
    divergence of the mixture from the Gaussian is the larger one.
Conditions
    Poisson sampling at rate q, add-remove adjacency, sensitivity under it, any real α > 1.
Source
    Mironov, Talwar, Zhang 2019, Theorems 4 and 5. Trapezoidal rule: Trefethen and Weideman 2014,
    Theorem 5.1. Far orders: Minkowski's inequality in L^α.

How it is evaluated, and why the result is an upper bound
---------------------------------------------------------
Write t = q(e^z − 1), L = log(1 + t) and g(t) = (1+t)^α − 1 − αt ≥ 0. As E[t] = 0, I − 1 = E[g(t)].

*Far orders*, x = (α−1)μ²/2 well above log(α/q): by Minkowski I^(1/α) ≤ 1 − q + q·e^x, and since
I ≥ (q·e^x)^α the excess of log I is at most α(1−q)/q·e^(−x) ≤ e^−22.

*Small whole orders*: I − 1 = Σ_k C(n,k) (1−q)^(n−k) q^k (e^(k(k−1)μ²/2) − 1), all terms positive: one
product of the table of binomials with a vector.

*All others*: the trapezoidal rule with step h on the line. In the strip |Im u| < a ≤ π/μ the base
1 − q + q·e^z never meets the negative axis, so F(u) = N(u)(1 − q + q·e^z)^α is analytic there, and
|F(x+iy)| ≤ e^(y²/2) F(x). The theorem bounds the error by 2e^(a²/2) I / (e^(2πa/h) − 1), which is at
most e^(−T)·I when 2πa/h = a²/2 + T + 1. The same holds for the integrands N and N·e^z, hence the
sum S over all nodes of h·N·g obeys |S − (I−1)| ≤ e^(−T) (I + 1 + 2αq).

Nodes below −X, X = √(2T), are dropped: there −q < t < 0 and 0 ≤ g ≤ (α−1)q, and they sum to less than
(α−1)·q·e^(−T). Nodes beyond U ≥ αμ + X are dropped: from αμ on (log F)' ≤ αμ − u, so h·F(U) is at
most e^((h²−X²)/2) ≤ 1.6e^(−T) times the sum of all, and what follows at most 1/(e^(Xh) − 1) times
h·F(U). T is chosen from q, μ and α so that all this is negligible beside I − 1.

Rounding is charged term by term (every elementary function within 4 units in the last place): the
error of L is at most 9·2^−53·s, s = (|t| + (t+q)(|u|+μ)μ)/(1+t) + |L|, and sums of n terms add n·2^−53.
"""

import bisect
import functools
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpledger.accounting.rounding import Direction, widen
from dpledger.accounting.validation import Floats, check_non_negative, check_orders, check_rate

__all__ = ["poisson_gaussian_curve", "poisson_gaussian_log_moment"]

_UNIT = 2.0**-53
_FLOOR = 1e-50
"""Rates and μ below this are read as this: I is non-decreasing in both (it is convex in q with its
minimum at q = 0, and a smaller μ is post-processing by noise)."""
_FAR = 22.0
_TABLE_ORDER, _TABLE_RATE = 64, 0.9
"""Whole orders up to 64 are summed by the table of binomials, at rates up to 0.9."""
_LINEAR = 600.0
"""Largest exponent that is summed in linear space."""
_TOLERANCE = 22.0
"""The quadrature's own error is about e^−22 of the result."""
_PRECISE = 1e-8
"""Where rounding may exceed this share of the result, the slower sum of positive terms is taken."""
_MAX_NODES, _MAX_CELLS = 2**16, 2**19
_SERIES_TERMS = 16
_STEPS_PER_OCTAVE = 16

_ROOT = math.sqrt(2.0 * math.pi)
_POWERS = np.arange(2.0, _TABLE_ORDER + 1.0)
_PAIRS = _POWERS * (_POWERS - 1.0) / 2.0
_PASCAL = np.array(
    [[float(math.comb(n, k)) for k in range(2, _TABLE_ORDER + 1)] for n in range(2, _TABLE_ORDER + 1)]
)
"""C(n, k) for n and k from 2 on."""

Bools = NDArray[np.bool_]


def poisson_gaussian_curve(rate: float, mu: float, orders: Floats) -> Floats:
    """ε(α) of the Poisson-subsampled Gaussian at every order, rounded up.

    Parameters
    ----------
    rate
        Sampling rate q in [0, 1]; 0 costs nothing, 1 is the plain Gaussian, α·μ²/2.
    mu
        Sensitivity over noise; for several Gaussians on one sample the root of the sum of squares.
    orders
        Strictly increasing real orders above 1.

    Examples
    --------
    >>> poisson_gaussian_curve(1.0, 2.0, np.array([3.0])).round(6).tolist()
    [6.0]
    """
    plan = _plan_of(orders)
    curve: Floats = _log_moments(rate, mu, plan) * plan.per_order
    if rate > 0.5:  # elsewhere what was rounded up cannot reach the curve without sampling
        np.minimum(curve, widen(plan.orders * (mu * mu / 2.0), Direction.UP, ulps=4), out=curve)
    return curve


def poisson_gaussian_log_moment(rate: float, mu: float, orders: Floats) -> Floats:
    """log I(α) = (α−1)·ε(α), rounded up; see the module's text."""
    return _log_moments(rate, mu, _plan_of(orders))


class _Plan(NamedTuple):
    """What depends on the orders alone; ``per_order`` is 1/(α−1), rounded up."""

    orders: Floats
    per_order: Floats
    in_table: Bools


def _plan_of(orders: Floats) -> _Plan:
    vector = np.ascontiguousarray(orders, dtype=np.float64)
    if vector.ndim != 1:  # the key of the remembered plan has no shape
        check_orders(orders)
    return _plan(vector.tobytes())


@functools.lru_cache(maxsize=64)
def _plan(key: bytes) -> _Plan:
    orders = check_orders(np.frombuffer(key))
    in_table = (orders == np.floor(orders)) & (orders <= _TABLE_ORDER)
    return _Plan(orders, (1.0 + 8.0 * _UNIT) / (orders - 1.0), in_table)


def _log_moments(rate: float, mu: float, plan: _Plan) -> Floats:
    rate, mu = check_rate("rate", rate), check_non_negative("mu", mu)
    orders = plan.orders
    if rate == 0.0 or mu == 0.0:
        return np.zeros(orders.size)
    check_non_negative("order · mu²", float(orders[-1]) ** 2 * mu * mu)
    if rate == 1.0:
        return widen(orders * (orders - 1.0) * (mu * mu / 2.0), Direction.UP, ulps=8)
    return _amplify(max(rate, _FLOOR), max(mu, _FLOOR), plan)


def _amplify(rate: float, mu: float, plan: _Plan) -> Floats:
    """Give each order to the method that suits it."""
    result, far = np.empty(plan.orders.size), _first_far(rate, mu, plan.orders)
    if far < result.size:
        result[far:] = _minkowski(rate, mu, plan.orders[far:])
    orders, near = plan.orders[:far], result[:far]
    in_table = plan.in_table[:far] if rate <= _TABLE_RATE else np.zeros(far, dtype=np.bool_)
    for members, method in ((in_table, _by_table), (~in_table, _by_quadrature)):
        chosen = orders[members]
        if chosen.size:
            near[members] = method(rate, mu, chosen)
    return result


def _first_far(rate: float, mu: float, orders: Floats) -> int:
    """Where Minkowski's inequality becomes as good as exact."""
    odds = math.log1p(-rate) - math.log(rate)

    def is_far(order: float) -> bool:
        return (order - 1.0) * mu * mu / 2.0 >= max(1.0, _FAR + odds + math.log(order))

    if not is_far(float(orders[-1])):
        return orders.size
    return bisect.bisect_left(orders.tolist(), True, key=is_far)


def _minkowski(rate: float, mu: float, orders: Floats) -> Floats:
    """α·log(1 − q + q·e^((α−1)μ²/2)), an upper bound of log I at every order."""
    peak = math.log(rate) + (orders - 1.0) * (mu * mu / 2.0)
    slack = 8.0 * _UNIT * (abs(math.log(rate)) + np.abs(peak) + 2.0)
    bound: Floats = orders * (np.logaddexp(math.log1p(-rate), peak) + slack)
    return bound


def _by_table(rate: float, mu: float, orders: Floats) -> Floats:
    """Whole orders up to 64: log(1 + Σ_k C(n,k) (1−q)^(n−k) q^k (e^(k(k−1)μ²/2) − 1)).

    All whole orders up to the largest are summed at once, and the given ones taken.
    """
    size = int(orders[-1]) - 1
    table = _PASCAL[:size, :size]
    pairs, rest = _PAIRS[:size] * (mu * mu), math.log1p(-rate)
    odds = math.log(rate) - rest
    exponents = pairs + _POWERS[:size] * odds
    stay = _POWERS[:size] * rest
    if float(exponents[-1]) <= _LINEAR:
        moments = _table_sum(table, exponents, pairs, stay)
    else:
        moments = _split_table_sum(table, exponents, pairs, stay)
    magnitude = float(pairs[-1]) + _TABLE_ORDER * (abs(odds) - rest)
    moments *= 1.0 + 4.0 * _UNIT * (size + 8.0 + magnitude)
    return moments[orders.astype(np.intp) - 2]


def _table_sum(table: Floats, exponents: Floats, pairs: Floats, stay: Floats) -> Floats:
    sums = table @ (np.exp(exponents) * np.expm1(-pairs))
    moments: Floats = np.log1p(sums * -np.exp(stay))
    return moments


def _split_table_sum(table: Floats, exponents: Floats, pairs: Floats, stay: Floats) -> Floats:
    """As above where the last terms overflow: the orders that reach them are summed scaled down.

    The exponents are convex in k, so the large ones come last, and at most 64·(22 + log 64) < 1,700,
    as no order is far. A term that underflows once scaled is below e^−200 of its order's sum, and
    there the 1 that is left out of e^(k(k−1)μ²/2) − 1 only makes the result larger.
    """
    size = exponents.size - int(np.count_nonzero(exponents > _LINEAR))
    low = _table_sum(table[:size, :size], exponents[:size], pairs[:size], stay[:size])
    shift = float(exponents[-1]) - _LINEAR
    high = np.log(table[size:] @ np.exp(exponents - shift)) + (stay[size:] + shift)
    moments: Floats = np.concatenate((low, high))
    return moments


class _Grid(NamedTuple):
    """Step h = 2^(rung/16), reach X and e^(−T) of the trapezoidal rule."""

    rung: int
    reach: float
    slack: float

    @property
    def step(self) -> float:
        return float(2.0 ** (self.rung / _STEPS_PER_OCTAVE))

    def block_end(self, mu: float, orders: Floats, start: int) -> int:
        """Where the next block of orders starts: its nodes span at most twice the first order's."""
        width = 2.0 * (float(orders[start]) * mu + 2.0 * self.reach)
        if float(orders[-1]) * mu + 2.0 * self.reach <= width:
            end = orders.size
        else:
            end = int(orders.searchsorted((width - 2.0 * self.reach) / mu, "right"))
        return min(end, start + max(1, int(_MAX_CELLS * self.step / width)))


def _grid(rate: float, mu: float, low: float, high: float) -> _Grid:
    """A rule whose error is negligible beside I − 1, about α(α−1)/2·(q·min(μ, 1))² at its smallest."""
    scale = min(1.0, low * (low - 1.0) / 2.0 * (rate * min(mu, 1.0)) ** 2)
    digits = _TOLERANCE - math.log(scale) + math.log1p(high * rate)
    reach = math.sqrt(2.0 * digits)
    strip = min(3.141592 / mu, reach)
    step = 2.0 * math.pi * strip / (strip * strip / 2.0 + digits + 1.0)
    return _Grid(math.floor(_STEPS_PER_OCTAVE * math.log2(step)), reach, math.exp(-digits))


@functools.lru_cache(maxsize=256)
def _rule(rung: int, first: int, last: int) -> tuple[Floats, Floats]:
    """Nodes u = j·h and weights h·N(u) for j = first..last; they depend on no privacy parameter."""
    step = 2.0 ** (rung / _STEPS_PER_OCTAVE)
    u = step * np.arange(first, last + 1.0)
    return u, np.exp(u * u * -0.5) * (step / _ROOT)


class _Nodes(NamedTuple):
    """The trapezoidal rule for one (q, μ) and a block of orders: t and L at the nodes."""

    rate: float
    mu: float
    step: float
    u: Floats
    weights: Floats
    tilt: Floats
    log_ratio: Floats
    slack: float
    beyond: float
    """Bound on all dropped nodes on the right, as a share of the sum."""

    def sway(self) -> Floats:
        """The error of L in units of 9·2^−53; see the module's text."""
        moved = (self.tilt + self.rate) * ((np.abs(self.u) + self.mu) * self.mu)
        spread: Floats = (np.abs(self.tilt) + moved) / (1.0 + self.tilt) + np.abs(self.log_ratio)
        return spread


def _nodes(rate: float, mu: float, span: float, grid: _Grid) -> _Nodes:
    step = grid.step
    u, weights = _rule(grid.rung, -math.ceil(grid.reach / step), math.ceil(span / step))
    z = u * mu
    z -= mu * mu / 2.0
    beyond = 1.6 * grid.slack / math.expm1(grid.reach * step)
    if z[-1] < _LINEAR:
        tilt = np.expm1(z)
        tilt *= rate
        return _Nodes(rate, mu, step, u, weights, tilt, np.log1p(tilt), grid.slack, beyond)
    tilt = rate * np.expm1(np.minimum(z, _LINEAR))  # too small beyond, where it is only subtracted
    rising = np.logaddexp(math.log1p(-rate), math.log(rate) + z)
    log_ratio = np.where(z < 1.0, np.log1p(tilt), rising)
    return _Nodes(rate, mu, step, u, weights, tilt, log_ratio, grid.slack, beyond)


def _by_quadrature(rate: float, mu: float, orders: Floats) -> Floats:
    """Evaluate in blocks of orders with about the same nodes, so that little work is wasted."""
    parts, start = [], 0
    while start < orders.size:
        grid = _grid(rate, mu, float(orders[start]), float(orders[-1]))
        end = grid.block_end(mu, orders, start)
        parts.append(_block(rate, mu, orders[start:end], grid))
        start = end
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _block(rate: float, mu: float, orders: Floats, grid: _Grid) -> Floats:
    highest = float(orders[-1]) * mu
    span = highest + grid.reach
    if (span + grid.reach) / grid.step > _MAX_NODES:
        return _minkowski(rate, mu, orders)
    nodes = _nodes(rate, mu, span, grid)
    errors = _difference_errors(nodes, float(orders[0]), float(orders[-1]))
    if highest * (span + 1.0) < _LINEAR and errors.share < _PRECISE:
        return _by_differences(nodes, orders, errors)
    return _by_log_sum(nodes, orders)


def _by_differences(nodes: _Nodes, orders: Floats, errors: "_Errors") -> Floats:
    """log I through Σ w·((1+t)^α − 1) − α·Σ w·t, where moments are of moderate size."""
    excess = np.expm1(orders[:, None] * nodes.log_ratio) @ nodes.weights
    excess *= 1.0 + errors.share
    excess += orders * (errors.per_order - (1.0 + errors.share) * float(nodes.weights @ nodes.tilt))
    excess += errors.constant
    moments: Floats = np.log1p(excess)
    if errors.per_order * float(orders[0]) + errors.constant > _PRECISE * float(excess[0]):
        poor = errors.per_order * orders + errors.constant > _PRECISE * excess
        moments[poor] = np.minimum(moments[poor], _by_positive_sum(nodes, orders[poor]))
    return moments


class _Errors(NamedTuple):
    """Error of I − 1: as a share of it, per unit of the order, and a constant."""

    share: float
    per_order: float
    constant: float


def _difference_errors(nodes: _Nodes, low: float, high: float) -> _Errors:
    """What the sum of differences may be wrong by, for orders from ``low`` to ``high``.

    A term's rounding is at most (n+32)·2^−53·w·α·s·(1+t)^α, or with |t| for s·(1+t)^α where t < 0. Where
    αt < 1 the power is below e, and E[s·(1+t)] ≤ 2E|t| + qμ(2μ+1), E|t| = 2q·erf(μ/√8); the rule, whose step
    is below 0.93, is within a quarter of it in spite of the kinks. Where αt ≥ 1 the power is at most
    9g/min(1, α−1), as (1+αt)/(1+t)^α falls in t and 1 − 2/(1+1/α)^α is concave in α, 0 at 1 and at least
    1/9 from 2 on; and s ≤ 1 + 2(U+μ)μ. Since I is convex in α with I(1) = 1, the last two errors are the
    largest share of I − 1 at the lowest order.
    """
    rate, mu, slack = nodes.rate, nodes.mu, nodes.slack
    unit = 2.0 * _UNIT * (nodes.u.size + 32.0)
    last = float(nodes.u[-1])
    spread = 2.0 * rate * math.erf(mu / math.sqrt(8.0))
    steep = max(low / min(1.0, low - 1.0), high)
    share = 9.0 * unit * steep * (1.0 + 2.0 * (last + mu) * mu) + _UNIT * (3.0 * last * last + 20.0)
    per_order = 1.25 * unit * (2.72 * (2.0 * spread + rate * mu * (2.0 * mu + 1.0)) + spread)
    return _Errors(
        share + 2.0 * (nodes.beyond + slack),
        per_order + 3.0 * slack * rate,
        2.0 * slack + nodes.beyond,
    )


def _by_log_sum(nodes: _Nodes, orders: Floats) -> Floats:
    """log I by a log-sum-exp over the nodes, for moments of any size."""
    squares = nodes.u * nodes.u
    exponents = orders[:, None] * nodes.log_ratio - squares * 0.5
    peaks = exponents.max(axis=1)
    shares = np.exp(exponents - peaks[:, None])
    totals = shares.sum(axis=1)
    moments: Floats = np.log(totals * (nodes.step / _ROOT)) + peaks
    errors = (10.0 * orders * (shares @ nodes.sway()) + 3.0 * (shares @ squares)) / totals
    errors += squares.size + 40.0 + np.abs(peaks) + 4.0 * np.abs(moments)
    errors = _UNIT * errors + nodes.beyond + 3.0 * nodes.slack
    moments += errors
    poor = (errors > _PRECISE * moments) & (moments < 1.0)
    if poor.any():
        moments[poor] = np.minimum(moments[poor], _by_positive_sum(nodes, orders[poor]))
    return moments


def _by_positive_sum(nodes: _Nodes, orders: Floats) -> Floats:
    """log I through I − 1 = Σ w·g(t), g ≥ 0: no cancellation however small I − 1 is."""
    column, size, sway = orders[:, None], np.abs(nodes.tilt), nodes.sway()
    is_small = size <= 0.125
    series = (column * size <= 0.5) & is_small
    near = _binomial_remainder(np.where(series, nodes.tilt, 0.0), column) @ nodes.weights
    squares = nodes.u * nodes.u
    exponents = column * nodes.log_ratio + (math.log(nodes.step / _ROOT) - squares * 0.5)
    powers = np.where(series, 0.0, np.exp(exponents))
    lines = np.where(series, 0.0, nodes.weights * (1.0 + column * nodes.tilt))
    far = (powers - lines).sum(axis=1)

    both = powers + np.abs(lines)
    errors = 10.0 * orders * (both @ sway) + both @ (3.0 * squares + 40.0 + size.size)
    errors += 6.0 * orders * (orders - 1.0) * float((nodes.weights * size * sway) @ is_small)
    errors += near * (1e4 + size.size + 3.0 * squares[-1])
    upper = near + far + _UNIT * errors
    upper += (nodes.beyond + 2.0 * nodes.slack) * (1.0 + np.abs(upper))
    moments: Floats = np.log1p(upper + 3.0 * nodes.slack * nodes.rate * orders)
    return moments


def _binomial_remainder(tilt: Floats, order: Floats) -> Floats:
    """(1+t)^α − 1 − αt where α|t| ≤ 1/2 and |t| ≤ 1/8, by the binomial series to t^16.

    Neighbouring terms have a ratio of at most 1/6 at first and 1/8 from then on, so what is left out
    is below 1e-12 of the sum.
    """
    total = np.ones_like(tilt)
    for k in range(_SERIES_TERMS, 2, -1):
        total *= tilt
        total *= (order - (k - 1.0)) / k
        total += 1.0
    remainder: Floats = order * (order - 1.0) / 2.0 * tilt * tilt * total
    return remainder
