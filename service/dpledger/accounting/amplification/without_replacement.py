"""Sampling a fixed number of records without replacement, under replace-one adjacency."""

import functools
import math

import numpy as np
from scipy import special

from dpledger.accounting.amplification.poisson_gaussian import poisson_gaussian_log_moment
from dpledger.accounting.amplification.whole_orders import Curve, log_binomial_sums, through_whole_orders
from dpledger.accounting.numerics import exp_minus_line, round_up
from dpledger.accounting.orders import integers_up_to
from dpledger.accounting.rounding import Direction, widen
from dpledger.accounting.validation import Floats, check_non_negative, check_orders, check_rate

__all__ = ["dominating_pair_curve", "wang_balle_kasiviswanathan_curve"]

_UNIT = 2.0**-53
_LOG_SIZE = 800.0
_PANEL, _MAX_PANELS = 0.04, 4096
_NEGLIGIBLE = 1e-9
_QUADRATURE_SLACK = 1e-10
_LINEAR, _FLOOR = 600.0, 1e-50
_NO_MASS = 1e-300
_MAX_CELLS = 2**19


def wang_balle_kasiviswanathan_curve(
    rate: float, curve: Curve, orders: Floats, *, pure_epsilon: float | None = None
) -> Floats:
    """The curve of any mechanism run on a sample drawn without replacement.

    Statement: at whole α ≥ 2, with q the sample's share of the dataset,
    ε'(α) = log(1 + q² C(α,2) min{4(e^ε(2) − 1), e^ε(2) min{2, (e^ε(∞) − 1)²}}
    + Σ_{j=3..α} q^j C(α,j) e^((j−1)ε(j)) min{2, (e^ε(∞) − 1)^j}) / (α−1); chords of (α−1)ε'(α) between
    whole orders, from 0 at α = 1; at most ε(α).
    Conditions: without replacement, replace-one adjacency, dataset and sample sizes public; ε(∞) is
    the pure ε where there is one, and the factors min{2, …} are 2 where there is none.
    Source: Wang, Balle, Kasiviswanathan 2019, Theorem 9 (Lemma 2.3 of Chen 2020).
    """
    rate, orders = check_rate("rate", rate), check_orders(orders)
    if rate == 0.0:
        return np.zeros(orders.size)
    if rate == 1.0:
        return curve(orders)
    top = math.inf if pure_epsilon is None else check_non_negative("pure_epsilon", pure_epsilon)
    return through_whole_orders(orders, curve, functools.partial(_log_moments, rate, top))


def _log_moments(rate: float, top: float, wholes: Floats, base: Floats) -> Floats:
    powers = integers_up_to(base.size + 1)
    factors = np.minimum(math.log(2.0), powers * min(_log_expm1(top), 1.0))
    exponents = base + factors + powers * math.log(rate)
    exponents[0] = min(float(exponents[0]), math.log(4.0) + _log_expm1(float(base[0])) + 2.0 * math.log(rate))
    sums = log_binomial_sums(wholes, exponents)
    sizes = base[wholes.astype(np.intp) - 2] + wholes * (abs(math.log(rate)) + _LOG_SIZE)
    moments: Floats = np.logaddexp(0.0, sums + 8.0 * _UNIT * sizes)
    return moments


def _log_expm1(value: float) -> float:
    """log(e^value − 1) for value ≥ 0."""
    if value == 0.0 or value == math.inf:
        return -math.inf if value == 0.0 else math.inf
    return value + math.log(-math.expm1(-value))


def dominating_pair_curve(rate: float, mu: float, orders: Floats) -> Floats:
    """The curve of Gaussian noise on a sample drawn without replacement.

    Statement: with Q = N(0, 1), r = 1 − q + q·e^(μu − μ²/2) the ratio of (1−q)N(0, 1) + qN(μ, 1) to it and
    f(t) = t^α − 1 − α(t−1), ε'(α) = log(1 + E_Q[(f(r) + r·f(1/r))·1{r > 1}]) / (α−1); at most αμ²/2.
    Conditions: without replacement, replace-one adjacency, sensitivity under it (2C for vectors
    clipped to norm C), any real α > 1; several Gaussians on one sample enter with μ² added up.
    Source: Zhu, Dong, Wang 2022 (dominating pairs under sampling without replacement).

    Proof. Let x be the record that is replaced by x', and when its place is not drawn let y be drawn
    instead. Averaging over the other records (joint convexity), the two outputs are as far apart as
    (1−q)N(y) + qN(x) and (1−q)N(y) + qN(x') for some x, x', y with distances at most the sensitivity. By
    the advanced joint convexity of Balle, Barthe, Gaboardi 2018 their hockey-stick divergence at
    1 + q(γ−1), γ ≥ 1, is at most q times that of N(μ) from N(0) at γ, which is that of (1−q)Q + qN(μ, 1)
    from Q; below 1 the same holds with the two outputs exchanged. E[f] is a positive mixture of
    hockey-stick divergences, those above 1 giving f(r) and those below r·f(1/r), where r > 1.

    The Poisson-subsampled Gaussian at this sensitivity, E_Q[f(r)] over all r, is *not* a bound here: in two
    dimensions y may be as far from both x and x' as they are from each other, and then at q = 0.01,
    μ = 1, α = 2 the true value is 2.05e-4 and the subsampled Gaussian claims 1.72e-4.

    Evaluated as the exact moment of the subsampled Gaussian plus E[r·f(1/r); r > 1] − E[f(r); r < 1]. On
    panels in u the first is bounded from above by chords (r·f(1/r) is convex and rising in r, r is convex
    in u), the second from below by Jensen's inequality with Hoeffding's bound on the mean of r.
    """
    rate, mu, orders = check_rate("rate", rate), check_non_negative("mu", mu), check_orders(orders)
    if rate == 0.0 or mu == 0.0:
        return np.zeros(orders.size)
    check_non_negative("order · mu²", float(orders[-1]) ** 2 * mu * mu)
    unamplified = widen(orders * (mu * mu / 2.0), Direction.UP, ulps=4)
    if rate == 1.0:
        return unamplified
    rate, mu = max(rate, _FLOOR), max(mu, _FLOOR)
    moments = poisson_gaussian_log_moment(rate, mu, orders)
    gaps = (orders - 1.0) * (rate * math.erf(mu / math.sqrt(8.0)))
    least = np.minimum(moments, 600.0)
    close = gaps > _NEGLIGIBLE * least * np.exp(least)
    if close.any():
        gaps[close] = np.minimum(gaps[close], _mirror_gap(rate, mu, orders[close]))
    moments += np.log1p(gaps * np.exp(-moments))
    return np.minimum(round_up(moments / (orders - 1.0), ulps=16), unamplified)


def _mirror_gap(rate: float, mu: float, orders: Floats) -> Floats:
    """Upper bound on E[r·f(1/r); r > 1] − E[f(r); r < 1], in parts of bounded memory."""
    reach = math.sqrt(2.0 * (26.0 - math.log(rate * min(mu, 1.0) ** 2)))
    panels = min(_MAX_PANELS, math.ceil((mu / 2.0 + reach) / min(_PANEL, 0.1 / mu)))
    parts = np.array_split(orders, math.ceil(orders.size * panels / _MAX_CELLS))
    gaps = [_above(rate, mu, part, reach, panels) - _below(rate, mu, part, reach, panels) for part in parts]
    return np.concatenate(gaps)


def _above(rate: float, mu: float, orders: Floats, reach: float, panels: int) -> Floats:
    """E[r·f(1/r); r > 1] from above.

    With L = log r and y = −(α−1)L, r·f(1/r) = (e^y − 1 − y) + (α−1)(e^L − 1 − L).
    """
    whole: Floats = (orders - 1.0) * (rate * math.erf(mu / math.sqrt(8.0)) * (1.0 + _QUADRATURE_SLACK))
    if (mu / 2.0 + reach) * mu > _LINEAR:
        return whole
    u = np.linspace(mu / 2.0, mu + reach, panels + 1)
    logs = np.log1p(rate * np.expm1((u - mu / 2.0) * mu))
    excess = (orders - 1.0)[:, None]
    values = exp_minus_line(-excess * logs) + excess * exp_minus_line(logs)
    tail = (orders - 1.0) * (rate * min(mu, 1.0) * _density(reach))
    return np.minimum(whole, values @ _hat_weights(u) * (1.0 + _QUADRATURE_SLACK) + tail)


def _hat_weights(u: Floats) -> Floats:
    """Weights at evenly spaced ``u`` ≥ 0 that integrate piecewise linear functions against N(0, 1)."""
    mass = -np.diff(special.ndtr(-u))
    width = u[1] - u[0]
    rising = np.clip((-np.diff(_density(u)) - u[:-1] * mass) / width, 0.0, mass)
    weights: Floats = np.append(mass - rising, 0.0) + np.append(0.0, rising)
    return weights


def _below(rate: float, mu: float, orders: Floats, reach: float, panels: int) -> Floats:
    """E[f(r); r < 1] from below, by f at the mean of r on each panel.

    With L = log r and y = αL, f(r) = (e^y − 1 − y) − α(e^L − 1 − L).
    """
    edges = np.linspace(-reach, mu / 2.0, panels + 1)
    left, right = edges[:-1], edges[1:]
    mass = np.where(
        left > 0.0, special.ndtr(-left) - special.ndtr(-right), special.ndtr(right) - special.ndtr(left)
    )
    means = np.clip(-np.diff(_density(edges)) / np.maximum(mass, _NO_MASS), left, right)
    width = (reach + mu / 2.0) / panels
    z = (means - mu / 2.0 + mu * width * width / 8.0 + 1e-11 * (1.0 + np.abs(means))) * mu
    logs = np.log1p(rate * np.expm1(np.minimum(z, 0.0)))
    column = orders[:, None]
    values = np.maximum(exp_minus_line(column * logs) - column * exp_minus_line(logs), 0.0)
    slack = _QUADRATURE_SLACK + 1e-14 * orders / (orders - 1.0)
    lower: Floats = (values @ mass) * np.maximum(1.0 - slack, 0.0)
    return lower


def _density(u: Floats | float) -> Floats:
    values: Floats = np.exp(-0.5 * np.square(u)) / math.sqrt(2.0 * math.pi)
    return values
