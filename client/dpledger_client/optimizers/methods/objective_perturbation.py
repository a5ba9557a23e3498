"""Objective perturbation: a random linear term in the objective, and its minimiser released."""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

import numpy as np

from dpledger_client._arrays import Floats
from dpledger_client._checks import check_non_negative, check_positive
from dpledger_client.mechanisms.base import LOCAL, Mechanism
from dpledger_client.noise import Noise
from dpledger_client.objectives.base import Objective
from dpledger_client.objectives.linear import Linear
from dpledger_client.objectives.regularizers import L2, Unregularized
from dpledger_client.optimizers.methods.non_private import Function, lbfgs
from dpledger_client.optimizers.support.base import Method
from dpledger_client.optimizers.support.permuted_sgd import bounded_data
from dpledger_client.optimizers.support.planning import Item, Setting
from dpledger_client.optimizers.training import Batch, Training
from dpledger_client.releases import Release

__all__ = ["ObjectivePerturbation", "PerturbedMinimum", "objective_curve"]

ORDERS = tuple(1.0 + 10.0 ** (step / 20.0) for step in range(-40, 81))
"""From 1.01 to 10,001; the ledger takes chords between them, which cost below 1 % more."""
Solver: TypeAlias = Callable[[Floats], Floats]
"""From the linear term to an approximate minimiser."""

_LEAST_TOLERANCE = 1e-9
_ROUNDING = 2.0**-19
"""What a gradient's norm may be off by, over the sensitivity: 2⁻²⁰ for the grid of the linear term, which
is that fine below a noise multiplier of 2²²/√d, and 2⁻²⁰ for rounding errors in sums of up to 2²⁰ records."""
_MOST_NOISE = 2.0**22
_UNIT = 2.0**-53
_FAR = 40.0
"""A Gaussian vector is longer than √d + 40 standard deviations with probability below e^−800."""
_UPWARD = 1.0 + 2.0**-40


def objective_curve(order: float, multiplier: float, curvature: float) -> float:
    """The Rényi cost of the exact minimiser of a perturbed objective.

    Statement: ε(α) = α/(2m²) + log(1 + β/Λ) + log(2Φ((α − 1)/m))/(α − 1), for the minimiser θ of
    J(θ) = Σ f_i(x_i·θ) + Λ‖θ‖²/2 + b·θ, b Gaussian of standard deviation m·Δ.
    Conditions: any α > 1; f_i convex with |f_i′|·‖x_i‖ ≤ L and f_i″·‖x_i‖² ≤ β almost everywhere; Δ = L under
    add-remove, 2L under replace-one.
    Proof: b = −Σ f_i′x_i − Λθ is a function of θ that is bi-Lipschitz, because J is smooth and strongly
    convex; so the density of θ is that of b times the determinant of H + ΛI. (i) With one record more the
    determinant is larger by the factor 1 + f″xᵀ(H + ΛI)⁻¹x, which is between 1 and 1 + β/Λ; with one
    replaced, by a ratio of two such factors. (ii) Where θ came from b, the neighbour needs b + v for it,
    and log(φ(b)/φ(b + v)) = (2b·v + ‖v‖²)/(2s²), s = mΔ. One record more or less: v = ±f′x has the
    direction u of x whatever θ is, so that b·v ≤ L|b·u| with b·u ~ N(0, s²), and E[e^(t|N|)] = 2e^(t²/2)Φ(t)
    for N standard normal and t = (α − 1)L/s. One replaced: b·v ≤ L|b·u| + L|b·u′|, and by Cauchy and
    Schwarz the same at 2t. ‖v‖² ≤ Δ² gives the rest.
    Source: Chaudhuri, Monteleoni, Sarwate 2011, Theorem 9; Kifer, Smith, Thakurta 2012; as a curve, Redberg,
    Koskela, Wang 2023.
    """
    distance = 1.0 / multiplier
    folded = math.log1p(math.erf((order - 1.0) * distance / math.sqrt(2.0))) / (order - 1.0)
    return (order * distance**2 / 2.0 + math.log1p(curvature) + folded) * _UPWARD


@dataclass(frozen=True)
class PerturbedMinimum(Mechanism):
    """An approximate minimiser of a perturbed objective, with Gaussian noise on it; declared by its curve.

    Statement: ε(α) = :func:`objective_curve` + α/(2k²), k the ``output_multiplier``.
    Conditions: as there, and the solver ends within ``distance`` of the exact minimiser.
    Proof: given the exact minimiser, b is known, so that what the solver found is a function of data and
    minimiser that is within ``distance`` of the latter on either neighbour. Releasing it with noise of
    standard deviation 2k·distance is a Gaussian release of sensitivity 2·distance after that of the
    minimiser; the costs add, and forgetting the minimiser is post-processing.
    Source: Iyengar et al. 2019, approximate minima perturbation; there with one distance instead of two.
    """

    kind: ClassVar[str] = "rdp"
    orders: tuple[float, ...]
    epsilons: tuple[float, ...]
    dimension: int = field(metadata=LOCAL)
    sensitivity: float = field(metadata=LOCAL)
    noise_std: float = field(metadata=LOCAL)
    distance: float = field(metadata=LOCAL)
    output_std: float = field(metadata=LOCAL)

    def apply(self, value: Solver, noise: Noise) -> Floats:
        linear = noise.gaussian(np.zeros(self.dimension), self.sensitivity, self.noise_std)
        return noise.gaussian(value(linear), 2.0 * self.distance, self.output_std)


@dataclass(frozen=True)
class ObjectivePerturbation(Method):
    """The minimiser of the objective with a random linear term, asked for once.

    Chaudhuri, Monteleoni, Sarwate 2011 and Kifer, Smith, Thakurta 2012, whose proofs are for exact
    minimisers, which no solver finds; so in the form of Iyengar et al. 2019, with some noise on the output.

    Parameters
    ----------
    noise_multiplier
        The linear term's standard deviation over the sensitivity of the sum of gradients: the
        Lipschitz constant L, or 2L under replace-one.
    extra_strength
        Of an L2 regulariser that is added to the objective's own. Together they must be above 0.
    row_norm
        To which norm every row is shortened; labels are cut to [−1, 1].
    tolerance
        The gradient norm of the sum, over L, at which the solver ends.
    output_factor
        How much larger the output noise's multiplier is than ``noise_multiplier``: its cost is
        1/output_factor² of the linear term's.

    Notes
    -----
    Charged as a declared curve: see :func:`objective_curve` and :class:`PerturbedMinimum`. It needs a budget
    that curves can be charged to; zCDP and GDP budgets refuse it, as no ρ or μ is known. The objective must
    be a loss of one margin with bounded slope and curvature (logistic, huberized SVM) and its regulariser
    L2 or none. How long the solver takes depends on the data, as with every solver.
    """

    name: ClassVar[str] = "objective-perturbation"
    noise_multiplier: float
    extra_strength: float = 0.0
    row_norm: float = 1.0
    tolerance: float = 1e-6
    output_factor: float = 30.0

    def __post_init__(self) -> None:
        check_positive("noise_multiplier", self.noise_multiplier)
        check_non_negative("extra_strength", self.extra_strength)
        check_positive("row_norm", self.row_norm)
        check_positive("output_factor", self.output_factor)
        if check_positive("tolerance", self.tolerance) < _LEAST_TOLERANCE:
            raise ValueError(f"tolerance must be at least {_LEAST_TOLERANCE}, found {self.tolerance!r}")

    @property
    def planned_steps(self) -> int:
        return 1

    def items(self, setting: Setting) -> list[Item]:
        raise ValueError(
            "objective-perturbation has no plan: it is declared by a Rényi curve, which has no dominating "
            "pair. Open the dataset with a budget that adds up curves, such as rdp"
        )

    def train(self, training: Training) -> None:
        problem = self._problem(training.objective, training.records)
        release = self.release(training.objective, training.records, training.adjacency, len(training.w))
        start = training.w
        w: Floats = training.authorized(release).release(lambda batch: problem.solver(batch, start))
        training.record(w, curvature=problem.curvature)

    def release(self, objective: Objective, records: int, adjacency: str, dimension: int) -> Release:
        """What it asks for, from public facts alone."""
        problem = self._problem(objective, records)
        return Release(self._mechanism(problem, adjacency, dimension), purpose="model")

    def _problem(self, objective: Objective, records: int) -> "_Problem":
        if not isinstance(objective, Linear) or objective.classes is not None:
            raise ValueError("objective perturbation is proven for losses of one margin, such as Logistic")
        if not isinstance(objective.regularizer, L2 | Unregularized):
            raise ValueError("objective perturbation is proven for an L2 regulariser or none")
        strength = objective.regularizer.strong_convexity + self.extra_strength
        bare = copy.copy(objective)
        bare.regularizer = Unregularized()
        lipschitz, smoothness = bare.lipschitz(self.row_norm), bare.smoothness(self.row_norm)
        if not (np.isfinite(lipschitz) and np.isfinite(smoothness)):
            raise ValueError("objective perturbation needs bounded slopes and curvature, as Logistic has")
        weight = records * check_positive("the regulariser's strength with extra_strength", strength)
        return _Problem(bare, lipschitz, smoothness, weight, records, self.row_norm, self.tolerance)

    def _mechanism(self, problem: "_Problem", adjacency: str, dimension: int) -> PerturbedMinimum:
        multiplier = self.noise_multiplier
        if multiplier * math.sqrt(dimension) > _MOST_NOISE:
            raise ValueError(f"noise_multiplier must be below 2**22/√{dimension}, found {multiplier!r}")
        sensitivity = problem.lipschitz * (1.0 if adjacency == "add-remove" else 2.0)
        output = self.output_factor * multiplier
        rounding = problem.rounding(dimension, multiplier * sensitivity)
        if rounding > self.tolerance:
            raise ValueError(
                f"tolerance must be at least {rounding:.2g}, found {self.tolerance!r}: with so little "
                "regularisation, rounded margins move gradients by that much"
            )
        distance = (self.tolerance + rounding + _ROUNDING) * sensitivity / problem.weight
        curve = tuple(
            objective_curve(order, multiplier, problem.curvature) + order / (2.0 * output**2) * _UPWARD
            for order in ORDERS
        )
        return PerturbedMinimum(
            ORDERS, curve, dimension, sensitivity, multiplier * sensitivity, distance, 2.0 * output * distance
        )


@dataclass(frozen=True)
class _Problem:
    """The sum of losses with Λ‖θ‖²/2, and how it is minimised with a linear term."""

    objective: Linear
    lipschitz: float
    smoothness: float
    weight: float
    records: int
    row_norm: float
    tolerance: float

    @property
    def curvature(self) -> float:
        """β/Λ."""
        return self.smoothness / self.weight

    def rounding(self, dimension: int, noise_std: float) -> float:
        """What the rounding of margins may add to a gradient's norm, over L.

        A margin in d dimensions is off by at most d·2⁻⁵³·‖x‖·‖θ‖, which moves each record's gradient by up to
        β·d·2⁻⁵³·‖θ‖. Near its minimum the objective is below what it is at 0, so that
        Λ‖θ‖²/2 ≤ n·f(0) + ‖b‖·‖θ‖ and ‖θ‖ ≤ 2‖b‖/Λ + √(2n·f(0)/Λ). For up to twice as many records as
        stated; all of it twice, for the distance from the minimum.
        """
        records = 2.0 * self.records
        at_zero = float(self.objective.margin_losses(np.zeros(3), np.array([-1.0, 0.0, 1.0])).max())
        linear = noise_std * (math.sqrt(dimension) + _FAR)
        norm = 2.0 * linear / self.weight + math.sqrt(2.0 * records * at_zero / self.weight)
        return 2.0 * records * self.smoothness * dimension * _UNIT * norm / self.lipschitz

    def solver(self, batch: Batch, start: Floats) -> Solver:
        """Bound the data once; then solve for any linear term."""
        X, y = bounded_data(self.objective, batch, self.row_norm)

        def solve(linear: Floats) -> Floats:
            def function(w: Floats) -> tuple[float, Floats]:
                losses = float(np.sum(self.objective.losses(w, X, y)))
                value = losses + 0.5 * self.weight * float(w @ w) + float(linear @ w)
                return value, self.objective.gradient_sum(w, X, y) + self.weight * w + linear

            curvature = len(X) * self.smoothness + self.weight
            return minimize_smooth(function, start, curvature, self.weight, self.tolerance * self.lipschitz)

        return solve


def minimize_smooth(
    function: Function, w: Floats, smoothness: float, convexity: float, tolerance: float
) -> Floats:
    """A point whose gradient norm is at most ``tolerance``, of a smooth strongly convex function.

    Limited-memory BFGS comes near fast. What it leaves, because values no longer tell two points apart,
    Nesterov's method does by gradients alone, which converges at a rate known in advance: it always ends.
    """
    w, _ = lbfgs(function, w, iterations=1000, tolerance=tolerance)
    root = math.sqrt(convexity / smoothness)
    momentum = (1.0 - root) / (1.0 + root)
    ahead, gradient = w, function(w)[1]
    while float(np.linalg.norm(gradient)) > tolerance:
        moved = ahead - gradient / smoothness
        ahead, w = moved + momentum * (moved - w), moved
        gradient = function(ahead)[1]
    return ahead
