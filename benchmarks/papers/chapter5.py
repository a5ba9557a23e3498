"""Figures 5.1 to 5.5 of 002: DP-BLSGD, its parameters, its evaluations, and neural networks."""

from collections.abc import Sequence
from typing import Any

from benchmarks.papers.cells import Cell
from benchmarks.papers.figures import Figure, Panel, grid
from benchmarks.papers.scales import Scale
from benchmarks.papers.seed000 import TABLES, compared

__all__ = ["FIGURES"]

COMPARED = (
    "dp-blsgd",
    "dp-blsgd-ac",
    "dp-blsgd-planned",
    "dp-blgd",
    "dp-agd",
    "dp-sgd",
    "rsgd-ar",
    "outpert",
    "objpert",
    "privgene",
    "ours",
)
EFFECTS: dict[str, Sequence[Any]] = {
    "armijo": (0.1, 0.3, 0.5, 0.7),
    "shrinking": (0.5, 0.65, 0.8, 0.9),
    "noise": ("laplace", "gaussian"),
    "rate": (0.02, 0.1, 0.5),
    "grows": ("never", "always", "by-angle"),
    "clip_decay": (0.0, 0.05, 0.2),
}
LABELS = {
    "armijo": "α",
    "shrinking": "β",
    "noise": "noise of the search",
    "rate": "q",
    "grows": "budget allocation",
    "clip_decay": "ζ",
}
RATES = (0.02, 0.1, 0.5, 1.0)
NETWORKS = ("mnist",)
TRAINERS = ("dp-blsgd", "dp-sgd", "dp-adam", "adam")


def _effects(scale: Scale) -> list[Cell]:
    rows = 0 if scale.name == "paper" else 8_000
    fixed: dict[str, Any] = {
        "dataset": ["adult"],
        "model": ["lr"],
        "strength": [0.0],
        "rows": [rows],
        "delta": [1e-8],
    }
    cells: list[Cell] = []
    for name, values in EFFECTS.items():
        varied: dict[str, Any] = {name: values}
        cells += grid(
            "linear",
            scale,
            folds=10,
            **fixed,
            epsilon=[0.05, 0.2],
            algorithm=["dp-blsgd"],
            effect=[name],
            **varied,
        )
    return cells


def _evaluations(scale: Scale) -> list[Cell]:
    fixed: dict[str, Any] = {
        "dataset": ["adult"],
        "model": ["lr"],
        "strength": [0.0],
        "delta": [1e-8],
        "epsilon": [0.4],
    }
    return grid("linear", scale, folds=10, **fixed, algorithm=["dp-blsgd-planned"], rate=RATES)


def _convex(scale: Scale, model: str) -> list[Cell]:
    """Smooth losses where a method needs them, the hinge elsewhere, as in 5.6.3."""
    smooth = {"rsgd-ar", "outpert", "objpert"}
    if model == "lr":
        return compared(scale, COMPARED, TABLES, "lr", 0.0, folds=10)
    return [
        *compared(scale, [name for name in COMPARED if name not in smooth], TABLES, "hinge", 0.0, folds=10),
        *(
            cell
            for cell in compared(scale, sorted(smooth), TABLES, "huber", 0.0, folds=10)
            if dict(cell.parameters)["epsilon"]
        ),
    ]


def _networks(scale: Scale) -> list[Cell]:
    return [
        Cell.of(
            "network",
            dataset=dataset,
            trainer=trainer,
            repeat=repeat,
            hidden=scale.hidden,
            images=scale.images,
            steps=scale.image_steps,
        )
        for dataset in NETWORKS
        for trainer in TRAINERS
        for repeat in range(5 if scale.name == "paper" else 1)
    ]


def _panels() -> list[Panel]:
    return [
        Panel(f"{name}: {metric}", metric, where={"dataset": name})
        for name in TABLES
        for metric in ("accuracy", "objective")
    ]


FIGURES = (
    Figure(
        "5.1",
        "002, figure 5.1: hyperparameters of DP-BLSGD on Adult",
        _effects,
        [
            Panel(f"accuracy by {LABELS[name]}", "accuracy", name, "epsilon", {"effect": name}, log_x=False)
            for name in EFFECTS
        ],
    ),
    Figure(
        "5.2",
        "002, figure 5.2: evaluations by sampling ratio at ε = 0.4",
        _evaluations,
        [
            Panel("gradients of records", "gradients", x="rate"),
            Panel("losses of records", "losses", x="rate"),
            Panel("accuracy", "accuracy", x="rate"),
        ],
    ),
    Figure("5.3", "002, figure 5.3: logistic regression", lambda scale: _convex(scale, "lr"), _panels()),
    Figure("5.4", "002, figure 5.4: SVM", lambda scale: _convex(scale, "svm"), _panels()),
    Figure(
        "5.5",
        "002, figure 5.5: a network on MNIST, by iteration",
        _networks,
        [
            Panel("accuracy", "accuracy", "iteration", "trainer", along="iteration"),
            Panel("objective value", "objective", "iteration", "trainer", along="iteration"),
            Panel("ε at δ = 1e-8", "epsilon", "iteration", "trainer", along="iteration"),
            Panel("step size", "step_size", "iteration", "trainer", along="iteration"),
        ],
    ),
)
