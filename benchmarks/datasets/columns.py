"""Public descriptions of columns, and the matrix that they make of raw rows.

A range or a list of categories is a constant of the dataset's documentation, so that scaling and one-hot
columns say nothing about the records. A number beyond its range is clipped to it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["OTHER", "BadData", "Categorical", "Column", "Floats", "Numeric", "Options", "encode"]

Floats = NDArray[np.float64]
OTHER = "(other)"
"""The column of every category that the documentation does not list."""


class BadData(ValueError):
    """Raw data that is not in its documented format."""


@dataclass(frozen=True)
class Numeric:
    """A number with its public range; ``logarithmic`` ones are scaled as log(1 + value - low)."""

    name: str
    low: float
    high: float
    logarithmic: bool = False

    def names(self) -> list[str]:
        return [self.name]

    def raw_bounds(self) -> list[tuple[float, float]]:
        return [(self.low, self.high)]

    def fill(self, out: Floats, values: Sequence[str], scale: bool) -> None:
        numbers = np.clip(self.read(values), self.low, self.high)
        if not scale:
            out[:, 0] = numbers
        elif self.logarithmic:
            scaled = np.log1p(numbers - self.low) / math.log1p(self.high - self.low)
            out[:, 0] = np.minimum(scaled, 1.0)  # numpy's logarithm and math's differ in the last digit.
        else:
            out[:, 0] = (numbers - self.low) / (self.high - self.low)

    def read(self, values: Sequence[str]) -> Floats:
        """The values as finite numbers; anything else is refused."""
        try:
            numbers = np.array(values, dtype=np.float64)
        except ValueError as error:
            raise BadData(f"column {self.name} has a value that is no number: {error}") from error
        if not np.isfinite(numbers).all():
            raise BadData(f"column {self.name} has a value that is not finite")
        return numbers


@dataclass(frozen=True)
class Categorical:
    """A category of a public list; another one is ``(other)`` where ``other``, else refused."""

    name: str
    values: tuple[str, ...]
    other: bool = False

    def names(self) -> list[str]:
        listed = (*self.values, OTHER) if self.other else self.values
        return [f"{self.name}={value}" for value in listed]

    def raw_bounds(self) -> list[tuple[float, float]]:
        return [(0.0, 1.0)] * len(self.names())

    def fill(self, out: Floats, values: Sequence[str], scale: bool) -> None:
        places = {value: place for place, value in enumerate(self.values)}
        distinct, which = np.unique(np.asarray(values, dtype=str), return_inverse=True)
        found = np.array([self._place(places, value) for value in distinct])
        out[np.arange(len(which)), found[which]] = 1.0

    def _place(self, places: dict[str, int], value: Any) -> int:
        place = places.get(str(value), len(self.values) if self.other else None)
        if place is None:
            raise BadData(f"column {self.name} has the category {str(value)!r}, which its list does not have")
        return place


Column = Numeric | Categorical


@dataclass(frozen=True)
class Options:
    """``scale`` numbers to [0, 1]; add an ``intercept`` column of ones; bring rows to L2 norm 1."""

    scale: bool = True
    intercept: bool = False
    unit_rows: bool = False

    def finish(self, X: Floats, names: list[str], bounds: Floats) -> tuple[Floats, list[str], Floats]:
        """Add the intercept and bring the rows to norm 1, where asked for."""
        if self.intercept:
            X, names = np.hstack([X, np.ones((len(X), 1))]), [*names, "intercept"]
            bounds = np.vstack([bounds, [[0.0, 1.0]]])
        if self.unit_rows:
            X = X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), np.finfo(float).tiny)
            bounds = np.column_stack([np.where(bounds[:, 0] < 0.0, -1.0, 0.0), np.ones(len(bounds))])
        return X, names, bounds


def encode(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], options: Options
) -> tuple[Floats, list[str], Floats]:
    """The matrix of raw rows, the names of its columns, and their public ranges, one pair per column."""
    if not rows:
        raise BadData("there are no rows")
    if any(len(row) != len(columns) for row in rows):
        raise BadData(f"a row does not have {len(columns)} values")
    widths = [len(column.names()) for column in columns]
    X = np.zeros((len(rows), sum(widths)))
    for column, values, end, width in zip(
        columns, zip(*rows, strict=True), np.cumsum(widths), widths, strict=True
    ):
        column.fill(X[:, end - width : end], values, options.scale)
    names = [name for column in columns for name in column.names()]
    raw = np.array([pair for column in columns for pair in column.raw_bounds()])
    bounds = np.tile([0.0, 1.0], (len(names), 1)) if options.scale else raw
    return options.finish(X, names, bounds)
