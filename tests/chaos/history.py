"""The history of a run as its clients saw it: what each asked, what it met, and what it was answered."""

import threading
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.classes import Met
from tests.reliability.wire import Ask, Heard

__all__ = ["Asked", "History"]


@dataclass
class Asked:
    """One request under its key, with all that was met and every final answer that came, in order."""

    request: Ask
    met: list[Met] = field(default_factory=list)
    answers: list[Heard] = field(default_factory=list)

    @property
    def answer(self) -> Heard | None:
        """The first final answer."""
        return self.answers[0] if self.answers else None

    @property
    def recorded(self) -> bool:
        """Whether the answer is one that the ledger keeps: a grant, a record, or a refusal."""
        return self.answer is not None and (self.answer.status == 201 or self.refused)

    @property
    def refused(self) -> bool:
        """Whether the budget did not cover it."""
        return self.answer is not None and self.answer.problem == "budget-exhausted"


@dataclass
class History:
    """Everything that was asked, and in the end every ledger as the service shows it."""

    asked: list[Asked] = field(default_factory=list)
    ledgers: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """The entries of each dataset, by sequence number."""
    invalid: list[str] = field(default_factory=list)
    """What the service's own verification found."""
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, request: Ask) -> Asked:
        """Take note of a request before it is sent."""
        made = Asked(request)
        with self._guard:
            self.asked.append(made)
        return made
