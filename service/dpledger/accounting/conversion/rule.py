"""One entry of the conversion tables."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dpledger.accounting.conversion.guarantees import Guarantee, Notion, Target

__all__ = ["Answer", "Rule", "Table"]

Answer = tuple[Guarantee, float | None]
"""A guarantee, and the Rényi order it was found at where one was chosen."""


@dataclass(frozen=True)
class Rule:
    """A theorem that leads from one notion to another."""

    method: str
    theorem: str
    conditions: str
    source: str
    apply: Callable[[Any, Target], Answer]
    also: tuple[str, ...] = ()
    """Other names under which the same theorem is known."""
    named_only: bool = False
    """True where ``tight`` must not pick it unasked, because the answer is weaker than its notion."""


Table = dict[tuple[Notion, Notion], tuple[Rule, ...]]
"""From and to, with the theorems that lead there, the tightest first."""
