"""Rules of methods that take noisy gradients of all records."""

import math

from dpledger_client._checks import check_count, check_positive
from dpledger_client.optimizers.methods.noisy_gd import NoisyGradientDescent
from dpledger_client.optimizers.support.base import Method
from dpledger_client.optimizers.support.rules.facts import PublicFacts

__all__ = ["CLIP", "noisy_gd", "reach"]

CLIP = 1.0
"""To which norm a record's gradient is shortened, for features within [−1, 1]."""


def noisy_gd(facts: PublicFacts) -> Method:
    """Full gradients with momentum and a tail average.

    With s = Δ·m/√T the noise of the mean of T gradient sums, ηT = k·n/s is where noise moves a weight by k in
    a direction without curvature; k = √(n/500s) within [1, 3], as more exact data bear larger weights.
    """
    given = {"steps": 100, "clip": CLIP, "momentum": 0.9, "average": "tail", **facts.options}
    steps, clip = check_count("steps", given["steps"]), check_positive("clip", given["clip"])
    given.setdefault("noise_multiplier", facts.room.multiplier(steps))
    strength = facts.records * math.sqrt(steps) / (facts.sensitivity(clip) * given["noise_multiplier"])
    given.setdefault("step_size", reach(strength) * strength / steps * (1.0 - given["momentum"]))
    return NoisyGradientDescent(**given)


def reach(strength: float) -> float:
    """k: by how much noise may move a weight."""
    return min(3.0, max(1.0, math.sqrt(strength / 500.0)))
