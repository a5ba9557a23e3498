"""The exact privacy profile of a Gaussian, and its inverses.

Statement: N(0, 1) against N(μ, 1), in either direction, is (ε, δ)-private if and only if
δ ≥ Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ). Conditions: either adjacency; μ is the L2 sensitivity under
that adjacency over the noise's standard deviation. Source: Balle and Wang 2018, Theorem 8
("analytic Gaussian mechanism").

How it is evaluated: with t = ε/μ − μ/2 and Mills' ratio M(x) = Φ(−x)/φ(x), the identity
e^ε φ(t + μ) = φ(t) gives δ = φ(t)·(M(t) − M(t + μ)). The difference is of two numbers of one sign;
for small μ, where it would cancel, it is the integral of −M′(x) = 1 − x·M(x) instead.
"""

import math

import numpy as np
from scipy import special

from dpledger.accounting.errors import InvalidInput
from dpledger.accounting.numerics import exp_above
from dpledger.accounting.rounding import Direction, widen
from dpledger.accounting.solving import newton_root, prove_nearby
from dpledger.accounting.validation import check_non_negative, check_open_unit, check_positive

__all__ = [
    "classic_gaussian_noise_std",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_log_delta",
    "gaussian_mu_within",
]

_EPS = 2.0**-52
_LARGEST_LOG = 700.0
_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
_SQRT_HALF_PI = math.sqrt(0.5 * math.pi)
_SQRT_HALF = math.sqrt(0.5)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)
_UNIT_NODES, _UNIT_WEIGHTS = 0.5 * (_NODES + 1.0), 0.5 * _WEIGHTS
_INTEGRATE_BELOW = 0.5
_FAR = 60.0
_LARGEST = 1e150


def gaussian_delta(epsilon: float, mu: float) -> float:
    """δ of a Gaussian at ε, rounded up; see the module's text for statement and source.

    Examples
    --------
    >>> round(gaussian_delta(1.0, 1.0), 6)
    0.126937
    """
    epsilon, mu = check_non_negative("epsilon", epsilon), check_non_negative("mu", mu)
    if mu == 0.0:
        return 0.0
    return exp_above(gaussian_log_delta(epsilon, mu))


def gaussian_log_delta(epsilon: float, mu: float) -> float:
    """log δ of a Gaussian at ε ≥ 0 for μ > 0, rounded up; inputs are taken as checked."""
    ratio = min(epsilon / mu, _LARGEST)  # a smaller one gives a larger δ
    near, far = ratio - 0.5 * mu, ratio + 0.5 * mu
    if near > _FAR:
        value = -0.5 * near * near - _LOG_SQRT_2PI - math.log(near)  # M(x) ≤ 1/x
    elif near < 0.0 and mu >= _INTEGRATE_BELOW:
        value = math.log(_direct(near, far))
    else:
        value = -0.5 * near * near - _LOG_SQRT_2PI + _log_mills_drop(near, mu)
    return min(0.0, value + _log_error(value, near, far))


def _log_error(value: float, near: float, far: float) -> float:
    """Bound on the absolute error of log δ: rounding of ``near`` (relative to ``far``), or of its own sum."""
    return _EPS * (32.0 + 4.0 * abs(value) + 8.0 * far * (max(near, 0.0) + 3.0))


def _direct(near: float, far: float) -> float:
    """δ where Φ(−near) is at least one half and the subtraction loses nothing."""
    lost = math.exp(-0.5 * near * near - _LOG_SQRT_2PI) * _mills(far)
    return float(special.ndtr(-near)) - lost


def _mills(x: float) -> float:
    return _SQRT_HALF_PI * float(special.erfcx(x * _SQRT_HALF))


def _log_mills_drop(start: float, width: float) -> float:
    """log(M(start) − M(start + width)), the difference to full relative precision."""
    if width >= _INTEGRATE_BELOW:
        return math.log(_mills(start) - _mills(start + width))
    x = start + width * _UNIT_NODES
    slope = 1.0 - x * (_SQRT_HALF_PI * special.erfcx(x * _SQRT_HALF))
    return math.log(width) + math.log(float(_UNIT_WEIGHTS @ slope))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The smallest ε at which a Gaussian with ``mu`` is (ε, δ)-private, rounded up.

    The answer satisfies ``gaussian_delta(answer, mu) <= delta``.

    Examples
    --------
    >>> round(gaussian_epsilon(1.0, 1e-5), 4)
    4.3772
    """
    mu, delta = check_non_negative("mu", mu), check_open_unit("delta", delta)
    goal = _log_down(delta)
    if mu == 0.0 or gaussian_log_delta(0.0, mu) <= goal:
        return 0.0
    high = 0.5 * mu * mu + mu * math.sqrt(2.0 * -math.log(delta))
    if not math.isfinite(high):
        raise InvalidInput("mu", "small enough for a finite epsilon", mu)
    found = newton_root(lambda epsilon: _in_epsilon(epsilon, mu, goal), high)
    return prove_nearby(found, lambda epsilon: gaussian_log_delta(epsilon, mu) <= goal, Direction.UP)


def gaussian_mu_within(epsilon: float, delta: float) -> float:
    """The largest μ whose Gaussian is (ε, δ)-private, rounded down.

    The answer satisfies ``gaussian_delta(epsilon, answer) <= delta``.

    Examples
    --------
    >>> round(gaussian_mu_within(1.0, 1e-5), 5)
    0.26805
    """
    epsilon, delta = check_non_negative("epsilon", epsilon), check_open_unit("delta", delta)
    goal = _log_down(delta)
    low = max(delta, math.sqrt(2.0) * _root_rho(epsilon, delta))
    found = newton_root(lambda mu: _in_mu(epsilon, mu, goal), low)
    return prove_nearby(found, lambda mu: gaussian_log_delta(epsilon, mu) <= goal, Direction.DOWN)


def _in_epsilon(epsilon: float, mu: float, goal: float) -> tuple[float, float]:
    """log δ − goal and its slope in ε, where ∂δ/∂ε = −φ(near)·M(far)."""
    log_delta = gaussian_log_delta(epsilon, mu)
    return log_delta - goal, -_density_over_delta(epsilon, mu, log_delta) * _mills(epsilon / mu + 0.5 * mu)


def _in_mu(epsilon: float, mu: float, goal: float) -> tuple[float, float]:
    """log δ − goal and its slope in μ, where ∂δ/∂μ = φ(near)."""
    log_delta = gaussian_log_delta(epsilon, mu)
    return log_delta - goal, _density_over_delta(epsilon, mu, log_delta)


def _density_over_delta(epsilon: float, mu: float, log_delta: float) -> float:
    """A slope only leads to the root, which is proven by itself: it may be cut where it overflows."""
    near = epsilon / mu - 0.5 * mu
    return math.exp(min(-0.5 * near * near - _LOG_SQRT_2PI - log_delta, _LARGEST_LOG))


def _log_down(delta: float) -> float:
    """log δ less the rounding of one logarithm and one exponential."""
    value = math.log(delta)
    return value - 4.0 * _EPS * (1.0 - value)


def _root_rho(epsilon: float, delta: float) -> float:
    """√ρ of the ρ that Bun and Steinke's conversion allows: a μ that is private but not the largest."""
    log_inverse = -math.log(delta)
    return epsilon / (math.sqrt(log_inverse + epsilon) + math.sqrt(log_inverse))


def classic_gaussian_noise_std(epsilon: float, delta: float, sensitivity: float) -> float:
    """The textbook noise of the Gaussian mechanism, rounded up.

    Statement: σ = Δ·√(2·ln(1.25/δ))/ε is (ε, δ)-private.
    Conditions: 0 < ε < 1, 0 < δ < 1; Δ the L2 sensitivity under the adjacency at hand.
    Source: Dwork and Roth 2014, Theorem A.1; Lee and Kifer 2018, Theorem 3.3; Wang, Lemma 15.3.

    Examples
    --------
    >>> round(classic_gaussian_noise_std(0.5, 1e-5, 1.0), 4)
    9.6896
    """
    sensitivity, delta = check_positive("sensitivity", sensitivity), check_open_unit("delta", delta)
    epsilon = check_open_unit("epsilon", epsilon)
    factor = math.sqrt(2.0 * (math.log(1.25) - math.log(delta))) / epsilon
    return check_positive("noise_std", widen(sensitivity * factor, Direction.UP, ulps=8))
