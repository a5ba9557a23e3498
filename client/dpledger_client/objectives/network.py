"""A small neural network with per-example clipping that never forms a gradient of one example.

In a linear layer the gradient of one example is a ⊗ δ, a what comes in and δ the derivative of its loss
by what goes out. So its squared norm is the sum over layers of ‖δ‖²(‖a‖² + 1), the 1 for the bias, and a
clipped sum is aᵀ(f·δ) with f the examples' factors (Goodfellow 2015, "Efficient per-example gradient
computations").
"""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpledger_client._arrays import Floats, Integers, as_numbers
from dpledger_client._checks import check_choice, check_count
from dpledger_client.objectives.base import (
    LOST_SQUARES,
    Objective,
    blocks,
    clip_factors,
    limit_under,
    parameters,
    row_products,
    usable,
)
from dpledger_client.objectives.linear import class_slopes, cross_entropies
from dpledger_client.objectives.regularizers import Regularizer

__all__ = ["MLP"]

Layer = tuple[Floats, Floats]


class MLP(Objective):
    """Fully connected layers and a cross-entropy, for labels 0 to ``classes`` − 1.

    Parameters
    ----------
    hidden
        The width of each hidden layer.
    activation
        ``tanh`` or ``relu``.
    """

    def __init__(
        self,
        hidden: Sequence[int],
        classes: int,
        activation: str = "tanh",
        regularizer: Regularizer | None = None,
    ) -> None:
        super().__init__(regularizer)
        self.hidden = tuple(check_count("hidden", width) for width in hidden)
        self.classes = check_count("classes", classes, least=2)
        self.activation = check_choice("activation", activation, ("tanh", "relu"))

    def dimension(self, X: Any, y: Any) -> int:
        return sum((rows + 1) * columns for rows, columns in self._shapes(X))

    def initial(self, X: Any, y: Any, seed: int = 0) -> Floats:
        """Random weights of variance 1/(what comes in), biases zero; from shapes and a public seed alone."""
        generator = np.random.default_rng(seed)
        parts = []
        for rows, columns in self._shapes(X):
            parts.append(generator.normal(scale=rows**-0.5, size=rows * columns))
            parts.append(np.zeros(columns))
        return np.concatenate(parts)

    def losses(self, w: Floats, X: Any, y: Any) -> Floats:
        layers = self._layers(w, X)
        found = []
        with np.errstate(all="ignore"):
            for rows in blocks(X):
                margins = self._forward(layers, as_numbers(X[rows]))[-1]
                found.append(cross_entropies(margins, as_numbers(y[rows])))
        return np.concatenate(found) if found else np.empty(0)

    def gradient_sum(self, w: Floats, X: Any, y: Any) -> Floats:
        return self._gradient_sum(w, X, y, None)

    def clipped_gradient_sum(
        self,
        w: Floats,
        X: Any,
        y: Any,
        clip: float,
        row_norms: Floats | None = None,
    ) -> Floats:
        """The sum of the examples' clipped gradients; ``row_norms`` save nothing here and are not used."""
        return self._gradient_sum(w, X, y, limit_under(clip))

    def gradient_norms(self, w: Floats, X: Any, y: Any) -> Floats:
        layers = self._layers(w, X)
        found = []
        with np.errstate(all="ignore"):
            for rows in blocks(X):
                inputs, slopes = self._pass(layers, X[rows], y[rows])
                found.append(_norms(inputs, slopes))
        return np.concatenate(found) if found else np.empty(0)

    def predict(self, w: Floats, X: Any) -> Integers:
        """The most likely class of each row."""
        layers = self._layers(w, X)
        found = [self._forward(layers, np.asarray(X[rows], np.float64))[-1] for rows in blocks(X)]
        chosen: Integers = np.argmax(np.concatenate(found), axis=1)
        return chosen

    def _gradient_sum(self, w: Floats, X: Any, y: Any, limit: float | None) -> Floats:
        layers = self._layers(w, X)
        total = [(np.zeros_like(weights), np.zeros_like(bias)) for weights, bias in layers]
        with np.errstate(all="ignore"):
            for rows in blocks(X):
                inputs, slopes = self._pass(layers, X[rows], y[rows])
                if limit is not None:
                    inputs, slopes = _clip(inputs, slopes, limit)
                for (weights, bias), entering, slope in zip(total, inputs, slopes, strict=True):
                    weights += entering.T @ slope
                    bias += slope.sum(axis=0)
        return np.concatenate([part.ravel() for layer in total for part in layer])

    def _shapes(self, X: Any) -> list[tuple[int, int]]:
        widths = [int(X.shape[1]), *self.hidden, self.classes]
        return list(itertools.pairwise(widths))

    def _layers(self, w: Floats, X: Any) -> list[Layer]:
        rest = parameters(w)
        layers = []
        for rows, columns in self._shapes(X):
            weights, bias, rest = np.split(rest, [rows * columns, (rows + 1) * columns])
            layers.append((weights.reshape(rows, columns), bias))
        return layers

    def _forward(self, layers: list[Layer], rows: Floats) -> list[Floats]:
        """What enters each layer, and the margins at the end."""
        entering = [rows]
        for number, (weights, bias) in enumerate(layers):
            leaving = row_products(entering[-1], weights) + bias
            last = number == len(layers) - 1
            entering.append(leaving if last else self._activate(leaving))
        return entering

    def _pass(self, layers: list[Layer], X: Any, y: Any) -> tuple[list[Floats], list[Floats]]:
        """What enters each layer, and the losses' derivatives by what leaves it."""
        *inputs, margins = self._forward(layers, as_numbers(X))
        slopes = [class_slopes(margins, as_numbers(y))]
        for (weights, _), activated in zip(reversed(layers[1:]), reversed(inputs[1:]), strict=True):
            slopes.append(row_products(slopes[-1], weights.T) * self._activation_slope(activated))
        return inputs, slopes[::-1]

    def _activate(self, values: Floats) -> Floats:
        return np.tanh(values) if self.activation == "tanh" else np.maximum(values, 0.0)

    def _activation_slope(self, activated: Floats) -> Floats:
        if self.activation == "tanh":
            return 1.0 - np.square(activated)
        return np.asarray(activated > 0.0, dtype=np.float64)


def _norms(inputs: list[Floats], slopes: list[Floats]) -> Floats:
    squares: list[Floats] = [
        (np.einsum("ij,ij->i", slope, slope) + LOST_SQUARES)
        * (np.einsum("ij,ij->i", entering, entering) + 1.0)
        for entering, slope in zip(inputs, slopes, strict=True)
    ]
    total: Floats = np.sum(squares, axis=0)
    return np.sqrt(total)


def _clip(inputs: list[Floats], slopes: list[Floats], limit: float) -> tuple[list[Floats], list[Floats]]:
    """Slopes by their examples' factors; an example that is dropped is zero throughout."""
    factors = clip_factors(_norms(inputs, slopes), limit)
    shortened = [usable(slope, factors) * factors[:, None] for slope in slopes]
    return [usable(entering, factors) for entering in inputs], shortened
