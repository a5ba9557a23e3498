"""The cost of a step: releases on one sample are added first, and amplified once.

Amplifying them one by one is unsound: two Gaussians with σ = 1 on one Poisson sample at q = 0.01 cost
1.86 times the sum of the separately amplified curves at α = 2, and 1,530 times at α = 8.
"""

import functools
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from dpledger.accounting.amplification.approximate import amplified_delta, amplified_epsilon
from dpledger.accounting.amplification.moments import moments_accountant_curve
from dpledger.accounting.amplification.pairing import check_pairing
from dpledger.accounting.amplification.poisson import POISSON_METHODS, poisson_curve
from dpledger.accounting.amplification.poisson_gaussian import poisson_gaussian_curve
from dpledger.accounting.amplification.sampled_laplace import (
    laplace_without_replacement_curve,
    poisson_laplace_curve,
)
from dpledger.accounting.amplification.without_replacement import (
    dominating_pair_curve,
    wang_balle_kasiviswanathan_curve,
)
from dpledger.accounting.cost import Cost
from dpledger.accounting.errors import Unproven
from dpledger.accounting.mechanisms.gaussian import gaussian_cost
from dpledger.accounting.mechanisms.pure import pure_cost
from dpledger.accounting.numerics import exact_sum, root_of_squares
from dpledger.accounting.rounding import Direction, widen
from dpledger.accounting.sampling import Sample, Scheme
from dpledger.accounting.steps import Step
from dpledger.accounting.validation import Floats, check_choice, check_non_negative, check_orders

__all__ = ["AMPLIFICATION_METHODS", "cost_of", "laplace_shift"]

AMPLIFICATION_METHODS: dict[Scheme, tuple[str, ...]] = {
    Scheme.FULL: (),
    Scheme.POISSON: ("subsampled-gaussian", "subsampled-laplace", *POISSON_METHODS, "moments-accountant"),
    Scheme.WITHOUT_REPLACEMENT: ("dominating-pair", "wang-balle-kasiviswanathan"),
}
"""Theorems by name, for each scheme; see the files of ``amplification``."""

_COVERED = {
    "subsampled-gaussian": "Gaussian noise",
    "subsampled-laplace": "Laplace noise",
    "moments-accountant": "Gaussian noise",
    "dominating-pair": "Gaussian or Laplace noise",
}
"""What a theorem covers that does not cover every mechanism."""
_OF_LAPLACE = ("subsampled-laplace", "dominating-pair")


def cost_of(step: Step, orders: Floats, *, method: str | None = None) -> Cost:
    """Upper bound on the cost of a step at the given orders.

    Parameters
    ----------
    step
        Releases on one sample under an adjacency. Poisson sampling goes with add-remove, sampling
        without replacement with replace-one; a full look with either.
    orders
        Strictly increasing Rényi orders above 1.
    method
        The theorem that amplifies, one of ``AMPLIFICATION_METHODS`` for the scheme; by default the
        tightest proven. With a named one the cost is that theorem's curve and nothing else.

    Returns
    -------
    The cost; under sampling ρ, μ and pure ε exist only where every release is pure, up to the δ beside
    the curve.

    Raises
    ------
    AdjacencyMismatch
        Where the scheme's theorems hold for the other adjacency.
    Unproven
        Where no theorem covers the releases.
    """
    orders, scheme = check_orders(orders), step.sample.scheme
    check_pairing(scheme, step.adjacency)
    if method is not None:
        check_choice("method", method, AMPLIFICATION_METHODS[scheme])
    rate = _rate(step.sample)
    if rate == 0.0:
        return Cost.zero(orders)
    if rate == 1.0 and method is None:
        return _full(step, orders)
    return _sampled_cost(step, rate, orders, method)


def _rate(sample: Sample) -> float:
    return 1.0 if sample.rate is None else sample.rate


def _full(step: Step, orders: Floats) -> Cost:
    """Sum over the releases of a sample looked at in full; Gaussians combine exactly (μ² adds up)."""
    others = [release for release in step.releases if release.mechanism.gaussian_mu is None]
    costs = [release.mechanism.cost(orders, step.adjacency).repeated(release.count) for release in others]
    if len(others) < len(step.releases):
        costs.append(gaussian_cost(_gaussian_mu(step), orders))
    return functools.reduce(Cost.__add__, costs)


def _gaussian_mu(step: Step) -> float:
    """μ of all Gaussian releases together, rounded up: the root of the sum of squares."""
    parts = [
        (release.mechanism.gaussian_mu, release.count)
        for release in step.releases
        if release.mechanism.gaussian_mu is not None
    ]
    total = check_non_negative("μ of all releases", root_of_squares(parts))
    return widen(total, Direction.UP, ulps=4) if total else 0.0


def _sampled_cost(step: Step, rate: float, orders: Floats, method: str | None) -> Cost:
    if all(release.mechanism.gaussian_mu is not None for release in step.releases):
        return Cost(orders, _gaussian_curve(step.sample.scheme, rate, _gaussian_mu(step), orders, method))
    shift = laplace_shift(step)
    if method in _OF_LAPLACE and shift is not None:
        return Cost(orders, _laplace_curve(step.sample.scheme, rate, shift, orders))
    if method in _COVERED:
        raise _uncovered(method)
    total = _full(step, orders)
    if step.sample.scheme is Scheme.WITHOUT_REPLACEMENT and total.delta > 0.0:
        return _amplified_approximate(total, rate, method)
    curve = _any_curve(step, rate, orders, total.pure_epsilon, method)
    if method is None and shift is not None:
        curve = np.minimum(curve, _laplace_curve(step.sample.scheme, rate, shift, orders))
    cost = Cost(orders, curve, delta=amplified_delta(rate, total.delta))
    return cost if method is not None else _tighten(cost, total, rate)


def _gaussian_curve(scheme: Scheme, rate: float, mu: float, orders: Floats, method: str | None) -> Floats:
    def raw(at: Floats) -> Floats:
        return gaussian_cost(mu, at).epsilons

    by_name: dict[str | None, Callable[[], Floats]] = {
        "subsampled-gaussian": lambda: poisson_gaussian_curve(rate, mu, orders),
        "moments-accountant": lambda: moments_accountant_curve(rate, mu, orders),
        "dominating-pair": lambda: dominating_pair_curve(rate, mu, orders),
        "wang-balle-kasiviswanathan": lambda: wang_balle_kasiviswanathan_curve(rate, raw, orders),
        "steinke": lambda: poisson_curve(rate, raw, orders, method="steinke"),
        "zhu-wang": lambda: poisson_curve(rate, raw, orders, method="zhu-wang"),
    }
    default = "subsampled-gaussian" if scheme is Scheme.POISSON else "dominating-pair"
    if (named := method or default) not in by_name:
        raise _uncovered(named)
    return by_name[named]()


def _uncovered(method: str) -> Unproven:
    return Unproven(f"{method} covers {_COVERED[method]} alone")


def laplace_shift(step: Step) -> float | None:
    """The shift of all releases together, rounded up, where all are Laplace noise; None elsewhere."""
    parts = [(release.mechanism.laplace_shift, release.count) for release in step.releases]
    known = [count * shift for shift, count in parts if shift is not None]
    if len(known) < len(parts):
        return None
    total = check_non_negative("shift of all releases", exact_sum(known))
    return widen(total, Direction.UP, ulps=4) if total else 0.0


def _laplace_curve(scheme: Scheme, rate: float, shift: float, orders: Floats) -> Floats:
    of_scheme = poisson_laplace_curve if scheme is Scheme.POISSON else laplace_without_replacement_curve
    return of_scheme(rate, shift, orders)


def _any_curve(
    step: Step, rate: float, orders: Floats, pure_epsilon: float | None, method: str | None
) -> Floats:
    """The general bound of the scheme on the sum of the releases' curves."""

    def raw(at: Floats) -> Floats:
        return _full(step, at).epsilons

    if step.sample.scheme is Scheme.POISSON:
        return poisson_curve(rate, raw, orders, method=method or POISSON_METHODS[0])
    return wang_balle_kasiviswanathan_curve(rate, raw, orders, pure_epsilon=pure_epsilon)


def _tighten(cost: Cost, total: Cost, rate: float) -> Cost:
    """Where every release is pure (up to δ), the amplified pure ε and all that follows from it."""
    if total.pure_epsilon is None:
        return cost
    pure = pure_cost(amplified_epsilon(rate, total.pure_epsilon), cost.orders)
    return replace(pure, epsilons=np.minimum(cost.epsilons, pure.epsilons), delta=cost.delta)


def _amplified_approximate(total: Cost, rate: float, method: str | None) -> Cost:
    """Without replacement with δ > 0: Lemma 1.2 on the sums, for releases that are pure or (ε, δ)."""
    if total.pure_epsilon is None or method is not None:
        raise Unproven(
            "without replacement a delta is carried only where every release is pure or (epsilon, delta)"
        )
    pure = pure_cost(amplified_epsilon(rate, total.pure_epsilon), total.orders)
    return replace(pure, delta=amplified_delta(rate, total.delta))
