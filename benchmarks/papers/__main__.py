"""Run and draw figures: ``python -m benchmarks.papers LR SVM``, ``all``, ``--quick``, ``--scale paper``."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.datasets import MissingData
from benchmarks.papers import chapter3, chapter4, chapter5, chapter6, seed000, seed004
from benchmarks.papers.algorithms import run_linear
from benchmarks.papers.cells import Experiment, Store, run_cells
from benchmarks.papers.figures import Figure
from benchmarks.papers.networks import run_network
from benchmarks.papers.page import write_page
from benchmarks.papers.scales import SCALES

__all__ = ["EXPERIMENTS", "FIGURES", "PAGES", "main"]

RESULTS = Path("docs/results/papers.jsonl")
QUICK_RESULTS = Path("build/papers-quick/papers.jsonl")
EXPERIMENTS: dict[str, Experiment] = {
    "linear": run_linear,
    "sparse": chapter4.run_sparse,
    "network": run_network,
    "ranking": chapter6.run_ranking,
    "distributed": seed004.run_distributed,
    "composition": seed004.run_composition,
}
PAGES: dict[str, tuple[str, Sequence[Figure]]] = {
    "dp-agd": ("000: DP-AGD (Lee, Kifer 2018)", seed000.FIGURES),
    "chapter-3": ("002, chapter 3: RSGD-AR", chapter3.FIGURES),
    "chapter-4": ("002, chapter 4: ssADMM and mpADMM", chapter4.FIGURES),
    "chapter-5": ("002, chapter 5: DP-BLSGD", chapter5.FIGURES),
    "chapter-6": ("002, chapter 6: PrivBR", chapter6.FIGURES),
    "a-ddp": ("004: A-DDP (Cheng, Liu, Wang, Lu 2020)", seed004.FIGURES),
}
FIGURES: dict[str, Figure] = {figure.name: figure for _, figures in PAGES.values() for figure in figures}


def main(arguments: Sequence[str]) -> None:
    """Run what is missing, then write every page that one of the figures is on."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.papers", description=__doc__)
    parser.add_argument("figures", nargs="+", metavar="FIGURE", choices=["all", *FIGURES])
    parser.add_argument("--quick", action="store_true", help="the smallest scale, kept apart from the rest")
    parser.add_argument("--scale", choices=SCALES, default="small")
    parser.add_argument("--results", type=Path, help="where results are kept (docs/results/papers.jsonl)")
    parser.add_argument("--draw", action="store_true", help="run nothing: draw what was run")
    parser.add_argument("--again", metavar="ALGORITHM", help="run this algorithm's cells again")
    given = parser.parse_args(arguments)
    scale = SCALES["quick" if given.quick else given.scale]
    store = Store(given.results or (QUICK_RESULTS if given.quick else RESULTS))
    wanted = list(FIGURES) if "all" in given.figures else given.figures
    if given.again is not None:
        cells = [cell for name in wanted for cell in FIGURES[name].cells(scale)]
        store.forget(cell for cell in cells if dict(cell.parameters).get("algorithm") == given.again)
    for name in wanted if not given.draw else ():
        try:
            run_cells(name, FIGURES[name].cells(scale), store, EXPERIMENTS)
        except MissingData as error:
            print(f"{name} is left out: {error}", file=sys.stderr)
    for page, (title, figures) in PAGES.items():
        if any(figure.name in wanted for figure in figures):
            print(write_page(page, title, figures, scale, store))


if __name__ == "__main__":
    main(sys.argv[1:])
