"""Remaining fractions of datasets as stored with each of them; no ledger is read."""

import functools
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Select, select

from dpledger.storage.engine.session import Database, in_list, select_in_list
from dpledger.storage.tables import datasets

__all__ = ["WHOLE", "basis_points", "fractions_left"]

WHOLE = 10_000
"""A whole budget, in the unit in which it is stored."""


def basis_points(fraction: float) -> int:
    """A part of a budget in the unit in which it is stored, rounded down."""
    return int(WHOLE * fraction)


@functools.cache
def _left(size: int) -> Select[Any]:
    return select(datasets.c.name, datasets.c.left_basis_points).where(in_list(datasets.c.name, size))


def fractions_left(database: Database, names: Sequence[str]) -> dict[str, float]:
    """The part of its budget that each dataset has left, rounded down; unknown names are left out."""
    if not names:
        return {}
    with database.read() as session:
        return {name: left / WHOLE for name, left in select_in_list(session, _left, names)}
