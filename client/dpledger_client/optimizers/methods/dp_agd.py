"""DP-AGD: gradient descent that decides for itself what each iteration may cost."""

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from dpledger_client._arrays import Floats
from dpledger_client._checks import check_choice, check_count, check_positive, check_rate
from dpledger_client.mechanisms import NoisyMax
from dpledger_client.objectives.base import loss_sensitivity
from dpledger_client.optimizers.support.averaged_gradient import NoisyGradient
from dpledger_client.optimizers.support.base import Method
from dpledger_client.optimizers.support.line_search import public_offset
from dpledger_client.optimizers.support.planning import Caps, Item, Setting, concentrated_item
from dpledger_client.optimizers.support.projections import NoProjection, Projection
from dpledger_client.optimizers.training import Batch, Training
from dpledger_client.releases import Release

__all__ = ["DPAGD"]


@dataclass(frozen=True)
class DPAGD(Method):
    """Noisy gradient descent with NoisyMin step sizes and a growing budget (Lee, Kifer 2018, Algorithm 2).

    An iteration measures the gradient for ρ_ng, gives it the length 1, and lets NoisyMin choose among the
    step sizes 0, α_max/m, …, α_max by the clipped losses they lead to. If it chooses 0, the gradient was too
    noisy to descend: ρ_ng grows by the factor 1 + γ, the difference is spent on another measurement,
    which is averaged with those before (GradAvg), and NoisyMin chooses anew.

    Parameters
    ----------
    gradient_rho, selection_rho
        ρ_ng at the start, and ρ_nmax of each selection.
    gradient_clip, loss_clip
        C_grad and C_obj: to what each record's gradient is shortened and its loss is cut. Of the order of the
        loss at the start or below (log 2 for logistic regression), C_obj hides what a step gains on records
        that are wrong, and stalls the training: take about 8.
    budget_growth
        γ.
    candidates, max_step_size
        m and the first α_max.
    grid_interval, grid_growth
        Every so many iterations α_max becomes (1 + grid_growth) times the largest step since.
    stay_shrinkage
        In (0, 1]: what α_max is multiplied by where NoisyMin chose 0; 1 in the paper. A best step below half
        of α_max/m looks like no step at all, and the gradient is measured again and again; below 1 the grid
        becomes finer as well.
    noise
        Of NoisyMin: ``gumbel``, or ``laplace`` or ``exponential``, which choose worse for the same ρ.
    stay_weight
        In (0, 1]: what the loss at step size 0 is multiplied by, ``exp_dec`` of the authors' code; below 1 a
        gradient is measured anew unless a step gains at least that share.
    steps
        At most so many iterations; None: until the ledger refuses.
    total_rho
        Spend no more than this, whatever the dataset has left, and stop with ``planned-budget-used``.

    Notes
    -----
    Charged, all on the whole dataset, so that zCDP adds up: Gaussian noise of ρ_ng for a gradient, of
    (1 + γ)ρ_ng − ρ_ng for another measurement, and report-noisy-max for a selection. With e = C_obj/scale
    that costs e²/8 with Gumbel noise under add-remove, where all scores move the same way, and e²/2 under
    replace-one; the scale is chosen so that this is ρ_nmax. With Laplace or exponential noise the cost
    is e·tanh(e/2), or 2e·tanh(e): the scale of e = √(2ρ_nmax), or half that, keeps it within ρ_nmax.

    Differs from the paper: Laplace noise of C_obj/ε is not ε-DP under replace-one, where scores move
    both ways; Gumbel noise at the same scale costs a quarter. GradAvg averages what was measured, before
    it is given the length 1. The regulariser, which is public, is added after the noise. The remaining
    budget is the ledger's, which refuses what it does not cover.
    """

    name: ClassVar[str] = "dp-agd"
    gradient_rho: float
    selection_rho: float
    gradient_clip: float
    loss_clip: float
    budget_growth: float = 0.1
    candidates: int = 20
    max_step_size: float = 2.0
    grid_interval: int = 10
    grid_growth: float = 0.1
    stay_shrinkage: float = 1.0
    noise: str = "gumbel"
    stay_weight: float = 1.0
    projection: Projection = field(default_factory=NoProjection)
    steps: int | None = None
    total_rho: float | None = None

    def __post_init__(self) -> None:
        for name in ("gradient_rho", "selection_rho", "gradient_clip", "loss_clip", "budget_growth"):
            check_positive(name, getattr(self, name))
        for name in ("max_step_size", "grid_growth"):
            check_positive(name, getattr(self, name))
        check_count("candidates", self.candidates)
        check_count("grid_interval", self.grid_interval)
        check_choice("noise", self.noise, ("gumbel", "laplace", "exponential"))
        for name in ("stay_weight", "stay_shrinkage"):
            check_rate(name, check_positive(name, getattr(self, name)))
        if self.steps is not None:
            check_count("steps", self.steps)
        if self.total_rho is not None:
            check_positive("total_rho", self.total_rho)

    @classmethod
    def for_total(cls, rho: float, *, splits: int = 60, **parameters: Any) -> "DPAGD":
        """The first ρ_ng and ρ_nmax from a total for about so many iterations: ρ/(2·splits) each."""
        each = check_positive("rho", rho) / (2 * check_count("splits", splits))
        return cls(each, each, total_rho=rho, **parameters)

    def items(self, setting: Setting) -> list[Item]:
        """Gradients and selections are chosen on the way, within ``total_rho``."""
        if self.total_rho is None:
            raise ValueError(
                "dp-agd has no plan without total_rho: how often it measures and selects again is not known "
                "in advance"
            )
        return [concentrated_item("gradients-and-selections", self.total_rho)]

    def train(self, training: Training) -> None:
        run = _Run(self, training)
        while self.steps is None or training.iteration < self.steps:
            run.iterate()

    def selection(self, adjacency: str) -> Release:
        """NoisyMin over sums of losses cut to [0, C_obj], for at most ρ_nmax."""
        sensitivity, monotonic = loss_sensitivity(self.loss_clip, adjacency), adjacency == "add-remove"
        epsilon = math.sqrt((8.0 if self.noise == "gumbel" else 2.0) * self.selection_rho)
        scale = sensitivity * (1.0 if monotonic else 2.0) / epsilon
        return Release(NoisyMax(self.noise, sensitivity, scale, monotonic), purpose="step-size")


class _Run:
    """One training, with what changes from iteration to iteration."""

    def __init__(self, method: DPAGD, training: Training) -> None:
        self.method = method
        self.training = training
        self.w = method.projection(training.w)
        self.gradient_rho = method.gradient_rho
        self.selection = method.selection(training.adjacency)
        self.max_step_size = method.max_step_size
        self.chosen: list[float] = []
        self.caps = Caps.of(method.total_rho)

    def iterate(self) -> None:
        """Lines 4 to 22 of Algorithm 2."""
        method, training, measurements = self.method, self.training, 1
        self.caps.spend(self.gradient_rho)
        gradient = NoisyGradient.measure(training, self.w, method.gradient_clip, self.gradient_rho)
        while (chosen := self._select_step(gradient)) is None:
            self.max_step_size *= method.stay_shrinkage
            gradient = self._refine(gradient)
            measurements += 1
        step_size, self.w = chosen
        self._adapt(step_size)
        training.record(
            self.w, step_size=step_size, gradient_rho=self.gradient_rho, measurements=measurements
        )

    def _select_step(self, gradient: NoisyGradient) -> tuple[float, Floats] | None:
        """The step size that NoisyMin chose and where it leads, or None if it chose to stay."""
        direction = gradient.direction(self.training)
        sizes = np.linspace(0.0, self.max_step_size, self.method.candidates + 1)
        candidates = [self.method.projection(self.w - size * direction) for size in sizes]
        self.caps.spend(self.method.selection_rho)
        authorized = self.training.authorized(self.selection)
        index = int(authorized.release(lambda batch: self._scores(candidates, direction, sizes, batch)))
        return (float(sizes[index]), candidates[index]) if index > 0 else None

    def _scores(
        self, candidates: list[Floats], direction: Floats, sizes: Floats, batch: Batch
    ) -> list[float]:
        """Minus each candidate's sum of clipped losses; a record moves it by at most C_obj.

        Weighted with at most 1, the first moves by no more. Under add-remove all scores move the same way,
        but for rounding errors, for which clipping leaves room: moves within [−t, C_obj − t] choose like
        moves within [0, C_obj].
        """
        objective, clip = self.training.objective, self.method.loss_clip
        if isinstance(self.method.projection, NoProjection):
            line = self.w, direction, sizes.tolist()
            sums = objective.clipped_line_sums(*line, batch.X, batch.y, clip)
        else:
            sums = [objective.clipped_loss_sum(w, batch.X, batch.y, clip) for w in candidates]
        totals = [total + self._penalty(w) for total, w in zip(sums, candidates, strict=True)]
        return [-self.method.stay_weight * totals[0], *(-total for total in totals[1:])]

    def _penalty(self, w: Floats) -> float:
        """The regulariser, which is public, counted once for each of the public number of records."""
        value = self.training.records * self.training.objective.regularizer.value(w)
        return public_offset(value, self.method.loss_clip)

    def _refine(self, gradient: NoisyGradient) -> NoisyGradient:
        """Lines 16 to 19: the growth of the gradient's budget is spent on another measurement."""
        grown = (1.0 + self.method.budget_growth) * self.gradient_rho
        self.caps.spend(grown - self.gradient_rho)
        self.gradient_rho = grown
        return gradient.refine(self.training, grown)

    def _adapt(self, step_size: float) -> None:
        self.chosen.append(step_size)
        if len(self.chosen) == self.method.grid_interval:
            self.max_step_size = (1.0 + self.method.grid_growth) * max(self.chosen)
            self.chosen.clear()
