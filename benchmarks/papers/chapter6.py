"""Figures 6.1 and 6.2 of 002: PrivBR against clipped BayesRank, ListNet and ListMLE on LETOR."""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from benchmarks.datasets import load
from benchmarks.papers.cells import Cell, Measured
from benchmarks.papers.figures import Figure, Panel
from benchmarks.papers.ledgers import ledger, planned_account
from benchmarks.papers.problems import Floats
from benchmarks.papers.scales import Scale
from dpledger_client import Poisson
from dpledger_client.objectives import BayesRank, ListMLE, ListNet, MLPScorer
from dpledger_client.objectives.ranking import Ranking
from dpledger_client.optimizers import Method, minimize
from dpledger_client.optimizers.methods.dp_sgd import DPSGD
from dpledger_client.optimizers.methods.first_order import StochasticGradientDescent
from dpledger_client.optimizers.methods.priv_br import PrivBR, SpectralNormalization
from dpledger_client.ranking_metrics import mean_average_precision, mean_ndcg

__all__ = ["FIGURES", "run_ranking"]

NOISES = (0.875, 1.0, 1.5, 2.0)
DELTA = 1e-4
BATCH, STEPS, EVERY = 10, 400, 100
PLACES = (1, 2, 4, 8)
TRAINERS = (
    "privbr",
    "privbr-median",
    "privbr-all",
    "bayesrank",
    "listnet",
    "listmle",
    "np-bayesrank",
    "np-listnet",
    "np-listmle",
)
Lists = tuple[list[Floats], list[Floats]]


@lru_cache(maxsize=2)
def _lists(name: str, fold: int) -> tuple[Lists, Lists]:
    """Training and test lists: a matrix of documents and a vector of grades a query."""
    data = load(name)
    assert data.groups is not None
    train, test = data.split(fold)

    def of(rows: Any) -> Lists:
        queries = data.groups[rows]  # type: ignore[index]
        places = [rows[queries == query] for query in np.unique(queries)]
        return [data.X[place] for place in places], [data.y[place].astype(np.float64) for place in places]

    return of(train), of(test)


def _step_size(trainer: str) -> Any:
    """η₀ = 0.1 of a sum over ten lists, 0.01 for ListMLE, falling every hundred iterations (6.6.3)."""
    first = (0.01 if trainer.endswith("listmle") else 0.1) * BATCH
    return lambda iteration: first * (1.0 - ((iteration - 1) // 100) / 4.0)


def _objective(trainer: str, features: int, hidden: int) -> Ranking:
    scorer = MLPScorer(features, hidden)
    if trainer in ("privbr", "privbr-median"):
        return BayesRank(scorer, single=True)
    kinds: dict[str, type[Ranking]] = {"listnet": ListNet, "listmle": ListMLE}
    return kinds.get(trainer.removeprefix("np-"), BayesRank)(scorer)


def _method(cell: Mapping[str, Any], objective: Ranking, documents: list[Floats]) -> Method:
    trainer, steps = cell["trainer"], cell["steps"]
    step_size = _step_size(trainer)
    if trainer.startswith("privbr"):
        rate = BATCH / len(documents)
        quantile = 0.5 if trainer == "privbr-median" else 1.0
        return PrivBR(
            documents, steps, cell["noise"], rate, step_size, spectral=True, bound_quantile=quantile
        )
    projection = SpectralNormalization(objective.scorer)
    return DPSGD(steps, BATCH, cell["clip"], cell["noise"], step_size, projection=projection)


def run_ranking(cell: Mapping[str, Any]) -> Measured:
    """Train on one fold, and measure the test lists every so many iterations."""
    (X, y), tests = _lists(cell["dataset"], cell["fold"])
    objective = _objective(cell["trainer"], X[0].shape[1], cell["hidden"])
    path: dict[str, list[float]] = {"iteration": [], "map": [], **{f"ndcg{k}": [] for k in PLACES}}

    def note(iteration: int, w: Floats) -> None:
        if iteration % min(EVERY, cell["steps"]) == 0:
            scores = objective.scores(w, tests[0])
            path["iteration"].append(iteration)
            path["map"].append(round(mean_average_precision(scores, tests[1]), 4))
            for k in PLACES:
                path[f"ndcg{k}"].append(round(mean_ndcg(scores, tests[1], k), 4))

    if cell["trainer"].startswith("np-"):
        size = _step_size(cell["trainer"])
        plain = StochasticGradientDescent(
            cell["steps"], size, note=note, batch_size=BATCH, seed=cell["repeat"]
        )
        minimize(objective, X, y, account=None, method=plain)
        return dict(path)
    method = _method(cell, objective, X)
    found = minimize(
        objective,
        X,
        y,
        account=planned_account(method, 50.0, DELTA, len(X)),
        method=method,
        callback=lambda iterate: note(iterate.iteration, iterate.w),
        progress=False,
    )
    bounds = [record.details["bound"] for record in found.history if "bound" in record.details]
    return {
        **path,
        "epsilon": _epsilon(cell, len(X)),
        "mean_bound": float(np.mean(bounds)) if bounds else None,
    }


def _epsilon(cell: Mapping[str, Any], lists: int) -> float | None:
    """What the plan costs at δ = 1e-4, by loss distributions."""
    step = {
        "sample": Poisson(BATCH / lists).fields(),
        "releases": [{"mechanism": "gaussian", "sensitivity": 1.0, "noise_std": cell["noise"]}],
        "times": cell["steps"],
    }
    query = {"plan": [step], "adjacency": "add-remove", "delta": DELTA, "method": "pld"}
    found = float(ledger().ask("compositions", query)["epsilon"])
    return round(found, 3) if math.isfinite(found) else None


def _cells(dataset: str, scale: Scale) -> list[Cell]:
    steps = 20 if scale.name == "quick" else STEPS
    noises = NOISES if scale.name == "paper" else (0.875, 1.5)
    fixed = {"dataset": dataset, "hidden": scale.ranking_hidden, "steps": steps, "clip": 1.0}
    return [
        Cell.of("ranking", **fixed, trainer=trainer, noise=noise, fold=fold, repeat=repeat)
        for trainer in TRAINERS
        for noise in (noises[:1] if trainer.startswith("np-") else noises)
        for fold in range(scale.ranking_folds)
        for repeat in range(scale.ranking_repeats)
    ]


def _panels() -> list[Panel]:
    """The lowest and the highest noise; baselines without privacy are in the former."""
    return [
        Panel(f"{label}, noise {noise}", metric, "iteration", "trainer", {"noise": noise}, "iteration")
        for metric, label in (("map", "MAP"), *((f"ndcg{k}", f"NDCG@{k}") for k in PLACES))
        for noise in (0.875, 1.5)
    ]


FIGURES = (
    Figure("6.1", "002, figure 6.1: MQ2007", lambda scale: _cells("mq2007", scale), _panels()),
    Figure("6.2", "002, figure 6.2: MQ2008", lambda scale: _cells("mq2008", scale), _panels()),
)
