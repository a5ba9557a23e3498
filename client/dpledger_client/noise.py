"""Noise that is exactly what was declared to the ledger, and safe from what floating point gives away.

Textbook noise in floating point is not private: which doubles can come out of ``value + noise`` depends on
the value (Mironov 2012 for Laplace; Jin, McMurtry, Rubinstein, Ohrimenko 2022 and Holohan, Braghin 2021 for
Gaussian noise), and the tails end too early. Here every release lies on a public grid, and the noise
is drawn exactly by integer arithmetic:

1. The grid's step γ is a power of two that depends on public numbers only (sensitivity, noise,
   dimension), about 2⁻²⁰ of the smaller of the noise and the sensitivity per coordinate.
2. The value is rounded to the grid. Two neighbours move apart by at most γ in each coordinate, so the
   sensitivity grows from Δ to Δ + γ√d (L2) or Δ + γd (L1). The noise is made larger in the same
   proportion, so that their ratio, and with it the cost, is what was declared: about 10⁻⁶ more noise.
3. The noise is the continuous variable rounded to the grid, drawn without any floating-point error
   (:mod:`dpledger_client._integers`). Rounding the sum of a grid point and continuous noise is the grid
   point plus the rounded noise: the release is a post-processing of the textbook mechanism, and every
   theorem about that mechanism (amplification, Gaussian DP, the exact δ) holds for it as it stands.
4. The sum of the two grid points is one floating-point addition, whose correctly rounded result is a
   function of the exact sum: post-processing again.

Gumbel and exponential noise are used for selection only, and only the selected index is released. So they
are drawn as what they are equal to in distribution: the exponential mechanism and permute-and-flip, with
exact coins. (Ilvento 2020 shows what floating point does to the exponential mechanism.)

What is not covered: the value itself is computed in floating point (the objectives leave room for that,
see :mod:`dpledger_client.objectives`), and the time that a draw takes is not constant, though
it does not depend on the value for additive noise.

Noise is drawn by the handles that the ledger gave a yes to. Tests replace it by
:func:`insecure_testing_noise` and :func:`no_noise_for_testing`; there is no other way to set a seed.
"""

import contextlib
import functools
import math
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from dpledger_client._arrays import Bools, Floats, Integers
from dpledger_client._bits import BitSource, SeededBits, SystemBits, bytes_below
from dpledger_client._coins import Bounds, exp_coins, uniform_below
from dpledger_client._integers import (
    discrete_gaussian,
    discrete_laplace,
    rounded_gaussian,
    rounded_laplace,
)
from dpledger_client.sampling import permutation

__all__ = [
    "NoNoise",
    "Noise",
    "Query",
    "current_noise",
    "insecure_testing_noise",
    "no_noise_for_testing",
]

Query: TypeAlias = "float | Callable[[], float]"
"""A number, or what computes it when its turn comes."""

FINE_BITS = 20
WIDEST_BITS = 44
"""Noise is about 2⁴⁴ steps wide at most: beyond 2⁵³ steps, where integers are no longer exact doubles, it
gets with a probability below e^(−100)."""
NARROWEST_BITS = 16
_SMALLEST_EXPONENT = -1000
_EXACT = 2.0**52
_SHARES = 16


@dataclass(frozen=True)
class Grid:
    """Multiples of γ = 2^exponent."""

    exponent: int

    @classmethod
    def under(cls, narrowest: float, widest: float) -> "Grid":
        """A grid 2²⁰ times finer than ``narrowest`` on which ``widest`` is at most 2⁴⁴ steps."""
        exponent = max(_log2_floor(narrowest) - FINE_BITS, _log2_floor(widest) + 1 - WIDEST_BITS)
        if exponent < _SMALLEST_EXPONENT:
            raise ValueError(f"noise of {narrowest!r} is too small to be drawn")
        return cls(exponent)

    @property
    def step(self) -> Fraction:
        """γ."""
        return Fraction(2) ** self.exponent

    def cells(self, value: Floats) -> Floats:
        """The nearest multiples of γ, counted in steps."""
        with np.errstate(over="ignore", under="ignore"):
            steps = np.ldexp(value, -self.exponent)
        return np.rint(steps)

    def rounded(self, value: Floats) -> Floats:
        """The nearest multiples of γ; doubles beyond 2⁵² steps are multiples already."""
        cells = self.cells(value)
        with np.errstate(under="ignore"):
            return np.where(np.abs(cells) < _EXACT, np.ldexp(cells, self.exponent), value)

    def values(self, cells: Integers) -> Floats:
        """So many steps as numbers."""
        return np.ldexp(cells.astype(np.float64), self.exponent)


def _log2_floor(value: float) -> int:
    return math.frexp(value)[1] - 1


@functools.lru_cache(maxsize=256)
def _widen(sensitivity: float, width: float, growth: int) -> tuple[Grid, Fraction]:
    """A grid, and the noise's width in its steps after the sensitivity grew by ``growth`` steps.

    (Δ/γ + growth) / result ≤ Δ / width. Without sensitivity the value does not depend on the data, and
    neither does where it is rounded to.
    """
    narrowest = width if sensitivity == 0.0 else min(width, sensitivity / growth)
    grid = Grid.under(narrowest, width)
    if sensitivity == 0.0:
        return grid, Fraction(width) / grid.step
    share = grid.step * growth / Fraction(sensitivity)
    if share > 1:
        raise ValueError(f"noise of {width!r} is too large for a sensitivity of {sensitivity!r}")
    return grid, Fraction(width) / grid.step * (1 + share)


def _float_above(value: Fraction) -> float:
    return math.nextafter(float(value), math.inf)


def _finite(value: ArrayLike) -> Floats:
    array = np.asarray(value, dtype=np.float64)
    if not np.isfinite(array).all():
        raise ValueError("what is released must be finite")
    return array


def _whole(value: ArrayLike) -> Integers:
    array = _finite(value)
    if (array != np.rint(array)).any() or (np.abs(array) > _EXACT).any():
        raise ValueError("discrete noise is for whole numbers below 2**52")
    return array.astype(np.int64)


def _check_fits(width: float) -> None:
    if width > _EXACT:
        raise ValueError(f"noise of {width!r} is too large for integers of 64 bits")


class Noise:
    """Adds noise and makes noisy choices with the bits of a source."""

    def __init__(self, bits: BitSource) -> None:
        self.bits = bits

    def gaussian(self, value: ArrayLike, sensitivity: float, noise_std: float) -> Floats:
        """``value`` plus Gaussian noise; ``sensitivity`` is the value's L2 sensitivity."""
        array = _finite(value)
        # √d rounded up to an integer.
        grid, width = _widen(sensitivity, noise_std, math.isqrt(max(array.size, 1) - 1) + 1)
        cells = rounded_gaussian(self.bits, _float_above(width), array.size)
        return grid.rounded(array) + grid.values(cells).reshape(array.shape)

    def laplace(self, value: ArrayLike, sensitivity: float, scale: float) -> Floats:
        """``value`` plus Laplace noise; ``sensitivity`` is the value's L1 sensitivity."""
        array = _finite(value)
        grid, width = _widen(sensitivity, scale, max(array.size, 1))
        cells = rounded_laplace(self.bits, math.ceil(width), array.size)
        return grid.rounded(array) + grid.values(cells).reshape(array.shape)

    def discrete_gaussian(self, value: ArrayLike, noise_std: float) -> Integers:
        """Whole numbers plus discrete Gaussian noise (Canonne, Kamath, Steinke 2020)."""
        array = _whole(value)
        _check_fits(noise_std)
        return array + discrete_gaussian(self.bits, noise_std, array.size).reshape(array.shape)

    def discrete_laplace(self, value: ArrayLike, scale: int) -> Integers:
        """Whole numbers plus discrete Laplace noise, k with probability ∝ e^(−|k|/scale)."""
        array = _whole(value)
        _check_fits(scale)
        return array + discrete_laplace(self.bits, scale, array.size).reshape(array.shape)

    def gumbel_choice(self, scores: ArrayLike, scale: float) -> int:
        """The largest score after Gumbel noise: index i with probability ∝ e^(score/scale).

        A candidate drawn uniformly is kept with probability e^((score − largest)/scale).
        """
        array = _candidates(scores)
        while True:
            drawn = uniform_below(self.bits, array.size, array.size)
            kept = self._score_coins(array[drawn], float(array.max()), scale)
            if kept.any():
                return int(drawn[np.argmax(kept)])

    def exponential_choice(self, scores: ArrayLike, scale: float) -> int:
        """The largest score after exponential noise, drawn as permute-and-flip.

        In random order, the first candidate whose coin of probability e^((score − largest)/scale) comes
        up (McKenna, Sheldon 2020; equal to exponential noise: Ding et al. 2021).
        """
        array = _candidates(scores)
        order = permutation(array.size, self.bits)
        return int(order[np.argmax(self._score_coins(array[order], float(array.max()), scale))])

    def _score_coins(self, scores: Floats, largest: float, scale: float) -> Bools:
        def exactly(index: int, _known: int) -> Bounds:
            exponent = (Fraction(largest) - Fraction(float(scores[index]))) / Fraction(scale)
            return exponent, exponent

        with np.errstate(over="ignore"):
            return exp_coins(self.bits, (largest - scores) / scale, exactly)

    def laplace_choice(self, scores: ArrayLike, sensitivity: float, scale: float) -> int:
        """The largest score after Laplace noise; ``sensitivity`` bounds the change of any one score.

        On the grid, the first of equals wins. Given all other noise, a candidate wins when its own noise
        is at least some number of steps, and the rounded noise's tail falls by no more than e^(1/t) in
        a step: the proof of Dwork and Roth 2014, Claim 3.9, holds as it stands.
        """
        array = _candidates(scores)
        grid, width = _widen(sensitivity, scale, 1)
        noise = rounded_laplace(self.bits, math.ceil(width), array.size)
        return int(np.argmax(grid.cells(array) + noise))

    def flip(self, truth: ArrayLike, epsilon: float) -> Bools:
        """Each truth value, turned into its opposite with probability 1/(1 + e^ε).

        A fair coin proposes to keep or to turn; a turn stands with probability e^(−ε), else again.
        """
        array = np.asarray(truth, dtype=np.bool_)
        turned = np.zeros(array.size, dtype=np.bool_)
        open_cases = np.arange(array.size)
        exactly = (Fraction(epsilon), Fraction(epsilon))
        while open_cases.size:
            turns = (bytes_below(self.bits, open_cases.size) & 1).astype(np.bool_)
            stands = exp_coins(self.bits, np.full(open_cases.size, epsilon), lambda *_: exactly)
            turned[open_cases] = turns
            open_cases = open_cases[turns & ~stands]
        return array ^ turned.reshape(array.shape)

    def first_above(self, queries: Iterable[Query], threshold: float, plan: "ThresholdNoise") -> int | None:
        """The index of the first query that is at least the threshold, after noise on both; or None.

        A query is computed when it is reached, and none after the one that is above.
        """
        grid, threshold_width, query_width = plan.widths()
        bar = grid.cells(_finite(threshold)) + self._draw(plan.family, threshold_width)
        for index, query in enumerate(queries):
            value = grid.cells(_finite(query() if callable(query) else query))
            if value + self._draw(plan.family, query_width) >= bar:
                return index
        return None

    def _draw(self, family: str, width: Fraction) -> int:
        if width == 0:
            return 0
        if family == "gaussian":
            return int(rounded_gaussian(self.bits, _float_above(width), 1)[0])
        return int(rounded_laplace(self.bits, math.ceil(width), 1)[0])

    def passes(self, distance: int, epsilon: float, delta: float) -> bool:
        """Whether distance + Laplace(1/ε) is above log(1/δ)/ε, rounded to the side of no.

        Noise and bar are both larger by the same tiny factor, and the noise counts with the lower end of
        its cell: at distance 0 it passes with a probability of at most δ/2.
        """
        grid, width = _widen(1.0, math.nextafter(1.0 / epsilon, math.inf), 1)
        scale = math.ceil(width) * grid.step
        bar = Fraction(math.nextafter(-math.log(delta), math.inf)) * scale
        noise = (self._draw("laplace", width) - Fraction(1, 2)) * grid.step
        return distance + noise > bar


@dataclass(frozen=True)
class ThresholdNoise:
    """The noises of an AboveThreshold search; a threshold scale of 0 is none.

    Statement: on the grid, with every scale made larger by (1 + κ)(1 + 16κ), κ = γ/Δ, the search costs
    no more than the continuous one of the scales declared.
    Proof: comparing the rounded query noise with a bar on the grid is comparing the continuous noise
    with that bar less half a step, so each comparison is one of the continuous chain; the rounded threshold
    noise is a post-processing of the continuous one. The bound is a minimum over shares s in [0, 1] of
    the sensitivity by which the threshold is shifted, a multiple of γ here. With D = Δ + γ the
    sensitivity after rounding and η = 16κ, a share s ≤ 15/16 is replaced by the multiple below it, which
    is at most κ smaller: the threshold's shift is no larger, and the queries' shifts stay between
    −(1−s)Δ and (1+s)Δ in the larger noise because κ ≤ η(1−s). A share above 15/16 is replaced by the
    multiple above, for κ ≤ ηs.
    """

    family: str
    sensitivity: float
    threshold_scale: float
    query_scale: float

    def widths(self) -> tuple[Grid, Fraction, Fraction]:
        """The grid, and the two scales in its steps."""
        widths = [width for width in (self.threshold_scale, self.query_scale) if width > 0.0]
        numbers = [*widths, self.sensitivity] if self.sensitivity > 0.0 else widths
        grid = Grid.under(min(numbers), max(widths))
        if Fraction(min(widths)) < grid.step * 2**NARROWEST_BITS:
            raise ValueError("threshold_scale and query_scale must be within a factor of 2**27")
        kappa = grid.step / Fraction(self.sensitivity) if self.sensitivity > 0.0 else Fraction(0)
        growth = (1 + kappa) * (1 + _SHARES * kappa) / grid.step
        return grid, Fraction(self.threshold_scale) * growth, Fraction(self.query_scale) * growth


def _candidates(scores: ArrayLike) -> Floats:
    array = _finite(scores)
    if array.ndim != 1 or array.size == 0:
        raise ValueError("scores must be one number for each of at least one candidate")
    return array


class NoNoise(Noise):
    """The same without noise: what is released is the value itself."""

    def gaussian(self, value: ArrayLike, sensitivity: float, noise_std: float) -> Floats:
        return _finite(value).copy()

    def laplace(self, value: ArrayLike, sensitivity: float, scale: float) -> Floats:
        return _finite(value).copy()

    def discrete_gaussian(self, value: ArrayLike, noise_std: float) -> Integers:
        return _whole(value)

    def discrete_laplace(self, value: ArrayLike, scale: int) -> Integers:
        return _whole(value)

    def gumbel_choice(self, scores: ArrayLike, scale: float) -> int:
        return int(np.argmax(_candidates(scores)))

    def exponential_choice(self, scores: ArrayLike, scale: float) -> int:
        return int(np.argmax(_candidates(scores)))

    def laplace_choice(self, scores: ArrayLike, sensitivity: float, scale: float) -> int:
        return int(np.argmax(_candidates(scores)))

    def flip(self, truth: ArrayLike, epsilon: float) -> Bools:
        return np.array(truth, dtype=np.bool_)

    def first_above(self, queries: Iterable[Query], threshold: float, plan: ThresholdNoise) -> int | None:
        for index, query in enumerate(queries):
            if (query() if callable(query) else query) >= threshold:
                return index
        return None

    def passes(self, distance: int, epsilon: float, delta: float) -> bool:
        return distance > -math.log(delta) / epsilon


_CURRENT: ContextVar[Noise] = ContextVar("dpledger_client_noise")
_SYSTEM = Noise(SystemBits())


def current_noise() -> Noise:
    """The noise in force: the operating system's, but in a testing mode."""
    return _CURRENT.get(_SYSTEM)


@contextlib.contextmanager
def _in_force(noise: Noise) -> Iterator[None]:
    token = _CURRENT.set(noise)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def insecure_testing_noise(seed: int) -> contextlib.AbstractContextManager[None]:
    """Draw noise and samples from a seed: reproducible, and no protection at all.

    It is in force in this thread or task, until the context ends.

    Examples
    --------
    >>> with insecure_testing_noise(7):
    ...     first = current_noise().gaussian(0.0, 1.0, 1.0)
    >>> with insecure_testing_noise(7):
    ...     again = current_noise().gaussian(0.0, 1.0, 1.0)
    >>> bool(first == again)
    True
    """
    return _in_force(type(current_noise())(SeededBits(seed)))


def no_noise_for_testing() -> contextlib.AbstractContextManager[None]:
    """Release values without any noise, to compare a method with its textbook form.

    The ledger is asked and charged as ever. Samples are still drawn at random: put
    :func:`insecure_testing_noise` around to fix them.
    """
    return _in_force(NoNoise(current_noise().bits))
