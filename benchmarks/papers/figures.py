"""Figures: which cells each needs, and what its panels show."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.papers.cells import Cell
from benchmarks.papers.scales import Scale

__all__ = ["Figure", "Panel", "grid"]


@dataclass(frozen=True)
class Panel:
    """One plot: a metric against ``x``, a line for each value of ``series``, of the cells that match."""

    title: str
    metric: str
    x: str = "epsilon"
    series: str = "algorithm"
    where: Mapping[str, Any] = field(default_factory=dict)
    along: str | None = None
    """For a metric that is a list: the measured list of its places."""
    log_x: bool = True

    def shows(self, parameters: Mapping[str, Any]) -> bool:
        """Whether a cell belongs here."""
        return all(parameters.get(name) == value for name, value in self.where.items())


@dataclass(frozen=True)
class Figure:
    """A figure of a paper: ``name`` as on the command line, and what it takes at a scale."""

    name: str
    title: str
    cells: Callable[[Scale], Sequence[Cell]]
    panels: Sequence[Panel]


SLOW = {"dp-agd", "dp-blgd", "dp-blsgd", "dp-blsgd-ac", "dp-blsgd-planned", "privgene"}
"""At the small scale these are run on one fold alone."""


def grid(experiment: str, scale: Scale, *, folds: int = 5, **axes: Sequence[Any]) -> list[Cell]:
    """A cell for each combination of the axes, for each fold of each repeat."""
    combined: list[dict[str, Any]] = [{}]
    for name, values in axes.items():
        combined = [{**one, name: value} for one in combined for value in values]
    held_out = [(r, f) for r in range(scale.repeats) for f in range(min(folds, scale.folds))]
    return [
        Cell.of(experiment, repeat=repeat, fold=fold, folds=folds, **one)
        for one in combined
        for repeat, fold in held_out
        if fold == 0 or scale.name != "small" or one.get("algorithm") not in SLOW
    ]
