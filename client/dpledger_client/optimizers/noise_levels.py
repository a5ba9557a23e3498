"""Noise for a sensitivity, rounded so that no step costs more than it was planned to cost.

The ledger reads numbers as the decimals that they are written as and adds up exactly. A product such as
3 · 0.7 = 2.0999999999999996 would cost a little more than a plan at sensitivity 1 with noise 0.7 says, and
the last of a round number of steps would be refused.
"""

import math
from fractions import Fraction

__all__ = ["noise_for_multiplier", "noise_for_rho"]


def noise_for_multiplier(multiplier: float, sensitivity: float) -> float:
    """multiplier · sensitivity, written as no less than the product of the two as they are written."""
    wanted = _as_written(multiplier) * _as_written(sensitivity)
    try:
        noise = float(wanted)
    except OverflowError:  # refused by whoever is given it
        return math.inf
    return noise if _as_written(noise) >= wanted else math.nextafter(noise, math.inf)


def noise_for_rho(sensitivity: float, rho: float) -> float:
    """The noise for which a Gaussian costs at most ρ: σ² ≥ Δ²/(2ρ) for the numbers as they are written."""
    noise = sensitivity / math.sqrt(2.0 * rho)
    if not 0.0 < noise < math.inf:
        return noise
    least = _as_written(sensitivity) ** 2 / (2 * _as_written(rho))
    while _as_written(noise) ** 2 < least:
        noise = math.nextafter(noise, math.inf)
    return noise


def _as_written(number: float) -> Fraction:
    return Fraction(repr(float(number)))
