"""The Sampling Composition of A-DDP (Cheng, Liu, Wang, Lu 2020, Theorem 1).

Statement
    T rounds of Gaussian noise σ, each on a sample that holds any one record with probability p, are
    (ε, δ)-DP with δ = Σ_{i=1..T} C(T,i) p^i (1−p)^(T−i) · δ_G(ε; H√i/σ), δ_G the Gaussian's exact profile.
Conditions
    Replace-one adjacency, where H is the sensitivity of one round *when the record is drawn*: for
    gradients clipped at C that is H = 2C, never C (Algorithm 1 of the paper uses C: one release claimed
    (1, 1e-5) then has δ = 0.0104). σ, p and T fixed in advance: it is not proven when σ is adapted. The
    sample is drawn independently of the records' values (Poisson, or of fixed size).
Why it holds
    Draw the rounds' positions first: they are the same for both neighbours. Given that i rounds drew the
    record the rest is an adaptive composition of Gaussians with μ = H√i/σ; the hockey-stick is jointly
    convex, so the mixture's δ is at most the mean. Three to 38 times looser in ε than the subsampled
    Gaussian's curve: offered for comparison with the paper, not for decisions.
"""

import math

import numpy as np
from scipy import special

from dpledger.accounting.gaussian_profile import gaussian_epsilon, gaussian_log_delta
from dpledger.accounting.numerics import exp_above, log_binomials
from dpledger.accounting.rounding import Direction, widen
from dpledger.accounting.solving import bracketed_root, prove_nearby
from dpledger.accounting.validation import (
    Floats,
    check_count,
    check_non_negative,
    check_open_unit,
    check_positive,
    check_rate,
)

__all__ = ["MOST_ROUNDS", "sampling_composition_delta", "sampling_composition_epsilon"]

MOST_ROUNDS = 1_000_000
_EPS = 2.0**-52
_NEGLIGIBLE = -760.0
"""Binomial terms below e^−760 are not summed but charged whole: δ_G is at most 1."""


def sampling_composition_delta(
    epsilon: float, *, rate: float, rounds: int, noise_std: float, replace_one_sensitivity: float
) -> float:
    """δ of A-DDP's T rounds at ε, rounded up; see the module's text.

    Parameters
    ----------
    rate, rounds
        p and T.
    noise_std
        σ, the standard deviation of each round's noise.
    replace_one_sensitivity
        H: how far one round moves when one record is *replaced*; twice the clipping bound.
    """
    epsilon = check_non_negative("epsilon", epsilon)
    log_masses, hits = _log_masses(check_rate("rate", rate), check_count("rounds", rounds, most=MOST_ROUNDS))
    mu = _mu(noise_std, replace_one_sensitivity)
    return exp_above(_log_mixture(epsilon, mu, log_masses, hits, rounds))


def sampling_composition_epsilon(
    delta: float, *, rate: float, rounds: int, noise_std: float, replace_one_sensitivity: float
) -> float:
    """ε of A-DDP's T rounds at δ, rounded up: :func:`sampling_composition_delta` solved for ε."""
    delta = check_open_unit("delta", delta)
    log_masses, hits = _log_masses(check_rate("rate", rate), check_count("rounds", rounds, most=MOST_ROUNDS))
    mu = _mu(noise_std, replace_one_sensitivity)
    goal = math.log(delta) - 8.0 * _EPS * (1.0 - math.log(delta))

    def excess(epsilon: float) -> float:
        return _log_mixture(epsilon, mu, log_masses, hits, rounds) - goal

    if excess(0.0) <= 0.0:
        return 0.0
    most = gaussian_epsilon(widen(mu * math.sqrt(rounds), Direction.UP, ulps=4), delta)
    found = bracketed_root(excess, 0.0, most, relative=1e-9)
    return prove_nearby(found, lambda epsilon: excess(epsilon) <= 0.0, Direction.UP)


def _mu(noise_std: float, replace_one_sensitivity: float) -> float:
    ratio = check_positive("replace_one_sensitivity", replace_one_sensitivity) / check_positive(
        "noise_std", noise_std
    )
    return check_positive("replace_one_sensitivity / noise_std", widen(ratio, Direction.UP, ulps=1))


def _log_masses(rate: float, rounds: int) -> tuple[Floats, Floats]:
    """Numbers of hits i ≥ 1 that matter, with their log-probability rounded up."""
    hits = np.arange(1.0, rounds + 1.0)
    choose = log_binomials(rounds)[1:]
    drawn, left = special.xlogy(hits, rate), special.xlog1py(rounds - hits, -rate)
    size = 3.0 * float(special.gammaln(rounds + 1.0)) - np.maximum(drawn + left, -1e9) + 1.0
    logs = choose + drawn + left + 8.0 * _EPS * size
    kept = logs > _NEGLIGIBLE
    return np.minimum(logs[kept], 0.0), hits[kept]


def _log_mixture(epsilon: float, mu: float, log_masses: Floats, hits: Floats, rounds: int) -> float:
    """log δ, rounded up, with every dropped term charged e^−760."""
    logs = [gaussian_log_delta(epsilon, mu * root) for root in np.sqrt(hits).tolist()]
    dropped = _NEGLIGIBLE + math.log(rounds)
    total = float(special.logsumexp(np.append(log_masses + np.array(logs), dropped)))
    return total + 8.0 * _EPS * (abs(total) + math.log1p(rounds) + 4.0)
