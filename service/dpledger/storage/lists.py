"""Conditions on a list of values.

Lists come in sizes that are powers of two: there are few texts then, and the databases keep them
prepared. A shorter list is filled up by repeating its last value.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sqlalchemy import BigInteger, Column, Select, bindparam
from sqlalchemy.sql.elements import ColumnElement

from dpledger.storage.session import LISTED, Row, Session

__all__ = ["listed", "of_dataset", "rows_listed"]

_MOST = 256


def of_dataset(column: Column[Any]) -> ColumnElement[bool]:
    """The condition that ``column`` is the dataset in question."""
    return column == bindparam("dataset_id", type_=BigInteger)


def listed(column: Column[Any], size: int) -> ColumnElement[bool]:
    """The condition that ``column`` is one of ``size`` values."""
    return column.in_([bindparam(f"{LISTED}{index}", type_=column.type) for index in range(size)])


def rows_listed(
    session: Session, query: Callable[[int], Select[Any]], values: Sequence[Any], **others: Any
) -> list[Row]:
    """The rows that ``query``, made for a size, finds for all values."""
    found: list[Row] = []
    for piece in _pieces(values):
        size = 1 << (len(piece) - 1).bit_length()
        filled = [*piece, *[piece[-1]] * (size - len(piece))]
        found += session.rows(query(size), others, filled)
    return found


def _pieces(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(values), _MOST):
        yield values[start : start + _MOST]
