"""The moments accountant in closed form, within its conditions."""

import math

import numpy as np

from dpledger.accounting.errors import Unproven
from dpledger.accounting.numerics import round_up
from dpledger.accounting.validation import Floats, check_orders, check_positive, check_rate

__all__ = ["moments_accountant_curve"]

_MOST_RATE = 0.2
_LEAST_NOISE, _MOST_NOISE = 4.0, 1e100
_LEAST_PRODUCT = 1e-300
"""A larger q(α−1) makes L smaller, and both conditions stricter."""


def moments_accountant_curve(rate: float, mu: float, orders: Floats) -> Floats:
    """The closed form for Gaussian noise on a Poisson sample; refused outside its conditions.

    Statement: ε(α) = 2q²α/σ², σ = 1/μ the noise over the sensitivity.
    Conditions: Poisson sampling, add-remove adjacency, q ≤ 1/5, σ ≥ 4, and with L = ln(1 + 1/(q(α−1))),
    1 < α ≤ σ²L/2 − 2 ln σ and α·(L + ln(qα) + 1/(2σ²)) ≤ σ²L²/2 − ln 5 − 2 ln σ.
    Source: Mironov, Talwar, Zhang 2019, Theorem 11.

    Lemma 15.10 (Abadi et al. 2016) states q²λ(λ+1)/((1−q)σ²) + O(q³λ³/σ³) for the log-moment at
    λ = α − 1, for σ ≥ 1, q ≤ 1/(16σ), λ ≤ σ² ln(1/(qσ)). Its remainder has no stated constant, so it gives
    no number, and without the remainder it is false: at σ = 1, q = 1/16, λ = 2.77 the exact log-moment
    is 0.04727, the leading term 0.04358. The exact curve (``poisson_gaussian``) is always tighter.
    """
    rate, orders = check_rate("rate", rate), check_orders(orders)
    noise = 1.0 / check_positive("mu", mu)
    if rate > _MOST_RATE or not _LEAST_NOISE <= noise <= _MOST_NOISE:
        raise Unproven(f"the closed form needs rate <= 0.2 and noise >= 4, found {rate!r} and {noise!r}")
    if rate == 0.0:
        return np.zeros(orders.size)
    refused = orders[~_is_covered(rate, noise, orders)]
    if refused.size:
        raise Unproven(f"the closed form covers no order {refused[0]:g} at rate {rate!r} and noise {noise!r}")
    return round_up(2.0 * orders * (rate * mu) ** 2, ulps=8)


def _is_covered(rate: float, noise: float, orders: Floats) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Both conditions on α, each with a margin for rounding."""
    logs = np.log1p(1.0 / np.maximum(rate * (orders - 1.0), _LEAST_PRODUCT))
    half = noise * noise / 2.0
    first = orders * (1.0 + 1e-12) <= half * logs - 2.0 * math.log(noise)
    spent = orders * (logs + np.log(rate * orders) + 1.0 / (4.0 * half))
    second = spent + 1e-12 * np.abs(spent) <= half * logs * logs - math.log(5.0) - 2.0 * math.log(noise)
    return first & second
