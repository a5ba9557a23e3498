"""Figures 4.1 to 4.4 of 002: ADMM for L1-regularised models, on real and on simulated sparse data."""

import math
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.papers import printed
from benchmarks.papers.admm import DPADMM, ADMMObjP
from benchmarks.papers.algorithms import Options, Trained, least_multiplier, minimized, planned
from benchmarks.papers.cells import Cell, Measured
from benchmarks.papers.figures import Figure, Panel, grid
from benchmarks.papers.ledgers import account_for, gaussian_mu, new_dataset, sampled_noise
from benchmarks.papers.problems import RELEVANT, Floats, Problem, linear_problem
from benchmarks.papers.scales import Scale
from dpledger_client import Poisson
from dpledger_client.optimizers import Result, minimize
from dpledger_client.optimizers.methods.mpadmm import ModelPerturbationADMM, model_sensitivity
from dpledger_client.optimizers.methods.objective_perturbation import objective_curve
from dpledger_client.optimizers.methods.proximal_sgd import ProximalSGD
from dpledger_client.optimizers.methods.ssadmm import SubsampledADMM

__all__ = ["FIGURES", "run_sparse"]

STRENGTHS = (1e-4, 1e-3)
KEPT = (20, 25, 30, 40)
EPOCHS, ROUNDS, CLIP = 10, 20, 1.0
FIRST_STEP = 2.0


def ssadmm(problem: Problem, _options: Options) -> Trained:
    """Batches of √n, η₀/h in the h-th epoch, ρ = 0.25."""
    steps, rate, size = _batches(problem)
    noise = sampled_noise(problem.epsilon, problem.delta, steps, Poisson(rate))
    return planned(problem, SubsampledADMM(steps, CLIP, noise, rate, size, penalty=0.25))


def proximal(problem: Problem, _options: Options) -> Trained:
    """DP-SGD with the proximal map (4.17), as ssADMM otherwise."""
    steps, rate, size = _batches(problem)
    noise = sampled_noise(problem.epsilon, problem.delta, steps, Poisson(rate))
    return planned(problem, ProximalSGD(steps, round(rate * problem.records), CLIP, noise, size))


def _batches(problem: Problem) -> tuple[int, float, Callable[[int], float]]:
    batch_size = round(math.sqrt(problem.records))
    per_epoch = problem.records // batch_size
    return EPOCHS * per_epoch, batch_size / problem.records, printed.by_epoch(FIRST_STEP, per_epoch)


def mpadmm(problem: Problem, options: Options) -> Trained:
    """Constant steps, ρ = 0.5, noise on x for (ε, δ) in all."""
    steps, eta = options.get("rounds", ROUNDS), options.get("step_size", FIRST_STEP)
    moves = model_sensitivity(CLIP, eta, 0.5, problem.records, "add-remove")
    noise = moves * math.sqrt(steps) / gaussian_mu(problem.epsilon, problem.delta)
    return planned(problem, ModelPerturbationADMM(steps, CLIP, noise, eta, penalty=0.5))


def mpadmm_planned(problem: Problem, options: Options) -> Trained:
    """Ours: more and longer steps, as many as keep the noise on a unit row's margin within 0.3."""
    mu, eta = gaussian_mu(problem.epsilon, problem.delta), 8.0
    each = model_sensitivity(CLIP, eta, 0.5, problem.records, "add-remove") / mu
    rounds = max(ROUNDS, min(200, int((0.3 / each) ** 2)))
    return mpadmm(problem, {**options, "rounds": rounds, "step_size": eta})


def dp_admm(problem: Problem, _options: Options) -> Trained:
    """Two parties with half of the records each."""
    noise = math.sqrt(ROUNDS) / gaussian_mu(problem.epsilon, problem.delta)
    method = DPADMM(ROUNDS, CLIP, noise, FIRST_STEP, 0.5)
    dataset = new_dataset()
    budget = {"accounting": "gdp", "epsilon": problem.epsilon, "delta": problem.delta}
    half = problem.records // 2
    dataset.open(budget, partition_key="fixed", records=problem.records)
    accounts = [dataset.run("papers", partition=name) for name in dataset.open_partitions(2, budget)]
    found = minimize(
        problem.objective,
        [problem.X[:half], problem.X[half : 2 * half]],
        [problem.y[:half], problem.y[half : 2 * half]],
        account=accounts,
        records=half,
        method=method,
        progress=False,
    )
    return _trained(found)


def _trained(found: Result) -> Trained:
    return Trained(
        found.w, found.iterations, 1.0 - float(found.remaining.get("fraction", 1.0)), found.stop_reason
    )


def admm_objp(problem: Problem, options: Options) -> Trained:
    """Ten iterations, each an objective perturbation with ρ = 0.5."""
    steps, penalty = 10, 0.5
    objective = problem.objective
    bare = objective.smoothness(1.0) if not math.isinf(objective.smoothness(1.0)) else 0.25
    curvature = (0.25 if options["model"] == "lr" else max(bare, 1.0)) / (problem.records * penalty)

    def curve(order: float, multiplier: float) -> float:
        output = 30.0 * multiplier
        one = objective_curve(order, multiplier, curvature) + order / (2.0 * output**2) * (1.0 + 1e-9)
        return steps * one

    multiplier, order = least_multiplier(curve, problem.epsilon * (1.0 - 1e-6), problem.delta)
    budget = {"accounting": "rdp-order", "epsilon": problem.epsilon, "delta": problem.delta, "order": order}
    account = account_for(budget, problem.records)
    return minimized(problem, ADMMObjP(steps, multiplier, penalty), account)


def plain(problem: Problem, _options: Options) -> Trained:
    """Proximal gradient descent with acceleration, without privacy."""
    objective, step = problem.objective, 4.0
    w = ahead = np.zeros(problem.dimension)
    for iteration in range(300):
        gradient = objective.gradient_sum(ahead, problem.X, problem.y) / problem.records
        moved = objective.regularizer.proximal(ahead - step * gradient, step)
        ahead, w = moved + iteration / (iteration + 3.0) * (moved - w), moved
    return Trained(w, 300)


TRAINERS: Mapping[str, Callable[[Problem, Options], Trained]] = {
    "ssadmm": ssadmm,
    "mpadmm": mpadmm,
    "mpadmm-planned": mpadmm_planned,
    "dp-sgd": proximal,
    "dp-admm": dp_admm,
    "admm-objp": admm_objp,
    "non-private": plain,
}


def covered(w: Floats, kept: int) -> float:
    """ξ_K: the share of the relevant attributes among the K of the largest weights."""
    chosen = np.argsort(-np.abs(w), kind="stable")[:kept]
    return float(np.sum(chosen < RELEVANT)) / RELEVANT


def run_sparse(cell: Mapping[str, Any]) -> Measured:
    """Train on unit rows; of simulated data also ξ_K."""
    problem = linear_problem({**cell, "penalty": "l1"}, unit_rows=True)
    begun = perf_counter()
    trained = TRAINERS[cell["algorithm"]](problem, cell)
    found = {metric: round(value, 5) for metric, value in problem.measure(trained.w).items()}
    if cell["dataset"] == "simulated":
        found |= {f"xi{kept}": covered(trained.w, kept) for kept in KEPT}
    return {
        **found,
        "seconds": round(perf_counter() - begun, 3),
        "iterations": trained.iterations,
        "used": round(trained.used, 4),
        "zeros": int(np.sum(trained.w == 0.0)),
    }


def _cells(scale: Scale, datasets: Sequence[str], model: str) -> list[Cell]:
    fixed: dict[str, Any] = {"dataset": datasets, "model": [model], "strength": STRENGTHS, "delta": [1e-8]}
    private = [name for name in TRAINERS if name != "non-private"]
    return grid("sparse", scale, folds=10, **fixed, algorithm=private, epsilon=scale.epsilons) + grid(
        "sparse", scale, folds=10, **fixed, algorithm=["non-private"], epsilon=[0.0]
    )


def _panels(metrics: Sequence[str]) -> list[Panel]:
    return [
        Panel(f"λ = {strength}: {metric}", metric, where={"strength": strength})
        for strength in STRENGTHS
        for metric in metrics
    ]


USUAL = ("accuracy", "test_objective")
FIGURES = (
    Figure(
        "4.1",
        "002, figure 4.1: logistic regression on Adult",
        lambda s: _cells(s, ["adult"], "lr"),
        _panels(USUAL),
    ),
    Figure(
        "4.2",
        "002, figure 4.2: huberized SVM on Adult",
        lambda s: _cells(s, ["adult"], "huber"),
        _panels(USUAL),
    ),
    Figure(
        "4.3", "002, figure 4.3: simulated data", lambda s: _cells(s, ["simulated"], "lr"), _panels(USUAL)
    ),
    Figure(
        "4.4",
        "002, figure 4.4: attributes found in simulated data",
        lambda s: _cells(s, ["simulated"], "lr"),
        _panels([f"xi{kept}" for kept in KEPT]),
    ),
)
