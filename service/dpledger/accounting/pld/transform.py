"""Convolution powers of tilted measures by the fast Fourier transform, with a bound on every error."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpledger.accounting.pld.cells import ROUNDING
from dpledger.accounting.pld.direct import DIRECT_DRAWS, FEW_TERMS, UNDERFLOW, Law, direct_sum
from dpledger.accounting.pld.discretization import Indices
from dpledger.accounting.validation import Floats

__all__ = [
    "Factor",
    "Spectrum",
    "Sum",
    "Tilted",
    "forget_transforms",
    "good_size",
    "tilt_factor",
    "tilted_spectrum",
    "tilted_sum",
]

Complexes = NDArray[np.complex128]

_KEPT_SIZES = 16
_PER_LEVEL = 16.0 * ROUNDING
"""Error per level of a transform of sizes 2^n and 3·2^n, relative to Σ|x|.

Statement: with twiddles right to μ each level multiplies a path by 1 + μ + γ₄(√2 + μ) at most, so 16u where
μ ≤ 10u (Higham 2002, Theorem 24.2, whose proof bounds paths; a radix-4 pass counts as two levels and has one
twiddle). Two sines of less than an ulp, angles rounded twice and one product give μ < 10u; that
a library's twiddles are as good is an assumption, which a test checks on impulses."""

_PER_PRODUCT = 4.0 * ROUNDING
_NEGLIGIBLE = 1e-17
"""A modulus that changes no digit of a sum of total 1."""
_LOG_ROUNDINGS = 2400.0
_LEAST_FLOAT = 2.0**-1074
_SLACK = 0.02
_MOST_SCANNED = 1 << 17
_MOST_LOUD = 2048
_FEW_LOUD = 96


@dataclass(frozen=True)
class Factor:
    """Masses at increasing indices from 0 whose sum of ``times`` independent draws is wanted.

    Without ``index`` they are at 0, 1, 2, ….
    """

    masses: Floats
    times: int
    index: Indices | None = None

    @property
    def positions(self) -> Indices:
        """The index of each mass."""
        return np.arange(self.masses.size) if self.index is None else self.index

    @property
    def size(self) -> int:
        """One more than the last index."""
        return self.masses.size if self.index is None else int(self.index[-1]) + 1


@dataclass(frozen=True)
class Tilted:
    """Masses times e^(tilt·index), normalised.

    Attributes
    ----------
    weights, positions
        Of total 1, and where.
    times
        How many draws.
    log_total
        The logarithm of the total before.
    log_error
        Weights are right up to e^(±log_error), or after e^log_error where they are upper bounds.
    lost
        Beside that all weights together are off by at most this: what was too small for a float. It is not
        always nothing, since weights were divided by a total that may be small itself.
    """

    weights: Floats
    positions: Indices
    times: int
    log_total: float
    log_error: float
    lost: float

    @property
    def length(self) -> int:
        """One more than the last index."""
        return int(self.positions[-1]) + 1

    def fold(self, size: int) -> Floats:
        """By index modulo ``size``."""
        index = self.positions if self.length <= size else self.positions % size
        folded: Floats = np.bincount(index, self.weights, size).astype(np.float64, copy=False)
        return folded


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


@dataclass(frozen=True)
class Spectrum:
    """The law of the sum of all draws after tilting, by its transform.

    The mass at index j is e^(log_scale − tilt·j) times (1/size)·Σ coefficients·e^(2πi·frequencies·j/size),
    the frequencies taken with both signs, up to ``error`` (absolute) and e^(±log_error), plus what lies a
    multiple of ``size`` away.
    """

    coefficients: Complexes
    frequencies: Indices
    size: int
    error: float
    log_scale: float
    log_error: float
    tilt: float
    step: float

    def tails(self, start: int) -> tuple[float, float, float]:
        """Σ over start ≤ j < start + size of values e^(−tilt(j − start)), and times e^(−step(j − start)).

        Both with the error added to every value; last a bound on the rounding of either.
        """
        angles = (2.0 * math.pi / self.size) * ((self.frequencies * start) % self.size)
        cosine, sine = np.cos(angles), np.sin(angles)
        p, q = (
            float(cosine @ terms.real - sine @ terms.imag) + self.error / -math.expm1(-rate)
            for terms, rate in zip(self._series, (self.tilt, self.tilt + self.step), strict=True)
        )
        return p, q, self._size * ROUNDING * (64.0 + self.frequencies.size)

    @functools.cached_property
    def _size(self) -> float:
        """Of either series, the larger sum of moduli."""
        return max(float(np.abs(series).sum()) for series in self._series)

    @functools.cached_property
    def _series(self) -> tuple[Complexes, Complexes]:
        """Coefficients times one period of a geometric series, (1 − e^(−t·size))/(1 − e^(−t + iθ))."""
        sides = np.where((self.frequencies == 0) | (2 * self.frequencies == self.size), 1.0, 2.0) / self.size
        theta = (2.0 * math.pi / self.size) * self.frequencies
        half, sine = 2.0 * np.sin(0.5 * theta) ** 2, np.sin(theta)
        found = []
        for rate in (self.tilt, self.tilt + self.step):
            decay = math.exp(-rate)
            below = decay * half - math.expm1(-rate) - 1j * (decay * sine)
            found.append(self.coefficients * sides * (-math.expm1(-rate * self.size) / below))
        return found[0], found[1]


def good_size(least: int) -> int:
    """The least 2^n or 3·2^n that is at least ``least``."""
    power = 1 << max(least - 1, 1).bit_length()
    return 3 * power // 4 if 3 * power // 4 >= least else power


def tilted_sum(
    factors: Sequence[Factor], tilt: float, first: int, size: int, *, terms: int = FEW_TERMS
) -> Sum:
    """The law of the sum, each factor multiplied by e^(tilt·index) and normalised.

    Statement: with x the tilted factor of total 1, the transform of the sum is the product of powers of the
    transforms of x. Errors: a transform is off by at most η = 16u·log₂(size) at every frequency, since each
    input reaches each output by paths of modulus 1; moduli are at most 1 + η, so a product of n factors is
    off by at most n(η + 4u)(1 + η + 4u)^n, far less where they are small, and the way back by η more.
    Few losses whose whole sum fits are added up in at most ``terms`` terms instead, where that many do:
    :func:`~dpledger.accounting.pld.direct.direct_sum`.
    Conditions: masses ≥ 0. Weights that are too small for a float count as 0; ``error`` has what they lost.
    Source: Higham 2002, section 24.1 (paths of Cooley and Tukey's algorithm); exponential tilting as in
    large deviations.
    """
    return _product([tilt_factor(factor, tilt) for factor in factors], tilt, first, size, terms)


def _product(parts: Sequence[Tilted], tilt: float, first: int, size: int, terms: int) -> Sum:
    """The law of the sum of all draws of tilted parts; statement and errors as in :func:`tilted_sum`."""
    draws = sum(part.times for part in parts)
    length = sum(part.times * (part.length - 1) for part in parts) + 1
    if length <= size:
        first, size = 0, good_size(length)
    log_scale = math.fsum(part.times * part.log_total for part in parts)
    log_error = math.fsum(part.times * part.log_error for part in parts)
    lost = _lost(parts)
    if draws == 1:
        return Sum(parts[0].fold(length), 0, lost, log_scale, log_error, tilt, length)
    log_error += ROUNDING * (abs(log_scale) + 8.0 * draws)
    if length <= size and draws <= DIRECT_DRAWS:
        law = direct_sum([(Law.of(part.positions, part.weights), part.times) for part in parts], terms)
        if law is not None:
            return Sum(law.dense(length), 0, lost, log_scale, log_error + law.log_error, tilt, length)
    product = None
    for part in parts:
        power = _power(_rfft(part.fold(size), size), part.times)
        product = power if product is None else product * power
    assert product is not None
    values = np.roll(_irfft(product, size), -(first % size))[: max(length - first, 1)]
    error = _error([part.times for part in parts], product, size, _transform_error(size), lost)
    return Sum(values, first, error, log_scale, log_error, tilt, length)


def tilted_spectrum(parts: Sequence[Tilted], tilt: float, size: int, step: float) -> Spectrum | None:
    """The law of the sum by the few low frequencies at which it is not negligible; None if many are.

    Statement: as :func:`tilted_sum`, for a window of ``size``. The transform of each part is scanned at every
    angle 2πk/M; between these it changes by at most (π/M)·E|index − c|, any c. Where the product of moduli so
    raised is below ``_NEGLIGIBLE`` a coefficient changes a value by less than that. The others, up to the
    last that may be larger, are summed directly: each factor e^(−iθ·index) is a product of few powers and
    right to 24u per power (an angle of up to 2π after three roundings 15u, sine and cosine 6u, a product
    3u), the sum of J terms to J·u more.
    Source: |e^(ia) − e^(ib)| ≤ |a − b|; Higham 2002, section 3.1.
    """
    loud = _last_loud(parts, size)
    if loud is None:
        return None
    product, times = None, [part.times for part in parts]
    for part in parts:
        power = _power(_low_frequencies(part, size, loud + 1), part.times)
        product = power if product is None else product * power
    assert product is not None
    log_scale = math.fsum(part.times * part.log_total for part in parts)
    log_error = math.fsum(part.times * part.log_error for part in parts)
    log_error += ROUNDING * (abs(log_scale) + 8.0 * sum(times))
    each = ROUNDING * (24.0 * (loud + 4.0) + 2.0 * max(part.weights.size for part in parts) + 16.0)
    error = _error(times, product, size, each, _lost(parts)) + 2.0 * _NEGLIGIBLE
    return Spectrum(product, np.arange(loud + 1), size, error, log_scale, log_error, tilt, step)


def _last_loud(parts: Sequence[Tilted], size: int) -> int | None:
    """The last frequency of ``size`` at which the transform of the sum may exceed ``_NEGLIGIBLE``."""
    spreads = [_spread(part) for part in parts]
    points = 1 << max(math.ceil(math.log2(math.pi * max(spreads) / _SLACK + 1.0)), 8)
    if points > min(size, _MOST_SCANNED):
        return None
    logs, found = np.zeros(points // 2 + 1), size
    order = sorted(range(len(parts)), key=lambda i: -parts[i].times * spreads[i] ** 2)
    for part, spread in ((parts[i], spreads[i]) for i in order):
        moduli = np.abs(_rfft(part.fold(points), points))
        slack = math.pi / points * spread * (1.0 + 1e-9) + _transform_error(points)
        logs += part.times * np.log(np.minimum(moduli + slack, 1.0))
        last = int(np.flatnonzero(logs > math.log(_NEGLIGIBLE) - 1.0)[-1])
        found = math.ceil((last + 0.5) * size / points) + 1
        if found <= _FEW_LOUD:  # the other parts have moduli of at most 1
            break
    return found if found <= min(size // 2 - 1, _MOST_LOUD) else None


def _spread(part: Tilted) -> float:
    """E|index − c| at c the mean."""
    mean = float(part.weights @ part.positions)
    return float(part.weights @ np.abs(part.positions - mean)) * (1.0 + 1e-9)


def _low_frequencies(part: Tilted, size: int, count: int) -> Complexes:
    """The transform at the first ``count`` frequencies of ``size``, as powers of powers."""
    block = math.isqrt(count - 1) + 1
    angles = (-2.0 * math.pi / size) * (part.positions % size)
    base = np.cos(angles) + 1j * np.sin(angles)
    inner = np.empty((block, base.size), dtype=np.complex128)
    inner[0] = 1.0
    for row in range(1, block):
        np.multiply(inner[row - 1], base, out=inner[row])
    stride = inner[-1] * base
    outer = np.empty((-(-count // block), base.size), dtype=np.complex128)
    outer[0] = part.weights
    for row in range(1, outer.shape[0]):
        np.multiply(outer[row - 1], stride, out=outer[row])
    # Not a product of matrices: BLAS would start threads for less than a millisecond of work.
    found: Complexes = np.einsum("ij,kj->ik", outer, inner).ravel()[:count]
    return found


def _transform_error(size: int) -> float:
    return _PER_LEVEL * (math.log2(size) + 2.0)


def _lost(parts: Sequence[Tilted]) -> float:
    """Bound on what is lost of the sum to what is too small for a float, where all moduli are at most 1."""
    return UNDERFLOW + math.fsum(part.times * part.lost for part in parts) * (1.0 + 1e-9)


def _error(times: Sequence[int], product: Complexes, size: int, transform: float, lost: float) -> float:
    """Bound on the error of every value of the sum, with ``lost`` of its total besides.

    A factor's power x^n is off by at most n(η + 4u)(|x| + η)^(n−1): where |x| ≥ 1/2 that is 2n(η + 4u)|x|^n
    up to e^(4nη), elsewhere n(η + 4u)2^(2−n); other factors have moduli of at most 1 + η.
    """
    each = transform + _PER_PRODUCT
    draws = sum(times)
    mean = 2.0 * float(np.abs(product).sum()) / size * (1.0 + 1e-6) + 2.0 / size
    rest = sum(count * each * 2.0 ** (2.0 - min(count, 1000)) for count in times)
    total: float = (2.0 * draws * each * mean + rest + transform * mean + lost) * math.exp(4.0 * draws * each)
    return total


def tilt_factor(factor: Factor, tilt: float) -> Tilted:
    """A factor's masses times e^(tilt·index), of total 1.

    Rounding: an exponent is off by u·|reach|, the logarithm of the total by u(|reach| + 2|log_total|), the
    exponential, product and quotient by a few u; where logarithms of masses are taken, these and what is
    added to them are at most 745 each, or a weight is no float. Below the normal floats each of exponential
    and product is off by 2^−1075 besides, before the division by the total.
    """
    masses, positions = factor.masses, factor.positions
    reach = tilt * (factor.size - 1.0)
    shift, roundings = max(reach, 0.0), 12.0
    weights = masses * np.exp(tilt * positions - shift)
    total = float(weights.sum())
    if not total > 1e-280:  # the large weights have no mass: measure from the heaviest instead
        with np.errstate(divide="ignore"):
            logs = np.log(masses) + tilt * positions
        shift = float(logs.max())
        weights = np.exp(logs - shift)
        total, roundings = float(weights.sum()), _LOG_ROUNDINGS
    log_total = math.log(total) + shift
    error = ROUNDING * (roundings + 2.0 * abs(reach) + 2.0 * abs(log_total) + math.log2(masses.size + 1.0))
    lost = masses.size * (_LEAST_FLOAT / total)
    return Tilted(weights / total, positions, factor.times, log_total, error, lost)


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


def _rfft(values: Floats, size: int) -> Complexes:
    from scipy import fft  # a service loads it after it has started

    transformed: Complexes = fft.rfft(values, size)
    return transformed


def _irfft(values: Complexes, size: int) -> Floats:
    from scipy import fft

    restored: Floats = fft.irfft(values, size)
    return restored


def forget_transforms() -> None:
    """Let go of the tables that the transform keeps for its last sixteen sizes: 12 MB for a million points.

    As many small sizes take their places. Outside of one composition nothing needs them again.
    """
    values = np.zeros(_KEPT_SIZES + 1)
    for size in range(2, _KEPT_SIZES + 2):
        _rfft(values, size)
