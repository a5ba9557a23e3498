"""Conditions on lists of values (IN clauses).

Lists come in sizes that are powers of two: there are few texts then, and the databases keep them
prepared. A shorter list is filled up by repeating its last value.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sqlalchemy import BigInteger, Column, Select, bindparam
from sqlalchemy.sql.elements import ColumnElement

from dpledger.storage.engine.session import LISTED, Query, Row, Session

__all__ = ["build_queries", "in_list", "of_dataset", "rows_of_each", "select_in_list"]

_MOST = 256


def of_dataset(column: Column[Any]) -> ColumnElement[bool]:
    """The condition that ``column`` is the given dataset."""
    return column == bindparam("dataset_id", type_=BigInteger)


def in_list(column: Column[Any], size: int) -> ColumnElement[bool]:
    """The condition that ``column`` is one of ``size`` values."""
    return column.in_([bindparam(f"{LISTED}{index}", type_=column.type) for index in range(size)])


def select_in_list(
    session: Session, query: Callable[[int], Select[Any]], values: Sequence[Any], **others: Any
) -> list[Row]:
    """The rows that ``query``, made for a size, finds for all values."""
    (found,) = rows_of_each(session, [build_queries(query, values, **others)])
    return found


def build_queries(query: Callable[[int], Select[Any]], values: Sequence[Any], **others: Any) -> list[Query]:
    """What to ask so that ``query``, made for a size, is asked for all values."""
    asked = []
    for piece in _pieces(values):
        size = 1 << (len(piece) - 1).bit_length()
        asked.append(Query(query(size), others, [*piece, *[piece[-1]] * (size - len(piece))]))
    return asked


def rows_of_each(session: Session, lists: Sequence[Sequence[Query]]) -> list[list[Row]]:
    """All rows for each list of queries; everything is asked at once."""
    found = iter(session.rows_of([query for asked in lists for query in asked]))
    return [[row for _ in asked for row in next(found)] for asked in lists]


def _pieces(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(values), _MOST):
        yield values[start : start + _MOST]
