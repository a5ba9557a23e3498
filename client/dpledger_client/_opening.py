"""Compares an open dataset with the one that a caller asked to open."""

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dpledger_client.errors import AlreadyExists, BudgetChangedWarning, DatasetMismatch

__all__ = ["EXIST_OK_NOTE", "FIRST_ENTRY", "compare_allocated", "compare_opened"]

EXIST_OK_NOTE = "exist_ok=True takes one of this name that is open already, if it is this one"
"""Added to a refusal of a taken name, which most often means a script that is run again."""

FIRST_ENTRY = "/entries/1"
"""Where a dataset's opening is recorded."""
_DEFAULTS = {"adjacency": "add-remove", "unit": "record"}
_AMOUNTS = ("epsilon", "delta", "rho", "mu")


def compare_opened(
    asked: Mapping[str, Any],
    shown: Mapping[str, Any],
    limit: Mapping[str, Any],
    opened: Mapping[str, Any],
    taken: AlreadyExists,
) -> None:
    """Raise :class:`DatasetMismatch` unless the dataset is as ``asked``; both values are in the error.

    A budget may have been changed on record since the opening, and a notebook that is run again still asks
    for the first one. So the budget asked for must be the one of the opening or the present one; where
    it is not the present one, that is warned of. The plan of a Rényi budget is not kept, and not compared.

    Parameters
    ----------
    asked
        The body of the request to open it.
    shown, limit
        The dataset as it is, and the present limit of its budget.
    opened
        The entry that opened it.
    taken
        What the service answered to the request.
    """
    first, present = _Described(json.loads(opened["detail"]["budget"])), _present(shown, limit)
    wrong = dict(_settings_that_differ(asked, shown))
    stated = [each.get("units_in_one_partition", False) for each in (asked, opened["detail"])]
    if stated[0] != stated[1]:
        wrong["units_in_one_partition"] = stated[0], stated[1]
    if not (first.is_what(asked["budget"]) or present.is_what(asked["budget"])):
        wrong["budget"] = asked["budget"], first.wire
    if wrong:
        raise DatasetMismatch.between(str(asked["name"]), wrong, taken)
    if not present.is_what(asked["budget"]):
        text = f"the budget of {asked['name']!r} was changed since it was opened with {asked['budget']!r}"
        warnings.warn(f"{text}: it is {shown['budget']!r} now", BudgetChangedWarning, stacklevel=4)


def compare_allocated(asked: Mapping[str, Any], shown: Mapping[str, Any], taken: AlreadyExists) -> None:
    """Raise :class:`DatasetMismatch` unless the allocation of this name is open and as ``asked``.

    Compared are ε, δ, and of the budget inside the kind, the amounts and the items.
    """
    present = {"state": "open", "epsilon": asked["epsilon"], "delta": asked["delta"]}
    wrong = {name: (value, shown[name]) for name, value in present.items() if shown[name] != value}
    if not _present(shown, shown["limit"]).is_what(asked["budget"]):
        wrong["budget"] = asked["budget"], shown["budget"]
    if wrong:
        raise DatasetMismatch.between(str(asked["name"]), wrong, taken, "allocation")


def _settings_that_differ(
    asked: Mapping[str, Any], shown: Mapping[str, Any]
) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """What was asked for, or is an opening's default, and is otherwise; ``records`` only if asked for."""
    wanted = {**_DEFAULTS, **{name: asked[name] for name in (*_DEFAULTS, "records") if name in asked}}
    by_key = "fixed" if wanted["adjacency"] == "add-remove" else "private"
    wanted["partition_key"] = asked.get("partition_key", by_key)
    for name, value in wanted.items():
        if shown[name] != value:
            yield name, (value, shown[name])


def _present(shown: Mapping[str, Any], limit: Mapping[str, Any]) -> "_Described":
    """The budget as it is now, in the form of the ledger's document."""
    target = {name: value for name, value in shown["budget"].items() if name != "accounting"}
    limits = [*limit.get("epsilons", ()), limit.get("additive_delta", 0.0)]
    rule = {"accounting": shown["budget"]["accounting"], "orders": shown.get("orders", [])}
    details = {"items": shown["budget"].get("items", [])}
    return _Described({**rule, "target": target, "limits": limits, "details": details})


def _is_item(asked: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    """Whether an item of a plan is the one asked for."""
    if asked.get("times") == "most":
        asked = {**asked, "times": found.get("times")}
    return _plain_item(asked) == _plain_item(found)


def _plain_item(item: Mapping[str, Any]) -> dict[str, Any]:
    """An item without what does not tell it from another: purposes, defaults, the order of releases."""
    plain = {name: value for name, value in item.items() if value is not None}
    if "releases" not in plain:
        return plain
    kept = [
        {name: value for name, value in release.items() if name != "purpose"} for release in plain["releases"]
    ]
    releases = sorted(({"count": 1, **release} for release in kept), key=_by_text)
    return {"sample": {"scheme": "full"}, **plain, "releases": releases}


def _by_text(release: Mapping[str, Any]) -> str:
    # 1 and 1.0 are the same number, and must be sorted alike.
    plain = {name: float(value) if isinstance(value, int) else value for name, value in release.items()}
    return json.dumps(plain, sort_keys=True)


class _Described:
    """A budget as the ledger keeps it."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self._target: Mapping[str, Any] = document["target"]

    @property
    def wire(self) -> dict[str, Any]:
        """In the words of a request."""
        own = {"accounting": self._document["accounting"], **self._target}
        own |= {"items": self._items} if self._items else {}
        if self._document["accounting"] != "rdp-curve" or self._target.keys() & set(_AMOUNTS):
            return own
        return own | {"orders": self._document["orders"], "epsilons": self._document["limits"][:-1]}

    def is_what(self, budget: Mapping[str, Any]) -> bool:
        """Whether it has the rule and the amounts that a request asks for."""
        if budget["accounting"] != self._document["accounting"]:
            return False
        if (budget.get("additive_delta") or 0.0) != self._target.get("additive_delta", 0.0):
            return False
        amounts = [name for name in _AMOUNTS if budget.get(name) is not None]
        same = all(self._target.get(name) == budget[name] for name in amounts)
        return same and self._has_orders(budget) and self._has_items(budget)

    @property
    def _items(self) -> Sequence[Mapping[str, Any]]:
        found: Sequence[Mapping[str, Any]] = self._document.get("details", {}).get("items", [])
        return found

    def _has_items(self, budget: Mapping[str, Any]) -> bool:
        """Whether a plan has the items that are asked for; as many as fit are what was found to fit."""
        asked = budget.get("items")
        if asked is None:
            return True
        pairs = zip(asked, self._items, strict=False)
        return len(asked) == len(self._items) and all(_is_item(*pair) for pair in pairs)

    def _has_orders(self, budget: Mapping[str, Any]) -> bool:
        orders = [budget["order"]] if budget.get("order") is not None else budget.get("orders")
        if orders is not None and list(orders) != list(self._document["orders"]):
            return False
        epsilons = budget.get("epsilons")
        return epsilons is None or list(epsilons) == list(self._document["limits"][:-1])
