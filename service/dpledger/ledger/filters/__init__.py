"""Kinds of budgets: one class per kind behind one protocol. To add one, write the class and register it."""

from dpledger.ledger.filters.plan import PlanFilter
from dpledger.ledger.filters.renyi import RenyiCurveFilter, RenyiOrderFilter, WeightedOrdersFilter
from dpledger.ledger.filters.scalar import GaussianFilter, ZcdpFilter
from dpledger.ledger.filters.shared import SharedFilter
from dpledger.ledger.model.filter import (
    Filter,
    Meter,
    added_filters,
    filter_named,
    filter_names,
    register,
    register_added,
    unregister,
)

__all__ = [
    "Filter",
    "Meter",
    "added_filters",
    "filter_named",
    "filter_names",
    "register",
    "register_added",
    "unregister",
]

for _filter in (
    ZcdpFilter(),
    GaussianFilter(),
    WeightedOrdersFilter(),
    RenyiOrderFilter(),
    RenyiCurveFilter(),
    PlanFilter(),
    SharedFilter(),
):
    register(_filter)
