"""Rules by which one step description provably dominates another, at every γ ≥ 0 and in both directions.

A plan's item may be used up by a step that it dominates. Domination is decided by rules on parameters alone,
each with its proof; it is never inferred from ε, Rényi curves or computed profiles. The rules between
mechanisms on one sample are the mechanisms' own: ``Mechanism.dominates``.
"""

import math

from dpledger.accounting.rounding import Direction, widen
from dpledger.accounting.sampling import Adjacency, Scheme
from dpledger.accounting.steps import Release, Step

__all__ = ["dominates"]


def dominates(item: Step, step: Step) -> bool:
    """Whether the pair of ``item`` provably dominates ``step``.

    Statement: true only if adjacency and scheme agree, the step's rate is at most the item's, and
    either every release is Gaussian and the step's Σμ² is at most the item's, or the step's releases
    can be assigned to different ones of the item, each dominated by its own, with counts at most theirs.

    Proof. *Rate.* Let (P, Q) be the item's pair on its sample and q' ≤ q. The kernel that keeps y with
    probability q'/q and else draws from Q takes (1−q)Q + qP to (1−q')Q + q'P and Q to Q: Poisson, in both
    directions; the pair without replacement is made of the same function, so its profile falls with q too.
    *Gaussians.* The pair of Gaussians on one sample is N(√Σμ², 1) against N(0, 1); from μ to μ' ≤ μ scale by
    μ'/μ and add N(0, 1 − (μ'/μ)²). *Assignment.* A product of pairs dominates the product of pairs that its
    factors dominate, and dropping a factor is post-processing; sampling keeps domination (a kernel that takes
    (P, Q) to (P', Q') takes (1−q)Q + qP to (1−q)Q' + qP').
    Conditions: the item's releases and counts are the most that its sample will be used for. A step on a full
    sample is not dominated by one on a part, nor the other way round, by these rules (rate 1 excepted).
    Source: Blackwell 1953; Zhu, Dong, Wang 2022; soundness of plans, section 13.
    """
    if item.adjacency is not step.adjacency or not _sample_within(item, step):
        return False
    if item.releases == step.releases:
        return True
    mus = _squared_mu(item, Direction.DOWN), _squared_mu(step, Direction.UP)
    if mus[0] is not None and mus[1] is not None:
        return mus[1] <= mus[0]
    return _assigned(list(item.releases), list(step.releases), item.adjacency)


def _sample_within(item: Step, step: Step) -> bool:
    """The scheme agrees and the step's rate is at most the item's; rate 1 is a full sample."""
    first, second = (_scheme_and_rate(each) for each in (item, step))
    return first[0] is second[0] and second[1] <= first[1]


def _scheme_and_rate(step: Step) -> tuple[Scheme, float]:
    rate = 1.0 if step.sample.rate is None else step.sample.rate
    return (Scheme.FULL, 1.0) if rate == 1.0 else (step.sample.scheme, rate)


def _squared_mu(step: Step, direction: Direction) -> float | None:
    """Σ count·μ² of a step of Gaussians, rounded in a direction; None where something else is released."""
    parts = [(release.mechanism.dominating_mu, release.count) for release in step.releases]
    squares = [mu * mu * count for mu, count in parts if mu is not None]
    if len(squares) < len(parts):
        return None
    return widen(math.fsum(squares), direction, ulps=4) if len(parts) > 1 else squares[0]


def _assigned(items: list[Release], releases: list[Release], adjacency: Adjacency) -> bool:
    """Each release to an item of its own: a matching in a graph of at most 64 by 64."""
    taken: dict[int, int] = {}

    def place(index: int, seen: set[int]) -> bool:
        for at, item in enumerate(items):
            if at in seen or not _release_within(item, releases[index], adjacency):
                continue
            seen.add(at)
            if at not in taken or place(taken[at], seen):
                taken[at] = index
                return True
        return False

    return len(releases) <= len(items) and all(place(index, set()) for index in range(len(releases)))


def _release_within(item: Release, release: Release, adjacency: Adjacency) -> bool:
    return release.count <= item.count and item.mechanism.dominates(release.mechanism, adjacency)
