"""Features and targets within bounds, brought to [−1, 1] row by row."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from dpledger_client._arrays import Floats

__all__ = ["Bounds", "Scaling", "read_bounds"]

Bounds: TypeAlias = tuple[float, float] | Sequence[tuple[float, float]]
"""One (low, high) for all features, or one each."""


def read_bounds(name: str, bounds: Any, features: int) -> tuple[Floats, Floats]:
    """The least and the largest value of each feature; they must be finite and in order."""
    array = np.asarray(bounds, dtype=np.float64)
    if array.shape == (2,):
        array = np.tile(array, (features, 1))
    if array.shape != (features, 2):
        raise ValueError(f"{name} must be (low, high) or one pair for each of {features}, found {bounds!r}")
    low, high = array[:, 0], array[:, 1]
    if not (np.isfinite(array).all() and (low <= high).all()):
        raise ValueError(f"{name} must be finite, each low at most its high, found {bounds!r}")
    return low, high


@dataclass(frozen=True)
class Scaling:
    """(x − shift)·factor of a value that is cut to [low, high], column by column.

    Zero stays zero where it is within the bounds, so that rare columns stay short rows; other columns are
    centred. A column whose bounds are one value becomes 0.
    """

    low: Floats
    high: Floats
    shift: Floats
    factor: Floats

    @classmethod
    def within(cls, low: Floats, high: Floats, *, centre: bool) -> "Scaling":
        """By bounds that are public, or were released; nothing is shifted unless ``centre``."""
        away = ((low > 0.0) | (high < 0.0)) & centre
        shift = np.where(away, low + (high - low) / 2.0, 0.0)
        reach = np.maximum(np.abs(low - shift), np.abs(high - shift))
        wide = reach > np.finfo(np.float64).tiny  # below, 1/reach may overflow, and 0 times that is no number
        factor = np.divide(1.0, reach, out=np.zeros_like(reach), where=wide)
        return cls(low, high, shift, factor)

    @classmethod
    def unchanged(cls, columns: int) -> "Scaling":
        """Leaves every value as it is."""
        endless = np.full(columns, np.inf)
        return cls(-endless, endless, np.zeros(columns), np.ones(columns))

    @property
    def changes(self) -> bool:
        """Whether it does anything."""
        return bool(np.isfinite(self.high).all())

    def apply(self, rows: Floats, out: Floats | None = None) -> Floats:
        """Rows, or a vector of targets, each by itself; what is no number stays none."""
        made: Floats = np.clip(rows, self.low, self.high, out=out)
        made -= self.shift
        made *= self.factor
        return made

    def weights(self, scaled: Floats, intercepts: Floats) -> tuple[Floats, Floats]:
        """Weights and intercepts for values as they are, from those for scaled ones; a margin per row."""
        return scaled * self.factor, intercepts - scaled @ (self.factor * self.shift)
