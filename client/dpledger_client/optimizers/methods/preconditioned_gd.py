"""Noisy gradient descent on columns that private moments have centred and scaled, with soft thresholds."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpledger_client._arrays import Floats, as_numbers
from dpledger_client._checks import check_count, check_non_negative, check_positive
from dpledger_client.mechanisms import Gaussian
from dpledger_client.objectives.base import CLIP_MARGIN, LOST_SQUARES, blocks, gradient_sensitivity
from dpledger_client.objectives.linear import Linear
from dpledger_client.optimizers.noise_levels import noise_for_multiplier
from dpledger_client.optimizers.support.base import Method
from dpledger_client.optimizers.support.moments import (
    matrix_noise,
    moment_release,
    noise_of,
    private_row_norm,
    row_norm_item,
    scaled_sum,
    second_moments,
    second_moments_release,
    symmetric,
)
from dpledger_client.optimizers.support.planning import Item, Setting, step_item
from dpledger_client.optimizers.training import Batch, Training
from dpledger_client.releases import Release

__all__ = ["PreconditionedGradientDescent"]

_LEAST_TRACE = 0.05
"""The least that the mean square of scaled rows is taken for, over that of rows of the norm found."""
_DAMPING = 0.3
"""Of variances, over their noise."""
_LONGER = 1.2
"""To how much more than the typical norm scaled rows are shortened for the second moments."""
_AT_ONCE = 1 << 24
"""Numbers of scaled rows that are kept during a look, which then makes them once: 128 megabytes."""
_MOST_CONDITION = 256.0
"""Of the preconditioner; limits what rounding errors of a sum can become in scaled columns."""


@dataclass(frozen=True)
class PreconditionedGradientDescent(Method):
    """Private moments first, then noisy gradient descent in columns of equal spread, with soft thresholds.

    Four kinds of looks at all records, each a Gaussian release. (1) Counts of rows by norm give a norm R
    that about nine in ten rows are within. (2) The sums of (x, x²), shortened to R, give each column's mean m
    and variance v; columns become (x − m)/√(v + 0.3·noise), over the root of their mean square, so that a
    typical row has norm 1. (3) Optionally, the second-moment matrix M of these; with B ∝ (M + λI)^(−½), λ the
    spectral norm of M's noise, rows become Bx. (4) ``steps`` noisy gradients in these columns: momentum, and
    after each step a soft threshold at ``threshold`` times the noise of the mean of all gradients, as the
    lasso has it. The mean of the second half's iterates becomes weights of the columns as they came.

    Parameters
    ----------
    steps
        Of (4).
    clip
        To which norm each record's gradient is shortened, where a typical scaled row has norm 1.
    noise_multiplier, norm_multiplier, moment_multiplier, matrix_multiplier
        The noise over the sensitivity of each gradient, of (1), of (2) and of (3); None leaves (3) out.
    step_size
        Per parameter: the step is ``step_size`` · the number of columns, as B leaves a curvature that is the
        smaller the more columns there are.
    threshold
        The strength of the L1 penalty over the standard deviation of the mean gradient's noise.
    momentum
        Of the heavy ball, in [0, 1).
    longest
        A public norm that rows rarely exceed, over the root of the number of columns: 1 for columns within
        [−1, 1]. What is longer is shortened.
    constant_column
        The column that is 1 in every row, for the intercept: other columns are centred against it, and it has
        no penalty. None for the one that X says it has, if any.

    Notes
    -----
    Charge: one Gaussian of all records each, Σ 1/(2·multiplier²) in ρ.
    Sensitivities: (1) 1, or √2 under replace-one; (2) 1 and 2; (3) 1 and √2: see
    :mod:`dpledger_client.optimizers.support.moments`; (4) ``clip``, or twice that. What a look does with a
    row depends on that row and on outputs of earlier looks, so that the bound of each holds given these, and
    the composition is adaptive. Centring, scaling, thresholds and averages are post-processing.
    The gradient by B is Bᵀ Σ f·r·x with f from ‖Bx‖, so that each term's norm is at most ``clip``; rounding
    errors of the sum grow by the condition of B, which is at most 256, and the limit is lowered by as much.
    """

    name: ClassVar[str] = "preconditioned-gd"
    steps: int
    clip: float
    noise_multiplier: float
    norm_multiplier: float
    moment_multiplier: float
    step_size: float
    matrix_multiplier: float | None = None
    threshold: float = 0.0
    momentum: float = 0.9
    longest: float = 1.0
    constant_column: int | None = None

    def __post_init__(self) -> None:
        check_count("steps", self.steps)
        for name in (
            "clip",
            "noise_multiplier",
            "norm_multiplier",
            "moment_multiplier",
            "step_size",
            "longest",
        ):
            check_positive(name, getattr(self, name))
        if self.matrix_multiplier is not None:
            check_positive("matrix_multiplier", self.matrix_multiplier)
        check_non_negative("threshold", self.threshold)
        if check_non_negative("momentum", self.momentum) >= 1.0:
            raise ValueError(f"momentum must be below 1, found {self.momentum!r}")

    def items(self, setting: Setting) -> list[Item]:
        adjacency = setting.adjacency
        looks = [
            row_norm_item(adjacency, self.norm_multiplier),
            step_item("moments", moment_release(adjacency, self.moment_multiplier)),
        ]
        if self.matrix_multiplier is not None:
            looks.append(
                step_item("second moments", second_moments_release(adjacency, self.matrix_multiplier))
            )
        return [*looks, step_item("gradient", self._release(adjacency), times=self.steps)]

    def train(self, training: Training) -> None:
        if not isinstance(training.objective, Linear):
            raise ValueError("preconditioned-gd needs a linear model, such as Logistic")
        frame = self._preconditioned(training, self._scaled(training))
        descent = _Descent(self, training, frame)
        for iteration in range(1, self.steps + 1):
            descent.step(iteration)

    def _release(self, adjacency: str) -> Release:
        sensitivity = gradient_sensitivity(self.clip, adjacency)
        noise = noise_for_multiplier(self.noise_multiplier, sensitivity)
        return Release(Gaussian(sensitivity, noise), purpose="gradient")

    def _scaled(self, training: Training) -> "_Frame":
        """(1) and (2)."""
        constant = self._constant(training.source.X)
        norm = private_row_norm(training, self.norm_multiplier, self.longest, lambda X: _Squared(X, constant))
        release = moment_release(training.adjacency, self.moment_multiplier)
        sums: Floats = training.authorized(release).release(
            lambda batch: scaled_sum(_Squared(batch.X, constant), norm)
        )
        noise = noise_of(release) * norm / training.records
        first, second = np.split(sums * norm / training.records, 2)
        return _Frame.of(first, second, noise, norm, constant)

    def _preconditioned(self, training: Training, frame: "_Frame") -> "_Frame":
        """(3)."""
        if self.matrix_multiplier is None:
            return frame
        release = second_moments_release(training.adjacency, self.matrix_multiplier)
        norm = _LONGER * (1.0 if frame.constant is None else math.sqrt(2.0))
        triangle: Floats = training.authorized(release).release(
            lambda batch: second_moments(frame.rows(batch.X), norm)
        )
        columns, scale = frame.columns, norm**2 / training.records
        noise = matrix_noise(release, columns, norm, training.records)
        values, vectors = np.linalg.eigh(symmetric(triangle, columns) * scale)
        values = np.maximum(values, 0.0)
        damping = max(noise, float(values[-1]) / (_MOST_CONDITION**2 - 1.0))
        factors = 1.0 / np.sqrt(values + damping)
        factors /= math.sqrt(float(np.sum(values * factors**2))) or 1.0
        return frame.with_matrix((vectors * factors) @ vectors.T)

    def _constant(self, X: Any) -> int | None:
        found = getattr(X, "constant_column", None) if self.constant_column is None else self.constant_column
        return None if found is None else int(found) % int(X.shape[1])


class _Descent:
    """(4): where the descent is, and the mean of the second half of its iterates."""

    def __init__(self, method: PreconditionedGradientDescent, training: Training, frame: "_Frame") -> None:
        self.method, self.training, self.frame = method, training, frame
        self.release = method._release(training.adjacency)
        self.v = frame.inverse(training.w.reshape(frame.columns, -1))
        self.velocity, self.total = np.zeros_like(self.v), np.zeros_like(self.v)
        self.eta = method.step_size * frame.columns * (1.0 - method.momentum)
        mean = noise_of(self.release) / math.sqrt(method.steps) / training.records
        self.threshold = method.step_size * frame.columns * method.threshold * mean
        self.limit = method.clip * (1.0 - frame.condition * CLIP_MARGIN)

    def step(self, iteration: int) -> None:
        method, start = self.method, self.method.steps // 2
        self.velocity = method.momentum * self.velocity + self._gradient()
        self.v = self._shrunk(self.v - self.eta * self.velocity)
        if iteration > start:
            self.total += self.v
        average = self.total / (iteration - start) if iteration > start else self.v
        self.training.record(
            self.frame.weights(self.v).ravel(),
            output=self.frame.weights(average).ravel(),
            row_norm=self.frame.norm,
        )

    def _gradient(self) -> Floats:
        frame, objective = self.frame, self.training.objective
        at = frame.scaled_weights(self.v)

        def compute(batch: Batch) -> Floats:
            scaled = frame.rows(batch.X)
            rows: Any = scaled[:] if math.prod(scaled.shape) <= _AT_ONCE else scaled
            norms = frame.norms(rows)
            found = objective.clipped_gradient_sum(at.ravel(), rows, batch.y, self.limit, norms)
            return frame.direction(found.reshape(frame.columns, -1)).ravel()

        noisy: Floats = self.training.authorized(self.release).release(compute)
        w = frame.weights(self.v).ravel()
        penalty = frame.penalty(objective.regularizer.gradient(w).reshape(frame.columns, -1))
        return noisy.reshape(frame.columns, -1) / self.training.records + penalty

    def _shrunk(self, v: Floats) -> Floats:
        shrunk: Floats = np.sign(v) * np.maximum(np.abs(v) - self.threshold, 0.0)
        if self.frame.constant is not None and self.frame.matrix is None:
            shrunk[self.frame.constant] = v[self.frame.constant]
        return shrunk


@dataclass(frozen=True)
class _Frame:
    """The public map from rows to scaled rows: z = Bx′, x′ⱼ = (xⱼ − mⱼ·x_c)·sⱼ, x′_c = x_c."""

    norm: float
    shift: Floats
    scale: Floats
    constant: int | None
    matrix: Floats | None = None

    @classmethod
    def of(cls, first: Floats, second: Floats, noise: float, norm: float, constant: int | None) -> "_Frame":
        """From noisy means and mean squares; a mean below its noise is taken for 0."""
        shift = np.where(np.abs(first) > noise, first, 0.0) if constant is not None else np.zeros_like(first)
        spread = np.maximum(second - shift**2, 0.0)
        scale = 1.0 / np.sqrt(spread + _DAMPING * noise)
        square = float(np.sum((second - shift**2) * scale**2))
        least = _LEAST_TRACE * norm**2 * float(np.mean(scale**2))
        scale /= math.sqrt(max(square, least))
        if constant is not None:
            shift[constant], scale[constant] = 0.0, 1.0
        return cls(norm, shift, scale, constant)

    def with_matrix(self, matrix: Floats) -> "_Frame":
        return _Frame(self.norm, self.shift, self.scale, self.constant, matrix)

    @property
    def columns(self) -> int:
        return len(self.scale)

    @property
    def condition(self) -> float:
        return 1.0 if self.matrix is None else 2.0 * _MOST_CONDITION

    def rows(self, X: Any) -> "_Scaled":
        return _Scaled(X, self)

    def norms(self, rows: Any) -> Floats | None:
        """‖Bx′‖ of each row, from above where squares are lost; None where they are the rows' own."""
        if self.matrix is None:
            return None
        found = []
        with np.errstate(all="ignore"):
            for part in blocks(rows):
                z = rows[part] @ self.matrix
                found.append(np.sqrt(np.vecdot(z, z) + LOST_SQUARES))
        return np.concatenate(found) if found else np.empty(0)

    def direction(self, gradient: Floats) -> Floats:
        """By z, of a gradient by x′."""
        return gradient if self.matrix is None else self.matrix @ gradient

    def scaled_weights(self, v: Floats) -> Floats:
        """The weights of x′ for those of z."""
        return self.direction(v)

    def weights(self, v: Floats) -> Floats:
        """The weights of x for those of z."""
        scaled = self.scale[:, None] * self.scaled_weights(v)
        if self.constant is not None:
            scaled[self.constant] -= self.shift @ scaled
        return scaled

    def penalty(self, gradient: Floats) -> Floats:
        """By z, of a gradient by the weights of x."""
        by_scaled = gradient - self.shift[:, None] * (
            0.0 if self.constant is None else gradient[self.constant]
        )
        return self.direction(self.scale[:, None] * by_scaled)

    def inverse(self, w: Floats) -> Floats:
        """The weights of z for those of x."""
        moved = w.copy()
        if self.constant is not None:
            moved[self.constant] += self.shift @ w
        scaled = moved / self.scale[:, None]
        if self.matrix is None:
            return scaled
        return np.asarray(np.linalg.solve(self.matrix, scaled), dtype=np.float64)


class _Columns:
    """Rows that are made of others, each by itself, when they are looked at."""

    def __init__(self, X: Any, columns: int) -> None:
        self.X, self.shape = X, (len(X), columns)

    def __len__(self) -> int:
        return self.shape[0]


class _Squared(_Columns):
    """(x, x²) without the constant column, whose moments are known."""

    def __init__(self, X: Any, constant: int | None) -> None:
        super().__init__(X, 2 * int(X.shape[1]))
        self.constant = constant

    def __getitem__(self, part: slice) -> Floats:
        rows = as_numbers(self.X[part])
        if self.constant is not None:
            rows = rows.copy()
            rows[:, self.constant] = 0.0
        with np.errstate(all="ignore"):
            return np.hstack([rows, np.square(rows)])


class _Scaled(_Columns):
    """x′ of each row."""

    def __init__(self, X: Any, frame: _Frame) -> None:
        super().__init__(X, frame.columns)
        self.frame = frame

    def __getitem__(self, part: slice) -> Floats:
        rows, frame = as_numbers(self.X[part]), self.frame
        with np.errstate(all="ignore"):
            if frame.constant is None:
                return rows * frame.scale
            return (rows - rows[:, frame.constant, None] * frame.shift) * frame.scale
