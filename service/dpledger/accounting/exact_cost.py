"""Exact costs of steps, where they are rational functions of the numbers as given.

Statement: on a full look the ρ, μ², pure ε and Rényi cost of releases add, each repeated ``count`` times; the
additive δ of releases adds, and is multiplied by the rate of a Poisson sample.
Conditions: those of the mechanisms' own bounds and, for the rate, those of
:mod:`dpledger.accounting.amplification.approximate`.
Source: the mechanisms' own; each gives the exact value of the bound that its ``cost`` rounds up.
"""

from collections.abc import Callable
from fractions import Fraction

from dpledger.accounting.exact import as_given
from dpledger.accounting.mechanisms.base import Mechanism
from dpledger.accounting.sampling import Scheme
from dpledger.accounting.steps import Step

__all__ = ["agreed", "exact_delta", "exact_epsilon", "exact_mu_squared", "exact_pure_epsilon", "exact_rho"]

_NEAR = Fraction(1, 10**9)


def exact_rho(step: Step) -> Fraction | None:
    """ρ of all releases, None where it is not known exactly."""
    return _sum(step, lambda mechanism: mechanism.exact_rho)


def exact_mu_squared(step: Step) -> Fraction | None:
    """μ² of all releases, None where it is not known exactly."""
    return _sum(step, lambda mechanism: mechanism.exact_mu_squared)


def exact_pure_epsilon(step: Step) -> Fraction | None:
    """Pure ε of all releases, None where it is not known exactly."""
    return _sum(step, lambda mechanism: mechanism.exact_pure_epsilon)


def exact_epsilon(step: Step, order: float, as_read: Fraction) -> Fraction | None:
    """The Rényi cost at an order, which is read as ``as_read``; None where it is not known exactly."""
    return _sum(step, lambda mechanism: mechanism.exact_epsilon(order, as_read))


def exact_delta(step: Step) -> Fraction | None:
    """The additive δ; None without replacement, whose rate is a quotient that no decimal need be equal to."""
    rate = step.sample.rate
    if step.sample.scheme is Scheme.WITHOUT_REPLACEMENT and rate not in (0.0, 1.0):
        return None
    total = sum((r.count * r.mechanism.exact_delta for r in step.releases), Fraction(0))
    return total if rate is None else as_given(rate) * total


def agreed(exact: Fraction | None, bound: float) -> Fraction:
    """The exact value if it is what the float bounds; the larger of both where they are apart."""
    above = Fraction(bound)
    if exact is None:
        return above
    # Apart are only numbers so small that doubles no longer tell them from their neighbours.
    return exact if abs(exact - above) <= above * _NEAR else max(exact, above)


def _sum(step: Step, value: Callable[[Mechanism], Fraction | None]) -> Fraction | None:
    if step.sample.rate == 0.0:
        return Fraction(0)
    if step.sample.rate not in (None, 1.0):
        return None
    total = Fraction(0)
    for release in step.releases:
        each = value(release.mechanism)
        if each is None:
            return None
        total += release.count * each
    return total
