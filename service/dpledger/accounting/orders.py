"""The default grid of Rényi orders.

Why this grid
-------------
The best order for a Gaussian that uses up (ε, δ) is about 1 + 2·log(1/δ)/ε: 5,500 for ε = 0.01
and δ = 1e-12, below 1.3 for ε = 20 and a moderate δ. The grid is geometric in α − 1 with ratio
2^(1/8), from 1/32 to 8,192: for a Gaussian and δ ≤ 1e-3 that loses at most 0.15 % of ε between two
neighbours. All whole orders from 2 to 33 are included, and from 34 on the grid is rounded to whole
orders, because bounds proven only there are the tightest there. Curves that bend sharply, such as
that of a subsampled Gaussian near its best order, lose more (0.1 % at q = 0.01, σ = 1.1, 1,000 steps):
calibration and filters choose their order among all reals.
"""

import functools

import numpy as np

from dpledger.accounting.validation import Floats

__all__ = ["DEFAULT_ORDERS", "integers_up_to"]

_STEPS_PER_OCTAVE = 8
_FIRST_OCTAVE, _LAST_OCTAVE = -5, 13
_INTEGERS_FROM = 34.0
_ALL_INTEGERS_UNTIL = 33


def _default_orders() -> Floats:
    octaves = np.arange(_FIRST_OCTAVE * _STEPS_PER_OCTAVE, _LAST_OCTAVE * _STEPS_PER_OCTAVE + 1)
    geometric = 1.0 + np.exp2(octaves / _STEPS_PER_OCTAVE)
    rounded = np.where(geometric < _INTEGERS_FROM, geometric, np.round(geometric))
    orders = np.union1d(rounded, np.arange(2.0, _ALL_INTEGERS_UNTIL + 1.0))
    orders.flags.writeable = False
    return orders


DEFAULT_ORDERS: Floats = _default_orders()
"""Strictly increasing, read-only; see the module's text for the choice."""


@functools.lru_cache(maxsize=64)
def integers_up_to(last: int) -> Floats:
    """2, 3, …, last as read-only floats."""
    values = np.arange(2.0, last + 1.0)
    values.flags.writeable = False
    return values
