"""Conversions between notions of privacy."""

from dpledger.accounting.conversion import Guarantee, Target, convert, guarantee_from_fields, invert
from dpledger.accounting.errors import InvalidInput, within
from dpledger.queries.requests import ConversionQuery, Fields

__all__ = ["answer_conversion"]


def answer_conversion(query: ConversionQuery) -> Fields:
    """What a guarantee implies in another notion, or with ``goal`` the most that may be spent."""
    with within("to"):
        target = Target.from_fields(query.to)
    known = query.holds if query.goal is None else query.goal
    if known is None or (query.holds is not None and query.goal is not None):
        raise InvalidInput("from", "given, or goal, but not both", None)
    name, rule = ("from", convert) if query.goal is None else ("goal", invert)
    return rule(_guarantee(name, known), target, query.method).fields()


def _guarantee(name: str, fields: Fields) -> Guarantee:
    with within(name):
        return guarantee_from_fields(fields)
