"""What the papers compare on linear models: each trained within an (ε, δ) that a ledger holds it to.

Parameters are the papers' own where they print them; ``docs/results/papers.md`` has the table. Every function
takes a problem and options of a cell, and gives what was trained.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from benchmarks.papers import printed
from benchmarks.papers.ledgers import (
    account_for,
    gaussian_mu,
    ledger,
    planned_account,
    sampled_noise,
    total_rho,
)
from benchmarks.papers.problems import Floats, Problem, linear_problem
from dpledger_client import Poisson, Release
from dpledger_client.ledger import Account
from dpledger_client.optimizers import Method, Result, minimize
from dpledger_client.optimizers.methods.dp_agd import DPAGD
from dpledger_client.optimizers.methods.dp_blgd import DPBLGD
from dpledger_client.optimizers.methods.dp_blsgd import DPBLSGD
from dpledger_client.optimizers.methods.dp_sgd import DPSGD
from dpledger_client.optimizers.methods.nsgd import NSGD
from dpledger_client.optimizers.methods.objective_perturbation import (
    ORDERS,
    ObjectivePerturbation,
    objective_curve,
)
from dpledger_client.optimizers.methods.output_perturbation import OutputPerturbation
from dpledger_client.optimizers.methods.privgene import PrivGene
from dpledger_client.optimizers.methods.rsgd_ar import RSGDAR
from dpledger_client.optimizers.support.averaged_gradient import gradient_release
from dpledger_client.optimizers.support.line_search import Backtracking
from dpledger_client.optimizers.support.permuted_sgd import Bounds, sensitivities

__all__ = ["ALGORITHMS", "Options", "Trained", "least_multiplier", "minimized", "planned", "run_linear"]

Options: TypeAlias = Mapping[str, Any]
FIRST_STEP = 4.0
"""η₀ of line searches, which the dissertation does not print: above 2/L for rows of norm 3, as in Adult."""
_HALVINGS = 60


@dataclass(frozen=True)
class Trained:
    """A model, how many iterations it took, why it ended, and the share of the budget that it used."""

    w: Floats
    iterations: int = 0
    used: float = 0.0
    stop: str = "finished"


Algorithm: TypeAlias = Callable[[Problem, Options], Trained]


def _trained(result: Result) -> Trained:
    left = result.remaining.get("fraction", 1.0)
    return Trained(result.w, result.iterations, 1.0 - float(left), result.stop_reason)


def minimized(problem: Problem, method: Method, account: Account) -> Trained:
    found = minimize(problem.objective, problem.X, problem.y, account=account, method=method, progress=False)
    return _trained(found)


def planned(problem: Problem, method: Method, adjacency: str = "add-remove") -> Trained:
    """Train under a budget that is the method's own plan."""
    facts = {"objective": problem.objective, "dimension": problem.dimension}
    limits = problem.epsilon, problem.delta, problem.records
    return minimized(problem, method, planned_account(method, *limits, adjacency, **facts))


def _concentrated(problem: Problem) -> Account:
    """An account of zCDP within (ε, δ), for what decides on the way."""
    budget = {"accounting": "zcdp", "epsilon": problem.epsilon, "delta": problem.delta}
    return account_for(budget, problem.records)


def least_multiplier(
    curve: Callable[[float, float], float], epsilon: float, delta: float, orders: tuple[float, ...] = ORDERS
) -> tuple[float, float]:
    """The least noise multiplier whose Rényi curve is within (ε, δ), and the order at which it is.

    ``curve(order, multiplier)`` falls with the multiplier. The conversion is Balle et al. 2020, Theorem 21,
    as a filter of that one order has it.
    """

    def room(order: float, multiplier: float) -> float:
        try:
            cost = curve(order, multiplier)
        except OverflowError:
            return -math.inf
        return epsilon - cost - math.log1p(-1.0 / order) + (math.log(delta) + math.log(order)) / (order - 1.0)

    low, high = 1e-3, 1e9
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        fits = max(room(order, middle) for order in orders) >= 0.0
        low, high = (low, middle) if fits else (middle, high)
    high *= 1.0 + 1e-6
    return high, max(orders, key=lambda order: room(order, high))


def agd(problem: Problem, options: Options) -> Trained:
    """DP-AGD as printed: C_grad = C_obj = 3, γ = 0.1, first budgets ε/(2·60) (000)."""
    gradient_rho, selection_rho = printed.agd_splits(
        problem.epsilon, problem.delta, options.get("splits", 60)
    )
    method = DPAGD(
        gradient_rho,
        selection_rho,
        gradient_clip=options.get("gradient_clip", 3.0),
        loss_clip=options.get("loss_clip", 3.0),
        noise=options.get("noise", "laplace"),
    )
    return minimized(problem, method, _concentrated(problem))


def agd_by_rho(problem: Problem, options: Options) -> Trained:
    """Ours: the same with ρ/(2·splits) for each, Gumbel noise, and a loss clip that does not stall it."""
    method = DPAGD.for_total(
        total_rho(problem.epsilon, problem.delta) * (1.0 - 1e-9),
        splits=options.get("splits", 30),
        gradient_clip=options.get("gradient_clip", 3.0),
        loss_clip=options.get("loss_clip", 8.0),
    )
    return minimized(problem, method, _concentrated(problem))


def blgd(problem: Problem, options: Options) -> Trained:
    """DP-BLGD as printed: ε/(2·50) an iteration, C_grad = 3, C_obj = 1 (002, 5.6.4)."""
    gradient_rho, search_budget = printed.blsgd_budgets(problem.epsilon)
    method = DPBLGD(
        gradient_rho,
        search_budget,
        gradient_clip=options.get("gradient_clip", 3.0),
        loss_clip=options.get("loss_clip", 1.0),
        step_size=FIRST_STEP,
        search=_search(options),
    )
    return minimized(problem, method, _concentrated(problem))


def _search(options: Options) -> Backtracking:
    return Backtracking(
        noise=options.get("noise", "laplace"),
        armijo=options.get("armijo", 0.5),
        shrinking=options.get("shrinking", 0.8),
    )


def blsgd(problem: Problem, options: Options) -> Trained:
    """DP-BLSGD as printed: q = 0.1, ε/(2·50) an iteration, ξ = 0.3, C_grad = 3, C_obj = 1 (002, 5.6.4)."""
    gradient_rho, search_budget = printed.blsgd_budgets(problem.epsilon)
    if options.get("noise") == "gaussian":
        search_budget = search_budget**2 / 2.0  # ρ_BT, where Laplace noise has ε_BT
    return _blsgd(problem, options, gradient_rho, search_budget, loss_clip=1.0)


def blsgd_ac(problem: Problem, options: Options) -> Trained:
    """DP-BLSGD-AC: the same with clips that shrink by ζ = 0.05."""
    return blsgd(problem, {"clip_decay": 0.05, **options})


def blsgd_planned(problem: Problem, options: Options) -> Trained:
    """Ours: budgets with which the iterations that the dissertation expects use (ε, δ) up, C_obj = 8."""
    iterations, rate = options.get("iterations", 50), options.get("rate", 0.1)
    gradient_rho, search_budget = _amplified_budgets(problem, iterations, rate)
    return _blsgd(problem, options, gradient_rho, search_budget, loss_clip=8.0, gradient_clip=1.0)


def _blsgd(
    problem: Problem,
    options: Options,
    gradient_rho: float,
    search_budget: float,
    loss_clip: float,
    gradient_clip: float = 3.0,
) -> Trained:
    rate = options.get("rate", 0.1)
    method = DPBLSGD(
        rate,
        gradient_rho,
        search_budget,
        gradient_clip=options.get("gradient_clip", gradient_clip),
        loss_clip=options.get("loss_clip", loss_clip),
        step_size=FIRST_STEP,
        search=_search(options),
        grows=options.get("grows", "by-angle"),
        clip_decay=options.get("clip_decay", 0.0),
        steps=options.get("steps", 400),
    )
    order = _best_order(problem, method, rate)
    budget = {"accounting": "rdp-order", "epsilon": problem.epsilon, "delta": problem.delta, "order": order}
    return minimized(problem, method, account_for(budget, problem.records))


def _iteration_curve(method: DPBLSGD, rate: float) -> tuple[tuple[float, ...], Floats]:
    """What a gradient and a search cost together, each on a sample of its own."""
    releases: list[Release] = [
        gradient_release(method.gradient_clip, method.gradient_rho, "add-remove"),
        method.search.release(method.search_budget, method.loss_clip, "add-remove"),
    ]
    orders = tuple(float(order) for order in (*range(2, 64, 2), *range(64, 1025, 16)))
    costs = [
        ledger().cost(release, adjacency="add-remove", sample=Poisson(rate), orders=orders)
        for release in releases
    ]
    return orders, np.sum([cost.epsilons for cost in costs], axis=0)


def _best_order(problem: Problem, method: DPBLSGD, rate: float) -> float:
    """The order at which (ε, δ) covers the most iterations like the first."""
    orders, curve = _iteration_curve(method, rate)
    budgets = [_budget_at(order, problem) for order in orders]
    return orders[int(np.argmax(np.array(budgets) / curve))]


def _budget_at(order: float, problem: Problem) -> float:
    log_delta = math.log(problem.delta) + math.log(order)
    return problem.epsilon - math.log1p(-1.0 / order) + log_delta / (order - 1.0)


def _amplified_budgets(problem: Problem, iterations: int, rate: float) -> tuple[float, float]:
    """ρ of a gradient and ε of a search for so many iterations, of which a gradient has nine tenths."""
    low, high = 1e-9, 10.0
    for _ in range(24):
        rho = math.sqrt(low * high)
        method = DPBLSGD(rate, rho, math.sqrt(2.0 * rho / 9.0), 1.0, 1.0, FIRST_STEP)
        orders, curve = _iteration_curve(method, rate)
        fits = max(_budget_at(o, problem) / cost for o, cost in zip(orders, curve, strict=True)) >= iterations
        low, high = (rho, high) if fits else (low, rho)
    return low, math.sqrt(2.0 * low / 9.0)


def sgd(problem: Problem, options: Options) -> Trained:
    """DP-SGD: batches of √n, η₀/h in the h-th expected epoch, clip 3, noise by loss distributions."""
    batch_size = round(math.sqrt(problem.records))
    steps = options.get("epochs", 10) * (problem.records // batch_size)
    noise = sampled_noise(problem.epsilon, problem.delta, steps, Poisson(batch_size / problem.records))
    size = printed.by_epoch(options.get("step_size", 0.5), problem.records // batch_size)
    return planned(problem, DPSGD(steps, batch_size, options.get("clip", 3.0), noise, size))


def _calibrated(problem: Problem, options: Options, method: str) -> Trained:
    batch_size = round(math.sqrt(problem.records))
    steps = options.get("epochs", 10) * (problem.records // batch_size)
    facts: dict[str, Any] = {"epsilon": problem.epsilon, "delta": problem.delta}
    # Their noise is solved for by an older way of counting; the ledger charges what the steps really cost.
    sample = Poisson(batch_size / problem.records)
    noise = sampled_noise(problem.epsilon, problem.delta, steps, sample)
    item = {
        "sample": sample.fields(),
        "releases": [{"mechanism": "gaussian", "sensitivity": 3.0, "noise_std": 3.0 * noise}],
        "times": steps,
        "name": "sgd",
    }
    budget = {"accounting": "plan", "items": [item], **facts}
    found = minimize(
        problem.objective,
        problem.X,
        problem.y,
        account=account_for(budget, problem.records),
        method=method,
        steps=steps,
        batch_size=batch_size,
        clip=3.0,
        step_size=printed.by_epoch(options.get("step_size", 0.5), problem.records // batch_size),
        progress=False,
        **facts,
    )
    return _trained(found)


def sgd_moments(problem: Problem, options: Options) -> Trained:
    """SGD-MA: the same with the noise of the moments accountant's closed form."""
    return _calibrated(problem, options, "sgd-moments")


def sgd_advanced(problem: Problem, options: Options) -> Trained:
    """SGD-Adv: the same with the noise of advanced composition."""
    return _calibrated(problem, options, "sgd-advanced")


def objective_perturbation(problem: Problem, _options: Options) -> Trained:
    """ObjPert: unit rows, λ = 0.001."""
    objective = problem.objective
    extra = 0.0 if objective.regularizer.strong_convexity else 1e-3
    strength = objective.regularizer.strong_convexity + extra
    bare = objective.smoothness(1.0) - objective.regularizer.smoothness
    curvature = bare / (problem.records * strength)

    def curve(order: float, multiplier: float) -> float:
        output = 30.0 * multiplier
        return objective_curve(order, multiplier, curvature) + order / (2.0 * output**2) * (1.0 + 1e-9)

    multiplier, order = least_multiplier(curve, problem.epsilon * (1.0 - 1e-9), problem.delta)
    method = ObjectivePerturbation(multiplier, extra_strength=extra, tolerance=1e-5)
    budget = {"accounting": "rdp-order", "epsilon": problem.epsilon, "delta": problem.delta, "order": order}
    return minimized(problem, method, account_for(budget, problem.records))


def output_perturbation(problem: Problem, options: Options) -> Trained:
    """OutPert-GD: unit rows, gradient descent with 2/(L + μ), noise on its last iterate; replace-one."""
    steps = options.get("steps", 50)
    method = OutputPerturbation(steps, noise_multiplier=1.0 / gaussian_mu(problem.epsilon, problem.delta))
    return planned(problem, method, "replace-one")


def _permuted(problem: Problem, method: Callable[[float], Any]) -> Trained:
    """NSGD or RSGD-AR with the least noise whose mixture (3.9) is within (ε, δ)."""
    probe = method(1.0)
    passes = probe._passes(problem)
    moved = np.array(sensitivities(passes, Bounds.of(problem.objective, 1.0, problem.dimension, passes), 0.0))
    ratios, shares = moved / moved.max(), np.array(passes.batch_sizes) / problem.records

    def curve(order: float, multiplier: float) -> float:
        powers = order * (order - 1.0) * np.square(ratios / multiplier) / 2.0
        return float(np.logaddexp.reduce(np.log(shares) + powers)) / (order - 1.0)

    multiplier, order = least_multiplier(curve, problem.epsilon * (1.0 - 1e-6), problem.delta)
    budget = {"accounting": "rdp-order", "epsilon": problem.epsilon, "delta": problem.delta, "order": order}
    account = account_for(budget, problem.records, "replace-one")
    return minimized(problem, method(multiplier * (1.0 + 1e-6)), account)


def rsgd_ar(problem: Problem, options: Options) -> Trained:
    """RSGD-AR: unit rows, mini-batches of 4,000, averages every τ = 5 of T = 10 epochs, η₀ = 4."""
    batches = max(1, problem.records // 4_000)
    epochs, first = options.get("epochs", 10), _permuted_step(problem)
    interval = min(epochs, options.get("interval", 5))
    return _permuted(problem, lambda noise: RSGDAR(epochs, batches, interval, first, noise))


def rsgd_ar_planned(problem: Problem, _options: Options) -> Trained:
    """Ours: constant steps of 2/L, averaged every epoch, and as many epochs as keep margins' noise small."""
    first = 2.0 / problem.objective.smoothness(1.0)
    batches = max(1, problem.records // 4_000)
    mu = gaussian_mu(problem.epsilon, problem.delta)
    epochs = _steps_within(MARGIN_NOISE, first * batches * 2.0 / (problem.records * mu), 60)
    return _permuted(problem, lambda noise: RSGDAR(epochs, batches, 1, first, noise))


def output_perturbation_planned(problem: Problem, options: Options) -> Trained:
    """Ours: the same number of steps, which keeps the noise on a margin of a unit row within 0.3."""
    first = 2.0 / problem.objective.smoothness(1.0)
    mu = gaussian_mu(problem.epsilon, problem.delta)
    steps = _steps_within(MARGIN_NOISE, first * 2.0 / (problem.records * mu), 200)
    return output_perturbation(problem, {**options, "steps": steps})


def _permuted_step(problem: Problem) -> float:
    """η₀ = 4, or 2/L where that is less: a larger one moves neighbours apart at every update."""
    return float(min(4.0, 2.0 / problem.objective.smoothness(1.0)))


MARGIN_NOISE = 0.3


def _steps_within(noise: float, each: float, most: int) -> int:
    """How many steps, each of which adds that much noise, stay within it."""
    return max(1, min(most, int(noise / each)))


def nsgd(problem: Problem, options: Options) -> Trained:
    """NSGD: the same without averages."""
    batches = max(1, problem.records // 4_000)
    epochs, first = options.get("epochs", 10), _permuted_step(problem)
    return _permuted(problem, lambda noise: NSGD(epochs, batches, first, noise))


def privgene(problem: Problem, options: Options) -> Trained:
    """PrivGene: 10 of 100 candidates selected in each of 10 generations."""
    generations, parents = options.get("generations", 10), 10
    rho = total_rho(problem.epsilon, problem.delta) / ((generations - 1) * parents + 1)
    epsilon = math.sqrt(8.0 * rho) * (1.0 - 1e-9)
    seed = options.get("repeat", 0) * 100 + options.get("fold", 0)
    method = PrivGene(generations, epsilon, 3.0, population=100, parents=parents, seed=seed)
    return minimized(problem, method, _concentrated(problem))


def ours(problem: Problem, _options: Options) -> Trained:
    """One call with nothing but (ε, δ)."""
    budget = {"accounting": "shared", "epsilon": problem.epsilon, "delta": problem.delta}
    found = minimize(
        problem.objective,
        problem.X,
        problem.y,
        account=account_for(budget, problem.records),
        epsilon=problem.epsilon,
        delta=problem.delta,
        progress=False,
    )
    return _trained(found)


def non_private(problem: Problem, _options: Options) -> Trained:
    """L-BFGS, without privacy."""
    found = minimize(
        problem.objective, problem.X, problem.y, account=None, method="l-bfgs", iterations=200, tolerance=1e-6
    )
    return _trained(found)


def majority(problem: Problem, _options: Options) -> Trained:
    """The most frequent label of the training rows, as a weight on the intercept alone."""
    w = np.zeros(problem.dimension)
    w[-1] = np.sign(problem.y.sum()) or 1.0
    return Trained(w)


ALGORITHMS: Mapping[str, Algorithm] = {
    "ours": ours,
    "dp-agd": agd,
    "dp-agd-rho": agd_by_rho,
    "dp-blgd": blgd,
    "dp-blsgd": blsgd,
    "dp-blsgd-ac": blsgd_ac,
    "dp-blsgd-planned": blsgd_planned,
    "dp-sgd": sgd,
    "sgd-ma": sgd_moments,
    "sgd-adv": sgd_advanced,
    "objpert": objective_perturbation,
    "outpert": output_perturbation,
    "outpert-planned": output_perturbation_planned,
    "rsgd-ar": rsgd_ar,
    "rsgd-ar-planned": rsgd_ar_planned,
    "nsgd": nsgd,
    "privgene": privgene,
    "non-private": non_private,
    "majority": majority,
}
UNIT_ROWS = {"objpert", "outpert", "outpert-planned", "rsgd-ar", "rsgd-ar-planned", "nsgd"}
"""What is proven, or works best, for rows of norm at most 1."""
OWN_L2 = 1e-3


def run_linear(cell: Mapping[str, Any]) -> dict[str, Any]:
    """Train one algorithm on one fold, and measure it."""
    from time import perf_counter

    name = cell["algorithm"]
    problem = linear_problem(cell, unit_rows=name in UNIT_ROWS)
    begun = perf_counter()
    trained = ALGORITHMS[name](problem, cell)
    seconds = perf_counter() - begun
    return {
        **{metric: round(value, 5) for metric, value in problem.measure(trained.w).items()},
        "seconds": round(seconds, 3),
        "iterations": trained.iterations,
        "used": round(trained.used, 4),
        "stop": trained.stop,
        "gradients": problem.objective.gradients,
        "losses": problem.objective.losses_seen,
    }
