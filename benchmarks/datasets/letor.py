"""LETOR 3.0 and 4.0: queries with graded documents, in SVM-rank lines.

A line is ``grade qid:query 1:value 2:value … # comment``. Values are published scaled to [0, 1] within their
query (LETOR's ``QueryLevelNorm`` files; MQ2008's parts as they come), so that range is public.
"""

import os

import numpy as np

from benchmarks.datasets.columns import BadData, Options
from benchmarks.datasets.dataset import Dataset
from benchmarks.datasets.sources import MissingData, find, read_lines

__all__ = ["load_letor"]

PARTS = ("S1", "S2", "S3", "S4", "S5")
FEATURES = {"mq2008": 46, "mq2007": 46, "ohsumed": 45, "td2003": 64, "td2004": 64, "hp2003": 64, "np2003": 64}
GRADES = {"mq2008": 3, "mq2007": 3, "ohsumed": 3}
BINARY = 2
"""Grades of the collections of LETOR 3.0 that are not named above: relevant or not."""


def load_letor(
    folder: str | os.PathLike[str] | None = None, options: Options | None = None, *, name: str = "mq2008"
) -> Dataset:
    """A collection of LETOR by its name; ``groups`` has each row's query, and folds keep a query whole."""
    if name not in FEATURES:
        raise ValueError(f"name must be one of {', '.join(sorted(FEATURES))}, not {name!r}")
    files = [find(folder, f"{name}/{part}.txt") for part in PARTS]
    if any(file is None for file in files):
        raise MissingData(
            f"fetch S1.txt to S5.txt of LETOR's {name} into $DPLEDGER_DATA/{name}, gzipped or not"
        )
    width = FEATURES[name]
    lines = [_read_line(line, width) for file in files if file for line in read_lines(file)]
    grades, queries, rows = zip(*lines, strict=True)
    classes = tuple(range(GRADES.get(name, BINARY)))
    if unknown := set(grades) - set(classes):
        raise BadData(f"{name} has the grades {sorted(unknown)}, which are not among {classes}")
    X = np.clip(np.array(rows), 0.0, 1.0)
    bounds = np.tile([0.0, 1.0], (width, 1))
    X, names, bounds = (options or Options()).finish(X, [f"feature{i + 1}" for i in range(width)], bounds)
    return Dataset(name, X, np.array(grades), names, bounds, classes, groups=np.array(queries))


def _read_line(line: str, width: int) -> tuple[int, int, list[float]]:
    """A grade, a query and the values of one document; a feature that is not named is 0."""
    try:
        grade, query, *pairs = line.partition("#")[0].split()
        values = [0.0] * width
        for pair in pairs:
            place, _, value = pair.partition(":")
            if not 1 <= int(place) <= width:
                raise BadData(f"a document has feature {place}, of {width}")
            values[int(place) - 1] = float(value)
        if not np.isfinite(values).all():
            raise BadData(f"a document of query {query} has a value that is not finite")
        return int(grade), int(query.removeprefix("qid:")), values
    except ValueError as error:
        raise error if isinstance(error, BadData) else BadData(f"no line of LETOR: {line!r}") from error
