"""Datasets found by a part of their name or description."""

from sqlalchemy import Text, bindparam, func, or_
from sqlalchemy.sql.elements import ColumnElement

from dpledger.storage.tables import datasets

__all__ = ["mentioning", "pattern_of"]


def mentioning() -> ColumnElement[bool]:
    """Datasets whose name or description has the text of the parameter ``pattern``, in any case."""
    # Lowered where the texts are: a database may leave letters as they are that Python lowers.
    pattern = func.lower(bindparam("pattern", type_=Text))
    texts = func.lower(datasets.c.name), func.lower(datasets.c.description)
    return or_(*[each.like(pattern, escape="\\") for each in texts])


def pattern_of(search: str) -> str:
    """The parameter for a text to be found as it is written."""
    for special in ("\\", "%", "_"):
        search = search.replace(special, f"\\{special}")
    return f"%{search}%"
