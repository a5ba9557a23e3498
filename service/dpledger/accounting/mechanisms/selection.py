"""Selecting one of several candidates: the exponential mechanism and report-noisy-max."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpledger.accounting.cost import Cost
from dpledger.accounting.errors import AdjacencyMismatch
from dpledger.accounting.mechanisms.base import SCALE, Mechanism, NoiseField
from dpledger.accounting.mechanisms.pure import pure_cost, pure_curve, pure_mu
from dpledger.accounting.numerics import log_sinhc, ratio_above, round_up
from dpledger.accounting.pld.items import Items, bounded_range_items
from dpledger.accounting.sampling import Adjacency
from dpledger.accounting.validation import (
    Floats,
    check_choice,
    check_flag,
    check_non_negative,
    check_positive,
)

__all__ = ["Exponential", "NoisyMax", "bounded_range_cost", "bounded_range_curve"]

_MARGIN = 64.0 * float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Exponential(Mechanism):
    """The exponential mechanism: candidate r is drawn with probability ∝ exp(c·u(r)).

    ``epsilon`` is read as follows, with Δ the sensitivity of the score u under the dataset's adjacency:
    c = ε/(2Δ), or c = ε/Δ where ``monotonic``, that is where all scores move the same way when a record
    is added.

    Statement: in either case ε-DP with bounded range ε, so the cost of :func:`bounded_range_cost`.
    Conditions: either adjacency; ``monotonic`` under add-remove only, since replacing a record may move
    one score up and another down.
    Source: McSherry and Talwar 2007; Durfee and Rogers 2019, section 4 (bounded range); Dong, Durfee,
    Rogers 2020.
    """

    kind: ClassVar[str] = "exponential"
    expensive: ClassVar[bool] = False
    noise_field: ClassVar[NoiseField | None] = None
    epsilon: float
    monotonic: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_non_negative("epsilon", self.epsilon))
        check_flag("monotonic", self.monotonic)

    def cost(self, orders: Floats, adjacency: Adjacency) -> Cost:
        self._check(adjacency)
        return bounded_range_cost(self.epsilon, orders)

    def dominating_pairs(self, adjacency: Adjacency) -> Items:
        """The pair of bounded range ε."""
        self._check(adjacency)
        return bounded_range_items(self.epsilon)

    def dominates_alike(self, other: "Exponential", adjacency: Adjacency) -> bool:
        """The other's range is at most its own, where ``monotonic`` applies to both.

        The pair of ε dominates whatever has bounded range ε' ≤ ε.
        """
        applies = adjacency is Adjacency.ADD_REMOVE or not (self.monotonic or other.monotonic)
        return applies and other.epsilon <= self.epsilon

    def _check(self, adjacency: Adjacency) -> None:
        _check_monotonic("the exponential mechanism with monotonic scores", self.monotonic, adjacency)


@dataclass(frozen=True)
class NoisyMax(Mechanism):
    """Report-noisy-max: the candidate whose score plus noise of scale ``scale`` is largest.

    For the smallest score give the negatives: the smallest of score plus noise is not private for Gumbel and
    exponential noise, which are not symmetric (100 equal scores, e = 1: e^4.46 where e^2 is claimed).

    Statement: with e = Δ/b, where all scores move the same way (``monotonic``), and with 2e in the place
    of e otherwise:

    - Gumbel noise: the exponential mechanism; bounded range e, so e-DP and ρ = e²/8;
    - Laplace noise: e-DP, so ρ = e·tanh(e/2);
    - exponential noise (permute and flip): e-DP, so ρ = e·tanh(e/2).

    Only the choice is released, not its score. ρ = e²/8 does not hold for the latter two.
    Conditions: Δ bounds the change of every single score under the dataset's adjacency; ``monotonic``
    under add-remove only.
    Source: Dwork and Roth 2014, Claim 3.9 (Laplace); Durfee and Rogers 2019 (Gumbel); McKenna and
    Sheldon 2020 with Ding et al. 2021 (exponential noise is permute and flip).
    """

    kind: ClassVar[str] = "noisy-max"
    expensive: ClassVar[bool] = False
    noise_field: ClassVar[NoiseField | None] = SCALE
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"noise": ("gumbel", "laplace", "exponential")}
    noise: str
    sensitivity: float
    scale: float
    monotonic: bool = False

    def __post_init__(self) -> None:
        check_choice("noise", self.noise, self.choices["noise"])
        object.__setattr__(self, "sensitivity", check_non_negative("sensitivity", self.sensitivity))
        object.__setattr__(self, "scale", check_positive("scale", self.scale))
        check_flag("monotonic", self.monotonic)

    def cost(self, orders: Floats, adjacency: Adjacency) -> Cost:
        epsilon = self._epsilon(adjacency)
        return bounded_range_cost(epsilon, orders) if self.noise == "gumbel" else pure_cost(epsilon, orders)

    def dominating_pairs(self, adjacency: Adjacency) -> Items:
        """The pair of bounded range for Gumbel noise, that of randomized response for the others."""
        if self.noise == "gumbel":
            return bounded_range_items(self._epsilon(adjacency))
        return super().dominating_pairs(adjacency)

    def dominates_alike(self, other: "NoisyMax", adjacency: Adjacency) -> bool:
        """One kind of noise and one ``monotonic``, no more sensitivity and no less noise."""
        same = (self.noise, self.monotonic) == (other.noise, other.monotonic)
        return same and other.sensitivity <= self.sensitivity and other.scale >= self.scale

    def _epsilon(self, adjacency: Adjacency) -> float:
        _check_monotonic("report-noisy-max with monotonic scores", self.monotonic, adjacency)
        ratio = ratio_above("sensitivity / scale", self.sensitivity, self.scale)
        return ratio if self.monotonic else 2.0 * ratio


def bounded_range_cost(epsilon: float, orders: Floats) -> Cost:
    """Cost of a release whose privacy losses, for each neighbouring pair, span at most ``epsilon``.

    Statement: the least of the curve of :func:`bounded_range_curve`, αε²/8 and the curve of pure ε;
    ρ = ε²/8; μ and pure ε as for any ε-DP release.
    Conditions: either adjacency; every α > 1.
    Source: Dong, Durfee, Rogers 2020; Cesar and Rogers 2021 for ρ; Durfee and Rogers 2019, section 4
    (bounded range ε implies ε-DP, since the losses of a pair lie on both sides of 0).
    """
    if check_non_negative("epsilon", epsilon) == 0.0:
        return Cost.zero(orders)
    rho = round_up(epsilon * epsilon / 8.0, ulps=2)
    with np.errstate(over="ignore", invalid="ignore"):
        line = round_up(orders * rho, ulps=1)
        tight = bounded_range_curve(epsilon, orders)
    # fmin passes over a tight value that overflowed to nan: the other two are bounds by themselves.
    curve = np.fmin(np.fmin(tight, line), pure_curve(epsilon, orders))
    return Cost(orders, curve, rho=rho, mu=pure_mu(epsilon), pure_epsilon=epsilon)


def bounded_range_curve(epsilon: float, orders: Floats) -> Floats:
    """The supremum of the Rényi curve over all releases of bounded range ε > 0.

    Statement: ε(α) = (α·s(αε) − (α−1)·s((α−1)ε) − s(ε)) / (α−1) with s(x) = log(sinh(x/2)/(x/2)).
    The losses of a pair lie in some [t − ε, t] with t in [0, ε]; x^α is convex, so the moment is largest
    when only the two ends occur, with the probabilities that make the likelihood ratio average to 1:
    A·e^((α−1)t) − B·e^(αt), over C, with A = 1 − e^(−αε), B = e^(−ε) − e^(−αε), C = 1 − e^(−ε). It is
    largest at e^t = A(α−1)/(Bα), which lies in [1, e^ε]; inserting that t gives the statement.
    Conditions: every α > 1; swapping the pair swaps t and ε − t, so both directions are covered.
    Source: Dong, Durfee, Rogers 2020 (the two-point pairs); the maximiser as above.

    The three terms nearly cancel: a margin relative to their sum is added.
    """
    excess = orders - 1.0
    first = orders * log_sinhc(orders * epsilon / 2.0)
    second = excess * log_sinhc(excess * epsilon / 2.0)
    third = log_sinhc(np.array(epsilon / 2.0))
    difference = first - second - third + _MARGIN * (first + second + third)
    return round_up(difference / excess, ulps=2)


def _check_monotonic(theorem: str, monotonic: bool, adjacency: Adjacency) -> None:
    if monotonic and adjacency is not Adjacency.ADD_REMOVE:
        raise AdjacencyMismatch(theorem, Adjacency.ADD_REMOVE.value, adjacency.value)
