"""Run and draw figures: ``python -m benchmarks.papers LR SVM``, ``all``, ``--quick``, ``--scale paper``."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.papers import chapter3, chapter4, chapter5, chapter6, seed000, seed004
from benchmarks.papers.algorithms import run_linear
from benchmarks.papers.cells import Experiment, Store, run_cells
from benchmarks.papers.drawing import draw, tables
from benchmarks.papers.figures import Figure
from benchmarks.papers.scales import SCALES

__all__ = ["EXPERIMENTS", "FIGURES", "main"]

RESULTS = Path("docs/results/papers.jsonl")
QUICK_RESULTS = Path("build/papers-quick/papers.jsonl")
EXPERIMENTS: dict[str, Experiment] = {
    "linear": run_linear,
    "sparse": chapter4.run_sparse,
    "ranking": chapter6.run_ranking,
    "distributed": seed004.run_distributed,
    "composition": seed004.run_composition,
}
FIGURES: dict[str, Figure] = {
    figure.name: figure for part in (seed000, chapter3, chapter4, chapter5, chapter6, seed004) for figure in part.FIGURES
}


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.papers", description=__doc__)
    parser.add_argument("figures", nargs="+", metavar="FIGURE", choices=["all", *FIGURES])
    parser.add_argument("--quick", action="store_true", help="the smallest scale, kept apart from the rest")
    parser.add_argument("--scale", choices=SCALES, default="small")
    parser.add_argument("--results", type=Path, help="where results are kept (docs/results/papers.jsonl)")
    parser.add_argument("--draw", action="store_true", help="run nothing: draw what was run")
    given = parser.parse_args(arguments)
    scale = SCALES["quick" if given.quick else given.scale]
    store = Store(given.results or (QUICK_RESULTS if given.quick else RESULTS))
    for name in FIGURES if "all" in given.figures else given.figures:
        figure = FIGURES[name]
        cells = figure.cells(scale)
        if not given.draw:
            run_cells(name, cells, store, EXPERIMENTS)
        path = draw(figure, cells, store, store.path.parent)
        text = f"# {figure.title}\n\n![{figure.title}]({path.name})\n\n{tables(figure, cells, store)}\n"
        path.with_suffix(".md").write_text(text, encoding="utf-8")
        print(f"{path}: {sum(cell in store for cell in cells)} of {len(cells)} cells")


if __name__ == "__main__":
    main(sys.argv[1:])
