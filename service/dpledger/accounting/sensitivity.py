"""Sensitivities of whole optimizers: how far training drifts apart on neighbouring datasets.

All results are rounded up. They hold under replace-one adjacency for the very step sizes passed in: what is
accounted must be what was trained (training with η0/h and accounting with η0/s is wrong: true 1.997,
claimed 1.442 in one example).
"""

import math
from collections.abc import Sequence

import numpy as np

from dpledger.accounting.errors import InvalidInput
from dpledger.accounting.rounding import Direction, add, widen
from dpledger.accounting.validation import (
    Floats,
    check_count,
    check_non_negative,
    check_positive,
    check_vector,
)

__all__ = [
    "contraction_factor",
    "fixed_step_sensitivity",
    "mpadmm_sensitivity",
    "permuted_sgd_sensitivities",
    "restarting_schedule",
    "shrinking_schedule",
]


def contraction_factor(step_size: float, smoothness: float, strong_convexity: float) -> float:
    """ρ = max(|1 − ημ|, |1 − ηL|): how much one gradient step can move two points apart.

    Statement: ‖(w − η∇f(w)) − (w' − η∇f(w'))‖ ≤ ρ‖w − w'‖; above 1 it expands, which is allowed.
    Conditions: every loss is L-smooth and μ-strongly convex, 0 ≤ μ ≤ L; any η > 0.
    Source: Lemma 3.1 of Chen 2020, dissertation.
    """
    step = check_positive("step_size", step_size)
    curvature = check_positive("smoothness", smoothness)
    convexity = check_non_negative("strong_convexity", strong_convexity)
    if convexity > curvature:
        raise InvalidInput("strong_convexity", f"at most the smoothness, {curvature!r}", convexity)
    factor = max(abs(1.0 - step * convexity), abs(1.0 - step * curvature))
    # The products carry half a unit each, measured against 1 where the difference cancels.
    raised = widen(factor, Direction.UP, ulps=2) + 2.0**-51 * max(1.0, step * curvature)
    return check_non_negative("contraction factor", raised)


def shrinking_schedule(initial: float, epochs: int) -> Floats:
    """η0/s in epoch s = 1, 2, … (Algorithm 3.1)."""
    return check_positive("initial", initial) / np.arange(1.0, check_count("epochs", epochs) + 1.0)


def restarting_schedule(initial: float, epochs: int, interval: int) -> Floats:
    """η0/h, with h counted afresh every ``interval`` epochs (Algorithm 3.3, step size reset)."""
    epoch = np.arange(check_count("epochs", epochs)) % check_count("interval", interval)
    steps: Floats = check_positive("initial", initial) / (epoch.astype(np.float64) + 1.0)
    return steps


def permuted_sgd_sensitivities(
    step_sizes: Sequence[float] | Floats,
    batch_sizes: Sequence[int],
    *,
    gradient_bound: float,
    smoothness: float,
    strong_convexity: float,
    averaging_interval: int | None = None,
) -> tuple[Floats, Floats]:
    """Δ_j and q_j for each mini-batch j: drift if the differing record lies in it, and how likely that is.

    Statement: an update on batch i multiplies every Δ_j by ρ(η) and adds 2ηR/|B_j| to Δ_i; every
    ``averaging_interval`` epochs Δ is replaced by its mean over the updates since the last average.
    q_j = |B_j|/n.
    Conditions: replace-one adjacency; batches taken in cyclic order, drawn by one secret uniform permutation;
    gradients bounded by R = ``gradient_bound`` in norm over the domain (projection, or bounded features);
    losses L-smooth and μ-strongly convex; ``step_sizes`` one per epoch, as trained.
    Source: Algorithms 3.1 to 3.3, Lemma 3.1 and (3.8) of Chen 2020, dissertation, for unequal batches.
    """
    steps = check_vector("step_sizes", step_sizes)
    sizes = np.array([check_count("batch_sizes", size) for size in batch_sizes], dtype=np.float64)
    bound = check_positive("gradient_bound", gradient_bound)
    if sizes.size == 0:
        raise InvalidInput("batch_sizes", "at least one", [])
    if averaging_interval is not None:
        check_count("averaging_interval", averaging_interval)
    drift, summed = np.zeros(sizes.size), np.zeros(sizes.size)
    for epoch, step in enumerate(steps.tolist(), start=1):
        factor = contraction_factor(step, smoothness, strong_convexity)
        drift, over_epoch = _epoch(drift, 2.0 * step * bound / sizes, factor)
        summed = add(summed, over_epoch, Direction.UP)
        if averaging_interval is not None and epoch % averaging_interval == 0:
            drift = widen(summed / (averaging_interval * sizes.size), Direction.UP, ulps=1)
            summed = np.zeros(sizes.size)
    return _finite(drift), sizes / sizes.sum()


def _epoch(drift: Floats, kicks: Floats, factor: float) -> tuple[Floats, Floats]:
    """Drift after an epoch that kicks each batch in its turn, and its sum over the epoch's updates.

    The updates Δ ← ρΔ, Δ_i ← Δ_i + kick_i for i = 1 … m in closed form: a kick contracts with each of the
    updates that follow it.
    """
    count = kicks.size
    following = np.arange(count - 1.0, -1.0, -1.0)
    with np.errstate(over="ignore", invalid="ignore"):
        last = drift * np.power(factor, count) + kicks * np.power(factor, following)
        summed = drift * factor * _geometric(factor, np.array(float(count)))
        summed = summed + kicks * _geometric(factor, following + 1.0)
        # A power carries as many roundings as its exponent is large.
        ulps = 16 + math.ceil(4.0 * count * abs(math.log(factor)))
        return widen(last, Direction.UP, ulps=ulps), widen(summed, Direction.UP, ulps=ulps)


def _geometric(factor: float, terms: Floats) -> Floats:
    """1 + ρ + … + ρ^(terms − 1)."""
    if factor == 1.0:
        return terms
    sums: Floats = np.expm1(terms * math.log(factor)) / (factor - 1.0)
    return sums


def fixed_step_sensitivity(
    step_size: float, batch_size: int, batches: int, *, gradient_bound: float, factor: float
) -> float:
    """Δ = 2ηR / (|B|(1 − ρ^m)), for any number of epochs with a fixed step size.

    Conditions: as :func:`permuted_sgd_sensitivities`, equal batches, and a contraction: ρ = ``factor`` < 1.
    Source: Theorem 3.1, (3.7), of Chen 2020, dissertation.
    """
    rate = check_non_negative("factor", factor)
    if rate >= 1.0:
        raise InvalidInput("factor", "below 1, a contraction", factor)
    size, count = check_count("batch_size", batch_size), check_count("batches", batches)
    step = check_positive("step_size", step_size)
    room = -math.expm1(count * math.log(rate)) if rate > 0.0 else 1.0
    sensitivity = 2.0 * step * check_positive("gradient_bound", gradient_bound) / (size * room)
    return widen(float(_finite(np.array([sensitivity]))[0]), Direction.UP, ulps=16)


def mpadmm_sensitivity(clip: float, step_size: float, records: int, penalty: float) -> float:
    """Δx = 2Cη / (n(1 + ηρ)): what one record changes in an epoch's primal variable.

    Statement: noise goes to x alone, before z and y are computed from it; those are then post-processing.
    Conditions: replace-one adjacency, per-record gradients clipped to C, update (4.8).
    Source: Chen 2020, dissertation, from (4.8); its (4.13) drops η and under-charges when η > 1.
    """
    bound, step = check_positive("clip", clip), check_positive("step_size", step_size)
    weight = check_non_negative("penalty", penalty)
    shrinkage = check_positive("1 + step_size · penalty", 1.0 + step * weight)
    change = 2.0 * bound * step / (check_count("records", records) * shrinkage)
    return widen(float(_finite(np.array([change]))[0]), Direction.UP, ulps=8)


def _finite(values: Floats) -> Floats:
    if not np.isfinite(values).all():
        raise InvalidInput(
            "sensitivity", "finite; the step sizes make the updates expand too much", values.tolist()
        )
    return values
