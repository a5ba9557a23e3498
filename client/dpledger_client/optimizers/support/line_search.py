"""NoisyBTLS: a private backtracking line search."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from dpledger_client._arrays import Floats
from dpledger_client._checks import check_choice, check_count, check_open_unit, check_positive
from dpledger_client.mechanisms import AboveThreshold
from dpledger_client.objectives.base import ADJACENCIES, Objective
from dpledger_client.optimizers.training import Batch
from dpledger_client.releases import Release

__all__ = [
    "Backtracking",
    "FirstStepSize",
    "LineQueries",
    "check_above_one",
    "decrease_sensitivity",
    "public_offset",
]

NOISES = ("laplace", "gaussian", "queries-only")
_LARGEST_OFFSET = 2.0**30


def decrease_sensitivity(clip: float, adjacency: str) -> float:
    """How far Σ[ℓᵢ(w) − ℓᵢ(v)] over clipped losses moves between neighbours.

    Statement: Δ = C under add-remove, 2C under replace-one.
    Conditions: each loss is cut to [0, C], so each term lies in [−C, C]; ``w`` and ``v`` are public.
    Source: Chen 2020, dissertation, proof of Theorem 5.1 for add-remove; a replaced record takes one
    term away and adds another, and both can count with C in the same direction.
    """
    factor = {"add-remove": 1.0, "replace-one": 2.0}[check_choice("adjacency", adjacency, ADJACENCIES)]
    return factor * check_positive("clip", clip)


def public_offset(value: float, clip: float) -> float:
    """A public number to add to a sum of clipped losses, cut to what leaves the sum its accuracy.

    Adding 2³⁰·C rounds by at most 2⁻²³·C, which the margin of clipping covers.
    """
    return float(np.clip(value, -_LARGEST_OFFSET * clip, _LARGEST_OFFSET * clip))


@dataclass(frozen=True)
class Backtracking:
    """The first of the step sizes η, βη, β²η, … that decreases the loss enough (Algorithm 5.1).

    Parameters
    ----------
    noise
        ``laplace``: budget is ε_BT, of which ½ goes to the threshold and ¼ to a query; ``gaussian``: budget
        is ρ_BT, with variances 3Δ²/(2ρ) and 3Δ²/ρ; ``queries-only``: Laplace noise of scale Δ/√budget on
        the queries and none on the threshold, which costs about α·budget whatever the number of queries
        while α·√budget is small. Budgets name the noise; the ledger knows what it costs.
    max_queries
        After so many step sizes the search fails.
    armijo
        α of the condition f(w) − f(w − ηg) ≥ αη‖g‖².
    shrinking
        β.

    Notes
    -----
    Source: Chen 2020, dissertation, Algorithm 5.1 and Theorems 5.1 to 5.3. There the decrease is a sum over
    records while g is a mean; here αη‖g‖² is multiplied by the public expected size, so that the condition is
    Armijo's. What the Gaussian search costs is not its Theorem 5.3, which fails for long searches.
    """

    noise: str = "laplace"
    max_queries: int = 20
    armijo: float = 0.5
    shrinking: float = 0.8

    def __post_init__(self) -> None:
        check_choice("noise", self.noise, NOISES)
        check_count("max_queries", self.max_queries)
        check_open_unit("armijo", self.armijo)
        check_open_unit("shrinking", self.shrinking)

    def release(self, budget: float, clip: float, adjacency: str) -> Release:
        """The search as it is described to the ledger."""
        return Release(self._mechanism(budget, decrease_sensitivity(clip, adjacency)), purpose="line-search")

    def _mechanism(self, budget: float, sensitivity: float) -> AboveThreshold:
        most = self.max_queries
        if self.noise == "laplace":
            return AboveThreshold.from_epsilon(budget, sensitivity=sensitivity, max_queries=most)
        if self.noise == "gaussian":
            return AboveThreshold.from_rho(budget, sensitivity=sensitivity, max_queries=most)
        scale = sensitivity / math.sqrt(check_positive("budget", budget))
        return AboveThreshold("laplace", sensitivity, 0.0, scale, most)

    def step_size(self, initial: float, index: int) -> float:
        """The step size of a query."""
        return initial * self.shrinking**index


@dataclass(frozen=True)
class LineQueries:
    """What a search asks of a batch: by how much each step size decreases the loss beyond Armijo's demand.

    Attributes
    ----------
    w, gradient
        From where, and down which gradient of the mean loss.
    initial
        The first step size.
    size
        The public expected size of a batch.
    clip
        To what each record's loss is cut.
    """

    search: Backtracking
    objective: Objective
    w: Floats
    gradient: Floats
    initial: float
    size: float
    clip: float

    def of(self, batch: Batch) -> Iterator[Callable[[], float]]:
        """The queries, each computed when it is asked."""
        here = self._clipped_sum(self.w, batch)
        for index in range(self.search.max_queries):
            eta = self.search.step_size(self.initial, index)
            yield partial(self.query, eta, here, batch)

    def query(self, eta: float, here: float, batch: Batch) -> float:
        """The decrease of the sum of clipped losses, less what Armijo's condition asks for."""
        there = self.w - eta * self.gradient
        regularizer = self.objective.regularizer
        demanded = self.search.armijo * eta * float(self.gradient @ self.gradient)
        public = self.size * (regularizer.value(self.w) - regularizer.value(there) - demanded)
        return (here - self._clipped_sum(there, batch)) + public_offset(public, self.clip)

    def _clipped_sum(self, w: Floats, batch: Batch) -> float:
        return self.objective.clipped_loss_sum(w, batch.X, batch.y, self.clip)


class FirstStepSize:
    """Where searches begin: it follows the step sizes found, and never grows (intelligent backtracking).

    Every ``interval`` iterations η₀ ← min(ς·max Ω, η₀) with Ω the step sizes since.
    """

    def __init__(self, size: float, interval: int, growth: float) -> None:
        self.size = check_positive("step_size", size)
        self.interval = check_count("restart_interval", interval)
        self.growth = check_above_one("restart_growth", growth)
        self._since: list[float] = []

    def chosen(self, step_size: float) -> None:
        """Note the step size of an iteration."""
        self._since.append(step_size)
        if len(self._since) == self.interval:
            self.size = min(self.growth * max(self._since), self.size)
            self._since.clear()


def check_above_one(name: str, value: float) -> float:
    """Return ``value`` as a float if it is finite and above 1."""
    number = check_positive(name, value)
    if number <= 1.0:
        raise ValueError(f"{name} must be above 1, found {value!r}")
    return number
