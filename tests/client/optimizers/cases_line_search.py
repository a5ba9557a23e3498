"""DP-BLSGD and DP-BLGD."""

from typing import Any

import numpy as np

from dpledger_client import Poisson, WithoutReplacement
from dpledger_client._arrays import Floats, Integers
from dpledger_client.objectives import L2, Logistic
from dpledger_client.optimizers.methods.dp_blgd import DPBLGD
from dpledger_client.optimizers.methods.dp_blsgd import DPBLSGD, DPBLSGDAC
from dpledger_client.optimizers.support.line_search import Backtracking
from dpledger_client.samples import FreshSample
from tests.client.optimizers.contract import Case

STEPS, LAMBDA, RATE, FIRST, INTERVAL = 8, 0.05, 0.4, 30.0, 3
ARMIJO, SHRINKING, QUERIES, FEW = 0.3, 0.7, 12, 4
COMMON: dict[str, Any] = {
    "gradient_rho": 0.8,
    "search_budget": 1.0,
    "gradient_clip": 1.5,
    "loss_clip": 9.0,
    "step_size": FIRST,
    "restart_interval": INTERVAL,
    "steps": STEPS,
}
STOCHASTIC = COMMON | {"rate": RATE}


def _search(noise: str = "laplace", queries: int = QUERIES) -> Backtracking:
    return Backtracking(noise, queries, ARMIJO, SHRINKING)


def _sum_of_losses(w: Floats, X: Floats, y: Floats) -> float:
    return float(np.sum(np.log(1.0 + np.exp(-y * (X @ w)))))


def _step_size(
    w: Floats,
    g: Floats,
    steps: list[float],
    size: float,
    X: Floats,
    y: Floats,
) -> float | None:
    """Armijo's backtracking on the mean loss with the regulariser."""

    def value(point: Floats) -> float:
        return _sum_of_losses(point, X, y) / size + LAMBDA * float(np.sum(point**2)) / 2.0

    for eta in steps:
        if value(w) - value(w - eta * g) >= ARMIJO * eta * float(np.sum(g**2)):
            return eta
    return None


class Stochastic:
    """Algorithm 5.2 without noise, on samples drawn in the same order."""

    def __init__(self, sample: FreshSample, looks: str, queries: int = QUERIES) -> None:
        self.sample = sample
        self.looks = looks
        self.queries = queries

    def __call__(self, X: Floats, y: Floats) -> Floats:
        w, first, since = np.zeros(X.shape[1]), FIRST, []
        for _ in range(STEPS):
            gradient, rows = self._gradient(w, X, y)
            while (eta := self._searched(w, gradient, first, rows, X, y)) is None:
                second, other_rows = self._gradient(w, X, y)
                gradient = (gradient + second) / 2.0
                rows = other_rows if self.looks == "joint" else rows
            w = w - eta * gradient
            since.append(eta)
            if len(since) == INTERVAL:
                first, since = min(1.2 * max(since), first), []
        return w

    def _size(self, X: Floats) -> float:
        return self.sample.expected_size(len(X))

    def _gradient(self, w: Floats, X: Floats, y: Floats) -> tuple[Floats, Integers]:
        rows = self.sample.draw(len(X))
        total = np.zeros_like(w)
        for row, label in zip(X[rows], y[rows], strict=True):
            total = total - label * row / (1.0 + np.exp(label * row @ w))
        return total / self._size(X) + LAMBDA * w, rows

    def _searched(
        self,
        w: Floats,
        g: Floats,
        first: float,
        rows: Integers,
        X: Floats,
        y: Floats,
    ) -> float | None:
        chosen = self.sample.draw(len(X)) if self.looks == "fresh" else rows
        steps = [first * SHRINKING**k for k in range(self.queries)]
        return _step_size(w, g, steps, self._size(X), X[chosen], y[chosen])


def _full(X: Floats, y: Floats) -> Floats:
    w, first, since = np.zeros(X.shape[1]), FIRST, []
    for _ in range(STEPS):
        slopes = -y / (1.0 + np.exp(y * (X @ w)))
        gradient = (slopes[:, None] * X).sum(axis=0) / len(X) + LAMBDA * w
        eta = _step_size(w, gradient, [first * SHRINKING**k for k in range(QUERIES)], len(X), X, y)
        assert eta is not None, "without noise the gradient descends"
        w = w - eta * gradient
        since.append(eta)
        if len(since) == INTERVAL:
            first, since = min(1.2 * max(since), first), []
    return w


def _case(name: str, method: DPBLSGD | DPBLGD, **more: Any) -> Case:
    given: dict[str, Any] = {"repeats": 10, "objective": Logistic(L2(LAMBDA))}
    return Case(name=name, method=method, **(given | more))


CASES = [
    _case(
        "dp-blsgd",
        DPBLSGD(search=_search(), **STOCHASTIC),
        textbook=Stochastic(Poisson(RATE), "fresh"),
    ),
    _case(
        "dp-blsgd joint, gaussian",
        DPBLSGD(looks="joint", search=_search("gaussian", FEW), **STOCHASTIC),
        textbook=Stochastic(Poisson(RATE), "joint", FEW),
    ),
    _case(
        "dp-blsgd again, replace-one",
        DPBLSGD(looks="again", search=_search(queries=FEW), **STOCHASTIC),
        textbook=Stochastic(WithoutReplacement(RATE), "again", FEW),
        adjacency="replace-one",
    ),
    _case(
        "dp-blsgd-ac queries-only",
        DPBLSGDAC(search=_search("queries-only", FEW), **STOCHASTIC | {"search_budget": 0.01}),
        textbook=Stochastic(Poisson(RATE), "fresh", FEW),
    ),
    _case(
        "dp-blsgd whose budgets always grow",
        DPBLSGD(grows="always", search=_search(queries=FEW), **STOCHASTIC),
        textbook=Stochastic(Poisson(RATE), "fresh", FEW),
    ),
    _case("dp-blgd", DPBLGD(search=_search(), **COMMON), textbook=_full),
    _case(
        "dp-blgd gaussian, replace-one",
        DPBLGD(search=_search("gaussian", FEW), **COMMON),
        textbook=_full,
        adjacency="replace-one",
    ),
]
