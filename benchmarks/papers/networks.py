"""Figure 5.5 of 002: a network on MNIST by DP-BLSGD, DP-SGD and DP-Adam, iteration by iteration."""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from benchmarks.datasets import load
from benchmarks.papers.cells import Measured
from benchmarks.papers.ledgers import account_for, ledger
from benchmarks.papers.problems import Floats
from dpledger_client import Poisson, Release
from dpledger_client.objectives import L2, MLP
from dpledger_client.optimizers import Method, minimize
from dpledger_client.optimizers.methods.dp_adam import DPAdam
from dpledger_client.optimizers.methods.dp_blsgd import DPBLSGD
from dpledger_client.optimizers.methods.dp_sgd import DPSGD
from dpledger_client.optimizers.methods.first_order import Adam
from dpledger_client.optimizers.support.averaged_gradient import gradient_release
from dpledger_client.optimizers.support.line_search import Backtracking

__all__ = ["run_network"]

CLASSES, WEIGHT, CLIP, DELTA = 10, 1e-3, 3.0, 1e-8
RHO = 0.5
"""ρ of an iteration before sampling: a noise multiplier of 1."""
BATCH = 200
ORDERS = tuple(float(order) for order in range(2, 65))
POINTS = 12


@lru_cache(maxsize=1)
def _images(name: str, images: int) -> tuple[Floats, ...]:
    """Pixels within [−1, 1] and digits, to train on and held out."""
    data = load(name)
    train, test = data.split()
    train, test = (train[:images], test[:2_000]) if images else (train, test)
    X, y = 2.0 * data.X - 1.0, data.y.astype(np.float64)
    return X[train], y[train], X[test], y[test]


def _method(trainer: str, steps: int, rate: float, size: int) -> Method:
    noise = 1.0 / math.sqrt(2.0 * RHO)
    if trainer == "dp-sgd":
        return DPSGD(steps, size, CLIP, noise, 0.2)
    if trainer == "dp-adam":
        return DPAdam(steps, size, CLIP, noise, 1e-3)
    # A tenth of ρ for the search, Gaussian; no budget grows, and a failed search takes the smallest step.
    return DPBLSGD(
        rate,
        0.9 * RHO,
        0.1 * RHO,
        CLIP,
        CLIP,
        step_size=1.0,
        search=Backtracking("gaussian", armijo=0.001, shrinking=0.8),
        looks="joint",
        smallest_on_failure=True,
        steps=steps,
    )


def _releases(method: Method) -> list[Release]:
    if isinstance(method, DPBLSGD):
        search = method.search.release(method.search_budget, CLIP, "add-remove")
        return [gradient_release(CLIP, method.gradient_rho, "add-remove"), search]
    return [gradient_release(CLIP, RHO, "add-remove")]


def _epsilons(releases: list[Release], rate: float, iterations: list[float]) -> list[float]:
    """What so many iterations cost at δ = 1e-8, by their Rényi curve: one conversion for all trainers."""
    cost = ledger().cost(releases, adjacency="add-remove", sample=Poisson(rate), orders=ORDERS)
    orders, curve = np.array(cost.orders), np.array(cost.epsilons)
    convert = np.log1p(-1.0 / orders) - (math.log(DELTA) + np.log(orders)) / (orders - 1.0)
    return [round(float(np.min(count * curve + convert)), 4) for count in iterations]


def run_network(cell: Mapping[str, Any]) -> Measured:
    """Train one network, and measure it along the way."""
    X, y, test_X, test_y = _images(cell["dataset"], cell["images"])
    steps = cell["steps"]
    size = max(BATCH, len(X) // 200) if len(X) > 2 * BATCH else len(X) // 4
    objective = MLP([cell["hidden"]], CLASSES, "relu", L2(WEIGHT))
    path: dict[str, list[float]] = {"iteration": [], "accuracy": [], "objective": [], "step_size": []}

    def note(iteration: int, w: Floats, step_size: float) -> None:
        if iteration % max(1, steps // POINTS) == 0:
            margins = objective.losses(w, test_X, test_y)
            path["iteration"].append(iteration)
            path["accuracy"].append(round(_accuracy(objective, w, test_X, test_y), 4))
            path["objective"].append(round(float(np.mean(margins)), 4))
            path["step_size"].append(round(step_size, 4))

    start = objective.initial(X, y, seed=cell["repeat"])
    if cell["trainer"] == "adam":
        plain = Adam(steps, 1e-3, note=lambda i, w: note(i, w, 1e-3), batch_size=size, seed=cell["repeat"])
        minimize(objective, X, y, account=None, method=plain, w0=start)
        return {**path, "epsilon": [0.0] * len(path["iteration"])}
    rate = size / len(X)
    method = _method(cell["trainer"], steps, rate, size)
    budget = {"accounting": "rdp-order", "epsilon": 1e4, "delta": DELTA, "order": 2.0}
    minimize(
        objective,
        X,
        y,
        account=account_for(budget, len(X)),
        method=method,
        w0=start,
        callback=lambda iterate: note(iterate.iteration, iterate.w, iterate.details["step_size"]),
        progress=False,
    )
    return {**path, "epsilon": _epsilons(_releases(method), rate, path["iteration"])}


def _accuracy(objective: MLP, w: Floats, X: Floats, y: Floats) -> float:
    return float(np.mean(objective.predict(w, X) == y))
