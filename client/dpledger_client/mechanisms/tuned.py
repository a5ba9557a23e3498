"""Private tuning as one mechanism: the best of a random number of trials."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np

from dpledger_client._arrays import Floats
from dpledger_client._coins import uniform_below
from dpledger_client.mechanisms.base import Mechanism
from dpledger_client.noise import Noise
from dpledger_client.trials import Trials

__all__ = ["NOTHING_RAN", "Trial", "Tuned"]

Trial: TypeAlias = Callable[[int], tuple[float, Floats]]
"""Runs a candidate, by its number: gives its noisy score and what else it puts out."""
NOTHING_RAN = -1.0


@dataclass(frozen=True)
class Tuned(Mechanism):
    """The best of a random number of trials, each of a candidate drawn uniformly (Papernot, Steinke 2022).

    What is released is a vector: the number of the best trial's candidate, its score, and its output; or
    ``NOTHING_RAN`` alone, where a Poisson number was 0. Among equal scores the first counts: the trials are
    exchangeable, so that this is a coin that does not depend on the data.

    Parameters
    ----------
    trials
        The law of their number.
    candidates
        Of each candidate the steps that its trial takes at most, as the items of a plan are written; the
        noisy score is one of them.
    """

    kind: ClassVar[str] = "tuned"
    trials: Trials
    candidates: tuple[tuple[Mapping[str, Any], ...], ...]

    def fields(self) -> dict[str, Any]:
        steps = [[dict(step) for step in candidate] for candidate in self.candidates]
        return {"mechanism": self.kind, **self.trials.fields(), "candidates": steps}

    def apply(self, value: Trial, noise: Noise) -> Floats:
        best: tuple[float, int, Floats] | None = None
        for _ in range(self.trials.draw(noise.bits)):
            candidate = int(uniform_below(noise.bits, len(self.candidates), 1)[0])
            score, output = value(candidate)
            if best is None or _order(score) > _order(best[0]):
                best = score, candidate, output
        return np.array([NOTHING_RAN]) if best is None else np.array([best[1], best[0], *best[2]])


def _order(score: float) -> float:
    """What is no number counts least."""
    return -math.inf if math.isnan(score) else score
