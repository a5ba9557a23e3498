"""From Gaussian DP to the other notions, and the μ that they allow.

The (ε, δ) of μ-GDP is exact: see ``gaussian_profile``.
"""

import math

import numpy as np

from dpledger.accounting.numerics import round_up
from dpledger.accounting.rounding import Direction, widen
from dpledger.accounting.solving import prove_nearby
from dpledger.accounting.validation import Floats, check_non_negative, check_open_unit

__all__ = ["classic_gaussian_mu", "gdp_renyi", "gdp_rho", "mu_within_zcdp"]


def gdp_rho(mu: float) -> float:
    """ρ of any μ-GDP mechanism, rounded up.

    Statement: ρ = μ²/2. Conditions: either adjacency.
    Source: Dong, Roth, Su 2022, Corollary B.6: Rényi divergence obeys the Blackwell order, so it is at
    most that of N(0, 1) and N(μ, 1).
    """
    mu = check_non_negative("mu", mu)
    return check_non_negative("mu²/2", round_up(mu * mu / 2.0, ulps=2)) if mu else 0.0


def gdp_renyi(mu: float, orders: Floats) -> Floats:
    """ε(α) = αμ²/2 of any μ-GDP mechanism, rounded up; source as in :func:`gdp_rho`."""
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused by who keeps it
        curve: Floats = widen(orders * gdp_rho(mu), Direction.UP, ulps=1) if mu else np.zeros_like(orders)
    return curve


def mu_within_zcdp(rho: float) -> float:
    """The largest μ such that every μ-GDP mechanism is ρ-zCDP, rounded down: μ = √(2ρ)."""
    rho = check_non_negative("rho", rho)
    if rho == 0.0:
        return 0.0
    return prove_nearby(math.sqrt(2.0) * math.sqrt(rho), lambda mu: gdp_rho(mu) <= rho, Direction.DOWN)


def classic_gaussian_mu(epsilon: float, delta: float) -> float:
    """The μ of the textbook Gaussian mechanism for (ε, δ), rounded down.

    Statement: μ = ε/√(2·ln(1.25/δ)).
    Conditions: 0 < ε < 1, 0 < δ < 1.
    Source: Dwork and Roth 2014, Theorem A.1; Wang, Lemma 15.3.
    """
    epsilon, delta = check_open_unit("epsilon", epsilon), check_open_unit("delta", delta)
    return widen(epsilon / math.sqrt(2.0 * (math.log(1.25) - math.log(delta))), Direction.DOWN, ulps=8)
