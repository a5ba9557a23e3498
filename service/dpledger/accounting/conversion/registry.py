"""One door to every conversion: by notion from, notion to, and the theorem's name.

``convert`` answers what a guarantee implies; ``invert`` answers how much of a notion may be spent so
that a goal is implied. What no theorem allows raises :class:`Unproven`.
"""

from dataclasses import dataclass
from typing import Any

from dpledger.accounting.conversion.budgets import BUDGETS
from dpledger.accounting.conversion.guarantees import Approximate, Guarantee, Notion, Pure, Target
from dpledger.accounting.conversion.implications import IMPLICATIONS
from dpledger.accounting.conversion.rule import Rule, Table
from dpledger.accounting.errors import Unproven
from dpledger.accounting.validation import check_choice

__all__ = ["TIGHT", "Conversion", "convert", "invert", "methods_between"]

TIGHT = "tight"
"""The method's name that stands for the best proven rule of a pair, the first in its table."""


@dataclass(frozen=True)
class Conversion:
    """A converted guarantee with the theorem that proves it."""

    guarantee: Guarantee
    method: str
    theorem: str
    conditions: str
    source: str
    order: float | None = None

    def fields(self) -> dict[str, Any]:
        """The wire form; ``order`` only where one was chosen."""
        wire = {
            "guarantee": self.guarantee.fields(),
            "method": self.method,
            "theorem": self.theorem,
            "conditions": self.conditions,
            "source": self.source,
        }
        return wire if self.order is None else wire | {"order": self.order}


def convert(source: Guarantee, target: Target, method: str = TIGHT) -> Conversion:
    """What ``source`` implies in the target's notion.

    Parameters
    ----------
    source
        What is known to hold.
    target
        The notion wanted, with δ (or ε) for an approximate one and orders for a curve.
    method
        A theorem's name (see :func:`methods_between`), or ``tight`` for the best proven.

    Raises
    ------
    Unproven
        Where no theorem leads from the one to the other.

    Examples
    --------
    >>> from dpledger.accounting.conversion import Notion, Target, Zcdp, convert
    >>> convert(Zcdp(0.5), Target(Notion.APPROXIMATE, delta=1e-6)).method
    'canonne-kamath-steinke'
    """
    if isinstance(source, Approximate) and source.delta == 0.0:
        source = Pure(source.epsilon)
    return _apply(IMPLICATIONS, "implies", source, target, method)


def invert(goal: Guarantee, target: Target, method: str = TIGHT) -> Conversion:
    """The most of the target's notion that may be spent so that ``goal`` is implied, rounded down.

    The answer is a budget, not an implication: what spends no more than it has the guarantee ``goal``.

    Examples
    --------
    >>> from dpledger.accounting.conversion import Approximate, Notion, Target, invert
    >>> invert(Approximate(1.0, 1e-6), Target(Notion.ZCDP)).guarantee.notion
    <Notion.ZCDP: 'zcdp'>
    """
    return _apply(BUDGETS, "can be met by a budget of", goal, target, method)


def methods_between(source: Notion, target: Notion) -> tuple[str, ...]:
    """Names of the theorems that lead from one notion to the other, the tightest first."""
    return tuple(rule.method for rule in IMPLICATIONS.get((source, target), ()))


def _apply(table: Table, relation: str, source: Guarantee, target: Target, method: str) -> Conversion:
    rules = table.get((source.notion, target.notion), ())
    if not rules:
        raise Unproven(f"no theorem says that {source.notion.value} {relation} {target.notion.value}")
    rule = _chosen(rules, method)
    guarantee, order = rule.apply(source, target)
    return Conversion(guarantee, rule.method, rule.theorem, rule.conditions, rule.source, order)


def _chosen(rules: tuple[Rule, ...], method: str) -> Rule:
    if method == TIGHT:
        if rules[0].named_only:
            raise Unproven(f"only {rules[0].conditions}; ask for method {rules[0].method}")
        return rules[0]
    by_name = {name: rule for rule in rules for name in (rule.method, *rule.also)}
    return by_name[check_choice("method", method, (TIGHT, *by_name))]
