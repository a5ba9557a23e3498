"""Privacy loss distributions, by the library dp-accounting, for reports on fixed plans.

Statement: the hockey-stick divergence of the composed privacy loss distribution, discretised so that
the estimate is pessimistic. Conditions: plans fixed in advance, no filter exists for it; only events
that the library gets right: full Gaussian looks (either adjacency), full looks of one Laplace release
of a query with one coordinate, and Gaussians on a Poisson sample under add-remove. δ of at least
1e-10, because the library convolves by FFT in double precision; the answer is taken at 0.999·δ so that
this rounding cannot undercut it.
Source: Koskela, Jälkö, Honkela 2020; Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022 ("connect the
dots"); Google's dp-accounting.
"""

import importlib
from typing import Any

from dpledger.accounting.composition.plan import Plan, combined_gaussian_mu
from dpledger.accounting.errors import AdjacencyMismatch, InvalidInput, Unproven
from dpledger.accounting.mechanisms import Laplace
from dpledger.accounting.sampling import Adjacency, Scheme
from dpledger.accounting.steps import Step

__all__ = ["LEAST_DELTA", "pld_epsilon"]

LEAST_DELTA = 1e-10
_SAFETY = 0.999


def pld_epsilon(plan: Plan, *, interval: float = 1e-4) -> float:
    """ε of a plan at its δ by privacy loss distributions; see the module's text."""
    if plan.delta < LEAST_DELTA:
        raise InvalidInput("delta", f"at least {LEAST_DELTA} for pld", plan.delta)
    library = _library()
    # The library knows no step without a loss.
    costly = [part for part, (cost, _) in zip(plan.parts, plan.costs, strict=True) if cost.epsilons.any()]
    if not costly:
        return 0.0
    losses = [_loss(library, step, interval).self_compose(times) for step, times in costly]
    composed = losses[0]
    for loss in losses[1:]:
        composed = composed.compose(loss)
    return float(composed.get_epsilon_for_delta(_SAFETY * plan.delta))


def _library() -> Any:
    try:
        return importlib.import_module("dp_accounting.pld.privacy_loss_distribution")
    except ImportError as missing:
        raise ImportError("method pld needs the library dp-accounting: install dpledger[pld]") from missing


def _loss(library: Any, step: Step, interval: float) -> Any:
    mu = combined_gaussian_mu(step)
    if mu is not None:
        return library.from_gaussian_mechanism(
            1.0 / mu, value_discretization_interval=interval, sampling_prob=_rate(step)
        )
    release = step.releases[0]
    if len(step.releases) == 1 and release.count == 1 and isinstance(release.mechanism, Laplace):
        if step.sample.scheme is not Scheme.FULL:
            raise Unproven("pld covers Laplace noise on full looks only")
        return library.from_laplace_mechanism(
            release.mechanism.scale / release.mechanism.sensitivity, value_discretization_interval=interval
        )
    raise Unproven("pld covers Gaussian releases, or one Laplace release a step")


def _rate(step: Step) -> float:
    if step.sample.scheme is Scheme.FULL:
        return 1.0
    if step.sample.scheme is not Scheme.POISSON:
        raise Unproven("pld covers full looks and Poisson samples")
    if step.adjacency is not Adjacency.ADD_REMOVE:
        raise AdjacencyMismatch("the Poisson-subsampled Gaussian's pld", "add-remove", step.adjacency.value)
    assert step.sample.rate is not None
    return step.sample.rate
