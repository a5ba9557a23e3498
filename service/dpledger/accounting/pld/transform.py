"""Convolution powers of tilted measures by the fast Fourier transform, with a bound on every error."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from dpledger.accounting.pld.cells import ROUNDING
from dpledger.accounting.validation import Floats

__all__ = ["Factor", "Sum", "good_size", "tilted_sum"]

Complexes = NDArray[np.complex128]

_PER_LEVEL = 16.0 * ROUNDING
"""Error per level of a transform of sizes 2^n and 3·2^n, relative to Σ|x|: a twiddle's multiplication and an
addition, each at most √5 + 1 roundings, and a twiddle that is right to one; doubled for the one radix 3."""

_PER_PRODUCT = 4.0 * ROUNDING


@dataclass(frozen=True)
class Factor:
    """Masses at indices 0, 1, … whose sum of ``times`` independent draws is wanted."""

    masses: Floats
    times: int


@dataclass(frozen=True)
class Sum:
    """The law of the sum of all draws after tilting, on a window of indices.

    The mass at index first + j is e^(log_scale − tilt·(first + j)) times ``values[j]`` up to ``error``
    (absolute) and e^(±log_error), plus what lies a multiple of the window away.
    """

    values: Floats
    first: int
    error: float
    log_scale: float
    log_error: float
    tilt: float
    length: int

    @property
    def end(self) -> int:
        """The first index above the window."""
        return self.first + self.values.size

    @property
    def folded(self) -> bool:
        """Whether indices outside the window hold anything."""
        return self.first > 0 or self.end < self.length


def good_size(least: int) -> int:
    """The least 2^n or 3·2^n that is at least ``least``."""
    power = 1 << max(least - 1, 1).bit_length()
    return 3 * power // 4 if 3 * power // 4 >= least else power


def tilted_sum(factors: Sequence[Factor], tilt: float, first: int, size: int) -> Sum:
    """The law of the sum, each factor multiplied by e^(tilt·index) and normalised.

    Statement: with x the tilted factor of total 1, the transform of the sum is the product of powers of the
    transforms of x. Errors: a transform is off by at most η = 16u·log₂(size) at every frequency, since each
    input reaches each output by paths of modulus 1; moduli are at most 1 + η, so a product of n factors is
    off by at most n(η + 4u)(1 + η + 4u)^n, far less where they are small, and the way back by η more.
    Conditions: masses ≥ 0; ``tilt`` times the indices below 700 where masses matter, else they count as 0,
    an error below 1e-300 of the total.
    Source: Higham 2002, section 24.1 (paths of Cooley and Tukey's algorithm); exponential tilting as in
    large deviations.
    """
    draws = sum(factor.times for factor in factors)
    length = sum(factor.times * (factor.masses.size - 1) for factor in factors) + 1
    if length <= size:
        first, size = 0, good_size(length)
    log_scale, log_error, product = 0.0, 0.0, None
    alone = draws == 1
    for factor in factors:
        weights, log_total, error = _tilted(factor.masses, tilt)
        log_scale += factor.times * log_total
        log_error += factor.times * error
        if alone:
            return Sum(weights, 0, 0.0, log_scale, log_error, tilt, length)
        power = _power(fft.rfft(_folded(weights, size), size), factor.times)
        product = power if product is None else product * power
    assert product is not None
    values = np.roll(fft.irfft(product, size), -(first % size))[: max(length - first, 1)]
    error = _error(factors, product, size)
    log_error += ROUNDING * (abs(log_scale) + 8.0 * draws)
    return Sum(values, first, error, log_scale, log_error, tilt, length)


def _error(factors: Sequence[Factor], product: Complexes, size: int) -> float:
    """Bound on the error of every value of the sum.

    A factor's power x^n is off by at most n(η + 4u)(|x| + η)^(n−1): where |x| ≥ 1/2 that is 2n(η + 4u)|x|^n
    up to e^(4nη), elsewhere n(η + 4u)2^(2−n); other factors have moduli of at most 1 + η.
    """
    transform = _PER_LEVEL * (math.log2(size) + 2.0)
    each = transform + _PER_PRODUCT
    draws = sum(factor.times for factor in factors)
    mean = float(np.abs(product).mean()) * (1.0 + 1e-6) + 2.0 / size
    rest = sum(factor.times * each * 2.0 ** (2.0 - min(factor.times, 1000)) for factor in factors)
    total: float = (2.0 * draws * each * mean + rest + transform * mean) * math.exp(4.0 * draws * each)
    return total


def _tilted(masses: Floats, tilt: float) -> tuple[Floats, float, float]:
    """Weights of total 1, the logarithm of their total before, and a bound on the relative errors."""
    reach = tilt * (masses.size - 1.0)
    shift = max(reach, 0.0)
    weights = masses * np.exp(tilt * np.arange(masses.size) - shift)
    total = float(weights.sum())
    if not total > 1e-280:  # the large weights have no mass: measure from the heaviest instead
        with np.errstate(divide="ignore"):
            logs = np.log(masses) + tilt * np.arange(masses.size)
        shift = float(logs.max())
        weights = np.exp(logs - shift)
        total = float(weights.sum())
    log_total = math.log(total) + shift
    error = ROUNDING * (12.0 + 2.0 * abs(reach) + abs(log_total) + math.log2(masses.size + 1.0))
    return weights / total, log_total, error


def _folded(weights: Floats, size: int) -> Floats:
    if weights.size <= size:
        return weights
    rows = -(-weights.size // size)
    padded = np.zeros(rows * size)
    padded[: weights.size] = weights
    folded: Floats = padded.reshape(rows, size).sum(axis=0)
    return folded


def _power(base: Complexes, times: int) -> Complexes:
    """base^times by squaring: at most times − 1 roundings of a product accumulate."""
    result = None
    while True:
        if times & 1:
            result = base.copy() if result is None else result * base
        times >>= 1
        if not times:
            assert result is not None
            return result
        base = base * base
