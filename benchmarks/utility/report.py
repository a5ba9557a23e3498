"""The table of means and standard errors, and the last line."""

import math
from collections.abc import Mapping, Sequence

from benchmarks.utility.cells import DATASETS, DEFAULT, EPSILONS, MEASURES, Summary

__all__ = ["last_line", "table"]

Summaries = Mapping[tuple[str, float | None, str], Summary]
_GAP = 0.4


def table(summaries: Summaries) -> str:
    """A table in Markdown for each dataset and measure; ``mean ± error``, with the seeds of each method."""
    parts = []
    for dataset in DATASETS:
        for measure in MEASURES:
            parts += [f"{dataset}, {measure}, %", "", *_rows(summaries, dataset, measure), ""]
    return "\n".join(parts)


def _rows(summaries: Summaries, dataset: str, measure: str) -> list[str]:
    methods = {method for data, _, method in summaries if data == dataset}
    head = ["| method | seeds | " + " | ".join(f"ε={epsilon}" for epsilon in EPSILONS) + " |"]
    lines = sorted(
        methods, key=lambda method: (method != DEFAULT, -_mean(summaries, dataset, method, measure))
    )
    return [*head, "|---" * (len(EPSILONS) + 2) + "|", *(_row(summaries, dataset, m, measure) for m in lines)]


def _found(summaries: Summaries, dataset: str, epsilon: float, method: str) -> Summary | None:
    return summaries.get((dataset, epsilon, method)) or summaries.get((dataset, None, method))


def _mean(summaries: Summaries, dataset: str, method: str, measure: str) -> float:
    found = [_found(summaries, dataset, epsilon, method) for epsilon in EPSILONS]
    return math.fsum(each.mean[measure] for each in found if each) / max(
        1, sum(each is not None for each in found)
    )


def _row(summaries: Summaries, dataset: str, method: str, measure: str) -> str:
    found = [_found(summaries, dataset, epsilon, method) for epsilon in EPSILONS]
    seeds = sorted({each.seeds for each in found if each})
    shown = [f"{each.mean[measure]:.2f} ± {each.error[measure]:.2f}" if each else "" for each in found]
    counted = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    return f"| {method} | {counted} | " + " | ".join(shown) + " |"


def last_line(summaries: Summaries, cells: Sequence[tuple[str, bool]]) -> str:
    """In how many cells the default is best or within an error of it, and how far it is below no privacy."""
    default, free = summaries.get(("adult", _GAP, DEFAULT)), summaries.get(("adult", None, "non-private"))
    gap = free.mean["accuracy"] - default.mean["accuracy"] if default and free else math.nan
    better = [best for best, within in cells if not within]
    beaten = f"beaten by {', '.join(better)}\n" if better else ""
    return f"{beaten}ratio best_cells={sum(w for _, w in cells)}/{len(cells)} adult_gap_{_GAP}={gap:.2f}"
