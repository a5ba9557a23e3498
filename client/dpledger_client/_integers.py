"""Integer noise drawn exactly: no floating-point error reaches any of these distributions.

They are rejection samplers. What is proposed is the integer part of an exponential variable, which is a
uniform integer and a count of successes (Canonne, Kamath, Steinke 2020, Algorithm 2); what is accepted is
decided by :func:`~dpledger_client._coins.exp_coins`. Like every rejection sampler they take longer
when they are unlucky; how long a draw took says nothing about the value that the noise is added to.
"""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from dpledger_client._arrays import Floats, Integers
from dpledger_client._bits import BitSource, bytes_below, integer, words32
from dpledger_client._coins import Bounds, Exponent, exp_coins, geometric, uniform_below, uniform_bits

__all__ = ["discrete_gaussian", "discrete_laplace", "rounded_gaussian", "rounded_laplace"]

_MOST_AT_ONCE = 1 << 15
"""So that the arrays of one round stay in the processor's cache."""
_PLACE_BITS = 32
_HALF = Fraction(1, 2)


def _fill(many: int, share: float, propose: Callable[[int], Integers]) -> Integers:
    """``many`` accepted proposals, of which about ``share`` are accepted."""
    found: list[Integers] = []
    missing = many
    while missing > 0:
        wanted = int(missing / share + 3.0 * math.sqrt(missing)) + 4
        accepted = propose(min(wanted, _MOST_AT_ONCE))[:missing]
        found.append(accepted)
        missing -= accepted.size
    return np.concatenate(found) if found else np.empty(0, dtype=np.int64)


def _exact(value: Fraction) -> Bounds:
    return value, value


def _signs(bits: BitSource, many: int) -> Integers:
    return 1 - 2 * (bytes_below(bits, many) & 1).astype(np.int64)


def floor_exponential(bits: BitSource, scale: int, many: int) -> Integers:
    """⌊E⌋ for E exponential of mean t: g with probability (1 − e^(−1/t)) e^(−g/t).

    U + t·V with U uniform below t, kept with probability e^(−U/t), and V geometric.
    """

    def propose(wanted: int) -> Integers:
        parts = uniform_below(bits, scale, wanted)
        kept = exp_coins(bits, parts / scale, lambda index, _: _exact(Fraction(int(parts[index]), scale)))
        return parts[kept]

    parts = _fill(many, 0.632, propose)
    return parts + scale * geometric(bits, many)


def discrete_laplace(bits: BitSource, scale: int, many: int) -> Integers:
    """Integers k with probability ∝ e^(−|k|/t) (Canonne, Kamath, Steinke 2020, Algorithm 2)."""

    def propose(wanted: int) -> Integers:
        sizes, signs = floor_exponential(bits, scale, wanted), _signs(bits, wanted)
        # Zero would come twice as often as it should, with either sign.
        return (signs * sizes)[(sizes > 0) | (signs > 0)]

    return _fill(many, 1.0 + 0.5 * math.expm1(-1.0 / scale), propose)


def rounded_laplace(bits: BitSource, scale: int, many: int) -> Integers:
    """The nearest integer to a continuous Laplace variable of scale t.

    ⌊E + 1/2⌋ is 0 with probability 1 − e^(−1/(2t)); otherwise, E being memoryless, it is 1 + ⌊E′⌋.
    """
    half = Fraction(1, 2 * scale)
    beyond = exp_coins(bits, np.full(many, 0.5 / scale), lambda *_: _exact(half))
    sizes = np.where(beyond, 1 + floor_exponential(bits, scale, many), 0)
    return _signs(bits, many) * sizes


class _Proposals:
    """Signed integers U + t·V and their signs, before U has been thinned to e^(−U/t).

    The coin that thins U and the one that turns the discrete Laplace into the target are one: their
    exponents add up.
    """

    def __init__(self, bits: BitSource, width: int, many: int) -> None:
        self.scale = 1 << width
        self.parts = uniform_bits(bits, width, many)
        self.sizes = self.parts + (geometric(bits, many) << width)
        self.signs = _signs(bits, many)

    def accept(self, bits: BitSource, exponents: Floats, exactly: Exponent) -> Integers:
        """What the coins of these exponents leave, U's own exponent added to each."""

        def total(index: int, known: int) -> Bounds:
            part = Fraction(int(self.parts[index]), self.scale)
            low, high = exactly(index, known)
            return part + low, part + high

        heads = exp_coins(bits, self.parts / self.scale + exponents, total)
        return (self.signs * self.sizes)[heads & ((self.sizes > 0) | (self.signs > 0))]


def discrete_gaussian(bits: BitSource, std: float, many: int) -> Integers:
    """Integers k with probability ∝ e^(−k²/(2σ²)) (Canonne, Kamath, Steinke 2020, Algorithm 3).

    Proposed from the discrete Laplace of a scale t near σ, kept with probability e^(−(|k|/σ − σ/t)²/2).
    """
    sigma = Fraction(std)
    width = max(0, round(math.log2(std)))

    def propose(wanted: int) -> Integers:
        drawn = _Proposals(bits, width, wanted)
        scale, sizes = drawn.scale, drawn.sizes

        def exactly(index: int, _known: int) -> Bounds:
            return _exact((int(sizes[index]) / sigma - sigma / scale) ** 2 / 2)

        return drawn.accept(bits, 0.5 * np.square(sizes / std - std / scale), exactly)

    return _fill(many, 0.45 if std > 0.7 else 0.25, propose)


def rounded_gaussian(bits: BitSource, std: float, many: int) -> Integers:
    """The nearest integer to a continuous Gaussian variable of standard deviation s, for s ≥ 2¹⁶.

    A cell n is proposed from the discrete Laplace of scale t, and a place f in [−1/2, 1/2) in it. The
    cell is kept with probability e^(−(m/s − s/t)²/2 − (m − |n| + 1/2)/t), m = |n + f|, which is
    e^(−m²/(2s²)) over e^(−|n|/t) up to a constant: n + f is Gaussian, and n is what it rounds to.
    """
    width = round(math.log2(std))

    def propose(wanted: int) -> Integers:
        drawn = _Proposals(bits, width, wanted)
        cells = _Cells(bits, drawn.sizes, std, drawn.scale)
        return drawn.accept(bits, cells.exponents, cells.exactly)

    return _fill(many, 0.45, propose)


class _Cells:
    """The exponents of :func:`rounded_gaussian` for the cells |n| of some proposals.

    A place is counted away from zero, so that m = |n| + f; in cell 0, where either half of it lies
    away from zero, m = |f|.
    """

    def __init__(self, bits: BitSource, sizes: Integers, std: float, scale: int) -> None:
        self._bits = bits
        self._sizes = sizes
        self._places = words32(bits, sizes.size)
        self._revealed: dict[int, _Place] = {}
        self._sigma = Fraction(std)
        self._scale = scale
        places = self._places * 2.0**-_PLACE_BITS - 0.5
        outward = np.where(sizes > 0, places, np.abs(places))
        distances = (sizes + outward) / std - std / scale
        self.exponents = 0.5 * np.square(distances) + (outward + 0.5) / scale

    def exactly(self, index: int, known: int) -> Bounds:
        """Bounds on one exponent, from as many bits of its place."""
        place = self._revealed.setdefault(index, _Place(self._bits, int(self._places[index])))
        cell = int(self._sizes[index])
        low, high = sorted(abs(cell + end) for end in place.ends(known))
        return self._exponent(low, cell), self._exponent(high, cell)

    def _exponent(self, size: Fraction, cell: int) -> Fraction:
        # It rises with the size: its derivative is m/s².
        distance = size / self._sigma - self._sigma / self._scale
        return distance**2 / 2 + (size - cell + _HALF) / self._scale


class _Place:
    """A uniform place in [−1/2, 1/2) whose bits are drawn when they are asked for."""

    def __init__(self, bits: BitSource, first: int) -> None:
        self._bits = bits
        self._value = first
        self._known = _PLACE_BITS

    def ends(self, known: int) -> Bounds:
        """The ends of an interval of length 2^(−known) in which the place is."""
        if known > self._known:
            more = known - self._known
            self._value = self._value << more | integer(self._bits, more)
            self._known = known
        width = Fraction(1, 1 << self._known)
        return self._value * width - _HALF, (self._value + 1) * width - _HALF
