"""Step sizes: a number, or a function of the iteration, counted from 1."""

import math
from collections.abc import Callable
from typing import TypeAlias

from dpledger_client._checks import check_count, check_positive

__all__ = [
    "StepSize",
    "fixed_horizon",
    "inverse",
    "inverse_root",
    "noisy_gradient_bound",
    "step_size_at",
]

StepSize: TypeAlias = float | Callable[[int], float]


def step_size_at(step_size: StepSize, iteration: int) -> float:
    """The size of a step; it must be a finite number above 0."""
    size = step_size(iteration) if callable(step_size) else step_size
    return check_positive("step_size", size)


def fixed_horizon(diameter: float, gradient_bound: float, steps: int) -> float:
    """η = R/(G√T), for a convex loss, a set of diameter R, and the uniform average of T iterates.

    With noise G² is the expected square of the noisy gradient: see :func:`noisy_gradient_bound`
    (Wu 2021, lecture 13, Theorem 2.1 and its noisy form).
    """
    radius, bound = check_positive("diameter", diameter), check_positive("gradient_bound", gradient_bound)
    return radius / (bound * math.sqrt(check_count("steps", steps)))


def inverse_root(diameter: float, gradient_bound: float) -> Callable[[int], float]:
    """η_t = R/(G√t), for a convex loss and the last iterate (Wang, lecture 15, Lemma 15.6)."""
    ratio = check_positive("diameter", diameter) / check_positive("gradient_bound", gradient_bound)
    return lambda iteration: ratio / math.sqrt(iteration)


def inverse(strong_convexity: float) -> Callable[[int], float]:
    """η_t = 1/(αt), for an α-strongly convex loss and the last iterate (Wang, lecture 15, Lemma 15.7)."""
    alpha = check_positive("strong_convexity", strong_convexity)
    return lambda iteration: 1.0 / (alpha * iteration)


def noisy_gradient_bound(lipschitz: float, noise_std: float, dimension: int) -> float:
    """G = √(L² + σ²d): the root of the expected square of a mean gradient with noise σ on each coordinate."""
    return math.hypot(
        check_positive("lipschitz", lipschitz),
        check_positive("noise_std", noise_std) * math.sqrt(check_count("dimension", dimension)),
    )
