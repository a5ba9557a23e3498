"""Budgets, steps and step sizes as the papers print them; what they cost is the ledger's to say."""

import math
from collections.abc import Callable

__all__ = ["agd_splits", "blsgd_budgets", "by_epoch", "noisy_pgd", "quadratic_steps"]


def agd_splits(epsilon: float, delta: float, splits: int) -> tuple[float, float]:
    """ρ_ng and ρ_nmax of DP-AGD from ε_ng = ε_nmax = ε/(2·splits) (000; the authors' code).

    ρ_nmax = ε²/2 by Lemma 3.7, and ρ_ng = C²/(2σ²) with σ = (C/ε)√(2 ln(1.25/δ)) of Theorem 3.3.
    """
    each = epsilon / (2.0 * splits)
    return each**2 / (4.0 * math.log(1.25 / delta)), each**2 / 2.0


def blsgd_budgets(epsilon: float, iterations: int = 50) -> tuple[float, float]:
    """ρ_grad = ε²_iter/2 and ε_BT = ε_iter with ε_iter = ε/(2·50) (002, 5.6.4)."""
    each = epsilon / (2.0 * iterations)
    return each**2 / 2.0, each


def by_epoch(first: float, iterations_per_epoch: int) -> Callable[[int], float]:
    """η₀/h in the h-th expected epoch (002, 4.6.4)."""
    return lambda iteration: first / (1 + (iteration - 1) // max(1, iterations_per_epoch))


def noisy_pgd(
    epsilon: float, delta: float, records: int, dimension: int, diameter: float, lipschitz: float
) -> tuple[int, float]:
    """T = ε²n²/d and η = (1/T)·Rεn/(G√(d ln(1/δ))) of noisy projected gradient descent (003, Theorem 2.6)."""
    steps = max(1, round(epsilon**2 * records**2 / dimension))
    reach = diameter * epsilon * records / (lipschitz * math.sqrt(dimension * math.log(1.0 / delta)))
    return steps, reach / steps


def quadratic_steps(records: int) -> int:
    """T = n² of private SGD with batches of one (Bassily, Smith, Thakurta 2014)."""
    return records**2
