"""Coins that come up with probability e^(−x), exactly, for whole arrays at once.

A coin is a uniform real number U of which only as many bits are drawn as it takes to know whether
U < e^(−x). With 32 bits and floating-point arithmetic that is known, bounds on every rounding error included,
but for about one coin in 2³⁰; such a coin is decided in exact arithmetic with as many further bits as it
needs. So the floating-point error never reaches the distribution.
"""

import decimal
import functools
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from dpledger_client._arrays import Bools, Floats, Integers
from dpledger_client._bits import BitSource, integer, words32, words64

__all__ = ["Bounds", "Exponent", "exp_coins", "geometric", "uniform_below", "uniform_bits"]

Bounds: TypeAlias = tuple[Fraction, Fraction]
Exponent: TypeAlias = Callable[[int, int], Bounds]
"""Lower and upper bound on the exponent of coin ``index``, the closer the more ``bits`` are asked for."""

COIN_BITS = 32
MORE_BITS = 64
MARGIN = 2.0**-36
"""Relative error granted to e^(−x) in floating point. The exponents used here are off by less than
2⁻⁴⁰ where e^(−x) is above 2⁻³², and np.exp by a few units in the last place."""
_UNDERFLOW = 1e-300
_COINS = 2.0**COIN_BITS


def exp_coins(bits: BitSource, exponents: Floats, exactly: Exponent) -> Bools:
    """For each exponent x ≥ 0, True with probability e^(−x)."""
    coins = words32(bits, exponents.size)
    chances = np.exp(-exponents) * _COINS
    heads: Bools = coins + 1.0 <= chances * (1.0 - MARGIN)
    unclear = ~heads & (coins < chances * (1.0 + MARGIN) + _UNDERFLOW)
    for index in np.flatnonzero(unclear):
        exponent = functools.partial(exactly, int(index))
        heads[index] = _below_exp(bits, int(coins[index]), exponent)
    return heads


def _below_exp(bits: BitSource, coin: int, exponent: Callable[[int], Bounds]) -> bool:
    """Whether the uniform number that starts with the 32 bits ``coin`` is below e^(−x)."""
    known = COIN_BITS
    while True:
        coin = coin << MORE_BITS | integer(bits, MORE_BITS)
        known += MORE_BITS
        below, above = _exp_bounds(exponent(known), known)
        if Fraction(coin + 1, 1 << known) <= below:
            return True
        if Fraction(coin, 1 << known) >= above:
            return False


def _exp_bounds(exponent: Bounds, known: int) -> Bounds:
    """Bounds on e^(−x); decimal's exp is correctly rounded, so its neighbours enclose the exact value."""
    low, high = exponent
    if low > known:  # then it is below 2^(−known); its digits might be more than there is memory for
        return Fraction(0), Fraction(1, 1 << known)
    smallest = _context(known, decimal.ROUND_CEILING)
    largest = _context(known, decimal.ROUND_FLOOR)
    below = smallest.next_minus(smallest.exp(-_quotient(smallest, high)))
    above = largest.next_plus(largest.exp(-_quotient(largest, low)))
    return max(Fraction(below), Fraction(0)), Fraction(above)


def _context(known: int, rounding: str) -> decimal.Context:
    return decimal.Context(
        prec=known // 3 + 10, rounding=rounding, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX
    )


def _quotient(context: decimal.Context, value: Fraction) -> Decimal:
    return context.divide(Decimal(value.numerator), Decimal(value.denominator))


def geometric(bits: BitSource, many: int) -> Integers:
    """How often in a row a coin of probability 1/e comes up: V ≥ v with probability e^(−v), exactly.

    One uniform number U decides: V is the largest v with U < e^(−v).
    """
    coins = words32(bits, many)
    counts = _SUCCESSES.size - np.searchsorted(_SUCCESSES, coins, side="right")
    unclear = counts < _SUCCESSES.size - np.searchsorted(_SUCCESSES, coins, side="left")
    for index in np.flatnonzero(unclear):
        counts[index] = _successes(bits, int(coins[index]))
    return counts


def _successes(bits: BitSource, coin: int) -> int:
    """The same for one coin whose first bits do not tell."""
    known = COIN_BITS + MORE_BITS
    coin = coin << MORE_BITS | integer(bits, MORE_BITS)
    count = 0
    while True:
        below, above = _exp_bounds((Fraction(count + 1), Fraction(count + 1)), known)
        if Fraction(coin, 1 << known) >= above:
            return count
        if Fraction(coin + 1, 1 << known) <= below:
            count += 1
        else:
            coin = coin << MORE_BITS | integer(bits, MORE_BITS)
            known += MORE_BITS


def _success_table() -> Integers:
    """⌊2³² e^(−v)⌋ in rising order, down to the first that is zero."""
    table = [0]
    count = 1
    while (whole := int(_exp_bounds((Fraction(count), Fraction(count)), 128)[0] * 2**COIN_BITS)) > 0:
        table.append(whole)
        count += 1
    return np.sort(np.array(table, dtype=np.int64))


_SUCCESSES = _success_table()


def uniform_below(bits: BitSource, limit: int, many: int) -> Integers:
    """Uniform integers in [0, limit), for 1 ≤ limit ≤ 2⁶²: as many bits as needed, others drawn again."""
    width = (limit - 1).bit_length()
    found = uniform_bits(bits, width, many)
    while (outside := np.flatnonzero(found >= limit)).size:
        found[outside] = uniform_bits(bits, width, outside.size)
    return found


def uniform_bits(bits: BitSource, width: int, many: int) -> Integers:
    """Uniform integers of ``width`` bits, at most 62."""
    return (words64(bits, many) >> np.uint64(2) >> np.uint64(62 - width)).astype(np.int64)
