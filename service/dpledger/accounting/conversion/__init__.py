"""Conversion between pure, approximate, zero-concentrated, Rényi and Gaussian DP.

Each theorem is a named function in its source notion's module, and all are reached through
:func:`convert` (what a guarantee implies) and :func:`invert` (what may be spent to reach a goal).
"""

from dpledger.accounting.conversion.guarantees import (
    Approximate,
    Gdp,
    Guarantee,
    Notion,
    Pure,
    Rdp,
    Target,
    Zcdp,
    guarantee_from_fields,
)
from dpledger.accounting.conversion.registry import TIGHT, Conversion, convert, invert, methods_between
from dpledger.accounting.conversion.renyi import delta_at, epsilon_at

__all__ = [
    "TIGHT",
    "Approximate",
    "Conversion",
    "Gdp",
    "Guarantee",
    "Notion",
    "Pure",
    "Rdp",
    "Target",
    "Zcdp",
    "convert",
    "delta_at",
    "epsilon_at",
    "guarantee_from_fields",
    "invert",
    "methods_between",
]
