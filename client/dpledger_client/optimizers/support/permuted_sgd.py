"""SGD on mini-batches of one random order, released once: how it trains, and how far a record can move it.

Training and sensitivity read the same :class:`Passes`, so that the step sizes trained are those accounted.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpledger_client._arrays import Floats, Integers, as_numbers
from dpledger_client._checks import check_count, check_positive
from dpledger_client.mechanisms import Gaussian, OutputMixture
from dpledger_client.noise import current_noise
from dpledger_client.objectives.base import Objective, clip_factors, limit_under, usable
from dpledger_client.objectives.linear import Linear, Softmax
from dpledger_client.optimizers.noise_levels import noise_for_multiplier
from dpledger_client.optimizers.support.planning import Item, Setting, step_item
from dpledger_client.optimizers.support.projections import (
    Box,
    L1Ball,
    L2Ball,
    NoProjection,
    Projection,
    Simplex,
)
from dpledger_client.optimizers.training import Batch, Training, check_equally_many
from dpledger_client.releases import Release
from dpledger_client.sampling import permutation

__all__ = [
    "Bounds",
    "Passes",
    "bounded_data",
    "check_adjacency",
    "check_not_expanding",
    "plan_permutation",
    "sensitivities",
    "train_on_permutation",
    "train_passes",
]

_UP = 1.0 + 2.0**-50
_ROUNDING = 2.0**-51
_EXACT = 2.0**-40
"""How far a step size of 2/L may be off by rounding."""
_MOST = 1e150
"""Beyond this an iterate or a drift might overflow, and an error would be a release."""


@dataclass(frozen=True)
class Passes:
    """What is done with the data, all of it public.

    Attributes
    ----------
    step_sizes
        One per epoch.
    batch_sizes
        How many records each mini-batch has; they add up to all records.
    averaging
        Every so many epochs the iterate becomes the mean of all iterates since the last time; None: never.
    """

    step_sizes: tuple[float, ...]
    batch_sizes: tuple[int, ...]
    averaging: int | None = None
    projection: Projection = field(default_factory=NoProjection)

    @classmethod
    def over(cls, records: int, batches: int, step_sizes: tuple[float, ...], **more: Any) -> "Passes":
        """As many mini-batches, whose sizes differ by one at most."""
        if check_count("batches", batches) > records:
            raise ValueError(f"batches must be at most {records}, the number of records, found {batches!r}")
        fewest, longer = divmod(records, batches)
        sizes = tuple(fewest + (number < longer) for number in range(batches))
        return cls(tuple(check_positive("step_size", step) for step in step_sizes), sizes, **more)

    def updates(self) -> Iterator[tuple[float, int, bool]]:
        """Each update in order: its step size, its mini-batch, and whether an average follows it."""
        last = len(self.batch_sizes) - 1
        for epoch, step in enumerate(self.step_sizes, start=1):
            ends = self.averaging is not None and epoch % self.averaging == 0
            for batch in range(last + 1):
                yield step, batch, ends and batch == last


@dataclass(frozen=True)
class Bounds:
    """What is known of every record's loss: gradient at most R, curvature within [μ, L].

    ``gradient`` is without the regulariser, which does not depend on records and cancels in (3.6).
    ``radius`` bounds the norm of parameters, if a projection does. ``numbers`` is how many numbers go into an
    update, for its rounding error.
    """

    gradient: float
    smoothness: float
    strong_convexity: float
    radius: float
    numbers: int

    @classmethod
    def of(cls, objective: Objective, row_norm: float, dimension: int, passes: Passes) -> "Bounds":
        """From the objective's constants for rows of bounded norm; raises where there are none."""
        if not isinstance(objective, Linear):
            raise ValueError("the objective must be a linear model: nothing bounds the curvature of others")
        # The projection is exact but for rounding.
        radius = _radius(passes.projection, dimension) * (1.0 + 2.0**-30)
        bounds = objective.lipschitz(row_norm, radius), objective.smoothness(row_norm)
        for value, what in zip(bounds, ("gradients", "curvature"), strict=True):
            if not math.isfinite(value):
                raise ValueError(
                    f"the objective's {what} must be bounded for rows of bounded norm: take a smooth loss "
                    "and regulariser, and a projection onto a ball for least squares"
                )
        numbers = dimension + max(passes.batch_sizes)
        return cls(*bounds, objective.regularizer.strong_convexity, radius, numbers)

    def contraction(self, step: float) -> float:
        """ρ = max(|1 − ημ|, |1 − ηL|), rounded up (Lemma 3.1); above 1 it expands, which is allowed."""
        factor = max(abs(1.0 - step * self.strong_convexity), abs(1.0 - step * self.smoothness))
        return factor * _UP + _ROUNDING * max(1.0, step * self.smoothness)

    def reach(self, step: float, before: float) -> float:
        """How far from zero iterates can be after an update from within ``before``, and their averages."""
        if math.isfinite(self.radius):
            return self.radius
        return max(before, (self.contraction(step) * before + step * self.gradient) * _UP)

    def rounding(self, step: float, reach: float) -> float:
        """How far one computed update can be from the exact one, at an iterate of norm at most ``reach``."""
        size = reach + step * (self.gradient + self.smoothness * reach)
        return 4.0 * (self.numbers + 8) * _ROUNDING * size


def _radius(projection: Projection, dimension: int) -> float:
    """The largest norm in a set."""
    match projection:
        case L2Ball() | L1Ball():
            return projection.radius
        case Box():
            return projection.half_width * math.sqrt(dimension)
        case Simplex():
            return projection.total
        case NoProjection():
            return math.inf
    raise ValueError(f"projection must be one of this package's, found {projection!r}")


def sensitivities(passes: Passes, bounds: Bounds, start_norm: float) -> Floats:
    """Δ_j: how far the result moves if the record that is replaced lies in mini-batch j.

    Statement: Δ ← ρ(η)Δ at each update, and Δ_j ← Δ_j + 2ηR/|B_j| at one with mini-batch j; an average
    replaces Δ by the mean of its values since the last average. Rounding errors of both runs are added.
    Conditions: replace-one; mini-batches in cyclic order; every loss convex, with constants ``bounds``;
    steps and averages those of ``passes``. A projection onto a convex set moves no two points apart.
    Source: Chen 2020, dissertation, Lemma 3.1, Algorithm 3.2 and (3.8), for unequal batches.
    """
    sizes = np.array(passes.batch_sizes, dtype=np.float64)
    drift, summed, count, reach = np.zeros(sizes.size), np.zeros(sizes.size), 0, start_norm
    with np.errstate(over="ignore", invalid="ignore"):
        for step, batch, average in passes.updates():
            factor = bounds.contraction(step)
            drift = (factor * drift + 2.0 * bounds.rounding(step, reach)) * _UP
            drift[batch] = (drift[batch] + 2.0 * step * bounds.gradient / sizes[batch]) * _UP
            reach = bounds.reach(step, reach)
            summed, count = (summed + drift) * _UP, count + 1
            if average:
                drift = (summed / count + 2.0 * count * _ROUNDING * reach) * _UP
                summed, count = np.zeros(sizes.size), 0
    if not (drift.max() <= _MOST and reach <= _MOST):
        raise ValueError("step_size must be smaller: the updates expand without bound")
    return drift


def check_not_expanding(passes: Passes, bounds: Bounds) -> None:
    """Refuse step sizes above 2/L, before anything is asked.

    The theorem covers them, with noise for what it then proves: |1 − ηL| above 1 moves neighbours apart
    at every update, and a few epochs ask for noise of 1e29, which would be charged and leave nothing else.
    """
    most = 2.0 / bounds.smoothness
    largest = max(passes.step_sizes)
    if largest > most * (1.0 + _EXACT):
        raise ValueError(
            f"step_size must be at most 2/L = {most:.6g} in every epoch, found {largest:.6g}: a larger one "
            "moves the runs on neighbouring data apart at every update, and the noise with them"
        )


def train_passes(
    passes: Passes, objective: Objective, w: Floats, X: Floats, y: Floats, order: Integers
) -> Floats:
    """SGD over the mini-batches of an order, each with its mean gradient and the regulariser."""
    ends = np.cumsum(passes.batch_sizes)
    batches = np.split(order, ends[:-1])
    total, count = np.zeros_like(w), 0
    for step, batch, average in passes.updates():
        rows = batches[batch]
        gradient = objective.gradient_sum(w, X[rows], y[rows]) / len(rows)
        w = passes.projection(w - step * (gradient + objective.regularizer.gradient(w)))
        total, count = total + w, count + 1
        if average:
            w, total, count = total / count, np.zeros_like(w), 0
    return w


def bounded_data(objective: Objective, batch: Batch, row_norm: float) -> tuple[Floats, Floats]:
    """Rows shortened to ``row_norm`` and labels cut to where the objective's constants hold.

    A row or label that is not finite becomes zero. Each record is changed by itself, so neighbours stay so.
    """
    rows, labels = as_numbers(batch.X), as_numbers(batch.y)
    with np.errstate(all="ignore"):
        factors = clip_factors(np.sqrt(np.einsum("ij,ij->i", rows, rows)), limit_under(row_norm))
    labels = np.where(np.isfinite(labels), labels, 0.0)
    if not isinstance(objective, Softmax):
        bound = float(getattr(objective, "target_bound", 1.0))
        labels = np.clip(labels, -bound, bound)
    return usable(rows, factors) * factors[:, None], labels


def train_on_permutation(
    training: Training, passes: Passes, *, row_norm: float, noise_multiplier: float, permute: bool
) -> None:
    """Ask once, train, and release the result with noise; σ is ``noise_multiplier`` times the largest Δ_j."""
    objective, w = training.objective, passes.projection(training.w)
    moves = _moves(training, passes, row_norm)
    authorized = training.authorized(_release(moves, passes, noise_multiplier, permute))

    def compute(batch: Batch) -> Floats:
        X, y = bounded_data(objective, batch, row_norm)
        order = permutation(len(X), current_noise().bits) if permute else np.arange(len(X))
        return train_passes(passes, objective, w, X, y, order)

    noisy = authorized.release(compute)
    most = float(moves.max())
    training.record(noisy, sensitivity=most, noise_std=noise_for_multiplier(noise_multiplier, most))


def plan_permutation(
    setting: Setting, passes: Passes, *, row_norm: float, noise_multiplier: float, permute: bool
) -> list[Item]:
    """The one release of :func:`train_on_permutation`, as a plan."""
    moves = _moves(setting, passes, row_norm)
    return [step_item("output", _release(moves, passes, noise_multiplier, permute))]


def _moves(setting: Training | Setting, passes: Passes, row_norm: float) -> Floats:
    """The sensitivities of a training from where it starts; refuses steps that expand."""
    w = passes.projection(setting.w)
    bounds = Bounds.of(setting.objective, row_norm, len(w), passes)
    check_not_expanding(passes, bounds)
    return sensitivities(passes, bounds, float(np.linalg.norm(w)))


def _release(moves: Floats, passes: Passes, noise_multiplier: float, permute: bool) -> Release:
    """The mixture over where a random order puts the record, or a Gaussian with the largest move."""
    noise_std = noise_for_multiplier(noise_multiplier, float(moves.max()))
    if not permute:
        return Release(Gaussian(float(moves.max()), noise_std), purpose="output")
    shares = np.array(passes.batch_sizes) / sum(passes.batch_sizes)
    return Release(OutputMixture(noise_std, tuple(moves.tolist()), tuple(shares.tolist())), purpose="output")


def check_adjacency(adjacency: str, name: str) -> None:
    """The theorem pairs the neighbours' mini-batches one to one."""
    if adjacency != "replace-one":
        raise ValueError(
            f"{name} needs a dataset with replace-one adjacency (Chen 2020, Theorem 3.2), found {adjacency}"
        )


def check_replace_one(training: Training, name: str) -> None:
    """So the neighbours must have equally many records."""
    check_adjacency(training.adjacency, name)
    check_equally_many(training.source.account, name)
    if len(training.source.X) != training.records:
        raise ValueError(f"records must be the number of rows, {len(training.source.X)}")
