"""Exact rational vectors: what is added up beside the floats, without any rounding.

A number that a caller gives is read as the decimal that it is written as: 0.1 is one tenth, not the double
next to it. A cost that is a rational function of such numbers (the ρ, μ² and Rényi curve of a Gaussian,
declared costs, an additive δ, any of them repeated) then has an exact value, and a sum of them is within
its limit exactly if the sum on paper is. A cost that is no rational function is the float that bounds it from
above, which is a rational number too: its sums are not rounded either.

A vector has one denominator. Adding a step whose denominator divides it, as every step but the first of its
kind does, is one addition of integers per coordinate. Where a denominator would outgrow ``MOST_BITS`` (some
hundred different noise levels, or ten with 17 digits each), what is added, never what is there, is
rounded up to a multiple of 2^-256, so that a total takes a bounded number of bytes for ever.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from math import inf, nextafter
from operator import add, le
from typing import NamedTuple

import numpy as np

from dpledger.accounting.validation import Floats

__all__ = ["MOST_BITS", "Exact", "as_given", "float_above", "float_below", "rows_above"]

MOST_BITS = 1280
"""Of a denominator; every double has one of at most 1,075 bits."""
_GRID = 2**256


def as_given(value: float) -> Fraction:
    """The decimal that a number was written as: the shortest one that reads as this double."""
    return Fraction(repr(float(value)))


def float_above(value: Fraction) -> float:
    """The double that is written as ``value``, or else the least at or above it; for ``value`` ≥ 0."""
    try:
        near = float(value)
    except OverflowError:
        return inf
    if Fraction(near) >= value or as_given(near) == value:
        return near
    return nextafter(near, inf)


def float_below(value: Fraction) -> float:
    """The largest double at or below ``value``."""
    near = float(value)
    return near if Fraction(near) <= value else nextafter(near, -inf)


class Exact(NamedTuple):
    """Numbers ``numerators[i] / denominator``, none of them negative."""

    numerators: tuple[int, ...]
    denominator: int = 1

    @classmethod
    def zero(cls, size: int) -> "Exact":
        """Nothing at every coordinate."""
        return cls((0,) * size)

    @classmethod
    def of(cls, values: Sequence[Fraction]) -> "Exact":
        """These numbers; rounded up to the grid where the common denominator would outgrow its bound."""
        common = 1
        for value in reversed(values):
            wider = math.lcm(common, value.denominator)
            common = wider if wider.bit_length() <= MOST_BITS else math.lcm(common, _GRID)
        return cls(tuple(_ceiling(v.numerator * common, v.denominator) for v in values), common)

    @classmethod
    def of_floats(cls, values: Floats) -> "Exact":
        """Doubles as the rational numbers that they are."""
        return cls.of([Fraction(value) for value in values.tolist()])

    @classmethod
    def from_text(cls, text: str) -> "Exact":
        """Read what :attr:`text` wrote; raises ValueError for anything else."""
        denominator, _, numerators = text.partition(":")
        read = cls(tuple(int(each, 16) for each in numerators.split(",")), int(denominator, 16))
        if read.text != text or read.denominator < 1 or min(read.numerators) < 0:
            raise ValueError(f"no exact numbers: {text[:40]!r}")
        return read

    @property
    def text(self) -> str:
        """The denominator and the numerators, in hexadecimal."""
        return f"{self.denominator:x}:" + ",".join([f"{numerator:x}" for numerator in self.numerators])

    def times(self, times: int) -> "Exact":
        """So many of it."""
        return Exact(tuple(numerator * times for numerator in self.numerators), self.denominator)

    def fractions(self) -> list[Fraction]:
        """The numbers one by one."""
        return [Fraction(numerator, self.denominator) for numerator in self.numerators]

    def plus(self, other: "Exact", times: int = 1) -> "Exact":
        """The sum with ``times`` of ``other``: exact, or rounded up where its bound asks for it."""
        mine, added, common = self.numerators, other.numerators, self.denominator
        if other.denominator != common:
            common = self._common(other)
            if common != self.denominator:
                factor = common // self.denominator
                mine = tuple(numerator * factor for numerator in mine)
            added = _over(other, common, times)
        elif times != 1:
            added = tuple(numerator * times for numerator in added)
        return Exact(tuple(map(add, mine, added)), common)

    def minus(self, other: "Exact", times: int) -> "Exact":
        """What is left after taking away what ``plus`` added; at least 0, and never less than the exact rest.

        The denominator of a sum is a multiple of all that were added exactly. One that was rounded up when
        it was added is taken away rounded up on the same grid or a finer one, which is no more.
        """
        taken = _over(other, self.denominator, times)
        rest = (max(0, mine - less) for mine, less in zip(self.numerators, taken, strict=True))
        return Exact(tuple(rest), self.denominator)

    def within(self, most: Sequence[int]) -> list[bool]:
        """Whether each numerator is at most the one given for it, as :meth:`floors` gives them."""
        return list(map(le, self.numerators, most))

    def floors(self, limits: Sequence[Fraction]) -> tuple[int, ...]:
        """The largest numerators over this denominator that are within limits."""
        common = self.denominator
        return tuple(limit.numerator * common // limit.denominator for limit in limits)

    def above(self) -> Floats:
        """Doubles at or above the numbers, by at most two units in the last place; 0 only for 0."""
        common = self.denominator
        return np.array([nextafter(n / common, inf) if n else 0.0 for n in self.numerators])

    def shown(self) -> Floats:
        """Doubles at or above the numbers, and those that are written as the numbers where there are such."""
        return np.array([float_above(value) for value in self.fractions()])

    def _common(self, other: "Exact") -> int:
        common = math.lcm(self.denominator, other.denominator)
        if common == self.denominator or common.bit_length() <= MOST_BITS:
            return common
        return math.lcm(self.denominator, _GRID)


def rows_above(rows: Sequence[Exact]) -> Floats:
    """:meth:`Exact.above` of sums of one step again and again, which have one denominator: a row for each."""
    common = rows[0].denominator
    # The quotient of two integers is the nearest double: the next one is above, and above 0.
    near: Floats = np.array([[numerator / common for numerator in row.numerators] for row in rows])
    np.nextafter(near, inf, out=near)
    near[:, [not numerator for numerator in rows[0].numerators]] = 0.0
    return near


def _over(vector: Exact, common: int, times: int) -> tuple[int, ...]:
    """``times`` of a vector over another denominator, rounded up."""
    factor, rest = divmod(common, vector.denominator)
    if not rest:
        factor *= times
        return tuple(numerator * factor for numerator in vector.numerators)
    scale = common * times
    return tuple(_ceiling(numerator * scale, vector.denominator) for numerator in vector.numerators)


def _ceiling(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)
