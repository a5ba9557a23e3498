"""Rules of methods that are asked for once: noise on the result, or in the objective.

Their sensitivities follow from public numbers, so that the noise is solved for before any data are touched.
"""

import math
from typing import Any

import numpy as np

from dpledger_client.objectives.linear import LeastSquares, Linear
from dpledger_client.optimizers.methods.mpadmm import ModelPerturbationADMM, model_sensitivity
from dpledger_client.optimizers.methods.nsgd import NSGD
from dpledger_client.optimizers.methods.objective_perturbation import ObjectivePerturbation
from dpledger_client.optimizers.methods.output_perturbation import OutputPerturbation
from dpledger_client.optimizers.methods.rsgd_ar import RSGDAR
from dpledger_client.optimizers.support.base import Method
from dpledger_client.optimizers.support.planning import Item, Setting, start_of, step_item
from dpledger_client.optimizers.support.projections import L2Ball
from dpledger_client.optimizers.support.rules.facts import Choice, PublicFacts
from dpledger_client.optimizers.support.rules.gradient import CLIP, reach, step_size, usual_norm

__all__ = ["mpadmm", "nsgd", "objective_perturbation", "output_perturbation", "rsgd_ar"]

_RADIUS = 5.0
"""Of the ball that least squares is kept in: without one its gradients have no bound."""
_MOST_STEPS = 300
_BATCHES, _EPOCHS = 20, 10
_AVERAGING = 5


def output_perturbation(facts: PublicFacts) -> Method:
    """Gradient descent for so long that the noise for where it ends moves a weight by k."""
    given = _bounded(facts)
    path, largest = _path(facts, given["row_norm"]), _largest_step(facts, given["row_norm"])
    given.setdefault("steps", max(1, min(_MOST_STEPS, math.ceil(path / largest))))
    given.setdefault("step_size", min(largest, path / given["steps"]))
    given.setdefault("noise_multiplier", facts.room.multiplier(1))
    return OutputPerturbation(**given)


def nsgd(facts: PublicFacts) -> Method:
    """Ten epochs over twenty mini-batches, along the same path as ``output-perturbation``."""
    return NSGD(**_passes(facts, NSGD, {"schedule": "fixed"}, float(_EPOCHS)))


def rsgd_ar(facts: PublicFacts) -> Method:
    """The same with averages every five epochs, and the step sizes that shrink in between."""
    shrinking = math.fsum(1.0 / epoch for epoch in range(1, _AVERAGING + 1)) * _EPOCHS / _AVERAGING
    return RSGDAR(**_passes(facts, RSGDAR, {"interval": _AVERAGING}, shrinking))


def mpadmm(facts: PublicFacts) -> Method:
    """Gaussian noise on x in each of a hundred passes, all together for the μ of the request."""
    given = {"steps": 100, "clip": CLIP, **facts.options}
    steps, clip = given["steps"], given["clip"]
    multiplier = facts.room.multiplier(steps)
    strength = facts.records * math.sqrt(steps) / (facts.sensitivity(clip) * multiplier)
    given.setdefault("step_size", step_size(facts, strength, steps))
    given.setdefault("penalty", 0.5 / (given["step_size"] * steps))
    moved = model_sensitivity(clip, given["step_size"], given["penalty"], facts.records, facts.adjacency)
    given.setdefault("noise_std", multiplier * moved)
    return ModelPerturbationADMM(**given)


def objective_perturbation(facts: PublicFacts) -> Choice:
    """A linear term of multiplier m, and Λ = mΔ/k, with which that term moves the minimum by k at most."""
    given = _bounded(facts)
    given.pop("projection", None)

    def method(noise: float) -> ObjectivePerturbation:
        weight = _slope(facts, given["row_norm"]) * (1.0 if facts.adjacency == "add-remove" else 2.0)
        strength = noise * weight / reach(facts.records / noise) / facts.records
        return ObjectivePerturbation(
            **{"noise_multiplier": noise, "extra_strength": strength, "tolerance": 1e-4, **given}
        )

    def items(noise: float) -> list[Item]:
        made = method(noise)
        release = made.release(facts.objective, facts.records, facts.adjacency, facts.dimension)
        return [step_item("model", release)]

    chosen = method(facts.room.least(items, 10.0))
    release = chosen.release(facts.objective, facts.records, facts.adjacency, facts.dimension)
    return Choice(chosen, (step_item("model", release),))


def _passes(facts: PublicFacts, kind: Any, more: dict[str, Any], lengths: float) -> dict[str, Any]:
    """Mini-batches, and noise for the mixture over where a record lies; ``lengths`` is Σ ηₛ/η₀."""
    given = {"epochs": _EPOCHS, "batches": min(_BATCHES, facts.records), **more, **_bounded(facts)}
    path, largest = _path(facts, given["row_norm"]), _largest_step(facts, given["row_norm"])
    given.setdefault("step_size", min(largest, path / (lengths * given["batches"])))
    setting = Setting(
        facts.adjacency, facts.records, facts.objective, start_of(facts.dimension, facts.start), None
    )

    def items(noise: float) -> list[Item]:
        found: list[Item] = kind(**{**given, "noise_multiplier": noise}).items(setting)
        return found

    if "noise_multiplier" not in given:
        given["noise_multiplier"] = facts.room.least(items, 1.0)
    return given


def _bounded(facts: PublicFacts) -> dict[str, Any]:
    """The norm to which rows are shortened: about that of a row whose values are spread over [−1, 1]."""
    longest = math.inf if facts.row_norm is None else facts.row_norm
    usual = math.hypot(usual_norm(facts.features or 1), 1.0)
    projected = {"projection": L2Ball(_RADIUS)} if isinstance(facts.loss, LeastSquares) else {}
    return {"row_norm": float(min(longest, usual)), **projected, **facts.options}


def _slope(facts: PublicFacts, row_norm: float) -> float:
    """The bound on a record's gradient."""
    radius = _RADIUS if isinstance(facts.loss, LeastSquares) else math.inf
    found = facts.objective.lipschitz(row_norm, radius)
    return float(found) if np.isfinite(found) else row_norm


def _path(facts: PublicFacts, row_norm: float) -> float:
    """Ση: with Δ = 2RΣη/n and noise of Δ/μ, a weight moves by k where Ση = k·nμ/(2R)."""
    strength = facts.records * facts.room.mu / (2.0 * _slope(facts, row_norm))
    return reach(strength, facts.features) * strength


def _largest_step(facts: PublicFacts, row_norm: float) -> float:
    """1/L, where gradient descent converges steadily; 1 where the curvature has no bound."""
    smoothness = facts.objective.smoothness(row_norm) if isinstance(facts.objective, Linear) else math.inf
    return 1.0 / smoothness if math.isfinite(smoothness) and smoothness > 0.0 else 1.0
