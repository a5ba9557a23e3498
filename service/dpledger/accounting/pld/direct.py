"""Sums of few losses term by term: no error but that of positive products and sums."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpledger.accounting.pld.cells import ROUNDING
from dpledger.accounting.pld.discretization import Indices
from dpledger.accounting.validation import Floats

__all__ = ["DIRECT_DRAWS", "FEW_TERMS", "MANY_TERMS", "UNDERFLOW", "Law", "count_terms", "direct_sum"]

DIRECT_DRAWS = 64
"""More draws than this are never summed term by term."""

UNDERFLOW = 1e-300
"""Bounds all of what is too small for a float: at most 2^33 terms, each off by at most 2^−1074 there."""

FEW_TERMS, MANY_TERMS = 1 << 22, 1 << 27
"""As many as a transform takes time for, and as many as are worth it where its rounding decides."""


@dataclass(frozen=True)
class Law:
    """Positive weights at increasing indices, each right up to e^(±log_error) and ``UNDERFLOW``."""

    positions: Indices
    weights: Floats
    log_error: float = 0.0

    @classmethod
    def of(cls, positions: Indices, weights: Floats) -> "Law":
        """Without the indices that hold nothing."""
        held = weights > 0.0
        return cls(positions[held], weights[held])

    def dense(self, size: int) -> Floats:
        """The weights at 0, 1, … below ``size``."""
        found = np.zeros(size)
        found[self.positions] = self.weights
        return found


def direct_sum(parts: Sequence[tuple[Law, int]], most: int) -> Law | None:
    """The law of the sum of so many draws of each part, term by term; None for more than ``most`` terms.

    Statement: the weight at k is Σ over i + j = k of the products of weights. All terms are positive, so a
    weight that adds up n of them is right up to a factor (1 + u)^(n+1), whatever cancels in a transform.
    Source: Higham 2002, section 3.1.
    """
    draws = sorted((part for part, times in parts for _ in range(times)), key=lambda part: part.weights.size)
    found, terms = draws[0], 0
    for part in draws[1:]:
        terms += found.weights.size * part.weights.size
        if terms > most:
            return None
        found = _plus(found, part)
    return found


def count_terms(sizes: Sequence[tuple[float, float]]) -> float:
    """At most how many terms the sum of draws has, each of so many weights over so many indices."""
    (weights, length), *others = sorted(sizes)
    terms = 0.0
    for more, further in others:
        terms += weights * more
        length += further
        weights = min(weights * more, length)
    return terms


def _plus(first: Law, second: Law) -> Law:
    """The law of the sum of two independent draws."""
    few, many = (first, second) if first.weights.size <= second.weights.size else (second, first)
    found = np.zeros(int(few.positions[-1] + many.positions[-1]) + 1)
    start, end = int(many.positions[0]), int(many.positions[-1]) + 1
    dense = end - start == many.positions.size
    for position, weight in zip(few.positions.tolist(), few.weights.tolist(), strict=True):
        at = slice(position + start, position + end) if dense else many.positions + position
        found[at] += weight * many.weights
    error = first.log_error + second.log_error + ROUNDING * (few.weights.size + 2.0) * (1.0 + 1e-9)
    held = np.flatnonzero(found)
    return Law(held, found[held], error)
