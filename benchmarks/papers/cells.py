"""Cells: one run of one experiment, and the file that keeps what each measured."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, TypeAlias

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

__all__ = ["Cell", "Experiment", "Measured", "Store", "run_cells"]

Measured: TypeAlias = dict[str, Any]
Experiment: TypeAlias = Callable[[Mapping[str, Any]], Measured]


@dataclass(frozen=True)
class Cell:
    """An experiment's name and its parameters; two figures that need the same cell share it."""

    experiment: str
    parameters: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, experiment: str, **parameters: Any) -> "Cell":
        """A cell by its parameters, in whatever order they are given."""
        return cls(experiment, tuple(sorted(parameters.items())))

    @property
    def key(self) -> str:
        """What the file knows it by."""
        return json.dumps([self.experiment, dict(self.parameters)], sort_keys=True, ensure_ascii=False)

    def __str__(self) -> str:
        return " ".join([self.experiment, *(f"{name}={value}" for name, value in self.parameters)])


def _cell_of(line: str) -> Cell:
    kept = json.loads(line)
    return Cell.of(kept["experiment"], **kept["parameters"])


class Store:
    """What was measured, one JSON line a cell; a cell that is there is not run again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: dict[str, tuple[Cell, Measured]] = {}
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            cell = _cell_of(line)
            self._known[cell.key] = (cell, json.loads(line)["measured"])

    def __contains__(self, cell: Cell) -> bool:
        return cell.key in self._known

    def add(self, cell: Cell, measured: Measured) -> None:
        """Keep a result, on disk before anything else is run."""
        self._known[cell.key] = (cell, measured)
        line = {"experiment": cell.experiment, "parameters": dict(cell.parameters), "measured": measured}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")

    def forget(self, cells: Iterable[Cell]) -> None:
        """Drop what these cells measured, so that they are run again."""
        dropped = {cell.key for cell in cells}
        self._known = {key: kept for key, kept in self._known.items() if key not in dropped}
        if not self.path.exists():
            return
        # Read anew: another process may have added to it.
        lines = self.path.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = [line for line in lines if _cell_of(line).key not in dropped]
        self.path.write_text("".join(kept), encoding="utf-8")

    def of(self, cells: Iterable[Cell]) -> Iterator[tuple[Mapping[str, Any], Measured]]:
        """Parameters and results of those cells that were run."""
        for cell in cells:
            if cell in self:
                yield dict(cell.parameters), self._known[cell.key][1]


def run_cells(title: str, cells: Sequence[Cell], store: Store, experiments: Mapping[str, Experiment]) -> None:
    """Run the cells that the store lacks, with a bar, and keep each."""
    missing = [cell for cell in cells if cell not in store]
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(title, total=len(cells), completed=len(cells) - len(missing))
        for cell in missing:
            begun = perf_counter()
            measured = experiments[cell.experiment](dict(cell.parameters))
            store.add(cell, {**measured, "cell_seconds": round(perf_counter() - begun, 3)})
            bar.advance(task)
            if not console.is_terminal:
                console.print(f"{cell}: {perf_counter() - begun:.1f} s", highlight=False, soft_wrap=True)
