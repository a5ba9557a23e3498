"""Rules of methods that take noisy gradients of samples."""

import math
from dataclasses import replace
from typing import Any

from dpledger_client._checks import check_count, check_positive
from dpledger_client.optimizers.methods.dp_adam import DPAdam
from dpledger_client.optimizers.methods.dp_sgd import DPSGD
from dpledger_client.optimizers.methods.sgd_advanced import SGDAdvanced
from dpledger_client.optimizers.methods.sgd_moments import SGDMoments
from dpledger_client.optimizers.methods.ssadmm import SubsampledADMM
from dpledger_client.optimizers.support.base import Method
from dpledger_client.optimizers.support.batches import sample_at, sample_of
from dpledger_client.optimizers.support.planning import Setting, start_of
from dpledger_client.optimizers.support.rules.facts import PublicFacts
from dpledger_client.optimizers.support.rules.gradient import CLIP, step_size

__all__ = ["dp_adam", "dp_sgd", "sgd_advanced", "sgd_moments", "ssadmm"]

RATE = 0.1
"""Of the records in a sample: large samples lose least to noise, and a tenth costs a tenth of a pass."""
STEPS = 300
_SMALL_RATE, _FEW_STEPS = 0.01, 200
"""Of the two baselines, whose closed forms cover small rates."""
_ADAM_STEP = 0.3
"""By so much noise alone moves a weight in all steps of Adam, whose steps have a length of their own."""


def dp_sgd(facts: PublicFacts) -> Method:
    """Samples of a tenth, momentum, and the mean of iterates with weights that grow.

    The step size is that of ``noisy-gd``, with s = qn√T/(Δm) for the noise of T sampled gradients.
    """
    given = _sampled(facts, RATE, STEPS)
    given = {"momentum": 0.9, "average": "weighted", **given}
    given.setdefault("noise_multiplier", _noise(facts, given))
    given.setdefault("step_size", _step_size(facts, given, given["noise_multiplier"], given["momentum"]))
    return DPSGD(**given)


def dp_adam(facts: PublicFacts) -> Method:
    """The samples and the noise of ``dp-sgd``; η√T is fixed, as Adam divides gradients by their size."""
    given = _sampled(facts, RATE, STEPS)
    given.setdefault("noise_multiplier", _noise(facts, given))
    given.setdefault("step_size", _ADAM_STEP / math.sqrt(given["steps"]))
    return DPAdam(**given)


def sgd_advanced(facts: PublicFacts) -> Method:
    """Small samples, and the noise that advanced composition wants for (ε, δ)."""
    return _calibrated(facts, SGDAdvanced)


def sgd_moments(facts: PublicFacts) -> Method:
    """Small samples, and the noise that the moments accountant's closed form wants for (ε, δ)."""
    return _calibrated(facts, SGDMoments)


def ssadmm(facts: PublicFacts) -> Method:
    """The samples and the noise of ``dp-sgd``; a step shrinks by 1/(1 + ηρ), with ρ below 1/(ηT)."""
    given = {"steps": STEPS, "clip": CLIP, "rate": _rate(facts, RATE), **facts.options}
    steps, clip = check_count("steps", given["steps"]), check_positive("clip", given["clip"])
    if "noise_multiplier" not in given:
        sample = sample_at(given["rate"], facts.records, facts.adjacency)
        given["noise_multiplier"] = facts.room.multiplier(steps, sample)
    strength = given["rate"] * facts.records * math.sqrt(steps)
    strength /= facts.sensitivity(clip) * given["noise_multiplier"]
    given.setdefault("step_size", step_size(facts, strength, steps))
    given.setdefault("penalty", 0.5 / (given["step_size"] * steps))
    return SubsampledADMM(**given)


def _rate(facts: PublicFacts, rate: float) -> float:
    """So that a sample has one record at least."""
    return min(1.0, max(rate, 1.0 / facts.records))


def _sampled(facts: PublicFacts, rate: float, steps: int) -> dict[str, Any]:
    size = max(1, round(_rate(facts, rate) * facts.records))
    return {"steps": steps, "batch_size": size, "clip": CLIP, **facts.options}


def _noise(facts: PublicFacts, given: dict[str, Any]) -> float:
    sample = sample_of(given["batch_size"], facts.records, facts.adjacency)
    return facts.room.multiplier(given["steps"], sample)


def _step_size(facts: PublicFacts, given: dict[str, Any], noise: float, momentum: float) -> float:
    size = float(given["batch_size"]) * math.sqrt(given["steps"])
    strength = size / (facts.sensitivity(given["clip"]) * noise)
    return step_size(facts, strength, given["steps"], momentum)


def _calibrated(facts: PublicFacts, kind: type[SGDAdvanced] | type[SGDMoments]) -> Method:
    request = facts.room.request
    if request.epsilon is None or request.delta is None:
        raise ValueError(f"{kind.name} is for an (ε, δ): give epsilon and delta instead of spend")
    given = {"average": "weighted", **_sampled(facts, _SMALL_RATE, _FEW_STEPS)}
    given = {"epsilon": request.epsilon, "delta": request.delta, "step_size": 1.0, **given}
    method = kind(**given)
    if "step_size" in facts.options:
        return method
    start = start_of(facts.dimension, facts.start)
    ledger = facts.room.account.dataset.ledger
    setting = Setting(facts.adjacency, facts.records, facts.objective, start, ledger)
    return replace(method, step_size=_step_size(facts, given, method.noise_multiplier(setting), 0.0))
