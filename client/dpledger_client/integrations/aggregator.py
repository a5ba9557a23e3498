"""The server's side of distributed training: collects answers, moves, and sees noisy updates only."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from dpledger_client._arrays import Floats
from dpledger_client._checks import check_count, check_positive
from dpledger_client.integrations.participant import Answer, Refusal, Update
from dpledger_client.objectives.base import parameters
from dpledger_client.objectives.regularizers import Regularizer, Unregularized
from dpledger_client.optimizers.support.federated import FederatedMethod, mean_update
from dpledger_client.optimizers.support.schedules import step_size_at

__all__ = ["Aggregator", "Collect", "FederatedResult"]


@dataclass(frozen=True)
class FederatedResult:
    """What a training of several participants led to.

    Attributes
    ----------
    w
        The parameters after the last round.
    rounds
        Who took part, round by round, by name.
    dropped
        Who takes no further part, and why.
    stop_reason
        ``finished``; ``budget-exhausted``, when the last participant dropped out; ``unanswered``, when
        a round brought no update; ``diverged``.
    """

    w: Floats
    rounds: tuple[tuple[str, ...], ...]
    dropped: Mapping[str, str]
    stop_reason: str


@dataclass
class Aggregator:
    """One training as the server sees it.

    Parameters
    ----------
    method
        As the participants have it.
    start
        Where to start; must not depend on data.
    participants
        How many there are. A round is over when each of them that still takes part has answered.
    regularizer
        As in the participants' objective.
    deadline_seconds
        How long a round waits for those who do not answer; then it is made without them.
    """

    method: FederatedMethod
    start: Any
    participants: int
    regularizer: Regularizer = field(default_factory=Unregularized)
    deadline_seconds: float = 600.0

    def __post_init__(self) -> None:
        check_count("participants", self.participants)
        check_positive("deadline_seconds", self.deadline_seconds)
        self.w: Floats = parameters(self.start).copy()
        self.iteration = 0
        self.dropped: dict[str, str] = {}
        self.rounds: list[tuple[str, ...]] = []
        self._updates: dict[str, Floats] = {}
        self._silent: set[str] = set()
        self._named: set[int | None] = set()
        self._nameless: set[int | None] = set()

    def train(self, collect: "Collect") -> FederatedResult:
        """Make rounds until the method's last, or until nobody sends an update any more."""
        for _ in range(self.method.steps):
            self._begin()
            collect(self, time.monotonic() + self.deadline_seconds)
            reason = self._move()
            if reason is not None:
                return self._result(reason)
        return self._result("finished")

    def take(self, answer: Answer, sender: int | None = None) -> None:
        """Note a participant's answer to this round; one that comes twice counts once.

        ``sender`` tells failures without a name apart, and from the answer that their sender gave before.
        """
        if not answer.participant:
            self._nameless |= {sender} - self._named
            return
        self._named.add(sender)
        self._nameless.discard(sender)
        if isinstance(answer, Update) and self._is_usable(answer):
            self._updates[answer.participant] = answer.value
            self._silent.discard(answer.participant)
            return
        if isinstance(answer, Refusal) and answer.final:
            self.dropped[answer.participant] = answer.reason
        if answer.participant not in self._updates:
            self._silent.add(answer.participant)

    @property
    def complete(self) -> bool:
        """Whether everybody who still takes part has answered this round."""
        others = (self.dropped.keys() | self._silent) - self._updates.keys()
        return len(self._updates) + len(others) + len(self._nameless) >= self.participants

    def _is_usable(self, answer: Update) -> bool:
        """Whether it is an update to this round's parameters, from somebody who takes part."""
        value = answer.value
        return (
            answer.participant not in self.dropped
            and value.shape == self.w.shape
            and bool(np.isfinite(value).all())
        )

    def _begin(self) -> None:
        self.iteration += 1
        self._updates, self._silent = {}, set()
        self._named, self._nameless = set(), set()

    def _move(self) -> str | None:
        """Move by the round's updates, in the order of names; why training ends, if it does."""
        names = tuple(sorted(self._updates))
        if not names:
            everybody = len(self.dropped) >= self.participants
            return "budget-exhausted" if everybody else "unanswered"
        eta = step_size_at(self.method.step_size, self.iteration)
        mean = mean_update([self._updates[name] for name in names])
        moved = self.method.move(self.w, mean, eta, self.regularizer)
        self.rounds.append(names)
        if not np.isfinite(moved).all():
            return "diverged"
        self.w = moved
        return None

    def _result(self, reason: str) -> FederatedResult:
        return FederatedResult(self.w.copy(), tuple(self.rounds), dict(self.dropped), reason)


Collect: TypeAlias = Callable[[Aggregator, float], None]
"""Asks the participants for this round and hands their answers to ``take``, until it is ``complete`` or the
monotonic clock is past the deadline."""
