"""The dominating pairs of step descriptions: those of its mechanisms, under its sample."""

import functools
from collections.abc import Sequence

from dpledger.accounting.amplification.pairing import check_pairing
from dpledger.accounting.numerics import root_of_squares
from dpledger.accounting.pld.items import Items, check_mu
from dpledger.accounting.pld.pairs import DominatingPair, GaussianPair, ReversedPair
from dpledger.accounting.pld.product import product_pair
from dpledger.accounting.pld.sampled import PoissonPair, SymmetricPair
from dpledger.accounting.rounding import Direction, widen
from dpledger.accounting.sampling import Adjacency, Scheme
from dpledger.accounting.steps import Release, Step
from dpledger.accounting.validation import check_non_negative

__all__ = ["dominating_pairs"]

_LARGEST_RATE = 1.0 - 1e-6
"""Beyond it a full look, which dominates every sample, is charged: 1 − q, and so the least loss, is hardly a
float."""


@functools.lru_cache(maxsize=1024)
def dominating_pairs(step: Step) -> tuple[Items, Items]:
    """The pairs that dominate a step when a record is removed and when one is added (the same if symmetric).

    Statement: full samples, and larger ones than 1 − 1e-6: the pairs of the releases, each as often as its
    count; Poisson: one :class:`PoissonPair` of their product, and its reverse; without replacement: one
    :class:`SymmetricPair`.
    Conditions: the releases' own, and the pairing of sampling schemes with adjacencies.
    Source: the classes named; Zhu, Dong, Wang 2022.

    Raises
    ------
    Unproven
        For declared ρ-zCDP and Rényi curves and whatever else bounds no hockey-stick divergence at all γ.
    """
    check_pairing(step.sample.scheme, step.adjacency)
    items = _together([pair for release in step.releases for pair in _repeated(release, step.adjacency)])
    rate = step.sample.rate
    if rate is None or rate > _LARGEST_RATE or not items:
        return items, items
    if rate == 0.0:
        return (), ()
    sampled = PoissonPair(product_pair(items), rate)
    if step.sample.scheme is Scheme.WITHOUT_REPLACEMENT:
        both: Items = ((SymmetricPair(sampled), 1),)
        return both, both
    return ((sampled, 1),), ((ReversedPair(sampled), 1),)


def _repeated(release: Release, adjacency: Adjacency) -> list[tuple[DominatingPair, int]]:
    items = release.mechanism.dominating_pairs(adjacency)
    return [(pair, times * release.count) for pair, times in items]


def _together(items: Sequence[tuple[DominatingPair, int]]) -> Items:
    """Gaussians as one, equal pairs counted together."""
    counts: dict[DominatingPair, int] = {}
    for pair, times in items:
        counts[pair] = counts.get(pair, 0) + times
    gaussians = [(pair.mu, times) for pair, times in counts.items() if isinstance(pair, GaussianPair)]
    others = [(pair, times) for pair, times in counts.items() if not isinstance(pair, GaussianPair)]
    if not gaussians:
        return tuple(others)
    mu = check_non_negative("μ of all releases", root_of_squares(gaussians))
    total = mu if gaussians[0][1] == 1 and len(gaussians) == 1 else widen(mu, Direction.UP, ulps=4)
    return ((GaussianPair(check_mu(total)), 1), *others)
