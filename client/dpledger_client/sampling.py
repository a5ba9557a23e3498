"""Samplers that are what they are declared to be, from the same source of bits as the noise.

Which records are in a sample is as secret as the noise: amplification by sampling holds only while nobody
knows. So coins are not taken from a seeded generator. Each sampler is exact but for the coin's
probability, which is rounded down by less than 2⁻⁶⁴: a smaller rate never costs more.
"""

from fractions import Fraction

import numpy as np

from dpledger_client._arrays import Integers
from dpledger_client._bits import BitSource, bytes_below, words64
from dpledger_client._coins import uniform_below

__all__ = ["expected_size", "permutation", "poisson", "without_replacement"]

_MOST_RECORDS = 1 << 40
_LATER_BITS = 56


def poisson(records: int, rate: float, bits: BitSource) -> Integers:
    """The indices of those of ``records`` whose own coin of probability ``rate`` came up.

    A coin is a uniform number below the rate. Its first eight bits decide but for one in 256, for which
    56 more are drawn.
    """
    _check_records(records)
    if rate >= 1.0:
        return np.arange(records)
    first, later = divmod(int(Fraction(rate) * 2 ** (8 + _LATER_BITS)), 1 << _LATER_BITS)
    coins = bytes_below(bits, records)
    heads = coins < first
    unclear = np.flatnonzero(coins == first)
    heads[unclear] = words64(bits, unclear.size) >> np.uint64(64 - _LATER_BITS) < np.uint64(later)
    return np.flatnonzero(heads)


def without_replacement(records: int, size: int, bits: BitSource) -> Integers:
    """``size`` different indices below ``records``, every set of them equally likely, in rising order.

    Indices are drawn uniformly and repetitions dropped; of a set larger than half, what is left out.
    """
    _check_records(records)
    if not 0 <= size <= records:
        raise ValueError(f"size must be in [0, {records}], found {size!r}")
    if 2 * size > records:
        kept = np.ones(records, dtype=np.bool_)
        kept[without_replacement(records, records - size, bits)] = False
        return np.flatnonzero(kept)
    chosen = np.empty(0, dtype=np.int64)
    while chosen.size < size:
        drawn = uniform_below(bits, records, size - chosen.size + 8)
        together = np.concatenate([chosen, drawn])
        _, places = np.unique(together, return_index=True)
        chosen = together[np.sort(places)][:size]
    return np.sort(chosen)


def permutation(records: int, bits: BitSource) -> Integers:
    """All indices below ``records`` in an order that is any with the same probability.

    They are sorted by random keys; if two keys are equal, all are drawn again.
    """
    _check_records(records)
    while True:
        keys = words64(bits, records)
        order = np.argsort(keys)
        ordered = keys[order]
        if not (ordered[1:] == ordered[:-1]).any():
            return order


def expected_size(records: int, rate: float) -> float:
    """The public number q·n by which a noisy sum over a sample is divided.

    The sample's own size is as secret as its members: dividing by it is not covered by any bound.
    """
    return rate * records


def _check_records(records: int) -> None:
    if not 0 <= records <= _MOST_RECORDS:
        raise ValueError(f"records must be in [0, 2**40], found {records!r}")
