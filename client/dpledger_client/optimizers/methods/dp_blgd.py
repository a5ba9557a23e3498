"""DP-BLGD: full-batch gradient descent with a private backtracking line search."""

from dataclasses import dataclass, field
from typing import ClassVar

from dpledger_client._checks import check_count, check_positive
from dpledger_client.optimizers.support.averaged_gradient import NoisyGradient
from dpledger_client.optimizers.support.base import Method
from dpledger_client.optimizers.support.line_search import Backtracking, FirstStepSize, LineQueries
from dpledger_client.optimizers.support.planning import Caps, Item, Setting, gaussian_item, step_item
from dpledger_client.optimizers.training import Training
from dpledger_client.releases import Release

__all__ = ["DPBLGD"]


@dataclass(frozen=True)
class DPBLGD(Method):
    """DP-BLSGD on all records, with the growing budget and gradient averaging of DP-AGD.

    Where a search finds no step size, the gradient's ρ grows by the factor 1 + γ and the difference is
    spent on another measurement, averaged with those before (GradAvg).

    Parameters
    ----------
    gradient_rho
        ρ_grad at the start.
    search_budget
        ε_BT, or what ``search.noise`` takes.
    gradient_clip, loss_clip
        C_grad and C_obj.
    step_size
        η₀, the first step size that is tried.
    search
        The search's noise, length, α and β.
    budget_growth
        γ.
    restart_interval, restart_growth
        τ and ς: every τ iterations η₀ becomes at most ς times the largest step size since.
    steps
        At most so many iterations; None: until the ledger refuses.
    total_gradient_rho, searches
        Spend no more than this on gradients, and search at most so often, whatever the dataset has left; then
        stop with ``planned-budget-used``. Together they are its plan.

    Notes
    -----
    Charged on the whole dataset: Gaussian noise of ρ_grad, or of its growth, for a gradient, and an
    AboveThreshold search for each line search. Under a ``zcdp`` budget take Laplace noise: the other
    searches have a Rényi curve alone.
    Source: Chen 2020, dissertation, section 5.6.3 with Algorithm 5.1; Lee, Kifer 2018, Algorithm 2.
    """

    name: ClassVar[str] = "dp-blgd"
    gradient_rho: float
    search_budget: float
    gradient_clip: float
    loss_clip: float
    step_size: float
    search: Backtracking = field(default_factory=Backtracking)
    budget_growth: float = 0.1
    restart_interval: int = 10
    restart_growth: float = 1.2
    steps: int | None = None
    total_gradient_rho: float | None = None
    searches: int | None = None

    def __post_init__(self) -> None:
        for name in ("gradient_rho", "search_budget", "gradient_clip", "loss_clip", "budget_growth"):
            check_positive(name, getattr(self, name))
        FirstStepSize(self.step_size, self.restart_interval, self.restart_growth)
        if self.steps is not None:
            check_count("steps", self.steps)
        if self.total_gradient_rho is not None:
            check_positive("total_gradient_rho", self.total_gradient_rho)
        if self.searches is not None:
            check_count("searches", self.searches)

    def items(self, setting: Setting) -> list[Item]:
        """Gradients chosen on the way, and equal searches."""
        if self.total_gradient_rho is None or self.searches is None:
            raise ValueError(
                "dp-blgd has no plan without total_gradient_rho and searches: how often it measures and "
                "searches again is not known in advance"
            )
        search = step_item("search", self._release(setting.adjacency), times=self.searches)
        return [gaussian_item("gradients", self.total_gradient_rho), search]

    def _release(self, adjacency: str) -> Release:
        return self.search.release(self.search_budget, self.loss_clip, adjacency)

    def train(self, training: Training) -> None:
        first = FirstStepSize(self.step_size, self.restart_interval, self.restart_growth)
        caps = Caps.of(self.total_gradient_rho, self.searches)
        w, rho = training.w, self.gradient_rho
        while self.steps is None or training.iteration < self.steps:
            caps.search()
            caps.spend(rho)
            gradient, searches = NoisyGradient.measure(training, w, self.gradient_clip, rho), 1
            while (step_size := self._search(training, gradient, first.size)) is None:
                caps.search()
                caps.spend(rho * (1.0 + self.budget_growth) - rho)
                rho *= 1.0 + self.budget_growth
                gradient = gradient.refine(training, rho)
                searches += 1
            w = w - step_size * gradient.mean(training)
            first.chosen(step_size)
            training.record(w, step_size=step_size, searches=searches, gradient_rho=rho)

    def _search(self, training: Training, gradient: NoisyGradient, initial: float) -> float | None:
        """The step size that NoisyBTLS found, or None."""
        queries = LineQueries(
            self.search,
            training.objective,
            gradient.w,
            gradient.mean(training),
            initial,
            float(training.records),
            self.loss_clip,
        )
        index = training.authorized(self._release(training.adjacency)).release(queries.of)
        return None if index is None else self.search.step_size(initial, index)
