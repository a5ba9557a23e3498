"""Figures 3.1 to 3.4 of 002: RSGD-AR against other output, objective and gradient perturbation."""

from typing import Any

from benchmarks.papers.cells import Cell
from benchmarks.papers.figures import Figure, Panel, grid
from benchmarks.papers.scales import Scale
from benchmarks.papers.seed000 import LAMBDA, TABLES, compared

__all__ = ["FIGURES"]

COMPARED = (
    "rsgd-ar",
    "rsgd-ar-planned",
    "nsgd",
    "objpert",
    "outpert",
    "outpert-planned",
    "sgd-ma",
    "dp-agd",
    "ours",
)
TIMED = ("rsgd-ar", "nsgd", "objpert", "outpert", "sgd-ma", "dp-agd-rho", "ours")
SUBSAMPLES = (50_000, 100_000, 150_000, 200_000, 250_000)


def _kdd(scale: Scale) -> list[Cell]:
    return [
        cell
        for model in ("lr", "huber")
        for cell in compared(scale, COMPARED, ["kddcup99"], model, rows=scale.kdd_rows, delta=1e-12)
    ]


def _timed(scale: Scale) -> list[Cell]:
    """Processing times at ε = 0.4, on the papers' subsamples or a tenth of them."""
    sizes = SUBSAMPLES if scale.name == "paper" else [size // 10 for size in SUBSAMPLES]
    fixed: dict[str, Any] = {"dataset": ["kddcup99"], "model": ["lr"], "strength": [LAMBDA], "delta": [1e-12]}
    return grid("linear", scale, **fixed, epsilon=[0.4], algorithm=TIMED, rows=sizes)


def _panels() -> list[Panel]:
    return [
        Panel(f"{name}: {metric}", metric, where={"dataset": name})
        for name in TABLES
        for metric in ("accuracy", "objective")
    ]


FIGURES = (
    Figure(
        "3.1",
        "002, figure 3.1: logistic regression",
        lambda s: compared(s, COMPARED, TABLES, "lr"),
        _panels(),
    ),
    Figure(
        "3.2", "002, figure 3.2: huberized SVM", lambda s: compared(s, COMPARED, TABLES, "huber"), _panels()
    ),
    Figure(
        "3.3",
        "002, figure 3.3: KDD Cup 99",
        _kdd,
        [
            Panel(f"{model}: {metric}", metric, where={"model": model})
            for model in ("lr", "huber")
            for metric in ("accuracy", "objective")
        ],
    ),
    Figure(
        "3.4",
        "002, figure 3.4: processing times on subsamples of KDD Cup 99",
        _timed,
        [Panel("seconds", "seconds", x="rows", log_x=False)],
    ),
)
