"""DP-AGD."""

from typing import Any

import numpy as np

from dpledger_client._arrays import Floats
from dpledger_client.objectives import L2, Logistic
from dpledger_client.optimizers import L2Ball
from dpledger_client.optimizers.methods.dp_agd import DPAGD
from dpledger_client.optimizers.support.results import Result
from tests.client.optimizers.contract import Case

STEPS, LAMBDA, RADIUS = 8, 0.01, 1.5
GRADIENT_RHO, SELECTION_RHO, GROWTH = 0.4, 0.6, 0.25
COMMON: dict[str, Any] = {
    "gradient_rho": GRADIENT_RHO,
    "selection_rho": SELECTION_RHO,
    "gradient_clip": 1.5,
    "loss_clip": 8.0,
    "budget_growth": GROWTH,
    "candidates": 10,
    "max_step_size": 0.5,
    "grid_interval": 3,
    "steps": STEPS,
}


def _loss(w: Floats, X: Floats, y: Floats) -> float:
    return float(np.mean(np.log(1.0 + np.exp(-y * (X @ w)))) + LAMBDA * np.sum(w**2) / 2.0)


def _gradient(w: Floats, X: Floats, y: Floats) -> Floats:
    slopes = -y / (1.0 + np.exp(y * (X @ w)))
    return np.asarray((slopes[:, None] * X).mean(axis=0) + LAMBDA * w)


def _best_steps(X: Floats, y: Floats, radius: float = np.inf) -> Floats:
    """Normalised steepest descent whose every step is the best of a grid that follows the steps taken."""
    w, longest, taken = np.zeros(X.shape[1]), 0.5, []
    for _ in range(STEPS):
        direction = _gradient(w, X, y)
        direction = direction / np.sqrt(np.sum(direction**2))
        points = []
        for k in range(11):
            moved = w - k * longest / 10.0 * direction
            points.append(moved / max(1.0, np.sqrt(np.sum(moved**2)) / radius))
        best = int(np.argmin([_loss(point, X, y) for point in points]))
        assert best > 0, "without noise the gradient descends; the problem must not end before the steps do"
        w = points[best]
        taken.append(best * longest / 10.0)
        if len(taken) == 3:
            longest, taken = 1.1 * max(taken), []
    return w


def _within_ball(X: Floats, y: Floats) -> Floats:
    return _best_steps(X, y, RADIUS)


def charged_rho(result: Result) -> float:
    """ρ_ng once per iteration and its growth at each repetition, ρ_nmax for each selection."""
    rho, total = GRADIENT_RHO, 0.0
    for record in result.history:
        measurements = record.details["measurements"]
        total += rho + measurements * SELECTION_RHO
        grown = rho * (1.0 + GROWTH) ** (measurements - 1)
        total, rho = total + grown - rho, grown
    return total


def _case(name: str, **more: Any) -> Case:
    given: dict[str, Any] = {"textbook": _best_steps, "repeats": 10, "objective": Logistic(L2(LAMBDA))}
    method = DPAGD(**COMMON | more.pop("parameters", {}))
    return Case(name=name, method=method, **(given | more))


CASES = [
    _case("dp-agd"),
    _case("dp-agd replace-one", adjacency="replace-one"),
    _case(
        "dp-agd laplace, projected",
        parameters={"noise": "laplace", "projection": L2Ball(RADIUS)},
        textbook=_within_ball,
    ),
    _case(
        "dp-agd exponential, replace-one",
        parameters={"noise": "exponential"},
        adjacency="replace-one",
    ),
]
