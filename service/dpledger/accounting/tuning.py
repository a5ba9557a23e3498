"""Hyperparameter tuning: the best of a random number of runs, and its Rényi curve.

A base mechanism is run K times on the dataset with K drawn from a fixed law, and the best output (by a
total order that may look at the output only) is released. What is charged is the curve of that selection.

Sources: Papernot and Steinke 2022, "Hyperparameter tuning with Rényi differential privacy", Theorem 2
(truncated negative binomial) and Theorem 6 (Poisson).
"""

import abc
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpledger.accounting.conversion.renyi import renyi_delta
from dpledger.accounting.cost import Cost
from dpledger.accounting.errors import InvalidInput, Unproven
from dpledger.accounting.numerics import SMALLEST_COST, round_up
from dpledger.accounting.rounding import Direction, widen
from dpledger.accounting.validation import (
    Floats,
    check_choice,
    check_non_negative,
    check_open_unit,
    check_positive,
)

__all__ = [
    "LAWS",
    "PoissonTrials",
    "Trials",
    "TruncatedNegativeBinomial",
    "trials_from_fields",
    "tuned_cost",
]

LAWS = ("truncated-negative-binomial", "poisson")
"""The laws of the number of runs, by their names on the wire."""

_EPS = 2.0**-52
_LARGEST_LOG = 700.0
_LEAST_GAMMA = 1e-300
"""Beyond it the mean number of runs is no float."""


class Trials(abc.ABC):
    """The law of the number of runs."""

    @property
    @abc.abstractmethod
    def mean(self) -> float:
        """E[K]."""

    @abc.abstractmethod
    def selection_curve(self, base: Cost) -> Floats:
        """Upper bound on the curve of the best of K runs, on the base's orders."""

    @abc.abstractmethod
    def selection_pure(self, pure_epsilon: float) -> float | None:
        """Pure ε of the selection from that of one run, where one is proven."""


@dataclass(frozen=True)
class TruncatedNegativeBinomial(Trials):
    """K ≥ 1 with P(K = k) proportional to (1 − γ)^k · Γ(k + η)/(k!·Γ(η)); η = 0 is logarithmic.

    Parameters
    ----------
    eta
        Shape η > −1: 1 is geometric, 0 logarithmic; smaller is cheaper and more spread out.
    gamma
        γ in (0, 1), at least 1e-300: smaller means more runs.
    """

    eta: float
    gamma: float

    def __post_init__(self) -> None:
        eta = check_non_negative("eta + 1", self.eta + 1.0 if _is_number(self.eta) else self.eta)
        if eta == 0.0:
            raise InvalidInput("eta", "a finite number above -1", self.eta)
        object.__setattr__(self, "eta", float(self.eta))
        object.__setattr__(self, "gamma", check_open_unit("gamma", self.gamma))
        if self.gamma < _LEAST_GAMMA:
            raise InvalidInput("gamma", f"at least {_LEAST_GAMMA}", self.gamma)

    @property
    def mean(self) -> float:
        """E[K] = η(1 − γ)/(γ(1 − γ^η)), for η = 0 its limit (1/γ − 1)/log(1/γ)."""
        exponent = self.eta * math.log(self.gamma)
        ratio = 1.0 if exponent == 0.0 else exponent / math.expm1(exponent)
        return ratio * (1.0 - self.gamma) / self.gamma / -math.log(self.gamma)

    def selection_curve(self, base: Cost) -> Floats:
        """The curve of the best of K runs, rounded up.

        Statement: ε'(λ) = ε(λ) + (1+η)(1 − 1/λ̂)·ε(λ̂) + (1+η)·log(1/γ)/λ̂ + log(E[K])/(λ−1) for any
        λ̂ ≥ 1; the least over the base's orders and λ̂ = 1, and over larger λ (a curve never falls).
        Conditions: the base's curve in both directions; K independent of the data.
        Source: Papernot and Steinke 2022, Theorem 2.
        """
        log_inverse = -math.log(self.gamma)
        hats = (1.0 - 1.0 / base.orders) * base.epsilons + log_inverse / base.orders
        constant = (1.0 + self.eta) * min(float(hats.min()), log_inverse)
        curve = base.epsilons + constant + self._log_mean_up() / (base.orders - 1.0)
        return _never_falling(widen(curve, Direction.UP, ulps=32))

    def _log_mean_up(self) -> float:
        """log E[K], rounded up: γ^η carries as many roundings as its logarithm is large."""
        value = math.log(self.mean)
        return value + 16.0 * _EPS * (1.0 + abs(value) + max(self.eta * math.log(self.gamma), 0.0))

    def selection_pure(self, pure_epsilon: float) -> float:
        """(2 + η)·ε: Theorem 2 as λ and λ̂ grow without bound."""
        return widen((2.0 + self.eta) * pure_epsilon, Direction.UP, ulps=4) if pure_epsilon else 0.0


@dataclass(frozen=True)
class PoissonTrials(Trials):
    """K ~ Poisson(rate); K = 0 releases that nothing was run."""

    rate: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate", check_positive("rate", self.rate))

    @property
    def mean(self) -> float:
        """E[K]."""
        return self.rate

    def selection_curve(self, base: Cost) -> Floats:
        """The curve of the best of K runs, rounded up.

        Statement: ε'(λ) = log(1 + m·e^((λ−1)·m·δ̂)·(e^((λ−1)ε(λ)) − 1))/(λ−1) with m = E[K] and δ̂ the
        base's δ at ε̂ = log(1 + 1/(λ−1)).
        Conditions: the base's curve in both directions; K independent of the data; any m > 0.
        Source: sharpens Papernot and Steinke 2022, Theorem 6, ε(λ) + m·δ̂ + log(m)/(λ−1), which is larger
        for m ≥ 1 and says nothing below.

        Proof: break ties by uniform coins, so that outputs are ordered and have densities q, q'. K runs are
        a Poisson process: the best has density m·q(y)·e^(−m·Q(>y)), and nothing has probability e^(−m) on
        both sides. Let r = q^λ q'^(1−λ), h = λq − (λ−1)q' ≤ r (tangent of t ↦ t^λ), and g(y) = ∫_y^∞ h, so
        that g(−∞) = 1 and g ≥ −(λ−1)δ̂. The moment is e^(−m) + ∫ m·r·e^(−mg); since
        ∫ m·h·e^(−mg) = 1 − e^(−m), it equals 1 + m·∫(r − h)e^(−mg) ≤ 1 + m·e^((λ−1)mδ̂)(∫r − 1).
        """
        excess = base.orders - 1.0
        deltas = np.array([_hat_delta(base, float(order)) for order in excess])
        with np.errstate(over="ignore"):
            log_scale = math.log(self.rate) + excess * self.rate * deltas
            grown = excess * np.maximum(base.epsilons, SMALLEST_COST)
            log_gain = _log_expm1(grown)
        error = 32.0 * _EPS * (1.0 + np.abs(log_scale) + grown + np.abs(log_gain))
        curve = round_up(np.logaddexp(0.0, log_scale + log_gain + error) / excess, ulps=8)
        return _never_falling(np.where(base.epsilons == 0.0, 0.0, curve))

    def selection_pure(self, pure_epsilon: float) -> None:
        """None: the Poisson law has no pure guarantee here."""


def _hat_delta(base: Cost, excess: float) -> float:
    """δ̂ at ε̂ = log(1 + 1/(λ−1)), from the base's own curve."""
    at = widen(math.log1p(1.0 / excess), Direction.DOWN, ulps=4)
    return float(renyi_delta(base.orders, base.epsilons, at).min())


def _log_expm1(values: Floats) -> Floats:
    """log(e^x − 1) for x > 0."""
    small = np.log(np.expm1(np.minimum(values, _LARGEST_LOG)))
    return np.where(values < _LARGEST_LOG, small, values)


def _never_falling(curve: Floats) -> Floats:
    """The least over each order and all larger ones."""
    least: Floats = np.minimum.accumulate(curve[::-1])[::-1]
    return least


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def tuned_cost(base: Cost, trials: Trials) -> Cost:
    """The cost of releasing the best of a random number of runs.

    Parameters
    ----------
    base
        The cost of one run (for a whole training job: the sum of its steps).
    trials
        The law of the number of runs.

    Raises
    ------
    Unproven
        Where the base carries an additive δ: the theorems are for Rényi curves alone.
    """
    if base.delta > 0.0:
        raise Unproven("Papernot and Steinke's theorems do not cover a base with an additive delta")
    pure = None if base.pure_epsilon is None else trials.selection_pure(base.pure_epsilon)
    curve = trials.selection_curve(base)
    return Cost(base.orders, curve if pure is None else np.minimum(curve, pure), pure_epsilon=pure)


def trials_from_fields(fields: Mapping[str, Any]) -> Trials:
    """Read a law of the number of runs: ``law``, and ``mean``, or ``eta`` and ``gamma``."""
    law = check_choice("law", fields.get("law"), LAWS)
    taken = ("mean",) if law == "poisson" else ("eta", "gamma")
    for name in ("eta", "gamma", "mean"):
        if name not in taken and fields.get(name) is not None:
            raise InvalidInput(name, f"absent for {law}", fields[name])
        if name in taken and fields.get(name) is None:
            raise InvalidInput(name, "given", None)
    if law == "poisson":
        return PoissonTrials(fields["mean"])
    return TruncatedNegativeBinomial(fields["eta"], fields["gamma"])
