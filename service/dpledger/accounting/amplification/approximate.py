"""Amplification of (ε, δ), and how an additive δ is carried through sampling.

A δ-approximate curve under Poisson sampling
    Statement: if a release has a curve ε(α) outside an event of probability δ, the release on a Poisson
    sample has the amplified curve outside an event of probability q·δ.
    Conditions: Poisson sampling, add-remove adjacency; for each neighbouring pair one decomposition
    serves both directions, as that of (ε, δ)-DP does (Kairouz, Oh, Viswanath 2015).
    Proof: for a sample S without the record x, M(S) = (1−δ)A + δE and M(S ∪ x) = (1−δ)B + δE' with the curve
    between A and B. On the dataset with x the output is (1−q)M(S) + qM(S ∪ x), without it M(S), averaged
    over S. Remove the mass q·δ from both: E' there, E here. What is left is, with common weights, a
    mixture of the pair ((1−q)A + qB, A) and the pair (E, E); divergence is jointly (quasi-)convex, so it is
    at most that of the first pair, the amplified curve.

Without replacement only (Σε, Σδ) of releases that are pure or (ε, δ) is amplified, by the lemma below.
"""

import math

from dpledger.accounting.amplification.pairing import check_pairing
from dpledger.accounting.numerics import round_up
from dpledger.accounting.sampling import Adjacency, Sample, Scheme
from dpledger.accounting.validation import check_delta, check_non_negative, check_rate

__all__ = ["amplified_approximate", "amplified_delta", "amplified_epsilon"]

_LARGE = 700.0


def amplified_approximate(
    sample: Sample, adjacency: Adjacency, epsilon: float, delta: float
) -> tuple[float, float]:
    """(ε', δ') of an (ε, δ)-DP release on a sample, both rounded up.

    Statement: ε' = ln(1 + q(e^ε − 1)), δ' = q·δ.
    Conditions: Poisson sampling with add-remove, or without replacement with replace-one adjacency; a
    full look, with either, changes nothing.
    Source: Lemma 15.4 and Lemma 1.2 of the lectures; Balle, Barthe, Gaboardi 2018, Theorems 8 and 9.
    """
    check_pairing(sample.scheme, adjacency)
    rate = 1.0 if sample.scheme is Scheme.FULL or sample.rate is None else sample.rate
    return amplified_epsilon(rate, epsilon), amplified_delta(rate, delta)


def amplified_epsilon(rate: float, epsilon: float) -> float:
    """ln(1 + q(e^ε − 1)), rounded up, never above ε; in log space for large ε."""
    rate, epsilon = check_rate("rate", rate), check_non_negative("epsilon", epsilon)
    if rate in (0.0, 1.0) or epsilon == 0.0:
        return rate * epsilon
    if epsilon < _LARGE:
        amplified = math.log1p(rate * math.expm1(epsilon))
        return min(round_up(amplified, ulps=8), epsilon)
    above = max(math.log(rate) + epsilon, math.log1p(-rate))
    below = min(math.log(rate) + epsilon, math.log1p(-rate))
    return min(round_up(above + math.log1p(math.exp(below - above)) + 1e-12, ulps=8), epsilon)


def amplified_delta(rate: float, delta: float) -> float:
    """q·δ, rounded up, never above δ."""
    rate, delta = check_rate("rate", rate), check_delta("delta", delta)
    if rate in (0.0, 1.0) or delta == 0.0:
        return rate * delta
    return min(round_up(rate * delta, ulps=1), delta)
