"""The dominating pairs of step descriptions: which mechanisms have one, and under which sample."""

import functools
import math
from collections.abc import Sequence

import numpy as np

from dpledger.accounting.amplification.mixture import check_probabilities
from dpledger.accounting.amplification.pairing import check_pairing
from dpledger.accounting.errors import AdjacencyMismatch, InvalidInput, Unproven
from dpledger.accounting.mechanisms import (
    GDP,
    RDP,
    ZCDP,
    DiscreteGaussian,
    Exponential,
    Laplace,
    Mechanism,
    NoisyMax,
    NoisyVotes,
    OutputMixture,
)
from dpledger.accounting.numerics import ratio_above, root_of_squares
from dpledger.accounting.pld.cells import ROUNDING
from dpledger.accounting.pld.pairs import (
    AtomicPair,
    BoundedRangePair,
    DominatingPair,
    GaussianPair,
    LaplacePair,
    MixturePair,
    ReversedPair,
    randomized_response_pair,
)
from dpledger.accounting.pld.product import product_pair
from dpledger.accounting.pld.sampled import PoissonPair, SymmetricPair
from dpledger.accounting.rounding import Direction, widen
from dpledger.accounting.sampling import Adjacency, Scheme
from dpledger.accounting.steps import Release, Step
from dpledger.accounting.validation import check_non_negative

__all__ = ["Items", "check_mu", "check_rho", "dominating_pairs", "mechanism_pairs"]

Items = tuple[tuple[DominatingPair, int], ...]
"""Pairs with multiplicities; none at all where nothing is lost."""

_ORDER = np.array([2.0])
_MOST_ATOMS = 1 << 20
_MOST_PARTS = 256
_LARGEST_LOSS = 650.0
"""A step's losses beyond this are refused: their exponentials are no floats, and no budget allows them."""
_LARGEST_MU = 16.0
"""μ²/2 + 32μ stays below it."""
_LARGEST_RHO = 128.0
"""ρ + 2√(512ρ) stays below it."""

_atoms = functools.lru_cache(maxsize=256)(randomized_response_pair)


@functools.lru_cache(maxsize=1024)
def dominating_pairs(step: Step) -> tuple[Items, Items]:
    """The pairs that dominate a step when a record is removed and when one is added (the same if symmetric).

    Statement: full samples: the pairs of the releases, each as often as its count; Poisson: one
    :class:`PoissonPair` of their product, and its reverse; without replacement: one :class:`SymmetricPair`.
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
    if rate is None or rate == 1.0 or not items:
        return items, items
    if rate == 0.0:
        return (), ()
    sampled = PoissonPair(product_pair(items), rate)
    if step.sample.scheme is Scheme.WITHOUT_REPLACEMENT:
        both: Items = ((SymmetricPair(sampled), 1),)
        return both, both
    return ((sampled, 1),), ((ReversedPair(sampled), 1),)


def _repeated(release: Release, adjacency: Adjacency) -> list[tuple[DominatingPair, int]]:
    return [(pair, times * release.count) for pair, times in mechanism_pairs(release.mechanism, adjacency)]


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


def mechanism_pairs(mechanism: Mechanism, adjacency: Adjacency) -> Items:
    """The pairs that dominate one release on a sample looked at in full, the same in both directions."""
    if isinstance(mechanism, (ZCDP, RDP)):
        raise Unproven(f"a declared {mechanism.kind} cost has no dominating pair")
    if isinstance(mechanism, DiscreteGaussian):
        return _discrete_gaussian(mechanism)
    if isinstance(mechanism, OutputMixture):
        return _output_mixture(mechanism, adjacency)
    mu = mechanism.mu if isinstance(mechanism, GDP) else mechanism.gaussian_mu
    if mu is not None:
        return ((GaussianPair(check_mu(mu)), 1),) if mu else ()
    if isinstance(mechanism, Laplace):
        return _laplace(ratio_above("sensitivity / scale", mechanism.sensitivity, mechanism.scale), 1)
    if isinstance(mechanism, NoisyVotes):
        assert mechanism.scale is not None
        return _laplace(ratio_above("1 / scale", 1.0, mechanism.scale), 2)
    return _pure(mechanism, adjacency)


def _bounded(field: str, value: float, most: float = _LARGEST_LOSS, least: float = 1e-12) -> float:
    """A parameter whose losses a grid can hold; tiny ones are rounded up."""
    if value > most:
        raise InvalidInput(field, f"at most {most:g} for privacy-loss distributions", value)
    return max(value, least)


def check_mu(mu: float) -> float:
    """A μ whose losses a grid can hold."""
    return _bounded("mu", mu, _LARGEST_MU)


def check_rho(rho: float) -> float:
    """A ρ whose losses a grid can hold."""
    return _bounded("rho", rho, _LARGEST_RHO, 1e-20)


def _laplace(shift: float, times: int) -> Items:
    return ((LaplacePair(_bounded("sensitivity / scale", shift)), times),) if shift else ()


def _pure(mechanism: Mechanism, adjacency: Adjacency) -> Items:
    """What is ε-private up to δ, and what has bounded range; their own checks are made on the way."""
    cost = mechanism.cost(_ORDER, adjacency)
    if cost.pure_epsilon is None:
        raise Unproven(f"{mechanism.kind} has no dominating pair that is proven here")
    epsilon = cost.pure_epsilon
    if epsilon == 0.0 and cost.delta == 0.0:
        return ()
    ranged = isinstance(mechanism, Exponential) or (
        isinstance(mechanism, NoisyMax) and mechanism.noise == "gumbel"
    )
    if ranged:
        return ((BoundedRangePair(_bounded("epsilon", epsilon)), 1),)
    return ((_atoms(_bounded("epsilon", epsilon) if epsilon else 0.0, cost.delta), 1),)


def _discrete_gaussian(mechanism: DiscreteGaussian) -> Items:
    """One coordinate moves by 1, or up to three do.

    Statement: an integer-valued query whose L2 sensitivity is below 2 moves at most ⌊Δ²⌋ ≤ 3 coordinates, by
    1 each; noise is independent over coordinates, so the product of as many pairs of shift 1 dominates.
    Conditions: Δ < 2 (else a coordinate may move by 2, and no single pair is the worst: refused).
    Source: log-concavity (a larger shift is worse); Canonne, Kamath, Steinke 2020 for the mechanism.
    """
    if mechanism.sensitivity >= 2.0:
        raise Unproven("discrete Gaussian noise has a dominating pair here for sensitivities below 2")
    moved = math.floor(widen(mechanism.sensitivity**2, Direction.UP, ulps=2))
    return ((_unit_shift(mechanism.noise_std), min(moved, 3)),) if moved else ()


@functools.lru_cache(maxsize=64)
def _unit_shift(noise_std: float) -> AtomicPair:
    """The discrete Gaussian against itself moved by 1: losses (2x − 1)/(2σ²) at x under the moved law."""
    reach = math.ceil(38.0 * noise_std) + 2
    if 2 * reach > _MOST_ATOMS:
        raise Unproven(f"discrete Gaussian noise beyond {_MOST_ATOMS // 80} has no dominating pair here")
    x = np.arange(-reach, reach + 1.0)
    weights = np.exp(-0.5 * np.square(x / noise_std))
    masses = weights / weights.sum()
    variance = noise_std * noise_std
    losses = (x[1:] - 0.5) / variance
    if losses[-1] > _LARGEST_LOSS:
        least = 0.25
        raise InvalidInput("noise_std", f"at least {least:g} for privacy-loss distributions", noise_std)
    error = ROUNDING * (1600.0 + x.size)
    cut = (float(masses[-1]), float(masses[0]))
    loss_error = 8.0 * ROUNDING * float(losses[-1])
    return AtomicPair(losses, masses[:-1], masses[1:], infinite=cut, mass_error=error, loss_error=loss_error)


def _output_mixture(mechanism: OutputMixture, adjacency: Adjacency) -> Items:
    if adjacency is not Adjacency.REPLACE_ONE:
        theorem = "output perturbation after permuted mini-batches (Theorem 3.2)"
        raise AdjacencyMismatch(theorem, Adjacency.REPLACE_ONE.value, adjacency.value)
    shares: dict[float, float] = {}
    for size, share in zip(
        mechanism.sensitivities, check_probabilities(mechanism.probabilities), strict=True
    ):
        shares[size] = shares.get(size, 0.0) + float(share)
    if len(shares) > _MOST_PARTS:
        raise Unproven(f"up to {_MOST_PARTS} different sensitivities have a dominating pair here")
    parts = tuple(
        (share, _gaussian_or_nothing(ratio_above("sensitivity / noise_std", size, mechanism.noise_std)))
        for size, share in sorted(shares.items(), reverse=True)
        if share > 0.0
    )
    return ((MixturePair(parts), 1),) if max(shares) > 0.0 else ()


def _gaussian_or_nothing(mu: float) -> DominatingPair:
    return GaussianPair(check_mu(mu)) if mu else _atoms(0.0, 0.0)
