"""Plots and tables of a figure, from the cells that were run."""

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from benchmarks.papers.cells import Cell, Store
from benchmarks.papers.figures import Figure, Panel

mpl.use("svg")
mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "papers", "font.size": 8, "axes.grid": True})

from matplotlib import pyplot as plt  # noqa: E402

__all__ = ["draw", "summary", "tables"]

Point = tuple[float, float, float]
"""Where, the mean there, and its standard error."""
COLUMNS = 2
_DIGITS = re.compile(r"(\d+\.\d\d)\d+")
"""A hundredth of a point is fine enough for a picture."""
FLAT = ("non-private", "majority")
"""Baselines that do not depend on ε: drawn as a line of one value."""


def summary(panel: Panel, cells: Sequence[Cell], store: Store) -> dict[str, list[Point]]:
    """The points of each line: means over folds and repeats, with standard errors."""
    found: dict[str, dict[Any, list[float]]] = defaultdict(lambda: defaultdict(list))
    for parameters, measured in store.of(cells):
        if panel.shows(parameters) and panel.metric in measured:
            for x, value in _values(panel, parameters, measured):
                found[str(parameters[panel.series])][x].append(value)
    return {name: [_point(x, values) for x, values in _in_order(places)] for name, places in found.items()}


def _values(
    panel: Panel, parameters: Mapping[str, Any], measured: Mapping[str, Any]
) -> list[tuple[Any, float]]:
    if panel.along is not None:
        return list(zip(measured[panel.along], measured[panel.metric], strict=True))
    return [(parameters.get(panel.x, 0.0), float(measured[panel.metric]))]


def _in_order(places: Mapping[Any, list[float]]) -> list[tuple[Any, list[float]]]:
    return sorted(places.items(), key=lambda place: (isinstance(place[0], str), place[0]))


def _point(x: Any, values: list[float]) -> Point:
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return x, float(np.mean(values)), error


def draw(figure: Figure, cells: Sequence[Cell], store: Store, folder: Path) -> Path:
    """The figure as an SVG file of its name."""
    rows = math.ceil(len(figure.panels) / COLUMNS)
    picture, axes = plt.subplots(rows, COLUMNS, figsize=(9.0, 2.9 * rows), squeeze=False)
    for panel, axis in zip(figure.panels, axes.ravel(), strict=False):
        for name, points in sorted(summary(panel, cells, store).items()):
            _line(axis, panel, name, points)
        axis.set_title(panel.title)
        axis.set_xlabel({"epsilon": "ε", "iteration": "iteration"}.get(panel.x, panel.x))
        if panel.log_x and panel.along is None:
            axis.set_xscale("log")
            axis.minorticks_off()
        if axis.lines:
            axis.legend(fontsize=6)
    for axis in axes.ravel()[len(figure.panels) :]:
        axis.set_axis_off()
    picture.tight_layout()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{figure.name.lower()}.svg"
    picture.savefig(path, metadata={"Date": None})
    plt.close(picture)
    # What matplotlib writes has spaces at the ends of lines.
    lines = _DIGITS.sub(r"\1", path.read_text(encoding="utf-8")).splitlines()
    path.write_text("\n".join(line.rstrip() for line in lines) + "\n", encoding="utf-8")
    return path


def _line(axis: Any, panel: Panel, name: str, points: Sequence[Point]) -> None:
    places, means, errors = zip(*points, strict=True)
    if panel.along is None and len(points) == 1 and name in FLAT:
        axis.axhline(means[0], linestyle=":", label=name, color="black" if name == FLAT[0] else "gray")
    else:
        style = {"marker": "o", "markersize": 3} if panel.along is None else {}
        axis.errorbar(places, means, yerr=errors, label=name, linewidth=1, capsize=2, **style)


def tables(figure: Figure, cells: Sequence[Cell], store: Store) -> str:
    """A table for each panel, as Markdown."""
    return "\n\n".join(
        text for panel in figure.panels if (text := _table(panel, summary(panel, cells, store)))
    )


def _table(panel: Panel, lines: Mapping[str, Sequence[Point]]) -> str:
    places = sorted(
        {x for points in lines.values() for x, _, _ in points if x != 0.0 or panel.x != "epsilon"}
    )
    if not lines:
        return ""
    if panel.along is not None:
        places = places[-1:]
    label = {"epsilon": "ε"}.get(panel.x, panel.x)
    rows = [
        f"| {panel.title} | " + " | ".join(f"{label} = {_number(place)}" for place in places) + " |",
        "|---|" + "---|" * len(places),
    ]
    for name, points in sorted(lines.items()):
        by_place = {x: (mean, error) for x, mean, error in points}
        flat = by_place.get(0.0) if panel.x == "epsilon" and len(by_place) == 1 else None
        shown = [_mean(by_place.get(place, flat)) for place in places]
        rows.append(f"| {name} | " + " | ".join(shown) + " |")
    return "\n".join(rows)


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def _mean(found: tuple[float, float] | None) -> str:
    if found is None:
        return ""
    mean, error = found
    digits = 0 if abs(mean) >= 1_000 else 1 if abs(mean) >= 100 else 4
    return f"{mean:.{digits}f}" + (f" ± {error:.{digits}f}" if error else "")
