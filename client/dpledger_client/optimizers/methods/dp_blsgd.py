"""DP-BLSGD: stochastic gradient descent whose step sizes come from a private backtracking line search."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from dpledger_client._arrays import Floats
from dpledger_client._checks import (
    check_choice,
    check_count,
    check_flag,
    check_non_negative,
    check_open_unit,
    check_positive,
    check_rate,
)
from dpledger_client.optimizers.support.averaged_gradient import gradient_release
from dpledger_client.optimizers.support.base import Method
from dpledger_client.optimizers.support.batches import sample_at
from dpledger_client.optimizers.support.line_search import (
    Backtracking,
    FirstStepSize,
    LineQueries,
    check_above_one,
)
from dpledger_client.optimizers.support.planning import Caps, Facts, Item, Setting, step_item
from dpledger_client.optimizers.training import AuthorizedBatch, Training
from dpledger_client.releases import Release

__all__ = ["DPBLSGD", "DPBLSGDAC", "angle_between"]

LOOKS = ("fresh", "joint", "again")
GROWS = ("by-angle", "always", "never")
_RIGHT_ANGLE = 90.0


@dataclass(frozen=True)
class DPBLSGD(Method):
    """Noisy gradients of samples, NoisyBTLS step sizes, budgets that grow when it fails.

    An iteration measures the mean clipped gradient of a sample and searches the first of the step sizes
    η₀, βη₀, … that satisfies Armijo's condition on clipped losses (:class:`Backtracking`). If none does,
    CHEB measures another gradient: where the two point apart, the gradient's budget grows by the factor
    1 + ξ, where they agree, the search's; the next search follows their mean.

    Parameters
    ----------
    rate
        q: Poisson sampling under add-remove, without replacement under replace-one; 1 for all records.
    gradient_rho
        ρ_grad at the start: what the gradient's noise would cost without sampling.
    search_budget
        At the start: ε_BT, or what ``search.noise`` takes.
    gradient_clip, loss_clip
        C_grad and C_obj.
    step_size
        η₀, the first step size that is tried.
    search
        The search's noise, length, α and β.
    budget_growth
        ξ; 0: budgets stay as they are.
    grows
        Which budget a failed search lets grow (section 5.6.5): ``by-angle`` ("adap") the gradient's or the
        search's, by what the second gradient shows; ``always`` ("must") both, whatever the angle is;
        ``never`` ("no") none. The second gradient is measured and averaged with the first in each.
    looks
        ``fresh``: a sample of its own for each gradient and each search, each amplified, the cheapest;
        ``joint``: a gradient and a search on one sample, amplified together; ``again``: searches on the
        gradient's sample, amplified once for the gradient and charged raw for each search.
    angle_memory, angle_above, angle_below
        ψ, φ_max and φ_min of (5.8) and (5.9).
    restart_interval, restart_growth
        τ and ς: every τ iterations η₀ becomes at most ς times the largest step size since.
    clip_decay
        ζ: by how much both clips shrink, once per update, when ρ_grad grows; 0: never.
    smallest_on_failure
        Take the step β^max_queries·η₀ where a search fails, instead of CHEB (for neural networks).
    steps
        At most so many iterations; None: until the ledger refuses.
    searches
        Search at most so often in all, whatever the dataset has left; then stop with
        ``planned-budget-used``. It is needed for a plan, with ``grows="never"``.

    Notes
    -----
    Source: Chen 2020, dissertation, Algorithms 5.1 to 5.3, (5.7) to (5.10). Repaired: gradient and search
    on one batch are not amplified separately, which is unsound (two Gaussians with q = 0.01, σ = 1,
    α = 8 cost 1,530 times the sum of their amplified costs); noisy sums are divided by the public
    expected size, not by the batch's own, which is secret; the search's sensitivity is 2·C_obj under
    replace-one; Armijo's condition compares means with means. Every decision is made from released values.
    """

    name: ClassVar[str] = "dp-blsgd"
    rate: float
    gradient_rho: float
    search_budget: float
    gradient_clip: float
    loss_clip: float
    step_size: float
    search: Backtracking = field(default_factory=Backtracking)
    budget_growth: float = 0.3
    grows: str = "by-angle"
    looks: str = "fresh"
    angle_memory: float = 0.8
    angle_above: float = 1.1
    angle_below: float = 0.5
    restart_interval: int = 10
    restart_growth: float = 1.2
    clip_decay: float = 0.0
    smallest_on_failure: bool = False
    steps: int | None = None
    searches: int | None = None

    def __post_init__(self) -> None:
        check_rate("rate", self.rate)
        for name in ("gradient_rho", "search_budget", "gradient_clip", "loss_clip", "step_size"):
            check_positive(name, getattr(self, name))
        check_non_negative("budget_growth", self.budget_growth)
        check_choice("grows", self.grows, GROWS)
        check_choice("looks", self.looks, LOOKS)
        for name in ("angle_memory", "angle_below"):
            check_open_unit(name, getattr(self, name))
        check_above_one("angle_above", self.angle_above)
        FirstStepSize(self.step_size, self.restart_interval, self.restart_growth)
        if self.clip_decay != 0.0:
            check_open_unit("clip_decay", self.clip_decay)
        check_flag("smallest_on_failure", self.smallest_on_failure)
        if self.steps is not None:
            check_count("steps", self.steps)
        if self.searches is not None:
            check_count("searches", self.searches)

    def items(self, setting: Setting) -> list[Item]:
        """A gradient for each search, on a sample of its own or on the same one."""
        times = self._planned_searches()
        sample = sample_at(self.rate, setting.records, setting.adjacency)
        gradient, search = self._releases(setting)
        if self.looks == "joint":
            return [step_item("gradient-and-search", [gradient, search], sample, times)]
        return [step_item("gradient", gradient, sample, times), step_item("search", search, sample, times)]

    def _releases(self, facts: Facts) -> tuple[Release, Release]:
        """The first gradient and search."""
        gradient = gradient_release(self.gradient_clip, self.gradient_rho, facts.adjacency)
        return gradient, self.search.release(self.search_budget, self.loss_clip, facts.adjacency)

    def _planned_searches(self) -> int:
        """How many searches there are at most, all alike; raises where that is not known in advance."""
        if self.looks == "again":
            raise ValueError(
                f"{self.name} has no plan with looks='again': an item's sample is looked at once"
            )
        if self.smallest_on_failure and self.steps is not None:
            return min(self.steps, self.searches or self.steps)
        if self.searches is None:
            raise ValueError(f"{self.name} has no plan without searches: how many there are is not known")
        if self.grows != "never" and self.budget_growth > 0.0 and not self.smallest_on_failure:
            raise ValueError(
                f"{self.name} has no plan with grows={self.grows!r}: noise that depends on what was released "
                "is not known in advance. Take grows='never'"
            )
        return self.searches

    def train(self, training: Training) -> None:
        run = _Run(self, training)
        while self.steps is None or training.iteration < self.steps:
            run.iterate()


@dataclass(frozen=True)
class DPBLSGDAC(DPBLSGD):
    """:class:`DPBLSGD` with adaptive clipping: clips shrink by ζ = 0.05 when ρ_grad grows (5.10)."""

    name: ClassVar[str] = "dp-blsgd-ac"
    clip_decay: float = 0.05


@dataclass(frozen=True)
class _Measured:
    """A noisy mean gradient, the look it comes from, and the loss clip of that look's search."""

    gradient: Floats
    authorized: AuthorizedBatch
    loss_clip: float


class _Run:
    """One training, with what changes from iteration to iteration."""

    def __init__(self, method: DPBLSGD, training: Training) -> None:
        if method.looks == "again" and training.reserves:
            raise ValueError("looks='again' goes without reserve: a reserved sample is looked at once")
        self.method = method
        self.training = training
        self.sample = sample_at(method.rate, training.records, training.adjacency)
        self.size = self.sample.expected_size(training.records)
        self.w = training.w
        self.gradient_rho = method.gradient_rho
        self.search_budget = method.search_budget
        self.gradient_clip = method.gradient_clip
        self.loss_clip = method.loss_clip
        self.caps = Caps.of(searches=method.searches)
        self.first = FirstStepSize(method.step_size, method.restart_interval, method.restart_growth)
        self.angle = _RIGHT_ANGLE
        self.previous: Floats | None = None

    def iterate(self) -> None:
        """Lines 4 to 22 of Algorithm 5.2."""
        clips = self.gradient_clip, self.loss_clip
        measured, searches = self._measure(), 1
        while (step_size := self._search(measured)) is None:
            measured = self._enlarge_batch(measured, clips)
            searches += 1
        self.w = self.w - step_size * measured.gradient
        self._follow(measured.gradient)
        self.first.chosen(step_size)
        self.training.record(
            self.w,
            step_size=step_size,
            searches=searches,
            gradient_rho=self.gradient_rho,
            search_budget=self.search_budget,
            gradient_clip=self.gradient_clip,
        )

    def _measure(self) -> _Measured:
        """Lines 4 to 6, divided by the expected size; the regulariser is public and added after the noise."""
        self.caps.search()
        training, clip, w = self.training, self.gradient_clip, self.w
        releases = [gradient_release(clip, self.gradient_rho, training.adjacency)]
        if self.method.looks == "joint":
            releases.append(self._search_release())
        authorized = training.authorized(releases, self.sample, alone=self.method.looks == "again")
        objective = training.objective
        total = authorized.release(
            lambda batch: objective.clipped_gradient_sum(w, batch.X, batch.y, clip), "gradient"
        )
        return _Measured(total / self.size + objective.regularizer.gradient(w), authorized, self.loss_clip)

    def _search_release(self) -> Release:
        return self.method.search.release(self.search_budget, self.loss_clip, self.training.adjacency)

    def _search(self, measured: _Measured) -> float | None:
        """The step size that NoisyBTLS found, or None."""
        search, first = self.method.search, self.first.size
        authorized, clip = self._search_look(measured)
        queries = LineQueries(
            search, self.training.objective, self.w, measured.gradient, first, self.size, clip
        )
        index = authorized.release(queries.of, "line-search")
        if index is None and self.method.smallest_on_failure:
            index = search.max_queries
        return None if index is None else search.step_size(first, index)

    def _search_look(self, measured: _Measured) -> tuple[AuthorizedBatch, float]:
        """What the search looks at, and the loss clip that was asked for it."""
        if self.method.looks == "joint":
            return measured.authorized, measured.loss_clip
        release = self._search_release()
        if self.method.looks == "again":
            return self.training.again(measured.authorized, release), self.loss_clip
        return self.training.authorized(release, self.sample), self.loss_clip

    def _enlarge_batch(self, measured: _Measured, clips: tuple[float, float]) -> _Measured:
        """CHEB, Algorithm 5.3: another gradient, and more budget for what it shows to be too noisy."""
        second = self._measure()
        gradient_grows, search_grows = self._too_noisy(measured.gradient, second.gradient)
        growth = 1.0 + self.method.budget_growth
        if gradient_grows:
            self.gradient_rho *= growth
            # From the clips that the update began with: they shrink once, however often the budget grows.
            self.gradient_clip, self.loss_clip = ((1.0 - self.method.clip_decay) * clip for clip in clips)
        if search_grows:
            self.search_budget *= growth
        # The batch that the search looks at stays that of line 4 unless the new one's search is paid for.
        authorized = second if self.method.looks == "joint" else measured
        return _Measured(
            (measured.gradient + second.gradient) / 2.0, authorized.authorized, authorized.loss_clip
        )

    def _too_noisy(self, first: Floats, second: Floats) -> tuple[bool, bool]:
        """Whether the gradient's and the search's budgets grow: lines 5 to 11 of Algorithm 5.3."""
        if self.method.grows != "by-angle":
            grow = self.method.grows == "always"
            return grow, grow
        angle = angle_between(first, second)
        if angle > min(_RIGHT_ANGLE, self.method.angle_above * self.angle):
            return True, False
        return False, angle < self.method.angle_below * self.angle

    def _follow(self, gradient: Floats) -> None:
        """(5.8): the moving average of the angles between gradients of consecutive iterations."""
        if self.previous is not None:
            memory = self.method.angle_memory
            self.angle = memory * self.angle + (1.0 - memory) * angle_between(gradient, self.previous)
        self.previous = gradient


def angle_between(first: Floats, second: Floats) -> float:
    """The angle in degrees, 90 if one of them is zero."""
    lengths = float(np.linalg.norm(first)) * float(np.linalg.norm(second))
    if not lengths:
        return _RIGHT_ANGLE
    return float(np.degrees(np.arccos(np.clip(float(first @ second) / lengths, -1.0, 1.0))))
