"""Figures 1 to 3 of 004 (Cheng, Liu, Wang, Lu 2020): A-DDP among users of 100 records each."""

import math
from collections.abc import Mapping
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.papers.cells import Cell, Measured
from benchmarks.papers.figures import Figure, Panel, grid
from benchmarks.papers.ledgers import gaussian_mu, ledger, new_dataset
from benchmarks.papers.problems import Problem, linear_problem
from benchmarks.papers.scales import Scale
from benchmarks.papers.seed000 import TABLES
from dpledger_client.optimizers import minimize
from dpledger_client.optimizers.methods.a_ddp import ADDP, planned_noise
from dpledger_client.optimizers.methods.first_order import StochasticGradientDescent
from dpledger_client.optimizers.support.batches import sample_of

__all__ = ["FIGURES", "run_composition", "run_distributed"]

HELD = 100
"""Records of a user, of which a round draws one: p = 0.01."""
ROUNDS, CLIP = 10, 3.0
PRIVATE = ("a-ddp", "a-ddp-planned", "sgd-maj", "sgd-adv", "sgd-pass")


def _calibrated(problem: Problem, method: str) -> float:
    """The noise that a way of counting wants for all rounds of a user, over the sensitivity 2C."""
    if method == "sgd-maj":
        # Each round an (ε/T, δ/T) Gaussian of the classic form, without sampling.
        share = problem.epsilon / ROUNDS
        return math.sqrt(2.0 * math.log(1.25 * ROUNDS / problem.delta)) / share
    query = {
        "solve_for": "noise_std",
        "target": {"epsilon": problem.epsilon, "delta": problem.delta},
        "steps": ROUNDS,
        "adjacency": "replace-one",
        "sample": sample_of(1, HELD, "replace-one").fields(),
        "releases": [{"mechanism": "gaussian", "sensitivity": 1.0}],
        "method": "advanced",
    }
    return float(ledger().ask("calibrations", query)["value"])


def _method(problem: Problem, name: str) -> ADDP:
    if name in ("sgd-pass", "a-ddp-planned"):
        # All of a user's records in every round: nothing is amplified, and less noise is needed on a mean.
        rounds, clip = (ROUNDS, CLIP) if name == "sgd-pass" else (20, 1.0)
        noise = math.sqrt(rounds) / gaussian_mu(problem.epsilon, problem.delta)
        # Noise moves a weight by 0.3 in all rounds of ours, whatever ε is.
        moved = 2.0 * clip * noise * math.sqrt(rounds) / math.sqrt(HELD * problem.records)
        step_size = 1.0 if name == "sgd-pass" else min(8.0, 0.3 / moved)
        return ADDP(rounds, clip, noise, step_size, batch_size=HELD)
    if name in ("sgd-maj", "sgd-adv"):
        return ADDP(ROUNDS, CLIP, _calibrated(problem, name), 1.0)
    noise = planned_noise(ledger(), problem.epsilon * 0.999, problem.delta, ROUNDS, records=HELD)
    return ADDP(ROUNDS, CLIP, noise, 1.0)


def run_distributed(cell: Mapping[str, Any]) -> Measured:
    """Share the training rows out among users, each with a budget of its own, and train."""
    problem = linear_problem(cell)
    begun = perf_counter()
    if cell["algorithm"] == "majority":
        w = np.zeros(problem.dimension)
        w[-1] = np.sign(problem.y.sum()) or 1.0
        return {**problem.measure(w), "rounds": 0}
    if cell["algorithm"] == "non-private":
        plain = StochasticGradientDescent(1_000, 0.5, batch_size=400)
        found = minimize(problem.objective, problem.X, problem.y, account=None, method=plain)
        return {**problem.measure(found.w), "rounds": plain.steps}
    users = problem.records // HELD
    method = _method(problem, cell["algorithm"])
    found = minimize(
        problem.objective,
        [problem.X[user::users][:HELD] for user in range(users)],
        [problem.y[user::users][:HELD] for user in range(users)],
        account=_accounts(problem, method, users),
        method=method,
        progress=False,
    )
    noise = method.noise_multiplier if isinstance(method.noise_multiplier, float) else None
    return {
        **{metric: round(value, 5) for metric, value in problem.measure(found.w).items()},
        "rounds": found.iterations,
        "noise_multiplier": noise,
        "seconds": round(perf_counter() - begun, 3),
    }


def _accounts(problem: Problem, method: ADDP, users: int) -> list[Any]:
    """A partition for each user, with a budget of the order that its own step is cheapest at."""
    limits = {"epsilon": problem.epsilon, "delta": problem.delta}
    release, sample = method._step(
        _Facts(HELD, "replace-one"),
        float(method.noise_multiplier),  # type: ignore[arg-type]
    )
    step = {"sample": sample.fields(), "releases": [release.mechanism.fields()]}
    budget = {"accounting": "rdp-order", **limits, "plan": step}
    if method.batch_size >= HELD:
        budget = {"accounting": "gdp", **limits}
    dataset = new_dataset()
    dataset.open(budget, adjacency="replace-one", partition_key="fixed", records=problem.records)
    return [dataset.run("a-ddp", partition=name) for name in dataset.open_partitions(users, budget)]


class _Facts:
    """A user's public facts."""

    def __init__(self, records: int, adjacency: str) -> None:
        self.records, self.adjacency = records, adjacency


def run_composition(cell: Mapping[str, Any]) -> Measured:
    """ε of T rounds at one δ: by advanced composition, by Theorem 1 of 004, and exactly."""
    each, rounds, rate, delta = cell["each"], cell["rounds"], cell["rate"], cell["delta"]
    total = (rounds + 1) * delta
    if cell["way"] == "advanced":
        return {
            "epsilon": math.sqrt(2.0 * rounds * math.log(1.0 / delta)) * each
            + rounds * each * math.expm1(each)
        }
    step = {
        "sample": {"scheme": "without-replacement", "rate": rate},
        "releases": [
            {"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": 1.0 / gaussian_mu(each, delta)}
        ],
        "times": rounds,
    }
    query = {"plan": [step], "adjacency": "replace-one", "delta": total, "method": cell["way"]}
    return {"epsilon": float(ledger().ask("compositions", query)["epsilon"])}


def _sweep(scale: Scale) -> list[Cell]:
    fixed: dict[str, Any] = {"dataset": TABLES, "model": ["lr"], "strength": [0.0], "delta": [1e-8]}
    private = grid("distributed", scale, **fixed, algorithm=PRIVATE, epsilon=scale.epsilons)
    plain = grid("distributed", scale, **fixed, algorithm=["non-private", "majority"], epsilon=[0.0])
    return private + plain


VARIED = {"rate": (0.001, 0.01, 0.1, 0.5), "rounds": (1, 10, 100, 1_000), "each": (0.03, 0.1, 0.3, 1.0)}


def _compositions(_scale: Scale) -> list[Cell]:
    usual = {"rate": 0.1, "rounds": 10, "each": 0.1, "delta": 1e-5}
    return [
        Cell.of("composition", **{**usual, name: value}, way=way, varied=name)
        for name, values in VARIED.items()
        for value in values
        for way in ("advanced", "sampling", "rdp")
    ]


FIGURES = (
    Figure(
        "004.1",
        "004, figure 1: accuracy by ε",
        _sweep,
        [Panel(f"{name}: accuracy", "accuracy", where={"dataset": name}) for name in TABLES],
    ),
    Figure(
        "004.2",
        "004, figure 2: objective value by ε",
        _sweep,
        [Panel(f"{name}: objective value", "objective", where={"dataset": name}) for name in TABLES],
    ),
    Figure(
        "004.3",
        "004, figure 3: ε of all rounds by the way of counting",
        _compositions,
        [Panel(f"ε by {name}", "epsilon", name, "way", {"varied": name}) for name in VARIED],
    ),
)
