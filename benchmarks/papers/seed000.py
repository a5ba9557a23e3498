"""Figures of 000 (Lee, Kifer 2018): DP-AGD against baselines, and the effect of its parameters."""

from collections.abc import Sequence
from typing import Any

from benchmarks.papers.cells import Cell
from benchmarks.papers.figures import Figure, Panel, grid
from benchmarks.papers.scales import Scale

__all__ = ["BASELINES", "FIGURES", "LAMBDA", "TABLES", "compared"]

LAMBDA = 1e-3
TABLES = ("adult", "bank")
"""IPUMS lets nobody pass its data on; `benchmarks.datasets` reads an extract of one's own."""
BASELINES = ("objpert", "outpert", "privgene", "sgd-adv", "sgd-ma")
COMPARED = ("dp-agd", "dp-agd-rho", "ours", *BASELINES)
WITHOUT_EPSILON = ("non-private", "majority")


def compared(
    scale: Scale,
    algorithms: Sequence[str],
    datasets: Sequence[str],
    model: str,
    strength: float = LAMBDA,
    rows: int = 0,
    folds: int = 5,
    delta: float = 1e-8,
) -> list[Cell]:
    """Every algorithm at every ε, and the baselines without one."""
    fixed: dict[str, Any] = {
        "dataset": datasets,
        "model": [model],
        "strength": [strength],
        "rows": [rows],
        "delta": [delta],
    }
    private = grid("linear", scale, folds=folds, **fixed, algorithm=algorithms, epsilon=scale.epsilons)
    return private + grid("linear", scale, folds=folds, **fixed, algorithm=WITHOUT_EPSILON, epsilon=[0.0])


def _sweep_panels(datasets: Sequence[str]) -> list[Panel]:
    return [
        Panel(f"{name}: {label}", metric, where={"dataset": name})
        for name in datasets
        for metric, label in (("accuracy", "accuracy"), ("objective", "objective value"))
    ]


def _effect(parameter: str, values: Sequence[float], scale: Scale) -> list[Cell]:
    """DP-AGD as printed on Adult, with one parameter varied."""
    epsilons = scale.epsilons if scale.name == "paper" else [0.1, 1.6]
    rows = 0 if scale.name == "paper" else 8_000
    fixed: dict[str, Any] = {
        "dataset": ["adult"],
        "model": ["lr"],
        "strength": [LAMBDA],
        "rows": [rows],
        "delta": [1e-8],
    }
    varied: dict[str, Any] = {parameter: values}
    return grid("linear", scale, **fixed, algorithm=["dp-agd"], epsilon=epsilons, **varied)


def _effect_figure(name: str, parameter: str, values: Sequence[float]) -> Figure:
    panels = [
        Panel(f"DP-AGD on Adult: {label}", metric, x=parameter, series="epsilon")
        for metric, label in (("accuracy", "accuracy"), ("objective", "objective value"))
    ]
    return Figure(name, f"000, effect of {name}", lambda scale: _effect(parameter, values, scale), panels)


def _kdd(scale: Scale) -> list[Cell]:
    return [
        cell
        for model in ("lr", "huber")
        for cell in compared(scale, COMPARED, ["kddcup99"], model, rows=scale.kdd_rows, delta=1e-12)
    ]


FIGURES = (
    Figure(
        "LR",
        "000, figure 2: logistic regression by ε",
        lambda scale: compared(scale, COMPARED, TABLES, "lr"),
        _sweep_panels(TABLES),
    ),
    Figure(
        "SVM",
        "000, figure 3: SVM by ε",
        lambda scale: compared(scale, COMPARED, TABLES, "huber"),
        _sweep_panels(TABLES),
    ),
    Figure(
        "KDD",
        "000: KDD Cup 99",
        _kdd,
        [
            Panel(f"{model}: {metric}", metric, where={"model": model})
            for model in ("lr", "huber")
            for metric in ("accuracy", "objective")
        ],
    ),
    _effect_figure("splits", "splits", (10, 30, 60, 120)),
    _effect_figure("C_grad", "gradient_clip", (0.5, 1.0, 3.0, 10.0)),
    _effect_figure("C_obj", "loss_clip", (0.5, 1.0, 3.0, 8.0)),
)
