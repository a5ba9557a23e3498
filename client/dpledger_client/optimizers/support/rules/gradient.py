"""Rules of methods that take noisy gradients of all records."""

import math

from dpledger_client._checks import check_count, check_positive
from dpledger_client.objectives.linear import LeastSquares
from dpledger_client.optimizers.methods.noisy_gd import NoisyGradientDescent
from dpledger_client.optimizers.support.base import Method
from dpledger_client.optimizers.support.rules.facts import PublicFacts

__all__ = ["CLIP", "noisy_gd", "reach", "step_size", "usual_norm"]

CLIP = 0.5
"""To which norm a record's gradient is shortened, for features within [−1, 1]."""


def noisy_gd(facts: PublicFacts) -> Method:
    """Full gradients with momentum and a tail average.

    With Δm/√T the noise of the mean of T gradient sums and s = n√T/(Δm), ηT = k·s is where noise moves a
    weight by k in a direction without curvature: see :func:`reach`.
    """
    given = {"steps": 100, "clip": CLIP, "momentum": 0.9, "average": "tail", **facts.options}
    steps, clip = check_count("steps", given["steps"]), check_positive("clip", given["clip"])
    given.setdefault("noise_multiplier", facts.room.multiplier(steps))
    strength = facts.records * math.sqrt(steps) / (facts.sensitivity(clip) * given["noise_multiplier"])
    given.setdefault("step_size", step_size(facts, strength, steps, given["momentum"]))
    return NoisyGradientDescent(**given)


def step_size(facts: PublicFacts, strength: float, steps: int, momentum: float = 0.0) -> float:
    """η of ηT/(1 − m) = k·s, and at most what :func:`largest_step` allows."""
    path = reach(strength, facts.features) * strength
    return min(path / steps * (1.0 - momentum), largest_step(facts, momentum))


def largest_step(facts: PublicFacts, momentum: float = 0.0) -> float:
    """Ten times 2(1 + m)/L, from which on gradient descent with momentum no longer converges.

    L is the curvature of the loss for rows of the usual norm. Clipped gradients of losses that grow linearly
    bear steps beyond it, which cross flat directions faster; those of least squares do not: half of it.
    """
    if facts.features is None:
        return math.inf
    smoothness = facts.objective.smoothness(math.hypot(usual_norm(facts.features), 1.0))
    if not (math.isfinite(smoothness) and smoothness > 0.0):
        return math.inf
    factor = 0.5 if isinstance(facts.loss, LeastSquares) else 10.0
    return factor * 2.0 * (1.0 + momentum) / smoothness


def reach(strength: float, features: int | None = None) -> float:
    """k: by how much noise may move a weight.

    √(s/500) within [1, 3], as more exact data bear larger weights; less where rows are so long that the noise
    of their margins, about k times their norm, would outweigh what is learned.
    """
    exact = 1.0 if features is None else min(1.0, strength / (20.0 * usual_norm(features) ** 2))
    return min(3.0, max(1.0, math.sqrt(strength / 500.0))) * exact**4


def usual_norm(features: int) -> float:
    """Of a row of features within [−1, 1]: some are spread out, some are mostly zero."""
    return math.sqrt(0.12 * features)
