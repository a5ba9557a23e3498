"""Output perturbation after training on permuted mini-batches."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpledger.accounting.amplification.mixture import check_probabilities, log_mixture_moments
from dpledger.accounting.cost import Cost
from dpledger.accounting.errors import AdjacencyMismatch, InvalidInput, Unproven
from dpledger.accounting.mechanisms.base import STANDARD_DEVIATION, Mechanism, NoiseField, NoiseLevel
from dpledger.accounting.mechanisms.gaussian import gaussian_cost
from dpledger.accounting.numerics import ratio_above, round_up
from dpledger.accounting.pld.items import Items, check_mu, nothing_lost
from dpledger.accounting.pld.pairs import DominatingPair, GaussianPair, MixturePair
from dpledger.accounting.sampling import Adjacency
from dpledger.accounting.validation import Floats, check_non_negative, check_positive, check_vector

__all__ = ["OutputMixture"]

_ORDERS_AT_ONCE = 32
_MOST_PARTS = 256


@dataclass(frozen=True)
class OutputMixture(Mechanism):
    """Gaussian noise on a result whose sensitivity is Δ_j with probability q_j.

    With the records permuted at random, a record that differs lies in mini-batch j with probability
    q_j = |B_j|/n, and a difference made early in an epoch has contracted more by its end than a late one:
    :mod:`dpledger.accounting.sensitivity` computes the Δ_j.

    Statement: ε(α) = log(Σ_j q_j e^(α(α−1)Δ_j²/(2σ²))) / (α−1); ρ = max_j Δ_j²/(2σ²).
    Conditions: replace-one adjacency: the permutation must pair the neighbours' mini-batches one to one and
    leave their sizes alone, which adding a record does not; the permutation is secret and uniform; any α > 1.
    Source: Theorem 3.2 and Lemma 3.2 of Chen 2020, dissertation, joint convexity.
    """

    kind: ClassVar[str] = "output-mixture"
    expensive: ClassVar[bool] = True
    noise_field: ClassVar[NoiseField | None] = STANDARD_DEVIATION
    noise_std: float
    sensitivities: tuple[float, ...]
    probabilities: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise_std", check_positive("noise_std", self.noise_std))
        object.__setattr__(self, "sensitivities", _plain("sensitivities", self.sensitivities))
        object.__setattr__(self, "probabilities", _plain("probabilities", self.probabilities))
        if len(self.sensitivities) != len(self.probabilities):
            found = len(self.probabilities)
            raise InvalidInput("probabilities", f"{len(self.sensitivities)}, one per sensitivity", found)
        check_probabilities(self.probabilities)

    @property
    def needs_equal_sizes(self) -> bool:
        """Always: another number of records makes other mini-batches."""
        return True

    def cost(self, orders: Floats, adjacency: Adjacency) -> Cost:
        _check_adjacency(adjacency)
        worst = ratio_above("sensitivity / noise_std", max(self.sensitivities), self.noise_std)
        if worst == 0.0:
            return Cost.zero(orders)
        largest = gaussian_cost(worst, orders)
        with np.errstate(over="ignore", invalid="ignore"):
            curve = np.fmin(self._curve(orders), largest.epsilons)  # passes over what overflowed to nan
        return Cost(orders, curve, rho=largest.rho)

    def dominating_pairs(self, adjacency: Adjacency) -> Items:
        """The mixture of the Gaussian pairs of the different Δ_j, each with the share of its batches.

        Statement and conditions: those of the class, by joint convexity of the hockey-stick divergence; up to
        256 different sensitivities.
        """
        _check_adjacency(adjacency)
        shares: dict[float, float] = {}
        for size, share in zip(self.sensitivities, check_probabilities(self.probabilities), strict=True):
            shares[size] = shares.get(size, 0.0) + float(share)
        if len(shares) > _MOST_PARTS:
            raise Unproven(f"up to {_MOST_PARTS} different sensitivities have a dominating pair here")
        parts = tuple(
            (share, _gaussian_or_nothing(ratio_above("sensitivity / noise_std", size, self.noise_std)))
            for size, share in sorted(shares.items(), reverse=True)
            if share > 0.0
        )
        return ((MixturePair(parts), 1),) if max(shares) > 0.0 else ()

    @property
    def noise_level(self) -> NoiseLevel | None:
        """The noise over the largest sensitivity."""
        return NoiseLevel.of(STANDARD_DEVIATION.symbol, self.noise_std, max(self.sensitivities))

    def _curve(self, orders: Floats) -> Floats:
        """The mixture in blocks of orders, so that 100,000 batches fit in memory."""
        shares = check_probabilities(self.probabilities)
        halves = np.square(np.array(self.sensitivities) / self.noise_std) / 2.0
        parts = np.array_split(orders, -(-orders.size // _ORDERS_AT_ONCE))
        return np.concatenate([_mix(part, halves, shares) for part in parts])


def _check_adjacency(adjacency: Adjacency) -> None:
    if adjacency is not Adjacency.REPLACE_ONE:
        theorem = "output perturbation after permuted mini-batches (Theorem 3.2)"
        raise AdjacencyMismatch(theorem, Adjacency.REPLACE_ONE.value, adjacency.value)


def _gaussian_or_nothing(mu: float) -> DominatingPair:
    return GaussianPair(check_mu(mu)) if mu else nothing_lost()


def _mix(orders: Floats, halves: Floats, shares: Floats) -> Floats:
    exponents = np.multiply.outer(orders * (orders - 1.0), halves)
    return round_up(log_mixture_moments(exponents, shares) / (orders - 1.0), ulps=4)


def _plain(field: str, values: Any) -> tuple[float, ...]:
    return tuple(check_non_negative(field, value) for value in check_vector(field, values).tolist())
